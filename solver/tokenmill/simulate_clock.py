"""The clock of a simulation: arrivals, the router that deals them to engines, and the ends of segments in order of time."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

from tokenmill.simulate_engine import Engine, Requests
from tokenmill.simulate_lockstep import Lockstep

Unit = Engine | Lockstep
"""What the clock knows: an engine, or several that step together."""

ROUTERS = ("least-loaded", "round-robin", "one-queue")


class Router:
    """Which engine takes a request: the least loaded, each in turn, or whichever has room first from one queue."""

    def __init__(self, kind: str, engines: Sequence[Engine], weights: Sequence[float]) -> None:
        self.kind, self.engines = kind, engines
        self.weights = weights  # what an engine carries beside another
        self.dealt = [0.0] * len(engines)

    def choose(self) -> int:
        """Return the engine for the next request."""
        if len(self.engines) == 1:
            return 0
        if self.kind == "round-robin":
            at = min(range(len(self.engines)), key=lambda e: (self.dealt[e] + 1) / self.weights[e])
            self.dealt[at] += 1
            return at
        if self.kind == "one-queue":
            loads = [engine.running() / weight for engine, weight in zip(self.engines, self.weights, strict=True)]
        else:
            loads = [engine.load / weight for engine, weight in zip(self.engines, self.weights, strict=True)]
        return loads.index(min(loads))


def run(
    engines: Sequence[Engine],
    router: Router,
    requests: Requests,
    concurrency: int = 0,
    teams: Sequence[Lockstep] = (),
) -> float:
    """Replay all requests over the engines; return the time of the last event [s].

    `concurrency`: requests that clients keep in flight (closed loop): each end lets the next one arrive; 0: by the clock.
    `teams`: engines that step together; the others keep their own pace.
    """
    units = _units(engines, teams)
    arrivals = requests.arrival
    total, at = min(len(arrivals), concurrency or len(arrivals)), 0
    following = total
    clock: list[tuple[float, int]] = []
    now = 0.0
    while at < total or clock:
        upcoming = arrivals[at] if at < total else inf
        if not clock or upcoming <= clock[0][0]:
            now = upcoming
            _arrive(units, router, at, now, clock)
            at += 1
            continue
        now, number = heappop(clock)
        unit = units[number]
        if unit.until != now:
            continue  # the stretch was cut short; its new end stands in the heap as well
        ended = unit.finish()
        unit.begin(now)
        if unit.until < inf:
            heappush(clock, (unit.until, number))
        while concurrency and ended and following < len(arrivals):
            arrivals[following] = now
            _arrive(units, router, following, now, clock)
            following, ended = following + 1, ended - 1
    return now


def _units(engines: Sequence[Engine], teams: Sequence[Lockstep]) -> list[Unit]:
    """Return what paces each engine, by its number."""
    team = {id(engine): one for one in teams for engine in one.members}
    return [team.get(id(engine), engine) for engine in engines]


def _arrive(units: Sequence[Unit], router: Router, number: int, now: float, clock: list[tuple[float, int]]) -> None:
    at = router.choose()
    engine, unit = router.engines[at], units[at]
    blocked = bool(engine.waiting) and router.kind != "one-queue"
    engine.waiting.append(number)
    engine.load += 1
    if unit.until == inf:
        unit.begin(now)
    elif blocked or not unit.shorten(now):
        return
    if unit.until < inf:
        heappush(clock, (unit.until, at))
