"""Time of collective exchanges over nested levels of a machine.

A group of ranks has, at level l (innermost first), `n` members, `beta` B/s a device in one direction and `alpha`
seconds a hop; levels it does not span have n = 1. Level 0 is the scale-up domain, where kernels of a few kinds were measured
on their own: rings (gather, scatter, all-reduce), reduction in the switch, all-to-all, and the all-reduce that serving
engines bring along. Each has the seconds it takes to start, the hop latencies a step takes, the share of the wire that
endless messages reach, and the time over which a growing message comes to that share.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.roofline import W, eta_W
from tokenmill_models.symbols import declare

LEVELS = 3

THAKUR = Source("Thakur, Rabenseifner and Gropp 2005, Optimization of Collective Communication Operations in MPICH")
HIERARCHY = Source(
    "Thakur, Rabenseifner and Gropp 2005, applied level by level",
    (
        "reduce-scatter inside a level leaves 1/n of the bytes for the level outside it",
        "cut into k pieces that follow one another, w seconds of wire take w + k·a + b/k: at the best k a root of w is added",
    ),
)
OWN = Source(
    "vLLM's custom all-reduce: every rank reads all others' buffers at once, or a slice of each and then the others' sums",
    ("one shot moves n - 1 buffers over a rank's wire, two shots 2(n - 1)/n of one and wait twice",),
)
NODE_LIMITED = Source(
    "DeepSeek-AI 2024, DeepSeek-V3 Technical Report, arXiv:2412.19437, section 3.2.2",
    ("a token goes once to each node that holds experts of it and is spread inside",),
)


def _constant(name: str, dimension: str, doc: str, latex: str, origin: str = "chip") -> sp.Symbol:
    return declare(name, dimension, doc, origin=f"{origin}.{name}", sign="positive", latex=latex)


ring_start = _constant("ring_start", "s", "start of a collective of the library", r"\sigma_r")
ring_hops = _constant("ring_hops", "1", "hop latencies that a step of a ring or tree takes", r"h_r")
ring_share = _constant("ring_share", "1", "share of the wire that a ring reaches with long messages", r"\eta_r")
ring_ramp = _constant("ring_ramp", "s", "time over which a ring comes to its share of the wire", r"\tau_r")
switch_start = _constant("switch_start", "s", "start of a reduction in the switch over that of a ring", r"\sigma_s")
switch_share = _constant("switch_share", "1", "share of the wire that a reduction in the switch reaches", r"\eta_s")
exchange_start = _constant("exchange_start", "s", "start of sends between pairs", r"\sigma_x")
exchange_hops = _constant("exchange_hops", "1", "hop latencies that each further peer of an all-to-all takes", r"h_x")
exchange_share = _constant("exchange_share", "1", "share of the wire that sends between pairs reach", r"\eta_x")
exchange_ramp = _constant("exchange_ramp", "s", "time over which sends come to their share of the wire", r"\tau_x")
exchange_self = _constant(
    "exchange_self", "1", "part of its own slice that a device sends itself as if over the wire", r"s_x"
)
own_start = _constant("own_start", "s", "start of an engine's own all-reduce in a captured graph", r"\sigma_o")
own_hops = _constant("own_hops", "1", "hop latencies that each further rank of it takes", r"h_o")
own_share = _constant("own_share", "1", "share of the wire that an engine's own all-reduce reaches", r"\eta_o")
own_pair_share = _constant("own_pair_share", "1", "share of the wire that reading one peer's buffer reaches", r"\eta_p")
own_host = _constant("own_host", "s", "least time of an all-reduce that the host launches", r"\sigma_h")
fabric_share = _constant(
    "fabric_share", "1", "share of the network's rate that collectives over domains reach", r"\eta_f", "system"
)


@dataclass(frozen=True)
class GroupLeaves:
    """The leaves of a group, one an index of level.

    `n` members [1]; `beta` wire when all exchange in a ring or tree [B/s]; `pair` wire from one member to one other
    [B/s]; `exchange` wire in an all-to-all, bound by bisection [B/s]; `alpha` latency of a hop [s]; `reduces` 1 where the
    switch adds up what passes.
    """

    n: tuple[sp.Symbol, ...]
    beta: tuple[sp.Symbol, ...]
    alpha: tuple[sp.Symbol, ...]
    reduces: tuple[sp.Symbol, ...]
    pair: tuple[sp.Symbol, ...]
    exchange: tuple[sp.Symbol, ...]

    @property
    def size(self) -> sp.Expr:
        """Members over all levels."""
        return sp.Mul(*self.n)

    @property
    def spans(self) -> sp.Expr:
        """1 where there is anyone to talk to, else 0."""
        return minimum(self.size - 1, 1)

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
        "alpha": r"\alpha",
        "reduces": r"\rho",
        "pair": r"\beta^{p}",
        "exchange": r"\beta^{x}",
    }
    return GroupLeaves(
        n=leaves("n", "1", "members", "positive"),
        beta=leaves("beta", "B/s", "bandwidth of a device, one direction", "positive"),
        alpha=leaves("alpha", "s", "latency of a hop", "nonnegative"),
        reduces=leaves("reduces", "1", "1 where the switch reduces in flight, else 0", "nonnegative"),
        pair=leaves("pair", "B/s", "bandwidth from one member to one other, one direction", "positive"),
        exchange=leaves("exchange", "B/s", "bandwidth of a device in an all-to-all, one direction", "positive"),
    )


def _shares(inner: sp.Expr) -> tuple[sp.Expr, ...]:
    """Achieved share of the wire by level."""
    return (inner, *(fabric_share,) * (LEVELS - 1))


def _with_ramp(graph: Graph, label: str, wire: sp.Expr, ramp: sp.Expr) -> sp.Expr:
    """Return the time [s] of bytes that take `wire` seconds at the full share; define that as ``wire_<label>``."""
    full = graph.let(f"wire_{label}", "s", f"{label}: bytes over the wire at its full share", wire, source=HIERARCHY)
    return full + sp.sqrt(ramp * full)


def gather(graph: Graph, label: str, group: GroupLeaves, volume: sp.Expr) -> sp.Symbol:
    """Define the time [s] of an all-gather or reduce-scatter of `volume` [B, the whole buffer]; return ``T_<label>``."""
    terms = []
    for level, share in enumerate(_shares(ring_share)):
        n = group.n[level]
        wire = (n - 1) / n * volume / group.inside(level) / (group.beta[level] * share)
        moved = _with_ramp(graph, f"{label}{level}", wire, ring_ramp)
        terms.append((n - 1) * ring_hops * group.alpha[level] + moved)
    whole = ring_start * group.spans + sp.Add(*terms)
    return graph.let(f"T_{label}", "s", f"time of {label}: gather or scatter", whole, source=HIERARCHY)


def all_reduce(graph: Graph, label: str, group: GroupLeaves, volume: sp.Expr) -> sp.Symbol:
    """Define the time [s] of a library's all-reduce of `volume` [B a device]; return ``T_<label>``.

    At each level the best of its algorithms: a ring, a reduction in the switch where it can, between domains a tree too.
    """
    terms = [_reduce_level(graph, f"{label}{level}", group, level, volume) for level in range(LEVELS)]
    whole = ring_start * group.spans + sp.Add(*terms)
    return graph.let(f"T_{label}", "s", f"time of {label}: all-reduce", whole, source=HIERARCHY)


def _reduce_level(graph: Graph, label: str, group: GroupLeaves, level: int, volume: sp.Expr) -> sp.Symbol:
    n, flag = group.n[level], group.reduces[level]
    hop = ring_hops * group.alpha[level]
    spans = (n - 1) / maximum(n - 1, 1)
    wire = volume / group.inside(level) / group.beta[level]
    round_trip = 2 * (n - 1) / n * wire / _shares(ring_share)[level]
    ring = 2 * (n - 1) * hop + _with_ramp(graph, f"{label}_ring", round_trip, ring_ramp)
    through = (n + 1) / n * wire / _shares(switch_share)[level]
    switch = switch_start + _with_ramp(graph, f"{label}_switch", through, ring_ramp)
    others = [switch * flag * spans + (1 - flag) * ring]
    if level > 0:
        tree = 2 * sp.log(n) / sp.log(2) * hop + _with_ramp(graph, f"{label}_tree", 2 * wire / fabric_share, ring_ramp)
        others.append(tree * spans)
    title = f"time of {label}: best of ring, in-switch" + (", tree" if level else "")
    return graph.let(f"T_{label}", "s", title, minimum(ring, *others), source=THAKUR)


def engine_all_reduce(graph: Graph, label: str, group: GroupLeaves, volume: sp.Expr, captured: sp.Expr) -> sp.Symbol:
    """Define the time [s] of a serving engine's all-reduce of `volume` [B a device]; return ``T_<label>``.

    Inside one domain the best of its own kernel in one shot or two and of the library's; between domains the library's. Its own
    reads each peer's buffer no faster than one reader can ask, so that a pair does not fill the wire.
    `captured`: 1 where launches are captured in a graph, 0 where the host launches each and the buffer is first copied to one
    that peers may read.
    """
    library = all_reduce(graph, f"{label}_library", group, volume)
    n = group.n[0]
    wire = volume / (group.beta[0] * minimum(own_share, maximum(n - 1, 1) * own_pair_share))
    once = own_start + (n - 1) * own_hops * group.alpha[0]
    own = graph.let(
        f"T_{label}_own", "s", f"time of {label}: the engine's own kernel in one shot or two",
        minimum(once + (n - 1) * wire, 2 * once + 2 * (n - 1) / n * wire), source=OWN,
    )  # fmt: skip
    outside = sp.Mul(*group.n[1:])
    best = sp.Piecewise((minimum(own, library), outside <= 1), (library, True))
    copy = 2 * volume / (W * eta_W)
    return graph.let(
        f"T_{label}", "s", f"time of {label}: all-reduce of an engine",
        group.spans * maximum(best + (1 - captured) * copy, (1 - captured) * own_host), source=OWN,
    )  # fmt: skip


def all_to_all(
    graph: Graph, label: str, group: GroupLeaves, volume: sp.Expr, crossing_share: sp.Expr | int = 1
) -> sp.Symbol:
    """Define the time [s] of an all-to-all where each device holds `volume` [B]; return ``T_<label>``.

    Levels work at once: inside a domain n0 - 1 of n peers (and in part itself), over each outer level the peers beyond the level within, with
    `crossing_share` of the bytes (below 1 where a domain is sent one copy that it spreads inside).
    """
    size = group.size
    wires = []
    for level, share in enumerate(_shares(exchange_share)):
        inner = group.n[0] - 1 + exchange_self * minimum(group.n[0] - 1, 1)
        crossing = inner if level == 0 else size - group.inside(level)
        sent = volume if level == 0 else volume * crossing_share
        wires.append(sent * crossing / size / (group.exchange[level] * share))
    steps = exchange_hops * sp.Add(*((n - 1) * alpha for n, alpha in zip(group.n, group.alpha, strict=True)))
    whole = exchange_start * group.spans + steps + _with_ramp(graph, label, maximum(*wires), exchange_ramp)
    return graph.let(f"T_{label}", "s", f"time of {label}: all-to-all", whole, source=THAKUR)


def crossing_share(active: sp.Expr, groups: sp.Expr) -> sp.Expr:
    """Return the share of a token's copies that leave a node where its `active` experts lie in at most `groups` nodes [1]."""
    return minimum(active, groups) / active


def send(graph: Graph, label: str, group: GroupLeaves, volume: sp.Expr) -> sp.Symbol:
    """Define the time [s] to hand `volume` [B] to the next member over the slowest level the group spans; return ``T_<label>``."""
    hops = []
    for level, share in enumerate(_shares(exchange_share)):
        wire = volume / (group.pair[level] * share)
        one = _with_ramp(graph, f"{label}{level}", wire, exchange_ramp) + group.alpha[level]
        hops.append(one * minimum(group.n[level] - 1, 1))
    whole = exchange_start * group.spans + maximum(*hops)
    return graph.let(f"T_{label}", "s", f"time of {label}: hand-over to a neighbour", whole, source=THAKUR)
