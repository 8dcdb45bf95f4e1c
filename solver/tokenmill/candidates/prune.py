"""Exact pruning: a row goes only if another of its class is no worse in everything that the programme reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def pareto(costs: Array) -> NDArray[np.int64]:
    """Return the indices of rows that no other row dominates, in the order given.

    `costs`: (rows, criteria), smaller is better in each. Of equal rows the first stays, so order them by preference.
    """
    rows = np.lexsort((np.arange(len(costs)), *costs.T[::-1]))
    kept: list[int] = []
    front = np.empty((0, costs.shape[1]))
    for start in range(0, rows.size, 512):
        chunk = rows[start : start + 512]
        if front.size:
            beaten = np.any(np.all(front[None, :, :] <= costs[chunk][:, None, :], axis=2), axis=1)
            chunk = chunk[~beaten]
        for row in chunk:
            if not front.size or not np.any(np.all(front <= costs[row], axis=1)):
                front = np.vstack([front, costs[row]])
                kept.append(int(row))
    return np.array(sorted(kept), dtype=np.int64)


def thin(chips: Array, value: Array, others: Array) -> NDArray[np.int64]:
    """Return the indices of a two-criterion front with further criteria, quickly where those do not matter.

    `chips`, `value`: smaller is better; `others`: (rows, further criteria), possibly of no column.
    """
    if others.shape[1]:
        best = _best_per_footprint(chips, value, others)
        return best[pareto(np.column_stack([chips[best], value[best], others[best]]))]
    order = np.lexsort((value, chips))
    least = np.minimum.accumulate(value[order])
    first = np.concatenate([[True], value[order][1:] < least[:-1]])
    return np.sort(order[first])


def _best_per_footprint(chips: Array, value: Array, others: Array) -> NDArray[np.int64]:
    """Return the rows left after exact duplicates are merged."""
    _, first = np.unique(np.column_stack([chips, value, others]), axis=0, return_index=True)
    return np.sort(first)
