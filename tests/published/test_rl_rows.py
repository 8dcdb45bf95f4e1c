"""Measured steps and weight transfers of reinforcement learning against predictions, on rows that no constant was fitted on."""

from statistics import median

import numpy as np
import pytest

from tokenmill.catalog import load_catalog
from tokenmill.validate import fitted_half
from tokenmill.validate_cases import stage_of
from tokenmill.validate_runs import evaluate, predict, read_rows

FILE = "rl_posttraining"
ROWS = {row["row_id"]: row for row in read_rows(FILE)}


def test_every_row_is_asked_or_says_why_not():
    for row in ROWS.values():
        assert bool(row["problem"]) != bool(row["left_out"])
        assert row["source"]


@pytest.mark.parametrize(("row", "within"), [("RL0053", 0.2), ("RL0054", 0.2), ("RL0112", 0.5)])
def test_rows_of_the_other_half_of_the_groups(row, within):
    """NeMo RL, Qwen3 32B on GB200, in turns and one step off; a broadcast of Qwen3 8B between two nodes of A100."""
    assert not fitted_half(ROWS[row]["group"])
    run = predict(ROWS[row], stage_of(FILE), load_catalog())
    for figure, value in run.measured():
        assert run.figures[figure] == pytest.approx(value, rel=within)


@pytest.mark.slow
def test_errors_over_all_rows_that_no_constant_was_fitted_on():
    found = evaluate(FILE)
    by_metric: dict[str, list[tuple[float, float]]] = {}
    for outcome in found.outcomes:
        by_metric.setdefault(outcome.metric, []).append((outcome.predicted, outcome.measured))
    error = {name: median(abs(p / m - 1) for p, m in pairs) for name, pairs in by_metric.items()}
    assert error["step_time"] <= 0.20
    assert median(abs(p - m) for p, m in by_metric["generation_share"]) <= 0.10
    assert median(abs(np.log(p / m)) for p, m in by_metric["weight_sync_time"]) <= np.log(1.5)
    assert len({o.group for o in found.outcomes}) > 10
