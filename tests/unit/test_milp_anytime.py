"""Work that may be done in any slice of its period fills what other work leaves idle: counts worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cross_check.toys import YEAR, Ownership, buy, pool, pool_column, problem, rent
from tokenmill.audit import check
from tokenmill.errors import AuditError
from tokenmill.milp.formulation import solve_programme
from tokenmill.problem import Workload

CHAT = pool(pool_column())
HALVES = {
    "horizon": {"slices": {"day": 0.5, "night": 0.5}},
    "hardware": {"ownership": Ownership(life=5 * YEAR, residual=0.0)},
}
HOURS = 8760


def batch(anytime=True, workload="batch"):
    column = replace(pool_column(name="batch-8"), workload=workload, role="bulk")
    return replace(pool(), workload=workload, columns={"bulk": (column,)}, routes=(("bulk",),), anytime=anytime)


def tables(mean, anytime=True):
    """Demand of both: a chat of 30/s by day and 5/s by night; a batch of `mean`/s, told as what all of it would be in one slice."""
    return {"chat": np.array([[30.0, 5.0]]), "batch": np.array([[mean, mean]]) / (0.5 if anytime else 1.0)}


def solved(mean, anytime=True, offers=None, asked=None):
    asked = asked or problem(Workload("chat", "toy"), Workload("batch", "toy"), **HALVES)
    return asked, solve_programme(asked, [CHAT, batch(anytime)], offers or [buy()], demand=tables(mean, anytime))


def test_what_fits_the_night_buys_nothing():
    """Three nodes of 10/s for the day; two of them are idle by night, half of the time: 10/s in the mean."""
    _, plan = solved(10.0)
    assert plan.termination.status == "optimal"
    assert sum(bought.count for bought in plan.purchases) == 3
    done = {row.slice: sum(row.rates.values()) for row in plan.running if row.column == "batch-8"}
    assert done == {"night": pytest.approx(20.0)}


def test_a_little_more_than_the_night_holds_buys_one_more():
    _, plan = solved(10.5)
    assert sum(bought.count for bought in plan.purchases) == 4


def test_the_same_work_told_by_slice_needs_a_node_by_day():
    _, plan = solved(10.0, anytime=False)
    assert sum(bought.count for bought in plan.purchases) == 4


def test_rented_by_the_hour_it_is_done_in_one_slice_or_another_at_one_price():
    """Half a day of two nodes, or a whole day of one: 10/s in the mean cost one node of rent."""
    _, plan = solved(10.0, offers=[rent()])
    chat = (3 + 1) * 0.5
    assert plan.cost_total == pytest.approx((chat + 1) * 16 * HOURS)


def test_every_period_does_its_own_work():
    more = {**HALVES, "horizon": {"slices": {"day": 0.5, "night": 0.5}, "periods": 2}}
    asked = problem(Workload("chat", "toy"), Workload("batch", "toy"), **more)
    demand = {"chat": np.array([[30.0, 5.0], [30.0, 30.0]]), "batch": np.array([[20.0, 20.0], [20.0, 20.0]])}
    plan = solve_programme(asked, [CHAT, batch()], [buy()], demand=demand)
    done = {1: 0.0, 2: 0.0}
    for row in plan.running:
        if row.column == "batch-8":
            done[row.period] += 0.5 * sum(row.rates.values())
    assert done == {1: pytest.approx(10.0), 2: pytest.approx(10.0)}
    assert sum(bought.count for bought in plan.purchases) == 4  # the second period has no idle nights


def test_the_audit_counts_the_work_of_a_day():
    asked, plan = solved(10.0)
    columns, offers = [CHAT, batch()], [buy()]
    assert check(asked, columns, offers, (), plan, tables(10.0)) < 1e-6
    with pytest.raises(AuditError, match="demand of batch"):
        check(asked, columns, offers, (), plan, tables(10.1))
