"""Operations of a layer against counts by hand and against the architecture's own FLOP count."""

from dataclasses import replace

import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sample_leaves import IDEAL, dense, expert, latent, leaf_values
from tokenmill_models.architecture import Architecture, causal_flops_per_token, forward_flops_per_token
from tokenmill_models.checks import dimension_failures, route_failures
from tokenmill_models.compile import compile_graph
from tokenmill_models.formula import Graph
from tokenmill_models.operations import LayerWork, Shape, head, layer
from tokenmill_models.symbols import declare

NAMES = ("tokens", "sequences", "keys", "t", "e", "t_e", "flash", "load")
X = {name: declare(f"test_{name}", "1", name, origin=f"test.{name}", sign="positive") for name in NAMES}
B = {n: declare(f"test_{n}_bytes", "B", n, origin=f"test.{n}_bytes") for n in ("weight", "expert", "activation", "kv")}
SHAPE = Shape(
    X["tokens"], X["sequences"], X["keys"], B["weight"], B["expert"], B["activation"], B["kv"], X["t"], X["e"], X["t_e"],
    flash=X["flash"], expert_load=X["load"],
)  # fmt: skip
TABLE = {
    "test.tokens": 4096.0, "test.sequences": 2.0, "test.keys": 1024.0, "test.t": 1.0, "test.e": 1.0, "test.t_e": 1.0,
    "test.flash": 1.0, "test.load": 1.0, "test.weight_bytes": 2.0, "test.expert_bytes": 2.0, "test.activation_bytes": 2.0,
    "test.kv_bytes": 2.0,
}  # fmt: skip


def build(arch: Architecture, shape: Shape) -> tuple[Graph, list[LayerWork]]:
    graph = Graph()
    works = [layer(graph, f"l{i}", kind, f"layers.{i}", shape) for i, kind in enumerate(arch.layers)]
    return graph, [*works, head(graph, "out", arch, shape)]


def evaluate(arch: Architecture, shape: Shape, **given_values: float) -> tuple[dict[str, float], list[LayerWork]]:
    graph, works = build(arch, shape)
    outputs = list(graph.formulas)
    table = {**TABLE, **IDEAL, **{f"test.{key}": float(value) for key, value in given_values.items()}}
    compiled = compile_graph(graph, outputs)
    return compiled(leaf_values(compiled.inputs, arch, table)), works


def total_flops(arch: Architecture, found: dict[str, float], works: list[LayerWork]) -> float:
    counts = [*(kind.count for kind in arch.layers), 1]
    return sum(n * float(found[w.flops.name]) for n, w in zip(counts, works, strict=True))


LLAMA = dense(4096, 32, 8, 128, 14336, 3, 32000)
MOE = expert(1024, 16, 4, 64, 512, 32, 4, 1024, 5, 1, 1000)
LATENT = latent(2048, 16, 512, 1024, 128, 64, 128, 8192, 2, 1000)


@pytest.mark.parametrize("arch", [LLAMA, MOE, LATENT], ids=["dense", "moe", "mla"])
def test_forward_flops_are_those_of_the_architecture(arch: Architecture) -> None:
    found, works = evaluate(arch, replace(SHAPE, causal=True))
    assert total_flops(arch, found, works) == pytest.approx(4096 * causal_flops_per_token(arch, 2048), rel=1e-12)
    found, works = evaluate(arch, SHAPE, keys=3000)
    assert total_flops(arch, found, works) == pytest.approx(4096 * forward_flops_per_token(arch, 3000), rel=1e-12)


@pytest.mark.parametrize("arch", [LLAMA, MOE], ids=["dense", "moe"])
def test_tensor_ranks_share_the_work(arch: Architecture) -> None:
    whole, works = evaluate(arch, SHAPE)
    split, _ = evaluate(arch, SHAPE, t=4, t_e=4)
    router = 2 * 4096 * 1024 * 32 if arch is MOE else 0
    for work in works:
        alone = router if work is works[-2] else 0  # the router is whole on every rank
        left, right = float(split[work.flops.name]) - alone, float(whole[work.flops.name]) - alone
        assert 4 * left == pytest.approx(right, rel=1e-12)


def test_key_value_heads_are_replicated_beyond_their_number() -> None:
    found, _ = evaluate(LLAMA, SHAPE, t=32)
    # 32 ranks: one query head of 128, and one of the 8 key and value heads each
    assert found["columns_l0_q_k_v"] == 3 * 128
    assert found["weights_l0_q_k_v"] == 2 * 4096 * 3 * 128


