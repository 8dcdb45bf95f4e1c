"""Arcs of sites: capacities by hand, conservation by the incidence matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from tokenmill.topology import Arc, SiteGraph, domain_node, fabric_arcs, fabric_node, site_graph
from topology_samples import Box, Net


@dataclass(frozen=True)
class Wan:
    source: str
    target: str
    bandwidth: float = 50e9
    latency: float = 60e-3


H100, B300, CARD = (
    Box(name, scale_up=450e9, scale_up_pair=450e9, scale_out=rate)
    for name, rate in (("hgx-h100", 50e9), ("hgx-b300", 100e9), ("card", 0.0))
)
NET = Net(bandwidth=25e9, leaf=32, oversubscription=2.0, latency=4e-6)


def test_a_chip_adds_its_nic_each_way() -> None:
    arcs = fabric_arcs("here", [H100, B300])
    assert [(a.source, a.target, a.capacity, a.per_chip) for a in arcs] == [
        ("here/hgx-h100", "here/fabric", 0, 50e9),
        ("here/fabric", "here/hgx-h100", 0, 50e9),
        ("here/hgx-b300", "here/fabric", 0, 100e9),
        ("here/fabric", "here/hgx-b300", 0, 100e9),
    ]


def test_oversubscription_and_the_slower_side_rule() -> None:
    arcs = fabric_arcs("here", [B300, CARD], NET)
    assert [a.per_chip for a in arcs] == [12.5e9] * 4
    assert sum(a.latency for a in arcs[:2]) == pytest.approx(4e-6)
    assert fabric_arcs("here", [CARD]) == []


def test_two_sites() -> None:
    graph = site_graph(["east", "west"], [H100, B300], [Wan("east", "west")])
    assert len(graph.arcs()) == 2 * 4 + 2
    assert len({a.name for a in graph.arcs()}) == 10
    (route,) = graph.paths(domain_node("east", "hgx-h100"), domain_node("west", "hgx-b300"))
    assert [a.target for a in route] == ["east/fabric", "west/fabric", "west/hgx-b300"]
    assert sum(a.latency for a in route) == pytest.approx(60e-3, rel=1e-3)
    flow = np.array([1.0 if arc in route else 0.0 for arc in graph.arcs()])
    supply = dict(zip(graph.nodes(), graph.incidence() @ flow, strict=True))
    assert {node: v for node, v in supply.items() if v} == {"east/hgx-h100": 1, "west/hgx-b300": -1}


def test_every_arc_leaves_one_node_and_enters_one() -> None:
    matrix = site_graph(["a", "b", "c"], [H100], [Wan("a", "b"), Wan("b", "c")]).incidence()
    assert (matrix.sum(axis=0) == 0).all()
    assert (np.abs(matrix).sum(axis=0) == 2).all()


def test_quicker_route_first_and_pools_on_one_system() -> None:
    wan = [Wan("a", "b"), Wan("b", "c"), Wan("a", "c", latency=0.2)]
    graph = site_graph(["a", "b", "c"], [H100], wan)
    routes = graph.paths("a/fabric", "c/fabric")
    assert [[a.target for a in route] for route in routes] == [["b/fabric", "c/fabric"], ["c/fabric"]]
    (loop,) = graph.paths("a/hgx-h100", "a/hgx-h100")
    assert [a.target for a in loop] == ["a/fabric", "a/hgx-h100"]
    assert graph.paths("a/hgx-h100", "a/card") == []


def test_wan_mistakes_are_named() -> None:
    for wan, told in (
        ([Wan("a", "z")], "unknown site 'z'"),
        ([Wan("a", "a")], "one site twice"),
        ([Wan("a", "b"), Wan("b", "a")], "a second link"),
    ):
        with pytest.raises(ValueError, match=told):
            site_graph(["a", "b"], [H100], wan)


def test_fabric_of_a_site_is_its_own_node() -> None:
    arcs = (Arc("x", "a/s", fabric_node("a"), 1.0, 0.0), replace(Arc("y", fabric_node("a"), "a/s", 1.0, 0.0)))
    assert SiteGraph(arcs).nodes() == ["a/s", "a/fabric"]
