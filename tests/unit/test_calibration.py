"""Fits recover what was planted; constants reach chips by kinship; kernel formulas by hand."""

from pathlib import Path

import numpy as np
import pytest

from tokenmill.calibration_fit import Constant, Fitted, fit, halves, write_constants
from tokenmill.catalog import load_catalog
from tokenmill.efficiency import ENGINE, chip_constant, fitted_figure, relatives
from tokenmill_models.compile import compile_graph
from tokenmill_models.formula import Graph
from tokenmill_models.roofline import timed_product
from tokenmill_models.symbols import declare


def test_a_fit_recovers_planted_constants() -> None:
    rng = np.random.default_rng(7)
    work = 10 ** rng.uniform(6, 12, 400)

    def predicted(values: dict[str, float]) -> np.ndarray:
        return values["start"] + work / values["rate"]

    planted = {"start": 3e-6, "rate": 4e13}
    seconds = predicted(planted) * np.exp(rng.normal(0, 0.01, work.size))
    constants = (Constant("start", "s", 1e-5, 1e-8, 1e-3), Constant("rate", "1/s", 1e13, 1e11, 1e15))
    found = fit(predicted, seconds, constants, [str(i % 20) for i in range(400)])
    for name, value in planted.items():
        assert found.values[name] == pytest.approx(value, rel=0.01)
    # the median of |N(0, 0.01)| is 0.00674
    assert found.median_error == pytest.approx(0.00674, rel=0.25)
    assert found.rows == 400


def test_halves_keep_groups_whole() -> None:
    groups = [f"g{i // 7}" for i in range(140)]
    half = halves(groups)
    for name in set(groups):
        assert len({bool(half[i]) for i, group in enumerate(groups) if group == name}) == 1
    assert half.sum() == 70


def test_a_product_fills_whole_tiles_and_converts_its_input() -> None:
    graph = Graph()
    rows, inner, columns = (declare(f"hand_{n}", "1", n, origin=f"test.hand_{n}", sign="positive") for n in "mkn")
    moved = declare("hand_bytes", "B", "bytes", origin="test.hand_bytes", sign="positive")
    timed = timed_product(graph, "hand", rows, inner, columns, moved)
    values = {
        "hand_m": 100.0, "hand_k": 1000.0, "hand_n": 200.0, "hand_bytes": 1e6, "flop_per_mac": 2.0, "F": 1e12, "eta_F": 0.5,
        "W": 1e12, "eta_W": 0.8, "half_rows": 28.0, "least_half": 8.0, "half_inner": 24.0, "half_columns": 56.0, "launch": 3e-6,
        "inner_time": 2e-10, "convert_launch": 1e-6, "convert_time": 1e-12, "convert_rows": 100.0, "convert_inner": 0.0,
    }  # fmt: skip
    compute = 2 * 128 * 1024 * 256 / 0.5e12
    convert = 1e-6 + 1e-12 * 200 * 1000
    found = compile_graph(graph, [timed.compute, timed.memory, timed.time])(values)
    assert found["C_hand"] == pytest.approx(compute)
    assert found["R_hand"] == pytest.approx(1.25e-6)
    assert found["T_hand"] == pytest.approx(compute + 3e-6 + 1000 * 2e-10 + convert)


def test_products_of_sixteen_bits_convert_nothing() -> None:
    catalog = load_catalog()
    for precision in ("bf16", "fp16"):
        assert chip_constant(catalog, "h100-sxm", "convert_time", precision).value == 0.0
    assert chip_constant(catalog, "h100-sxm", "convert_time", "fp8").value > 0.0


