"""Workloads whose clients keep a number of requests in flight: the rate of requests is an outcome of the layout.

The programme plans for a rate. So every layout that is left is solved for the rate that it gives, and the best answer stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.errors import Mistake, ProblemError

if TYPE_CHECKING:
    from tokenmill.candidates.columns import Column, WorkloadColumns
    from tokenmill.candidates.search import Searched
    from tokenmill.problem import Problem, Workload
    from tokenmill_models.stage import StageModel

REPLICAS = "layout.replicas"
MOST = 512
"""Layouts, over all closed-loop workloads, that are solved one by one."""
BELOW = 1.0 - 1e-9
"""Keeps a replica's own rate from exceeding it by rounding."""


def closed(workload: Workload, stage: StageModel) -> str | None:
    """Return the key under which a workload states its requests in flight, None where it states a rate."""
    key = stage.demand.closed if stage.demand else None
    return key if key and workload.values.get(key) else None


def replicas(workload: Workload) -> int:
    """Return the replicas that a closed-loop workload is spread over: those held, else one."""
    return int(max(workload.held.get(REPLICAS, (1,))))


def a_replica(workload: Workload, stage: StageModel) -> Workload:
    """Return a workload with the requests in flight of one of its replicas (an open one as it is)."""
    key = closed(workload, stage)
    if key is None:
        return workload
    return replace(workload, values={**workload.values, key: workload.values[key] / replicas(workload)})


def cases(
    problem: Problem, searched: list[Searched], stages: Mapping[str, StageModel]
) -> Iterator[tuple[list[Searched], dict[str, Any]]]:
    """Yield, for each choice of a layout of every closed-loop workload, the columns left and the demand [units/s] that follows.

    Raises
    ------
    ProblemError
        Where so many layouts are left that solving each would not end.
    """
    loops = [
        at for at, item in enumerate(searched)
        if closed(_workload(problem, item), stages[item.columns.workload]) and any(item.columns.columns.values())
    ]  # fmt: skip
    choices = [_alone(searched[at].columns) for at in loops]
    number = int(np.prod([len(choice) for choice in choices], dtype=float))
    if number > MOST:
        where = f"workload.{searched[loops[0]].columns.workload}.layout"
        raise ProblemError(
            [Mistake(where, f"{number} layouts in a closed loop", f"at most {MOST}: hold more of the layout")]
        )
    for chosen in product(*choices):
        left, demand = list(searched), dict[str, Any]()
        for place, (role, column) in zip(loops, chosen, strict=True):
            kept = {name: (column,) if name == role else () for name in searched[place].columns.columns}
            left[place] = replace(searched[place], columns=replace(searched[place].columns, columns=kept))
            demand[searched[place].columns.workload] = _demand(problem, searched[place], column)
        yield left, demand


def _alone(found: WorkloadColumns) -> list[tuple[str, Column]]:
    """Return the columns, with their role, of the pools that serve a unit alone."""
    roles = [route[0] for route in found.routes if len(route) == 1]
    if not roles:
        at, asked = f"workload.{found.workload}", " then ".join(found.routes[0])
        raise ProblemError(
            [Mistake(at, f"a closed loop through {asked}", "a closed loop on one pool that does all of it")]
        )
    columns = [(role, column) for role in roles for column in found.columns.get(role, ())]
    return columns or [(roles[0], column) for held in found.columns.values() for column in held[:1]]


def _workload(problem: Problem, searched: Searched) -> Workload:
    return next(w for w in problem.workloads if w.name == searched.columns.workload)


def _demand(problem: Problem, searched: Searched, column: Column) -> np.ndarray[Any, Any]:
    """Return the rate [units/s] that a column's replicas give, over periods and slices: classes share their time."""
    points = [max(point.rate[at] for point in column.points) for at in range(len(searched.columns.shares))]
    busy = sum(
        share / rate if rate > 0 else np.inf for share, rate in zip(searched.columns.shares, points, strict=True)
    )
    hardware = problem.hardware
    idle = hardware.ownership.maintenance if "buy" in hardware.markets or hardware.owned else 0.0
    rate = replicas(_workload(problem, searched)) / busy * BELOW * (1.0 - idle)
    return np.full((problem.horizon.periods, len(problem.horizon.slices)), rate)
