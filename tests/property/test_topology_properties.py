"""What holds of every machine: members multiply to the group, worse hardware never gives more, both graphs agree."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.topology import Machine, graph_of, machine_from, machine_of
from tokenmill.topology_shape import slice_of
from topology_samples import Box, Net

switch_box = partial(Box, scale_up=400e9, scale_out=50e9)
POD = Box("pod", 512, 4, 512, "torus3d", (8, 8, 8), 4, 90e9, 540e9, 50e9)
degrees = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24, 32])
boxes = st.builds(
    lambda topology, n: switch_box(chips=n, chips_per_node=n, scale_up_domain=n, topology=topology),
    st.sampled_from(["switch", "mesh", "none"]),
    st.sampled_from([1, 2, 4, 8]),
)
nets = st.builds(
    Net,
    kind=st.sampled_from(["fat-tree", "rail", "dragonfly"]),
    leaf=st.sampled_from([8, 16, 32]),
    oversubscription=st.sampled_from([1.0, 1.5, 2.0, 4.0]),
    bandwidth=st.sampled_from([25e9, 50e9, 100e9]),
)


def fixed(machine: Machine) -> Machine:
    """The machine as a graph shows it: its torus has the one shape that stands."""
    return replace(machine, levels=tuple(replace(level, cube=0) for level in machine.levels))


def most_apart(machine: Machine, size: int, stride: int, total: int) -> list[int]:
    """By counting: the fewest members that the luckiest domain of any group keeps together, level by level."""
    lucky = []
    for level in machine.levels:
        fewest = size
        for first in range(0, total, size * stride):
            for offset in range(stride):
                members = [first + offset + k * stride for k in range(size)]
                fewest = min(fewest, max(np.bincount([r // level.size for r in members])))
        lucky.append(fewest)
    return lucky


@given(boxes, nets, degrees, degrees)
def test_members_multiply_to_the_size_and_claim_no_more_than_counted(
    box: Box, net: Net, size: int, stride: int
) -> None:
    total = size * stride * 2
    domains = -(-total // box.chips)
    machine = machine_of(box, net, domains * box.chips)
    found = [int(n) for n in machine.groups(size, stride, domains * box.chips).n]
    assert prod(found) == size
    counted = most_apart(machine, size, stride, total)
    claimed = np.cumprod(found[: len(counted)])
    assert (claimed <= counted).all()
    if all(level.size % (size * stride) == 0 or (size * stride) % level.size == 0 for level in machine.levels):
        exact = all(level.size % stride == 0 or stride % level.size == 0 for level in machine.levels)
        assert not exact or claimed.tolist() == counted


@settings(max_examples=30, deadline=None)
@given(boxes, nets, st.sampled_from([16, 32, 64]))
def test_full_graph_and_quotient_agree(box: Box, net: Net, chips: int) -> None:
    if net.leaf is not None and chips % net.leaf == 0:
        full, short = machine_from(graph_of(box, net, chips)), machine_of(box, net, chips)
        for a, b in zip(full.levels, short.levels, strict=True):
            assert replace(a, bandwidth=0) == replace(b, bandwidth=0)
            assert a.bandwidth == pytest.approx(b.bandwidth, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([1, 2, 8, 16, 32, 64, 128, 256, 512]))
def test_torus_slices_agree(chips: int) -> None:
    full, short = machine_from(graph_of(POD, None, chips)), machine_of(POD, None, chips)
    assert full == fixed(short)
    assert prod(short.levels[0].axes) == chips


def no_better(worse: Machine, better: Machine) -> None:
    sizes, strides = np.array([[1], [2], [4], [8], [64]]), np.array([1, 2, 8, 64])
    a, b = worse.groups(sizes, strides), better.groups(sizes, strides)
    for slow, fast in zip((*a.beta, *a.exchange, *a.pair), (*b.beta, *b.exchange, *b.pair), strict=True):
        assert (slow <= fast).all()
    for slow, fast in zip(a.alpha, b.alpha, strict=True):
        assert (slow >= fast).all()


@given(boxes, nets, st.floats(1, 10))
def test_oversubscribing_never_raises_bandwidth(box: Box, net: Net, factor: float) -> None:
    worse = replace(net, oversubscription=net.oversubscription * factor)
    no_better(machine_of(box, worse, 128), machine_of(box, net, 128))


@given(boxes, nets, st.floats(1, 16), st.integers(-1, 0))
def test_sharing_never_raises_bandwidth(box: Box, net: Net, jobs: float, level: int) -> None:
    machine = machine_of(box, net, 128)
    no_better(machine.shared(jobs, level), machine)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=3))
def test_losing_rings_never_raises_bandwidth(axes: list[int]) -> None:
    whole = machine_of(POD)
    worn = whole
    for axis in axes:
        worn = worn.without_wrap(axis)
        no_better(worn, whole)
    assert worn.levels[0].bandwidth == (6 - len(set(axes))) * 90e9


def test_lost_ring_is_what_the_graph_without_its_links_says() -> None:
    graph = graph_of(POD, None, 64)
    places = {tuple(place): node for node, place in graph.nodes(data="coordinate")}
    for (x, y, z), node in places.items():
        if x == 0:
            graph.remove_edges_from([(node, places[3, y, z]), (places[3, y, z], node)])
    assert machine_from(graph) == fixed(machine_of(POD, None, 64).without_wrap(0))


@given(boxes, st.sampled_from([1, 2, 3, 4]), degrees)
def test_ranks_of_a_chip_divide_its_links(box: Box, ranks: int, size: int) -> None:
    machine = machine_of(box, Net(leaf=16), 128)
    found = machine.split(ranks).groups(size * ranks, 1)
    assert prod(int(n) for n in found.n) == size * ranks
    for i, level in enumerate(machine.levels):
        if found.n[i] > 1:
            assert found.beta[i] <= level.bandwidth / ranks
            assert found.pair[i] == level.pair_bandwidth / ranks


@given(st.integers(1, 600))
def test_slices_hold_their_chips_within_the_pod(chips: int) -> None:
    for pod, cube in (((8, 8, 8), 4), ((8, 8, 8), 1), ((4, 16), 1)):
        if chips <= prod(pod):
            dims, wrap = slice_of(chips, pod, cube)
            assert not any(ring and side <= 2 for ring, side in zip(wrap, dims, strict=True))
            assert prod(dims) >= chips
            assert len(dims) == len(pod)
            if cube > 1 and chips > cube ** len(pod):
                assert all(side % cube == 0 for side in dims)
