"""The independent re-check of every answer: each constraint again, from the plan alone, in exact arithmetic.

Nothing here is shared with the programme's rows: what must hold is written anew over the plan's purchases, replicas,
runs and flows, with the original numbers as fractions. A plan may miss a requirement by 1e-6·max(1, |right-hand side|).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.audit_money import recount
from tokenmill.candidates.columns import Column, WorkloadColumns
from tokenmill.errors import AuditError, SolverError
from tokenmill.milp.fill import fill
from tokenmill.milp.solution import Purchase, Running, RunStart, Solution
from tokenmill.offers import Offer
from tokenmill.problem import Problem, Workload

TOLERANCE = Fraction(1, 10**6)
Exact = Fraction
Stock = tuple[str, str, bool]  # system, tenure, had by the chip


@dataclass(frozen=True)
class Residual:
    """One requirement re-evaluated: how far it is missed, relative to max(1, |right-hand side|)."""

    what: str
    missed: Fraction


@dataclass(frozen=True)
class Case:
    """A plan and all that it answers. `demand`: units/s by workload, (period, slice) in the horizon's order."""

    problem: Problem
    workloads: Sequence[WorkloadColumns]
    offers: Sequence[Offer]
    arcs: Sequence[Any]
    plan: Solution
    demand: Mapping[str, NDArray[np.float64]]
    served: Mapping[str, NDArray[np.float64]]

    @property
    def length(self) -> Fraction:
        """Seconds of a period."""
        return exact(self.problem.horizon.duration) / self.problem.horizon.periods

    @property
    def moments(self) -> list[tuple[int, str]]:
        """All (period, slice)."""
        return [(h, l) for h in range(1, self.problem.horizon.periods + 1) for l in self.problem.horizon.slices]

    def columns(self) -> dict[tuple[str, str], Column]:
        """Columns by (workload, key)."""
        return {(c.workload, c.key): c for w in self.workloads for cs in w.columns.values() for c in cs}

    def pools(self) -> dict[str, Column]:
        """Columns of pools by key."""
        return {c.key: c for w in self.workloads if w.kind == "pool" for cs in w.columns.values() for c in cs}

    def asked(self, name: str) -> Workload:
        """Return a workload of the problem."""
        return next(w for w in self.problem.workloads if w.name == name)

    def maintenance(self, tenure: str) -> Fraction:
        """Share of time in which a tenure's systems work."""
        return 1 - exact(self.problem.hardware.ownership.maintenance) if tenure == "own" else exact(1)


def exact(value: float) -> Fraction:
    """Return a float as the fraction that it is."""
    return Fraction(float(value))


def check(
    problem: Problem,
    workloads: Sequence[WorkloadColumns],
    offers: Sequence[Offer],
    arcs: Sequence[Any],
    plan: Solution,
    demand: Mapping[str, NDArray[np.float64]],
    served: Mapping[str, NDArray[np.float64]] | None = None,
) -> float:
    """Return the largest residual of a plan, relative to max(1, |right-hand side|).

    Raises
    ------
    AuditError
        Where a requirement is missed by more than 1e-6 of that: a defect of tokenmill, never a result.
    """
    case = Case(problem, workloads, offers, arcs, plan, demand, served or demand)
    worst = Fraction(0)
    for found in residuals(case):
        if found.missed > TOLERANCE:
            raise AuditError(f"the plan does not hold: {found.what} is missed by {float(found.missed):.3g} of its right-hand side")
        worst = max(worst, found.missed)
    return float(worst)


def residuals(case: Case) -> Iterator[Residual]:
    """Yield every requirement of a plan, re-evaluated."""
    yield from _whole_numbers(case)
    yield from _demand(case)
    yield from _load(case)
    yield from _capacity(case)
    yield from _supply(case)
    yield from _limits(case)
    yield from _runs(case)
    yield from _flows(case)
    yield from _money(case)


def at_most(what: str, left: Fraction, right: Fraction) -> Residual:
    """Return the residual of left <= right."""
    return Residual(what, max(Fraction(0), left - right) / max(Fraction(1), abs(right)))


def equal(what: str, left: Fraction, right: Fraction) -> Residual:
    """Return the residual of left = right."""
    return Residual(what, abs(left - right) / max(Fraction(1), abs(right)))


