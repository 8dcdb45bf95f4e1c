"""Pools that start later, and those that need a run: demand begins in the first period after both."""

import numpy as np
import pytest

from tokenmill import load_problem, solve
from tokenmill.fleet_starts import begun, due
from tokenmill.problem import Horizon, Problem, Workload

RATES = np.ones((4, 1))


def asked(*workloads, periods=4):
    return Problem(tuple(workloads), horizon=Horizon(duration=400.0, periods=periods))


def test_demand_begins_after_the_run_is_due_and_the_pool_starts():
    run, pool = Workload("train", "toy", deadline=150.0), Workload("chat", "toy", needs=("train",))
    rates, note = begun(asked(run, pool), "chat", RATES)
    assert note is None
    assert rates[:, 0].tolist() == [0.0, 0.0, 1.0, 1.0]  # periods begin at 0, 100, 200, 300 s
    later = Workload("chat", "toy", needs=("train",), starts=300.0)
    assert begun(asked(run, later), "chat", RATES)[0][:, 0].tolist() == [0.0, 0.0, 0.0, 1.0]


def test_a_run_without_a_deadline_is_due_when_the_pool_starts():
    run, pool = Workload("train", "toy"), Workload("chat", "toy", needs=("train",), starts=100.0)
    problem = due(asked(run, pool), ["chat"])
    assert [w.deadline for w in problem.workloads] == [100.0, None]
    assert begun(problem, "chat", RATES)[0][:, 0].tolist() == [0.0, 1.0, 1.0, 1.0]
    _, note = begun(asked(run, Workload("chat", "toy", needs=("train",))), "chat", RATES)
    assert note is not None
    assert note.key == "workload.chat.needs"


def test_nothing_changes_without_needs_or_where_no_period_is_left():
    rates, note = begun(asked(Workload("chat", "toy")), "chat", RATES)
    assert (rates.tolist(), note) == (RATES.tolist(), None)
    late = asked(Workload("train", "toy", deadline=350.0), Workload("chat", "toy", needs=("train",)))
    rates, note = begun(late, "chat", RATES)
    assert rates.tolist() == RATES.tolist()
    assert note is not None
    assert "no period that begins" in note.found


FILE = """
objective = { minimise = "cost" }
[horizon]
duration = "1 year"
periods = 4
[hardware]
systems = ["hgx-h100"]
markets = ["on-demand"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2/h"
[[workload]]
name = "tune"
stage = "sft"
model = "llama-3.1-8b"
examples = 1e6
tokens_per_example = 1000
deadline = "60 days"
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
needs = ["tune"]
[workload.demand]
requests_per_second = 100
input_tokens = 1000
output_tokens = 200
[workload.engine]
disaggregated = false
"""


def test_a_plan_serves_nothing_before_its_model_is_made():
    plan = solve(load_problem(FILE))
    (run,) = plan.runs
    served = sorted({row.period for pool in plan.workloads["chat"].pools for row in pool.schedule if row.rate > 0})
    assert served == [2, 3, 4]
    assert run.end <= 60 * 86400 < 365 / 4 * 86400
    assert plan.workloads["chat"].totals["units"] == pytest.approx(100 * 0.75 * 365 * 86400)
