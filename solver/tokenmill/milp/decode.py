"""From the programme's values to the answer in the problem's own terms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.constraints.capacity import occupants
from tokenmill.milp.constraints.flows import Sent
from tokenmill.milp.constraints.limits import companies
from tokenmill.milp.decode_flows import arcs_taken, transfers
from tokenmill.milp.fill import fill
from tokenmill.milp.money import discount
from tokenmill.milp.quantities import (
    Build,
    chips_in_hand,
    chips_in_hand_of,
    count,
    energy_cost,
    going_on,
    holding,
    load,
    pool_power,
)  # fmt: skip
from tokenmill.milp.solution import Flow, Packing, Purchase, Running, RunStart
from tokenmill.milp.ways import HOUR, rent_of, run_cost, run_duration, run_rent

LEAST = 1e-9


@dataclass(frozen=True)
class Reader:
    """A solved programme: what was built and the values of its variables."""

    build: Build
    sent: Sent
    values: NDArray[np.float64]

    def at(self, index: int) -> float:
        """Return a variable's value."""
        return float(self.values[index])


def purchases(read: Reader) -> tuple[Purchase, ...]:
    """Return what is bought, reserved and rented: like periods and slices in one entry."""
    return (*_commitments(read), *_rentals(read), *_rented_by_runs(read))


def _commitments(read: Reader) -> Iterator[Purchase]:
    build, sets = read.build, read.build.sets
    for (k, i, h), index in read.build.variables.new.items():
        units = read.at(index)
        if units < 0.5:
            continue
        offer, terms = sets.offers[k], build.committed(k, h)
        paid = sum(amount * discount(sets.problem.horizon, period) for period, amount in terms.payments.items())
        yield Purchase(
            offer.system, sets.sites[i].name, offer.market, h, h + terms.active - 1, None, units * offer.unit_chips / offer.chips,
            units * offer.unit_chips, offer.unit_price(h) * offer.chips / offer.unit_chips, units * (paid - terms.residual),
            units * (offer.unit_power + offer.unit_chips * (offer.chip_tdp - offer.chip_idle)), offer.price_source,
        )  # fmt: skip


def _rentals(read: Reader) -> Iterator[Purchase]:
    sets = read.build.sets
    amounts: dict[tuple[int, int], dict[tuple[int, int], float]] = {}
    for (k, i, h, l), index in read.build.variables.rented.items():
        if read.at(index) >= 0.5:
            amounts.setdefault((k, i), {})[h, l] = read.at(index)
    for (k, i), by_moment in sorted(amounts.items()):
        offer = sets.offers[k]
        for first, last, part, units in _merged(by_moment, len(sets.slices)):
            slices = range(len(sets.slices)) if part is None else [part]
            paid = sum(
                units * offer.unit_price(h) * sets.length(h, l) / HOUR * discount(sets.problem.horizon, h)
                for h in range(first, last + 1)
                for l in slices
            )
            yield Purchase(
                offer.system, sets.sites[i].name, offer.market, first, last, None if part is None else sets.slices[part],
                units * offer.unit_chips / offer.chips, units * offer.unit_chips, offer.unit_price(first) * offer.chips / offer.unit_chips,
                paid, units * (offer.unit_power + offer.unit_chips * (offer.chip_tdp - offer.chip_idle)), offer.price_source,
            )  # fmt: skip


def _merged(by_moment: dict[tuple[int, int], float], slices: int) -> list[tuple[int, int, int | None, float]]:
    """Return (first period, last period, slice or None for all, units): equal slices together, then equal periods."""
    rows: dict[tuple[int | None, float], list[int]] = {}
    for h in sorted({h for h, _ in by_moment}):
        of = [by_moment.get((h, l), 0.0) for l in range(slices)]
        entries = [(None, of[0])] if min(of) == max(of) else [(l, units) for l, units in enumerate(of) if units]
        for part, units in entries:
            rows.setdefault((part, units), []).append(h)
    merged: list[tuple[int, int, int | None, float]] = []
    for (part, units), periods in rows.items():
        first = last = periods[0]
        for h in periods[1:]:
            if h > last + 1:
                merged.append((first, last, part, units))
                first = h
            last = h
        merged.append((first, last, part, units))
    return sorted(merged, key=lambda row: (row[0], -1 if row[2] is None else row[2]))


def _rented_by_runs(read: Reader) -> Iterator[Purchase]:
    build, sets = read.build, read.build.sets
    for n, way, column in going_on(build, frozenset(build.variables.start)):
        if read.at(build.variables.taken[n]) < 0.5:
            continue
        first, last = _touched(read, n)
        for held in way.held:
            offer = sets.offers[held.offer]
            price = max(offer.unit_price(h) for h in sets.periods) * offer.chips / offer.unit_chips
            power = held.units * (offer.unit_power + offer.unit_chips * (offer.chip_tdp - offer.chip_idle))
            yield Purchase(
                offer.system, sets.sites[way.site].name, offer.market, first, last, None,
                held.units * offer.unit_chips / offer.chips, held.units * offer.unit_chips, price,
                rent_of(build.sets, way, held), power, offer.price_source, column.workload,
            )  # fmt: skip


