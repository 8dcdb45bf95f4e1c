"""Whether predictions rank chips and layouts as measured runs do, at equal interactivity (answer tokens a second of a user).

A curve is what one chip, or one layout of it, gives over the load: tokens a second of a chip against those of a user. Curves of
one model and one pair of lengths are held against each other at every measured pace that both reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log

from tokenmill.validate import APART, Compared
from tokenmill.validate_serving_rows import Row

Point = tuple[float, float]
"""Tokens a second of a user, and of a chip."""
LIKE_FIGURES = {"tpot": "tpot.mean", "ttft": "ttft.mean"}


@dataclass(frozen=True)
class Loaded:
    """A row of a closed loop as two points: measured and predicted."""

    row: Row
    measured: Point
    predicted: Point


def loaded(row: Row, figures: Mapping[str, float]) -> Loaded:
    """Return the points of a row: of N in flight, by Little's law, N·answer / (TTFT + (answer - 1)·TPOT) tokens a second."""
    predicted = {name: figures[figure] for name, figure in LIKE_FIGURES.items()}
    return Loaded(row, _point(row, row.values), _point(row, predicted))


def _point(row: Row, times: Mapping[str, float]) -> Point:
    asked, layout = row.case.workload["demand"], row.case.workload["layout"]
    answer = float(asked["output_tokens"]["mean"])
    chips = float(layout["tp"] * layout["pp"] * row.case.workload["engine"]["attention_dp"])
    whole = times["ttft"] + (answer - 1) * times["tpot"]
    return 1 / times["tpot"], float(asked["arrivals"]["concurrency"]) * answer / whole / chips


def compared(rows: Sequence[Loaded]) -> tuple[Compared, ...]:
    """Return how many pairs of chips, of layouts of one chip, and of those in one build of its engine, part by more than a tenth, and
    the share ranked right.
    """
    kinds: dict[str, tuple[Callable[[Row], str], Callable[[Row], str]]] = {
        "chips": (_question, lambda row: row.case.accelerator),
        "layouts": (_of_group, _layout),
        "layouts of a build": (lambda row: f"{_of_group(row)}/{row.case.workload['engine'].get('version')}", _layout),
    }
    return tuple(_counted(f"{name}, one pace", _verdicts(rows, *keys)) for name, keys in kinds.items())


def _question(row: Row) -> str:
    demand = row.case.workload["demand"]
    return f"{row.case.model}/{demand['input_tokens']['mean']:g}/{demand['output_tokens']['mean']:g}"


def _of_group(row: Row) -> str:
    return f"{_question(row)}/{row.case.group}"


def _layout(row: Row) -> str:
    return f"{row.case.workload['layout']}/{row.case.workload['engine']['attention_dp']}"


def _counted(metric: str, verdicts: Iterator[bool]) -> Compared:
    found = list(verdicts)
    return Compared(metric, len(found), sum(found) / len(found) if found else None)


def _verdicts(rows: Iterable[Loaded], question: Callable[[Row], str], side: Callable[[Row], str]) -> Iterator[bool]:
    """Yield, for two curves of one question at every measured pace of theirs, whether the better one is predicted to be."""
    curves: dict[str, dict[str, list[Loaded]]] = {}
    for one in rows:
        curves.setdefault(question(one.row), {}).setdefault(side(one.row), []).append(one)
    for found in curves.values():
        for first, second in combinations(found.values(), 2):
            yield from _held(first, second)


def _held(first: Sequence[Loaded], second: Sequence[Loaded]) -> Iterator[bool]:
    measured = [front([one.measured for one in side]) for side in (first, second)]
    predicted = [front([one.predicted for one in side]) for side in (first, second)]
    low, high = max(curve[0][0] for curve in measured), min(curve[-1][0] for curve in measured)
    for pace in sorted({point[0] for curve in measured for point in curve if low <= point[0] <= high}):
        one, other = (rate(curve, pace) for curve in measured)
        if max(one, other) > APART * min(one, other):
            guess = [rate(curve, pace) for curve in predicted]
            yield guess[0] != guess[1] and (guess[0] > guess[1]) == (one > other)


def front(points: Iterable[Point]) -> list[Point]:
    """Return the points that no other beats in both, the slowest pace of a user first."""
    kept: list[Point] = []
    for point in sorted(points, reverse=True):
        if not kept or point[1] > kept[-1][1]:
            kept.append(point)
    return kept[::-1]


def rate(curve: Sequence[Point], pace: float) -> float:
    """Return the tokens a second of a chip on a front at a pace: between points by powers, and on by the power of the last two.

    A curve ends at the least load that was run, not at what the layout could do: only a curve of one point has no further.
    """
    if pace <= curve[0][0]:
        return curve[0][1]
    if len(curve) == 1:
        return 0.0
    at = next((i for i in range(1, len(curve)) if pace <= curve[i][0]), len(curve) - 1)
    (slow, more), (fast, less) = curve[at - 1], curve[at]
    return exp(log(more) + (log(less) - log(more)) * log(pace / slow) / log(fast / slow))
