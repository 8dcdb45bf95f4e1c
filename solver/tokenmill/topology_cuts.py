"""Levels of a machine found in its graph: nested domains, and the smallest cuts between them.

A domain is what stays connected when all links farther from the chips, or as far but slower, are cut. What a chip gets across
a level is the smallest cut between one inner domain and the rest of its domain, over the chips of that inner domain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from math import inf, isfinite, log, prod
from typing import TYPE_CHECKING, Any

from tokenmill.topology_machine import MAX_LEVELS, UNBOUNDED, Level, Machine

if TYPE_CHECKING:
    import networkx as nx

    Graph = nx.DiGraph[str]

Edge = tuple[str, str]
Parts = list[frozenset[str]]


def machine_from(graph: Graph) -> Machine:
    """Return the machine that a graph describes: a full graph, or a quotient (its chip node has a multiplicity).

    Raises
    ------
    ValueError
        Where the graph has no chip, or its chips are not all joined.
    """
    chips = chips_of(graph)
    if not chips:
        raise ValueError("graph: found no node of kind 'chip'; allowed: at least one")
    levels = (
        _quotient_levels(graph, chips[0]) if "multiplicity" in graph.nodes[chips[0]] else _full_levels(graph, chips)
    )
    return Machine(fewest(levels), graph.graph.get("chips", len(chips)))


def fewest(levels: list[Level]) -> tuple[Level, ...]:
    """Return at most MAX_LEVELS levels, the first the scale-up domain: where there are more, the inner one of the two
    nearest in bandwidth is given up, and its traffic counted on the outer one (conservative).
    """
    if not levels or levels[0].kind in ("fabric", "wan"):
        levels = [Level("scale-up", 1, UNBOUNDED, UNBOUNDED, 0.0, "host"), *levels]
    while len(levels) > MAX_LEVELS:
        pairs = [i for i in range(len(levels) - 1) if i or levels[0].kind == levels[1].kind == "switch"]
        inner = min(pairs, key=lambda i: abs(log(levels[i].bandwidth / levels[i + 1].bandwidth)))
        a, b = levels[inner : inner + 2]
        slower = replace(
            b,
            name=b.name if inner else a.name,
            bandwidth=min(a.bandwidth, b.bandwidth),
            pair_bandwidth=min(a.pair_bandwidth, b.pair_bandwidth),
            in_switch_reduction=a.in_switch_reduction and b.in_switch_reduction,
        )
        levels = [*levels[:inner], slower, *levels[inner + 2 :]]
    return tuple(levels)


def bisection_of(graph: Graph) -> float:
    """Return the smallest cut (B/s) of a full graph between the first and the second half of its chips."""
    chips = chips_of(graph)
    half = len(chips) // 2
    return _cut(graph, chips[:half], chips[half:])


def chips_of(graph: Graph) -> list[str]:
    """Return the names of the chips, in the order of their ranks."""
    return [node for node in graph if graph.nodes[node]["kind"] == "chip"]


def _wires(graph: Graph, edges: Iterable[Edge] | None = None) -> list[tuple[str, str, float]]:
    """Return the edges with their bandwidths."""
    return [(a, b, float(graph.edges[a, b]["bandwidth"])) for a, b in (graph.edges if edges is None else edges)]


def _ranks(graph: Graph) -> dict[str, int]:
    """Return the hops from each node to the nearest chip, links taken either way."""
    frontier = chips_of(graph)
    ranks = dict.fromkeys(frontier, 0)
    while frontier:
        beyond = {
            near for node in frontier for near in (*graph.successors(node), *graph.predecessors(node))
        } - ranks.keys()
        ranks |= dict.fromkeys(beyond, ranks[frontier[0]] + 1)
        frontier = list(beyond)
    return ranks


def _steps(graph: Graph) -> list[list[Edge]]:
    """Return the edges in the order in which they join chips: nearest first, then widest."""
    rank = _ranks(graph)

    def key(edge: tuple[str, str, float]) -> tuple[int, float]:
        return rank[edge[0]] + rank[edge[1]], -edge[2]

    edges = sorted((wire for wire in _wires(graph) if wire[0] in rank), key=key)
    return [[(a, b) for a, b, _ in step] for _, step in groupby(edges, key)]


# ---- full graphs


@dataclass(frozen=True)
class _Tier:
    """The parts into which links join the graph up to one step, and the kinds of link that this step added."""

    parts: Parts
    kinds: frozenset[str]


def _tiers(graph: Graph, chips: list[str]) -> list[_Tier]:
    """Return every stage of joining at which chips came together."""
    import networkx as nx

    grown, chip_set = nx.utils.UnionFind(graph.nodes), set(chips)
    tiers, apart = [], len(chips)
    for step in _steps(graph):
        for a, b in step:
            grown.union(a, b)
        now = len({grown[chip] for chip in chips})
        if now < apart:
            parts = [frozenset(part) for part in grown.to_sets() if not chip_set.isdisjoint(part)]
            kinds = frozenset(graph.edges[edge].get("kind", "scale-out") for edge in step)
            tiers.append(_Tier(parts, kinds))
            apart = now
    if apart > 1:
        raise ValueError(f"graph: found {apart} parts that no link joins; allowed: one")
    return tiers


def _full_levels(graph: Graph, chips: list[str]) -> list[Level]:
    """Return the levels of a graph that has every chip."""
    levels: list[Level] = []
    inner: Parts = [frozenset([chip]) for chip in chips]
    below, chip_set = 1, set(chips)
    for tier in _tiers(graph, chips):
        size = min(len(chip_set & part) for part in tier.parts) // below * below
        if len(tier.parts) == 1:
            size = -(-len(chips) // below) * below
        if size > below:
            levels.append(_full_level(graph, tier, inner, size, first=not levels))
            inner, below = tier.parts, size
    return levels


def _full_level(graph: Graph, tier: _Tier, inner: Parts, size: int, first: bool) -> Level:
    """Return the level at which a tier joins inner domains: the worst of its domains, each kind of domain looked at once."""
    seen: dict[object, tuple[float, float, float]] = {}
    home = {node: number for number, part in enumerate(tier.parts) for node in part}
    held: list[Parts] = [[] for _ in tier.parts]
    for domain in inner:
        held[home[next(iter(domain))]].append(domain)
    for part, inside in zip(tier.parts, held, strict=True):
        sub = graph.subgraph(part)
        shape = (len(inside), tuple(sorted(sub.edges[edge]["bandwidth"] for edge in sub.edges)))
        if len(inside) > 1 and shape not in seen:
            seen[shape] = (_per_chip(graph, sub, inside), _pair(sub), _latency(sub, inside[0]))
    bandwidth, pair = (min(row[i] for row in seen.values()) for i in (0, 1))
    latency = max(row[2] for row in seen.values())
    if not (bandwidth > 0 and pair > 0 and isfinite(latency)):
        some = sorted(node for node in tier.parts[0] if graph.nodes[node]["kind"] == "chip")[:3]
        raise ValueError(
            f"graph: found links one way only among {some}; allowed: a way there and back between all chips"
        )
    joiners = [graph.nodes[node] for node in tier.parts[0] if graph.nodes[node]["kind"] != "chip"]
    part = next(part for part in tier.parts if any(domain < part for domain in inner))
    axes, wrap = _torus(graph, part) if first else ((), ())
    kind = "torus" if axes else "mesh" if not joiners else _kind(tier.kinds)
    reduces = kind == "switch" and all(
        node.get("reduces", False) for node in joiners if node["kind"] not in ("nic", "host")
    )
    name = "scale-up" if first and kind not in ("fabric", "wan") else _name(joiners)
    return Level(name, size, bandwidth, pair, latency, kind, reduces, axes, wrap)


def _kind(links: frozenset[str]) -> str:
    """Return the kind of a level from the kinds of the links that make it, the nearest first."""
    nearest = next((kind for kind in ("scale-up", "host", "scale-out", "wan") if kind in links), "scale-out")
    return {"wan": "wan", "scale-out": "fabric", "host": "host", "scale-up": "switch"}[nearest]


def _name(joiners: Iterable[Any]) -> str:
    """Return the kind of the node farthest out."""
    kinds = {node["kind"] for node in joiners}
    return next((kind for kind in ("site", "spine", "leaf", "router", "host", "switch") if kind in kinds), "fabric")


def _per_chip(graph: Graph, sub: Graph, inside: Parts) -> float:
    """Return B/s per chip of the inner domain that has the smallest cut to the others, either way."""
    chips = {domain: [node for node in domain if graph.nodes[node]["kind"] == "chip"] for domain in inside}
    every = [chip for part in chips.values() for chip in part]
    looked: dict[object, float] = {}
    for domain, own in chips.items():
        own_nodes = [node for node in domain if node in sub]
        crossing = [(True, w) for a, b, w in _wires(sub, sub.out_edges(own_nodes)) if b not in domain]
        crossing += [(False, w) for a, b, w in _wires(sub, sub.in_edges(own_nodes)) if a not in domain]
        look = (len(own), tuple(sorted(crossing)))
        if look not in looked:
            mine = set(own)
            rest = [chip for chip in every if chip not in mine]
            looked[look] = min(_cut(sub, own, rest), _cut(sub, rest, own)) / len(own)
    return min(looked.values())


def _cut(graph: Graph, sources: list[str], sinks: list[str]) -> float:
    """Return the smallest cut (B/s) from some chips to others, in whole B/s so that the flow is exact."""
    import networkx as nx

    flow: Graph = nx.DiGraph()
    for a, b, bandwidth in _wires(graph):
        flow.add_edge(a, b, capacity=round(bandwidth))
    flow.add_edges_from(("source", chip) for chip in sources)
    flow.add_edges_from((chip, "sink") for chip in sinks)
    return float(nx.maximum_flow_value(flow, "source", "sink"))


def _pair(sub: Graph) -> float:
    """Return the widest single path (B/s) that every two chips have: the slowest link that is needed to join them all."""
    import networkx as nx

    chips = chips_of(sub)
    grown = nx.utils.UnionFind(sub.nodes)
    both = [(min(w, sub.edges[b, a]["bandwidth"]), a, b) for a, b, w in _wires(sub) if sub.has_edge(b, a)]
    for bandwidth, step in groupby(sorted(both, reverse=True), lambda edge: edge[0]):
        for _, a, b in step:
            grown.union(a, b)
        if len({grown[chip] for chip in chips}) == 1:
            return float(bandwidth)
    return 0.0


def _latency(sub: Graph, domain: frozenset[str]) -> float:
    """Return s from a domain to the nearest chip outside it."""
    import networkx as nx

    own = {node for node in domain if sub.nodes[node]["kind"] == "chip"}
    times = nx.multi_source_dijkstra_path_length(sub, own, weight="latency")
    far = [time for node, time in times.items() if node not in domain and sub.nodes[node]["kind"] == "chip"]
    return float(min(far, default=inf))


def _torus(graph: Graph, part: frozenset[str]) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return axes and wrap-around of chips that have coordinates, none where they do not fill a box."""
    places = {
        tuple(graph.nodes[node].get("coordinate", ())): node for node in part if graph.nodes[node]["kind"] == "chip"
    }
    if () in places or len({len(place) for place in places}) != 1:
        return (), ()
    axes = tuple(max(column) + 1 for column in zip(*places, strict=True))
    if prod(axes) != len(places):
        return (), ()

    def closed(axis: int) -> bool:
        ends = ((place, (*place[:axis], axes[axis] - 1, *place[axis + 1 :])) for place in places if place[axis] == 0)
        return axes[axis] > 2 and all(graph.has_edge(places[a], places[b]) for a, b in ends)

    return axes, tuple(closed(axis) for axis in range(len(axes)))


