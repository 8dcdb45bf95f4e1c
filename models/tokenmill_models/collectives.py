"""Time of collective exchanges over nested levels of a machine (formulas.md section 3).

A group of ranks has, at level l (innermost first), `n` members, `beta` B/s a device in one direction and `alpha`
seconds a step; levels it does not span have n = 1. `eta` is the achieved share of the wire at the level.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.symbols import declare

LEVELS = 3

THAKUR = Source("Thakur, Rabenseifner and Gropp 2005, Optimization of Collective Communication Operations in MPICH")
HIERARCHY = Source(
    "Thakur, Rabenseifner and Gropp 2005, applied level by level",
    ("reduce-scatter inside a level leaves 1/n of the bytes for the level outside it",),
)


@dataclass(frozen=True)
class GroupLeaves:
    """The leaves of a group, one an index of level.

    `n` members [1]; `beta` wire when all exchange in a ring or tree [B/s]; `pair` wire from one member to one other
    [B/s]; `exchange` wire in an all-to-all, bound by bisection [B/s]; `eta` achieved share of any of them [1];
    `alpha` latency of a step [s]; `reduces` 1 where the switch adds up what passes.
    """

    n: tuple[sp.Symbol, ...]
    beta: tuple[sp.Symbol, ...]
    eta: tuple[sp.Symbol, ...]
    alpha: tuple[sp.Symbol, ...]
    reduces: tuple[sp.Symbol, ...]
    pair: tuple[sp.Symbol, ...]
    exchange: tuple[sp.Symbol, ...]

    @property
    def size(self) -> sp.Expr:
        """Members over all levels."""
        return sp.Mul(*self.n)

    def inside(self, level: int) -> sp.Expr:
        """Members that share one domain of the levels below `level`."""
        return sp.Mul(*self.n[:level])


def group_leaves(name: str) -> GroupLeaves:
    """Declare the leaves that the topology provides for the group `name` (see Group)."""

    def leaves(field: str, dimension: str, doc: str, sign: str) -> tuple[sp.Symbol, ...]:
        return tuple(
            declare(f"{field}_{name}{level}", dimension, f"{doc}, {name} group, level {level}",
                    origin=f"group.{name}.{field}{level}", sign=sign,
                    latex=rf"{latex[field]}_{{\mathrm{{{name}}},{level}}}")
            for level in range(LEVELS)
        )  # fmt: skip

    latex = {
        "n": "n",
        "beta": r"\beta",
        "eta": r"\eta",
        "alpha": r"\alpha",
        "reduces": r"\rho",
        "pair": r"\beta^{p}",
        "exchange": r"\beta^{x}",
    }
    return GroupLeaves(
        n=leaves("n", "1", "members", "positive"),
        beta=leaves("beta", "B/s", "bandwidth of a device, one direction", "positive"),
        eta=leaves("eta", "1", "achieved share of the wire", "positive"),
        alpha=leaves("alpha", "s", "latency of a step", "nonnegative"),
        reduces=leaves("reduces", "1", "1 where the switch reduces in flight, else 0", "nonnegative"),
        pair=leaves("pair", "B/s", "bandwidth from one member to one other, one direction", "positive"),
        exchange=leaves("exchange", "B/s", "bandwidth of a device in an all-to-all, one direction", "positive"),
    )


def gather(graph: Graph, label: str, group: GroupLeaves, volume: sp.Expr) -> sp.Symbol:
    """Define the time [s] of an all-gather or reduce-scatter of `volume` [B, the whole buffer]; return ``T_<label>``."""
    terms = [
        (n - 1) / n * volume / group.inside(level) / (beta * eta) + (n - 1) * alpha
        for level, (n, beta, eta, alpha) in enumerate(zip(group.n, group.beta, group.eta, group.alpha, strict=True))
    ]
    return graph.let(f"T_{label}", "s", f"time of {label}: gather or scatter", sp.Add(*terms), source=HIERARCHY)


def all_reduce(graph: Graph, label: str, group: GroupLeaves, volume: sp.Expr) -> sp.Symbol:
    """Define the time [s] of an all-reduce of `volume` [B a device]: at each level the best algorithm; return ``T_<label>``."""
    terms = []
    for level in range(LEVELS):
        n, alpha, flag = group.n[level], group.alpha[level], group.reduces[level]
        wire = graph.let(
            f"V_{label}{level}", "s", f"{label}: bytes over the wire of level {level}",
            volume / group.inside(level) / (group.beta[level] * group.eta[level]), source=HIERARCHY,
        )  # fmt: skip
        ring = 2 * (n - 1) / n * wire + 2 * (n - 1) * alpha
        one_shot = (n - 1) * wire + alpha * (n - 1) / maximum(n - 1, 1)
        tree = (2 * wire + 2 * sp.log(n) / sp.log(2) * alpha) * (n - 1) / maximum(n - 1, 1)
        switch = (wire * (n + 1) / n + 2 * alpha) * flag * (n - 1) / maximum(n - 1, 1) + (1 - flag) * ring
        terms.append(
            graph.let(
                f"T_{label}{level}",
                "s",
                f"time of {label} at level {level}: best of ring, one-shot, tree, in-switch",
                minimum(ring, one_shot, tree, switch),
                source=THAKUR,
            )
        )
    return graph.let(f"T_{label}", "s", f"time of {label}: all-reduce", sp.Add(*terms), source=HIERARCHY)


def all_to_all(
    graph: Graph, label: str, group: GroupLeaves, volume: sp.Expr, crossing_share: sp.Expr | int = 1
) -> sp.Symbol:
    """Define the time [s] of an all-to-all where each device holds `volume` [B]; return ``T_<label>``.

    Levels work at once: inside a domain n0 - 1 of n peers, over each outer level the peers beyond the level within, with
    `crossing_share` of the bytes (below 1 where a domain is sent one copy that it spreads inside).
    """
    size = group.size
    wires = []
    for level in range(LEVELS):
        crossing = group.n[0] - 1 if level == 0 else size - group.inside(level)
        sent = volume if level == 0 else volume * crossing_share
        wires.append(sent * crossing / size / (group.exchange[level] * group.eta[level]))
    steps = sp.Add(*((n - 1) * alpha for n, alpha in zip(group.n, group.alpha, strict=True)))
    return graph.let(f"T_{label}", "s", f"time of {label}: all-to-all", maximum(*wires) + steps, source=THAKUR)


def send(graph: Graph, label: str, group: GroupLeaves, volume: sp.Expr) -> sp.Symbol:
    """Define the time [s] to hand `volume` [B] to the next member over the slowest level the group spans; return ``T_<label>``."""
    hops = [
        (volume / (pair * eta) + alpha) * minimum(n - 1, 1)
        for n, pair, eta, alpha in zip(group.n, group.pair, group.eta, group.alpha, strict=True)
    ]
    return graph.let(f"T_{label}", "s", f"time of {label}: hand-over to a neighbour", maximum(*hops), source=THAKUR)
