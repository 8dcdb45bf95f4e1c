"""What holds a plan back, and what one step more of each limit saves: in the problem's own keys and units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.highs import fixed, solve_arrays
from tokenmill.milp.narrow import solve_narrowed
from tokenmill.milp.quantities import Build
from tokenmill.milp.rows import Arrays
from tokenmill.milp.solution import Binding

if TYPE_CHECKING:
    from tokenmill.milp.clock import Clock
    from tokenmill.milp.solve import Best, Wish


EASED = 0.1
"""Share of the demand that is taken off where no limit of the problem holds its plan back."""
FOR_DEMAND = ("cost", "power", "energy", "carbon", "chips")
"""Objectives that less demand lowers as such; a cost per unit is no less for fewer units."""


FIXED = ("least", "most", "needs", "order_least")
"""Rows of what is held or follows from the order of things: no step of these is asked for."""


@dataclass
class Steps:
    """The re-solves of one plan: its programme, kinds of systems, how long they may take, whether that was too short."""

    arrays: Arrays
    systems: Mapping[str, NDArray[np.bool_]]
    best: Best
    wish: Wish
    clock: Clock
    longest: float
    cut_short: bool = False
    began: float = field(default_factory=perf_counter)

    def saves(self, eased: Arrays) -> float | None:
        """Return what the eased programme saves (0 where that is within the gap); None where it is not proven."""
        left, limit, now = self.longest - (perf_counter() - self.began), self.clock.left(), self.best.outcome.objective
        left = left if limit is None else min(left, limit)
        if left <= 0.0 or now is None:
            self.cut_short = True
            return None
        start = None if self.best.values is None else self.best.values[: len(eased.lower)]
        outcome = solve_narrowed(
            eased, self.systems, time_limit=left, gap=self.wish.gap, threads=self.wish.threads, start=start
        )
        if outcome.status != "optimal" or outcome.objective is None:
            self.cut_short |= outcome.status in ("feasible", "unknown")
            return None
        saves = now - outcome.objective
        return saves if saves > max(self.wish.gap, 1e-9) * abs(now) else 0.0


def bindings(fresh: Build, steps: Steps) -> tuple[Binding, ...]:
    """Return limits without room for one step more, and what that step saves, re-solved while time is left.

    `fresh`: the programme as first stated, `steps`: with its first objective. A step is one more of what the limit counts (a system, its power), a tenth of it where it is money or time, a tenth
    of what is used where it is bandwidth. A dual is that of the LP with the plan's integers held.
    """
    arrays, best, wish = steps.arrays, steps.best, steps.wish
    if best.values is None or len(best.values) < len(arrays.lower):
        return ()
    values = best.values[: len(arrays.lower)]
    duals = solve_arrays(fixed(arrays, values), threads=wish.threads).duals
    found = []
    for key, rows in sorted(_limits(fresh).items()):
        asked = fresh.programme.rows[rows[0]].requirement
        nearest = min(rows, key=lambda n: _slack(fresh, n, values))
        slack = _slack(fresh, nearest, values)
        tight = slack <= 1e-6 * max(1.0, _used(fresh, nearest, values))
        if asked is None or not (tight or slack < (asked.step or 0.0)):
            continue
        dual = None if duals is None else float(sum(abs(duals[n]) * asked.relax for n in rows))
        if fresh.programme.rows[nearest].label[0] == "arc" and _used(fresh, nearest, values) <= 0.0:
            continue  # nothing passes: an arc of systems that nobody had
        step, saves = asked.step or 0.1 * _used(fresh, nearest, values), None
        if wish.value_of_next and step > 0.0:
            saves = steps.saves(_eased(arrays, fresh, rows, step))
        if saves or dual or (tight and step > 0.0):
            known = None if saves is None else step
            found.append(Binding(asked.limit, key, max(slack, 0.0), asked.unit, known, saves, dual))
    if wish.value_of_next and not any(each.saves for each in found):
        found += _demand(fresh, steps)
    return tuple(found)


def _demand(fresh: Build, steps: Steps) -> list[Binding]:
    """Return what a tenth less of each workload's demand saves: what holds a plan back that no limit does."""
    if fresh.sets.problem.objectives[0].minimise not in FOR_DEMAND:
        return []
    by_key: dict[str, list[int]] = {}
    for number, row in fresh.programme.rows.required():
        if row.label[0] == "demand" and row.requirement is not None:
            by_key.setdefault(row.requirement.key, []).append(number)
    found = []
    for key, rows in sorted(by_key.items()):
        asked = fresh.programme.rows[rows[0]].requirement
        lower = steps.arrays.row_lower.copy()
        lower[rows] -= EASED
        saves = steps.saves(replace(steps.arrays, row_lower=lower))
        if asked is not None and saves:  # a demand of which a tenth less saves nothing holds nothing back
            found.append(Binding(asked.limit, key, 0.0, asked.unit, -EASED * asked.scale, saves))
    return found


def _limits(build: Build) -> dict[str, list[int]]:
    """Return rows of every limit that could be eased by a step, by key."""
    found: dict[str, list[int]] = {}
    for number, row in build.programme.rows.required():
        if row.requirement is not None and row.sense != "=" and row.label[0] not in FIXED:
            found.setdefault(row.requirement.key, []).append(number)
    return found


def _slack(build: Build, number: int, values: NDArray[np.float64]) -> float:
    """Return how far a row is from its limit, in the requirement's unit."""
    row = build.programme.rows[number]
    left = sum(c * values[i] for i, c in row.terms.items())
    gap = row.right - left if row.sense == "<=" else left - row.right
    return float(gap) / (row.requirement.relax if row.requirement else 1.0)


def _used(build: Build, number: int, values: NDArray[np.float64]) -> float:
    """Return what a row counts against its limit, in the requirement's unit."""
    row = build.programme.rows[number]
    relax = row.requirement.relax if row.requirement else 1.0
    return float(sum(max(0.0, c * values[i]) for i, c in row.terms.items())) / relax


def _eased(arrays: Arrays, build: Build, rows: list[int], step: float) -> Arrays:
    """Return the programme with the rows of a limit eased by a step."""
    lower, upper = arrays.row_lower.copy(), arrays.row_upper.copy()
    for number in rows:
        row = build.programme.rows[number]
        amount = step * (row.requirement.relax if row.requirement else 1.0)
        if row.sense == "<=":
            upper[number] += amount
        else:
            lower[number] -= amount
    return replace(arrays, row_lower=lower, row_upper=upper)
