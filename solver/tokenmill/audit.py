"""The independent re-check of every answer: each constraint again, from the plan alone, in exact arithmetic.

Nothing here is shared with the programme's rows: what must hold is written anew over the plan's purchases, replicas,
runs and flows, with the original numbers as fractions. A plan may miss a requirement by 1e-6·max(1, |right-hand side|).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.audit_case import TOLERANCE, Case, Residual, at_most, equal, exact, going, in_hand, offer_of, tenure_of
from tokenmill.audit_limits import flows, limits, runs, supply
from tokenmill.audit_money import recount
from tokenmill.candidates.columns import Column, WorkloadColumns
from tokenmill.errors import AuditError, SolverError
from tokenmill.milp.fill import fill
from tokenmill.milp.solution import Running, RunStart, Solution
from tokenmill.offers import Offer
from tokenmill.problem import Problem

Stock = tuple[str, str, bool]  # system, tenure, had by the chip


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
            raise AuditError(
                f"the plan does not hold: {found.what} is missed by {float(found.missed):.3g} of its right-hand side"
            )
        worst = max(worst, found.missed)
    return float(worst)


def residuals(case: Case) -> Iterator[Residual]:
    """Yield every requirement of a plan, re-evaluated."""
    yield from _whole_numbers(case)
    yield from _demand(case)
    yield from _load(case)
    yield from _capacity(case)
    yield from supply(case)
    yield from limits(case)
    yield from runs(case)
    yield from flows(case)
    yield from _money(case)


def _whole_numbers(case: Case) -> Iterator[Residual]:
    for running in case.plan.running:
        yield equal(f"whole replicas of {running.column}", exact(running.replicas), Fraction(round(running.replicas)))
    for bought in case.plan.purchases:
        offer = offer_of(case, bought)
        units = exact(bought.count) * (offer.chips if offer.by_chip else 1)
        yield equal(f"whole units of {bought.system}", units, Fraction(round(units)))


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
        if workload.anytime:
            yield from _whole_days(case, workload, rates)
        for number, (h, l) in enumerate(() if workload.anytime else case.moments):
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


def _whole_days(
    case: Case, workload: WorkloadColumns, rates: Mapping[tuple[str, str, int, int, str], Fraction]
) -> Iterator[Residual]:
    """What a period brings is carried in one of its slices or another, or refused."""
    planned = case.demand[workload.workload]
    names = list(case.problem.horizon.slices)
    for h in range(1, case.problem.horizon.periods + 1):
        for b, share in enumerate(workload.shares):
            done = Fraction(0)
            for number, l in enumerate(names):
                wanted = exact(planned[h - 1, number]) * exact(share)
                for route in workload.routes if wanted else ():
                    done += rates.get((workload.workload, route[0], b, h, l), Fraction(0)) / wanted
                done += exact(case.plan.refused.get((workload.workload, b, h, l), 0.0))
            if planned[h - 1].any() and share:
                yield equal(f"demand of {workload.workload}, class {b}, period {h}", done, Fraction(1))


def _load(case: Case) -> Iterator[Residual]:
    """No replica carries more than it can."""
    columns = case.pools()
    for running in case.plan.running:
        points = columns[running.column].points
        used = sum((exact(rate) / exact(points[p].rate[b]) for (b, p), rate in running.rates.items()), Fraction(0))
        sites = columns[running.column].sites
        yield equal(
            f"{running.column} at {running.site}", Fraction(sites is None or running.site in sites), Fraction(1)
        )
        ready = _standing(case, running, columns[running.column]) * case.maintenance(running.tenure)
        yield at_most(f"load of {running.column}, period {running.period}, {running.slice}", used, ready)
    for workload in (w for w in case.workloads if w.kind == "pool"):
        asked = case.asked(workload.workload)
        for role in workload.columns:
            held = asked.role_held.get(role, {}).get("layout.replicas", asked.held.get("layout.replicas"))
            for h, l in case.moments if held else ():
                here = [
                    r for r in case.plan.running if (r.period, r.slice) == (h, l) and columns[r.column].role == role
                ]
                count = sum(
                    (exact(r.replicas) for r in here if columns[r.column].workload == workload.workload), Fraction(0)
                )
                yield at_most(f"least replicas of {role}", exact(min(held or (0,))), count)
                yield at_most(f"most replicas of {role}", count, exact(max(held or (0,))))


def _standing(case: Case, running: Running, column: Column) -> Fraction:
    """Return replicas that stand at once for the availability asked, by adding up the binomial from the top."""
    asked = case.problem.limits.availability
    count = round(running.replicas)
    if asked is None:
        return exact(running.replicas)
    outage = max(
        exact(o.chip_outage) for o in case.offers if (o.system, tenure_of(o.market)) == (column.system, running.tenure)
    )
    share = 1 / (1 + outage * column.chips)
    likely, n = Fraction(0), count
    while n >= 0:
        likely += comb(count, n) * share**n * (1 - share) ** (count - n)
        if likely >= exact(asked) * (1 - TOLERANCE):
            return Fraction(n)
        n -= 1
    return Fraction(0)


def _capacity(case: Case) -> Iterator[Residual]:
    """Replicas and runs fit the domains of the systems in hand, laid out one by one."""
    columns = case.pools()
    for h, l in case.moments:
        room: dict[tuple[Stock, str], Fraction] = {}
        shape: dict[tuple[Stock, str], Offer] = {}
        for bought in in_hand(case, h, l):
            offer = offer_of(case, bought)
            key = ((bought.system, tenure_of(bought.market), offer.by_chip), bought.site)
            room[key] = room.get(key, Fraction(0)) + exact(bought.count) * (
                offer.chips if offer.by_chip else offer.domains
            )
            shape[key] = offer
        pools = [r for r in case.plan.running if (r.period, r.slice) == (h, l)]
        for together in going(case, h):
            stand = dict[tuple[Stock, str], dict[float, int]]()
            for key, chips, number in _occupants(columns, pools, together):
                here = stand.setdefault(key, {})
                here[chips] = here.get(chips, 0) + number
            for key, replicas in stand.items():
                yield _fits(
                    replicas, shape.get(key), room.get(key, Fraction(0)), f"{key[0][0]} at {key[1]}, period {h}, {l}"
                )


def _occupants(
    columns: Mapping[str, Column], pools: Iterable[Running], runs: Iterable[RunStart]
) -> Iterator[tuple[tuple[Stock, str], float, int]]:
    """Yield (stock at a site, chips, how many) of all that stands on shared systems."""
    for running in pools:
        column = columns[running.column]
        yield ((column.system, running.tenure, running.by_chip), running.site), column.room, round(running.replicas)
    for run in runs:
        for system, tenure, by_chip, chips in run.places:
            yield ((system, tenure, by_chip), run.site), chips, 1


def _fits(replicas: Mapping[float, int], offer: Offer | None, room: Fraction, where: str) -> Residual:
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


def _money(case: Case) -> Iterator[Residual]:
    """The cost again from what is bought, and the limits on it."""
    bounds, counted = case.problem.limits, recount(case)
    if case.plan.cost_total is not None:
        yield equal("cost", exact(case.plan.cost_total), counted.cost)
        kinds = sum((exact(v) for v in (case.plan.cost_by_kind or {}).values()), Fraction(0))
        yield equal("cost by kind", kinds, exact(case.plan.cost_total))
        yield equal(
            "cost by period",
            sum((exact(v) for v in case.plan.cost_by_period), Fraction(0)),
            exact(case.plan.cost_total),
        )
        yield equal(
            "cost by workload", sum((exact(v) for v in (case.plan.cost_by_workload or {}).values()), Fraction(0)),
            exact(case.plan.cost_total) if case.plan.cost_by_workload else Fraction(0),
        )  # fmt: skip
    if bounds.cost is not None:
        yield at_most("cost limit", counted.cost, exact(bounds.cost))
    if bounds.budget is not None:
        yield at_most("budget", sum(counted.cash, Fraction(0)), exact(bounds.budget))
    if bounds.budget_per_period is not None:
        for h, cash in enumerate(counted.cash, 1):
            yield at_most(f"budget of period {h}", cash, exact(bounds.budget_per_period))