def _whole_numbers(case: Case) -> Iterator[Residual]:
    for running in case.plan.running:
        yield equal(f"whole replicas of {running.column}", exact(running.replicas), Fraction(round(running.replicas)))
    for bought in case.plan.purchases:
        offer = _offer(case, bought)
        units = exact(bought.count) * (offer.chips if offer.by_chip else 1)
        yield equal(f"whole units of {bought.system}", units, Fraction(round(units)))


def _offer(case: Case, bought: Purchase) -> Offer:
    """Return the offer a purchase was made of."""
    fit = [o for o in case.offers if (o.system, o.market) == (bought.system, bought.market)]
    here = [o for o in fit if o.sites is None or bought.site in o.sites]
    if not here:
        raise AuditError(f"{bought.system} is not offered on {bought.market} at {bought.site}")
    return here[0]


def _demand(case: Case) -> Iterator[Residual]:
    """All demand passes every role of some route, but for what is refused."""
    columns = case.pools()
    rates: dict[tuple[str, str, int, int, str], Fraction] = {}
    for running in case.plan.running:
        column = columns[running.column]
        for (b, _), rate in running.rates.items():
            key = (column.workload, column.role, b, running.period, running.slice)
            rates[key] = rates.get(key, Fraction(0)) + exact(rate)
    for workload in (w for w in case.workloads if w.kind == "pool"):
        roles = [role for route in workload.routes for role in route]
        for number, (h, l) in enumerate(case.moments):
            planned = exact(case.demand[workload.workload].reshape(-1)[number])
            for b, share in enumerate(workload.shares):
                refused = exact(case.plan.refused.get((workload.workload, b, h, l), 0.0))
                wanted = planned * exact(share) * (1 - refused)

                def through(role: str, at: tuple[str, int, int, str] = (workload.workload, b, h, l)) -> Fraction:
                    return rates.get((at[0], role, *at[1:]), Fraction(0))

                name = f"demand of {workload.workload}, class {b}, period {h}, {l}"
                yield equal(name, sum((through(route[0]) for route in workload.routes), Fraction(0)), wanted)
                if len(set(roles)) == len(roles):
                    for route in workload.routes:
                        for role in route[1:]:
                            yield equal(f"{name} in {role}", through(role), through(route[0]))


def _load(case: Case) -> Iterator[Residual]:
    """No replica carries more than it can."""
    columns = case.pools()
    for running in case.plan.running:
        points = columns[running.column].points
        used = sum((exact(rate) / exact(points[p].rate[b]) for (b, p), rate in running.rates.items()), Fraction(0))
        ready = exact(running.replicas) * case.maintenance(running.tenure)
        yield at_most(f"load of {running.column}, period {running.period}, {running.slice}", used, ready)
    for workload in (w for w in case.workloads if w.kind == "pool"):
        asked = case.asked(workload.workload)
        for role in workload.columns:
            held = asked.role_held.get(role, {}).get("layout.replicas", asked.held.get("layout.replicas"))
            for h, l in case.moments if held else ():
                here = [r for r in case.plan.running if (r.period, r.slice) == (h, l) and columns[r.column].role == role]
                count = sum((exact(r.replicas) for r in here if columns[r.column].workload == workload.workload), Fraction(0))
                yield at_most(f"least replicas of {role}", exact(min(held or (0,))), count)
                yield at_most(f"most replicas of {role}", count, exact(max(held or (0,))))


def tenure_of(market: str) -> str:
    """Return the tenure of a market."""
    return {"buy": "own", "owned": "own", "spot": "spot"}.get(market, "rent")


def in_hand(case: Case, h: int, l: str) -> Iterator[Purchase]:
    """Yield purchases that pools and shared runs can use at a moment."""
    for bought in case.plan.purchases:
        if not bought.workload and bought.period <= h <= bought.until and bought.slice in (None, l):
            yield bought


def going(case: Case, h: int) -> list[list[RunStart]]:
    """Return the runs that go on at each event of a period: its beginning, and every start within it."""
    begin, end = (h - 1) * case.length, h * case.length
    if case.problem.horizon.periods == 1:
        end = max([end, *(exact(run.end) for run in case.plan.runs)])
    events = {begin, *(exact(run.start) for run in case.plan.runs if begin <= exact(run.start) < end)}
    margin = case.length * TOLERANCE
    return [[r for r in case.plan.runs if exact(r.start) <= t and exact(r.end) - margin > t] for t in sorted(events)]


