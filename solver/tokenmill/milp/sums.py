r"""A smaller relaxation: sums of rows in the place of rows, so that columns that only these hold fall out.

Any plan meets any sum of rows that it meets. Packing patterns leave where rows of a stock's domains are added up at the
weights of :func:`tokenmill.milp.packing.packing_weights`; flows between pools leave where what is sent by, and taken at, all pools that may talk
is added up. What is left is the relaxation of a programme of far fewer columns, and its bound is one of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.eliminate import Entries, entries_of, rebuilt
from tokenmill.milp.rows import Arrays

NOTHING = 1e-12  # what is left of a coefficient that cancels


@dataclass(frozen=True)
class Sums:
    """Rows that are added up: term n puts `weight` times row `row` in sum `total`.

    `gone`: rows that only their sums stand for.
    """

    row: NDArray[np.int64]
    total: NDArray[np.int64]
    weight: NDArray[np.float64]
    gone: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Number of sums."""
        return int(self.total.max(initial=-1)) + 1


def summed(arrays: Arrays, sums: Sums, aside: NDArray[np.bool_]) -> tuple[Arrays, NDArray[np.bool_]]:
    """Return a relaxation of a programme, rows that stay and then sums, and which columns are left in it.

    `aside`: columns to leave out, as far as that is a relaxation.
    """
    terms = _with_sums(entries_of(arrays), sums, len(arrays.row_lower))
    kept = np.flatnonzero(~sums.gone)
    sides = [np.concatenate([side[kept], _of_sums(arrays, sums, upper)]) for side, upper in _sides(arrays)]
    every = np.ones(len(arrays.lower), dtype=np.bool_)
    rows = np.ones(len(sides[0]), dtype=np.bool_)
    whole = replace(arrays, row_lower=sides[0], row_upper=sides[1])
    return _set_aside(rebuilt(whole, terms, arrays.cost, every, rows), aside)


def _sides(arrays: Arrays) -> tuple[tuple[NDArray[np.float64], bool], ...]:
    return (arrays.row_lower, False), (arrays.row_upper, True)


def _with_sums(terms: Entries, sums: Sums, rows: int) -> Entries:
    """Return the terms of the rows that stay, numbered anew, and of the sums."""
    number = np.cumsum(~sums.gone) - 1
    stays = ~sums.gone[terms.row]
    first = np.searchsorted(terms.row, np.arange(rows + 1))
    count = (first[1:] - first[:-1])[sums.row]
    each = np.repeat(np.arange(len(sums.row)), count)
    source = first[sums.row][each] + np.arange(len(each)) - np.repeat(np.cumsum(count) - count, count)
    return Entries(
        np.concatenate([number[terms.row[stays]], rows - int(sums.gone.sum()) + sums.total[each]]),
        np.concatenate([terms.column[stays], terms.column[source]]),
        np.concatenate([terms.value[stays], sums.weight[each] * terms.value[source]]),
    )


def _of_sums(arrays: Arrays, sums: Sums, upper: bool) -> NDArray[np.float64]:
    """Return one side of all sums."""
    same, other = (arrays.row_upper, arrays.row_lower) if upper else (arrays.row_lower, arrays.row_upper)
    side = np.where(sums.weight > 0.0, same[sums.row], other[sums.row])
    result = np.zeros(sums.count)
    np.add.at(result, sums.total, sums.weight * side)
    return result


def _set_aside(arrays: Arrays, aside: NDArray[np.bool_]) -> tuple[Arrays, NDArray[np.bool_]]:
    """Return a programme without columns aside, and which are left: a row keeps the side on which they are no help."""
    terms = entries_of(arrays)
    aside = aside & (arrays.cost >= 0.0) & (arrays.lower >= 0.0)
    out = aside[terms.column]
    low, high = arrays.row_lower.copy(), arrays.row_upper.copy()
    low[terms.row[out & (terms.value > NOTHING)]] = -np.inf
    high[terms.row[out & (terms.value < -NOTHING)]] = np.inf
    stays = ~out & (terms.value != 0.0)
    length = np.bincount(terms.row[stays], minlength=len(low))
    asks = ((np.isfinite(low) | np.isfinite(high)) & (length > 0)) | (low > 0.0) | (high < 0.0)
    stays &= asks[terms.row]
    kept = Entries(terms.row[stays], terms.column[stays], terms.value[stays])
    whole = replace(arrays, row_lower=low, row_upper=high)
    return rebuilt(whole, kept, arrays.cost, ~aside, asks), ~aside
