"""Fleets solved by their parts, against the whole programme solved as it stands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from random import Random

import numpy as np
import pytest

from tokenmill.candidates.columns import Column, CouplingEnd, CouplingUse, OperatingPoint, WorkloadColumns
from tokenmill.milp import solve as solving
from tokenmill.milp.eliminate import eliminated, forced
from tokenmill.milp.formulation import formulate, solve_programme
from tokenmill.milp.highs import Outcome, relax, solve_arrays
from tokenmill.milp.large import lagrangian, relaxation, solve_large
from tokenmill.milp.narrow import relaxed
from tokenmill.milp.objective import objective
from tokenmill.milp.packing import packing_weights
from tokenmill.milp.parts import extract, holds, parts
from tokenmill.milp.rows import Linear, Programme
from tokenmill.milp.sets import build_sets
from tokenmill.milp.structure import Fleet, fleet_of
from tokenmill.milp.sums import Sums
from tokenmill.milp.whole import Bit, Tried, _rounded, _size_by_size
from tokenmill.offers import YEAR, Offer
from tokenmill.problem import Hardware, Horizon, Objective, Problem, Site, Workload

SEEDS = range(1, 4)
GAP = 0.02  # of whole programmes: between their bound and their plan lies the optimum


@dataclass(frozen=True)
class Link:
    name: str
    source: str
    target: str
    capacity: float
    per_chip: float = 0.0
    site: str = ""
    system: str = ""


def fleet(seed: int):
    """A fleet of two periods and two slices at two sites: prefill and decode pools in replicas of 3 and 4 chips of 8."""
    rng = Random(seed)
    columns: dict[str, list[Column]] = {"prefill": [], "decode": []}
    for role in columns:
        for system in "ab":
            for chips in (3, 4):
                rate = chips * rng.uniform(0.8, 1.6)
                end = CouplingEnd(("fp16",), 0.0, (10.0,) if role == "prefill" else ())
                point = OperatingPoint({}, (rate,), chips * 500.0)
                columns[role].append(Column(
                    f"{role}-{system}-{chips}", "chat", role, "pool", system, chips, ((system, chips),), {}, (point,),
                    chips * 100.0, chips * 500.0, None, {"kv": end},
                ))  # fmt: skip
    pool = WorkloadColumns(
        "chat", "toy", "pool", {role: tuple(of) for role, of in columns.items()}, (("prefill", "decode"),),
        (CouplingUse("kv", "prefill", "decode", "kv"),), ("all",), (1.0,),
    )  # fmt: skip
    shape = {"chips": 8, "domain": 8, "domains": 1, "chip_idle": 50.0, "chip_tdp": 700.0}
    offers = []
    for system in "ab":
        hour = rng.uniform(10.0, 20.0)
        offers += [
            Offer(system, "on-demand", "rent", hour, **shape),
            Offer(system, "reserve", "reserve", 0.7 * hour, commitment=YEAR, **shape),
            Offer(system, "buy", "buy", hour * 8760 * 1.5, **shape),
        ]
    sites = tuple(Site(f"s{n}", power=rng.choice([3e4, 6e4]), electricity={"all": 2e-8}) for n in range(2))
    links = (Link("s0>s1", "s0", "s1", 60.0), Link("s1>s0", "s1", "s0", 60.0))
    problem = Problem(
        (Workload("chat", "toy"),), objectives=(Objective("cost"),), gap=0.0,
        horizon=Horizon(YEAR, 2, {"day": 0.5, "night": 0.5}), hardware=Hardware(sites=sites),
    )  # fmt: skip
    demand = {"chat": np.array([[20.0, 9.0], [30.0, 15.0]]) * rng.uniform(0.7, 1.3)}
    return problem, (pool,), tuple(offers), links, demand


def stated(seed: int):
    problem, columns, offers, links, demand = fleet(seed)
    build = formulate(build_sets(problem, columns, offers, links, demand, demand)).build
    return build, build.programme.arrays(objective(build, problem.objectives[0], 0))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_relaxation_is_the_same_without_what_sits_on_its_load(seed):
    _, arrays = stated(seed)
    small = eliminated(arrays)
    assert len(small.arrays.lower) < len(arrays.lower)
    assert len(small.arrays.row_lower) < len(arrays.row_lower)
    one, other = relaxed(arrays), relaxed(small.arrays)
    assert one is not None
    assert other is not None
    assert one.bound == pytest.approx(other.bound, rel=1e-8)


def test_what_sits_on_its_load_by_hand():
    # min 3 x + y: q + p = 1, 4 q <= 2 x, 5 p <= y, x + y <= 9: x = 2 q at 3 each costs 6 q; p costs 5
    programme = Programme()
    q, p, x, y = (programme.variable(name, integer=name in "xy") for name in "qpxy")
    programme.row("all", left=Linear({q: 1.0, p: 1.0}), sense="=", right=1.0)
    programme.row("load", 0, left=Linear({q: 4.0, x: -2.0}), sense="<=")
    programme.row("load", 1, left=Linear({p: 5.0, y: -1.0}), sense="<=")
    programme.row("room", left=Linear({x: 1.0, y: 1.0}), sense="<=", right=9.0)
    small = eliminated(programme.arrays(Linear({x: 3.0, y: 1.0})))
    assert list(small.columns) == [True, True, False, False]
    assert list(small.arrays.cost) == [6.0, 5.0]
    assert list(small.arrays.value) == [1.0, 1.0, 2.0, 5.0]
    assert solve_arrays(small.arrays).objective == pytest.approx(5.0)


def test_what_a_row_leaves_no_room_is_held():
    # q <= 2 x, p <= 3 y, z - w <= -5 with x = 0, y = 1, 0 <= z, w <= 5: q is 0 and p free; z is 0 and w is 5
    programme = Programme()
    q, p, z = (programme.variable(name) for name in "qpz")
    w, x, y = (programme.variable(name, upper=top) for name, top in (("w", 5.0), ("x", 0.0), ("y", 1.0)))
    programme.row("load", 0, left=Linear({q: 1.0, x: -2.0}), sense="<=")
    programme.row("load", 1, left=Linear({p: 1.0, y: -3.0}), sense="<=")
    programme.row("far", left=Linear({z: 1.0, w: -1.0}), sense="<=", right=-5.0)
    programme.row("all", left=Linear({q: 1.0, p: 1.0}), sense=">=", right=1.0)
    found = forced(replace(programme.arrays(Linear({p: 1.0})), lower=np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])))
    assert list(found.lower) == [0.0, 0.0, 0.0, 5.0, 0.0, 1.0]
    assert list(found.upper) == [0.0, np.inf, 0.0, 5.0, 0.0, 1.0]


def test_parts_share_links_alone():
    programme = Programme()
    a, b, c, link = (programme.variable(name) for name in ("a", "b", "c", "link"))
    programme.row("one", left=Linear({a: 1.0, b: 2.0, link: -1.0}), sense="<=")
    programme.row("two", left=Linear({c: 3.0, link: -1.0}), sense="<=")
    programme.row("alone", left=Linear({link: 1.0}), sense="<=", right=4.0)
    arrays = programme.arrays(Linear({link: 1.0}))
    found = parts(arrays, np.array([False, False, False, True]))
    assert [(list(p.rows), list(p.own), list(p.links)) for p in found] == [([0], [a, b], [link]), ([1], [c], [link])]
    part = extract(arrays, found[1].rows, found[1].columns)
    assert (list(part.value), list(part.index), list(part.cost)) == ([3.0, -1.0], [0, 1], [0.0, 1.0])


def test_rounding_up_leaves_room_under_a_power_wall():
    """Ten replicas, four a system; the cheap site has 430 W: 100 a replica, 300 a system. One fits (400 W), two do not (500 W).

    The relaxation has 2.5 replicas there.
    """
    programme = Programme()
    q = [programme.variable("q", site) for site in range(2)]
    x = [programme.variable("x", site, integer=True) for site in range(2)]
    u = [programme.variable("u", site, integer=True) for site in range(2)]
    programme.row("all", left=Linear({q[0]: 1.0, q[1]: 1.0}), sense="=", right=1.0)
    for site in range(2):
        programme.row("load", site, left=Linear({q[site]: 10.0, x[site]: -1.0}), sense="<=")
        programme.row("chips", site, left=Linear({x[site]: 1.0, u[site]: -4.0}), sense="<=")
    programme.row("power", left=Linear({x[0]: 100.0, u[0]: 300.0}), sense="<=", right=430.0)
    arrays = programme.arrays(Linear({u[0]: 1.0, u[1]: 2.0}))
    none, no = np.full(6, -1), np.zeros(6, dtype=np.bool_)
    known = Fleet(
        no, np.array([0, 0, -1, -1, -1, -1]), np.array([2, 3, -1, -1, -1, -1]), np.array([0, 0, 1, 1, 0, 0]),
        np.array([-1, -1, 0, 0, -1, -1]), np.full(6, np.inf), no, (), Sums(none[:0], none[:0], np.zeros(0), no),
    )  # fmt: skip
    bound, values = _rounded(Bit(arrays, known, 0.1, 1, lambda: None))
    assert bound == pytest.approx((430 / 175) / 4 * 1.0 + (10 - 430 / 175) / 4 * 2.0)
    assert values is not None
    assert holds(arrays, values)
    assert (values[2], values[4]) == (1.0, 1.0)


@pytest.mark.parametrize("seed", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_any_prices_prove_a_bound(seed):
    """Whatever rows are said to be worth, what they prove is below the best plan (weak duality)."""
    build, arrays = stated(seed)
    known = fleet_of(build)
    best = solve_arrays(arrays, gap=GAP).objective
    assert best is not None
    small = relaxation(arrays, known, known.sums)
    exact = relax(small.arrays, interior=False, tolerance=0.0)
    assert exact.duals is not None
    rng = np.random.default_rng(seed)
    for noise in (0.0, 0.01, 0.3):
        duals = exact.duals * rng.uniform(1.0 - noise, 1.0 + noise, len(exact.duals))
        bound, _ = lagrangian(small.arrays, small.fleet, duals)
        assert bound / small.objective <= best * (1 + 1e-9)
    assert lagrangian(small.arrays, small.fleet, exact.duals)[0] == pytest.approx(exact.objective, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_sums_of_rows_prove_as_much_where_links_are_wide(seed):
    """Patterns and flows fall out of the relaxation at no loss of bound where links have room; else it is below."""
    problem, columns, offers, links, demand = fleet(seed)
    for room, loss in ((1e6, 1e-7), (1.0, 1.0)):
        wide = [replace(link, capacity=link.capacity * room) for link in links]
        build = formulate(build_sets(problem, columns, offers, wide, demand, demand)).build
        arrays = build.programme.arrays(objective(build, problem.objectives[0], 0))
        known = fleet_of(build)
        small = relaxation(arrays, known, known.sums)
        assert not small.columns[known.aside].any()
        one, other = relaxed(arrays), relaxed(small.arrays)
        assert one is not None
        assert other is not None
        assert (1 - loss) * one.bound <= other.bound / small.objective * (1 + 1e-9)
        assert other.bound / small.objective <= one.bound * (1 + 1e-7)


@pytest.mark.parametrize(
    ("sizes", "domain"), [((2, 3, 4, 8), 8), ((8, 16, 36, 72), 72), ((1, 3, 5), 8), ((3, 5, 7), 16)]
)
def test_no_filling_of_a_domain_breaks_a_weight(sizes, domain):
    """Every filling of a domain, one by one, weighs one at most; and some filling weighs just that."""
    rules = packing_weights(sizes, domain)
    fillings = [
        n
        for n in product(*(range(domain // g + 1) for g in sizes))
        if sum(a * g for a, g in zip(n, sizes, strict=True)) <= domain
    ]
    for weights in rules:
        heaviest = max(sum(a * w for a, w in zip(n, weights, strict=True)) for n in fillings)
        assert heaviest == pytest.approx(1.0) or (weights == tuple(g / domain for g in sizes) and heaviest < 1.0)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_a_plan_of_parts_holds_and_stands_between_bound_and_best(seed):
    build, arrays = stated(seed)
    best = solve_arrays(arrays, gap=GAP)
    found = solve_large(arrays, fleet_of(build), gap=GAP, time_limit=5.0)
    assert found is not None
    assert found.values is not None
    assert found.bound is not None
    assert holds(arrays, found.values)
    assert np.all(found.values[arrays.integer] == np.round(found.values[arrays.integer]))
    assert found.bound <= best.objective * (1 + 1e-9)
    assert found.objective >= best.bound * (1 - 1e-9)
    assert found.objective == pytest.approx(float(arrays.cost @ found.values) + arrays.offset)
    assert found.gap == pytest.approx((found.objective - found.bound) / found.objective)


def test_the_better_plan_and_the_better_bound_go_together():
    # 110 proven down to 90, and 100 proven down to 80: 100 proven down to 90, a gap of a tenth
    made = [Outcome("feasible", np.array([n]), cost, bound, None, "time", 1.0) for n, cost, bound in ((1.0, 110.0, 90.0), (2.0, 100.0, 80.0))]  # fmt: skip
    best = solving._better(*made, 0.05)
    assert (best.status, best.objective, best.bound, best.gap) == ("feasible", 100.0, 90.0, pytest.approx(0.1))
    assert best.values is not None
    assert best.values[0] == 2.0
    assert solving._better(*made, 0.1 + 1e-9).status == "optimal"
    lost = Outcome("unknown", None, None, None, None, "time", 1.0)
    assert solving._better(made[0], lost, 0.05).objective == 110.0


def test_a_plan_of_parts_passes_the_audit(monkeypatch):
    monkeypatch.setattr(solving, "LARGE", 0)
    problem, columns, offers, links, demand = fleet(0)
    plan = solve_programme(problem, columns, offers, links, demand=demand, gap=0.5, value_of_next=False)
    assert plan.residual is not None
    assert plan.residual <= 1e-6
    assert plan.termination.gap is not None
    assert plan.termination.bound <= plan.termination.objective


def test_what_is_too_large_to_be_solved_whole_is_answered_by_its_parts_with_their_gap(monkeypatch):
    monkeypatch.setattr(solving, "LARGE", 0)
    monkeypatch.setattr(solving, "MOST_TERMS", 0)
    problem, columns, offers, links, demand = fleet(0)
    plan = solve_programme(
        problem, columns, offers, links, demand=demand, gap=1e-7, time_limit=20.0, value_of_next=False
    )
    assert plan.termination.status == "feasible"
    assert plan.termination.gap is not None
    assert 1e-7 < plan.termination.gap < 0.5
    assert plan.residual is not None


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_the_same_fleet_in_another_order_gives_the_same_plan_to_the_byte(seed):
    problem, columns, offers, links, demand = fleet(seed)
    (pool,) = columns
    turned = replace(pool, columns={role: of[::-1] for role, of in reversed(pool.columns.items())})
    sites = replace(problem, hardware=replace(problem.hardware, sites=problem.hardware.sites[::-1]))
    found = []
    for asked, pools, market, arcs in ((problem, pool, offers, links), (sites, turned, offers[::-1], links[::-1])):
        build = formulate(build_sets(asked, (pools,), market, arcs, demand, demand)).build
        arrays = build.programme.arrays(objective(build, asked.objectives[0], 0))
        for _ in range(2):
            outcome = solve_large(arrays, fleet_of(build), gap=0.2)
            assert outcome is not None
            assert outcome.values is not None
            found.append((outcome.objective, outcome.bound, outcome.values.tobytes()))
    assert found[1:] == found[:-1]


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_by_its_parts_or_as_it_stands_a_small_fleet_costs_the_same(seed, monkeypatch):
    """The route of large fleets, from its plan on to the proof, against the whole programme at once: one optimum."""
    problem, columns, offers, links, demand = fleet(seed)
    few = {name: 0.2 * rates for name, rates in demand.items()}
    plain = solve_programme(problem, columns, offers, links, demand=few, gap=1e-7, value_of_next=False)
    monkeypatch.setattr(solving, "LARGE", 0)
    monkeypatch.setattr(solving, "settle", lambda held, values, *_: values)
    found = solve_programme(problem, columns, offers, links, demand=few, gap=1e-7, value_of_next=False)
    assert plain.termination.status == found.termination.status == "optimal"
    assert found.termination.objective == pytest.approx(plain.termination.objective, rel=1e-6)
    assert found.packing


def test_size_by_size_finds_what_rounding_the_largest_misses():
    """A demand of 11 in replicas of 8 and 3 chips, systems of 12 at 10 each: 8 + 3 fit in one, and none is too few.

    The plan to begin with has two of 8, in two systems.
    """
    programme = Programme()
    q = [programme.variable("q", size) for size in (8, 3)]
    x = [programme.variable("x", size, integer=True) for size in (8, 3)]
    u = programme.variable("u", integer=True)
    programme.row("all", left=Linear({q[0]: 1.0, q[1]: 1.0}), sense="=", right=1.0)
    for n, size in enumerate((8.0, 3.0)):
        programme.row("load", n, left=Linear({q[n]: 11.0, x[n]: -size}), sense="<=")
    programme.row("chips", left=Linear({x[0]: 8.0, x[1]: 3.0, u: -12.0}), sense="<=")
    arrays = programme.arrays(Linear({u: 10.0}))
    none, no = np.full(5, -1), np.zeros(5, dtype=np.bool_)
    known = Fleet(
        no, np.array([0, 0, -1, -1, -1]), np.array([2, 3, -1, -1, -1]), np.array([0, 0, 8, 3, 0]),
        np.array([-1, -1, 0, 0, -1]), np.full(5, np.inf), no, (), Sums(none[:0], none[:0], np.zeros(0), no),
    )  # fmt: skip
    start = np.array([1.0, 0.0, 2.0, 0.0, 2.0])
    assert holds(arrays, start)
    found = _size_by_size(Tried(Bit(arrays, known, 0.1, 1, lambda: None), 10 * 11 / 12, start))
    assert found is not None
    assert holds(arrays, found)
    assert float(arrays.cost @ found) == 10.0
