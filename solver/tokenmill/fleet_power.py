"""What a replica draws at part of its load: one line for the programme, near the curve of its operating points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenmill.candidates.columns import Column, OperatingPoint
    from tokenmill.candidates.search import Searched


def with_base(searched: Searched) -> Searched:
    """Return the search whose pools' columns draw their base as soon as they are up, loaded or not.

    A replica with few requests runs small batches all the time; it does not run full ones now and then and sleep between.
    The programme, being linear, takes the line from its draw at the smallest batch to that at the most it carries of a
    request class; points below are put on it. Of a column with one point nothing more than idle is known.
    """
    columns = {role: tuple(based(column) for column in own) for role, own in searched.columns.columns.items()}
    return replace(searched, columns=replace(searched.columns, columns=columns))


def based(column: Column) -> Column:
    """Return a column whose idle draw is that at the least load on the lines that stand for its curve."""
    points = [point for point in column.points if any(point.rate)]
    if column.kind != "pool" or len(points) < 2:
        return column
    base = max(column.power_idle, min(point.power_loaded for point in points))
    tops = [_most(points, b) for b in range(len(points[0].rate))]
    return replace(column, power_idle=base, points=tuple(_on_line(point, tops, base) for point in column.points))


def _most(points: Sequence[OperatingPoint], b: int) -> OperatingPoint:
    """Return the point that carries most of a request class."""
    return max(points, key=lambda point: (point.rate[b], point.power_loaded))


def _on_line(point: OperatingPoint, tops: Sequence[OperatingPoint], base: float) -> OperatingPoint:
    """Return a point that draws no less than the line of any class, from base to the draw at its full rate, does at its rate."""
    draws = [
        base + point.rate[b] / top.rate[b] * (top.power_loaded - base)
        for b, top in enumerate(tops)
        if top.rate[b] > 0.0
    ]
    return replace(point, power_loaded=max(point.power_loaded, *draws))
