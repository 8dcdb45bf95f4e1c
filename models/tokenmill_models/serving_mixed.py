"""The mixed role: one pool computes prompts and answers, with prompts cut into chunks that ride on decode steps.

Two kinds of step alternate: a plain one (decode tokens alone) and a full one that also carries a chunk of a prompt.
The share of full steps follows from the tokens: each request brings its prompt and its decode steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.inference import GROUPS, Pass, decode_shape, prefill_shape, run_pass
from tokenmill_models.inference_memory import Memory, define_memory, sequence_bytes
from tokenmill_models.queueing import NORMAL, ONE_PERCENTILE, define_wait
from tokenmill_models.serving_axes import pool_axes
from tokenmill_models.serving_bills import token_shares
from tokenmill_models.serving_figures import (
    average,
    define_figures,
    define_shares,
    flat,
    layout_rules,
    limit_rules,
    memory_rules,
    pool_ports,
)
from tokenmill_models.serving_images import with_images
from tokenmill_models.serving_load import (
    Request,
    closed_loop,
    combine,
    computed_percentile,
    define_request,
    prefill_steps,
    running_context,
    slot_wait,
)
from tokenmill_models.serving_open import Moments, Pace, define_moments, first_times, token_mean, token_quantiles
from tokenmill_models.speculation import checked, draft_time, kept, with_draft
from tokenmill_models.stage import Role, Rule

SARATHI = Source(
    "Agrawal et al. 2024, Sarathi-Serve, arXiv:2403.02310: chunks of prompts fill decode steps to a token budget"
)
BALANCE = Source(
    "balance of a replica in steady state (Little 1961)",
    (
        "R decode sequences need N steps each of mean time T = T_plain + x (T_full - T_plain), so requests pass at R/(N T)",
        "their prompts fill a share x = R S/(N n) of the steps with chunks of n tokens",
        "slots hold b = R + (R/(N T)) K sequences, K the time a prompt is being computed: a quadratic in R",
    ),
)


START = Source(
    "closed-loop benchmarks: all clients start at once, then each sends its next request when its last is answered",
    (
        "the first of n rounds finds every other client's prompt waiting: half of them on average are computed before",
        "later rounds spread out, as answers differ in length",
    ),
)


COMPOUND = Source(
    "variance of a compound Poisson sum: rate x E[run²]",
    ("a request of N steps meets N x share full steps on average, in runs of computed/carried steps a prompt",),
)


@dataclass(frozen=True)
class Steady:
    """A group in steady state: decode sequences, share of steps with a chunk, mean step [s], chunk [tokens],
    time a prompt is being computed, work of a prompt, time of a chunk token [s], waits for other prompts by word [s].
    """

    decoding: sp.Symbol
    share: sp.Symbol
    step: sp.Symbol
    budget: sp.Symbol
    carried: sp.Symbol
    occupied: sp.Symbol
    token_time: sp.Symbol
    waits: tuple[dict[str, sp.Expr], ...]


def mixed_role(arch: Architecture, images: bool = False) -> Role:
    """Return the mixed role for one architecture; `images`: whether prompts bring images to encode."""
    graph = Graph()
    memory = define_memory(graph, arch, leaf.chunk, running_context(graph))
    running = graph.let(
        "holding_slots", "1", "sequences that hold a slot: in a closed loop those in flight, as far as memory goes",
        sp.Piecewise((maximum(1, minimum(leaf.batch, memory.max_batch)), closed_loop(graph) > 0), (leaf.batch, True)),
    )  # fmt: skip
    request = define_request(graph, running)
    decoded = graph.let(
        "decode_tokens", "1", "decode tokens of a step of a group", request.group_batch * checked(graph)
    )
    budget = graph.let(
        "prefill_budget", "1", "prompt tokens that a step can carry beside its decode tokens",
        maximum(1, leaf.chunk - decoded), source=SARATHI,
    )  # fmt: skip
    carried = graph.let(
        "prefill_carried", "1", "prompt tokens of a step that carries any: a prompt, several, or what fits",
        minimum(budget, request.computed * _together(request)), source=SARATHI,
    )  # fmt: skip
    plain_shape = decode_shape(decoded, request.context, request.group_batch)
    prompts = maximum(1, carried / request.computed)
    full_shape = replace(plain_shape, beside=prefill_shape(carried, prompts, request.prompt_keys))
    drafting = draft_time(graph, request.group_batch, request.context)
    plain = with_draft(graph, run_pass(graph, "plain", arch, plain_shape, decoded), "plain", drafting)
    full = with_draft(graph, run_pass(graph, "full", arch, full_shape, decoded + prompts), "full", drafting)
    if images:
        full = with_images(graph, arch, full, "full", carried, request)
    steady = _steady(graph, request, budget, carried, plain, full)
    return _assemble(graph, arch, request, steady, plain, full, memory, running)


def _together(request: Request) -> sp.Expr:
    """Return the prompts [1] that a step with any takes together: a closed loop spreads them evenly, open arrivals are Poisson (E[n | n > 0])."""
    brought = request.group_batch / request.steps
    return request.closed * maximum(1, brought) + (1 - request.closed) * brought / (1 - sp.exp(-brought))


def _steady(graph: Graph, request: Request, budget: sp.Symbol, carried: sp.Expr, plain: Pass, full: Pass) -> Steady:
    """Define the balance of decode steps and chunks; see BALANCE. Saturated where prompts fill every step's budget.

    In a closed loop a request is in flight, too, while its prompt waits for those before it: a second round counts that.
    """
    N, S = request.steps, request.computed
    extra = graph.let("chunk_time", "s", "time that a chunk adds to a step", maximum(0, full.time - plain.time))
    token_time = graph.let("chunk_token_time", "s", "time that a prompt token adds to a step", extra / carried)
    occupied = graph.let(
        "prompt_time", "s", "time a mean prompt is being computed",
        prefill_steps(S, budget) * plain.time + S * token_time,
    )  # fmt: skip
    work = graph.let(
        "prompt_work", "s", "time of the steps that a prompt fills: its share of them where several fit",
        S * (plain.time / budget + token_time),
    )  # fmt: skip
    first = _decoding(graph, "decoding_first", request, budget, plain.time, S * token_time, occupied)
    queued = _prompt_wait(graph, "first", request, first, plain, S * token_time, work)["mean"]
    begun = _start(graph, request, work)
    held = graph.let(
        "held_time", "s", "time that a request is in a slot, or in a closed loop in flight, before its answer",
        occupied + request.closed * (queued + begun["mean"] + plain.time / 2 + leaf.request_seconds),
    )  # fmt: skip
    decoding = _decoding(graph, "decoding", request, budget, plain.time, S * token_time, held)
    share = graph.let(
        "full_share", "1", "share of steps that carry a chunk", minimum(1, decoding * S / (N * carried)), source=BALANCE
    )
    step = graph.let("step_time", "s", "mean time of a step", plain.time + share * extra, source=BALANCE)
    before = _prompt_wait(graph, "before", request, decoding, plain, S * token_time, work)
    return Steady(decoding, share, step, budget, carried, occupied, token_time, (dict(before), begun))


def _decoding(
    graph: Graph, name: str, request: Request, budget: sp.Expr, plain: sp.Symbol, slope: sp.Expr, held: sp.Symbol
) -> sp.Symbol:
    """Define the decode sequences [1] of a group whose requests spend `held` [s] before their answer: the root of BALANCE."""
    b, N, S = request.group_batch, request.steps, request.computed
    linear = graph.let(f"balance_{name}", "s", "linear term of the balance", N * plain + held - b * slope, sign="real")
    root = sp.sqrt(linear**2 + 4 * slope * b * N * plain)
    return graph.let(
        name, "1", "mean sequences of a group in decode",
        minimum(2 * b * N * plain / (linear + root), budget * N / S), source=BALANCE,
    )  # fmt: skip


def _prompt_wait(
    graph: Graph, label: str, request: Request, decoding: sp.Symbol, plain: Pass, added: sp.Expr, work: sp.Symbol
) -> dict[str, sp.Symbol]:
    """Define how long a prompt waits for those before it; in a closed loop one client fewer can be ahead.

    `added` [s]: what a prompt adds to the steps that carry it. The server is the replica's time: a prompt takes `work` of it.
    """
    load = decoding * work / (request.steps * plain.time + decoding * added)
    others = 1 - request.closed / request.group_batch
    return define_wait(
        graph, f"prompt_{label}", load * others, sp.Integer(1), work, leaf.arrival_cv**2, leaf.input_cv**2
    )


def _start(graph: Graph, request: Request, work: sp.Symbol) -> dict[str, sp.Expr]:
    """Define what the common start of closed-loop clients adds to the time to first token: mean and percentiles [s]."""
    last = graph.let(
        "start_last", "s", "wait of the last prompt of the first round",
        request.closed * (request.group_batch - 1) * work, source=START,
    )  # fmt: skip
    tail = {word: last * maximum(0, 1 - exceed * leaf.rounds) for word, exceed in ONE_PERCENTILE.items()}
    return {"mean": last / (2 * leaf.rounds)} | tail


def _first_token(
    graph: Graph, request: Request, steady: Steady, plain: Pass, memory: Memory, pace: Pace, moments: Moments
) -> dict[str, sp.Symbol]:
    """Define the time to first token: wait for a slot, for the prompts before it, then the steps of its own prompt."""
    slot = _slot_wait(graph, request, steady, memory)
    own: dict[str, sp.Expr] = {"mean": steady.occupied}
    for word in ONE_PERCENTILE:
        tokens = computed_percentile(word)
        steps = prefill_steps(tokens, steady.budget) * plain.time
        own[word] = graph.let(
            f"prompt_time_{word}", "s", f"time the {word} prompt is being computed", steps + tokens * steady.token_time
        )
    late = _sent_late(graph, request)
    overhead = plain.time / 2 + leaf.request_seconds + late * steady.step
    found = combine(
        graph, "ttft_free", "time to first token as its parts give it", [slot, *steady.waits, own], overhead
    )
    core = first_times(graph, request, pace, moments, late, token_mean(graph, request, pace, moments))
    opened = combine(graph, "ttft_open", "time to first token of open arrivals", [slot, core], leaf.request_seconds)
    outside = maximum(0, leaf.concurrency / leaf.groups - request.group_batch)
    behind = graph.let(
        "behind", "s", "time that requests in flight wait for a slot: Little's law on those that hold none",
        request.closed * outside * request.steps * steady.step / steady.decoding,
    )  # fmt: skip
    little = ((request.group_batch / steady.decoding - 1) * request.steps + late) * steady.step
    return {
        word: graph.let(
            f"ttft_{word}", "s", f"{word} time to first token",
            sp.Piecewise((behind + maximum(symbol, little), request.closed > 0), (opened[word], True)),
            assumes=("in a closed loop requests wait at least for the share of time that Little's law leaves",),
        )
        for word, symbol in found.items()
    }  # fmt: skip


def _slot_wait(graph: Graph, request: Request, steady: Steady, memory: Memory) -> dict[str, sp.Expr]:
    """Define how long a request of open arrivals waits for a slot."""
    hold = graph.let("slot_time", "s", "time a request holds a slot", steady.occupied + request.steps * steady.step)
    return slot_wait(graph, request, memory, hold, steady.token_time * request.computed / request.steps)


def _sent_late(graph: Graph, request: Request) -> sp.Symbol:
    """Define the decode steps [1] that have passed when the first token is sent."""
    return graph.let(
        "sent_late",
        "1",
        "decode steps before the first token is sent",
        minimum(leaf.stream_steps, maximum(0, request.steps - 1)),
    )


def gap_times(graph: Graph, steady: Steady, plain: Pass) -> dict[str, sp.Symbol]:
    """Define percentiles of the gap between two tokens: the longer step where more than the tail carries chunks."""
    longer = (plain.time + steady.carried * steady.token_time) / kept(graph)
    return {
        word: graph.let(
            f"itl_{word}", "s", f"{word} gap between two tokens of an answer",
            sp.Piecewise((longer, sp.Gt(steady.share, tail, evaluate=False)), (plain.time / kept(graph), True)),
            assumes=("the number of running sequences stays at its mean",),
        )
        for word, tail in ONE_PERCENTILE.items()
    }  # fmt: skip


def token_times(
    graph: Graph, request: Request, steady: Steady, plain: Pass, pace: Pace, moments: Moments
) -> dict[str, sp.Symbol]:
    """Define mean and percentiles over requests of the mean time per output token of a request.

    In a closed loop the prompts of others that a request meets while it writes arrive as a Poisson stream, each with a run of full
    steps; their number varies as a compound Poisson sum, its mean over N steps nearly normally. Open arrivals: see `serving_open`.
    """
    share = (1 - _sent_late(graph, request) / request.steps) / kept(graph)
    whole = token_mean(graph, request, pace, moments)
    opened = {"mean": whole} | token_quantiles(graph, request, pace, moments, whole)
    longer = steady.carried * steady.token_time
    run = maximum(1, request.computed / steady.carried) * (1 + leaf.input_cv**2)
    spread = graph.let(
        "tpot_spread", "s", "standard deviation over requests of the mean time per output token, closed loop",
        longer * sp.sqrt(steady.share * run / request.steps) / kept(graph), source=COMPOUND,
    )  # fmt: skip
    middle = steady.step * share
    most = maximum((plain.time + longer) / kept(graph), middle)
    looped = {"mean": middle} | {word: minimum(most, middle + z * spread) for word, z in NORMAL.items()}
    return {
        word: graph.let(
            f"tpot_{word}", "s", f"{word} over requests of the mean time per output token of a request",
            sp.Piecewise((looped[word], request.closed > 0), (opened[word] * share, True)), source=COMPOUND,
            assumes=("the number of running sequences stays at its mean",),
        )
        for word in ("mean", *NORMAL)
    }  # fmt: skip


def whole_times(graph: Graph, request: Request, first: dict[str, sp.Symbol], step: sp.Expr) -> dict[str, sp.Symbol]:
    """Define mean and percentiles of the time of a whole request: first token, then its answer."""
    answer = {"mean": request.answer * step}
    answer |= {word: maximum(0, leaf.output_percentiles[word] - 1) * step for word in ONE_PERCENTILE}
    return combine(graph, "e2e", "time of a request", [dict(first), answer], sp.Integer(0))


def _assemble(
    graph: Graph, arch: Architecture, request: Request, steady: Steady, plain: Pass, full: Pass, memory: Memory,
    running: sp.Symbol,
) -> Role:  # fmt: skip
    pace = Pace(
        plain.time, steady.step, maximum(steady.step, full.time), steady.token_time, steady.budget, steady.decoding
    )
    moments = define_moments(graph, request, pace)
    ttft = _first_token(graph, request, steady, plain, memory, pace, moments)
    tpot = token_times(graph, request, steady, plain, pace, moments)
    gaps = gap_times(graph, steady, plain)
    e2e = whole_times(graph, request, ttft, tpot["mean"])
    rate = graph.let(
        "rate", "1/s", "requests a second that a replica sustains",
        request.active_groups * steady.decoding / (request.steps * steady.step), source=BALANCE,
    )  # fmt: skip
    mean = average(steady.share, full, plain)
    figures = define_figures(graph, mean, rate * leaf.output_tokens, memory)
    in_flight = graph.let("in_flight", "1", "requests in flight: rate times time of a request", rate * e2e["mean"])
    ports = pool_ports(graph, request, rate, figures) | {"in_flight": in_flight}
    figures |= {"step_time": steady.step, "batch": running, "in_flight": in_flight}
    figures |= token_shares(graph, arch, request, full.time - plain.time, "full", 1 - plain.time / steady.step)
    figures |= flat("ttft", ttft) | flat("tpot", tpot) | flat("itl", gaps) | flat("e2e", e2e)
    rules = (
        *_rules(graph, arch, request, memory, running),
        *(rule for name, times in (("ttft", ttft), ("tpot", tpot), ("e2e", e2e)) for rule in limit_rules(name, times)),
    )
    return Role(
        "mixed",
        "pool",
        pool_axes(arch, "speculative", "chunk", "batch"),
        graph,
        rules,
        GROUPS,
        ports,
        figures,
        define_shares(graph, mean),
    )


def _rules(graph: Graph, arch: Architecture, request: Request, memory: Memory, running: sp.Symbol) -> tuple[Rule, ...]:
    """Return what a replica must keep whatever the limits on its times are."""
    longest = sequence_bytes(arch, leaf.context_limit, leaf.tp, leaf.pp)
    return (
        *layout_rules(arch),
        Rule("chunk", request.group_batch * checked(graph) + 1, leaf.chunk, "at_most", "a step holds every decode token and a prompt token", cure="engine.chunk"),
        Rule("in_flight", request.closed * leaf.batch, leaf.concurrency, "at_most", "no more run than are in flight", cure="engine.batch"),
        *memory_rules(graph, memory, running, longest),
    )  # fmt: skip
