"""Quantities that several rows and objectives share, each as one linear expression: counts, chips, watts, dollars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tokenmill.candidates.columns import Column
from tokenmill.milp.money import Commitment, commitment, discount
from tokenmill.milp.rows import Linear, Programme, total
from tokenmill.milp.sets import Sets, Way
from tokenmill.milp.variables import Variables
from tokenmill.milp.ways import HOUR, run_cost, run_power


@dataclass(frozen=True)
class Build:
    """A programme under construction: what is recorded, over which sets, with which decisions."""

    programme: Programme
    sets: Sets
    variables: Variables

    def committed(self, k: int, h: int) -> Commitment:
        """Return the terms of a unit of offer k committed in period h."""
        return commitment(self.sets.offers[k], h, self.sets.problem.horizon, self.sets.problem.hardware.ownership)

    @cached_property
    def draws(self) -> Draws:
        """What uses draw beyond idle chips."""
        return _draws(self)

    @cached_property
    def commitments(self) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
        """First period, first period after, and variable of all commitments to an offer at a site."""
        found: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        for (k, i, since), index in self.variables.new.items():
            found.setdefault((k, i), []).append((since, since + self.committed(k, since).active, index))
        return found


def count(build: Build, k: int, i: int, h: int, l: int) -> Linear:
    """Return units of offer k at site i in hand in period h, slice l (but for those a run rents for itself)."""
    made = build.variables
    if (k, i, h, l) in made.rented:
        return Linear({made.rented[k, i, h, l]: 1.0})
    return Linear().many(index for since, until, index in build.commitments.get((k, i), ()) if since <= h < until)


def holding(build: Build, n: int, h: int) -> Linear:
    """Return 1 where way n is taken and goes on in period h."""
    hold = build.variables.hold
    return Linear({hold[n, h] if (n, h) in hold else build.variables.taken[n]: 1.0})


def going_on(build: Build, together: frozenset[str]) -> list[tuple[int, Way, Column]]:
    """Return the ways of the runs of one set that may go on at a time."""
    sets = build.sets
    return [
        (n, way, sets.columns[way.column])
        for n, way in enumerate(sets.ways)
        if sets.columns[way.column].workload in together
    ]


def held_units(build: Build, k: int, i: int | None, h: int, together: frozenset[str]) -> Linear:
    """Return units of hourly offer k that runs hold for themselves in period h (at site i, or anywhere)."""
    result = Linear()
    if not together:
        return result
    for n, way, _ in going_on(build, together):
        units = sum(held.units for held in way.held if held.offer == k)
        if units and (i is None or way.site == i):
            result.plus(holding(build, n, h), float(units))
    return result


def chips_in_hand(build: Build, h: int, l: int, together: frozenset[str], spot: bool = False) -> Linear:
    """Return catalogue chips of all systems in hand, or of those on spot alone."""
    result = Linear()
    for k, offer in enumerate(build.sets.offers):
        if spot and offer.market != "spot":
            continue
        if not offer.counted:
            continue
        for i in range(len(build.sets.sites)):
            result.plus(count(build, k, i, h, l), offer.unit_chips)
        result.plus(held_units(build, k, None, h, together), offer.unit_chips)
    return result


def chips_in_hand_of(build: Build, site: str, system: str, h: int, l: int) -> Linear:
    """Return catalogue chips of one system in hand at one site (but for those that runs rent for themselves)."""
    result = Linear()
    for k, offer in enumerate(build.sets.offers):
        for i, place in enumerate(build.sets.sites):
            if (offer.system, place.name) == (system, site):
                result.plus(count(build, k, i, h, l), offer.unit_chips)
    return result


def load(build: Build, n: int, p: int, h: int, l: int) -> Linear:
    """Return replicas' worth of work that use n carries at operating point p: sum of routed rate / rate."""
    result = Linear()
    made, sets = build.variables, build.sets
    for w, b, r, position in _paths(build, n):
        index = made.shares.get((w, b, r, position, n, p, h, l))
        if index is not None:
            rate = sets.planned(w, h, l) * sets.workloads[w].shares[b]
            result.add(index, rate / sets.columns[sets.uses[n].column].points[p].rate[b])
    return result


def _paths(build: Build, n: int) -> list[tuple[int, int, int, int]]:
    """Return (workload, class, route, position) of everything that may pass use n."""
    w = build.sets.owner[build.sets.uses[n].column]
    workload, role = build.sets.workloads[w], build.sets.columns[build.sets.uses[n].column].role
    return [
        (w, b, r, position)
        for b in range(len(workload.shares))
        for r, route in enumerate(workload.routes)
        for position, name in enumerate(route)
        if name == role
    ]


def pool_power(build: Build, n: int, h: int, l: int, mean: bool) -> Linear:
    """Return W that use n adds to idle chips: all replicas loaded, or at the mean of what they carry."""
    use = build.sets.uses[n]
    column, stock = build.sets.columns[use.column], build.sets.stocks[use.stock]
    replicas = build.variables.replicas[n, h, l]
    result = Linear({replicas: column.power_idle - column.room * stock.chip_idle})
    extras = {p: column.points[p].power_loaded - column.power_idle for p in build.sets.points[use.column]}
    for p, extra in extras.items():
        if mean:
            served = _served_factor(build, build.sets.owner[use.column], h, l)
            result.plus(load(build, n, p, h, l), extra * served)
        elif (n, p, h, l) in build.variables.settings:
            result.add(build.variables.settings[n, p, h, l], extra)
    if extras and not mean and (n, next(iter(extras)), h, l) not in build.variables.settings:
        result.add(replicas, max(extras.values()))
    return result


