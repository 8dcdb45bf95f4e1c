"""Cost per token of a volume that may vary: against a scan of volumes, and against the relaxation's own bound."""

from __future__ import annotations

import numpy as np
import pytest

from cross_check.toys import YEAR, pool, pool_column, problem, rent, solve
from tokenmill import load_problem
from tokenmill import solve as plan_of
from tokenmill.errors import ProblemError
from tokenmill.milp.formulation import formulate
from tokenmill.milp.highs import solve_arrays
from tokenmill.milp.objective import goal
from tokenmill.milp.ratio import Ratio, charnes_cooper
from tokenmill.milp.sets import build_sets
from tokenmill.problem import Objective

PER = Objective("cost_per_token", "chat", "output")
COLUMNS = [
    pool(pool_column(system="a", rate=10.0), pool_column(system="b", rate=37.0), pool_column(system="c", rate=3.0))
]
OFFERS = [rent(16.0, system="a"), rent(52.0, system="b"), rent(5.5, system="c")]


def scan(least: float, most: float, demand: float, **more) -> float:
    """Return the least cost a token over a fine grid of volumes, each a problem of its own."""
    grid = np.unique(np.concatenate([np.linspace(least, most, 60) * demand, np.arange(1, 120) * 1.0]))
    found = []
    for volume in grid[(grid >= least * demand - 1e-9) & (grid <= most * demand + 1e-9)]:
        plan = solve(problem(**more), COLUMNS, OFFERS, demand=float(volume), value_of_next=False)
        found.append(plan.cost_total / (volume * YEAR * 100.0))
    return min(found)


@pytest.mark.parametrize(
    ("least", "demand"),
    [
        (0.5, 60.0),
        pytest.param(0.8, 60.0, marks=pytest.mark.slow),
        pytest.param(0.2, 45.0, marks=pytest.mark.slow),
        (0.95, 33.0),
    ],
)
def test_least_ratio_is_that_of_a_scan(least, demand):
    plan = solve(problem(objectives=(PER,)), COLUMNS, OFFERS, demand=demand, elastic={"chat": least})
    assert plan.termination.status == "optimal"
    assert plan.termination.objective == pytest.approx(scan(least, 1.0, demand), rel=1e-9)
    assert plan.termination.bound <= plan.termination.objective
    assert plan.termination.bound == pytest.approx(plan.termination.objective, rel=1e-5)
    if least == 0.5:
        assert plan.refused  # 37 + 10 of 60 fill their systems


def test_nothing_need_be_served():
    plan = solve(problem(objectives=(PER,)), COLUMNS, OFFERS, demand=60.0, elastic={"chat": 0.0})
    assert plan.termination.objective == pytest.approx(52.0 / (37.0 * 3600 * 100))  # one system of b, full
    assert plan.termination.bound == pytest.approx(plan.termination.objective, rel=1e-5)


def test_charnes_cooper_bounds_the_relaxation():
    table = {"chat": np.array([[60.0]])}
    sets = build_sets(problem(objectives=(PER,)), COLUMNS, OFFERS, (), table, table, {"chat": 0.5})
    build = formulate(sets).build
    ratio = goal(build, PER, 0)
    assert isinstance(ratio, Ratio)
    bound = charnes_cooper(build, ratio)
    grid = []
    for volume in np.linspace(0.5, 1.0, 21):  # the relaxation at fixed volumes
        fixed = {"chat": np.array([[60.0 * volume]])}
        part = formulate(build_sets(problem(objectives=(PER,)), COLUMNS, OFFERS, (), fixed, fixed)).build
        from tokenmill.milp.objective import objective

        arrays = part.programme.arrays(objective(part, PER, 0))
        arrays.integer[:] = False
        grid.append(solve_arrays(arrays).objective)
    assert bound == pytest.approx(min(grid))


def test_cost_alone_serves_the_least():
    plan = solve(problem(), [pool(pool_column())], [rent()], demand=25.0, elastic={"chat": 0.4})
    assert plan.running[0].replicas == 1


FILE = """
objective = { minimise = "cost_per_token" }
[hardware]
systems = ["hgx-h100"]
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
[workload.demand]
requests_per_second = 300
input_tokens = 1000
output_tokens = 200
[workload.slo]
tpot = { p95 = "50 ms" }
[workload.engine]
disaggregated = false
"""


def test_elastic_volume_from_a_file():
    fixed = plan_of(load_problem(FILE))
    some = plan_of(load_problem(FILE, [("workload.chat.demand.at_least", 0.5)]))
    more = plan_of(load_problem(FILE, [("workload.chat.demand.at_least", 0.5), ("workload.chat.demand.at_most", 2.0)]))
    assert more.objective.value <= some.objective.value * (1 + 1e-9) <= fixed.objective.value * (1 + 2e-9)
    assert some.cost.per["token"] == pytest.approx(some.objective.value, rel=1e-6)
    with pytest.raises(ProblemError, match="at_most"):
        plan_of(load_problem(FILE, [("workload.chat.demand.at_least", 3.0)]))


def test_what_list_prices_bring():
    prices = {"input": "$0.1/Mtoken", "output": "$0.4/Mtoken"}
    totals = plan_of(load_problem(FILE, [("workload.chat.demand.list_price", prices)])).workloads["chat"].totals
    seconds = 365 * 86400.0
    assert totals["revenue"] == pytest.approx(300 * seconds * (1000 * 0.1e-6 + 200 * 0.4e-6))
    assert totals["margin"] < totals["revenue"]
