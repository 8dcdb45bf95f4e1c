"""Fleets of hundreds of thousands of columns: the relaxation over few of them, priced against all, and a plan made of parts.

Pools of different periods and slices share only what is committed for longer. Without these links the programme falls
into parts. (1) Each part alone, its share of the cost of the links on it, tells which columns are worth a look. (2) The
relaxation over those gives a price to every row, and prices give a bound for all columns (Lagrange): those that would
enter are added, and it is solved again. (3) Commitments are rounded, and each part is solved in whole numbers, adding
commitments where it must. The gap is that of this plan to that bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.eliminate import Eliminated, eliminated, rows_of
from tokenmill.milp.highs import Outcome, relax, solve_arrays, stop_is_asked
from tokenmill.milp.parts import Part, extract, parts, transposed_times
from tokenmill.milp.rows import Arrays
from tokenmill.milp.scaling import Scaled, scale

FEW = 20  # columns of a class at a moment that are looked at first, beside those that a part alone takes
ROUNDS = 6  # of adding columns
ROUNDED_UP = (0.0, 0.999, 0.5)  # what is added to commitments before they are rounded down, in turn
NEAR = 0.15  # share of the gap asked that the relaxation and its bound may be apart
INNER = 0.25  # share of the gap asked that each part may leave
LEAST = 1e-7
ROUNDING = 1e-6

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Left = Callable[[], float | None]


@dataclass(frozen=True)
class Fleet:
    """What is known of the columns of a programme.

    `linking`: committed for many moments; `classes`: number of the class, role and moment that a share belongs to, -1 for
    others: shares of one are at most one together; `most`: what no plan needs more of.
    """

    linking: Mask
    classes: NDArray[np.int64]
    most: Floats
    commitments: tuple[NDArray[np.int64], ...]


@dataclass(frozen=True)
class Task:
    """The programme, what is known of it, its relaxation without what sits on its load, and how it is to be solved."""

    arrays: Arrays
    fleet: Fleet
    small: Eliminated
    scaled: Scaled
    gap: float
    threads: int
    left: Left


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
    began = perf_counter()
    small = eliminated(arrays)
    scaled = scale(small.arrays)
    reduced = Fleet(
        fleet.linking[small.columns], fleet.classes[small.columns], fleet.most[small.columns] / scaled.column, ()
    )
    pieces = parts(scaled.arrays, reduced.linking)
    if len(pieces) < 2:
        return None

    def left() -> float | None:
        return None if time_limit is None else max(0.0, time_limit - (perf_counter() - began))

    priced = _relaxation(scaled.arrays, reduced, pieces, gap, threads, left)
    if priced is None:
        return None
    task = Task(arrays, fleet, small, scaled, gap, threads, left)
    bound, best, least = priced.bound / scaled.objective, None, np.inf
    for up in ROUNDED_UP:
        if best is not None and (least - bound <= gap * abs(least) or left() == 0.0 or stop_is_asked()):
            break
        values = _whole(task, priced, up)
        if values is not None and float(arrays.cost @ values) + arrays.offset < least:
            best, least = values, float(arrays.cost @ values) + arrays.offset
    if best is None:
        return None
    bound = min(bound, least)
    proven = (least - bound) / max(abs(least), 1e-12)
    status = "optimal" if proven <= gap else "feasible"
    limit = None if status == "optimal" else "time"
    return Outcome(status, best, least, bound, proven, limit, perf_counter() - began)


def _relaxation(
    arrays: Arrays, fleet: Fleet, pieces: Sequence[Part], gap: float, threads: int, left: Left
) -> Priced | None:
    """Return the relaxation over the columns that matter, and the bound for all."""
    priced = _alone(arrays, fleet, pieces, threads)
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
        enters = _best(fleet.classes, np.where(priced.kept, np.inf, reduced * _width(arrays)), FEW)
        enters = enters[reduced[enters] < 0.0]
        if not len(enters) and not better:
            break
        priced.kept[enters] = True
    return priced if priced.values.any() else None


def _alone(arrays: Arrays, fleet: Fleet, pieces: Sequence[Part], threads: int) -> Priced:
    """Return columns worth a look: those that parts take at their share of the cost of links, and the next best."""
    appears = np.bincount(np.concatenate([p.links for p in pieces]), minlength=len(arrays.lower))
    shared = replace(arrays, cost=np.where(fleet.linking, arrays.cost / np.maximum(appears, 1), arrays.cost))
    kept, reduced = fleet.classes < 0, np.zeros(len(arrays.lower))
    for piece in pieces:
        outcome = relax(extract(shared, piece.rows, piece.columns), interior=False, tolerance=0.0, threads=threads)
        if outcome.values is None or outcome.reduced is None:
            continue
        kept[piece.columns[outcome.values > LEAST]] = True
        reduced[piece.own] = outcome.reduced[: len(piece.own)]
    kept[_best(fleet.classes, reduced * _width(arrays), FEW)] = True
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


def _best(classes: NDArray[np.int64], cost: Floats, few: int) -> NDArray[np.int64]:
    """Return the few columns of least cost in each class."""
    members = np.flatnonzero(classes >= 0)
    order = members[np.lexsort((cost[members], classes[members]))]
    groups = classes[order]
    first = np.searchsorted(groups, groups)
    return order[np.arange(len(order)) - first < few]


def _whole(task: Task, priced: Priced, up: float) -> Floats | None:
    """Return a plan in whole numbers: commitments rounded, then part after part, each adding what it lacks."""
    arrays, fleet, small = task.arrays, task.fleet, task.small
    relaxed, reduced = np.zeros(len(arrays.lower)), np.zeros(len(arrays.lower))
    relaxed[small.columns] = priced.values * task.scaled.column
    reduced[small.columns] = priced.reduced / task.scaled.column
    chosen = small.columns & (fleet.classes < 0) | (relaxed > 1e-4)
    chosen[_best(np.where(small.columns, fleet.classes, -1), reduced, FEW // 2)] = True
    chosen |= _held_up_by(arrays, small, chosen)
    columns = np.flatnonzero(chosen)
    rows = np.arange(len(arrays.row_lower))
    restricted = extract(arrays, rows, columns)
    place = np.full(len(arrays.lower), -1)
    place[columns] = np.arange(len(columns))
    values, lower = restricted.lower.copy(), restricted.lower.copy()
    for numbers in fleet.commitments:
        lower[place[numbers]] = np.maximum(_in_steps(relaxed[numbers], up), lower[place[numbers]])
    pieces = parts(restricted, fleet.linking[columns])
    for done, piece in enumerate(pieces):
        seconds = task.left()
        share = None if seconds is None else max(2.0 * seconds / (len(pieces) - done), 0.5)
        part = replace(extract(restricted, piece.rows, piece.columns), lower=lower[piece.columns])
        found = _part(part, len(piece.own), task.gap, share, task.threads)
        if found is None:
            return None
        values[piece.columns] = found
        lower[piece.links] = found[len(piece.own) :]
    linking = fleet.linking[columns]
    values[linking] = lower[linking]
    result = np.zeros(len(arrays.lower))
    result[columns] = values
    return result if holds(arrays, result) else None


def _in_steps(relaxed: Floats, up: float) -> Floats:
    """Return commitments of one kind, period by period, in whole numbers: what is had by then is rounded."""
    total = np.cumsum(relaxed)
    return np.diff(np.where(total > 0.5, np.floor(total + up), 0.0), prepend=0.0)


def _part(part: Arrays, own: int, gap: float, seconds: float | None, threads: int) -> Floats | None:
    """Return a part in whole numbers: of the columns that its relaxation takes, else of all; links may be added."""
    began = perf_counter()
    loose = solve_arrays(replace(part, integer=np.zeros_like(part.integer)), time_limit=seconds, threads=threads)
    if loose.values is None:
        return None
    idle = part.integer & (loose.values < LEAST)
    idle[own:] = False
    taken = replace(part, upper=np.where(idle, part.lower, part.upper))
    first = solve_arrays(taken, time_limit=seconds, gap=INNER * gap, threads=threads)
    best = first
    lost = None if first.objective is None or loose.objective is None else first.objective - loose.objective
    if lost is None or lost > gap * abs(first.objective or 0.0):
        rest = None if seconds is None else max(seconds - (perf_counter() - began), 0.5 * seconds)
        best = solve_arrays(part, time_limit=rest, gap=INNER * gap, threads=threads, start=first.values)
        best = first if best.values is None else best
    return None if best.values is None else np.where(part.integer, np.round(best.values), best.values)


def holds(arrays: Arrays, values: Floats) -> bool:
    """Tell whether values meet every row and bound of a programme, to 1e-6 of each."""
    left = np.bincount(rows_of(arrays), weights=arrays.value * values[arrays.index], minlength=len(arrays.row_lower))
    for side, over in ((arrays.row_lower, arrays.row_lower - left), (arrays.row_upper, left - arrays.row_upper)):
        known = np.isfinite(side)
        if np.any(over[known] > ROUNDING * np.maximum(1.0, np.abs(side[known]))):
            return False
    return bool(np.all(values >= arrays.lower - ROUNDING) and np.all(values <= arrays.upper + ROUNDING))


def _held_up_by(arrays: Arrays, small: Eliminated, chosen: Mask) -> Mask:
    """Return the eliminated columns that chosen ones stand on."""
    row = rows_of(arrays)
    gone = ~small.rows[row]
    used = np.zeros(len(arrays.row_lower), dtype=np.bool_)
    used[row[gone & chosen[arrays.index]]] = True
    result = np.zeros(len(arrays.lower), dtype=np.bool_)
    result[arrays.index[gone & used[row]]] = True
    return result & ~small.columns
