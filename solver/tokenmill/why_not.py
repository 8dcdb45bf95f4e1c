"""Why a system is left out of a plan: the price at which it would come in, or what stands in its way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import floor, log10
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.pareto import prepared, sets_of
from tokenmill.problem import HOUR, PriceOverride, Problem

if TYPE_CHECKING:
    from tokenmill.api import Found
    from tokenmill.catalog import Catalog
    from tokenmill.milp.quantities import Build
    from tokenmill.milp.rows import Arrays
    from tokenmill.milp.sets import Sets
    from tokenmill.offers import Offer

ROUNDS = 40
TIGHT = 1e-9
MARGIN = 1.5  # of the gap: at the price that is named a plan saves more than the gap leaves open
MONEY = ("cost", "cost_per_token", "cost_per_task", "cost_per_run")


@dataclass(frozen=True)
class Answer:
    """Why a system is not in a plan. `enters_at`, `now`: USD a chip-hour (to buy: a system) in `market`; None: no price.

    `worse`: by how much the objective is worse with at least one replica or run on it (its unit); None: none can be.
    """

    system: str
    market: str
    used: bool
    enters_at: float | None
    now: float | None
    worse: float | None
    text: str


def why_not(
    problem: Problem,
    system: str,
    *,
    time_limit: float | None = None,
    gap: float | None = None,
    catalog: Catalog | None = None,
) -> Answer:
    """Return why a system is left out: put at the price that is named into the problem, it comes in.

    The price is found as the largest ratio (best cost without it - all other cost) / (its chip-hours) over plans, by
    Dinkelbach's iteration on the programme: exact to the gap, not a dual.

    Raises
    ------
    CatalogError
        For a system that the catalogue does not know.
    """
    asked, market, own = _with_system(problem, system, catalog)
    worked, found = prepared(asked, catalog)
    name = found.catalog.system(system).id
    lacking = _no_columns(found, name)
    if lacking is not None:
        return Answer(name, market, False, None, None, None, f"{name}: {lacking}")
    sets = sets_of(worked, found)
    return _answer(sets, name, market, own, problem.gap if gap is None else gap, time_limit or problem.time_limit)


def by_workload(
    problem: Problem,
    system: str,
    *,
    time_limit: float | None = None,
    gap: float | None = None,
    catalog: Catalog | None = None,
) -> dict[str, Answer]:
    """Return, for each workload as if it were the only one, why a system is left out: its break-even price stage by stage."""
    answers = {}
    for workload in problem.workloads:
        objectives = tuple(
            each if each.workload in (None, workload.name) else replace(each, workload=workload.name)
            for each in problem.objectives
        )
        alone = replace(problem, workloads=(replace(workload, needs=()),), objectives=objectives)
        answers[workload.name] = why_not(alone, system, time_limit=time_limit, gap=gap, catalog=catalog)
    return answers


def notes(problem: Problem, system: str, **how: Any) -> list[str]:
    """Return in words why a system is left out: of the whole plan, then of each workload by itself."""
    said = [f"why not {system}? {why_not(problem, system, **how).text}"]
    if len(problem.workloads) > 1:
        alone = by_workload(problem, system, **how)
        said += [f"for {name} alone: {answer.text}" for name, answer in alone.items()]
    return said


def _with_system(problem: Problem, system: str, catalog: Catalog | None) -> tuple[Problem, str, bool]:
    """Return the problem that offers the system too, its market, and whether it had a price of its own there."""
    from tokenmill.api import catalog_for
    from tokenmill.offers import offers

    data = catalog_for(problem, catalog)
    name = data.system(system).id
    had, _ = offers(problem, data)
    names = tuple(sorted({*(offer.system for offer in had if offer.kind != "owned"), name}))
    asked = replace(problem, hardware=replace(problem.hardware, systems=names))
    markets = problem.hardware.markets
    priced = [o for o in offers(asked, data)[0] if o.system == name and o.kind != "owned"]
    if priced:
        rents = [o for o in priced if o.kind == "rent" and o.market != "spot"]
        return asked, (rents or priced)[0].market, True
    market = "on-demand" if "on-demand" in markets else markets[0]
    price = PriceOverride(name, market)
    price = replace(price, purchase=HOUR) if market == "buy" else replace(price, per_chip_hour=1.0)
    hardware = replace(asked.hardware, prices=(*asked.hardware.prices, price))
    return replace(asked, hardware=hardware), market, False


def _no_columns(found: Found, name: str) -> str | None:
    """Return what keeps every workload off a system, None where some role of some workload can stand on it."""
    reasons: list[str] = []
    for searched in found.searched:
        columns = [c for own in searched.columns.columns.values() for c in own]
        if any(name in dict(column.footprint) for column in columns):
            return None
        workload = searched.columns.workload
        if name in searched.left_out:
            reasons.append(f"{workload}: {searched.left_out[name]}")
        dropped = sorted((d for d in searched.columns.dropped if d.system == name), key=lambda d: -d.count)
        if dropped:
            short = (
                ""
                if dropped[0].shortfall is None
                else f", nearest short by {dropped[0].shortfall:.4g} {dropped[0].unit}"
            )
            reasons.append(f"no layout of {workload} passes {dropped[0].rule}{short}")
    return "; ".join(reasons) or "a better layout on it is beaten by nothing, and none was found"


def _answer(sets: Sets, name: str, market: str, own: bool, gap: float, time_limit: float | None) -> Answer:
    from tokenmill.milp.narrow import solve_narrowed, systems_of, without

    build, fixed, hours, now = _split(sets, name, market)
    systems = systems_of(build)

    def least(arrays: Arrays) -> tuple[float | None, NDArray[np.float64] | None]:
        outcome = solve_narrowed(arrays, systems, time_limit=time_limit, gap=TIGHT)
        return outcome.objective, outcome.values

    best, _ = least(without(fixed, systems, frozenset([name])))
    forced, _ = least(_using(_at(fixed, hours, now), build, name))
    worse = None if forced is None or best is None else forced - best
    if best is None:
        return Answer(name, market, forced is not None, None, now, None, f"{name}: without it no plan works")
    used = own and worse is not None and worse < 0.0
    if forced is None:
        return Answer(
            name, market, False, None, now, None, f"{name}: no plan with it meets the limits, whatever its price"
        )
    unit, has = ("system" if market == "buy" else "chip-hour"), (f" in place of ${now:.6g}" if own else "")
    money = sets.problem.objectives[0].minimise in MONEY
    comes_in = f"{name}: at ${now:.6g} ({market}) it comes in; without it the objective is {-(worse or 0.0):.6g} worse"
    if used and not (money and hours.any()):
        return Answer(name, market, True, None, now, worse, comes_in)
    if not money or not hours.any():
        return Answer(
            name, market, False, None, now, worse, f"{name}: with it the objective is at least {worse:.6g} worse"
        )
    price, amount = _break_even(best, hours, lambda price: least(_at(fixed, hours, price)))
    if amount <= 0.0:
        text = f"{name}: it would not come in for nothing; with it the objective is {worse:.6g} worse"
        return Answer(name, market, False, None, now, worse, text)
    shown = _below(max(price - MARGIN * gap * abs(best) / amount, 0.0) or price)
    if used:
        text = f"{comes_in}; some of it would come in up to ${shown:.6g} a {unit}"
        return Answer(name, market, True, shown, now, worse, text)
    text = f"{name} would come in at ${shown:.6g} a {unit} ({market}){has}"
    return Answer(name, market, False, shown, now if own else None, worse, text)


def _break_even(
    best: float, hours: NDArray[np.float64], least: Callable[[float], tuple[float | None, NDArray[np.float64] | None]]
) -> tuple[float, float]:
    """Return the price at which the best plan with a system costs as much as the best without, and the amount it then takes."""
    price, amount = 0.0, 0.0
    for _ in range(ROUNDS):
        value, values = least(price)
        if value is None or values is None or value >= best - 1e-7 * abs(best):
            break
        amount = float(hours @ values)
        if amount <= 0.0:
            break
        price = (best - (value - price * amount)) / amount
    return price, amount


def _split(sets: Sets, name: str, market: str) -> tuple[Build, Arrays, NDArray[np.float64], float]:
    """Return the programme with the system free in its market, what a dollar a chip-hour (a system bought) adds, its price now."""
    from tokenmill.milp.formulation import formulate
    from tokenmill.milp.objective import objective

    def priced(price: float) -> tuple[Build, Arrays]:
        offers = tuple(
            _priced(offer, price) if (offer.system, offer.market) == (name, market) else offer for offer in sets.offers
        )
        build = formulate(replace(sets, offers=offers)).build
        return build, build.programme.arrays(objective(build, sets.problem.objectives[0], 0))

    build, free = priced(0.0)
    _, one = priced(1.0)
    mine = [o for o in sets.offers if (o.system, o.market) == (name, market)]
    now = min((o.price / (1 if market == "buy" else o.chips) for o in mine), default=0.0)
    return build, free, one.cost - free.cost, now


def _priced(offer: Offer, price: float) -> Offer:
    whole = price * (1 if offer.kind == "buy" else offer.chips)
    return replace(offer, price=whole, later=())


def _at(free: Arrays, hours: NDArray[np.float64], price: float) -> Arrays:
    return replace(free, cost=free.cost + hours * price)


def _using(arrays: Arrays, build: Build, name: str) -> Arrays:
    """Return the programme with a row more: at least one replica or run stands on the system."""
    from tokenmill.milp.narrow import with_row

    sets, made = build.sets, build.variables
    index = [i for (n, _, _), i in made.replicas.items() if sets.columns[sets.uses[n].column].system == name]
    index += [i for n, i in made.taken.items() if name in dict(sets.columns[sets.ways[n].column].footprint)]
    return with_row(arrays, dict.fromkeys(sorted(index), 1.0), 1.0)


def _below(value: float) -> float:
    """Return a number with five significant digits, not above the value."""
    if value <= 0.0:
        return 0.0
    unit = 10.0 ** (floor(log10(value)) - 4)
    return floor(value / unit) * unit
