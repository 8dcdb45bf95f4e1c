"""Two stages that read texts and write none: embeddings and scores served within a limit on time, or a corpus of them by a deadline.

A replica reads texts in passes. Those that arrive during a pass are read in the next, so that at a mean of b texts a pass of
T(b) seconds a replica sustains b/T(b) texts a second, and a request waits for what is left of the pass it meets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import sympy as sp

from tokenmill_models import embedding_leaves as own
from tokenmill_models import inference_leaves as leaf
from tokenmill_models import serving_shared
from tokenmill_models.architecture import Architecture
from tokenmill_models.batch_inference import rewritten
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.inference import GROUPS, Pass, prefill_shape, run_pass
from tokenmill_models.inference_memory import define_memory, sequence_bytes
from tokenmill_models.operations_parts import ZERO, arch_leaf
from tokenmill_models.queueing import NORMAL, ONE_PERCENTILE, RHO_STATED
from tokenmill_models.roofline import FLOP_PER_MAC, M
from tokenmill_models.serving_figures import alone, define_figures, define_shares, flat, layout_rules
from tokenmill_models.serving_load import combine
from tokenmill_models.stage import Demand, Role, Route, Rule, StageModel, register_stage
from tokenmill_models.symbols import constant, declare

BULK = Source(
    "bulk service: what arrives during a pass is served by the next (Bailey 1954, On queueing processes with bulk service, J. R. Stat. Soc. B 16)",
    (
        "a pass of T seconds meets rate x T texts: the rate that keeps b a pass is b/T(b)",
        "a request meets a pass at a moment that is uniform over it, waits for its end, and is served by the next",
        "with less than a request a pass, replicas stand idle in between: those that meet no pass do not wait",
        "a pass that is longer brings a longer one after it: of a relative variance s² a pass, c² = r² s²/(1-r²) stays, r the share of its time that grows with its texts",
        "a request meets passes in proportion to their length: 1 + c² of the mean",
    ),
)
SPREAD = Source("variance of a compound Poisson sum: of the requests of a pass, and of the tokens of their texts")
# A pass holds its texts but for one in forty: two standard deviations.
DEVIATIONS = constant("pass_deviations", 2.0, "1", "standard deviations of the tokens of a pass that still fit in it")
TOKENS = declare("request_text_tokens", "1", "tokens of all texts of a request")
READ = declare("run_text_tokens", "1", "tokens of all texts of the run")


@dataclass(frozen=True)
class Reading:
    """A replica that reads: share of the time that a group is busy, tokens of its pass, standard deviation of those that arrive
    during one over them [1], share of its time that grows with its tokens [1], the pass, rate [texts/s].
    """

    busy: sp.Symbol
    tokens: sp.Symbol
    spread: sp.Symbol
    growing: sp.Symbol
    one: Pass
    rate: sp.Symbol


def _reading(graph: Graph, arch: Architecture) -> Reading:
    """Define the passes of a replica that reads `leaf.batch` texts at once in the mean."""
    load = graph.let(
        "group_load", "1", "texts that a group reads at a time, idle moments counted", leaf.batch / leaf.groups
    )
    inside = graph.let(
        "group_batch", "1", "texts of a group's pass: those of a request at least", maximum(own.texts, load)
    )
    tokens = graph.let("pass_tokens", "1", "tokens of a mean pass", inside * leaf.input_tokens)
    longer = leaf.input_tokens * (1 + leaf.input_cv**2)
    keys = graph.let(
        "text_keys", "1", "mean keys that a token is multiplied with: all of its text, or those before it",
        longer if arch.encoder else longer / 2, assumes=("texts of a pass are packed without padding",),
    )  # fmt: skip
    headless = replace(arch, head=None, tied=True)
    one = run_pass(graph, "texts", headless, prefill_shape(tokens, inside, keys), inside)
    twice = run_pass(graph, "texts_twice", headless, prefill_shape(2 * tokens, 2 * inside, keys), 2 * inside)
    growing = graph.let(
        "pass_growth", "1", "share of the time of a pass that grows with its texts",
        maximum(0, minimum(RHO_STATED, load / inside * (twice.time - one.time) / one.time)), source=BULK,
    )  # fmt: skip
    if arch.head is not None:  # the leaf of what a token is multiplied with counts the head
        counted = one.model_flops - FLOP_PER_MAC * tokens * arch_leaf("head.elements") / leaf.tp
        one = replace(
            one, model_flops=graph.let("read_flop", "FLOP", "counted work of a pass without the output head", counted)
        )
    spread = graph.let(
        "pass_spread", "1", "standard deviation of the tokens that arrive during a pass over those of a mean pass",
        sp.sqrt((leaf.arrival_cv**2 * own.texts + leaf.input_cv**2) * load) / inside, source=SPREAD,
    )  # fmt: skip
    busy = graph.let("busy", "1", "share of the time that a group reads", load / inside)
    rate = graph.let("texts_rate", "1/s", "texts a second of a replica", leaf.batch / one.time, source=BULK)
    return Reading(busy, tokens, spread, growing, one, rate)


def _figures(graph: Graph, arch: Architecture, read: Reading) -> tuple[dict[str, sp.Symbol], tuple[Rule, ...]]:
    """Define figures and rules of memory and layout. A decoder caches the texts of a pass while it reads them; an encoder one layer's."""
    memory = define_memory(graph, replace(arch, head=None, tied=True), leaf.chunk, leaf.input_tokens)
    cache = (
        ZERO
        if arch.encoder
        else leaf.chunk * sequence_bytes(arch, leaf.input_tokens, leaf.tp, leaf.pp) / leaf.input_tokens
    )
    room = graph.let("texts_cached", "B", "cache of the texts of a full pass", cache)
    tensors = memory.weights + memory.activations + room
    memory = replace(
        memory,
        room=room,
        allocated=graph.let("texts_allocated", "B", "memory of tensors", tensors),
        total=graph.let("texts_memory", "B", "memory of the fullest rank", tensors + memory.reserve + leaf.outside),
    )
    figures = define_figures(graph, alone(read.one), read.rate * leaf.input_tokens, memory)
    figures = {name: symbol for name, symbol in figures.items() if name not in ("kv_tokens", "max_batch")}
    figures |= {
        "texts_per_second": read.rate,
        "step_time": graph.let("step_time", "s", "time of a pass", read.one.time),
    }
    figures["batch"] = graph.let("batch", "1", "mean texts that a replica reads at once", leaf.batch)
    longest, positions = leaf.input_percentiles["p99"], arch_leaf("max_positions")
    known = arch.max_positions is not None
    rules = [
        *layout_rules(arch),
        Rule("memory", tensors + memory.reserve, M * leaf.memory_fraction, "capacity", "weights, activations and the texts of a pass fit", "B", "layout.tp"),
        Rule("longest", minimum(longest, positions) if known else longest, leaf.chunk, "at_most", "a pass holds the longest text", cure="engine.chunk"),
    ]  # fmt: skip
    if known:
        doc = "the model has positions for all but the longest texts, which engines cut"
        rules.append(Rule("positions", leaf.input_percentiles["p95"], positions, "at_most", doc))
    return figures, tuple(rules)


