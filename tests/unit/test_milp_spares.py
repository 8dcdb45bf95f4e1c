"""Spares for a stated availability: against the binomial added up by hand, and plans tried one by one."""

from __future__ import annotations

from itertools import count
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cross_check.toys import pool, pool_column, problem, rent, solve
from tokenmill.milp.constraints.spares import spares, usable

HOURS = 8760


def standing(replicas: int, share: float, wanted: float) -> int:
    """Return the most that stand together with the probability wanted, state by state."""
    likely = 0.0
    for n in range(replicas, -1, -1):
        likely += comb(replicas, n) * share**n * (1 - share) ** (replicas - n)
        if likely >= wanted:
            return n
    return 0


@given(st.integers(1, 60), st.floats(0.5, 0.9999), st.floats(0.5, 0.9999))
def test_what_stands(replicas, share, wanted):
    found = usable(replicas, share, wanted)
    assert found in {standing(replicas, share, wanted * (1 + 1e-9)), standing(replicas, share, wanted * (1 - 1e-9))}


@given(st.integers(1, 40), st.floats(0.8, 0.9999), st.floats(0.9, 0.9999))
def test_steps_give_the_fewest_replicas(needed, share, wanted):
    most, steps = spares(share, wanted, needed)
    assert most == next(x for x in count(1) if usable(x, share, wanted) >= needed)
    for x in range(1, most + 1):
        assert usable(x, share, wanted) == x - sum(at <= x for at in steps)


def test_a_plan_has_spares():
    outage = 0.01 / 8  # a replica of eight chips is out q = 0.0099 of the time; three are needed
    columns = [pool(pool_column())]
    for wanted, replicas in (
        (0.999, 4),
        (0.9999, 5),
    ):  # with four, two are out 6 q2 = 0.0006; with five, three 10 q3 = 0.00001
        plan = solve(problem(limits={"availability": wanted}), columns, [rent(chip_outage=outage)], demand=25.0)
        assert plan.running[0].replicas == replicas


def test_small_replicas_need_fewer_chips_of_spares():
    outage = 0.02 / 8
    columns = [pool(pool_column(chips=8, rate=10.0), pool_column(chips=1, rate=1.2))]
    plan = solve(problem(limits={"availability": 0.99}), columns, [rent(chip_outage=outage, by_chip=True)], demand=9.0)
    tried = {}
    for big in range(4):
        for small in range(20):
            carried = 10.0 * standing(big, 1 / 1.02, 0.99) + 1.2 * standing(small, 1 / (1 + outage), 0.99)
            if carried >= 9.0:
                tried[big, small] = 8 * big + small
    assert plan.cost_total == pytest.approx(min(tried.values()) * 2 * HOURS)