def _touched(read: Reader, n: int) -> tuple[int, int]:
    periods = [h for h in read.build.sets.periods if holding(read.build, n, h).value(read.values) > 0.5]
    return (periods[0], periods[-1]) if periods else (1, 1)


def running(read: Reader) -> tuple[Running, ...]:
    """Return the replicas of every pool, by period and slice, and what they carry."""
    build, sets = read.build, read.build.sets
    carried: dict[tuple[int, int, int], dict[tuple[int, int], float]] = {}
    for (w, b, _, _, n, p, h, l), index in build.variables.shares.items():
        rate = read.at(index) * sets.planned(w, h, l) * sets.workloads[w].shares[b]
        if rate > LEAST * sets.planned(w, h, l):
            into = carried.setdefault((n, h, l), {})
            into[b, p] = into.get((b, p), 0.0) + rate
    found = []
    for (n, h, l), index in build.variables.replicas.items():
        replicas = read.at(index)
        if replicas < 0.5:
            continue
        use = sets.uses[n]
        column, stock = sets.columns[use.column], sets.stocks[use.stock]
        used = sum(load(build, n, p, h, l).value(read.values) for p in range(len(column.points)))
        watts = pool_power(build, n, h, l, mean=False).value(read.values) + replicas * column.room * stock.chip_idle
        found.append(Running(
            column.key, sets.sites[use.site].name, h, sets.slices[l], replicas, carried.get((n, h, l), {}), used / replicas, watts,
            stock.tenure, stock.by_chip,
        ))  # fmt: skip
    return tuple(sorted(found, key=lambda r: (r.period, r.slice, r.column, r.site, r.tenure)))


def runs(read: Reader) -> tuple[RunStart, ...]:
    """Return the chosen way of every run."""
    build, sets, found = read.build, read.build.sets, []
    for n, way, column in going_on(build, frozenset(build.variables.start)):
        if read.at(build.variables.taken[n]) < 0.5:
            continue
        markets = [sets.offers[a.offer].market for a in way.held] + [_market(build, s) for s, _ in way.places]
        start = read.at(build.variables.start[column.workload])
        places = tuple(
            (sets.stocks[s].system, sets.stocks[s].tenure, sets.stocks[s].by_chip, chips) for s, chips in way.places
        )
        found.append(RunStart(
            column.workload, column.key, sets.sites[way.site].name, "+".join(sorted(set(markets))), start,
            start + run_duration(build.sets, way), run_cost(build.sets, way), places,
        ))  # fmt: skip
    return tuple(sorted(found, key=lambda r: (r.start, r.workload)))


def _market(build: Build, s: int) -> str:
    stock = build.sets.stocks[s]
    return "+".join(sorted({build.sets.offers[k].market for k in stock.offers if build.sets.offers[k].kind != "rent"}))


def flows(read: Reader) -> tuple[Flow, ...]:
    """Return what pools send one another over arcs, with the share of each arc's room that this takes."""
    build, sets, found = read.build, read.build.sets, []
    arcs = {arc.name: arc for arc in sets.arcs}
    for each in transfers(build, read.sent, read.values):
        shares = []
        for name, rate in arcs_taken(read.sent, sets, each, read.values):
            arc = arcs[name]
            chips = chips_in_hand_of(build, arc.site, arc.system, each.period, each.slice).value(read.values)
            room = arc.capacity + arc.per_chip * chips
            shares.append((name, rate, rate / room if room > 0.0 else 0.0))
        join = read.sent.joins[each.join]
        if shares:
            workload = sets.workloads[join.workload].workload
            part = sets.slices[each.slice]
            found.append(Flow(workload, join.coupling.kind, each.source, each.target, each.period, part, tuple(shares)))
    return tuple(found)


def packings(read: Reader) -> tuple[Packing, ...]:
    """Return how domains are filled at every moment, for the runs that take most of them at once."""
    build, sets, found = read.build, read.build.sets, []
    for s, stock in enumerate(sets.stocks):
        for i, site in enumerate(sets.sites):
            for h, l in () if stock.by_chip else sets.moments:
                seen: list[Packing] = []
                for together in companies(build):
                    here = occupants(build, s, i, h, l, together)
                    whole = {g: round(x.value(read.values)) for g, x in here.items()}
                    domains = (
                        sum(round(count(build, k, i, h, l).value(read.values)) for k in stock.offers) * stock.domains
                    )
                    for pattern, spans, times in fill(whole, stock.domain, domains):
                        left = spans * stock.domain - sum(g * n for g, n in pattern)
                        entry = Packing(
                            stock.system,
                            site.name,
                            dict(pattern),
                            float(times),
                            float(left * times),
                            h,
                            sets.slices[l],
                            stock.tenure,
                            spans,
                        )
                        if entry not in seen:
                            seen.append(entry)
                found += seen
    return tuple(found)


