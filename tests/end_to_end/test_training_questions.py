"""Questions about training runs: the front of cost and time, evaluations on the way, how sure a plan is of its memory."""

from pathlib import Path
from typing import Any

import pytest

from tokenmill.api import solve
from tokenmill.pareto import pareto
from tokenmill.plan import Plan
from tokenmill.reading import load_problem

PROBLEMS = Path(__file__).parents[2] / "problems"


def test_a_deadline_has_its_price() -> None:
    """Every point of the front is dearer and done sooner than the one before, all within the file's 90 days; time bought by
    more chips alone costs at least what it saves."""
    points = pareto(load_problem(PROBLEMS / "pretrain-70b.toml"), "time", points=4)
    assert len(points) >= 3
    costs, days = [one.objective for one in points], [one.against / 86400 for one in points]
    assert costs == sorted(costs)
    assert days == sorted(days, reverse=True)
    assert len(set(costs)) == len(costs)
    assert max(days) <= 90
    for one in points:
        assert one.plan.status in ("optimal", "feasible")


RUN: dict[str, Any] = {
    "objective": {"minimise": "time", "workload": "run"},
    "hardware": {"systems": ["hgx-h100"], "markets": ["on-demand"]},
}


def planned(**workload: Any) -> Plan:
    held = {"chips": 8, "tp": 1, "pp": 1, "dp": 8, "zero": 1, "recompute": "none", "micro_batch": 1}
    common = {"name": "run", "model": "llama-3.1-8b", "tokens": 1e9, "sequence_length": 2048, "global_batch": 64}
    return solve(load_problem({**RUN, "workload": [{**common, "layout": held, **workload}]}))


def train(plan: Plan) -> dict[str, Any]:
    return dict(plan.workloads["run"].pools[0].predicted)


def test_evaluations_lengthen_the_run() -> None:
    """50 steps apart, of two batches' tokens forward: 2/3 of a step each time, 1/75 of the run (its last steps in part)."""
    pretraining = {
        "stage": "pretraining",
        "layout": {"chips": 8, "tp": 4, "dp": 2, "pp": 1, "zero": 1, "micro_batch": 1},
    }
    plain = train(planned(**pretraining))
    judged = train(planned(**pretraining, evaluate={"every": 50, "tokens": 2 * 64 * 2048}))
    recomputed = judged["evaluation_time"] / (plain["step_time"] * (plain["steps"] // 50) * 2)
    assert recomputed == pytest.approx(1 / 3) or recomputed == pytest.approx(
        1 / 4
    )  # a pass more where layers are recomputed
    assert judged["wall_time"] > plain["wall_time"]


def test_memory_of_adapters_carries_its_interval() -> None:
    plan = planned(stage="finetuning", method="lora", rank=16)
    pool = plan.workloads["run"].pools[0]
    total = pool.predicted["memory"]["total"]
    low, high = pool.intervals["memory"]["total"]
    assert 0.7 * total < low < total < high < 1.5 * total
    named = planned(stage="finetuning", method="lora", rank=16, engine={"name": "litgpt"}).workloads["run"].pools[0]
    assert named.intervals["memory"]["total"] != [low, high]
