"""The programme's table of contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tokenmill.candidates.columns import WorkloadColumns
from tokenmill.milp.clock import Clock
from tokenmill.milp.constraints.capacity import capacity_rows
from tokenmill.milp.constraints.demand import demand_rows, load_rows, replica_rows, route_rows
from tokenmill.milp.constraints.flows import flow_rows
from tokenmill.milp.constraints.limits import chip_rows, money_rows, order_rows, power_rows, spot_rows, supply_rows
from tokenmill.milp.constraints.runs import run_rows
from tokenmill.milp.constraints.spares import spare_rows
from tokenmill.milp.eased import answer_eased
from tokenmill.milp.few import answer_of_few
from tokenmill.milp.quantities import Build
from tokenmill.milp.rows import Programme
from tokenmill.milp.sets import ArcLike, Sets, build_sets
from tokenmill.milp.solution import Solution
from tokenmill.milp.solve import Formulation, Wish, answer
from tokenmill.milp.variables import declare
from tokenmill.offers import Offer
from tokenmill.problem import Problem


def formulate(sets: Sets, programme: Programme | None = None) -> Formulation:
    """Record every decision and every constraint, in a programme of its own or in the part of one."""
    programme = Programme() if programme is None else programme
    build = Build(programme, sets, declare(programme, sets))
    demand_rows(build)
    route_rows(build)
    spare_rows(build)
    load_rows(build)
    replica_rows(build)
    notes = capacity_rows(build)
    sent = flow_rows(build)
    run_rows(build)
    money_rows(build)
    chip_rows(build)
    power_rows(build)
    spot_rows(build)
    supply_rows(build)
    order_rows(build)
    if build.variables.start and any(len(way.places) for way in sets.ways):
        notes.append("a run on shared systems holds them for every period that it touches, whole")
    return Formulation(build, sent, tuple(notes))


def solve_programme(
    problem: Problem,
    columns: Sequence[WorkloadColumns],
    offers: Sequence[Offer],
    arcs: Sequence[ArcLike] = (),
    *,
    demand: Mapping[str, NDArray[np.float64]],
    served: Mapping[str, NDArray[np.float64]] | None = None,
    elastic: Mapping[str, float] | None = None,
    time_limit: float | None = None,
    gap: float | None = None,
    threads: int = 1,
    solver: str = "highs",
    value_of_next: bool = True,
    alternatives: int = 0,
) -> Solution:
    """Return the plan that a problem's objectives ask for, proven to `gap`, or why there is none.

    `demand`: for each workload of pools, units/s to plan for, (period, slice) with the slices in the horizon's order;
    `served`: those expected (without head-room), the same where absent. `solver`: highs, or cbc where it is installed.
    `elastic`: workload to the least share of its demand that must be served, where that is not all.
    `value_of_next`: re-solve for what one step more of each binding limit saves, as far as time allows;
    `alternatives`: so many of the next best plans that differ in kinds of hardware.

    Raises
    ------
    AuditError
        Where the plan does not pass its re-check.
    SolverError
        For an objective without meaning here, or input that the solver refuses.
    """
    wish = Wish(
        gap=problem.gap if gap is None else gap,
        time_limit=problem.time_limit if time_limit is None else time_limit,
        threads=threads,
        solver=solver,
        value_of_next=value_of_next,
        alternatives=alternatives,
    )

    def sets_of(asked: Problem) -> Sets:
        return build_sets(asked, columns, offers, arcs, demand, served or demand, elastic)

    if problem.scenarios:
        from tokenmill.milp.scenarios import answer_futures

        return answer_futures(sets_of(problem), wish)
    clock = Clock(wish.time_limit)
    eased = answer_eased(problem, columns, sets_of, formulate, wish)
    if eased is not None:
        return eased
    sets = sets_of(problem)
    found = answer(sets, lambda: formulate(sets), replace(wish, time_limit=clock.left()))
    return answer_of_few(sets, formulate, found, wish) if found.termination.status == "unknown" else found
