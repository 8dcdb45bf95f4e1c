"""Graphs of machines: every chip, switch and NIC as a node, or one node a class with its multiplicity (the quotient).

Nodes carry ``kind`` (``chip``, ``switch``, ``host``, ``nic``, ``leaf``, ``spine``, ``router``) and, in the quotient,
``multiplicity`` (how many there are) and ``domains`` (in how many parts the machine falls below the next tier).
Edges carry ``bandwidth`` (B/s, this direction), ``latency`` (s), ``kind`` (``scale-up``, ``host``, ``scale-out``) and, in the
quotient, ``multiplicity`` (edges of the class); an edge from a class to itself also has ``ports`` (the fewest any of them has).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from math import prod
from typing import TYPE_CHECKING

from tokenmill.topology_shape import ScaleOut, ScaleUp, Shape, default_latency

if TYPE_CHECKING:
    import networkx as nx

    Graph = nx.DiGraph[str]

Wire = tuple[str, str, float, float, str]
"""Two ends, B/s each direction, s, kind."""


def full_graph(shape: Shape) -> Graph:
    """Return the digraph of a machine with a node for every chip; latencies of a path add up to the figure of its level."""
    import networkx as nx

    graph: Graph = nx.DiGraph(chips=shape.chips)
    for chip in range(shape.built):
        graph.add_node(f"chip{chip}", kind="chip")
    for domain in range(shape.domains):
        first = domain * shape.up.size
        _wire(graph, _domain_wires(shape.up, domain, first))
        if shape.up.kind == "torus":
            for chip, place in enumerate(_places(shape.up.axes)):
                graph.nodes[f"chip{first + chip}"]["coordinate"] = list(place)
        if shape.up.reduces:
            graph.nodes[f"switch{domain}"]["reduces"] = True
    if shape.host:
        half = default_latency("host") / 2
        _wire(
            graph, ((f"chip{i}", f"host{i // shape.host}", shape.host_link, half, "host") for i in range(shape.built))
        )
    if shape.up.kind == "dragonfly":
        groups = shape.built // shape.up.group
        _wire(graph, _global_wires(shape.up, groups // shape.domains, shape.domains))
    if shape.out:
        _wire(graph, _network_wires(shape, shape.out))
    return graph


def quotient_graph(shape: Shape) -> Graph:
    """Return the digraph of classes of the same machine: as many nodes for 100 000 chips as for a rack."""
    import networkx as nx

    graph: Graph = nx.DiGraph(chips=shape.chips)
    up, built = shape.up, shape.built
    graph.add_node("chip", kind="chip", multiplicity=built, domains=built)
    if up.kind in ("mesh", "torus") and up.size > 1:
        links, ports = _direct_links(up)
        graph.add_edge(
            "chip",
            "chip",
            bandwidth=up.link,
            latency=up.latency,
            kind="scale-up",
            ports=ports,
            size=up.size,
            axes=up.axes,
            wrap=up.wrap,
            multiplicity=links * shape.domains,
        )
    elif up.kind == "dragonfly":
        _dragonfly_classes(graph, shape)
    elif up.size > 1:
        switch = "host" if up.kind == "host" else "switch"
        graph.add_node(switch, kind=switch, multiplicity=shape.domains, domains=shape.domains, reduces=up.reduces)
        _classes(graph, "chip", switch, up.link, up.latency / 2, "host" if up.kind == "host" else "scale-up", built)
    if shape.host:
        hosts = -(-built // shape.host)
        graph.add_node("host", kind="host", multiplicity=hosts, domains=hosts)
        _classes(graph, "chip", "host", shape.host_link, default_latency("host") / 2, "host", built)
    if shape.out:
        _network_classes(graph, shape, shape.out)
    return graph


def _wire(graph: Graph, wires: Iterator[Wire]) -> None:
    """Add both directions of each wire, and the nodes at its ends."""
    for a, b, bandwidth, latency, kind in wires:
        for node in (a, b):
            if node not in graph:
                graph.add_node(node, kind=node.split(".")[0].rstrip("0123456789"))
        graph.add_edge(a, b, bandwidth=bandwidth, latency=latency, kind=kind)
        graph.add_edge(b, a, bandwidth=bandwidth, latency=latency, kind=kind)


def _classes(graph: Graph, a: str, b: str, bandwidth: float, latency: float, kind: str, links: int) -> None:
    """Add both directions of `links` wires between two classes."""
    for ends in ((a, b), (b, a)):
        graph.add_edge(*ends, bandwidth=bandwidth, latency=latency, kind=kind, multiplicity=links)


def _domain_wires(up: ScaleUp, domain: int, first: int) -> Iterator[Wire]:
    """Yield the wires of one scale-up domain, whose chips are numbered from `first`."""
    if up.size == 1:
        return
    if up.kind == "mesh":
        for a, b in combinations(range(first, first + up.size), 2):
            yield f"chip{a}", f"chip{b}", up.link, up.latency, "scale-up"
    elif up.kind == "torus":
        for a, b in _neighbours(up.axes, up.wrap):
            yield f"chip{first + a}", f"chip{first + b}", up.link, up.latency, "scale-up"
    elif up.kind == "dragonfly":
        for chip in range(first, first + up.size):
            yield f"chip{chip}", f"router{chip // up.group}", up.link, up.latency / 2, "scale-up"
    else:
        switch, kind = ("host", "host") if up.kind == "host" else ("switch", "scale-up")
        for chip in range(first, first + up.size):
            yield f"chip{chip}", f"{switch}{domain}", up.link, up.latency / 2, kind


def _places(axes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the coordinates of the chips of a torus in the order of their numbers, the first axis running fastest."""
    for place in product(*(range(axis) for axis in reversed(axes))):
        yield place[::-1]