@lru_cache(maxsize=16)
def serving_texts(arch: Architecture) -> Role:
    """Return the pool that embeds or scores what requests bring, within a limit on their time."""
    graph = Graph()
    read = _reading(graph, arch)
    figures, rules = _figures(graph, arch, read)
    rate = graph.let("rate", "1/s", "requests a second that a replica sustains", read.rate / own.texts)
    graph.let("request_text_tokens", "1", "tokens of all texts of a request", own.texts * leaf.input_tokens)
    times = _times(graph, read)
    ports = {
        "ranks": graph.let("ranks", "1", "ranks of a replica", leaf.ranks),
        "rate": rate,
        "power_idle": figures.pop("power_idle"),
        "power_loaded": figures["power"],
        "text_tokens": TOKENS,
    }
    figures |= {"requests_per_second": rate} | flat("latency", times)
    rules = (
        *rules,
        Rule("pass", maximum(read.tokens, read.tokens * (read.busy + DEVIATIONS * read.spread)), leaf.chunk, "at_most",
             "passes hold what arrives during the one before", cure="engine.chunk"),
        *(Rule(f"latency.{word}", symbol, own.LIMITS[word], "limit", f"{word} of a request's time within its limit", "s", f"slo.latency.{word}")
          for word, symbol in times.items()),
    )  # fmt: skip
    shares = define_shares(graph, alone(read.one))
    role = Role("embed", "pool", own.text_axes(arch), graph, rules, GROUPS, ports, figures, shares)
    return rewritten(role, own.UNUSED)


