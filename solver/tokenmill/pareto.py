"""Plans of a problem for which two objectives pull apart."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokenmill.errors import Mistake, ProblemError, SolverError
from tokenmill.problem import OBJECTIVES, Objective, Problem

if TYPE_CHECKING:
    from tokenmill.api import Found
    from tokenmill.catalog import Catalog
    from tokenmill.milp.sets import Sets
    from tokenmill.plan import Plan


PATIENCE = 120.0
"""Seconds for a whole front where no limit is given."""


@dataclass(frozen=True)
class FrontPoint:
    """A plan on the front: the values of both objectives (the plan's own first), and the plan."""

    objective: float
    against: float
    plan: Plan


def sets_of(problem: Problem, found: Found) -> Sets:
    """Return the programme's index sets for what was found.

    Raises
    ------
    ProblemError
        For workloads whose rate is an outcome: one programme does not hold them.
    """
    from tokenmill.milp.sets import build_sets

    if found.closed:
        name = sorted(found.closed)[0]
        raise ProblemError([Mistake(f"workload.{name}.demand", "requests in flight", "a rate of requests")])
    columns = [searched.columns for searched in found.searched]
    return build_sets(problem, columns, found.offers, found.arcs, found.demand, found.served, found.elastic)


def prepared(problem: Problem, catalog: Catalog | None) -> tuple[Problem, Found]:
    """Return the problem as it is planned, and all that stands before the programme."""
    from tokenmill import fleet
    from tokenmill.api import prepare

    problem = fleet.planned(problem)
    found = prepare(problem, catalog)
    fleet.adapt(problem, found)
    return problem, found


def pareto(
    problem: Problem,
    against: str,
    *,
    points: int = 9,
    time_limit: float | None = None,
    gap: float | None = None,
    catalog: Catalog | None = None,
) -> list[FrontPoint]:
    """Return the front of the problem's first objective and another, from the best of the one to the best of the other.

    `against`: an objective's name; `points`: the most points looked for, both ends among them; `time_limit` [s] of all:
    the problem's, else two minutes. No point where no plan works.

    Raises
    ------
    ProblemError
        For an objective that is none, is the problem's own, or means nothing here.
    """
    from tokenmill.api import evaluate_solution
    from tokenmill.milp.formulation import formulate
    from tokenmill.milp.front import front
    from tokenmill.milp.infeasible import without_columns
    from tokenmill.milp.solve import Wish
    from tokenmill.plan_build import build_plan

    first = problem.objectives[0]
    allowed = [name for name in OBJECTIVES if name != first.minimise]
    if against not in allowed:
        raise ProblemError([Mistake("--against", repr(against), ", ".join(allowed))])
    start = time.perf_counter()
    named = first.workload if against.startswith("cost_per_") else None
    other = Objective(against, named or _only(problem, against))
    asked = replace(problem, objectives=(first, other))
    worked, found = prepared(asked, catalog)
    sets = sets_of(worked, found)
    if without_columns(sets):
        return []
    limit = time_limit or problem.time_limit or PATIENCE
    wish = Wish(problem.gap if gap is None else gap, limit, 1, "highs", value_of_next=False)
    try:
        points_found = front(lambda: formulate(sets), other, wish, max(points, 2))
    except SolverError as error:
        raise ProblemError([Mistake("--against", repr(against), str(error))]) from error
    made = []
    for value, solution in points_found:
        plan = build_plan(asked, solution, found, evaluate_solution(found, solution), time.perf_counter() - start)
        made.append(FrontPoint(plan.objective.value or 0.0, value, plan))
    return made


def _only(problem: Problem, against: str) -> str | None:
    return problem.workloads[0].name if against.startswith("cost_per_") and len(problem.workloads) == 1 else None
