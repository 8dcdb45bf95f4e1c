"""Topology: from a system and a network to the machine that the search reads, and to the graphs it comes from.

The graph is built once a shape, its domains and cuts give the levels (`tokenmill.topology_cuts`), and only the levels travel
further. Everything is in B/s one direction, and seconds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from tokenmill.topology_build import full_graph, quotient_graph
from tokenmill.topology_cuts import bisection_of, machine_from
from tokenmill.topology_machine import MAX_LEVELS, UNBOUNDED, GroupLevels, Level, Machine
from tokenmill.topology_shape import NetworkLike, Shape, SystemLike, default_latency, default_rate, shape_of
from tokenmill.topology_sites import Arc, SiteGraph, domain_node, fabric_arcs, fabric_node, site_graph

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "MAX_LEVELS",
    "UNBOUNDED",
    "Arc",
    "GroupLevels",
    "Level",
    "Machine",
    "SiteGraph",
    "bisection_of",
    "default_latency",
    "default_rate",
    "domain_node",
    "fabric_arcs",
    "fabric_node",
    "graph_of",
    "machine_from",
    "machine_of",
    "quotient_of",
    "site_graph",
]


def machine_of(system: SystemLike, network: NetworkLike | None = None, chips: int | None = None) -> Machine:
    """Return the machine of `chips` chips (default: one system) of a system, joined by `network` or its own NICs, non-blocking.

    Raises
    ------
    CatalogError
        Where the system has no link that would join so many chips.
    ValueError
        Where chips is not a positive count.
    """
    return _machine(shape_of(system, network, chips))


def graph_of(system: SystemLike, network: NetworkLike | None = None, chips: int | None = None) -> nx.DiGraph[str]:
    """Return the same machine as a digraph with a node for every chip (see `tokenmill.topology_build` for attributes)."""
    return full_graph(shape_of(system, network, chips))


def quotient_of(system: SystemLike, network: NetworkLike | None = None, chips: int | None = None) -> nx.DiGraph[str]:
    """Return the same machine as a digraph with a node for every class of like nodes, with multiplicities."""
    return quotient_graph(shape_of(system, network, chips))


@lru_cache(maxsize=4096)
def _machine(shape: Shape) -> Machine:
    machine = machine_from(quotient_graph(shape))
    levels = (replace(level, cube=shape.up.cube) if level.kind == "torus" else level for level in machine.levels)
    return replace(machine, levels=tuple(levels))
