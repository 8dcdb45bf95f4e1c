"""Three answers to one problem: the smallest hardware that does the work, the fastest, and the cheapest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokenmill.problem import Objective, Problem

if TYPE_CHECKING:
    from tokenmill.catalog import Catalog
    from tokenmill.plan import Plan
    from tokenmill.searches import Searches

SMALLEST, FASTEST, CHEAPEST = "smallest", "fastest", "cheapest"


@dataclass(frozen=True)
class Answer:
    """One of the answers: its name, and its plan (which may be infeasible)."""

    name: str
    plan: Plan

    @property
    def systems(self) -> str:
        """What the plan takes, in words: chips by system."""
        found: dict[str, float] = {}
        for pool in (pool for work in self.plan.workloads.values() for pool in work.pools):
            found[pool.system] = found.get(pool.system, 0.0) + pool.chips
        return ", ".join(f"{chips:g} chips of {system}" for system, chips in found.items())

    @property
    def wall_time(self) -> float | None:
        """The longest run of the plan [s]; None where nothing runs to an end."""
        times = [work.totals.get("wall_time") for work in self.plan.workloads.values()]
        return max((time for time in times if time is not None), default=None)


def answers(
    problem: Problem, *, time_limit: float | str | None = None, gap: float | None = None, catalog: Catalog | None = None
) -> list[Answer]:
    """Return the smallest, the fastest (of runs) and the cheapest plan of a problem, whatever its own objective.

    The smallest has the fewest bytes of memory on its chips, and of those the least cost; the fastest is the cheapest of its time.

    Raises
    ------
    ProblemError
        For what the problem asks and the product cannot do, in words.
    """
    from tokenmill.api import solve_found
    from tokenmill.searches import Searches

    searches = Searches()
    return [
        Answer(name, solve_found(asked, time_limit=time_limit, gap=gap, catalog=catalog, searches=searches)[0])
        for name, asked in _asked(problem, catalog, searches)
    ]


def _asked(problem: Problem, catalog: Catalog | None, searches: Searches) -> Iterator[tuple[str, Problem]]:
    from tokenmill.api import prepare

    found = prepare(problem, catalog, searches)
    cost, chips = Objective("cost"), Objective("chips")
    columns = [c for item in found.searched for role in item.columns.columns.values() for c in role]
    smallest = problem
    if len(problem.workloads) == 1 and columns:
        sizes = {c.key: c.chips * found.catalog.chip(found.catalog.system(c.system).chip).capacity for c in columns}
        least = min(columns, key=lambda c: (sizes[c.key], c.chips, c.key))
        smallest = replace(problem, hardware=replace(problem.hardware, systems=(least.system,)))
    yield SMALLEST, replace(smallest, objectives=(chips, cost))
    runs = [item.columns for item in found.searched if item.columns.kind == "run"]
    if runs:
        slowest = problem.objectives[0].workload or runs[0].workload
        yield FASTEST, replace(problem, objectives=(Objective("time", slowest), cost))
    yield CHEAPEST, replace(problem, objectives=(cost,))