def pools_power(build: Build, i: int, h: int, l: int, mean: bool, own: bool) -> Linear:
    """Return W that all uses at a site (on own systems alone where `own`) add to idle chips, as `pool_power` of each."""
    here = build.draws.at[i, own]
    if build.variables.settings and not mean:
        return total(pool_power(build, int(n), h, l, mean) for n in here)
    draws, result = build.draws, Linear()
    replicas = build.variables.replicas.at(h, l)[here]
    if not mean:
        return result.many(replicas.tolist(), (draws.idle + draws.most)[here].tolist())
    result.many(replicas.tolist(), draws.idle[here].tolist())
    shares = build.variables.shares
    stands, index, load_of = shares.loads(h, l)
    served = np.array([_served_factor(build, w, h, l) for w in range(len(build.sets.workloads))])
    chosen = stands & draws.within[i, own][shares.entries.use]
    watts = draws.extra * served[shares.entries.workload] * load_of
    return result.many(index[chosen].tolist(), watts[chosen].tolist())


@dataclass(frozen=True)
class Draws:
    """W of uses beyond idle chips: `idle` and `most` (loaded, more than idle) of a replica, `extra` of every entry of shares.

    `at`: uses by (site, on own systems alone); `within`: the same as a mask.
    """

    idle: NDArray[np.float64]
    most: NDArray[np.float64]
    extra: NDArray[np.float64]
    at: Mapping[tuple[int, bool], NDArray[np.int64]]
    within: Mapping[tuple[int, bool], NDArray[np.bool_]]


def _draws(build: Build) -> Draws:
    sets, entries = build.sets, build.variables.shares.entries
    columns = [sets.columns[use.column] for use in sets.uses]
    pairs = list(zip(sets.uses, columns, strict=True))
    idle = [column.power_idle - column.room * sets.stocks[use.stock].chip_idle for use, column in pairs]
    loaded = [[column.points[p].power_loaded for p in sets.points[use.column]] for use, column in pairs]
    most = [max(watts) - column.power_idle if watts else 0.0 for watts, column in zip(loaded, columns, strict=True)]
    extra = [
        columns[n].points[p].power_loaded - columns[n].power_idle
        for n, p in zip(entries.use, entries.point, strict=True)
    ]
    site = np.array([use.site for use in sets.uses], dtype=np.int64)
    owned = np.array([sets.stocks[use.stock].tenure == "own" for use in sets.uses], dtype=np.bool_)
    within = {(i, own): (site == i) & (owned | (not own)) for i in range(len(sets.sites)) for own in (False, True)}
    at = {key: np.flatnonzero(mask) for key, mask in within.items()}
    return Draws(np.array(idle), np.array(most), np.array(extra), at, within)


def _served_factor(build: Build, w: int, h: int, l: int) -> float:
    """Return the share of the demand planned for that is expected (the rest is head-room); 1 for runs."""
    if build.sets.workloads[w].kind != "pool":
        return 1.0
    planned = build.sets.planned(w, h, l)
    return build.sets.expected(w, h, l) / planned if planned > 0.0 else 1.0


def site_power(
    build: Build, i: int, h: int, l: int, together: frozenset[str], mean: bool = False, own: bool = False
) -> Linear:
    """Return IT watts at a site: systems with idle chips, pools, runs. `own`: only what runs on own systems."""
    sets, parts = build.sets, []
    for k, offer in enumerate(sets.offers):
        if not own or offer.kind in ("buy", "owned"):
            parts.append(Linear().plus(count(build, k, i, h, l), offer.unit_power))
    parts.append(pools_power(build, i, h, l, mean, own))
    if not mean:
        for n, way, _ in going_on(build, together):
            if way.site == i:
                parts.append(Linear().plus(holding(build, n, h), run_power(build.sets, way)))
    return total(parts)


def payments(build: Build, h: int) -> Linear:
    """Return USD paid in a period for systems (no energy): purchases, operations, commitments, rents of pools."""
    sets, result = build.sets, Linear()
    for (k, _, since), index in build.variables.new.items():
        result.add(index, build.committed(k, since).payments.get(h, 0.0))
    for (k, _, period, l), index in build.variables.rented.items():
        if period == h:
            result.add(index, sets.offers[k].unit_price(h) * sets.length(h, l) / HOUR)
    return result


def energy(build: Build, i: int, h: int, l: int, own: bool) -> Linear:
    """Return facility joules (with PUE) of systems and pools at a site in a slice; `own`: of own systems alone."""
    watts = site_power(build, i, h, l, frozenset(), mean=True, own=own)
    return Linear().plus(watts, build.sets.length(h, l) * build.sets.sites[i].pue)


def energy_cost(build: Build, h: int) -> Linear:
    """Return USD of electricity of own systems and their pools in a period."""
    sets, result = build.sets, Linear()
    for i, site in enumerate(sets.sites):
        for l in range(len(sets.slices)):
            result.plus(energy(build, i, h, l, own=True), sets.per_site(site.electricity, l))
    return result


def cost(build: Build) -> Linear:
    """Return the present value of all payments less residuals [USD]."""
    sets, result = build.sets, Linear()
    horizon = sets.problem.horizon
    for h in sets.periods:
        now = discount(horizon, h)
        result.plus(payments(build, h), now).plus(energy_cost(build, h), now)
    for (k, _, since), index in build.variables.new.items():
        result.add(index, -build.committed(k, since).residual)
    for n, index in build.variables.taken.items():
        result.add(index, run_cost(build.sets, sets.ways[n]))
    for (w, b, h, l), index in build.variables.refused.items():
        workload = sets.workloads[w]
        units = sets.expected(w, h, l) * workload.shares[b] * sets.length(h, l)
        result.add(index, units * (sets.problem.limits.shed or 0.0) * discount(horizon, h))
    return result
