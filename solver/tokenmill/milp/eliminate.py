"""Fewer columns and rows for the relaxation: what only a bottom holds up sits on it.

A column that costs nothing to make smaller but for one row, ``sum a_i q_i - b x <= 0``, stands at ``x = sum (a_i / b) q_i``
in some optimum of the relaxation, whatever else is in the programme. It is put in the place of x in all other rows and in
the objective, and the row goes: replicas go with their rows of load.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.rows import Arrays

FILL = 4  # terms of a row of load, at most: more would make the rest dense


@dataclass(frozen=True)
class Eliminated:
    """A relaxation without the columns `bottom`; `columns` and `rows` are those that are left, as masks."""

    arrays: Arrays
    columns: NDArray[np.bool_]
    rows: NDArray[np.bool_]


@dataclass(frozen=True)
class Entries:
    """Terms of a programme: row, column, coefficient."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    value: NDArray[np.float64]


def rows_of(arrays: Arrays) -> NDArray[np.int64]:
    """Return the row of every term."""
    return np.repeat(np.arange(len(arrays.row_lower)), np.diff(arrays.starts))


def entries_of(arrays: Arrays) -> Entries:
    """Return the terms of a programme, row by row."""
    return Entries(rows_of(arrays), arrays.index.astype(np.int64), arrays.value)


def eliminated(arrays: Arrays) -> Eliminated:
    """Return the relaxation with such columns put in terms of others."""
    terms = entries_of(arrays)
    held = _held_up(arrays, terms)
    if not len(held):
        every = np.ones(len(arrays.lower), dtype=np.bool_), np.ones(len(arrays.row_lower), dtype=np.bool_)
        return Eliminated(replace(arrays, integer=np.zeros_like(arrays.integer)), *every)
    bottoms, gone = terms.column[held], terms.row[held]
    row_of = np.full(len(arrays.lower), -1)
    row_of[bottoms] = gone
    depth = np.ones(len(arrays.lower))
    depth[bottoms] = -terms.value[held]
    columns, rows = row_of < 0, np.ones(len(arrays.row_lower), dtype=np.bool_)
    rows[gone] = False
    tops = np.flatnonzero(~rows[terms.row] & (terms.value > 0))  # in order of rows
    kept = _expanded(terms, rows, row_of, depth, tops)
    under = np.full(len(rows), -1)
    under[gone] = bottoms
    below = under[terms.row[tops]]
    cost = arrays.cost.copy()
    np.add.at(cost, terms.column[tops], arrays.cost[below] * terms.value[tops] / depth[below])
    return Eliminated(rebuilt(arrays, kept, cost, columns, rows), columns, rows)


def forced(arrays: Arrays) -> Arrays:
    """Return a programme with columns held where the bounds of all others leave them no room in a row ``sum a v <= b``.

    With replicas held, shares on none of them are.
    """
    row, value = rows_of(arrays), arrays.value
    rises = value > 0.0
    least = value * np.where(rises, arrays.lower[arrays.index], arrays.upper[arrays.index])
    full = np.bincount(row, weights=least, minlength=len(arrays.row_lower)) >= arrays.row_upper
    lower, upper = arrays.lower.copy(), arrays.upper.copy()
    up, down = arrays.index[full[row] & rises], arrays.index[full[row] & ~rises]
    upper[up] = arrays.lower[up]
    lower[down] = arrays.upper[down]
    return replace(arrays, lower=lower, upper=upper)


def _held_up(arrays: Arrays, terms: Entries) -> NDArray[np.int64]:
    """Return the terms -b x of rows ``sum a q - b x <= 0`` that alone keep x from zero."""
    size = len(arrays.lower)
    above, below = np.isfinite(arrays.row_upper), np.isfinite(arrays.row_lower)
    eased = ((above & ~below)[terms.row] & (terms.value < 0)) | ((below & ~above)[terms.row] & (terms.value > 0))
    bound = np.bincount(terms.column[(above & below)[terms.row]], minlength=size)
    once = np.bincount(terms.column[eased], minlength=size) == 1
    able = once & (bound == 0) & (arrays.cost >= 0) & (arrays.lower == 0) & np.isinf(arrays.upper)
    negative = np.bincount(terms.row[terms.value < 0], minlength=len(above))
    length = np.diff(arrays.starts)
    fits = above & ~below & (arrays.row_upper == 0) & (negative == 1) & (length >= 2) & (length <= FILL)
    held = np.flatnonzero(eased & able[terms.column] & fits[terms.row])
    gone = np.zeros(len(above), dtype=np.bool_)
    gone[terms.row[held]] = True
    on_top = np.bincount(terms.column[gone[terms.row] & (terms.value > 0)], minlength=size) > 0
    return held[~on_top[terms.column[held]]]  # none of those that go stands on another


def _expanded(
    terms: Entries, rows: NDArray[np.bool_], row_of: NDArray[np.int64], depth: NDArray[np.float64], tops: NDArray[np.int64]
) -> Entries:  # fmt: skip
    """Return the terms of the rows that stay, those of bottoms in terms of what stands on them."""
    stays = rows[terms.row]
    plain = np.flatnonzero(stays & (row_of[terms.column] < 0))
    swapped = np.flatnonzero(stays & (row_of[terms.column] >= 0))
    first = np.searchsorted(terms.row[tops], row_of[terms.column[swapped]])
    last = np.searchsorted(terms.row[tops], row_of[terms.column[swapped]], side="right")
    count = last - first
    each = np.repeat(np.arange(len(swapped)), count)
    place = np.arange(len(each)) - np.repeat(np.cumsum(count) - count, count)
    source, target = tops[first[each] + place], swapped[each]
    value = terms.value[target] * terms.value[source] / depth[terms.column[target]]
    return Entries(
        np.concatenate([terms.row[plain], terms.row[target]]),
        np.concatenate([terms.column[plain], terms.column[source]]),
        np.concatenate([terms.value[plain], value]),
    )


def rebuilt(
    arrays: Arrays, terms: Entries, cost: NDArray[np.float64], columns: NDArray[np.bool_], rows: NDArray[np.bool_]
) -> Arrays:
    """Return a programme of some columns and rows from its terms; terms of one place are summed."""
    width = int(columns.sum())
    key = (np.cumsum(rows) - 1)[terms.row] * width + (np.cumsum(columns) - 1)[terms.column]
    order = np.argsort(key, kind="stable")
    places, first = np.unique(key[order], return_index=True)
    row = places // width
    return Arrays(
        cost=cost[columns], offset=arrays.offset, lower=arrays.lower[columns], upper=arrays.upper[columns],
        integer=np.zeros(width, dtype=np.bool_), row_lower=arrays.row_lower[rows], row_upper=arrays.row_upper[rows],
        starts=np.searchsorted(row, np.arange(int(rows.sum()) + 1)).astype(np.int32),
        index=(places % width).astype(np.int32), value=np.add.reduceat(terms.value[order], first),
    )  # fmt: skip
