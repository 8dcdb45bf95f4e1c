"""What the re-check of a plan works on: the case, its exact numbers, and what is in hand at a moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.candidates.columns import Column, WorkloadColumns
from tokenmill.errors import AuditError
from tokenmill.milp.solution import Purchase, RunStart, Solution
from tokenmill.offers import Offer
from tokenmill.problem import Problem, Workload

TOLERANCE = Fraction(1, 10**6)


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


def at_most(what: str, left: Fraction, right: Fraction) -> Residual:
    """Return the residual of left <= right."""
    return Residual(what, max(Fraction(0), left - right) / max(Fraction(1), abs(right)))


def equal(what: str, left: Fraction, right: Fraction) -> Residual:
    """Return the residual of left = right."""
    return Residual(what, abs(left - right) / max(Fraction(1), abs(right)))


def offer_of(case: Case, bought: Purchase) -> Offer:
    """Return the offer of a purchase: of its market and price, where it stands."""
    fit = [o for o in case.offers if (o.system, o.market) == (bought.system, bought.market)]
    here = [o for o in fit if o.sites is None or bought.site in o.sites]
    if not here:
        raise AuditError(f"{bought.system} is not offered on {bought.market} at {bought.site}")
    paid = exact(bought.unit_price)
    return next((o for o in here if abs(price_of(o, bought.period) - paid) <= paid / 10**9), here[0])


def price_of(offer: Offer, period: int) -> Fraction:
    """Return USD (an hour, or to buy) of a whole system in a period."""
    later = [price for start, price in offer.later if start <= period]
    return exact(later[-1] if later else offer.price)


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
