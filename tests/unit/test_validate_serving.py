"""Measured serving rows as problems: what is read, what is left out and why, and figures that are known exactly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tokenmill.calibration_serving import TASKS
from tokenmill.efficiency import engine_version
from tokenmill.validate import even_quantiles, validate
from tokenmill.validate_cases import Predictor
from tokenmill.validate_serving import FOLDS, HALVES, HIGHEST, METRICS, engine_of, fold, half_table, sides
from tokenmill.validate_serving_memory import evaluate as reported_cases
from tokenmill.validate_serving_rows import READERS, lengths, measured, mlperf_inference, read_rows, vendor_perf

ROWS = {
    "inferencemax": 1753,
    "energy_serving": 339,
    "splitwise_profiles": 114,
    "splitwise_prompts": 78,
    "helix_layer_profiles": 149,
    "kernel_profiles": 500,
}


@pytest.mark.parametrize("name", READERS)
def test_every_row_is_read_or_left_out_for_a_reason(name):
    rows, left = measured(name)
    assert len(rows) + sum(left.values()) == len(read_rows(name))
    assert all(left)
    assert len(rows) >= ROWS.get(name, 100)
    for row in rows:
        assert set(row.values) <= set(METRICS)
        assert min(row.values.values()) > 0


def test_rows_of_a_group_stay_on_one_side():
    groups = {row.case.group for row in measured("inferencemax")[0]}
    assert set(sides("inferencemax")) == groups
    assert {fold(side) for side in sides("inferencemax").values()} == set(FOLDS)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.engine}, {task.file}")
def test_an_engine_is_scored_by_constants_that_have_not_seen_its_group(task):
    """Both halves fit every engine on groups of their own: one without would fall back on constants of all rows."""
    drawn = {
        row.case.group: sides(task.file)[row.case.group]
        for row in measured(task.file)[0]
        if engine_of(row) == task.engine
    }
    assert set(drawn.values()) == {True, False}
    fitted = {constant.name for _, constants in task.stages for constant in constants}
    for half in HALVES:
        assert {(task.engine, f"engine_{name}") for name in fitted} <= set(half_table(half))


def test_groups_weigh_alike_in_an_interval():
    # four rows of one group at 0, one row of another at 1: half of the weight each, so the middle half reaches from 0 to 1
    logs, groups = np.array([0.0, 0.0, 0.0, 0.0, 1.0]), np.array(["a", "a", "a", "a", "b"])
    assert even_quantiles(logs, groups, 0.5) == (0.0, 1.0)
    # the middle of the weights: 4/8 between 0 (its last row at 7/16) and 1 (at 12/16): a fifth of the way
    assert even_quantiles(logs, groups, 0.0) == pytest.approx((0.2, 0.2))


def test_a_point_of_a_closed_loop_is_asked_as_it_was_run():
    row = next(row for row in measured("inferencemax")[0] if row.case.row == "imax-1871")
    workload = row.case.workload
    assert workload["demand"]["arrivals"]["concurrency"] == 16
    assert workload["demand"]["input_tokens"] == lengths(0.9 * 8192, 0.99 * 8192)  # drawn from 80 to 100%
    assert workload["layout"] == {"tp": 4, "pp": 1, "ep": 1}
    assert workload["engine"]["version"] == "2025-10-29"  # the day it was measured: no release is named
    assert row.values["tpot"] == pytest.approx(14.83e-3, abs=5e-6)


def test_products_of_a_layer_move_the_weights_that_the_source_prints():
    """Llama 2 7B: q, k, v and o of 4096 x 4096, three of 4096 x 11008, in 16 bits; `derived_weight_mb_fp16` is theirs."""
    entry = next(
        e for e in read_rows("kernel_profiles") if e["model"].endswith("Llama-2-7b-hf") and e["tensor_parallel"] == "1"
    )
    row = next(row for row in measured("kernel_profiles")[0] if row.case.row == entry["id"])
    (found,) = Predictor([row.case], ("weights_read_plain_0",)).predict()
    by_hand = 2 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
    assert found is not None
    assert found.figures["weights_read_plain_0"] == pytest.approx(by_hand)
    assert found.figures["weights_read_plain_0"] / 1e6 == pytest.approx(
        float(entry["derived_weight_mb_fp16"]), rel=1e-3
    )


@pytest.mark.slow
def test_tokens_of_a_cache_whose_memory_is_printed():
    """Memory over bytes a token leaves no room for error but the rounding of what was printed: 0.3% at most in the median."""
    (scores,) = [[s for s in validate(["reported_cases"]) if s.metric == "kv_tokens"]]
    assert sum(s.count for s in scores) >= 10
    assert max(s.median_error for s in scores) < 0.003
    tried = [o.fits for o in reported_cases("reported_cases").outcomes if o.fits is not None]
    started = [predicted for measured, predicted in tried if measured]
    assert sum(started) > 0.9 * len(started)


@pytest.mark.parametrize(
    ("software", "engine"),
    [
        ("TensorRT 10.11, CUDA 12.9", {"name": "trtllm", "version": "1.0"}),
        ("vLLM 0.9.0.2.dev108+g71faa1880.d20250730.rocm641, Pytorch 2.7.0", {"name": "vllm", "version": "0.9"}),
        ("Mango LLMBoost AI Enterprise Platform, vllm-0.9.0.2.dev108", {"name": "vllm", "version": "0.9"}),
        ("vLLM v0.6.5", {"name": "vllm", "version": "0.7"}),  # captured graphs: nearer to 0.11 than to 0.2
        ("hipblaslt-8b71e7a, flash-attn-23a2b1c, vllm-a8cff57", {"name": "vllm"}),
    ],
)
def test_an_offline_result_names_the_release_of_its_engine(software, engine):
    entry = next(e for e in read_rows("mlperf_inference") if e["id"] == "mlperf-0002")
    row = mlperf_inference(entry | {"software": software})
    assert {key: row.case.workload["engine"].get(key) for key in engine} == engine
    assert engine_version(engine["name"], engine.get("version", "")) != "vllm 0.2"


def test_the_most_tokens_a_second_are_those_of_the_best_layout_that_a_row_leaves_open():
    wanted = ("Mixtral-8x7B", "H100", "2")
    row = next(
        vendor_perf(e)
        for e in read_rows("vendor_perf")
        if (e["model"], e["gpu"], e["tp"]) == wanted and e["kind"] == "offline_max_throughput"
    )
    assert not isinstance(row, str)
    workload = row.case.workload
    held = [replace(row.case, workload=workload | {"layout": workload["layout"] | {"ep": ep}}) for ep in (1, 2)]
    rates = [p.figures["tokens_per_second"] for p in Predictor(held, ("tokens_per_second",)).predict() if p]
    (best,) = Predictor([row.case], ("tokens_per_second",), highest="rate" in HIGHEST).predict()
    assert best is not None
    assert rates[0] != rates[1]
    assert best.figures["tokens_per_second"] == pytest.approx(max(rates))
