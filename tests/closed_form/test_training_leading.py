"""Models whose first layers are of another make: DeepSeek-V3 has three dense layers before its experts."""

import pytest

from sample_leaves import dense
from tokenmill.imports.architecture import load_architecture
from training_samples import definitions, figures

V3 = load_architecture("deepseek-v3")
# config.json: hidden 7168, 128 heads, latents 1536 (queries) and 512 + 64 (keys and values), d_qk 192, d_v 128
ATTENTION = 7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * (128 + 128) + 128 * 128 * 7168
NORMS = 2 * 7168
DENSE = ATTENTION + NORMS + 3 * 7168 * 18432
SPARSE = ATTENTION + NORMS + 3 * 7168 * 2048 + 7168 * 256 + 256  # shared expert, router with its bias
STAGES = {"p": 16, "e": 64, "d": 128}
BATCH = {"input.global_batch": 15360}


def test_the_first_stage_holds_the_dense_layers() -> None:
    # 61 layers on 16 stages: fourteen of 4, and 2.5 on each of the outer two, fewer than the three that lead
    found = definitions(V3, BATCH, **STAGES)
    assert found["elements_layer"] == pytest.approx(SPARSE, rel=1e-12)
    assert found["elements_layer_first"] == pytest.approx(DENSE, rel=1e-12)


def test_a_long_first_stage_holds_both_kinds() -> None:
    # on two stages: 31 layers the inner count, so 30.5 each; three of them dense
    found = definitions(V3, BATCH, **{**STAGES, "p": 2})
    assert found["elements_layer_first"] == pytest.approx((3 * DENSE + 27.5 * SPARSE) / 30.5, rel=1e-12)


def test_one_stage_holds_all_layers() -> None:
    found = definitions(V3, BATCH, **{**STAGES, "p": 1})
    mean = (3 * DENSE + 58 * SPARSE) / 61
    assert found["elements_layer_first"] == found["elements_layer"] == pytest.approx(mean, rel=1e-12)


def test_dualpipe_has_first_and_last_stage_on_one_rank() -> None:
    # two copies of the weights: together 2.5 dense and 2.5 sparse layers, embedding and head, 4 of 256 experts a layer
    found = definitions(V3, BATCH, **STAGES, q_d=1.0)
    experts = 2.5 * 4 * 3 * 7168 * 2048
    ends = 2 * 7168 * 129280 + 7168
    expected = 2 * (2.5 * (DENSE + SPARSE) + experts + ends)
    assert found["weights_first"] == pytest.approx(expected, rel=1e-12)
    assert found["weights_last"] == pytest.approx(expected, rel=1e-12)


LLAMA = dense(4096, 32, 8, 128, 14336, 32, 128256)
ONE = {"input.global_batch": 1}
PRODUCTS = 32 * 4096 * 14336 * 2  # layers x tokens x width of the MLP x 16 bits


def test_products_of_gates_go_as_far_as_memory_asks_and_the_plan_says_how_much() -> None:
    roomy = figures(LLAMA, {**ONE, "chip.capacity": 1e12})
    assert roomy["rebuilt_activations"] == 0.0
    most = roomy["memory.reserved"]
    less = figures(LLAMA, {**ONE, "chip.capacity": (most - PRODUCTS / 2 * 1.03) / 0.94})
    assert less["rebuilt_activations"] == pytest.approx(PRODUCTS / 2, rel=1e-6)
    assert less["memory.activations"] == pytest.approx(roomy["memory.activations"] - PRODUCTS / 2, rel=1e-6)
    least = figures(LLAMA, {**ONE, "chip.capacity": 1e10})
    assert least["rebuilt_activations"] == pytest.approx(PRODUCTS, rel=1e-12)
