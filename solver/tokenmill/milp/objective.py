r"""What is minimised, each as one linear expression over the programme."""

from __future__ import annotations

import numpy as np

from tokenmill.errors import SolverError
from tokenmill.milp.constraints.limits import companies
from tokenmill.milp.constraints.runs import finish
from tokenmill.milp.money import discount
from tokenmill.milp.quantities import (
    Build,
    chips_in_hand,
    cost,
    count,
    energy,
    site_power,
)  # fmt: skip
from tokenmill.milp.ratio import Ratio
from tokenmill.milp.rows import Linear, total
from tokenmill.milp.sets import Sets
from tokenmill.milp.ways import mean_per_site, run_energy
from tokenmill.problem import Objective


def goal(build: Build, asked: Objective, number: int) -> Linear | Ratio:
    """Return the expression of an objective; a ratio where it is a cost per unit of a volume that may vary."""
    if asked.minimise not in ("cost_per_token", "cost_per_task") or not _elastic(build, asked):
        return objective(build, asked, number)
    most = units(build, asked)
    below, least = Linear({}, most), most
    for (w, b, h, l), index in build.variables.refused.items():
        refused = _units_of_class(build, asked, w, b) * build.sets.expected(w, h, l) * _worth(build.sets, h, l)
        below.add(index, -refused)
        least -= refused * build.programme.upper[index]
    return Ratio(cost(build), below, max(least, 0.0), most)


def _elastic(build: Build, asked: Objective) -> bool:
    return any(asked.workload in (None, build.sets.workloads[w].workload) for w, _, _, _ in build.variables.refused)


def _units_of_class(build: Build, asked: Objective, w: int, b: int) -> float:
    """Return units that a cost is divided by, of one unit/s of a workload's demand that is of class b."""
    workload = build.sets.workloads[w]
    if asked.workload not in (None, workload.workload):
        return 0.0
    one = (1.0,) * len(workload.shares) if asked.minimise == "cost_per_task" else ()
    each = workload.counts.get(f"{asked.minimise}.{asked.count}", one)
    return workload.shares[b] * each[b] if b < len(each) else 0.0


def objective(build: Build, asked: Objective, number: int) -> Linear:
    """Return the expression of an objective (see the functions below), peaks declared under `number`.

    Raises
    ------
    SolverError
        For an objective that means nothing here: a time without runs, a cost per unit of what yields no unit.
    """
    if asked.minimise == "cost":
        return cost(build)
    if asked.minimise in ("cost_per_token", "cost_per_task", "cost_per_run"):
        return Linear().plus(cost(build), 1.0 / units(build, asked))
    if asked.minimise == "time":
        return _time(build, asked, number)
    if asked.minimise in ("power", "chips"):
        return _peak(build, asked.minimise, number)
    if asked.minimise in ("energy", "carbon"):
        return weighted_energy(build, asked.minimise)
    raise SolverError(f"objective: found {asked.minimise!r}; not one of the programme's")


def _worth(sets: Sets, h: int, l: int) -> float:
    """Return seconds of a slice in a period, discounted as dollars are: what comes later counts less in both."""
    return sets.length(h, l) * discount(sets.problem.horizon, h)


def units(build: Build, asked: Objective) -> float:
    """Return tokens, tasks or runs over the horizon that a cost is divided by (of one workload, or of all).

    Units of pools are discounted period by period as their cost is (a levelised cost); a run is paid, and counts, at once.
    """
    sets, result = build.sets, 0.0
    for workload in sets.workloads:
        if asked.workload not in (None, workload.workload):
            continue
        if asked.minimise == "cost_per_run":
            result += 1.0 if workload.kind == "run" else 0.0
            continue
        one = (1.0,) * len(workload.shares) if asked.minimise == "cost_per_task" else ()
        per_unit = workload.counts.get(f"{asked.minimise}.{asked.count}", one)
        if workload.kind == "run":
            result += sum(per_unit)
            continue
        worth = np.array([[_worth(sets, h, l) for l in range(len(sets.slices))] for h in sets.periods])
        served = float((sets.served[workload.workload] * worth).sum())
        result += served * sum(share * each for share, each in zip(workload.shares, per_unit, strict=False))
    if result <= 0.0:
        raise SolverError(
            f"objective: {asked.minimise} of {asked.workload or 'any workload'} has no units to divide by"
        )
    return result


