"""Two objectives against one another: the plans that no other plan beats in both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
FIRST = 0.3
"""Share of the time left for the solve that begins without a plan."""


@dataclass
class _Solves:
    """The programme with each objective, both as rows of a bound; solves that are left, among which the time is shared out."""

    arrays: tuple[Arrays, Arrays]
    both: tuple[Linear, Linear]
    systems: Mapping[str, NDArray[np.bool_]]
    wish: Wish
    clock: Clock
    left: int

    def point(
        self, first: int, most: float, start: NDArray[np.float64] | None
    ) -> tuple[Outcome, NDArray[np.float64]] | None:
        """Return the plan that is best in one objective, then in the other, whose bound is `most` of the second."""
        bound = (inf, most) if first == 0 else (most, inf)
        one = self._least(first, bound, start)
        if one.values is None or one.objective is None:
            return None
        held = one.objective + 1e-9 * abs(one.objective)
        two = self._least(1 - first, (held, bound[1]) if first == 0 else (bound[0], held), one.values)
        return one, one.values if two.values is None else two.values

    def _least(self, which: int, most: tuple[float, float], start: NDArray[np.float64] | None) -> Outcome:
        time, self.left = self.clock.left(), self.left - 1
        share = FIRST if start is None else 1.0 / (self.left + 1)
        limit = None if time is None else max(0.1, share * time)
        bounded = _bounded(self.arrays[which], self.both, most)
        return solve_narrowed(
            bounded, self.systems, time_limit=limit, gap=self.wish.gap, threads=self.wish.threads, start=start
        )


def front(
    formulate: Callable[[], Formulation], against: Objective, wish: Wish, points: int
) -> list[tuple[float, Solution]]:
    """Return (value of `against`, plan) from the best of the first objective to the best of the other.

    Epsilon-constraint (Haimes 1971): the ends are exact (each objective alone, the other next), between them the
    other's bound moves in equal steps on the one programme; each point is best in its first objective, then in the other.
    The time limit is shared out over the solves. Each but the first begins with a plan: the ends with that of the first
    objective, those between with the best of the other, which keeps every bound on it. A point that keeps the next bound too
    is not asked for again.
    """
    made = formulate()
    build, clock = made.build, Clock(wish.time_limit)
    both = objective(build, build.sets.problem.objectives[0], 0), objective(build, against, 1)
    for number, each in enumerate(both):
        build.programme.row("front", number, left=each, sense="<=", right=0.0)
    arrays = (build.programme.arrays(both[0]), build.programme.arrays(both[1]))
    solves = _Solves(arrays, both, systems_of(build), wish, clock, 2 * max(points, 2))
    one = solves.point(0, inf, None)
    other = None if one is None else solves.point(1, inf, one[1])
    if one is None or other is None:
        return []
    found = [one]
    high, low = both[1].value(one[1]), both[1].value(other[1])
    for step in range(1, points - 1):
        most = high + (low - high) * step / (points - 1)
        if both[1].value(found[-1][1]) <= most:
            solves.left -= 2  # best under a wider bound, and keeps this one
            continue
        between = solves.point(0, most, other[1])
        if between is not None:
            found.append(between)
    return _distinct([_solution(made, both, arrays[0], outcome, values) for outcome, values in [*found, other]])


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
