"""Two objectives against one another: the plans that no other plan beats in both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.clock import Clock
from tokenmill.milp.highs import Outcome, fixed, solve_arrays
from tokenmill.milp.narrow import solve_narrowed, systems_of
from tokenmill.milp.objective import objective
from tokenmill.milp.rows import Arrays, Linear
from tokenmill.milp.solution import Solution
from tokenmill.milp.solve import Best, Formulation, Wish, checked
from tokenmill.problem import Objective

SAME = 1e-7
"""Relative: points nearer than this are one."""


def front(
    formulate: Callable[[], Formulation], against: Objective, wish: Wish, points: int
) -> list[tuple[float, Solution]]:
    """Return (value of `against`, plan) from the best of the first objective to the best of the other.

    Epsilon-constraint (Haimes 1971): the ends are exact (each objective alone, the other next), between them the
    other's bound moves in equal steps on the one programme; each point is best in its first objective, then in the other.
    The time limit is shared out over the solves. Those between begin with the best plan of the other objective, which keeps
    every bound on it.
    """
    made = formulate()
    build, clock = made.build, Clock(wish.time_limit)
    asked = build.sets.problem.objectives[0]
    both = objective(build, asked, 0), objective(build, against, 1)
    for number, each in enumerate(both):
        build.programme.row("front", number, left=each, sense="<=", right=0.0)
    arrays = (build.programme.arrays(both[0]), build.programme.arrays(both[1]))
    systems = systems_of(build)
    solves = 2 * max(points, 2)

    def least(which: int, most: tuple[float, float], start: NDArray[np.float64] | None) -> Outcome:
        nonlocal solves
        left, solves = clock.left(), solves - 1
        limit = None if left is None else max(0.1, left / (solves + 1))
        bounded = _bounded(arrays[which], both, most)
        return solve_narrowed(bounded, systems, time_limit=limit, gap=wish.gap, threads=wish.threads, start=start)

    def point(
        first: int, most: float, start: NDArray[np.float64] | None = None
    ) -> tuple[Outcome, NDArray[np.float64]] | None:
        bound = (inf, most) if first == 0 else (most, inf)
        one = least(first, bound, start)
        if one.values is None or one.objective is None:
            return None
        held = one.objective + 1e-9 * abs(one.objective)
        two = least(1 - first, (held, bound[1]) if first == 0 else (bound[0], held), None)
        return one, one.values if two.values is None else two.values

    ends = point(0, inf), point(1, inf)
    if ends[0] is None or ends[1] is None:
        return []
    found = [ends[0]]
    high, low = both[1].value(ends[0][1]), both[1].value(ends[1][1])
    for step in range(1, points - 1):
        between = point(0, high + (low - high) * step / (points - 1), ends[1][1])
        if between is not None:
            found.append(between)
    solved = [_solution(made, both, arrays[0], outcome, values) for outcome, values in [*found, ends[1]]]
    return _distinct(solved)


def _bounded(arrays: Arrays, both: tuple[Linear, Linear], most: tuple[float, float]) -> Arrays:
    """Return the programme with its last two rows at these bounds on the two objectives."""
    upper = arrays.row_upper.copy()
    upper[-2:] = [bound - each.constant for bound, each in zip(most, both, strict=True)]
    return replace(arrays, row_upper=upper)


def _solution(
    made: Formulation, both: tuple[Linear, Linear], arrays: Arrays, outcome: Outcome, values: NDArray[np.float64]
) -> tuple[float, Solution]:
    """Return a point as a checked plan, its continuous rest solved again with the integers as they are."""
    most = both[1].value(values)
    bounded = _bounded(arrays, both, (inf, most + 1e-9 * abs(most)))
    rest = solve_arrays(fixed(bounded, values))
    exact = values if rest.values is None else rest.values
    exact = np.where(arrays.integer, np.round(exact), exact)
    first = both[0].value(exact)
    bound = outcome.bound if outcome.bound is None else min(outcome.bound, first)
    ended = replace(outcome, values=exact, objective=first, bound=bound)
    return both[1].value(exact), checked(made, Best(ended, exact, (both[0],), made.notes))


def _distinct(points: list[tuple[float, Solution]]) -> list[tuple[float, Solution]]:
    """Return points in order, without those equal to, or beaten by, another."""
    kept: list[tuple[float, Solution]] = []
    for other, plan in sorted(points, key=lambda each: (each[1].termination.objective or 0.0, each[0])):
        if not kept or other < kept[-1][0] - SAME * abs(kept[-1][0]):
            kept.append((other, plan))
    return kept