def _neighbours(axes: tuple[int, ...], wrap: tuple[bool, ...]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of chip numbers that a torus joins, each once; two chips along an axis share one link."""
    strides = [prod(axes[:i]) for i in range(len(axes))]
    for number, place in enumerate(_places(axes)):
        for axis, at, ring, stride in zip(axes, place, wrap, strides, strict=True):
            if at + 1 < axis:
                yield number, number + stride
            elif ring and axis > 2:
                yield number, number - at * stride


def _direct_links(up: ScaleUp) -> tuple[int, int]:
    """Return directed links of a mesh or torus domain, and the fewest links that one of its chips has."""
    if up.kind == "mesh":
        return up.size * (up.size - 1), up.size - 1
    rings = [ring and axis > 2 for axis, ring in zip(up.axes, up.wrap, strict=True)]
    pairs = sum(up.size // axis * (axis if ring else axis - 1) for axis, ring in zip(up.axes, rings, strict=True))
    ports = sum(0 if axis == 1 else 2 if ring else 1 for axis, ring in zip(up.axes, rings, strict=True))
    return 2 * pairs, ports


def _global_wires(up: ScaleUp, groups: int, domains: int) -> Iterator[Wire]:
    """Yield the wires between the routers of each dragonfly; a group's own bandwidth is spread over all others."""
    for domain in range(domains):
        for a, b in combinations(range(domain * groups, (domain + 1) * groups), 2):
            yield f"router{a}", f"router{b}", up.link * up.group / (groups - 1), up.latency / 2, "scale-up"


def _dragonfly_classes(graph: Graph, shape: Shape) -> None:
    """Add routers and the links among them as classes."""
    up, routers = shape.up, shape.built // shape.up.group
    graph.add_node("router", kind="router", multiplicity=routers, domains=routers)
    _classes(graph, "chip", "router", up.link, up.latency / 2, "scale-up", shape.built)
    peers = routers // shape.domains - 1
    if peers > 0:
        graph.add_edge(
            "router",
            "router",
            bandwidth=up.link * up.group / peers,
            latency=up.latency / 2,
            kind="scale-up",
            ports=peers,
            size=up.size,
            axes=(),
            wrap=(),
            multiplicity=routers * peers,
        )


def _network_wires(shape: Shape, out: ScaleOut) -> Iterator[Wire]:
    """Yield NICs, leaves (one a rail in a rail-optimised network) and the spine, or in a dragonfly links among the leaves."""
    kind, half = "scale-out", out.latency / 2
    under: dict[str, int] = {}
    for chip in range(shape.built):
        leaf = f"leaf{chip // out.leaf}" + (f".rail{chip % out.rails}" if out.rails > 1 else "")
        under[leaf] = under.get(leaf, 0) + 1
        yield f"chip{chip}", f"nic{chip}", out.nic, 0.0, kind
        yield f"nic{chip}", leaf, out.port, half, kind
    if out.leaves == 1:
        return
    above = out.port / out.oversubscription
    if out.kind == "dragonfly":
        for a, b in combinations(under, 2):
            yield a, b, under[a] * above / (out.leaves - 1), 0.0, kind
    else:
        for leaf, chips in under.items():
            yield leaf, "spine", chips * above, 0.0, kind


def _network_classes(graph: Graph, shape: Shape, out: ScaleOut) -> None:
    """Add the classes of the network between domains."""
    kind, built, leaves = "scale-out", shape.built, out.leaves
    switches = leaves * out.rails
    graph.add_node("nic", kind="nic", multiplicity=built, domains=built)
    graph.add_node("leaf", kind="leaf", multiplicity=switches, domains=leaves)
    _classes(graph, "chip", "nic", out.nic, 0.0, kind, built)
    _classes(graph, "nic", "leaf", out.port, out.latency / 2, kind, built)
    if leaves == 1:
        return
    above = out.leaf / out.rails * out.port / out.oversubscription
    if out.kind == "dragonfly":
        graph.add_edge(
            "leaf",
            "leaf",
            bandwidth=above / (leaves - 1),
            latency=0.0,
            kind=kind,
            ports=leaves - 1,
            size=leaves * out.leaf,
            axes=(),
            wrap=(),
            multiplicity=leaves * (leaves - 1),
        )
    else:
        graph.add_node("spine", kind="spine", multiplicity=1, domains=1)
        _classes(graph, "leaf", "spine", above, 0.0, kind, switches)
