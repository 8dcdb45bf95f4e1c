"""The next best plans, and programmes made smaller: against every set of kinds tried one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from cross_check.brute_force import random_case
from cross_check.toys import pool, pool_column, problem, rent, solve
from tokenmill.milp import narrow
from tokenmill.milp.dominance import dominated
from tokenmill.milp.formulation import formulate, solve_programme
from tokenmill.milp.highs import solve_arrays
from tokenmill.milp.narrow import narrowed, relaxed, solve_narrowed, systems_of
from tokenmill.milp.objective import objective
from tokenmill.milp.sets import build_sets
from tokenmill.milp.solution import Had

HOURS = 8760
NAMES = ("a", "b", "c", "d")


def four(**more):
    columns = [
        pool(*(pool_column(system=name, rate=rate) for name, rate in zip(NAMES, (10.0, 9.0, 6.0, 5.0), strict=True)))
    ]
    offers = [rent(price, system=name) for name, price in zip(NAMES, (16.0, 15.0, 9.0, 8.5), strict=True)]
    return solve(problem(), columns, offers, demand=37.0, **more), columns, offers


def test_the_next_plans_are_the_best_that_lack_a_kind():
    plan, columns, offers = four(alternatives=4)
    best = {}  # by allowed kinds, each set solved by itself
    for size in range(1, 5):
        for kinds in combinations(NAMES, size):
            some = solve(problem(), columns, [o for o in offers if o.system in kinds], demand=37.0)
            best[frozenset(kinds)] = some.cost_total
    previous = [frozenset(p.system for p in plan.purchases)]
    for other in plan.alternatives:
        least = min(
            cost for kinds, cost in best.items() if all(not before <= kinds for before in previous)
        )  # lacks a kind of every better plan
        assert other.objective == pytest.approx(least)
        previous.append(frozenset(row.system for row in other.had))
    assert len(plan.alternatives) >= 2


def test_what_an_alternative_has():
    columns = [pool(pool_column(), pool_column(system="other"))]
    plan = solve(problem(), columns, [rent(10.0), rent(30.0, system="other")], alternatives=3)
    (other,) = plan.alternatives  # three times the price: still the runner-up
    assert other.objective == pytest.approx(3 * 30 * HOURS)
    assert other.had == (Had("other", "on-demand", 3.0, 24.0),)
    assert solve(problem(), [pool(pool_column())], [rent()], alternatives=3).alternatives == ()


def test_with_one_system_the_next_plans_lack_a_market_a_site_or_the_refusals():
    """Hand calculation: 22/s on replicas of 10/s that fill a system; 8 760 h of on-demand at $10/h, spot at $8/h (half at most)."""
    columns = [pool(pool_column(reliability="any"))]
    offers = [rent(10.0), rent(8.0, market="spot")]
    asked = problem(limits={"spot_share": 0.5, "shed": 2.5 / 3600})
    plan = solve(asked, columns, offers, demand=22.0, alternatives=1)
    best = 10.0 + 8.0 + 5.0  # a third system must be on demand, at $10/h; refusing its 2/s costs 2 x $2.5/h
    assert plan.termination.objective == pytest.approx(best * HOURS)
    by_kind = {other.without: other.objective / HOURS for other in plan.alternatives}
    assert by_kind["spot",] == pytest.approx(10.0 + 10.0 + 5.0)
    assert by_kind["refused demand",] == pytest.approx(10.0 + 10.0 + 8.0)
    assert () not in by_kind


def test_leaving_out_loses_no_plan_within_the_limit():
    for seed in range(40):
        case = random_case(seed)
        sets = build_sets(case.problem, case.columns, case.offers, case.links, case.table(), case.table())
        build = formulate(sets).build
        arrays = build.programme.arrays(objective(build, case.problem.objectives[0], 0))
        whole = solve_arrays(arrays)
        if whole.objective is None:
            continue
        part = narrowed(arrays, relaxed(arrays), whole.objective)
        assert solve_arrays(part).objective == pytest.approx(whole.objective)
        assert (part.upper <= arrays.upper).all()


def test_a_large_programme_is_solved_by_way_of_a_first_plan(monkeypatch):
    monkeypatch.setattr(narrow, "FEW", 5)
    rng = np.random.default_rng(1)
    names = [f"s{n}" for n in range(8)]
    columns = [
        pool(
            *(
                pool_column(chips=g, rate=float(g * rng.uniform(0.8, 1.3)), system=name, name=f"{name}-{g}")
                for name in names
                for g in (2, 3, 8)
            )
        )
    ]
    offers = [rent(float(price), system=name) for name, price in zip(names, rng.uniform(10, 14, 8), strict=True)]
    table = {"chat": np.array([[33.0]])}
    build = formulate(build_sets(problem(), columns, offers, (), table, table)).build
    arrays = build.programme.arrays(objective(build, problem().objectives[0], 0))
    plain = solve_arrays(arrays)
    assert solve_narrowed(arrays, systems_of(build)).objective == pytest.approx(plain.objective)
    assert solve_narrowed(arrays, systems_of(build), start=plain.values).objective == pytest.approx(plain.objective)
    assert solve_programme(problem(), columns, offers, demand=table).cost_total == pytest.approx(plain.objective)


def test_columns_that_another_replaces_are_left_out():
    def kept(*made, **more):
        asked, given = more.get("asked", problem()), more.get("offers", [rent()])
        return [made[n].key for n in range(len(made)) if n not in dominated(made, asked, given)]

    small, large = pool_column(chips=4, rate=5.0), pool_column(chips=8, rate=9.9)
    assert kept(small, large) == ["node-4"]  # two small ones stand in its place and carry more
    assert kept(small, replace(large, points=(replace(large.points[0], rate=(10.1,)),))) == ["node-4", "node-8"]
    odd = pool_column(chips=5, rate=6.0)
    assert kept(pool_column(chips=3, rate=5.9), odd) == ["node-3", "node-5"]  # one of three chips carries less
    assert kept(pool_column(chips=3, rate=6.0), odd) == ["node-3"]
    hungry = pool_column(chips=4, rate=5.0, watts=900.0, name="hungry")
    assert kept(hungry, small) == ["hungry"]  # of equals the first; nothing reads power
    assert kept(hungry, small, asked=problem(limits={"power": 1e6})) == ["node-4"]
    spread = pool_column(chips=12, rate=14.0)  # takes two domains of eight chips: four small ones stand there
    assert kept(small, spread) == ["node-4"]
    assert kept(pool_column(chips=6, rate=8.0), spread, offers=[rent(by_chip=True)]) == ["node-6"]
