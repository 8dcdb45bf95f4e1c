"""Scaling of rows and of continuous columns, so that no coefficient is lost to the solver's cut at 1e-9.

Scales are powers of two: multiplying by them is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.rows import Arrays

ROUNDS = 4


@dataclass(frozen=True)
class Scaled:
    """A scaled programme; a value of the original is `column` times the scaled one, a row's is 1/`row` times."""

    arrays: Arrays
    column: NDArray[np.float64]
    row: NDArray[np.float64]
    objective: float


def scale(arrays: Arrays) -> Scaled:
    """Return the programme with rows and continuous columns near one (geometric means), integers left as they are."""
    rows = np.repeat(np.arange(len(arrays.row_lower)), np.diff(arrays.starts))
    size = np.abs(arrays.value)
    row, column = np.ones(len(arrays.row_lower)), np.ones(len(arrays.lower))
    for _ in range(ROUNDS):
        row *= _towards_one(size * row[rows] * column[arrays.index], rows, len(row))
        step = _towards_one(size * row[rows] * column[arrays.index], arrays.index, len(column))
        column *= np.where(arrays.integer, 1.0, step)
    # a bound times an infinite scale must stay itself: scales are finite powers of two
    cost = arrays.cost * column
    objective = float(_power_of_two(1.0 / np.max(np.abs(cost)))) if np.any(cost) else 1.0
    scaled = replace(
        arrays,
        cost=cost * objective,
        offset=arrays.offset * objective,
        lower=arrays.lower / column,
        upper=arrays.upper / column,
        row_lower=arrays.row_lower * row,
        row_upper=arrays.row_upper * row,
        value=arrays.value * row[rows] * column[arrays.index],
    )
    return Scaled(scaled, column, row, objective)


def _towards_one(size: NDArray[np.float64], group: NDArray[np.integer], groups: int) -> NDArray[np.float64]:
    """Return per group the power of two next to 1/sqrt(smallest·largest); 1 for a group without terms."""
    low, high = np.full(groups, np.inf), np.zeros(groups)
    np.minimum.at(low, group, size)
    np.maximum.at(high, group, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = np.where(high > 0, 1.0 / np.sqrt(low * high), 1.0)
    return _power_of_two(middle)


def _power_of_two(value: NDArray[np.float64] | float) -> NDArray[np.float64]:
    return np.asarray(np.exp2(np.round(np.log2(value))), dtype=np.float64)