def _capacity(case: Case) -> Iterator[Residual]:
    """Replicas and runs fit the domains of the systems in hand, laid out one by one."""
    columns = case.pools()
    for h, l in case.moments:
        room: dict[tuple[Stock, str], Fraction] = {}
        shape: dict[tuple[Stock, str], Offer] = {}
        for bought in in_hand(case, h, l):
            offer = _offer(case, bought)
            key = ((bought.system, tenure_of(bought.market), offer.by_chip), bought.site)
            room[key] = room.get(key, Fraction(0)) + exact(bought.count) * (offer.chips if offer.by_chip else offer.domains)
            shape[key] = offer
        pools = [r for r in case.plan.running if (r.period, r.slice) == (h, l)]
        for together in going(case, h):
            stand = dict[tuple[Stock, str], dict[int, int]]()
            for key, chips, number in _standing(columns, pools, together):
                here = stand.setdefault(key, {})
                here[chips] = here.get(chips, 0) + number
            for key, replicas in stand.items():
                yield _fits(replicas, shape.get(key), room.get(key, Fraction(0)), f"{key[0][0]} at {key[1]}, period {h}, {l}")


def _standing(
    columns: Mapping[str, Column], pools: Iterable[Running], runs: Iterable[RunStart]
) -> Iterator[tuple[tuple[Stock, str], int, int]]:
    """Yield (stock at a site, chips, how many) of all that stands on shared systems."""
    for running in pools:
        column = columns[running.column]
        yield ((column.system, running.tenure, running.by_chip), running.site), column.chips, round(running.replicas)
    for run in runs:
        for system, tenure, by_chip, chips in run.places:
            yield ((system, tenure, by_chip), run.site), chips, 1


def _fits(replicas: Mapping[int, int], offer: Offer | None, room: Fraction, where: str) -> Residual:
    """Return whether replicas can be laid into domains, by laying them."""
    if offer is None:
        return at_most(f"systems of {where}", Fraction(sum(replicas.values())), Fraction(0))
    if offer.by_chip:
        return at_most(f"chips of {where}", Fraction(sum(g * n for g, n in replicas.items())), room)
    try:
        laid = fill(replicas, offer.domain, round(room))
    except SolverError as error:
        raise AuditError(f"the plan does not hold: {where}: {error}") from error
    for pattern, spans, _ in laid:
        if sum(g * n for g, n in pattern) > spans * offer.domain:
            return at_most(f"pattern {pattern} of {where}", Fraction(1), Fraction(0))
    for chips, number in replicas.items():
        if sum(dict(pattern).get(chips, 0) * times for pattern, _, times in laid) < number:
            return at_most(f"replicas of {chips} chips of {where}", Fraction(1), Fraction(0))
    return at_most(f"domains of {where}", Fraction(sum(spans * times for _, spans, times in laid)), room)


def _supply(case: Case) -> Iterator[Residual]:
    """No more systems than can be had, nor before they can be."""
    for h, l in case.moments:
        for together in going(case, h):
            names = {run.workload for run in together}
            had: dict[str, Fraction] = {}
            owned: dict[str, Fraction] = {}
            for bought in case.plan.purchases:
                active = bought.workload in names if bought.workload else bought in list(in_hand(case, h, l))
                into = owned if bought.market == "owned" else had
                if active:
                    into[bought.system] = into.get(bought.system, Fraction(0)) + exact(bought.count)
            for system, count in had.items():
                most = _most(case, system, h)
                if most is not None:
                    yield at_most(f"supply of {system} in period {h}", count, most)
            for system, count in owned.items():
                have = sum(o.count for o in case.problem.hardware.owned if o.system == system and (o.retires is None or o.retires >= h))
                yield at_most(f"owned {system} in period {h}", count, Fraction(have))


def _most(case: Case, system: str, h: int) -> Fraction | None:
    """Return how many of a system the problem lets one have in a period (None: no limit)."""
    records = [s for s in case.problem.hardware.supply if s.system == system]
    if not records:
        return None
    ready = [s for s in records if s.from_period <= h and exact(s.lead_time) <= (h - 1) * case.length * (1 + TOLERANCE)]
    if not ready:
        return Fraction(0)
    last = max(ready, key=lambda s: s.from_period)
    return None if last.at_most is None else Fraction(last.at_most)