@dataclass(frozen=True)
class Money:
    """The plan's costs: total, by kind, by workload (idle in proportion), by period, idle alone; energy [J], carbon [kg]."""

    total: float
    by_kind: dict[str, float]
    by_workload: dict[str, float]
    by_period: tuple[float, ...]
    idle: float


def money(read: Reader, bought: tuple[Purchase, ...]) -> Money:
    """Return costs from the decisions: present values, residuals taken off capital."""
    build, sets = read.build, read.build.sets
    horizon = sets.problem.horizon
    kinds = dict.fromkeys(("rent", "capital", "energy", "storage", "network", "operations"), 0.0)
    by_period = dict.fromkeys(sets.periods, 0.0)
    stores = {offer.system for offer in sets.offers if not offer.counted}
    for purchase in bought:
        rented = "storage" if purchase.system in stores else "rent"
        kinds["capital" if purchase.market == "buy" else rented] += purchase.cost
    for (k, _, since), index in build.variables.new.items():
        terms, offer = build.committed(k, since), sets.offers[k]
        if offer.kind == "buy":
            price = offer.unit_price(since)
            running_costs = sum(v * discount(horizon, h) for h, v in terms.payments.items()) - price * discount(
                horizon, since
            )
            kinds["operations"] += read.at(index) * running_costs
            kinds["capital"] -= read.at(index) * running_costs
        for h, amount in terms.payments.items():
            by_period[h] += read.at(index) * amount * discount(horizon, h)
        by_period[len(sets.periods)] -= read.at(index) * terms.residual
    for (k, _, h, l), index in build.variables.rented.items():
        by_period[h] += read.at(index) * sets.offers[k].unit_price(h) * sets.length(h, l) / HOUR * discount(horizon, h)
    for h in sets.periods:
        electricity = energy_cost(build, h).value(read.values) * discount(horizon, h)
        kinds["energy"] += electricity
        by_period[h] += electricity
    by_workload = _by_workload(read, sum(kinds.values()) - sum(p.cost for p in bought if p.workload))
    for n, way, column in going_on(build, frozenset(build.variables.start)):
        taken = read.at(build.variables.taken[n])
        electricity = (run_cost(build.sets, way) - run_rent(build.sets, way)) * taken
        kinds["energy"] += electricity
        by_period[_touched(read, n)[0]] += run_cost(build.sets, way) * taken
        by_workload[column.workload] = by_workload.get(column.workload, 0.0) + run_cost(build.sets, way) * taken
    _refused(read, kinds, by_workload, by_period)
    return Money(sum(kinds.values()), kinds, by_workload, tuple(by_period.values()), _idle(read, bought))


def _refused(read: Reader, kinds: dict[str, float], by_workload: dict[str, float], by_period: dict[int, float]) -> None:
    """Add the price of refused demand to the sums."""
    sets = read.build.sets
    for (w, b, h, l), index in read.build.variables.refused.items():
        workload = sets.workloads[w]
        units = sets.expected(w, h, l) * workload.shares[b] * sets.length(h, l) * read.at(index)
        price = units * (sets.problem.limits.shed or 0.0) * discount(sets.problem.horizon, h)
        kinds["shed"] = kinds.get("shed", 0.0) + price
        by_workload[workload.workload] = by_workload.get(workload.workload, 0.0) + price
        by_period[h] += price


def _used(read: Reader) -> dict[str, float]:
    """Return chip-seconds of shared systems that each workload holds."""
    build, sets = read.build, read.build.sets
    used: dict[str, float] = {}
    for (n, h, l), index in build.variables.replicas.items():
        column = sets.columns[sets.uses[n].column]
        seconds = read.at(index) * column.room * sets.length(h, l)
        used[column.workload] = used.get(column.workload, 0.0) + seconds
    for n, way, column in going_on(build, frozenset(build.variables.start)):
        chips = sum(chips for _, chips in way.places) * read.at(build.variables.taken[n])
        used[column.workload] = used.get(column.workload, 0.0) + chips * run_duration(build.sets, way)
    return used


def _by_workload(read: Reader, shared: float) -> dict[str, float]:
    """Return the cost of shared systems by the chip-seconds that workloads hold of them (idle time in proportion)."""
    used = _used(read)
    whole = sum(used.values())
    return {name: shared * seconds / whole if whole > 0.0 else 0.0 for name, seconds in sorted(used.items())}


def _idle(read: Reader, bought: tuple[Purchase, ...]) -> float:
    """Return the part of the cost of shared systems that pays for chips that nothing stands on."""
    build, sets = read.build, read.build.sets
    had = sum(chips_in_hand(build, h, l, frozenset()).value(read.values) * sets.length(h, l) for h, l in sets.moments)
    if had <= 0.0:
        return 0.0
    return sum(p.cost for p in bought if not p.workload) * max(0.0, 1.0 - sum(_used(read).values()) / had)
