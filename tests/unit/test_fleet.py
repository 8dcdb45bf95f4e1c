"""Spot columns, worse cases, and other plans in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cross_check.toys import pool, pool_column, problem, rent, run
from tokenmill import load_problem, solve
from tokenmill.candidates.search import Searched
from tokenmill.fleet import assumed, changes, planned, slower, with_spot
from tokenmill.milp.formulation import solve_programme
from tokenmill.milp.solution import Had
from tokenmill.problem import Limits, Robust, Workload

FILE = """
objective = { minimise = "cost" }
[hardware]
systems = ["hgx-h100"]
markets = ["on-demand", "spot"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2/h"
[[hardware.price]]
system = "hgx-h100"
market = "spot"
per_chip_hour = "$1/h"
[[hardware.supply]]
system = "hgx-h100"
preemptions_per_day = 2.4
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
[workload.demand]
requests_per_second = 600
input_tokens = 1000
output_tokens = 200
[workload.slo]
ttft = { p95 = "2 s" }
tpot = { p95 = "50 ms" }
"""


def test_spot_columns_are_slower_by_their_preemptions():
    searched = Searched(pool(pool_column(rate=10.0), pool_column(chips=16, rate=20.0)), {"node-8": "context"}, {})
    found = with_spot(searched, [rent(market="spot", preemptions_per_day=14.4), rent()], 600.0)
    spot = {c.key: c for c in found.columns.columns["mixed"] if c.reliability == "spot"}
    # 14.4 a day is one in 6000 s: 6000 s of work to 600 s of restart; two systems fail twice as often
    assert spot["node-8/spot"].points[0].rate == (pytest.approx(10.0 / 1.1),)
    assert spot["node-16/spot"].points[0].rate == (pytest.approx(20.0 / 1.2),)
    assert found.contexts["node-8/spot"] == "context"
    runs = with_spot(Searched(run("train", (8, 30.0)), {}, {}), [rent(market="spot", preemptions_per_day=14.4)], 600.0)
    assert runs.columns.columns["train"][1].duration == pytest.approx(33 * 86400)
    assert with_spot(searched, [rent()], 600.0).columns == searched.columns


def test_a_run_waits_less_for_dearer_systems():
    columns = with_spot(
        Searched(run("train", (8, 30.0)), {}, {}), [rent(4.0, market="spot", preemptions_per_day=14.4)], 600.0
    ).columns
    offers = [rent(16.0), rent(4.0, market="spot")]
    slack = problem(Workload("train", "toy", deadline=40 * 86400.0))
    plan = solve_programme(slack, [columns], offers, demand={})
    assert plan.cost_total == pytest.approx(33 * 24 * 4.0)  # a tenth longer at a quarter of the price
    tight = problem(Workload("train", "toy", deadline=31 * 86400.0))
    assert solve_programme(tight, [columns], offers, demand={}).cost_total == pytest.approx(30 * 24 * 16.0)


def test_limits_at_longer_times():
    asked = load_problem(FILE)
    worse = planned(replace(asked, limits=Limits(robust=Robust(times=2.0))))
    assert worse.workloads[0].values["slo.ttft"] == {"p95": pytest.approx(1.0)}
    assert planned(asked) is asked
    searched = slower(Searched(pool(pool_column(rate=10.0)), {}, {}), 2.0)
    assert searched.columns.columns["mixed"][0].points[0].rate == (5.0,)


def test_spot_is_used_from_a_file_and_robustness_has_a_price():
    plan = solve(load_problem(FILE))
    assert {p.market for p in plan.purchases} == {"spot"}
    demand = [("limits.robust.demand", "3.0")]
    robust = solve(load_problem(FILE, demand))
    assert robust.cost.total > plan.cost.total
    (note,) = [n for n in robust.notes if n.startswith("limits.robust")]
    assert f"{plan.cost.total:.6g}" in note
    served = robust.workloads["chat"].totals["units"]
    assert served == pytest.approx(600 * 365 * 86400, rel=1e-6)  # what is expected, not what could be carried
    spread = solve(load_problem(FILE, [("limits.spot_share", "0.5")]))
    assert {p.market for p in spread.purchases} == {"spot", "on-demand"}


@pytest.mark.parametrize(
    ("demand", "times"),
    [(1.5, 1.0), pytest.param(1.0, 1.5, marks=pytest.mark.slow), pytest.param(1.5, 1.5, marks=pytest.mark.slow)],
)
def test_to_hold_at_half_as_much_again_is_the_harder_problem_itself(demand, times):
    """All times longer by a factor: the same limits divided by it, at a demand that is larger by it."""
    robust = solve(load_problem(FILE, [("limits.robust", f"{{ demand = {demand}, times = {times} }}")]))
    rate, limits = 600.0 * demand * times, ("ttft", "tpot")
    stated = load_problem(FILE).workloads[0].values
    tighter = [
        (f"workload.chat.slo.{name}.{word}", f'"{value / times!r} s"')
        for name in limits
        for word, value in (stated.get(f"slo.{name}") or {}).items()
        if value is not None
    ]
    harder = solve(load_problem(FILE, [("workload.chat.demand.requests_per_second", repr(rate)), *tighter]))
    assert robust.cost.total == pytest.approx(harder.cost.total)


def test_other_plans_in_words():
    now, bought = (Had("a", "spot", 2.0, 16.0), Had("b", "buy", 1.0, 8.0)), Had("b", "buy", 1.0, 8.0)
    assert changes(now, (bought, Had("c", "on-demand", 3.0, 24.0))) == "3 c (on-demand) in place of 2 a (spot)"
    assert changes(now, (bought,)) == "without 2 a (spot)"
    part = Had("c", "on-demand", 0.625, 5.0)  # had by the chip
    assert changes(now, (bought, part)) == "5 chips of c (on-demand) in place of 2 a (spot)"
    assert assumed("restart") == 600.0
