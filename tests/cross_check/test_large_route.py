"""The route of large fleets, by parts that commitments link, against every fleet tried one by one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import inf
from random import Random

import numpy as np
import pytest

from cross_check.toys import HOUR, YEAR, pool, pool_column, problem, rent
from tokenmill.milp import solve as solving
from tokenmill.milp.formulation import solve_programme
from tokenmill.milp.large import solve_large
from tokenmill.problem import Problem

DOMAIN = 8
MOST = 7
SLICES = {"day": 0.4, "evening": 0.25, "night": 0.35}


@dataclass(frozen=True)
class Fleet:
    """Layouts (system, chips, units/s), USD/h of a system on demand and reserved, units/s by slice, chips at most."""

    layouts: tuple[tuple[str, int, float], ...]
    prices: dict[str, tuple[float, float]]
    demand: tuple[float, ...]
    chips: int


def fleet(seed: int) -> Fleet:
    rng = Random(seed)
    layouts = tuple(
        (name, chips, chips * rng.uniform(0.8, 1.6)) for name in "ab" for chips in rng.sample([2, 3, 4, 5, 7], 2)
    )
    hours = {name: rng.uniform(10.0, 20.0) for name in "ab"}
    prices = {name: (hour, hour * rng.uniform(0.4, 0.8)) for name, hour in hours.items()}
    peak = rng.uniform(15.0, 40.0)
    return Fleet(layouts, prices, (peak, peak * rng.uniform(0.5, 0.9), peak * rng.uniform(0.1, 0.5)), rng.choice([40, 56]))  # fmt: skip


def carried(made: Fleet, system: str) -> float:
    """Return the most units/s of one domain of a system, over all ways to fill it."""
    own = [(chips, rate) for name, chips, rate in made.layouts if name == system]
    ways = product(*(range(DOMAIN // chips + 1) for chips, _ in own))
    return max(
        sum(count * rate for count, (_, rate) in zip(way, own, strict=True))
        for way in ways
        if sum(count * chips for count, (chips, _) in zip(way, own, strict=True)) <= DOMAIN
    )


def best(made: Fleet) -> float:
    """Return the least cost [USD] of a year: reserved systems stand all day, others are rented slice by slice."""
    most = {name: carried(made, name) for name in "ab"}
    hours, least = YEAR / HOUR, inf
    for a, b in product(range(MOST + 1), repeat=2):
        cost = hours * (a * made.prices["a"][1] + b * made.prices["b"][1])
        for share, rate in zip(SLICES.values(), made.demand, strict=True):
            cost += hours * share * min(
                (
                    x * made.prices["a"][0] + y * made.prices["b"][0]
                    for x, y in product(range(MOST + 1), repeat=2)
                    if (a + x) * most["a"] + (b + y) * most["b"] >= rate - 1e-9
                    and DOMAIN * (a + b + x + y) <= made.chips
                ),
                default=inf,
            )  # fmt: skip
        least = min(least, cost)
    return least


def stated(made: Fleet) -> tuple[Problem, list, list, dict]:
    asked = problem(horizon={"duration": YEAR, "slices": SLICES}, limits={"chips": made.chips})
    columns = [pool(*(pool_column(chips=c, rate=rate, system=name) for name, c, rate in made.layouts))]
    offers = [
        offer
        for name, (hour, reserved) in made.prices.items()
        for offer in (
            rent(hour, system=name),
            rent(reserved, system=name, market="reserved-1y", kind="reserve", commitment=YEAR),
        )
    ]
    return asked, columns, offers, {"chat": np.array([made.demand])}


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 40))])
def test_the_route_by_parts_is_what_trying_every_fleet_gives(seed, monkeypatch):
    """Its bound is no more, its own plan no less than the least cost; and the answer that it leads to is that."""
    made, ends = fleet(seed), []

    def watched(*given, **more):
        ends.append(solve_large(*given, **more))
        return ends[-1]

    monkeypatch.setattr(solving, "LARGE", 0)
    monkeypatch.setattr(solving, "solve_large", watched)
    asked, columns, offers, demand = stated(made)
    plan = solve_programme(asked, columns, offers, demand=demand, gap=1e-6, value_of_next=False)
    least = best(made)
    if least == inf:
        assert plan.termination.status == "infeasible"
        return
    assert plan.cost_total == pytest.approx(least, rel=2e-6)
    (end,) = ends
    if end is not None:
        assert end.bound <= least * (1.0 + 1e-7)
        assert end.objective >= least * (1.0 - 1e-7)


def test_most_of_these_fleets_are_planned_by_parts(monkeypatch):
    found = []
    monkeypatch.setattr(solving, "LARGE", 0)
    monkeypatch.setattr(
        solving, "solve_large", lambda *given, **more: found.append(solve_large(*given, **more)) or found[-1]
    )
    for seed in range(4):
        asked, columns, offers, demand = stated(fleet(seed))
        solve_programme(asked, columns, offers, demand=demand, gap=1e-6, value_of_next=False)
    assert sum(end is not None for end in found) >= 3
