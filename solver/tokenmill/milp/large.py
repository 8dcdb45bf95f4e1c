"""Fleets of hundreds of thousands of columns: a relaxation over few of them, priced against all, and a plan made of parts.

Pools of different periods and slices share only what is committed for longer. Without these links the programme falls
into parts. (1) The relaxation leaves out what sums of rows can do without: packing patterns, flows. (2) Each part alone,
its share of the cost of the links on it, tells which columns are worth a look. (3) The relaxation over those gives a
price to every row, and prices give a bound for all columns (Lagrange): those that would enter are added, and it is solved
again. (4) Commitments are rounded, and each part of the whole programme is put in whole numbers (`whole.py`). The gap is
that of this plan to that bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.clock import Clock
from tokenmill.milp.eliminate import eliminated, rows_of
from tokenmill.milp.highs import Outcome, relax, stop_is_asked
from tokenmill.milp.parts import Part, extract, holds, parts, transposed_times
from tokenmill.milp.rows import Arrays
from tokenmill.milp.scaling import scale
from tokenmill.milp.structure import Fleet
from tokenmill.milp.sums import Sums, summed
from tokenmill.milp.whole import Hint, Left, Task, best_of, whole

FEW = (
    8  # columns alike (of a class at a moment, with the same to talk to) that are looked at first, and added at a time
)
ROUNDS = 6  # of adding columns
ROUNDED_UP = (0.5, 0.0, 0.999)  # what is added to commitments before they are rounded down, in turn
NEAR = 0.15  # share of the gap asked that the relaxation and its bound may be apart
LEAST = 1e-7

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Small:
    """A relaxation, scaled: which columns of the programme are left in it, their scales and the objective's."""

    arrays: Arrays
    fleet: Fleet
    columns: Mask
    column: Floats
    objective: float


@dataclass
class Priced:
    """The relaxation as it stands: columns looked at, bound proven, values and reduced costs (scaled)."""

    kept: Mask
    bound: float
    values: Floats
    reduced: Floats


def solve_large(
    arrays: Arrays, fleet: Fleet, *, gap: float, time_limit: float | None = None, threads: int = 1
) -> Outcome | None:
    """Return a plan with its proven gap; None where the programme does not fall apart, or no plan was found so."""
    clock = Clock(time_limit)
    small = relaxation(arrays, fleet, fleet.sums)
    pieces = parts(small.arrays, small.fleet.linking)
    if len(pieces) < 2:
        return None
    priced = _relaxed(small, pieces, gap, threads, clock.left)
    if priced is None:
        return None
    bound, best, least = priced.bound / small.objective, None, np.inf
    task = Task(arrays, fleet, gap * abs(bound), threads, clock.left)
    hint = _hint(small, priced)
    for up in ROUNDED_UP:
        if best is not None and (least - bound <= gap * abs(least) or clock.left() == 0.0 or stop_is_asked()):
            break
        values = whole(task, hint, up)
        if values is not None and holds(arrays, values) and float(arrays.cost @ values) + arrays.offset < least:
            best, least = values, float(arrays.cost @ values) + arrays.offset
    if best is None:
        return None
    bound = min(bound, least)
    proven = (least - bound) / max(abs(least), 1e-12)
    status = "optimal" if proven <= gap else "feasible"
    limit = None if status == "optimal" else "time"
    return Outcome(status, best, least, bound, proven, limit, clock.spent())


def relaxation(arrays: Arrays, fleet: Fleet, sums: Sums) -> Small:
    """Return the relaxation of a programme without what sums of rows, and what sits on its load, can do without."""
    added, columns = summed(arrays, sums, fleet.aside)
    small = eliminated(added)
    columns[np.flatnonzero(columns)[~small.columns]] = False
    scaled = scale(small.arrays)
    known = fleet.among(columns)
    known = replace(known, most=known.most / scaled.column)
    return Small(scaled.arrays, known, columns, scaled.column, scaled.objective)


def _hint(small: Small, priced: Priced) -> Hint:
    """Return values and reduced costs of all columns in their own units: none of those that the relaxation leaves out."""
    values, reduced = np.zeros(len(small.columns)), np.full(len(small.columns), np.inf)
    values[small.columns] = priced.values * small.column
    reduced[small.columns] = priced.reduced / small.column
    return Hint(values, reduced)