def _power_of(case: Case, bought: Purchase) -> Fraction:
    """Return W of purchased systems with idle chips."""
    offer = _offer(case, bought)
    return exact(bought.count) * (exact(offer.host_power) + offer.chips * exact(offer.chip_idle))


def _watts(case: Case, site: str | None, h: int, l: str, together: Sequence[RunStart]) -> Fraction:
    """Return least IT watts at a site (None: everywhere) at a moment, every replica loaded at the points that it uses."""
    columns, names = case.columns(), {run.workload for run in together}
    idle = {o.system: exact(o.chip_idle) for o in case.offers}
    here = [b for b in in_hand(case, h, l) if site in (None, b.site)]
    here += [b for b in case.plan.purchases if b.workload in names and site in (None, b.site)]
    watts = sum((_power_of(case, b) for b in here), Fraction(0))
    for running in case.plan.running:
        if (running.period, running.slice) != (h, l) or site not in (None, running.site):
            continue
        column = case.pools()[running.column]
        ready = case.maintenance(running.tenure)
        watts += exact(running.replicas) * (exact(column.power_idle) - column.chips * idle[column.system])
        for (b, p), rate in running.rates.items():
            point = column.points[p]
            watts += exact(rate) / exact(point.rate[b]) / ready * (exact(point.power_loaded) - exact(column.power_idle))
    for run in together:
        if site in (None, run.site):
            column = columns[run.workload, run.column]
            watts += exact(column.power_loaded) - sum((chips * idle[s] for s, chips in column.footprint), Fraction(0))
    return watts


def _limits(case: Case) -> Iterator[Residual]:
    """Chips, power and spot share at every event."""
    limits = case.problem.limits
    for h, l in case.moments:
        for together in going(case, h):
            names = {run.workload for run in together}
            held = [*in_hand(case, h, l), *(b for b in case.plan.purchases if b.workload in names)]
            chips = sum((exact(b.count) * _offer(case, b).chips for b in held), Fraction(0))
            if limits.chips is not None:
                yield at_most(f"chips in period {h}, {l}", chips, Fraction(limits.chips))
            if limits.spot_share is not None:
                spot = sum((exact(b.count) * _offer(case, b).chips for b in held if b.market == "spot"), Fraction(0))
                yield at_most(f"spot share in period {h}, {l}", spot, exact(limits.spot_share) * chips)
            if limits.power is not None:
                yield at_most(f"power in period {h}, {l}", _watts(case, None, h, l, together), exact(limits.power))
            for site in case.problem.hardware.sites:
                if isfinite(site.power):
                    yield at_most(f"power at {site.name} in period {h}, {l}", _watts(case, site.name, h, l, together), exact(site.power))


def _runs(case: Case) -> Iterator[Residual]:
    """Every run once, as long as its column says, on its column's chips, within its time and after its needs."""
    ended = {run.workload: exact(run.end) for run in case.plan.runs}
    for workload in (w for w in case.workloads if w.kind == "run"):
        chosen = [run for run in case.plan.runs if run.workload == workload.workload]
        yield equal(f"runs of {workload.workload}", Fraction(len(chosen)), Fraction(1))
    columns = case.columns()
    for run in case.plan.runs:
        column, asked = columns[run.workload, run.column], case.asked(run.workload)
        own = any(tenure == "own" for _, tenure, _, _ in run.places)
        duration = exact(column.duration or 0.0) / case.maintenance("own" if own else "rent")
        yield equal(f"duration of {run.workload}", exact(run.end) - exact(run.start), duration)
        yield at_most(f"start of {run.workload}", exact(asked.starts), exact(run.start))
        if asked.deadline is not None:
            yield at_most(f"deadline of {run.workload}", exact(run.end), exact(asked.deadline))
        for need in asked.needs:
            if need in ended:
                yield at_most(f"{run.workload} after {need}", ended[need], exact(run.start))
        yield from _footprint(case, run, column)


def _footprint(case: Case, run: RunStart, column: Column) -> Iterator[Residual]:
    """A run's chips stand on shared systems or on those that it rents for itself."""
    alone = [b for b in case.plan.purchases if b.workload == run.workload]
    for system, chips in column.footprint:
        placed = sum(n for name, _, _, n in run.places if name == system)
        rented = Fraction(0)
        for bought in alone:
            if bought.system == system:
                offer = _offer(case, bought)
                rented += exact(bought.count) * (offer.chips if offer.by_chip else offer.domains * offer.domain)
        yield at_most(f"chips of {system} for {run.workload}", Fraction(chips), placed + rented)


