"""Limits, runs and flows of a plan, re-evaluated at every event in exact arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import isfinite

from tokenmill.audit_case import TOLERANCE, Case, Residual, at_most, equal, exact, going, in_hand, offer_of
from tokenmill.candidates.columns import Column
from tokenmill.milp.solution import Purchase, RunStart


def supply(case: Case) -> Iterator[Residual]:
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
                have = sum(
                    o.count
                    for o in case.problem.hardware.owned
                    if o.system == system and (o.retires is None or o.retires >= h)
                )
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
    offer = offer_of(case, bought)
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
        watts += exact(running.replicas) * (exact(column.power_idle) - exact(column.room) * idle[column.system])
        for (b, p), rate in running.rates.items():
            point = column.points[p]
            watts += exact(rate) / exact(point.rate[b]) / ready * (exact(point.power_loaded) - exact(column.power_idle))
    for run in together:
        if site in (None, run.site):
            column = columns[run.workload, run.column]
            watts += exact(column.power_loaded) - sum((chips * idle[s] for s, chips in column.footprint), Fraction(0))
    return watts


def limits(case: Case) -> Iterator[Residual]:
    """Chips, power and spot share at every event."""
    bounds = case.problem.limits
    for h, l in case.moments:
        for together in going(case, h):
            names = {run.workload for run in together}
            every = [*in_hand(case, h, l), *(b for b in case.plan.purchases if b.workload in names)]
            held = [b for b in every if offer_of(case, b).counted]
            chips = sum((exact(b.count) * offer_of(case, b).chips for b in held), Fraction(0))
            if bounds.chips is not None:
                yield at_most(f"chips in period {h}, {l}", chips, Fraction(bounds.chips))
            if bounds.spot_share is not None:
                spot = sum((exact(b.count) * offer_of(case, b).chips for b in held if b.market == "spot"), Fraction(0))
                yield at_most(f"spot share in period {h}, {l}", spot, exact(bounds.spot_share) * chips)
            if bounds.power is not None:
                yield at_most(f"power in period {h}, {l}", _watts(case, None, h, l, together), exact(bounds.power))
            for site in case.problem.hardware.sites:
                if isfinite(site.power):
                    yield at_most(
                        f"power at {site.name} in period {h}, {l}",
                        _watts(case, site.name, h, l, together),
                        exact(site.power),
                    )


def runs(case: Case) -> Iterator[Residual]:
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
        yield from _spares(case, run, column)


def _footprint(case: Case, run: RunStart, column: Column) -> Iterator[Residual]:
    """A run's chips stand on shared systems or on those that it rents for itself."""
    alone = [b for b in case.plan.purchases if b.workload == run.workload]
    for system, chips in column.footprint:
        placed = sum(n for name, _, _, n in run.places if name == system)
        rented = Fraction(0)
        for bought in alone:
            if bought.system == system:
                offer = offer_of(case, bought)
                rented += exact(bought.count) * (offer.chips if offer.by_chip else offer.domains * offer.domain)
        yield at_most(f"chips of {system} for {run.workload}", Fraction(chips), placed + rented)


def _spares(case: Case, run: RunStart, column: Column) -> Iterator[Residual]:
    """As many systems stand by for a run as the availability asked needs: failures at once, added up from none on."""
    asked = case.problem.limits.availability
    for system, chips in column.footprint if asked is not None else ():
        own = sum(part.chips for part in column.parts or (column,) if part.system == system)
        offer = next(o for o in case.offers if o.system == system)
        needed, had = -(-own // offer.chips), chips // offer.chips
        broken = offer.chip_outage * offer.chips
        likely = (1.0 / (1.0 + broken)) ** had
        covered = likely
        for failed in range(1, had - needed + 1):
            likely *= (had - failed + 1) / failed * broken
            covered += likely
        yield at_most(f"availability of {run.workload} on {system}", exact(asked or 0.0), exact(covered))


def flows(case: Case) -> Iterator[Residual]:
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
            (
                exact(b.count) * offer_of(case, b).chips
                for b in in_hand(case, h, l)
                if (b.system, b.site) == (arc.system, arc.site)
            ),
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
                        due += sum(
                            (exact(rate) * exact(end.per_unit[b]) for (b, _), rate in running.rates.items()),
                            Fraction(0),
                        )
                if not free and len(workload.couplings) == 1:
                    yield equal(
                        f"bytes of {workload.workload}, {coupling.name}, period {h}, {l}",
                        _leaving(case, workload.workload, h, l),
                        due,
                    )


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
