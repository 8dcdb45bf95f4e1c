"""Among plans that cost the same, the one that is chosen: against every plan tried one by one."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from cross_check.toys import pool, pool_column, problem, rent, solve

MOST = 4


def case(seed):
    """Return columns (chips, units/s, system) and offers (chips, USD/h by name) of round prices, so that many plans tie."""
    rng = Random(seed)
    offers = {name: (8 * (2 if rng.random() < 0.3 else 1), rng.choice([8.0, 16.0, 16.0])) for name in "abc"}
    columns = [
        (chips, float(rng.choice([chips, chips, 2 * chips])), name)
        for name, (size, _) in offers.items()
        for chips in rng.sample([2, 4, 8, 16], 2)
        if chips <= size
    ]
    needed = [one for one in columns if not any(_replaces(other, one) for other in columns)]
    return needed, offers, float(rng.randint(9, 24))


def _replaces(other, one):
    """Tell whether several of another layout stand in for one of a larger: such large ones are left out of programmes."""
    return other[2] == one[2] and other[0] < one[0] and other[1] * one[0] >= one[1] * other[0]


def plans(columns, offers, demand, most):
    """Yield cost, chips, kinds, places of names, systems by name and places of layouts of every plan of at most `most` USD/h.

    Replicas of two, four and eight chips fill a domain of eight or sixteen without waste.
    """
    names, layouts = sorted(offers), sorted(columns, key=_key)
    for counts in product(range(MOST + 1), repeat=len(names)):
        room = {name: count * offers[name][0] for name, count in zip(names, counts, strict=True)}
        price = sum(count * offers[name][1] for name, count in zip(names, counts, strict=True))
        if price > most:
            continue
        place = sum((at + 1) * count for at, count in enumerate(counts))
        had = (price, sum(room.values()), sum(count > 0 for count in counts), place, counts)
        for replicas in product(*(range(room[system] // chips + 1) for chips, _, system in layouts)):
            used = dict.fromkeys(names, 0)
            for number, (chips, _, system) in zip(replicas, layouts, strict=True):
                used[system] += number * chips
            carried = sum(number * rate for number, (_, rate, _) in zip(replicas, layouts, strict=True))
            if carried >= demand and all(used[name] <= room[name] for name in names):
                yield *had, sum((at + 1) * number for at, number in enumerate(replicas))


def _key(column):
    return f"{column[2]}-{column[0]}"


def chosen(columns, offers, demand):
    """Return the same of the plan that is solved for."""
    pools = [pool(*(pool_column(chips=chips, rate=rate, system=system) for chips, rate, system in columns))]
    sold = [rent(price, system=name, chips=chips, domain=chips) for name, (chips, price) in offers.items()]
    plan = solve(problem(), pools, sold, demand=demand, value_of_next=False)
    layouts = sorted(_key(column) for column in columns)
    count = {bought.system: int(bought.count) for bought in plan.purchases}
    counts = tuple(count.get(name, 0) for name in sorted(offers))
    return (
        sum(bought.count * bought.unit_price for bought in plan.purchases),
        sum(bought.chips for bought in plan.purchases),
        len(count),
        sum((at + 1) * number for at, number in enumerate(counts)),
        counts,
        sum((layouts.index(each.column) + 1) * each.replicas for each in plan.running),
    )


@pytest.mark.parametrize("seed", range(12))
def test_of_plans_that_cost_the_same_fewest_chips_then_kinds_then_first_names(seed):
    """Names of systems first; then, on the systems that were chosen, names of layouts."""
    given = case(seed)
    *had, counts, layouts = chosen(*given)
    every = list(plans(*given, most=had[0]))
    assert had == pytest.approx(min(plan[:4] for plan in every))
    assert layouts == pytest.approx(min(plan for plan in every if plan[4] == counts)[5])
