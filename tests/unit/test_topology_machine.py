"""Machines of known hardware, by hand: bandwidths are one direction per chip, from the vendors' link counts."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from tokenmill.catalog import load_catalog
from tokenmill.errors import CatalogError
from tokenmill.topology import (
    MAX_LEVELS,
    UNBOUNDED,
    Machine,
    bisection_of,
    graph_of,
    machine_from,
    machine_of,
    quotient_of,
)
from tokenmill.topology_shape import slice_of
from topology_samples import Box, Net

GB = 1e9


H100 = Box("dgx-h100", scale_up=450 * GB, scale_out=50 * GB, in_switch_reduction=True)
NVL72 = Box("nvl72", 72, 4, 72, scale_up=900 * GB, scale_out=50 * GB)
MI300X = Box("mi300x-8", topology="mesh", scale_up=448 * GB, scale_out=50 * GB)
V5P = Box("v5p", 8960, 4, 8960, "torus3d", (16, 20, 28), 4, 90 * GB, 540 * GB, 6.25 * GB)
V5E = Box("v5e", 256, 8, 256, "torus2d", (16, 16), None, 45 * GB, 180 * GB, 3.125 * GB)
PCIE = Box("l40s-8", topology="none", scale_up=31.5 * GB, scale_out=12.5 * GB)
BRIDGED = Box("h100-nvl", 8, 8, 2, scale_up=300 * GB, scale_out=25 * GB, host_link=63 * GB)
BOARDFLY = Box("dragon", 64, 4, 64, "dragonfly", scale_up=1200 * GB, scale_out=6.25 * GB)

CASES = {
    "switched nodes, own links": (H100, None),
    "rail-optimised": (H100, Net(kind="rail", leaf=256)),
    "oversubscribed 3:1": (H100, Net(leaf=32, oversubscription=3)),
    "oversubscribed rails": (H100, Net(kind="rail", leaf=128, oversubscription=2)),
    "dragonfly network": (H100, Net(kind="dragonfly", leaf=64, oversubscription=2)),
    "meshes": (MI300X, Net(leaf=32)),
    "torus of cubes": (V5P, None),
    "two tori": (V5E, None),
    "cards on hosts": (PCIE, Net(leaf=32, oversubscription=4, bandwidth=12.5 * GB)),
    "dragonflies": (BOARDFLY, None),
}


def test_groups_on_a_pod_are_slices_of_it() -> None:
    pod = machine_of(V5P)
    for chips in (2, 16, 64, 512):
        assert at(pod, chips) == at(machine_of(V5P, None, chips), chips)
    assert at(pod, 512)[0][1] == 540


def at(machine: Machine, size: int, stride: int = 1, ranks: int | None = None) -> list[tuple[int, float, float]]:
    """Levels that a group uses: members, GB/s per chip, latency of all its steps."""
    found = machine.groups(size, stride, ranks)
    return [
        (int(n), round(float(beta) / GB, 6), float(alpha) * (int(n) - 1))
        for n, beta, alpha in zip(found.n, found.beta, found.alpha, strict=True)
        if n > 1
    ]


@pytest.mark.parametrize("name", CASES)
def test_full_graph_and_quotient_give_the_same_machine(name: str) -> None:
    system, network = CASES[name]
    full = machine_from(graph_of(system, network, 512))
    short = machine_of(system, network, 512)
    assert short.chips == full.chips
    assert [level.size for level in full.levels] == [level.size for level in short.levels]
    for a, b in zip(full.levels, short.levels, strict=True):
        assert (a.name, a.kind, a.axes, a.wrap, a.in_switch_reduction) == (
            b.name,
            b.kind,
            b.axes,
            b.wrap,
            b.in_switch_reduction,
        )
        assert (a.bandwidth, a.pair_bandwidth, a.latency) == pytest.approx(
            (b.bandwidth, b.pair_bandwidth, b.latency), rel=1e-9
        )


@pytest.mark.parametrize("name", CASES)
def test_multiplicities_count_the_nodes_and_edges_of_the_full_graph(name: str) -> None:
    system, network = CASES[name]
    full, short = graph_of(system, network, 512), quotient_of(system, network, 512)
    assert sum(m for _, m in short.nodes(data="multiplicity")) == full.number_of_nodes()
    assert sum(m for _, _, m in short.edges(data="multiplicity")) == full.number_of_edges()
    capacity = sum(d["bandwidth"] * d["multiplicity"] for _, _, d in short.edges(data=True))
    assert capacity == pytest.approx(sum(w for _, _, w in full.edges(data="bandwidth")), rel=1e-9)


def test_dgx_h100_by_hand() -> None:
    node = machine_of(H100)
    assert at(node, 8) == [(8, 450, pytest.approx(7 * 0.8e-6))]
    pod = machine_of(H100, None, 64)
    assert at(pod, 64)[0][:2] == (8, 450)
    assert at(pod, 64)[1][:2] == (8, 50)
    assert at(pod, 8, stride=8) == [(8, 50, pytest.approx(7 * 2e-6))]
    assert node.levels[0].in_switch_reduction
    assert not machine_of(MI300X).levels[0].in_switch_reduction


def test_nvl72_by_hand() -> None:
    assert at(machine_of(NVL72), 72)[0][:2] == (72, 900)
    two = machine_of(NVL72, None, 144)
    assert [row[:2] for row in at(two, 144)] == [(72, 900), (2, 50)]
    # sixty-four of the seventy-two chips make a group that stays in one rack; two such groups take two racks
    assert [row[:2] for row in at(two, 64)] == [(64, 900)]
    assert [row[:2] for row in at(two, 128)] == [(64, 900), (2, 50)]


def test_mi300x_pairs_talk_at_their_share_of_the_mesh() -> None:
    board = machine_of(MI300X)
    assert [at(board, n)[0][1] for n in (2, 4, 8)] == [64, 192, 448]
    assert board.groups(8, 1).pair[0] == 64 * GB


def test_tpu_v5p_cube_by_hand() -> None:
    cube = machine_of(V5P, None, 64)
    assert (cube.levels[0].axes, cube.levels[0].wrap) == ((4, 4, 4), (True, True, True))
    # three rings of two 90 GB/s links each; half-way round a ring of four is two hops of 1 us
    assert at(cube, 64) == [(64, 540, pytest.approx(2e-6))]
    # within the cube: a plane of two rings, one ring, a ring of the outermost axis, two neighbours
    assert at(cube, 16, ranks=64)[0][1] == 360
    assert at(cube, 4, ranks=64)[0][1] == 180
    assert at(cube, 4, stride=16, ranks=64)[0][1] == 180
    assert at(cube, 2, ranks=64)[0][1] == 90
    # a group of every other chip of a ring shares its two links with the group between
    assert at(cube, 2, stride=2, ranks=64)[0][1] == 90
    # alone, sixteen chips are a slice of 2 x 2 x 4 without rings
    assert at(cube, 16) == [(16, 270, pytest.approx(3e-6))]
    bisection = bisection_of(graph_of(V5P, None, 64))
    assert bisection == 2 * 16 * 90 * GB
    # n V/4 bytes cross the middle in an all-to-all of V bytes a chip
    n, exchange = 64, float(cube.groups(64, 1).exchange[0])
    assert (n - 1) / n / exchange == pytest.approx(n / (4 * bisection))


def test_slices_close_rings_only_on_whole_cubes_or_whole_axes() -> None:
    assert machine_of(V5P, None, 16).levels[0].axes == (2, 2, 4)
    assert machine_of(V5P, None, 16).levels[0].wrap == (False, False, False)
    assert machine_of(V5P, None, 256).levels[0].axes == (4, 8, 8)
    assert machine_of(V5P).levels[0].axes == (16, 20, 28)
    assert machine_of(V5E, None, 64).levels[0].wrap == (False, False)
    assert machine_of(V5E, None, 128).levels[0].wrap == (False, True)
    # Google lists 4608 chips of a TPU7x as 12 x 16 x 24
    assert slice_of(4608, (16, 24, 24), 4) == ((12, 16, 24), (True, True, True))


def test_corner_of_an_open_torus_has_one_link_an_axis() -> None:
    assert machine_of(V5P, None, 32).levels[0].bandwidth == 3 * 90 * GB


def test_three_to_one_tree_by_hand() -> None:
    tree = machine_of(H100, Net(leaf=32, oversubscription=3), 512)
    assert [level.size for level in tree.levels] == [8, 32, 512]
    assert [row[0] for row in at(tree, 512)] == [8, 4, 16]
    assert [row[1] for row in at(tree, 512)] == [450, 50, pytest.approx(50 / 3)]
    assert tree.levels[2].pair_bandwidth == 50 * GB


def test_bridged_pairs_lie_inside_their_host() -> None:
    node = machine_of(BRIDGED)
    assert [(level.size, level.bandwidth / GB, level.kind) for level in node.levels] == [
        (2, 300, "switch"),
        (8, 63, "host"),
    ]
    assert machine_from(graph_of(BRIDGED)) == node
    assert [level.size for level in machine_of(BRIDGED, None, 64).levels] == [2, 8, 64]


def test_slower_side_of_the_network_rules() -> None:
    assert machine_of(H100, Net(bandwidth=25 * GB), 64).levels[1].bandwidth == 25 * GB
    assert machine_of(H100, Net(bandwidth=100 * GB), 64).levels[1].bandwidth == 50 * GB


def test_absent_levels_cost_nothing() -> None:
    found = machine_of(H100).groups([1, 8], 1)
    assert len(found.n) == len(found.beta) == len(found.alpha) == MAX_LEVELS
    assert [n.tolist() for n in found.n] == [[1, 8], [1, 1], [1, 1]]
    assert found.beta[0][0] == found.beta[1][1] == UNBOUNDED
    assert found.alpha[0][0] == found.alpha[1][1] == 0


def test_single_chip_has_a_scale_up_domain_of_one() -> None:
    single = Box("one", 1, 1, 1, scale_out=12.5 * GB)
    assert [level.size for level in machine_of(single).levels] == [1]
    pair = machine_of(single, None, 2)
    assert [level.size for level in pair.levels] == [1, 2]
    assert at(pair, 2)[0][1] == 12.5
    assert machine_from(graph_of(single, None, 2)) == pair


def test_groups_that_straddle_are_counted_by_what_all_keep_whole() -> None:
    pod = machine_of(H100, None, 48)
    # 6 ranks from rank 6 lie 2 + 4 on two nodes of 8
    assert [int(n) for n in pod.groups(6, 1, ranks=48).n] == [2, 3, 1]
    assert [int(n) for n in pod.groups(6, 1).n] == [6, 1, 1]


def test_fewer_ranks_than_the_machine_are_spread_evenly() -> None:
    racks = machine_of(NVL72, None, 720)
    assert [int(n) for n in racks.groups(64, 1, ranks=720).n] == [8, 8, 1]
    assert [int(n) for n in racks.groups(64, 1, ranks=64).n] == [64, 1, 1]
    assert [int(n) for n in racks.groups(64, 1, ranks=128).n] == [64, 1, 1]
    assert [int(n) for n in racks.groups(2, 64, ranks=128).n] == [1, 2, 1]


def test_arrays_broadcast() -> None:
    found = machine_of(H100, None, 64).groups(np.array([[2], [8]]), np.array([1, 2, 8]))
    assert found.n[0].tolist() == [[2, 2, 1], [8, 4, 1]]
    assert found.n[1].tolist() == [[1, 1, 2], [1, 2, 8]]


def test_ranks_of_a_chip_share_its_links() -> None:
    node = machine_of(Box("mi250x", 4, 4, 4, topology="mesh", scale_up=300 * GB)).split(2)
    assert (node.chips, node.levels[0].size, node.levels[0].bandwidth) == (8, 8, 150 * GB)


def test_quotient_of_100_000_chips_is_as_small_as_of_one_rack() -> None:
    network = Net(kind="rail", leaf=256, oversubscription=2)
    assert (
        quotient_of(H100, network, 100_000).number_of_nodes() == quotient_of(H100, network, 512).number_of_nodes() < 10
    )
    assert machine_of(H100, network, 100_000).levels[-1].size >= 100_000


def test_unjoinable_chips_are_refused_by_name() -> None:
    lonely = Box("lonely", scale_up=450 * GB)
    assert machine_of(lonely).chips == 8
    with pytest.raises(CatalogError, match="lonely"):
        machine_of(lonely, None, 16)
    assert machine_of(lonely, Net(), 16).levels[1].bandwidth == 50 * GB
    with pytest.raises(ValueError, match="at least 1"):
        machine_of(lonely, None, 0)


def test_bisection_by_hand() -> None:
    # half of eight meshed chips has 4 x 4 links of 64 GB/s to the other half, and an all-to-all is as fast as injection
    assert bisection_of(graph_of(MI300X)) == 16 * 64 * GB
    assert machine_of(MI300X).groups(8, 1).exchange[0] == pytest.approx(4 * 16 * 64 * GB * 7 / 8**2)
    tree = graph_of(H100, Net(leaf=32, oversubscription=3), 128)
    assert bisection_of(tree) == pytest.approx(64 * 50 * GB / 3)


def test_reading_a_topology_module_does_not_load_networkx() -> None:
    code = "import sys, tokenmill.topology, tokenmill.imports.topology; print('networkx' in sys.modules)"
    path = os.pathsep.join(sys.path)
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    assert found.stdout.strip() == "False"


def test_links_of_unlike_axes_keep_the_sum_of_the_chip() -> None:
    # four links of 128 GB/s and two of 64
    assert (
        machine_of(Box("trn2", 64, 16, 64, "torus3d", (4, 4, 4), None, 128 * GB, 640 * GB)).levels[0].bandwidth
        == 640 * GB
    )


@pytest.mark.parametrize(
    ("name", "size", "whole", "pair"),
    [
        ("hgx-h100", 8, 450, 450),
        ("gb200-nvl72", 72, 900, 900),
        ("mi300x-8", 8, 448, 64),
        ("tpu-v5p-pod", 8960, 540, 90),
    ],
)
def test_systems_of_the_catalogue(name: str, size: int, whole: float, pair: float) -> None:
    level = machine_of(load_catalog().system(name)).levels[0]
    assert (level.size, level.bandwidth, level.pair_bandwidth) == (size, whole * GB, pair * GB)


def test_every_system_of_the_catalogue_has_a_machine() -> None:
    catalog = load_catalog()
    for system in catalog.systems.values():
        machine = machine_of(system)
        assert machine.levels[-1].size >= machine.chips == system.chips
        for network in catalog.networks.values():
            pair = machine_of(system, network, 2 * system.chips)
            assert all(inner.size < outer.size for inner, outer in pairwise(pair.levels))
            assert all(level.bandwidth > 0 for level in pair.levels)