def _time(build: Build, asked: Objective, number: int) -> Linear:
    r"""Finish of the run, or of the last of all runs: :math:`\min \tau,\ \tau \ge S_w + T_w` (rows ``last``)."""
    names = [name for name in sorted(build.variables.start) if asked.workload in (None, name)]
    if not names:
        raise SolverError(f"objective: time means the end of a run; {asked.workload or 'the problem'} has none")
    last = build.programme.variable("peak", number, "time")
    for name in names:
        build.programme.row("last", number, name, left=finish(build, name).add(last, -1.0), sense="<=")
    return Linear({last: 1.0})


def _peak(build: Build, what: str, number: int) -> Linear:
    r"""Largest IT power [W] or most chips in hand: :math:`\min \pi,\ \pi \ge P_{h,l}` (rows ``peak``)."""
    peak = build.programme.variable("peak", number, what)
    for n, together in enumerate(companies(build)):
        for h, l in build.sets.moments:
            if what == "chips":
                left = chips_in_hand(build, h, l, together)
            else:
                left = total(site_power(build, i, h, l, together) for i in range(len(build.sets.sites)))
            build.programme.row("peak", number, n, h, l, left=left.add(peak, -1.0), sense="<=")
    return Linear({peak: 1.0})


def weighted_energy(build: Build, what: str) -> Linear:
    """Return facility energy [J] of everything over the horizon, or its carbon [kg]."""
    sets, result = build.sets, Linear()
    for h, l in sets.moments:
        for i, site in enumerate(sets.sites):
            weight = 1.0 if what == "energy" else sets.per_site(site.carbon, l)
            result.plus(energy(build, i, h, l, own=False), weight)
    for n, index in build.variables.taken.items():
        way = sets.ways[n]
        weight = 1.0 if what == "energy" else mean_per_site(build.sets, way.site, "carbon")
        result.add(index, run_energy(build.sets, way) * weight)
    return result


def chip_seconds(build: Build) -> Linear:
    """Return chips in hand times seconds, of stocks and of runs: the first tie-break (fewer chips)."""
    sets, result = build.sets, Linear()
    for h, l in sets.moments:
        result.plus(chips_in_hand(build, h, l, frozenset()), sets.length(h, l))
    for n, index in build.variables.taken.items():
        way = sets.ways[n]
        held = sum(a.units * sets.offers[a.offer].counted_chips for a in way.held)
        placed = sum(chips for _, chips in way.places)
        result.add(index, (held + placed) * (sets.columns[way.column].duration or 0.0))
    return result


def order_of_offers(build: Build) -> Linear:
    """Return a small weight on everything had, by its offer's and its site's place in canonical order: a tie-break by name."""
    had = [*build.variables.new.items(), *build.variables.rented.items()]
    return Linear({index: float(k + i + 1) for (k, i, *_), index in had})


def order_of_uses(build: Build) -> Linear:
    """Return a small weight on every use by its place in canonical order: the last tie-break (by name).

    Pools that do a whole unit's work come before those that pass it on: of plans alike, the simpler.
    """
    sets, result = build.sets, Linear()
    alone = {(w, route[0]) for w, each in enumerate(sets.workloads) for route in each.routes if len(route) == 1}
    for (n, _, _), index in build.variables.replicas.items():
        column = sets.uses[n].column
        simple = (sets.owner[column], sets.columns[column].role) in alone
        result.add(index, float(n + 1 + (0 if simple else len(sets.uses))))
    for n, index in build.variables.taken.items():
        result.add(index, float(n + 1))
    return result


def kinds(build: Build, most: dict[int, int]) -> Linear:
    r"""Return the number of kinds of systems in use: binary per system, :math:`y_k \le M o_k` (rows ``kind``)."""
    sets, programme = build.sets, build.programme
    result = Linear()
    for system in sorted({offer.system for offer in sets.offers}):
        used = programme.variable("kind", system, integer=True, upper=1.0)
        result.add(used)
        for k, offer in enumerate(sets.offers):
            if offer.system != system:
                continue
            for h, l in sets.moments:
                for i in range(len(sets.sites)):
                    left = count(build, k, i, h, l)
                    if left.terms:
                        programme.row("kind", k, i, h, l, left=left.add(used, -float(most[k])), sense="<=")
        for n, way in enumerate(sets.ways):
            if any(name == system for name, _ in sets.columns[way.column].footprint):
                programme.row(
                    "kind", "run", system, n, left=Linear({build.variables.taken[n]: 1.0, used: -1.0}), sense="<="
                )
    return result
