"""How a solve goes on, told to whoever watches: seconds, proven bound, best plan in hand, gap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import isfinite


@dataclass(frozen=True)
class Progress:
    """A moment of a solve: `seconds` of it; `bound` and `incumbent` in the objective's unit, `gap` relative (None: none yet)."""

    seconds: float
    bound: float | None
    incumbent: float | None

    @property
    def gap(self) -> float | None:
        """Relative distance between the two; None while either is missing."""
        if self.bound is None or self.incumbent is None:
            return None
        return abs(self.incumbent - self.bound) / max(abs(self.incumbent), 1e-12)

    def text(self) -> str:
        """Return the moment in one line."""
        best = "no plan yet" if self.incumbent is None else f"best {self.incumbent:.6g}"
        bound = "" if self.bound is None else f", bound {self.bound:.6g}"
        gap = "" if self.gap is None else f", gap {100 * self.gap:.3g}%"
        return f"{self.seconds:.0f} s: {best}{bound}{gap}"


Watcher = Callable[[Progress], None]
_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Tell `watcher` of every solve inside the block."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def watcher() -> Watcher | None:
    """Return who watches, None for nobody."""
    return _WATCHER.get()


def moment(seconds: float, bound: float, incumbent: float, objective: float) -> Progress:
    """Return what a solver says of a programme whose objective was multiplied by `objective`."""

    def of(value: float) -> float | None:
        return value / objective if isfinite(value) and abs(value) < 1e29 else None

    return Progress(seconds, of(bound), of(incumbent))
