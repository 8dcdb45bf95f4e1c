"""Groups of one replica that share its experts: none begins a step before all have ended theirs, so the longest sets the pace."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tokenmill.simulate_engine import Engine


class Lockstep:
    """Engines that step together, with the face of one engine to the clock. A segment is one step where any carries prompt tokens."""

    def __init__(self, members: Sequence[Engine]) -> None:
        self.members = members
        self.until = inf
        self.slowest = members[0]

    def begin(self, now: float) -> None:
        """Let every member choose its segment; cut all to the shortest, and let it last as the longest."""
        for member in self.members:
            member.begin(now)
        active = self._active()
        if not active:
            self.until = inf
            return
        steps = min(member.plain or 1 for member in active)
        ends = {id(member): member.end_after(steps) for member in active}
        self.slowest = max(active, key=lambda member: ends[id(member)])
        self._set(active, steps, ends[id(self.slowest)])

    def shorten(self, now: float) -> bool:
        """End a stretch of plain steps at the first boundary of the slowest member from `now` on; return whether it ends earlier."""
        active = self._active()
        if any(member.plain <= 1 for member in active) or not self.slowest.shorten(now):
            return False
        self._set(active, self.slowest.plain, self.slowest.until)
        return True

    def finish(self) -> int:
        """Apply the segment that ends now; return how many requests ended."""
        return sum(member.finish() for member in self._active())

    def _active(self) -> list[Engine]:
        return [member for member in self.members if member.until < inf]

    def _set(self, active: Sequence[Engine], steps: int, until: float) -> None:
        self.until = until
        for member in active:
            member.plain = min(member.plain, steps)
            member.until = until