def _times(graph: Graph, read: Reading) -> dict[str, sp.Symbol]:
    """Define mean and percentiles of a request's time: what is left of the pass it meets, then its own pass; both vary."""
    T, r, s = read.one.time, read.growing, read.spread
    varied = graph.let(
        "pass_variance", "1", "variance of the time of a pass over its square", r**2 * s**2 / (1 - r**2), source=BULK
    )
    met = graph.let("pass_met", "s", "time of the pass that a request meets", T * (1 + varied), source=BULK)
    waits: dict[str, sp.Expr] = {"mean": read.busy * met / 2}
    waits |= {word: maximum(0, 1 - exceed / read.busy) * met for word, exceed in ONE_PERCENTILE.items()}
    mean = graph.let(
        "pass_after", "s", "time of the pass that serves a request: what it brings comes on top of what the pass before brings",
        (1 - r) * T + r * met + r * T * own.texts * leaf.input_tokens / read.tokens, source=BULK,
    )  # fmt: skip
    deviation = T * sp.sqrt(varied * (sp.Rational(1, 2) + r) ** 2 + r**2 * s**2)
    taken: dict[str, sp.Expr] = {"mean": mean}
    taken |= {word: mean + quantile * deviation for word, quantile in NORMAL.items()}
    return combine(graph, "latency", "time of a request", [waits, taken], leaf.request_seconds)


@lru_cache(maxsize=16)
def running_texts(arch: Architecture) -> Role:
    """Return the run that embeds a corpus: replicas of one layout whose passes are always full."""
    graph = Graph()
    read = _reading(graph, arch)
    figures, rules = _figures(graph, arch, read)
    rate = graph.let("corpus_rate", "1/s", "texts a second of all replicas", read.rate * own.replicas)
    graph.let("run_text_tokens", "1", "tokens of all texts of the run", own.all_texts * leaf.input_tokens)
    ranks = graph.let("ranks", "1", "ranks of all replicas", leaf.ranks * own.replicas)
    duration = graph.let(
        "corpus_time", "s", "time of all texts, the last pass whole", own.all_texts / rate + read.one.time
    )
    ports = {
        "ranks": ranks,
        "duration": duration,
        "power_idle": graph.let(
            "corpus_idle", "W", "draw of all replicas at rest", figures.pop("power_idle") * own.replicas
        ),
        "power_loaded": graph.let("corpus_power", "W", "draw of all replicas at work", figures["power"] * own.replicas),
        "text_tokens": READ,
    }
    figures |= {"texts_per_second": rate, "wall_time": duration}
    held = leaf.held_chips * leaf.ranks_a_chip
    rules = (
        *(rule for rule in rules if rule.name != "chips"),
        Rule("chips", held, ranks, "equal", "chips held are those of the whole run", cure="layout.chips"),
        Rule("pass", read.tokens, leaf.chunk, "at_most", "a pass holds its texts", cure="engine.chunk"),
        Rule("filled", leaf.batch * own.replicas, own.all_texts, "at_most", "there are texts for all replicas", cure="layout.replicas"),
    )  # fmt: skip
    axes = (*own.text_axes(arch), own.REPLICAS)
    role = Role("corpus", "run", axes, graph, rules, GROUPS, ports, figures, define_shares(graph, alone(read.one)))
    return rewritten(role, own.UNUSED | own.IN_RUN | {leaf.arrival_cv: sp.Integer(1), own.texts: sp.Integer(1)})


def _staffed(arch: Architecture, _: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[Role, ...]:
    """Return the pool, on a share of a chip where the file lets it."""
    role = serving_texts(arch)
    return (serving_shared.with_share(role) if serving_shared.asked(values.get(serving_shared.KEY)) else role,)


STAGE = register_stage(
    StageModel(
        name="embedding",
        doc="Embed or score the texts that requests bring, within a limit on the time of a request: embedding models and rerankers.",
        inputs=own.POOL_INPUTS,
        roles=lambda architecture: (serving_texts(architecture),),
        staffed=_staffed,
        routes=(Route("embed", ("embed",)),),
        demand=Demand(
            "request", "demand.requests_per_second", "demand.classes", elastic=("demand.at_least", "demand.at_most"),
            seen=("slo.latency",),
        ),
        yields={"cost_per_token": {"input": TOKENS}},
        axes=(*own.SHARED_AXES, serving_shared.AXIS),
    )
)  # fmt: skip
RUN = register_stage(
    StageModel(
        name="embedding_batch",
        doc="Embed a corpus of texts by a deadline, as throughput work that keeps no latency.",
        inputs=own.RUN_INPUTS,
        roles=lambda architecture: (running_texts(architecture),),
        yields={"cost_per_token": {"input": READ}},
        axes=(*own.SHARED_AXES, own.REPLICAS),
    )
)
