"""Ratios of two linear expressions, made smallest by Dinkelbach's iteration on the programme."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokenmill.errors import SolverError
from tokenmill.milp.highs import Outcome
from tokenmill.milp.narrow import solve_narrowed, systems_of, with_row
from tokenmill.milp.quantities import Build
from tokenmill.milp.rows import Arrays, Linear

if TYPE_CHECKING:
    from tokenmill.milp.clock import Clock
    from tokenmill.milp.solve import Wish

ROUNDS = 60
TIGHT = 1e-9


@dataclass(frozen=True)
class Ratio:
    """`above` over `below`, which is positive in every plan that counts; `least`, `most`: bounds on `below`."""

    above: Linear
    below: Linear
    least: float
    most: float

    def value(self, values: NDArray[np.float64]) -> float:
        """Return the ratio at `values`."""
        return self.above.value(values) / self.below.value(values)

    def at(self, level: float) -> Linear:
        """Return `above` less `level` times `below`: nowhere negative where `level` is a lower bound on the ratio."""
        return Linear().plus(self.above).plus(self.below, -level)


def minimise_ratio(build: Build, ratio: Ratio, wish: Wish, clock: Clock) -> Outcome:
    """Return the least ratio, with its proof (Dinkelbach 1967).

    With a plan of ratio lambda in hand, min(above - lambda·below) is negative as long as another is better; its plan
    gives the next lambda. Where none is, a proven bound B on it says that every plan's ratio is at least
    lambda + B / D for all that have `below` of D or more; D is the least of any plan, or that under which the cheapest plan
    of all is no better than lambda.

    Raises
    ------
    SolverError
        Where the other solver was asked: it proves no bounds.
    """
    if wish.solver != "highs":
        raise SolverError("objective: a cost per unit of elastic volume needs the bounds of HiGHS; found 'cbc'")
    systems = systems_of(build)

    def solve(expression: Linear, gap: float) -> Outcome:
        arrays: Arrays = build.programme.arrays(expression)
        return solve_narrowed(arrays, systems, time_limit=clock.left(), gap=gap, threads=wish.threads)

    first = solve(Linear().plus(ratio.below, -1.0), 0.01)
    if first.values is None or ratio.below.value(first.values) <= 0.0:
        status = "infeasible" if first.values is not None else first.status
        return replace(first, status=status, values=None, objective=None, bound=None, gap=None)
    values = first.values
    cheapest = 0.0 if ratio.least > 0.0 else _cheapest(build, ratio, wish, clock)
    for _ in range(ROUNDS):
        level = ratio.value(values)
        least = max(ratio.least, min(cheapest / level, ratio.most) if level > 0.0 else 0.0, TIGHT * ratio.most)
        # an offset makes the inner optimum positive, so that a relative gap means something there
        inner = ratio.at(level)
        inner.constant += level * ratio.most
        outcome = solve(inner, max(0.2 * wish.gap * least / ratio.most, TIGHT))
        if outcome.values is None or outcome.bound is None or outcome.objective is None:
            return replace(first, status="feasible", values=values, objective=level, bound=None, gap=None, limit="time")
        better = ratio.value(outcome.values) if ratio.below.value(outcome.values) > 0.0 else level
        bound = level + min(0.0, outcome.bound - level * ratio.most) / least
        if better >= level * (1.0 - 1e-12):
            gap = (level - bound) / max(abs(level), 1e-300)
            status = "optimal" if gap <= max(wish.gap, 10 * TIGHT * ratio.most / least) else "feasible"
            return replace(outcome, status=status, values=values, objective=level, bound=bound, gap=gap)
        values = outcome.values
    return replace(first, status="feasible", values=values, objective=ratio.value(values), bound=None, gap=None)


def _cheapest(build: Build, ratio: Ratio, wish: Wish, clock: Clock) -> float:
    """Return a proven bound on `above` of any plan that has a part in a million of the most `below`."""
    arrays = build.programme.arrays(ratio.above)
    some = with_row(arrays, ratio.below.terms, 1e-6 * ratio.most - ratio.below.constant)
    outcome = solve_narrowed(some, systems_of(build), time_limit=clock.left(), gap=0.01, threads=wish.threads)
    return max(outcome.bound or 0.0, 0.0)


def charnes_cooper(build: Build, ratio: Ratio) -> float | None:
    """Return the least ratio of the relaxation: one LP over the programme scaled so that `below` is one.

    With t = 1/below (here: most/below, near one) and v' = t·v, all v at least 0, every row a·v <= r becomes a·v' - r·t <= 0 (Charnes and Cooper 1962).
    """
    from tokenmill.milp.highs import solve_arrays
    from tokenmill.milp.rows import Programme

    scaled = Programme()
    place = [scaled.variable("scaled", n) for n in range(len(build.programme.names))]
    t = scaled.variable("t")

    def moved(expression: Linear) -> Linear:
        return Linear({place[i]: c for i, c in expression.terms.items()}).add(t, expression.constant)

    for row in build.programme.rows:
        left = Linear({place[i]: c for i, c in row.terms.items()}).add(t, -row.right)
        scaled.row("row", row.name, left=left, sense=row.sense)
    for n, (low, up) in enumerate(zip(build.programme.lower, build.programme.upper, strict=True)):
        scaled.row("low", n, left=Linear({place[n]: 1.0, t: -low}), sense=">=")
        if up < float("inf"):
            scaled.row("up", n, left=Linear({place[n]: 1.0, t: -up}), sense="<=")
    scaled.row("below", left=Linear().plus(moved(ratio.below), 1.0 / ratio.most), sense="=", right=1.0)
    found = solve_arrays(scaled.arrays(moved(ratio.above))).objective
    return None if found is None else found / ratio.most
