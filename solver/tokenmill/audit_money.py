"""The cost of a plan counted again, payment by payment, in exact arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from tokenmill.audit_case import Case, offer_of, price_of
from tokenmill.milp.solution import Purchase, RunStart
from tokenmill.offers import Offer
from tokenmill.problem import Site

HOUR, YEAR = Fraction(3600), Fraction(365 * 86400)


@dataclass(frozen=True)
class Counted:
    """Present value of payments less residuals [USD], and cash paid in each period [USD, undiscounted]."""

    cost: Fraction
    cash: list[Fraction]


def recount(case: Case) -> Counted:
    """Return a plan's cost and cash from its purchases, replicas, runs and refusals."""
    cash = [Fraction(0)] * case.problem.horizon.periods
    cost = Fraction(0)
    for bought in case.plan.purchases:
        if not bought.workload:
            paid, back = _payments(case, bought)
            for h, amount in paid.items():
                cash[h - 1] += amount
                cost += amount * _worth(case, h)
            cost -= back
    for h in range(1, len(cash) + 1):
        electricity = _electricity(case, h)
        cash[h - 1] += electricity
        cost += electricity * _worth(case, h)
    for run in case.plan.runs:
        paid_for_run = _run(case, run)
        cost += paid_for_run
        cash[_first_period(case, run) - 1] += paid_for_run
    return Counted(cost + _refused(case), cash)


def _worth(case: Case, period: int) -> Fraction:
    """Return the present value of a dollar at the start of a period."""
    return _worth_after(case, (period - 1) * case.length)


def _worth_after(case: Case, seconds: Fraction) -> Fraction:
    rate = case.problem.horizon.discount_rate
    return Fraction((1.0 + rate) ** -float(seconds / YEAR)) if rate else Fraction(1)


def _slices(case: Case, bought: Purchase) -> Fraction:
    """Return the share of the day that a purchase is for."""
    table = case.problem.horizon.slices
    return (
        sum((Fraction(v) for v in table.values()), Fraction(0))
        if bought.slice is None
        else Fraction(table[bought.slice])
    )


def _payments(case: Case, bought: Purchase) -> tuple[dict[int, Fraction], Fraction]:
    """Return USD paid by period for one entry, and the present value of what is got back."""
    offer, count = offer_of(case, bought), Fraction(bought.count)
    last = case.problem.horizon.periods
    if offer.kind == "buy":
        return _bought(case, offer, bought)
    if offer.kind == "reserve":
        term = Fraction(offer.commitment or 0.0)
        whole = term * max(1, ceil(case.length / term))
        rate = count * price_of(offer, bought.period) / HOUR
        covered = {
            h: min(case.length, whole - (h - bought.period) * case.length) for h in range(bought.period, last + 1)
        }
        paid = {h: rate * seconds for h, seconds in covered.items() if seconds > 0}
        if case.problem.horizon.commitments == "full":
            paid[last] = paid.get(last, Fraction(0)) + rate * max(
                Fraction(0), whole - (last - bought.period + 1) * case.length
            )
        return paid, Fraction(0)
    hours = _slices(case, bought) * case.length / HOUR
    return {h: count * price_of(offer, h) * hours for h in range(bought.period, bought.until + 1)}, Fraction(0)


def _bought(case: Case, offer: Offer, bought: Purchase) -> tuple[dict[int, Fraction], Fraction]:
    own = case.problem.hardware.ownership
    price = Fraction(bought.count) * price_of(offer, bought.period)
    begin = (bought.period - 1) * case.length
    age = min(Fraction(case.problem.horizon.duration) - begin, Fraction(own.life))
    yearly = price * Fraction(own.operations)
    paid = {h: yearly * min(case.length, age) / YEAR for h in range(bought.period, bought.until + 1)}
    paid[bought.period] += price
    value = price - price * (1 - Fraction(own.residual)) * age / Fraction(own.life)
    return paid, value * _worth_after(case, begin + age)


def _site(case: Case, name: str) -> Site:
    return next(s for s in case.problem.hardware.sites if s.name == name)


