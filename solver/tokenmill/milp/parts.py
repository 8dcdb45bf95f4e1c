"""Programmes that fall apart: what is left when a few columns that link everything are set aside."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.eliminate import rows_of
from tokenmill.milp.rows import Arrays

NEARLY = 1e-6  # of a side of a row, within which it is met

Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """Rows and columns of one part, and linking columns that its rows read, as numbers in the whole programme."""

    rows: Numbers
    own: Numbers
    links: Numbers

    @property
    def columns(self) -> Numbers:
        """Own columns, then links."""
        return np.concatenate([self.own, self.links])


def parts(arrays: Arrays, linking: Mask) -> list[Part]:
    """Return the parts that share no column but linking ones, in order of their first column; rows of links alone are in none."""
    row, column = rows_of(arrays), arrays.index.astype(np.int64)
    label, of_row = _labels(row, column, linking, len(arrays.row_lower))
    roots = np.unique(label[~linking])
    part_of_row, part_of_column = np.searchsorted(roots, of_row), np.searchsorted(roots, label)
    part_of_column[linking] = -1
    inside = np.flatnonzero(of_row < len(label))
    read = linking[column] & (of_row[row] < len(label))
    pairs = np.unique(np.stack([part_of_row[row[read]], column[read]]), axis=1)
    return [
        Part(rows, own, links)
        for rows, own, links in zip(
            _grouped(part_of_row[inside], inside, len(roots)),
            _grouped(part_of_column[~linking], np.flatnonzero(~linking), len(roots)),
            _grouped(pairs[0], pairs[1], len(roots)),
            strict=True,
        )
    ]


def _grouped(key: Numbers, numbers: Numbers, groups: int) -> list[Numbers]:
    order = np.argsort(key, kind="stable")
    return np.split(numbers[order], np.searchsorted(key[order], np.arange(1, groups)))


def _labels(row: Numbers, column: Numbers, linking: Mask, rows: int) -> tuple[Numbers, Numbers]:
    """Return the smallest column that each column, and each row, hangs together with; rows of links alone: no column."""
    size = len(linking)
    inner = ~linking[column]
    row, column = row[inner], column[inner]
    label = np.arange(size)
    while True:
        of_row = np.full(rows, size)
        np.minimum.at(of_row, row, label[column])
        new = label.copy()
        np.minimum.at(new, column, of_row[row])
        new = np.minimum(new, new[new])
        if np.array_equal(new, label):
            return label, of_row
        label = new


def extract(arrays: Arrays, rows: Numbers, columns: Numbers) -> Arrays:
    """Return some rows of a programme over some of its columns, in the order given; other columns stand at zero."""
    place = np.full(len(arrays.lower), -1, dtype=np.int64)
    place[columns] = np.arange(len(columns))
    length = np.diff(arrays.starts)[rows]
    inside = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
    terms = np.repeat(arrays.starts[rows], length) + inside
    index = place[arrays.index[terms]]
    stays = index >= 0
    ends = np.concatenate([[0], np.cumsum(length)])
    return replace(
        arrays, cost=arrays.cost[columns], offset=0.0, lower=arrays.lower[columns], upper=arrays.upper[columns],
        integer=arrays.integer[columns], row_lower=arrays.row_lower[rows], row_upper=arrays.row_upper[rows],
        starts=np.concatenate([[0], np.cumsum(stays)])[ends].astype(np.int32), index=index[stays].astype(np.int32),
        value=arrays.value[terms][stays],
    )  # fmt: skip


def held(arrays: Arrays, stays: Mask, values: NDArray[np.float64]) -> Arrays | None:
    """Return a programme over the columns that do not stay at some values; None where these alone break a row."""
    row = rows_of(arrays)
    done = np.bincount(
        row, weights=np.where(stays, values, 0.0)[arrays.index] * arrays.value, minlength=len(arrays.row_lower)
    )
    low, high = arrays.row_lower - done, arrays.row_upper - done
    open_ = np.bincount(row[~stays[arrays.index]], minlength=len(done)) > 0
    slack = NEARLY * np.maximum(
        1.0, np.abs(np.where(np.isfinite(arrays.row_upper), arrays.row_upper, arrays.row_lower))
    )
    if np.any(~open_ & ((low > slack) | (high < -slack))):
        return None
    return extract(replace(arrays, row_lower=low, row_upper=high), np.flatnonzero(open_), np.flatnonzero(~stays))


def transposed_times(arrays: Arrays, duals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what rows at some prices charge each column: A' y."""
    charged = arrays.value * np.repeat(duals, np.diff(arrays.starts))
    return np.bincount(arrays.index, weights=charged, minlength=len(arrays.lower)).astype(np.float64)


def holds(arrays: Arrays, values: NDArray[np.float64]) -> bool:
    """Tell whether values meet every row and bound of a programme, to 1e-6 of each."""
    left = np.bincount(rows_of(arrays), weights=arrays.value * values[arrays.index], minlength=len(arrays.row_lower))
    for side, over in ((arrays.row_lower, arrays.row_lower - left), (arrays.row_upper, left - arrays.row_upper)):
        known = np.isfinite(side)
        if np.any(over[known] > NEARLY * np.maximum(1.0, np.abs(side[known]))):
            return False
    return bool(np.all(values >= arrays.lower - NEARLY) and np.all(values <= arrays.upper + NEARLY))
