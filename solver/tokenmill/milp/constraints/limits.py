r"""Limits of the user's and of the market: money, chips, power, supply, spot share, orders."""

from __future__ import annotations

from math import inf, isfinite

from tokenmill.milp.quantities import (
    Build,
    chips_in_hand,
    cost,
    count,
    energy_cost,
    held_units,
    holding,
    payments,
    site_power,
)  # fmt: skip
from tokenmill.milp.rows import Linear, Requirement, total
from tokenmill.milp.ways import run_cost
from tokenmill.offers import most_of


def companies(build: Build) -> tuple[frozenset[str], ...]:
    """Return the maximal sets of runs that may go on together (one empty set where there are none)."""
    return build.sets.together or (frozenset(),)


def money_rows(build: Build) -> None:
    r"""Cash over the horizon and in each period, and the accounting cost.

    .. math:: \sum_h \Pi_h \le B, \qquad \Pi_h \le B_h, \qquad C \le \bar C

    | symbol | meaning | unit |
    |---|---|---|
    | Pi_h | payments of a period: purchases, commitments, rents, operations, electricity (undiscounted) | USD |
    | C | present value of payments less residuals | USD |

    A run's payments count in every period that it touches (``budget_per_period``). Rows ``budget``, ``cash``, ``cost``.
    Dual: saved by a dollar more.
    """
    limits, sets = build.sets.problem.limits, build.sets
    paid = {h: payments(build, h).plus(energy_cost(build, h)) for h in sets.periods}
    runs = Linear({index: run_cost(build.sets, sets.ways[n]) for n, index in build.variables.taken.items()})
    cure = "raise the limit, lower the demand, or allow cheaper systems and markets"
    if limits.budget is not None:
        asked = Requirement("limits.budget", "budget", "USD", cure, step=0.1 * limits.budget)
        left = total(paid.values()).plus(runs)
        build.programme.row("budget", left=left, sense="<=", right=limits.budget, requirement=asked)
    if limits.budget_per_period is not None:
        asked = Requirement(
            "limits.budget_per_period", "budget of a period", "USD", cure, step=0.1 * limits.budget_per_period
        )
        for h in sets.periods:
            left = Linear().plus(paid[h])
            for n, way in enumerate(sets.ways):
                left.plus(holding(build, n, h), run_cost(build.sets, way))
            build.programme.row("cash", h, left=left, sense="<=", right=limits.budget_per_period, requirement=asked)
    if limits.cost is not None:
        asked = Requirement("limits.cost", "cost", "USD", cure, step=0.1 * limits.cost)
        build.programme.row("cost", left=cost(build), sense="<=", right=limits.cost, requirement=asked)


def chip_rows(build: Build) -> None:
    r"""Chips in hand at any moment: :math:`\sum_k \text{chips}_k y_k \le \text{limit}`.

    Whole systems count whole. Rows ``limit_chips`` by (runs, moment). Dual: saved by one chip more.
    """
    limit = build.sets.problem.limits.chips
    if limit is None:
        return
    step = float(max((offer.unit_chips for offer in build.sets.offers), default=1))
    asked = Requirement("limits.chips", "chips", "chip", "allow more chips", step=step)
    for number, together in enumerate(companies(build)):
        for h, l in build.sets.moments:
            left = chips_in_hand(build, h, l, together)
            build.programme.row(
                "limit_chips", number, h, l, left=left, sense="<=", right=float(limit), requirement=asked
            )


def power_rows(build: Build) -> None:
    r"""IT power at each site and of all sites, with every replica loaded.

    .. math:: \sum_k (p^{host}_k + n_k p^{idle}_k) y_k + \sum_c \Big( (p^{idle}_c - g_c p^{idle}_k)\, x_c +
       \sum_p (p^{load}_{c,p} - p^{idle}_c)\, t_{c,p} \Big) \le P

    | symbol | meaning | unit |
    |---|---|---|
    | y, x, t | systems in hand, replicas, replicas set to a point (variables) | 1 |
    | p | draw of a host, of an idle chip, of a replica idle and loaded | W |

    Rows ``site_power`` by (site, runs, moment), ``power`` by (runs, moment). Dual: saved by a watt more.
    """
    sets = build.sets
    step = max((o.unit_power + (o.chip_tdp - o.chip_idle) * o.unit_chips for o in sets.offers), default=0.0)
    cure = "raise the power limit, or allow systems that do more a watt"
    for number, together in enumerate(companies(build)):
        for h, l in sets.moments:
            watts = {i: site_power(build, i, h, l, together) for i in range(len(sets.sites))}
            for i, site in enumerate(sets.sites):
                if isfinite(site.power):
                    asked = Requirement(
                        f"hardware.site.{site.name}.power", f"power at {site.name}", "W", cure, step=step
                    )
                    build.programme.row(
                        "site_power", i, number, h, l, left=watts[i], sense="<=", right=site.power, requirement=asked
                    )
            if sets.problem.limits.power is not None:
                asked = Requirement("limits.power", "power", "W", cure, step=step)
                left = total(watts.values())
                build.programme.row(
                    "power", number, h, l, left=left, sense="<=", right=sets.problem.limits.power, requirement=asked
                )


