"""Products of the backward pass, conversions and what recomputing spares, against counts by hand."""

from math import ceil

import pytest

from sample_leaves import dense, expert
from training_samples import ORIGINS, definitions, training_values

GPT = dense(4096, 32, 32, 128, 16384, 4, 51200)
EXPERTS = expert(1024, 16, 4, 64, 512, 32, 4, 1024, 4, 1, 1000)
ROWS = 4096


def rates_of(arch) -> dict[str, float]:
    """What the samples lay down of products, by symbol name."""
    values = training_values(arch)
    return {name: values[name] for name in ("half_inner", "F", "eta_F", "W", "eta_W")}


def seconds(m: int, k: int, n: int, moved: float, of: dict[str, float]) -> float:
    """A product m x k by k x n in the quicker of two tiles on the roofline: whole rounds of the 100 units, or 30% longer without rounds."""
    times = []
    for long, speed in ((256, 1.0), (128, 0.9)):
        rounds = ceil(m / long) * ceil(n / 128) / 100
        each = 100 * 2 * long * 128 * (k + of["half_inner"]) / (of["F"] * of["eta_F"] * speed)
        times.append(min(ceil(rounds), 1.3 * rounds) * each)
    return max(min(times), moved / (of["W"] * of["eta_W"]))


def test_gradients_of_a_dense_layer_have_their_own_sides() -> None:
    """The four products of a GPT layer: inputs' gradients sum over columns, weights' over rows; 32-bit gradients are read and written."""
    found, of = definitions(GPT), rates_of(GPT)
    share = ORIGINS["chip.train_product_share"]
    inputs = weights = 0.0
    for k, n in _products():
        ends = 2 * ROWS * (k + n)
        forward = seconds(ROWS, k, n, 2 * k * n + ends, of)
        inputs += seconds(ROWS, n, k, 2 * k * n + ends, of) - forward
        weights += seconds(k, ROWS, n, 8 * k * n + ends, of) - forward
    assert found["inputs_over_train_0"] == pytest.approx(inputs / share, rel=1e-9, abs=1e-12)
    assert found["weights_over_train_0"] == pytest.approx(weights / share, rel=1e-9, abs=1e-12)
    assert abs(weights) > 1e-6


def _products() -> list[tuple[int, int]]:
    """Inner sides and columns: queries, keys and values as one, output, gate and up as one, down."""
    return [(4096, 3 * 4096), (4096, 4096), (4096, 2 * 16384), (16384, 4096)]


def test_a_kernel_of_its_own_leaves_the_product_less_to_write() -> None:
    """Where another kernel accumulates, the product writes 16 bits a weight in place of reading and writing 32."""
    slow = {"chip.bandwidth": 1e9}  # everything waits for memory
    own, fused = (definitions(GPT, {**slow, "engine.accumulates": flag})["weights_over_train_0"] for flag in (1.0, 0.0))
    values = training_values(GPT, slow)
    weights = sum(k * n for k, n in _products())
    rate = values["W"] * values["eta_W"] * ORIGINS["chip.train_product_share"]
    assert fused - own == pytest.approx((8 - 2) * weights / rate, rel=1e-6)


def test_conversions_read_sixteen_bits_and_write_two_copies() -> None:
    plain = definitions(GPT)["convert_train_0_step"]
    narrow = definitions(GPT, {"precision.bytes[compute]": 1.0})["convert_train_0_step"]
    values = training_values(GPT)
    elements = ROWS * sum(k + n for k, n in _products())  # inputs forward, gradients of outputs backward
    assert plain == 0
    assert narrow == pytest.approx(elements * (2 + 2 * 1) / (values["W"] * values["eta_W"]), rel=1e-9)
    again = definitions(GPT, {"precision.bytes[compute]": 1.0}, r_f=1.0)["convert_train_0_step"]
    inputs = ROWS * sum(k for k, _ in _products())
    assert again - narrow == pytest.approx(inputs * 4 / (values["W"] * values["eta_W"]), rel=1e-9)


def test_recomputing_that_stops_early_spares_the_last_product() -> None:
    whole, early = (definitions(GPT, {"engine.stops_early": flag}, r_f=1.0) for flag in (0.0, 1.0))
    values, (k, n) = training_values(GPT), _products()[-1]
    product = seconds(ROWS, k, n, 2 * k * n + 2 * ROWS * (k + n), rates_of(GPT))
    spared = (product + values["launch"] + k * values["inner_time"]) / ORIGINS["chip.train_product_share"]
    assert whole["busy_train_0_step"] - early["busy_train_0_step"] == pytest.approx(spared, rel=1e-9)
    none = [definitions(GPT, {"engine.stops_early": flag})["busy_train_0_step"] for flag in (0.0, 1.0)]
    assert none[0] == none[1]


def test_slower_grouped_products_slow_experts_alone() -> None:
    """Their time goes as one over their speed: from half to a quarter it grows by twice as much as from whole to half."""
    whole, half, quarter = (definitions(EXPERTS, {"engine.expert_speed": speed}) for speed in (1.0, 0.5, 0.25))
    grouped = half["products_train_1"] - whole["products_train_1"]
    assert quarter["products_train_1"] - half["products_train_1"] == pytest.approx(2 * grouped, rel=1e-9)
    work = sum(whole[f"flop_train_1_experts_{name}"] for name in ("gate_up", "down"))
    values = training_values(EXPERTS)
    least = work / (values["F"] * values["eta_F"] * ORIGINS["chip.train_product_share"])
    assert least < grouped < whole["products_train_1"]


def test_slower_sorting_slows_rows_on_their_way_to_experts() -> None:
    fast, slow = (definitions(EXPERTS, {"engine.sort_share": share})["even_train_1_step"] for share in (1.0, 0.5))
    values = training_values(EXPERTS)
    once = 4 * ROWS * 4 * 1024 * 2 / (values["W"] * values["eta_W"])  # four experts a token, read and written each way
    assert slow - fast == pytest.approx(3 * once, rel=1e-9)
