"""What a replica draws at part of its load: one line for the programme, near the curve of its operating points."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenmill.candidates.columns import Column, OperatingPoint
    from tokenmill.candidates.search import Searched


def with_base(searched: Searched) -> Searched:
    """Return the search whose pools' columns draw their base as soon as they are up, loaded or not.

    A replica with few requests runs small batches all the time; it does not run full ones now and then and sleep between.
    The programme, being linear, takes the line from its draw at the smallest batch to that at full load; points below are put on it.
    Of a column with one point nothing more than idle is known.
    """
    columns = {role: tuple(based(column) for column in own) for role, own in searched.columns.columns.items()}
    return replace(searched, columns=replace(searched.columns, columns=columns))


def based(column: Column) -> Column:
    """Return a column whose idle draw is that at the least load on the line that stands for its curve."""
    points = [point for point in column.points if any(point.rate)]
    if column.kind != "pool" or len(points) < 2:
        return column
    top = max(points, key=lambda point: (point.power_loaded, point.rate))
    base = max(column.power_idle, min(point.power_loaded for point in points))
    return replace(column, power_idle=base, points=tuple(_on_line(point, top, base) for point in column.points))


def _on_line(point: OperatingPoint, top: OperatingPoint, base: float) -> OperatingPoint:
    """Return a point that draws no less than the line from base to full load does at its rate."""
    parts = [rate / full for rate, full in zip(point.rate, top.rate, strict=True) if full > 0.0]
    return replace(
        point, power_loaded=max(point.power_loaded, base + max(parts, default=0.0) * (top.power_loaded - base))
    )
