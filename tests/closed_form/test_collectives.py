"""Exchanges against hand calculations, printed bandwidths and latencies, and their own limits."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_samples import serving_values
from tokenmill.catalog import load_catalog
from tokenmill.efficiency import chip_constant
from tokenmill.imports.architecture import load_architecture
from tokenmill_models.checks import dimension_failures, route_failures
from tokenmill_models.collectives import (
    all_reduce,
    all_to_all,
    crossing_share,
    engine_all_reduce,
    gather,
    group_leaves,
    send,
)
from tokenmill_models.compile import compile_graph
from tokenmill_models.formula import Graph
from tokenmill_models.stage import stages
from tokenmill_models.symbols import declare

GROUP = group_leaves("tried")
VOLUME = declare("tried_volume", "B", "bytes of an exchange in a test", origin="test.volume", sign="positive")
CAPTURED = declare("tried_captured", "1", "1 in a captured graph, in a test", origin="test.captured")
SHARE = declare("tried_crossing", "1", "share of copies that leave a node, in a test", origin="test.crossing")
MADE = {
    "gather": lambda graph: gather(graph, "tried", GROUP, VOLUME),
    "reduce": lambda graph: all_reduce(graph, "tried", GROUP, VOLUME),
    "engine": lambda graph: engine_all_reduce(graph, "tried", GROUP, VOLUME, CAPTURED),
    "exchange": lambda graph: all_to_all(graph, "tried", GROUP, VOLUME, SHARE),
    "send": lambda graph: send(graph, "tried", GROUP, VOLUME),
}
ROUND = {
    # start 4 us, ring steps of a hop, 80% of the wire, ramp 10 us; engine 5 us; exchange 6 us and a tenth of a hop a peer
    "ring_start": 4e-6, "ring_hops": 1.0, "ring_share": 0.8, "ring_ramp": 1e-5, "switch_start": 1e-5, "switch_share": 0.64,
    "exchange_start": 6e-6, "exchange_hops": 0.1, "exchange_share": 0.7, "exchange_ramp": 1e-5, "exchange_self": 0.5,
    "own_start": 5e-6, "own_hops": 0.1, "own_share": 0.6, "own_pair_share": 0.3, "own_host": 2e-5, "fabric_share": 0.5,
    "W": 3e12, "eta_W": 0.9, "tried_captured": 1.0, "tried_crossing": 1.0,
}  # fmt: skip
SMOOTH = {**ROUND, "ring_ramp": 0.0, "exchange_ramp": 0.0}


@cache
def built(name):
    graph = Graph()
    symbol = MADE[name](graph)
    return graph, compile_graph(graph, [symbol])


def leaves(volume, members, constants=ROUND, reduces=0.0):
    """Domains of wires of 400 GB/s with 1 us a hop, a network of 40 GB/s with 5 us; `members` by level."""
    found = {**constants, "tried_volume": volume}
    for level in range(3):
        wire, hop = ((400e9, 1e-6), (40e9, 5e-6), (40e9, 5e-6))[level]
        found |= {f"{field}_tried{level}": wire for field in ("beta", "pair", "exchange")}
        found |= {f"n_tried{level}": float(members[level]), f"alpha_tried{level}": hop}
        found[f"reduces_tried{level}"] = reduces if level == 0 else 0.0
    return found


def seconds(name, volume, members, constants=ROUND, reduces=0.0):
    formula = built(name)[1]
    return float(next(iter(formula(leaves(volume, members, constants, reduces)).values())))


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("members", [(8, 1, 1), (8, 4, 2), (1, 16, 1)])
def test_every_definition_has_its_dimension_and_two_routes_agree(name, members):
    graph, formula = built(name)
    values = {s.name: leaves(3e7, members, reduces=1.0)[s.name] for s in formula.inputs}
    assert dimension_failures(graph, values) == []
    assert route_failures(graph, values) == []


def test_a_gather_starts_hops_and_fills_the_wire():
    # 32 MB over 8: 7/8 of it at 320 GB/s = 87.5 us, root of 10 us x 87.5 us = 29.58 us, seven hops, 4 us to start
    assert seconds("gather", 32e6, (8, 1, 1)) == pytest.approx(4e-6 + 7e-6 + 87.5e-6 + 29.58e-6, rel=1e-4)


def test_the_level_outside_moves_what_is_left():
    # four domains of eight: an eighth of the buffer, 3/4 of it at 20 GB/s, three hops of 5 us; one start for both levels
    inner = 7e-6 + 7 / 8 * 32e6 / 320e9
    outer = 15e-6 + 3 / 4 * 4e6 / 20e9
    assert seconds("gather", 32e6, (8, 4, 1), SMOOTH) == pytest.approx(4e-6 + inner + outer)


def test_an_all_reduce_is_a_ring_there_and_back():
    assert seconds("reduce", 32e6, (8, 1, 1), SMOOTH) == pytest.approx(4e-6 + 14e-6 + 2 * 7 / 8 * 32e6 / 320e9)


def test_the_switch_adds_up_large_messages_of_many_and_not_of_two():
    # 9/8 of the bytes at 256 GB/s and 10 us against 14/8 at 320 GB/s and 14 hops
    assert seconds("reduce", 32e7, (8, 1, 1), SMOOTH, reduces=1.0) == pytest.approx(4e-6 + 1e-5 + 9 / 8 * 32e7 / 256e9)
    two = [seconds("reduce", 32e7, (2, 1, 1), SMOOTH, reduces=flag) for flag in (0.0, 1.0)]
    assert two[0] == two[1] == pytest.approx(4e-6 + 2e-6 + 32e7 / 320e9)


def test_small_messages_of_many_domains_climb_a_tree():
    # 64 domains, 1 kB: 2 x 6 hops of 5 us against 126; large ones go round the ring
    assert seconds("reduce", 1e3, (1, 64, 1), SMOOTH) == pytest.approx(4e-6 + 60e-6 + 2e3 / 20e9)
    assert seconds("reduce", 1e12, (1, 64, 1), SMOOTH) == pytest.approx(4e-6 + 630e-6 + 2 * 63 / 64 * 1e12 / 20e9)


def test_an_engine_reduces_small_messages_in_one_shot_large_ones_in_two():
    once = 5e-6 + 7 * 0.1e-6
    assert seconds("engine", 16e3, (8, 1, 1)) == pytest.approx(once + 7 * 16e3 / 240e9)
    assert seconds("engine", 2e6, (8, 1, 1)) == pytest.approx(2 * once + 2 * 7 / 8 * 2e6 / 240e9)


def test_one_peer_is_read_no_faster_than_one_reader_asks():
    # own_pair_share: one peer at 120 GB/s, two and more at 240
    assert seconds("engine", 64e3, (2, 1, 1)) == pytest.approx(5.1e-6 + 64e3 / 120e9)


def test_an_engine_leaves_what_crosses_domains_to_the_library():
    assert seconds("engine", 16e3, (8, 2, 1)) == seconds("reduce", 16e3, (8, 2, 1))


def test_without_a_graph_the_host_and_a_copy_count():
    eager = {**SMOOTH, "tried_captured": 0.0}
    assert seconds("engine", 16e3, (8, 1, 1), eager) == 2e-5
    captured = seconds("engine", 1e9, (8, 1, 1), SMOOTH)
    assert seconds("engine", 1e9, (8, 1, 1), eager) == pytest.approx(captured + 2e9 / 2.7e12)


def test_pairs_exchange_all_but_their_own_slice():
    # 7.5 of 8 slices (half its own as if over the wire) at 280 GB/s, seven peers a tenth of a hop each
    assert seconds("exchange", 32e6, (8, 1, 1), SMOOTH) == pytest.approx(6e-6 + 0.7e-6 + 7.5 / 8 * 32e6 / 280e9)


def test_node_limited_routing_halves_what_crosses_nodes():
    # DeepSeek-V3: eight experts a token, in four nodes at most: of 64 ranks in eight nodes 56/64 lie outside, in half as many copies
    share = float(crossing_share(8, 4))
    assert share == 0.5
    whole, limited = (seconds("exchange", 64e6, (8, 8, 1), {**SMOOTH, "tried_crossing": x}) for x in (1.0, share))
    fixed = 6e-6 + 0.1 * (7 * 1e-6 + 7 * 5e-6)
    assert whole == pytest.approx(fixed + 56 / 64 * 64e6 / 20e9)
    assert limited == pytest.approx(fixed + 56 / 64 * 32e6 / 20e9)


def test_a_served_model_sends_a_token_once_to_each_node_of_its_experts():
    """DeepSeek-V3 over eight nodes of eight: eight experts a token, but four nodes: half of what no limit sends; hops apart."""
    arch = load_architecture("deepseek-v3")
    role = next(role for role in stages()["serving"].roles(arch) if role.name == "decode")
    (dispatch,) = (symbol for symbol in role.graph.formulas if symbol.name.startswith("T_dispatch"))
    values = serving_values(role, arch, [dispatch], axis__attention_dp=64.0, axis__ep=64.0, axis__batch=8192.0)
    values |= {"n_expert0": 8.0, "n_expert1": 8.0}
    formula = compile_graph(role.graph, [dispatch])
    hops = 14 * values["exchange_hops"] * values["alpha_expert0"]
    limited, free = (
        formula({**values, "layers_1_mlp_groups_used": nodes})[dispatch.name] - hops for nodes in (4.0, 8.0)
    )
    assert free == pytest.approx(2 * limited)
    assert values["layers_1_mlp_groups_used"] == 4


def test_a_send_takes_the_slowest_level_it_spans():
    assert seconds("send", 7e6, (2, 1, 1), SMOOTH) == pytest.approx(6e-6 + 1e-6 + 7e6 / 280e9)
    assert seconds("send", 7e6, (2, 4, 1), SMOOTH) == pytest.approx(6e-6 + 5e-6 + 7e6 / 20e9)


@pytest.mark.parametrize("name", MADE)
def test_nobody_to_talk_to_takes_no_time(name):
    assert seconds(name, 1e9, (1, 1, 1), reduces=1.0) == 0


@given(
    name=st.sampled_from(sorted(MADE)),
    volume=st.floats(1e3, 1e11),
    inside=st.sampled_from([1, 2, 4, 8, 72]),
    outside=st.sampled_from([1, 2, 16, 128]),
    reduces=st.sampled_from([0.0, 1.0]),
)
def test_more_bytes_never_take_less_time_nor_more_than_in_proportion(name, volume, inside, outside, reduces):
    once, twice = (seconds(name, v, (inside, outside, 1), reduces=reduces) for v in (volume, 2 * volume))
    assert once <= twice <= 2 * once * (1 + 1e-12)


@given(volume=st.floats(1e3, 1e11), inside=st.sampled_from([2, 4, 8]), outside=st.sampled_from([1, 4, 64]))
def test_an_all_reduce_is_no_slower_than_scatter_and_gather(volume, inside, outside):
    members = (inside, outside, 1)
    assert seconds("reduce", volume, members) <= 2 * seconds("gather", volume, members) * (1 + 1e-12)


def of_chip(chip):
    catalog = load_catalog()
    names = {s.name for name in ("gather", "engine", "exchange") for s in built(name)[1].inputs} & set(ROUND)
    fitted = {name: chip_constant(catalog, chip, name, "").value for name in names if name.startswith(("ring", "switch", "own", "exchange"))}  # fmt: skip
    bandwidth = catalog.chip(chip).bandwidth
    return {**ROUND, **fitted, "W": bandwidth}


def on_hgx(name, volume, constants, reduces=0.0):
    """Eight chips behind NVSwitch of 450 GB/s, 0.8 us a hop."""
    values = leaves(volume, (8, 1, 1), constants, reduces)
    values |= {f"{field}_tried0": 450e9 for field in ("beta", "pair", "exchange")} | {"alpha_tried0": 0.8e-6}
    return float(next(iter(built(name)[1](values).values())))


def test_printed_bandwidths_of_eight_h100():
    """Bus bandwidths that the measured kernels print for 2^28 half-precision elements: 335 GB/s all-gather, 430 all-reduce."""
    constants, volume = of_chip("h100-sxm"), 2.0**29
    assert 7 / 8 * volume / on_hgx("gather", volume, constants) == pytest.approx(335e9, rel=0.06)
    reduce = on_hgx("reduce", volume, constants, reduces=1.0)
    assert 2 * 7 / 8 * volume / reduce == pytest.approx(430e9, rel=0.12)


def test_printed_latencies_of_eight_h100():
    """About 16 thousand 16-bit elements: 5.6 us by the engine in a graph, 23 us eager, 18 us by the library."""
    constants, volume = of_chip("h100-sxm"), 2.0 * 16384
    assert on_hgx("engine", volume, constants) == pytest.approx(5.6e-6, rel=0.1)
    assert on_hgx("engine", volume, {**constants, "tried_captured": 0.0}) == pytest.approx(23e-6, rel=0.1)
    assert on_hgx("reduce", volume, constants) == pytest.approx(18e-6, rel=0.15)
