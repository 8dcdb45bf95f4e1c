"""Markets, slices, spares, refusals and elastic volume: the programme against every number of systems tried."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import comb, inf
from random import Random

import numpy as np
import pytest

from cross_check.toys import FREE, YEAR, pool, pool_column, rent
from tokenmill.candidates.columns import WorkloadColumns
from tokenmill.milp.cbc import cbc, solve_cbc
from tokenmill.milp.formulation import formulate, solve_programme
from tokenmill.milp.highs import solve_arrays
from tokenmill.milp.objective import objective
from tokenmill.milp.sets import build_sets
from tokenmill.milp.solution import Solution
from tokenmill.offers import Offer
from tokenmill.problem import Hardware, Horizon, Limits, Objective, Owned, Ownership, Problem, Workload

FEATURES = ("slices", "spot", "share", "owned", "reserve", "tier", "spares", "shed", "elastic", "chips", "maintenance")
PROBLEMS, FEW, MOST = 300, 100, 4
SHARES = {"day": 0.4, "night": 0.6}
OUTAGE = 0.01
TOKENS = 100.0


@dataclass(frozen=True)
class Fleet:
    """A small fleet: system a (a replica of 4 chips fills it), system b (two replicas of 2 chips)."""

    on: frozenset[str]
    demand: tuple[float, ...]
    rates: dict[str, float]
    rents: dict[str, float]
    owned: int
    shed: float
    least: float
    chips: int

    @property
    def slices(self) -> dict[str, float]:
        return SHARES if "slices" in self.on else {"all": 1.0}


def fleet(seed: int) -> Fleet:
    rng = Random(seed)
    if seed < len(FEATURES):
        on = {FEATURES[seed]}
    elif seed % 5 == 0:
        on = set(FEATURES)
    else:
        on = {feature for feature in FEATURES if rng.random() < 0.6}
    on |= {"spot"} if "share" in on else set()
    rates = {"a": rng.uniform(8, 12), "b": rng.uniform(3, 6)}
    rents = {"a": rng.uniform(10, 20), "b": rng.uniform(10, 20)}
    demand = (round(rng.uniform(8, 26), 1), round(rng.uniform(2, 12), 1))
    return Fleet(
        frozenset(on), demand if "slices" in on else demand[:1], rates, rents, rng.choice([1, 2]),
        rng.choice([0.3, 0.6, 1.2]) * 16.0 / 3600 / 8, rng.choice([0.3, 0.6]), rng.choice([8, 10, 12]) if "elastic" in on or "shed" in on else 16,
    )  # fmt: skip


SIZE = {"a": 4, "b": 2}
STOCKS = (("a", "rent"), ("a", "spot"), ("b", "rent"), ("b", "own"))


def offers(case: Fleet) -> list[Offer]:
    shape = {"chips": 4, "domain": 4, "chip_outage": OUTAGE}
    made = [rent(case.rents[name], system=name, **shape) for name in ("a", "b")]
    if "spot" in case.on:
        made.append(rent(0.4 * case.rents["a"], system="a", market="spot", **shape))
    if "owned" in case.on:
        made.append(rent(0.0, system="b", market="owned", kind="owned", at_most=case.owned, **shape))
    if "reserve" in case.on:
        made.append(
            rent(0.6 * case.rents["b"], system="b", market="reserved-1y", kind="reserve", commitment=YEAR, **shape)
        )
    if "tier" in case.on:
        made.append(rent(0.6 * case.rents["a"], system="a", minimum=3, **shape))
    return made


def columns(case: Fleet) -> WorkloadColumns:
    made = [pool_column(chips=SIZE[name], rate=case.rates[name], system=name) for name in ("a", "b")]
    if "spot" in case.on:
        made.append(pool_column(chips=4, rate=0.8 * case.rates["a"], system="a", name="a-4/spot", reliability="spot"))
    return pool(*made)


def stated(case: Fleet) -> tuple[Problem, dict[str, np.ndarray], dict[str, float] | None]:
    """Return the problem, its demand and its elastic volume."""
    ratio = "elastic" in case.on
    limits = Limits(
        spot_share=0.5 if "share" in case.on else None,
        availability=0.99 if "spares" in case.on else None,
        shed=case.shed if "shed" in case.on and not ratio else None,
        chips=case.chips if "chips" in case.on else None,
    )
    owned = (Owned("b", case.owned),) if "owned" in case.on else ()
    maintenance = 0.1 if "maintenance" in case.on else 0.0
    asked = Problem(
        (Workload("chat", "toy"),), objectives=(Objective("cost_per_token", "chat", "output") if ratio else Objective("cost"),),
        gap=0.0, horizon=Horizon(duration=YEAR, slices=case.slices), limits=limits,
        hardware=Hardware(sites=(FREE,), owned=owned, ownership=Ownership(maintenance=maintenance)),
    )  # fmt: skip
    return asked, {"chat": np.array([case.demand])}, {"chat": case.least} if ratio else None


def solved(case: Fleet) -> Solution:
    asked, table, elastic = stated(case)
    return solve_programme(asked, [columns(case)], offers(case), demand=table, elastic=elastic, value_of_next=False)


@cache
def standing(replicas: int, chips: int) -> int:
    share, likely = 1 / (1 + OUTAGE * chips), 0.0
    for n in range(replicas, -1, -1):
        likely += comb(replicas, n) * share**n * (1 - share) ** (replicas - n)
        if likely >= 0.99:
            return n
    return 0


def rooms(case: Fleet) -> list[range]:
    most = {"spot": MOST if "spot" in case.on else 0, "own": case.owned if "owned" in case.on else 0, "rent": MOST}
    return [range(most[tenure] + 1) for _, tenure in STOCKS]


def carried(case: Fleet, units: tuple[int, ...]) -> float:
    """Return units/s that systems carry, filled with replicas."""
    total = 0.0
    for (system, tenure), count in zip(STOCKS, units, strict=True):
        replicas = count * 4 // SIZE[system]
        ready = standing(replicas, SIZE[system]) if "spares" in case.on else replicas
        rate = case.rates[system] * (0.8 if tenure == "spot" else 1.0)
        total += ready * rate * (0.9 if tenure == "own" and "maintenance" in case.on else 1.0)
    return total


def hourly(case: Fleet, units: tuple[int, ...], reserved: int) -> float:
    """Return USD an hour of rented systems, in the cheapest mix of price tiers."""
    a, spot, b, _ = units
    plain = a * case.rents["a"]
    if "tier" in case.on:
        plain = min([plain, *((a - n) * case.rents["a"] + n * 0.6 * case.rents["a"] for n in range(3, a + 1))])
    return plain + spot * 0.4 * case.rents["a"] + max(0, b - reserved) * case.rents["b"]


def allowed(case: Fleet, units: tuple[int, ...]) -> bool:
    if "share" in case.on and units[1] > 0.5 * sum(units):
        return False
    return not ("chips" in case.on and 4 * sum(units) > case.chips)


def options(case: Fleet, slice_: int, reserved: int) -> list[tuple[float, float]]:
    """Return (cost, units served) of everything that can be had in a slice."""
    part = list(case.slices.values())[slice_]
    demand, found = case.demand[slice_], []
    for units in product(*rooms(case)):
        if not allowed(case, units) or units[2] < reserved:
            continue  # what is reserved is in hand
        rate = min(carried(case, units), demand)
        cost = hourly(case, units, reserved) * part * 8760
        if "elastic" in case.on:
            fits = rate >= case.least * demand - 1e-9
        elif "shed" in case.on:
            cost += (demand - rate) * case.shed * part * YEAR
            fits = True
        else:
            fits = rate >= demand - 1e-9
        if fits:
            found.append((cost, rate * part * YEAR))
    found.sort(key=lambda each: (each[0], -each[1]))
    front: list[tuple[float, float]] = []
    for each in found:
        if not front or each[1] > front[-1][1]:
            front.append(each)
    return front


def tried(case: Fleet) -> float:
    """Return the least cost, or cost a token where the volume may vary."""
    best = inf
    for reserved in range(MOST + 1 if "reserve" in case.on else 1):
        fixed = reserved * 0.6 * case.rents["b"] * 8760
        for chosen in product(*(options(case, n, reserved) for n in range(len(case.demand)))):
            cost = fixed + sum(each[0] for each in chosen)
            if "elastic" in case.on:
                volume = sum(each[1] for each in chosen) * TOKENS
                best = min(best, cost / volume if volume else inf)
            else:
                best = min(best, cost)
    return best


def same(case: Fleet, plan: Solution) -> bool:
    expected, found = tried(case), plan.termination.objective
    return found is None if expected == inf else found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("problems", [FEW, pytest.param(PROBLEMS, marks=pytest.mark.slow)])
def test_every_number_of_systems_tried(problems):
    plans = 0
    for seed in range(problems):
        case = fleet(seed)
        plan = solved(case)
        assert same(case, plan), (seed, sorted(case.on), tried(case), plan.termination)
        if plan.termination.objective is not None:
            assert plan.residual is not None
            plans += 1
    assert plans > problems * 2 // 3


def test_each_feature_decides():
    changed = dict.fromkeys(FEATURES, 0)
    for seed in range(FEW):
        case = fleet(seed)
        with_it = tried(case)
        for feature in case.on - {"slices", "elastic"}:
            less = replace(case, on=case.on - {feature} - ({"share"} if feature == "spot" else set()))
            changed[feature] += tried(less) != pytest.approx(with_it, rel=1e-9)
    for feature in ("spot", "share", "owned", "reserve", "tier", "spares", "shed", "chips", "maintenance"):
        assert changed[feature] >= 4, changed


@pytest.mark.skipif(cbc() is None, reason="CBC is not installed: the extra 'cbc' brings it to PuLP 4")
def test_second_solver_agrees():
    for seed in range(0, FEW, 2):
        case = fleet(seed)
        asked, table, elastic = stated(case)
        build = formulate(build_sets(asked, [columns(case)], offers(case), (), table, table, elastic)).build
        expression = objective(build, Objective("cost"), 0)
        other, own = solve_cbc(build.programme, expression), solve_arrays(build.programme.arrays(expression))
        assert (other.objective is None) == (own.objective is None), seed
        if own.objective is not None:
            assert other.objective == pytest.approx(own.objective, rel=1e-6), seed
