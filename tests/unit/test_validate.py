"""The statistics of `validate` by hand, and its predictions against the plans of the same problems."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from tokenmill.api import solve
from tokenmill.reading import load_problem
from tokenmill.validate import (
    EVALUATORS,
    Evaluation,
    Outcome,
    group_quantiles,
    log_quantiles,
    rank_correlation,
    score,
)
from tokenmill.validate_cases import Predictor
from tokenmill.validate_training import READERS, measured


def outcome(predicted: float, seconds: float | None, **others: Any) -> Outcome:
    return Outcome("chip", "step_time", "g", predicted, seconds, **others)


def test_errors_bias_and_baseline_by_hand() -> None:
    rows = [outcome(1.1, 1.0, baseline=2.0), outcome(1.8, 2.0, baseline=2.0), outcome(6.0, 4.0, baseline=2.0)]
    found = score("file", "chip", "step_time", rows, Evaluation(rows, 5, {"why": 2}))
    assert found.median_error == pytest.approx(0.1)
    assert found.worst_error == pytest.approx(0.5)
    assert found.p90_error == pytest.approx(0.1 + 0.8 * 0.4)  # between the second and the third of three
    assert found.bias == pytest.approx(0.1)
    assert found.baseline_median_error == pytest.approx(0.5)
    assert found.beats_baseline == pytest.approx(0.8)
    assert (found.count, found.rows_in_file, found.left_out) == (3, 5, {"why": 2})
    assert found.false_fit is None
    assert found.coverage_80 is None


def test_fits_are_counted_by_kind() -> None:
    fits = [(False, True), (False, False), (True, True), (True, True), (True, False), (True, True)]
    rows = [outcome(0.0, None, fits=one) for one in fits]
    found = score("file", "chip", "fits", rows, Evaluation(rows, 6))
    assert found.false_fit == pytest.approx(1 / 2)
    assert found.false_no_fit == pytest.approx(1 / 4)
    assert found.median_error is None


def test_layouts_are_ranked_within_their_setting() -> None:
    right = [outcome(p, m, setting="a") for p, m in ((1, 10), (2, 11), (3, 12))]
    wrong = [outcome(p, m, setting="b") for p, m in ((3, 10), (2, 11), (1, 12))]
    few = [outcome(1, 9, setting="c"), outcome(2, 1, setting="c")]
    found = score("file", "chip", "step_time", [*right, *wrong, *few], Evaluation([], 8))
    assert found.rank_correlation == pytest.approx(0.0)  # the median of 1 and -1
    assert found.best_within_5pct == pytest.approx(0.5)


def test_rank_correlation_shares_ranks_among_ties() -> None:
    one, other = [1.0, 2.0, 2.0, 5.0, 3.0], [3.0, 1.0, 4.0, 9.0, 4.0]
    assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic)  # type: ignore[arg-type]


def test_intervals_hold_what_they_say() -> None:
    rows = [outcome(1.0, 1.0, interval=(0.9, 1.2)), outcome(1.0, 1.3, interval=(0.8, 1.2))]
    found = score("file", "chip", "step_time", rows, Evaluation(rows, 2))
    assert found.coverage_80 == pytest.approx(0.5)
    assert found.half_width == pytest.approx(0.175)


def test_few_residuals_make_a_wide_range() -> None:
    """Of nine draws the k-th leaves k/10 of further ones below it: four fifths lie between the first and the last."""
    assert log_quantiles(np.arange(9) / 100) == pytest.approx((0.0, 0.08))


def test_residual_quantiles_hold_four_fifths() -> None:
    logs = np.linspace(-0.5, 0.5, 1001)
    low, high = log_quantiles(logs)
    assert np.mean((low <= logs) & (logs <= high)) == pytest.approx(0.8, abs=0.002)


def test_every_training_file_has_an_evaluator() -> None:
    assert set(READERS) <= set(EVALUATORS)


@pytest.mark.parametrize("identifier", ["SM0002", "SM0025"])
def test_a_row_is_predicted_as_its_plan(identifier: str, tmp_path: Path) -> None:
    """A dense layout and one of experts: batched prediction and the plan of the same problem agree."""
    import json

    case = next(row.case for row in measured("simumax_b200")[0] if row.case.row == identifier)
    other = next(row.case for row in measured("simumax_b200")[0] if row.case.row != identifier)
    predictor = Predictor([other, case], ("step_time", "memory.allocated"))
    found = predictor.predict()[1]
    model = tmp_path / "model.json"
    model.write_text(json.dumps(case.model), encoding="utf-8")
    plan = solve(load_problem({
        "objective": {"minimise": "time"}, "assume": {"memory_fraction": 1.0},
        "hardware": {"systems": [case.system], "price": [{"system": case.system, "market": "on-demand", "per_chip_hour": 1.0}]},
        "workload": [{"name": "run", "stage": "pretraining", "model": str(model), **case.workload}],
    }))  # fmt: skip
    predicted = plan.to_dict()["workloads"]["run"]["pools"][0]["predicted"]
    assert found is not None
    assert found.figures["step_time"] == pytest.approx(predicted["step_time"], rel=1e-9)
    assert found.figures["memory.allocated"] == pytest.approx(predicted["memory"]["allocated"], rel=1e-9)


def test_held_layouts_predict_what_the_best_of_all_does() -> None:
    rows = [row.case for row in measured("simumax_b200")[0] if row.case.row in ("SM0002", "SM0004", "SM0028")]
    predictor = Predictor(rows)
    held = predictor.held({})
    assert held.predict() == predictor.predict()
    assert sum(batch.cases.size for batch in held.batches) == len(rows)


def test_an_interval_leaves_its_own_group_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve residuals of the row's own group are far off, twelve of others lie between 0 and 0.11."""
    from tokenmill import validate_steps
    from tokenmill.catalog import load_catalog

    row = next(row for row in measured("simumax_b200")[0] if row.case.row == "SM0002")
    narrow, *_ = validate_steps.classes_of(row.case, load_catalog())
    groups = np.array([row.case.group] * 12 + [f"another {i}" for i in range(12)])
    logs = np.array([5.0] * 12 + [i / 100 for i in range(12)])
    monkeypatch.setattr(validate_steps, "left_out_residuals", lambda: {("step_time", narrow): (groups, logs)})
    found = validate_steps.interval(validate_steps.Pair(row, None), "step_time", 2.0)
    assert found is not None
    assert found[0] >= 2.0
    assert found[1] <= 2.0 * np.exp(0.11)
    assert validate_steps.interval(validate_steps.Pair(row, None), "memory.allocated", 2.0) is None


def test_a_range_by_groups_grows_where_groups_are_few() -> None:
    """Of nine groups of one row each, 0.8·10/9 = 8/9 lie inside: all but the farthest; of two groups all."""
    logs = np.array([-0.4, -0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.9])
    nine = np.array([f"g{i}" for i in range(9)])
    low, high = group_quantiles(logs, nine)
    assert (low, high) == pytest.approx(
        (-0.4 - 5 / 90, 0.4 + 5 / 90), rel=0.2
    )  # between the eighth and the ninth distance
    assert group_quantiles(logs, np.array(["a"] * 4 + ["b"] * 5)) == pytest.approx((-0.9, 0.9))


def test_a_range_by_groups_stands_about_the_median() -> None:
    logs = np.array([1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
    low, high = group_quantiles(logs, np.arange(6).astype(str))
    assert (low + high) / 2 == pytest.approx(1.25)
