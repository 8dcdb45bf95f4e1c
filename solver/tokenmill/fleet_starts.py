"""When the demand of a pool begins: at its start, and after the runs that it needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tokenmill.errors import Mistake
from tokenmill.milp.sets import before
from tokenmill.problem import Problem

ROUNDING, DAY = 1e-9, 86400.0


def due(problem: Problem, pools: Iterable[str]) -> Problem:
    """Return the problem in which runs that a pool needs, and that have no deadline, are due when the pool starts."""
    needed = before(problem)
    starts = {w.name: w.starts for w in problem.workloads}
    latest: dict[str, float] = {}
    for pool in pools:
        for run in needed[pool] if starts[pool] > 0.0 else ():
            latest[run] = min(latest.get(run, float("inf")), starts[pool])
    if not latest:
        return problem
    return replace(
        problem,
        workloads=tuple(
            replace(w, deadline=latest[w.name]) if w.deadline is None and w.name in latest else w
            for w in problem.workloads
        ),
    )


def begun(problem: Problem, name: str, rates: NDArray[np.float64]) -> tuple[NDArray[np.float64], Mistake | None]:
    """Return the demand of a pool (period, slice) from the first period on that begins once it has started and its runs are due.

    With it a note where demand is planned for all the same: a run without a deadline, or no period that begins late enough.
    """
    workloads = {w.name: w for w in problem.workloads}
    runs = [workloads[run] for run in sorted(before(problem)[name])]
    key, length = f"workload.{name}.needs", problem.horizon.duration / problem.horizon.periods
    begins = max([workloads[name].starts, *(run.deadline or 0.0 for run in runs)])
    late = np.arange(problem.horizon.periods) * length < begins - ROUNDING * length
    open_ended = [run.name for run in runs if run.deadline is None]
    if open_ended:
        said = f"{', '.join(open_ended)} without a deadline: demand is planned for all the same"
        return rates, Mistake(key, said, f"a deadline of what it needs, or starts of {name}")
    if late.all():
        said = f"no period that begins after {begins / DAY:g} days: demand is planned for all the same"
        return rates, Mistake(key, said, "more periods, to begin later")
    return np.where(late[:, None], 0.0, rates), None
