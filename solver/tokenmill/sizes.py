"""Good sizes of a run: numbers of chips that do better than every smaller one, and how far a size between falls short."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tokenmill.errors import Mistake, ProblemError
from tokenmill.problem import Problem, Workload

if TYPE_CHECKING:
    from tokenmill.catalog import Catalog

CHIPS, DAY = "layout.chips", 86400.0
MOST = 64
"""Sizes of one's own that are tried."""


@dataclass(frozen=True)
class Size:
    """The quickest layout on a number of chips: `duration` [s], None where there is no layout; `layout` by key."""

    chips: int
    duration: float | None
    system: str = ""
    layout: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Cliff:
    """A size, the good sizes next to it (None: none in range), and whether a smaller one is as quick or quicker."""

    at: Size
    below: Size | None
    above: Size | None

    @property
    def text(self) -> str:
        """The size in words: how long it takes, and the good sizes beside it."""
        now = "no layout" if self.at.duration is None else _days(self.at.duration)
        beside = [
            f"{size.chips} ({_days(size.duration or 0.0)})" for size in (self.below, self.above) if size is not None
        ]
        verdict = "" if not self.bad else ": fewer chips are as quick" if self.at.duration is not None else ""
        return f"{self.at.chips} chips: {now}{verdict}; good sizes beside it: {', '.join(beside) or 'none'}"

    @property
    def bad(self) -> bool:
        """Whether the next good size below is as quick, or the size has no layout at all."""
        if self.at.duration is None:
            return True
        return self.below is not None and self.below.duration is not None and self.below.duration <= self.at.duration


def _days(seconds: float) -> str:
    return f"{seconds / DAY:.4g} days"


def good_sizes(problem: Problem, workload: str | None = None, catalog: Catalog | None = None) -> list[Size]:
    """Return the sizes on the search's own grid that are quicker than every smaller one, ascending.

    Raises
    ------
    ProblemError
        For a workload that is not there, or no run.
    """
    best: dict[int, Size] = {}
    for size in _searched(problem, None, workload, catalog):
        known = best.get(size.chips)
        if known is None or (size.duration or 0.0) < (known.duration or 0.0):
            best[size.chips] = size
    found: list[Size] = []
    for _, size in sorted(best.items()):
        if not found or (size.duration or 0.0) < (found[-1].duration or 0.0):
            found.append(size)
    return found


def size_at(problem: Problem, chips: int, workload: str | None = None, catalog: Catalog | None = None) -> Size:
    """Return the quickest layout on exactly so many chips, or that there is none."""
    found = _searched(problem, chips, workload, catalog)
    return min(found, key=lambda size: size.duration or 0.0) if found else Size(chips, None)


def cliffs(
    problem: Problem, sizes: Sequence[int], workload: str | None = None, catalog: Catalog | None = None
) -> list[Cliff]:
    """Return sizes of one's own, each between the good sizes next to it.

    Raises
    ------
    ProblemError
        For a workload that is not there, or no run, or more than `MOST` sizes.
    """
    if len(sizes) > MOST:
        raise ProblemError([Mistake("--at", f"{len(sizes)} sizes", f"at most {MOST}")])
    good = good_sizes(problem, workload, catalog)
    numbers = [size.chips for size in good]
    found = []
    for chips in sizes:
        below, above = bisect_left(numbers, chips) - 1, bisect_right(numbers, chips)
        at = size_at(problem, chips, workload, catalog)
        found.append(Cliff(at, good[below] if below >= 0 else None, good[above] if above < len(good) else None))
    return found


def _searched(problem: Problem, chips: int | None, name: str | None, catalog: Catalog | None) -> list[Size]:
    from tokenmill.api import prepare

    asked = _run(problem, name)
    held = {key: values for key, values in asked.held.items() if key != CHIPS}
    if chips is not None:
        held |= {CHIPS: (chips,)}
    alone = replace(problem, workloads=(replace(asked, held=held, needs=()),))
    (searched,) = prepare(alone, catalog).searched
    if searched.columns.kind != "run":
        raise ProblemError([Mistake(f"workload.{asked.name}", searched.columns.stage, "a stage that is a run")])
    columns = [column for own in searched.columns.columns.values() for column in own]
    return [Size(c.chips, c.duration, c.system, c.layout) for c in columns if c.duration is not None]


def _run(problem: Problem, name: str | None) -> Workload:
    named = [workload for workload in problem.workloads if name in (None, workload.name)]
    if not named:
        known = ", ".join(workload.name for workload in problem.workloads)
        raise ProblemError([Mistake("--workload", repr(name), known)])
    return named[0]