def _electricity(case: Case, h: int) -> Fraction:
    """Return USD of electricity in a period of own systems and of the pools on them."""
    total = Fraction(0)
    columns = case.pools()
    idle = {o.system: Fraction(o.chip_idle) for o in case.offers}
    names = list(case.problem.horizon.slices)
    for number, l in enumerate(names):
        seconds = Fraction(case.problem.horizon.slices[l]) * case.length
        for bought in case.plan.purchases:
            active = bought.period <= h <= bought.until and bought.slice in (None, l)
            if bought.market in ("buy", "owned") and active and not bought.workload:
                offer = offer_of(case, bought)
                watts = Fraction(bought.count) * (Fraction(offer.host_power) + offer.chips * Fraction(offer.chip_idle))
                total += watts * seconds * _tariff(case, bought.site, l)
        for running in case.plan.running:
            if (running.period, running.slice, running.tenure) != (h, l, "own"):
                continue
            column = columns[running.column]
            planned = Fraction(float(case.demand[column.workload][h - 1, number]))
            share = Fraction(float(case.served[column.workload][h - 1, number])) / planned if planned else Fraction(1)
            watts = Fraction(running.replicas) * (
                Fraction(column.power_idle) - Fraction(column.room) * idle[column.system]
            )
            for (b, p), rate in running.rates.items():
                extra = Fraction(column.points[p].power_loaded) - Fraction(column.power_idle)
                watts += Fraction(rate) / Fraction(column.points[p].rate[b]) * extra * share
            total += watts * seconds * _tariff(case, running.site, l)
    return total


def _tariff(case: Case, name: str, l: str) -> Fraction:
    """Return USD a joule of IT energy at a site in a slice, with PUE."""
    site = _site(case, name)
    return Fraction(site.electricity.get(l, site.electricity.get("all", 0.0))) * Fraction(site.pue)


def _run(case: Case, run: RunStart) -> Fraction:
    """Return USD of a run: rents by the hour, electricity where it stands on own systems."""
    seconds = Fraction(run.end) - Fraction(run.start)
    alone = [b for b in case.plan.purchases if b.workload == run.workload]
    paid = sum((Fraction(b.count) * Fraction(b.unit_price) * seconds / HOUR for b in alone), Fraction(0))
    if not any(tenure == "own" for _, tenure, _, _ in run.places):
        return paid
    column = case.columns()[run.workload, run.column]
    idle = {o.system: Fraction(o.chip_idle) for o in case.offers}
    watts = Fraction(column.power_loaded) - sum((n * idle[s] for s, _, _, n in run.places), Fraction(0))
    for bought in alone:
        offer = offer_of(case, bought)
        used = sum(n for s, n in column.footprint if s == bought.system)
        spare = max(Fraction(0), Fraction(bought.count) * offer.chips - used)
        watts += Fraction(bought.count) * Fraction(offer.host_power) + spare * Fraction(offer.chip_idle)
    table = case.problem.horizon.slices
    day = sum((Fraction(v) for v in table.values()), Fraction(0))
    tariff = sum((Fraction(share) / day * _tariff(case, run.site, l) for l, share in table.items()), Fraction(0))
    return paid + watts * seconds * tariff


def _first_period(case: Case, run: RunStart) -> int:
    return min(int(Fraction(run.start) // case.length) + 1, case.problem.horizon.periods)


def _refused(case: Case) -> Fraction:
    """Return USD of demand that is refused."""
    total, names = Fraction(0), list(case.problem.horizon.slices)
    shares = {w.workload: w.shares for w in case.workloads}
    for (workload, b, h, l), refused in case.plan.refused.items():
        rate = Fraction(float(case.served[workload][h - 1, names.index(l)])) * Fraction(shares[workload][b])
        seconds = Fraction(case.problem.horizon.slices[l]) * case.length
        total += rate * seconds * Fraction(refused) * Fraction(case.problem.limits.shed or 0.0) * _worth(case, h)
    return total
