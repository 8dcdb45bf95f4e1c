"""The figures, power and limits that every role of serving reports in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.energy import define_power
from tokenmill_models.formula import Graph
from tokenmill_models.inference import Pass, uses
from tokenmill_models.inference_memory import Memory
from tokenmill_models.operations_parts import arch_leaf
from tokenmill_models.roofline import M, W
from tokenmill_models.serving_load import Request
from tokenmill_models.stage import Rule
from tokenmill_models.symbols import declare

SLO = {
    name: {
        word: declare(
            f"slo_{name}_{word}", "s", f"most {word} {title}", origin=f"input.slo.{name}.{word}", sign="positive"
        )
        for word in ("mean", "p50", "p95", "p99")
    }
    for name, title in (
        ("ttft", "time to first token"),
        ("tpot", "time per output token"),
        ("e2e", "time of a request"),
    )
}


@dataclass(frozen=True)
class Average:
    """A mean step: `time` [s], and per rank `flops`, `model_flops` [FLOP], `bytes` [B]; `shares` [s] of the time by resource;
    `spare` [B], `pipes` [s] as of a pass.
    """

    time: sp.Expr
    flops: sp.Expr
    model_flops: sp.Expr
    bytes: sp.Expr
    shares: Mapping[str, sp.Expr]
    spare: sp.Expr
    pipes: sp.Expr


def alone(one: Pass, busy: sp.Expr | int = 1) -> Average:
    """Return the mean step of a load whose steps are all alike, run a share `busy` of the time [1]."""
    return Average(one.time / busy, one.flops, one.model_flops, one.bytes, one.shares, one.spare, one.pipes)


def average(share: sp.Expr, full: Pass, plain: Pass) -> Average:
    """Return the mean of two kinds of step, `share` of which are `full`."""

    def mix(a: sp.Expr, b: sp.Expr) -> sp.Expr:
        return b + share * (a - b)

    return Average(
        mix(full.time, plain.time), mix(full.flops, plain.flops), mix(full.model_flops, plain.model_flops),
        mix(full.bytes, plain.bytes), {name: mix(full.shares[name], plain.shares[name]) for name in full.shares},
        mix(full.spare, plain.spare), mix(full.pipes, plain.pipes),
    )  # fmt: skip


def define_shares(graph: Graph, mean: Average) -> dict[str, sp.Symbol]:
    """Define the seconds of a mean step by resource."""
    return {n: graph.let(f"share_{n}", "s", f"time of a mean step bound by {n}", e) for n, e in mean.shares.items()}


def define_figures(
    graph: Graph, mean: Average, tokens_per_second: sp.Expr, memory: Memory, busy: sp.Expr | int = 1
) -> dict[str, sp.Symbol]:
    """Define the figures of a pool that do not depend on its role; the mean step is in `mean`.

    `busy`: share of the time that the pool works [1]. mfu and hfu count against the dense 16-bit peak, or that of the precision which the file names; power is of the devices alone, without host or facility.
    """
    compute, mbu = uses(graph, mean.time, mean.flops, mean.bytes)
    traffic = mbu - mean.spare / (mean.time * W)
    one, loaded, rest = define_power(graph, compute, traffic, leaf.ranks, busy, mean.pipes / mean.time)
    rate = graph.let("tokens_per_second", "1/s", "tokens a second of a replica", tokens_per_second)
    chips = graph.let("replica_chips", "1", "chips of a replica", leaf.ranks / leaf.ranks_a_chip)
    mfu = graph.let("mfu", "1", "counted work over peak", mean.model_flops / (mean.time * leaf.mfu_peak))
    hfu = graph.let("hfu", "1", "executed work over peak", mean.flops / (mean.time * leaf.mfu_peak))
    return {
        "mfu": mfu,
        "hfu": hfu,
        "mbu": mbu,
        "tokens_per_second": rate,
        "tokens_per_second_per_chip": graph.let("tokens_per_second_per_chip", "1/s", "tokens a second of a chip", rate / chips),
        "power": loaded,
        "power_idle": rest,
        "power_per_chip": graph.let("power_per_chip", "W", "mean draw of a chip", one * leaf.ranks_a_chip),
        "energy_per_token": graph.let("energy_per_token", "J", "energy of the devices a token", loaded / rate),
        "kv_tokens": memory.kv_tokens,
        "max_batch": memory.max_batch,
    } | memory_figures(graph, memory)  # fmt: skip


def memory_figures(graph: Graph, memory: Memory) -> dict[str, sp.Symbol]:
    """Return the memory table of the plan: bytes of the fullest rank."""
    return {
        "memory.weights": memory.weights,
        "memory.activations": memory.activations,
        "memory.kv": memory.room,
        "memory.reserve": memory.reserve,
        "memory.outside": leaf.outside,
        "memory.allocated": memory.allocated,
        "memory.reserved": memory.allocated,
        "memory.total": memory.total,
        "memory.capacity": graph.let("memory_capacity", "B", "memory of a device that a program can use", M),
    }


def layout_rules(arch: Architecture) -> tuple[Rule, ...]:
    """Rules on degrees: what must divide, and what no layout may exceed."""
    held = leaf.held_chips * leaf.ranks_a_chip
    rules = [
        Rule("chips", held, leaf.ranks, "equal", "chips held are the ranks of a replica", cure="layout.chips"),
        Rule("stages", leaf.pp, arch_leaf("layer_count"), "at_most", "a stage has a layer at least", cure="layout.pp"),
    ]
    seen = set()
    for i, kind in enumerate(arch.layers):
        if kind.mixer.heads and kind.mixer.heads not in seen:
            seen.add(kind.mixer.heads)
            heads, doc = arch_leaf(f"layers.{i}.mixer.heads"), "tp divides the attention heads"
            rules.append(Rule(f"heads_{i}", leaf.tp, heads, "divides", doc, cure="layout.tp"))
    return (*rules, *_expert_rules(arch))


def _expert_rules(arch: Architecture) -> tuple[Rule, ...]:
    routed = next((i for i, kind in enumerate(arch.layers) if kind.mlp.expert), None)
    if routed is None:
        doc = "a dense model has no experts to spread"
        return (Rule("experts", leaf.ep, sp.Integer(1), "at_most", doc, cure="layout.ep"),)
    experts, ranks = arch_leaf(f"layers.{routed}.mlp.experts"), leaf.tp * leaf.attention_dp
    return (
        Rule("experts", leaf.ep, experts, "at_most", "a rank has an expert at least", cure="layout.ep"),
        Rule("expert_ranks", leaf.ep, ranks, "divides", "ep divides tp·attention_dp", cure="layout.ep"),
    )


def memory_rules(graph: Graph, memory: Memory, running: sp.Expr, longest: sp.Expr) -> tuple[Rule, ...]:
    """Rules on memory: weights fit, what the file holds fits beside them, the longest and the running sequences fit.

    `longest`: bytes of a sequence of the context limit; the rule lapses where no limit is given.
    """
    taken = graph.let(
        "memory_taken", "B", "memory in use before any KV", memory.weights + memory.activations + memory.reserve
    )
    usable = graph.let(
        "memory_usable", "B", "memory that the program may take: its fraction, or all where the file holds the KV memory",
        sp.Piecewise((M, leaf.held_kv > 0), (M * leaf.memory_fraction, True)),
    )  # fmt: skip
    cached = graph.let(
        "memory_cached", "B", "KV of the running sequences", running * memory.sequence / leaf.attention_dp
    )
    return (
        Rule("memory", taken, usable, "capacity", "weights and activations fit", "B", "layout.tp"),
        Rule("memory.held", taken + memory.room, M, "capacity", "the KV memory held fits beside the weights", "B", "engine.kv_memory"),
        Rule("memory.context", longest, memory.room, "capacity", "the longest sequence fits in the KV memory", "B", "engine.context_limit"),
        Rule("memory.kv", cached, memory.room, "capacity", "running sequences fit in the KV memory", "B", "engine.batch"),
    )  # fmt: skip


def limit_rules(name: str, found: Mapping[str, sp.Symbol]) -> tuple[Rule, ...]:
    """Rules that the percentiles of a latency stay within the limits of the file."""
    return tuple(
        Rule(
            f"{name}.{word}",
            symbol,
            SLO[name][word],
            "limit",
            f"{word} of {name} within its limit",
            "s",
            f"slo.{name}.{word}",
        )
        for word, symbol in found.items()
    )


def flat(name: str, found: Mapping[str, sp.Symbol]) -> dict[str, sp.Symbol]:
    """Return percentiles under the dotted names of the plan (``ttft.p95``)."""
    return {f"{name}.{word}": symbol for word, symbol in found.items()}


def pool_ports(graph: Graph, request: Request, rate: sp.Symbol, figures: dict[str, sp.Symbol]) -> dict[str, sp.Symbol]:
    """Return what the programme reads of every serving pool; takes the idle draw out of `figures`."""
    return {
        "ranks": graph.let("ranks", "1", "ranks of a replica", leaf.ranks),
        "rate": rate,
        "power_idle": figures.pop("power_idle"),
        "power_loaded": figures["power"],
        "output_tokens": leaf.output_tokens,
        "prompt_tokens": leaf.input_tokens,
        "all_tokens": request.all_tokens,
        "cached_tokens": request.cached_tokens,
    }
