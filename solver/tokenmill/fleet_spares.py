"""Spare systems of runs: as many beside a run's own as the availability asked needs, from failures and repair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, Any

from tokenmill.milp.constraints.spares import usable
from tokenmill.problem import Problem

if TYPE_CHECKING:
    from tokenmill.candidates.columns import Column
    from tokenmill.candidates.search import Searched
    from tokenmill.offers import Offer
    from tokenmill.plan import Plan


def with_spares(problem: Problem, searched: Searched, offers: Sequence[Offer]) -> Searched:
    """Return the search with the spare systems of every run in its footprint, idle until they are needed.

    Nothing changes where no availability is asked. A run of n systems gets k more, the fewest with
    P(Binomial(n + k, a) >= n) >= the availability; a: share of time in which all chips of a system work.
    """
    asked = problem.limits.availability
    if asked is None:
        return searched
    by_system = {offer.system: offer for offer in offers}

    def wide(column: Column) -> Column:
        if column.kind != "run":
            return column
        more = {
            system: spare_chips(by_system[system], chips, asked)
            for system, chips in column.footprint
            if system in by_system
        }
        footprint = tuple((system, chips + more.get(system, 0)) for system, chips in column.footprint)
        idle = sum(chips * by_system[system].chip_idle for system, chips in more.items())
        return replace(column, footprint=footprint, power_loaded=column.power_loaded + idle)

    columns = {role: tuple(wide(column) for column in own) for role, own in searched.columns.columns.items()}
    return replace(searched, columns=replace(searched.columns, columns=columns))


def spare_chips(offer: Offer, chips: int, availability: float) -> int:
    """Return chips of the whole systems that stand by for a run on `chips` chips."""
    share = 1.0 / (1.0 + offer.chip_outage * offer.chips)
    return spare_systems(ceil(chips / offer.chips), share, availability) * offer.chips


@cache
def spare_systems(needed: int, share: float, availability: float) -> int:
    """Return the fewest systems beyond `needed` so that these stand together with a probability of `availability`."""
    spare = 0
    while usable(needed + spare, share, availability) < needed:
        spare += 1
    return spare


def told(
    plan: Plan, problem: Problem, columns: Mapping[str, Column], runs: Sequence[Any], offers: Sequence[Offer]
) -> Plan:
    """Return a plan whose runs tell the systems that stand by for them, among the totals and in the trace."""
    from tokenmill.trace import row, total

    asked = problem.limits.availability
    if asked is None:
        return plan
    by_system = {offer.system: offer for offer in offers}
    workloads, trace = dict(plan.workloads), dict(plan.trace)
    for run in runs:
        column = columns[run.column]
        own = {
            system: sum(p.chips for p in column.parts or (column,) if p.system == system)
            for system, _ in column.footprint
        }
        spare = {system: (chips - own[system]) // by_system[system].chips for system, chips in column.footprint}
        made = workloads[run.workload]
        workloads[run.workload] = replace(made, totals={**made.totals, "spare_systems": sum(spare.values())})
        rows = [
            row(f"spares of {system}", float(count), "1", "limits.availability",
                f"fewest k with P(Binomial(n + k, a) >= n) >= {asked:g}, n = {ceil(own[system] / by_system[system].chips)}, "
                f"a = 1/(1 + {by_system[system].chip_outage * by_system[system].chips:.4g})", "guess")
            for system, count in spare.items()
        ]  # fmt: skip
        trace[f"{run.workload}.spare_systems"] = total(
            "spare_systems", f"systems that stand by for {run.workload}", "1", rows, float(sum(spare.values()))
        )
    return replace(plan, workloads=workloads, trace=trace)