def spot_rows(build: Build) -> None:
    r"""Spot chips are at most a share of all: :math:`\sum_{k\in spot} n_k y_k \le \sigma \sum_k n_k y_k`.

    What runs rent for themselves counts where it is spot alone: they may end before a period does. Rows ``spot`` by (runs,
    moment). Dual: saved by one spot chip more.
    """
    share = build.sets.problem.limits.spot_share
    if share is None:
        return
    asked = Requirement("limits.spot_share", "spot share", "chip", "allow a larger share of spot, or other markets")
    for number, together in enumerate(companies(build)):
        for h, l in build.sets.moments:
            spot = chips_in_hand(build, h, l, together, spot=True)
            lasting = chips_in_hand(build, h, l, frozenset()).plus(
                chips_in_hand(build, h, l, frozenset(), spot=True), -1.0
            )
            left = Linear().plus(spot, 1.0 - share).plus(lasting, -share)
            if left.terms:
                build.programme.row("spot", number, h, l, left=left, sense="<=", requirement=asked)


def supply_rows(build: Build) -> None:
    r"""No more systems than can be had: :math:`\sum_{q,i} y_{k,i,q,h,l} \le A_{k,h}`, owned ones beside it.

    Rows ``supply`` by (system, runs, moment), ``owned`` by (offer, moment). Dual: saved by one system more.
    """
    sets = build.sets
    for system in sorted({offer.system for offer in sets.offers}):
        cure = f"find more {system}, wait longer, or allow other systems"
        asked = Requirement(f"hardware.supply.{system}", f"supply of {system}", "system", cure, step=1.0)
        for number, together in enumerate(companies(build)):
            for h, l in sets.moments:
                most = most_of(sets.problem, system, h)
                if most < inf:
                    left = _systems(build, system, h, l, together)
                    if left.terms:
                        build.programme.row(
                            "supply", system, number, h, l, left=left, sense="<=", right=most, requirement=asked
                        )
    for k, offer in enumerate(sets.offers):
        if offer.at_most is None or len(sets.sites) == 1:
            continue
        for h, l in sets.moments:
            left = total(count(build, k, i, h, l) for i in range(len(sets.sites)))
            if left.terms:
                asked = Requirement(f"hardware.owned.{offer.system}", f"owned {offer.system}", "system",
                                    "allow systems that are bought or rented", step=1.0)  # fmt: skip
                build.programme.row(
                    "owned", k, h, l, left=left, sense="<=", right=float(offer.at_most), requirement=asked
                )


def _systems(build: Build, system: str, h: int, l: int, together: frozenset[str]) -> Linear:
    """Return systems in hand that had to be found (all but owned ones)."""
    left = Linear()
    for k, offer in enumerate(build.sets.offers):
        if offer.system == system and offer.kind != "owned":
            whole = offer.unit_chips / offer.chips
            for i in range(len(build.sets.sites)):
                left.plus(count(build, k, i, h, l), whole)
            left.plus(held_units(build, k, None, h, together), whole)
    return left


def order_rows(build: Build) -> None:
    r"""An order is nothing, or at least the smallest order: :math:`m_k o \le n \le M o`, o binary.

    | symbol | meaning | unit |
    |---|---|---|
    | n, o | units ordered at a site in a period (slice), whether at all (variables) | 1 |
    | m, M | smallest order, more than any plan needs | 1 |

    Rows ``order_least``, ``order_most`` by (offer, site, moment). Dual: what the smallest order costs.
    """
    sets, programme = build.sets, build.programme
    wanted = [*build.variables.new.items(), *build.variables.rented.items()]
    for label, index in wanted:
        offer = sets.offers[label[0]]
        if offer.minimum <= 0:
            continue
        least = offer.minimum * offer.chips // offer.unit_chips
        ordered = programme.variable("ordered", *label, integer=True, upper=1.0)
        asked = Requirement(f"hardware.supply.{offer.system}.minimum_order", f"smallest order of {offer.system}",
                            "system", "allow smaller orders, or other systems", relax=offer.chips / offer.unit_chips)  # fmt: skip
        left = Linear({ordered: float(least), index: -1.0})
        programme.row("order_least", *label, left=left, sense="<=", requirement=asked)
        most = float(max(least, enough(build, label[0])))
        programme.row("order_most", *label, left=Linear({index: 1.0, ordered: -most}), sense="<=")


def enough(build: Build, k: int) -> int:
    """Return units of an offer beyond which no plan needs more: all demand on its worst column, and every run."""
    sets, offer = build.sets, build.sets.offers[k]
    chips = 0.0
    for w, workload in enumerate(sets.workloads):
        here = [c for c, n in zip(sets.columns, sets.owner, strict=True) if n == w and c.system == offer.system]
        if workload.kind == "run":
            chips += max((sum(g for s, g in c.footprint if s == offer.system) for c in here), default=0) + offer.chips
            continue
        peak = float(sets.demand[workload.workload].max(initial=0.0))
        for column in here:
            rates = [r for point in column.points for r in point.rate if r > 0.0]
            if rates:
                domains = -(-column.chips // offer.domain)
                chips += (peak / min(rates) + len(workload.classes) + 1) * domains * offer.domain
    return int(chips / offer.unit_chips) + 2
