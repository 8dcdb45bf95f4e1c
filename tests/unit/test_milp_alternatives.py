"""The next best plans, and programmes made smaller: against every set of kinds tried one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import inf

import numpy as np
import pytest

from cross_check.brute_force import random_case
from cross_check.toys import FREE, pool, pool_column, problem, rent, solve
from tokenmill.milp.formulation import formulate, solve_programme
from tokenmill.milp.highs import solve_arrays
from tokenmill.milp.narrow import narrowed, relaxed, solve_narrowed, systems_of
from tokenmill.milp.objective import objective
from tokenmill.milp.sets import build_sets

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
        previous.append(frozenset(name for name, _, _ in other.had))
    assert len(plan.alternatives) >= 2


def test_what_an_alternative_has():
    columns = [pool(pool_column(), pool_column(system="other"))]
    plan = solve(problem(), columns, [rent(10.0), rent(30.0, system="other")], alternatives=3)
    (other,) = plan.alternatives  # three times the price: still the runner-up
    assert other.objective == pytest.approx(3 * 30 * HOURS)
    assert other.had == (("other", "on-demand", 3.0),)
    assert solve(problem(), [pool(pool_column())], [rent()], alternatives=3).alternatives == ()


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


def test_a_large_programme_is_solved_by_way_of_a_first_plan():
    rng = np.random.default_rng(1)
    names = [f"s{n}" for n in range(12)]
    columns = [
        pool(*(pool_column(chips=int(g), rate=float(g * r), system=name, name=f"{name}-{g}")
               for name in names for g, r in zip(rng.integers(1, 9, 16).tolist(), rng.uniform(0.8, 1.3, 16).tolist(), strict=True)))
    ]  # fmt: skip
    columns = [replace(columns[0], columns={"mixed": tuple({c.key: c for c in columns[0].columns["mixed"]}.values())})]
    offers = [rent(float(price), system=name) for name, price in zip(names, rng.uniform(10, 14, 12), strict=True)]
    asked = problem(hardware={"sites": (FREE,)})
    more = {"chat": np.full((2, 1), 33.0)}
    asked = replace(asked, horizon=replace(asked.horizon, periods=2))
    build = formulate(build_sets(asked, columns, offers, (), more, more)).build
    arrays = build.programme.arrays(objective(build, asked.objectives[0], 0))
    assert arrays.integer.sum() > 100
    plain = solve_arrays(arrays)
    assert solve_narrowed(arrays, systems_of(build)).objective == pytest.approx(plain.objective)
    assert solve_narrowed(arrays, systems_of(build), most=inf, start=plain.values).objective == pytest.approx(
        plain.objective
    )
    found = solve_programme(asked, columns, offers, demand=more)
    assert found.cost_total == pytest.approx(plain.objective)
