"""Sites: the directed links that flows between pools use, inside a site over its fabric and between sites over the WAN."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenmill.topology_shape import NetworkLike, SystemLike, default_latency

if TYPE_CHECKING:
    import networkx as nx


class WanLike(Protocol):
    """A link between two sites, alike both ways: B/s each direction, s."""

    @property
    def source(self) -> str:
        """One end."""

    @property
    def target(self) -> str:
        """The other end."""

    @property
    def bandwidth(self) -> float:
        """B/s each direction."""

    @property
    def latency(self) -> float:
        """Seconds one way."""


@dataclass(frozen=True)
class Arc:
    """A link in one direction, shared by all flows over it.

    Attributes
    ----------
    name, source, target : ``a -> b`` of two nodes (see `SiteGraph`)
    capacity : B/s whatever is bought
    per_chip : B/s more for every chip of `system` that stands at `site`; the capacity is capacity + per_chip * chips
    latency : s
    """

    name: str
    source: str
    target: str
    capacity: float
    latency: float
    per_chip: float = 0.0
    site: str = ""
    system: str = ""


@dataclass(frozen=True)
class SiteGraph:
    """Directed arcs among pools' domains (``site/system``) and fabrics (``site/fabric``)."""

    links: tuple[Arc, ...]

    def arcs(self) -> list[Arc]:
        """Return every arc, one a direction."""
        return list(self.links)

    def nodes(self) -> list[str]:
        """Return the nodes in the order in which arcs name them."""
        return list(dict.fromkeys(end for arc in self.links for end in (arc.source, arc.target)))

    def incidence(self) -> NDArray[np.int8]:
        """Return the matrix (nodes, arcs): 1 where an arc leaves a node, -1 where it enters; matrix @ flows is the supply."""
        matrix = np.zeros((len(self.nodes()), len(self.links)), np.int8)
        place = {node: row for row, node in enumerate(self.nodes())}
        for column, arc in enumerate(self.links):
            matrix[place[arc.source], column], matrix[place[arc.target], column] = 1, -1
        return matrix

    def paths(self, source: str, target: str, most: int = 4) -> list[tuple[Arc, ...]]:
        """Return up to `most` routes between two nodes, quickest first; none where nothing joins them.

        From a pool's domain to itself (two pools on one system) the route is out to the fabric and back.
        """
        import networkx as nx

        graph: nx.DiGraph[str] = nx.DiGraph()
        by_ends = {(arc.source, arc.target): arc for arc in self.links}
        graph.add_weighted_edges_from((arc.source, arc.target, arc.latency) for arc in self.links)
        if source == target:
            out = [arc for arc in self.links if arc.source == source and (arc.target, source) in by_ends]
            return [(arc, by_ends[arc.target, source]) for arc in out[:most]]
        if source not in graph or target not in graph or not nx.has_path(graph, source, target):
            return []
        routes = islice(nx.shortest_simple_paths(graph, source, target, weight="weight"), most)
        return [tuple(by_ends[hop] for hop in pairwise(route)) for route in routes]


def domain_node(site: str, system: str) -> str:
    """Return the node of all chips of a system at a site."""
    return f"{site}/{system}"


def fabric_node(site: str) -> str:
    """Return the node of a site's fabric."""
    return f"{site}/fabric"


def fabric_arcs(site: str, systems: Iterable[SystemLike], network: NetworkLike | None = None) -> list[Arc]:
    """Return the arcs between each system's chips at a site and its fabric, none for a system without a network link.

    A chip adds the slower of its NIC and its network port, over the oversubscription (pools lie under different leaves).
    """
    latency = (network.latency if network and network.latency else default_latency("fabric")) / 2
    arcs: list[Arc] = []
    for system in systems:
        rates = [rate for rate in (system.scale_out, network.bandwidth if network else 0.0) if rate > 0]
        if rates:
            per_chip = min(rates) / (network.oversubscription if network else 1.0)
            ends = domain_node(site, system.id), fabric_node(site)
            arcs += (Arc(f"{a} -> {b}", a, b, 0.0, latency, per_chip, site, system.id) for a, b in (ends, ends[::-1]))
    return arcs


def site_graph(
    sites: Iterable[str], systems: Iterable[SystemLike], wan: Iterable[WanLike] = (), network: NetworkLike | None = None
) -> SiteGraph:
    """Return the graph of all sites, each with all systems, joined by WAN links.

    Raises
    ------
    ValueError
        Where a WAN link names a site that is not there, itself, or a pair that is joined already.
    """
    places, offered = list(sites), list(systems)
    arcs = [arc for site in places for arc in fabric_arcs(site, offered, network)]
    return SiteGraph((*arcs, *_wan_arcs(places, wan)))


def _wan_arcs(sites: list[str], wan: Iterable[WanLike]) -> Iterator[Arc]:
    """Yield both directions of each WAN link."""
    joined: set[frozenset[str]] = set()
    for link in wan:
        pair = frozenset((link.source, link.target))
        unknown = [end for end in (link.source, link.target) if end not in sites]
        if unknown or len(pair) == 1 or pair in joined:
            found = (
                f"unknown site {unknown[0]!r}" if unknown else "one site twice" if len(pair) == 1 else "a second link"
            )
            raise ValueError(
                f"wan {link.source!r} to {link.target!r}: found {found}; allowed: one link a pair of {sorted(sites)}"
            )
        joined.add(pair)
        for a, b in ((link.source, link.target), (link.target, link.source)):
            source, target = fabric_node(a), fabric_node(b)
            yield Arc(f"{source} -> {target}", source, target, link.bandwidth, link.latency)