def test_decode_reads_weights_and_cache() -> None:
    found, works = evaluate(LLAMA, SHAPE, tokens=1, sequences=1, keys=4096)
    elements = 4096 * 4096 * 2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert found[works[0].weight_bytes_read.name] == 2 * elements
    cache = 4096 * 2 * 8 * 128 * 2
    rows = 32 * 256 * 2
    assert found["moved_l0_attention"] == cache + rows


def test_without_flash_attention_the_score_square_is_computed_and_moved() -> None:
    shape = replace(SHAPE, causal=True)
    flash, works = evaluate(LLAMA, shape)
    plain, _ = evaluate(LLAMA, shape, flash=0)
    work = works[0].attention_flops.name
    assert plain[work] == 2 * flash[work]
    assert plain["flop_l0_attention"] == plain["moved_l0_attention"] == 0
    # written, read and written by the softmax, read; each product reads and writes rows of 128 beside them
    scores, rows = 4096 * 32 * 2048 * 2, 4096 * 32 * 128 * 2
    moved = sum(plain[f"moved_l0_attention_{part}"] for part in ("scores", "mixed", "softmax"))
    assert moved == 4 * scores + 2 * 2 * rows


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4096), st.sampled_from([1, 2, 4, 8]))
def test_touched_experts_are_the_expected_distinct_ones(tokens: int, e: int) -> None:
    found, _ = evaluate(MOE, SHAPE, tokens=tokens, e=e)
    # each of 32/e experts is missed by a token with probability 1 - 4/32; e groups of `tokens` tokens meet
    assert found["touched_l1"] == pytest.approx(32 / e * (1 - (28 / 32) ** (tokens * e)), rel=1e-12)


def test_expert_work_does_not_depend_on_how_experts_are_placed() -> None:
    one, _ = evaluate(MOE, SHAPE, t=4, t_e=4)
    other, _ = evaluate(MOE, SHAPE, t=4, t_e=1, e=8)
    assert one["flop_l1_experts_gate_up"] == pytest.approx(other["flop_l1_experts_gate_up"], rel=1e-12)
    # 4096 tokens, 4 experts of two 1024 x 512 products, over 4 ranks
    assert one["flop_l1_experts_gate_up"] == 2 * 4096 * 4 * 2 * 1024 * 512 / 4


def test_absorbed_latent_decode_multiplies_in_the_latent_space() -> None:
    found, _ = evaluate(LATENT, replace(SHAPE, absorbed=True), tokens=8, sequences=8, keys=1000)
    assert found["flop_l0_attention"] == 2 * 8 * 16 * (576 + 512) * 1000
    assert found["moved_l0_attention"] == 8 * 1000 * 576 * 2 + 8 * 16 * (576 + 512) * 2


def test_a_load_beside_shares_the_products_alone() -> None:
    both = replace(SHAPE, beside=replace(SHAPE, tokens=sp.Integer(512), sequences=sp.Integer(1), keys=sp.Integer(256),
                                         causal=True))  # fmt: skip
    found, works = evaluate(LLAMA, both, tokens=64, sequences=64)
    assert found["flop_l0_o"] == 2 * (64 + 512) * 4096 * 4096
    assert found["flop_l0_attention"] == 2 * 64 * 32 * 256 * 1024
    assert found["flop_l0_attention_beside"] == 2 * 512 * 32 * 256 * 256
    assert "l0_attention_beside" in works[0].operations


def test_small_products_fall_below_the_share_of_large_ones() -> None:
    graph, works = build(LLAMA, SHAPE)
    compiled = compile_graph(graph, [works[0].operations["l0_o"].compute])
    values = leaf_values(compiled.inputs, LLAMA, {**TABLE, "chip.half_rows": 4096.0, "chip.half_inner": 0.0,
                                                  "chip.half_columns": 0.0})  # fmt: skip
    assert compiled(values)["C_l0_o"] == pytest.approx(2 * 2 * 4096 * 4096 * 4096 / (1e15 * 0.7))


@pytest.mark.parametrize("arch", [LLAMA, MOE, LATENT], ids=["dense", "moe", "mla"])
def test_definitions_pass_rescaling_and_two_routes(arch: Architecture) -> None:
    graph, works = build(arch, replace(SHAPE, causal=True, beside=SHAPE))
    outputs = [symbol for work in works for symbol in (work.time, work.flops, work.bytes, work.compute_time)]
    _, leaves = graph.needs(outputs)
    values = leaf_values(leaves, arch, {**TABLE, "test.t": 2.0, "test.t_e": 2.0, "test.flash": 0.0})
    assert dimension_failures(graph, values, outputs) == []
    assert route_failures(graph, values, outputs) == []
