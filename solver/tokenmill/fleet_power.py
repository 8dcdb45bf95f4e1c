"""What a replica draws at part of its load: one line for the programme, near the curve of its operating points."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenmill.candidates.columns import Column
    from tokenmill.candidates.search import Searched

PART = 0.25
"""Share of the full rate at which the line meets the curve: with this it stays within a few per cent from a tenth of the load on."""


def with_base(searched: Searched) -> Searched:
    """Return the search whose pools' columns draw their base as soon as they are up, loaded or not.

    A replica with few requests runs small batches all the time; it does not run full ones now and then and sleep between. Its draw over
    its rate is a curve that rises steeply at first; the programme, being linear, takes the line through its points at
    `PART` of the full rate and at the full rate. Of a column with one point nothing more than idle is known.
    """
    columns = {
        role: tuple(replace(column, power_idle=base(column)) if column.kind == "pool" else column for column in own)
        for role, own in searched.columns.columns.items()
    }
    return replace(searched, columns=replace(searched.columns, columns=columns))


def base(column: Column) -> float:
    """Return W of a replica's chips at no load on the line that stands for its curve; at least idle, at most its least point."""
    points = sorted((point for point in column.points if any(point.rate)), key=lambda point: max(point.rate))
    if len(points) < 2:
        return column.power_idle
    top = points[-1]
    part = min(points[:-1], key=lambda point: abs(max(point.rate) / max(top.rate) - PART))
    share = max(part.rate) / max(top.rate)
    if share >= 1.0:
        return column.power_idle
    at_rest = (part.power_loaded - share * top.power_loaded) / (1.0 - share)
    return min(max(at_rest, column.power_idle), top.power_loaded)
