"""What must hold whatever the numbers: looser limits never cost more, prices scale, order does not matter."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cross_check.brute_force import Case, random_case
from tokenmill.milp.formulation import formulate, solve_programme
from tokenmill.milp.highs import solve_arrays
from tokenmill.milp.objective import objective
from tokenmill.milp.sets import build_sets
from tokenmill.problem import Supply

few = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 5000)


def optimum(case: Case) -> float:
    sets = build_sets(case.problem, case.columns, case.offers, case.links, case.table(), case.table())
    build = formulate(sets).build
    found = solve_arrays(build.programme.arrays(objective(build, case.problem.objectives[0], 0))).objective
    return inf if found is None else found


def limited(case: Case, **limits: float) -> Case:
    return replace(case, problem=replace(case.problem, limits=replace(case.problem.limits, **limits)))


def supplied(case: Case, most: int) -> Case:
    supply = (Supply("a", at_most=most),)
    return replace(case, problem=replace(case.problem, hardware=replace(case.problem.hardware, supply=supply)))


def linked(case: Case, factor: float) -> Case:
    return replace(case, links=tuple(replace(link, capacity=factor * link.capacity) for link in case.links))


@few
@given(seed=seeds, low=st.floats(0.3, 1.5), more=st.floats(1.0, 2.0))
def test_more_room_never_costs_more(seed, low, more):
    case = random_case(seed)
    pairs = [
        (limited(case, budget=low * 2e5), limited(case, budget=low * more * 2e5)),
        (limited(case, power=low * 1e4), limited(case, power=low * more * 1e4)),
        (limited(case, chips=int(low * 16)), limited(case, chips=int(low * more * 16))),
        (supplied(case, int(2 * low)), supplied(case, int(2 * low * more))),
        (linked(case, low), linked(case, low * more)),
    ]
    for tight, loose in pairs:
        assert optimum(loose) <= optimum(tight) * (1 + 1e-9)


@few
@given(seed=seeds, factor=st.sampled_from([0.01, 0.5, 3.0, 100.0]))
def test_prices_scale_costs_and_leave_the_plan(seed, factor):
    case = random_case(seed)
    dearer = replace(case, offers=tuple(replace(offer, price=factor * offer.price) for offer in case.offers))
    plans = [
        solve_programme(c.problem, c.columns, c.offers, c.links, demand=c.table(), value_of_next=False)
        for c in (case, dearer)
    ]
    assert plans[1].cost_total == pytest.approx(factor * plans[0].cost_total)
    for a, b in zip(plans[0].purchases, plans[1].purchases, strict=True):
        assert (a.system, a.market, a.count, a.workload) == (b.system, b.market, b.count, b.workload)


@few
@given(seed=seeds)
def test_order_of_the_input_does_not_matter(seed):
    case, rng = random_case(seed), Random(seed)

    def shuffled(items):
        return tuple(rng.sample(list(items), len(items)))

    columns = tuple(
        replace(w, columns={k: shuffled(w.columns[k]) for k in shuffled(w.columns)}) for w in shuffled(case.columns)
    )
    problem = replace(case.problem, workloads=shuffled(case.problem.workloads))
    one = solve_programme(case.problem, case.columns, case.offers, case.links, demand=case.table())
    other = solve_programme(problem, columns, shuffled(case.offers), shuffled(case.links), demand=case.table())
    seconds = one.termination.seconds
    assert replace(other, termination=replace(other.termination, seconds=seconds)) == one