def _flows(case: Case) -> Iterator[Residual]:
    """What leaves a pool's node arrives, passes every node between, and no arc carries more than it has room for."""
    arcs = {arc.name: arc for arc in case.arcs}
    used: dict[tuple[str, int, str], Fraction] = {}
    for flow in case.plan.flows:
        balance: dict[str, Fraction] = {}
        left = came = Fraction(0)
        for name, rate, _ in flow.arcs:
            arc, amount = arcs[name], exact(rate)
            used[name, flow.period, flow.slice] = used.get((name, flow.period, flow.slice), Fraction(0)) + amount
            left += amount if arc.source == flow.source else 0
            came += amount if arc.target == flow.target else 0
            balance[arc.source] = balance.get(arc.source, Fraction(0)) - amount
            balance[arc.target] = balance.get(arc.target, Fraction(0)) + amount
        yield equal(f"flow {flow.source} to {flow.target}", came, left)
        for node, rest in balance.items():
            if node not in (flow.source, flow.target):
                yield equal(f"flow through {node}", rest / max(Fraction(1), left), Fraction(0))
    for (name, h, l), amount in used.items():
        arc = arcs[name]
        chips = sum(
            (exact(b.count) * _offer(case, b).chips for b in in_hand(case, h, l) if (b.system, b.site) == (arc.system, arc.site)),
            Fraction(0),
        )
        yield at_most(f"arc {name} in period {h}, {l}", amount, exact(arc.capacity) + exact(arc.per_chip) * chips)
    yield from _sent(case)


def _sent(case: Case) -> Iterator[Residual]:
    """Pools send over arcs what their columns say a unit takes, where their nodes are arcs' ends."""
    columns = case.pools()
    ends = {end for arc in case.arcs for end in (arc.source, arc.target)}
    for workload in case.workloads:
        for coupling in workload.couplings:
            for h, l in case.moments:
                due, free = Fraction(0), False
                for running in case.plan.running:
                    column = columns[running.column]
                    if column.workload != workload.workload or (running.period, running.slice) != (h, l):
                        continue
                    at_node = f"{running.site}/{column.system}" in ends
                    free = free or (column.role in (coupling.source, coupling.target) and not at_node)
                    end = column.ends.get(coupling.name)
                    if column.role == coupling.source and end is not None and end.per_unit:
                        due += sum((exact(rate) * exact(end.per_unit[b]) for (b, _), rate in running.rates.items()), Fraction(0))
                if not free and len(workload.couplings) == 1:
                    yield equal(f"bytes of {workload.workload}, {coupling.name}, period {h}, {l}", _leaving(case, workload.workload, h, l), due)


def _leaving(case: Case, workload: str, h: int, l: str) -> Fraction:
    arcs = {arc.name: arc for arc in case.arcs}
    return sum(
        (
            exact(rate)
            for flow in case.plan.flows
            if (flow.workload, flow.period, flow.slice) == (workload, h, l)
            for name, rate, _ in flow.arcs
            if arcs[name].source == flow.source
        ),
        Fraction(0),
    )


def _money(case: Case) -> Iterator[Residual]:
    """The cost again from what is bought, and the limits on it."""
    limits, counted = case.problem.limits, recount(case)
    if case.plan.cost_total is not None:
        yield equal("cost", exact(case.plan.cost_total), counted.cost)
        kinds = sum((exact(v) for v in (case.plan.cost_by_kind or {}).values()), Fraction(0))
        yield equal("cost by kind", kinds, exact(case.plan.cost_total))
        yield equal("cost by period", sum((exact(v) for v in case.plan.cost_by_period), Fraction(0)), exact(case.plan.cost_total))
        yield equal(
            "cost by workload", sum((exact(v) for v in (case.plan.cost_by_workload or {}).values()), Fraction(0)),
            exact(case.plan.cost_total) if case.plan.cost_by_workload else Fraction(0),
        )  # fmt: skip
    if limits.cost is not None:
        yield at_most("cost limit", counted.cost, exact(limits.cost))
    if limits.budget is not None:
        yield at_most("budget", sum(counted.cash, Fraction(0)), exact(limits.budget))
    if limits.budget_per_period is not None:
        for h, cash in enumerate(counted.cash, 1):
            yield at_most(f"budget of period {h}", cash, exact(limits.budget_per_period))