def _relaxed(small: Small, pieces: Sequence[Part], gap: float, threads: int, left: Left) -> Priced | None:
    """Return the relaxation over the columns that matter, and the bound for all."""
    arrays, fleet = small.arrays, small.fleet
    alike = _alike(arrays, fleet.classes)
    priced = _alone(small, alike, pieces, threads)
    rows = np.arange(len(arrays.row_lower))
    for _ in range(ROUNDS):
        chosen = np.flatnonzero(priced.kept)
        outcome = relax(
            extract(arrays, rows, chosen), interior=True, tolerance=NEAR * gap, threads=threads, time_limit=left()
        )
        if outcome.duals is None or outcome.values is None:
            break
        bound, reduced = lagrangian(arrays, fleet, outcome.duals)
        values = np.zeros(len(arrays.lower))
        values[chosen] = outcome.values
        cost = float(arrays.cost @ values) + arrays.offset
        better = bound > priced.bound
        priced = Priced(priced.kept.copy(), max(bound, priced.bound), values, reduced)
        if cost - priced.bound <= 2 * NEAR * gap * abs(cost) or stop_is_asked() or left() == 0.0:
            break
        enters = best_of(alike, np.where(priced.kept, np.inf, reduced * _width(arrays)), FEW)
        enters = enters[reduced[enters] < 0.0]
        if not len(enters) and not better:
            break
        priced.kept[enters] = True
    return priced if priced.values.any() else None


def _alike(arrays: Arrays, classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each share the number of its class together with what it has to balance, -1 for other columns."""
    row = rows_of(arrays)
    balance = (arrays.row_lower == 0.0) & (arrays.row_upper == 0.0)
    held = np.full(len(classes), -1)
    held[arrays.index[balance[row]]] = row[balance[row]]
    key = np.where(classes >= 0, classes * (len(balance) + 1) + held + 1, -1)
    _, number = np.unique(key, return_inverse=True)
    return np.where(classes >= 0, number, -1)


def _alone(small: Small, alike: NDArray[np.int64], pieces: Sequence[Part], threads: int) -> Priced:
    """Return columns worth a look: those that parts take at their share of the cost of links, and the next best."""
    arrays, fleet = small.arrays, small.fleet
    appears = np.bincount(np.concatenate([p.links for p in pieces]), minlength=len(arrays.lower))
    shared = replace(arrays, cost=np.where(fleet.linking, arrays.cost / np.maximum(appears, 1), arrays.cost))
    kept, reduced = fleet.classes < 0, np.zeros(len(arrays.lower))
    for piece in pieces:
        outcome = relax(extract(shared, piece.rows, piece.columns), interior=False, tolerance=0.0, threads=threads)
        if outcome.values is None or outcome.reduced is None:
            continue
        kept[piece.columns[outcome.values > LEAST]] = True
        reduced[piece.own] = outcome.reduced[: len(piece.own)]
    kept[best_of(alike, reduced * _width(arrays), FEW)] = True
    return Priced(kept, -np.inf, np.zeros(len(arrays.lower)), reduced)


def lagrangian(arrays: Arrays, fleet: Fleet, duals: Floats) -> tuple[float, Floats]:
    r"""Return the bound that prices of rows prove for all columns, and reduced costs.

    .. math:: \sum_r \max(y_r b^-_r, y_r b^+_r) + \min_{v} (c - A^T y)^T v

    over the bounds of v, at most one of a class together, and no more than any plan needs.
    """
    prices = np.where(np.isfinite(arrays.row_lower), duals, np.minimum(duals, 0.0))
    prices = np.where(np.isfinite(arrays.row_upper), prices, np.maximum(prices, 0.0))
    sides = np.where(prices > 0.0, arrays.row_lower, arrays.row_upper)
    rows = float(np.sum(np.where(prices == 0.0, 0.0, prices * np.where(np.isfinite(sides), sides, 0.0))))
    reduced = arrays.cost - transposed_times(arrays, prices)
    upper = np.minimum(arrays.upper, fleet.most)
    within = fleet.classes >= 0
    least = np.zeros(int(fleet.classes.max(initial=-1)) + 1)
    np.minimum.at(least, fleet.classes[within], (reduced * upper)[within])
    free = ~within
    at = np.where(reduced[free] < 0.0, upper[free], arrays.lower[free])
    rest = np.where(reduced[free] == 0.0, 0.0, reduced[free] * at)
    return rows + float(least.sum()) + float(rest.sum()) + arrays.offset, reduced


def _width(arrays: Arrays) -> Floats:
    """Return how far a column may go, 1 where without end: what a unit of it saves is read over that."""
    return np.where(np.isfinite(arrays.upper), arrays.upper, 1.0)