# ---- quotient graphs


def _quotient_levels(graph: Graph, chip: str) -> list[Level]:
    """Return the levels of a graph of classes: the same cuts, every capacity shared over the chips."""
    levels: list[Level] = []
    chips, below = graph.nodes[chip]["multiplicity"], 1
    edges: list[Edge] = []
    for step in _steps(graph):
        edges += step
        for a, b in step:
            outer = graph.nodes[b]
            size = graph.edges[a, b]["size"] if a == b else chips // outer["domains"]
            if size > below:
                levels.append(_quotient_level(graph, edges, chip, (a, b), size, first=not levels))
                below = size
    return levels


def _quotient_level(graph: Graph, edges: list[Edge], chip: str, joint: Edge, size: int, first: bool) -> Level:
    """Return the level that the class of edges `joint` makes."""
    import networkx as nx

    chips = graph.nodes[chip]["multiplicity"]
    joiner, edge = joint[1], graph.edges[joint]
    flow: Graph = nx.DiGraph()
    for a, b in edges:
        if a != b:
            data = graph.edges[a, b]
            flow.add_edge(a, b, capacity=data["bandwidth"] * data["multiplicity"] / chips, **data)
    bandwidth, pair, latency = UNBOUNDED, UNBOUNDED, 0.0
    if joiner != chip:
        path = nx.shortest_path(flow, chip, joiner, weight="latency")
        hops = [flow.edges[hop] for hop in pairwise(path)]
        bandwidth = float(nx.maximum_flow_value(flow, chip, joiner))
        pair, latency = min(hop["bandwidth"] for hop in hops), 2 * sum(hop["latency"] for hop in hops)
    loop = joint[0] == joiner
    if loop:
        bandwidth = min(bandwidth, edge["bandwidth"] * edge["ports"] * graph.nodes[joiner]["multiplicity"] / chips)
        pair, latency = min(pair, edge["bandwidth"]), latency + edge["latency"]
    axes, wrap = (edge["axes"], tuple(edge["wrap"])) if loop else ((), ())
    kind = "torus" if axes else "mesh" if joiner == chip else _kind(frozenset([edge["kind"]]))
    name = "scale-up" if first and kind not in ("fabric", "wan") else graph.nodes[joiner]["kind"]
    wrap = tuple(ring and axis > 2 for axis, ring in zip(axes, wrap, strict=True))
    return Level(name, size, bandwidth, pair, latency, kind, bool(graph.nodes[joiner].get("reduces")), axes, wrap)
