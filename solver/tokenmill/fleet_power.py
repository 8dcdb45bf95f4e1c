"""What a replica draws at part of its load: one line for the programme, near the curve of its operating points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenmill.candidates.columns import Column, OperatingPoint
    from tokenmill.candidates.search import Searched


def with_base(searched: Searched) -> Searched:
    """Return the search whose pools' columns draw their base as soon as they are up, loaded or not.

    A replica with few requests runs small batches all the time; it does not run full ones now and then and sleep between.
    The programme, being linear, takes the line to the draw at the most that a replica carries of a request class which is
    nowhere far from the curve, least so near full load, where most replicas of a fleet run; points below the line are put
    on it. Of a column with one point nothing more than idle is known.
    """
    columns = {role: tuple(based(column) for column in own) for role, own in searched.columns.columns.items()}
    return replace(searched, columns=replace(searched.columns, columns=columns))


def based(column: Column) -> Column:
    """Return a column whose idle draw is that at no load on the line that stands for its curve."""
    points = [point for point in column.points if any(point.rate)]
    if column.kind != "pool" or len(points) < 2:
        return column
    tops = [_most(points, b) for b in range(len(points[0].rate))]
    known = [
        (part, point.power_loaded, full) for point in points for part, full in [_nearest(point, tops)] if part < 1.0
    ]
    if not known:
        return column
    base = min(max(column.power_idle, _base(known)), *(top.power_loaded for top in tops))
    return replace(column, power_idle=base, points=tuple(_on_line(point, tops, base) for point in column.points))


def _most(points: Sequence[OperatingPoint], b: int) -> OperatingPoint:
    """Return the point that carries most of a request class."""
    return max(points, key=lambda point: (point.rate[b], point.power_loaded))


def _nearest(point: OperatingPoint, tops: Sequence[OperatingPoint]) -> tuple[float, float]:
    """Return the share of its most that a point carries, of the class of which that is most, and the draw at that most [W]."""
    parts = [(point.rate[b] / top.rate[b], top.power_loaded) for b, top in enumerate(tops) if top.rate[b] > 0.0]
    return max(parts)


def _base(known: Sequence[tuple[float, float, float]]) -> float:
    r"""Return W at no load on the line whose largest relative distance from points, times their load, is least.

    A point at share u of the full rate draws p, and :math:`p^{full}` there; a base b misses it by
    :math:`w |b - \beta|`, with :math:`\beta = (p - u p^{full}) / (1 - u)` and :math:`w = u (1 - u) / p`. Two points decide.
    """
    lines = [(u * (1.0 - u) / p, (p - u * full) / (1.0 - u)) for u, p, full in known]
    pairs = [*combinations(lines, 2), (lines[0], lines[0])]
    (v, b), (w, c) = max(
        pairs, key=lambda two: two[0][0] * two[1][0] * abs(two[0][1] - two[1][1]) / (two[0][0] + two[1][0])
    )
    return (v * b + w * c) / (v + w)


def _on_line(point: OperatingPoint, tops: Sequence[OperatingPoint], base: float) -> OperatingPoint:
    """Return a point that draws no less than the line of any class, from base to the draw at its full rate, does at its rate."""
    draws = [
        base + point.rate[b] / top.rate[b] * (top.power_loaded - base)
        for b, top in enumerate(tops)
        if top.rate[b] > 0.0
    ]
    return replace(point, power_loaded=max(point.power_loaded, *draws))