def test_a_chip_takes_the_constants_of_its_kin() -> None:
    catalog = load_catalog()
    row = {"unit": "1", "rows": "9", "median_error": "0.1", "source": "test"}
    table = {("h100-sxm", "speed", "bf16"): {**row, "value": "0.7"}, (ENGINE, "gap", ""): {**row, "value": "0.2"},
             ("a100-sxm-80gb", "speed", "bf16"): {**row, "value": "0.9"}}  # fmt: skip
    assert "h100-sxm" in relatives(catalog, "h20")
    assert fitted_figure(catalog, "h20", "speed", "fp8", table).value == 0.7
    assert fitted_figure(catalog, "h20", "speed", "fp8", table).evidence == "guess"
    assert fitted_figure(catalog, "h100-sxm", "speed", "bf16", table).evidence == "calibrated"
    assert fitted_figure(catalog, "tpu-v5p", "speed", "bf16", table).value == pytest.approx(0.8)  # median of strangers
    assert fitted_figure(catalog, "tpu-v5p", "gap", "", table).value == 0.2


def test_constants_are_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "constants.csv"
    write_constants([Fitted("chip", "launch", "", 2.5e-6, "s", 12, 0.08, 0.2, "here")], path)
    assert path.read_text(encoding="utf-8").splitlines()[1] == "chip,launch,,2.5e-06,s,12,0.080,0.200,here"
    assert [file.name for file in tmp_path.iterdir()] == ["constants.csv"]


def test_intervals_follow_the_residuals_of_their_class() -> None:
    """A rate is as far from its middle as the time that it divides by, the other way round."""
    from tokenmill.efficiency import intervals, quantiles_of, residual_classes

    classes = residual_classes(load_catalog(), "h100-sxm", False)
    quantiles = quantiles_of("pretraining", "step_time", classes)
    assert quantiles is not None
    low, high = quantiles
    assert low < 0 < high
    found = intervals(
        load_catalog(), "pretraining", "h100-sxm", False, {"step_time": 2.0, "tokens_per_second": 5.0, "steps": 3.0}
    )
    assert found["step_time"] == pytest.approx((2 * np.exp(low), 2 * np.exp(high)))
    assert found["tokens_per_second"] == pytest.approx((5 * np.exp(-high), 5 * np.exp(-low)))
    assert "steps" not in found
    assert intervals(load_catalog(), "a stage without measured rows", "h100-sxm", False, {"step_time": 2.0}) == {}


def test_a_class_without_residuals_takes_those_of_the_next_wider() -> None:
    from tokenmill.efficiency import quantiles_of, residual_classes, residuals

    classes = residual_classes(load_catalog(), "h100-sxm", False, "a framework that nobody measured")
    assert classes[-1] == "calibrated"
    assert ("pretraining", "step_time", classes[0], "") not in residuals()
    assert quantiles_of("pretraining", "step_time", classes) == residuals()["pretraining", "step_time", classes[1], ""]
    assert quantiles_of("pretraining", "step_time", ("nobody",)) is None


def test_a_framework_takes_the_constants_of_the_class_that_it_is_like() -> None:
    from tokenmill.efficiency import engine_fields, fitted_field

    row = {"unit": "1", "rows": "9", "median_error": "0.1", "source": "test"}
    table = {
        ("megatron-2021", "vector_share", ""): {**row, "value": "0.7"},
        (ENGINE, "vector_share", ""): {**row, "value": "0.2"},
    }
    for name, value in (("megatron-2021", "0.7"), ("megatron-2022", "0.7"), ("generic", "0.2"), ("unheard-of", "0.2")):
        found = fitted_field(name, "vector_share", table)
        assert found is not None
        assert found["value"] == value
    assert "overlap_data" in engine_fields("megatron-2021")
    assert engine_fields("generic") == frozenset()


def test_the_page_of_constants_is_that_of_the_data() -> None:
    from tokenmill import data
    from tokenmill.constants_page import page

    written = (Path(__file__).parents[2] / "docs" / "constants.md").read_text(encoding="utf-8")
    assert written == page(data.path("catalog") / "efficiency"), (
        "run: python -m tokenmill.constants_page docs/constants.md"
    )
