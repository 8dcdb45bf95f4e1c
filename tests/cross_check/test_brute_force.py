"""The programme against every plan tried one by one, and against a second solver, on random small problems."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import count, islice
from math import inf
from random import Random

import numpy as np
import pytest

from cross_check.brute_force import FEATURES, LIMITS, YEAR, Case, best_cost, plans, random_case, tighten, without
from tokenmill.milp.cbc import cbc, solve_cbc
from tokenmill.milp.formulation import formulate, solve_programme
from tokenmill.milp.highs import solve_arrays
from tokenmill.milp.objective import objective
from tokenmill.milp.sets import build_sets
from tokenmill.problem import Objective, Ownership

PROBLEMS, FEW, MOST_PLANS = 300, 60, 6000


def programme(case: Case):
    sets = build_sets(case.problem, case.columns, case.offers, case.links, case.table(), case.table())
    build = formulate(sets).build
    return build, objective(build, case.problem.objectives[0], 0)


def optimum(case: Case) -> float:
    build, expression = programme(case)
    outcome = solve_arrays(build.programme.arrays(expression))
    return inf if outcome.objective is None else outcome.objective


def cheapest(case: Case):
    plan = solve_programme(
        case.problem, case.columns, case.offers, case.links, demand=case.table(), value_of_next=False
    )
    assert plan.termination.status == "optimal"
    return plan


def use_of(case: Case) -> dict[str, float]:
    """Return cash, watts, chips and systems of the cheapest plan without limits."""
    plan = cheapest(case)
    hours = {"buy": 1.0, "on-demand": 8760.0}
    return {
        "budget": sum(p.cost if p.workload else p.count * p.unit_price * hours[p.market] for p in plan.purchases),
        "power": sum(r.power for r in plan.running) + 400.0 * sum(p.count for p in plan.purchases),
        "chips": sum(p.chips for p in plan.purchases),
        **{name: sum(p.count for p in plan.purchases if p.system == name) for name in ("a", "b")},
    }


def least_of(case: Case, limit: str) -> float:
    """Return the least of a limit's quantity that any plan needs."""
    if limit == "supply":
        return 0.0
    problem = replace(case.problem, objectives=(Objective(limit),))
    if limit == "budget":  # cost is cash where nothing is got back
        hardware = replace(case.problem.hardware, ownership=Ownership(life=YEAR, residual=0.0))
        problem = replace(case.problem, hardware=hardware)
    return optimum(replace(case, problem=problem))


@cache
def cases(number: int) -> list[Case]:
    small = (case for seed in count() if plans(case := random_case(seed)) <= MOST_PLANS)
    return [limited(case, n) for n, case in enumerate(islice(small, number))]


several = pytest.mark.parametrize("number", [FEW, pytest.param(PROBLEMS, marks=pytest.mark.slow)])


def limited(case: Case, number: int) -> Case:
    """Return the case under two limits, one after the other between the least and what is used; some leave no plan."""
    rng = Random(number)
    scarce_first = rng.choice([LIMITS, ("power", "chips", "supply", "budget"), ("chips", "power", "supply", "budget")])
    used = use_of(case)
    for limit in scarce_first:
        least = least_of(case, limit)
        if max(used["a"], used["b"]) < 2 if limit == "supply" else used[limit] < 1.01 * least:
            continue  # every plan uses as much, or the limit would forbid a system: it would decide nothing
        tight = tighten(case, limit, used, least, rng.choice([0.0, 0.1, 0.3]))
        if number % 9 in (0, 4) and any(decides(case, each) and not decides(tight, each) for each in ("split",)):
            continue  # the limit would settle what is to be decided
        if optimum(tight) < inf:
            case, used = tight, use_of(tight)
        elif number % 5 == 0:
            return tight
        if sum(without(case, each) is not None for each in LIMITS) == 3:
            break
    return case


def decides(case: Case, feature: str) -> bool:
    """Tell whether the optimum changes when a feature is taken out."""
    bare = without(case, feature)
    return bare is not None and not same(optimum(bare), optimum(case))


def same(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= 1e-6 * max(abs(a), abs(b), 1.0)


@several
def test_every_plan_tried(number):
    feasible = 0
    for seed, case in enumerate(cases(number)):
        expected, found = best_cost(case), optimum(case)
        assert same(expected, found), f"problem {seed}: every plan tried gives {expected}, the programme {found}"
        feasible += expected < inf
    assert feasible >= number // 2


@pytest.mark.slow
def test_each_feature_decides_often(capsys):
    shares = {feature: np.mean([decides(case, feature) for case in cases(PROBLEMS)]) for feature in FEATURES}
    with capsys.disabled():
        print(
            "\nshare of problems whose optimum a feature changes:", {k: float(round(v, 2)) for k, v in shares.items()}
        )
    assert min(shares.values()) >= 0.2, shares


@pytest.mark.skipif(cbc() is None, reason="CBC is not installed: the extra 'cbc' brings it to PuLP 4")
@several
def test_second_solver_agrees(number):
    for seed, case in enumerate(cases(number)):
        build, expression = programme(case)
        other = solve_cbc(build.programme, expression)
        found = optimum(case)
        assert same(found, inf if other.objective is None else other.objective), f"problem {seed}"
