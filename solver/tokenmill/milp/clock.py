"""Seconds of a solve, and what is left of them."""

from __future__ import annotations

from time import perf_counter


class Clock:
    """What is left of the time limit."""

    def __init__(self, limit: float | None) -> None:
        self.began, self.limit = perf_counter(), limit

    def spent(self) -> float:
        """Return seconds since the start."""
        return perf_counter() - self.began

    def left(self) -> float | None:
        """Return seconds left (None: no limit)."""
        return None if self.limit is None else max(0.0, self.limit - self.spent())
