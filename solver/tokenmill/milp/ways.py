"""What runs cost and draw in each way to carry them, and the ways that no plan needs beside others."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from tokenmill.candidates.columns import Column
from tokenmill.candidates.prune import pareto
from tokenmill.milp.dominance import READ_POWER, power_is_tight

if TYPE_CHECKING:
    from tokenmill.milp.sets import Held, Sets, Way

HOUR = 3600.0


def needed(sets: Sets) -> tuple[Way, ...]:
    """Return the ways that no other replaces: on the same stocks and offers, of no more chips of each, as quick, at no more energy.

    Where the draw of what runs is limited every way stays: a slow one may draw less.
    """
    problem = sets.problem
    if power_is_tight(problem):
        return sets.ways
    read = any(each.minimise in READ_POWER for each in problem.objectives)
    groups: dict[tuple[Hashable, ...], list[int]] = {}
    for n, way in enumerate(sets.ways):
        groups.setdefault(stood_on(sets, way), []).append(n)
    kept: list[int] = []
    for numbers in groups.values():
        counts = read or _owned(sets, sets.ways[numbers[0]])
        costs = np.array([_uses(sets, sets.ways[n], counts) for n in numbers])
        kept += [numbers[place] for place in pareto(costs)]
    return tuple(sets.ways[n] for n in sorted(kept))


def stood_on(sets: Sets, way: Way) -> tuple[Hashable, ...]:
    """Return whose run a way carries, and on which site, stocks and offers."""
    stocks, offers = tuple(s for s, _ in way.places), tuple(held.offer for held in way.held)
    return (sets.columns[way.column].workload, way.site, stocks, offers)


def _owned(sets: Sets, way: Way) -> bool:
    """Tell whether a way stands on own systems."""
    return any(sets.stocks[s].tenure == "own" for s, _ in way.places)


def _uses(sets: Sets, way: Way, power: bool) -> list[float]:
    """Return what a way takes, less is better: chips of each stock, units of each offer, seconds, joules where they count."""
    taken = [*(float(chips) for _, chips in way.places), *(float(held.units) for held in way.held)]
    return [*taken, run_duration(sets, way), run_energy(sets, way) if power else 0.0]


def run_power(sets: Sets, way: Way) -> float:
    """Return W that a run draws while it goes on, beyond the idle chips of stocks that it stands in."""
    column = sets.columns[way.column]
    idle = sum(chips * sets.stocks[s].chip_idle for s, chips in way.places)
    held = sum(
        h.units * (sets.offers[h.offer].unit_power - sets.offers[h.offer].unit_chips * sets.offers[h.offer].chip_idle)
        for h in way.held
    )
    spare = sum(
        (h.units * sets.offers[h.offer].unit_chips - _chips_on(column, sets.offers[h.offer].system))
        * sets.offers[h.offer].chip_idle
        for h in way.held
    )
    return column.power_loaded - idle + held + max(spare, 0.0)


def _chips_on(column: Column, system: str) -> int:
    return sum(chips for name, chips in column.footprint if name == system)


def run_duration(sets: Sets, way: Way) -> float:
    """Return seconds that a run takes in a way, longer by the maintenance of own systems."""
    duration = sets.columns[way.column].duration or 0.0
    return duration / (1.0 - sets.problem.hardware.ownership.maintenance) if _owned(sets, way) else duration


def run_rent(sets: Sets, way: Way) -> float:
    """Return USD that a way pays by the hour for what it holds for itself."""
    return sum(rent_of(sets, way, held) for held in way.held)


def rent_of(sets: Sets, way: Way, held: Held) -> float:
    """Return USD that a way pays for one of its hourly holdings, at the dearest price of the horizon."""
    offer = sets.offers[held.offer]
    price = max(offer.unit_price(h) for h in sets.periods)
    return held.units * price * run_duration(sets, way) / HOUR


def run_energy(sets: Sets, way: Way) -> float:
    """Return facility joules of a run taken in a way, beyond the idle chips of its stocks."""
    return run_power(sets, way) * run_duration(sets, way) * sets.sites[way.site].pue


def mean_per_site(sets: Sets, i: int, what: str) -> float:
    """Return a site's mean electricity [USD/J] or carbon [kg/J] over the day."""
    day = sets.seconds[0] / sets.seconds[0].sum()
    return float(sum(day[l] * sets.per_site(getattr(sets.sites[i], what), l) for l in range(len(sets.slices))))


def run_cost(sets: Sets, way: Way) -> float:
    """Return USD of a run taken in a way: its rents, and electricity where it stands on own systems."""
    power = run_energy(sets, way) * mean_per_site(sets, way.site, "electricity") if _owned(sets, way) else 0.0
    return run_rent(sets, way) + power
