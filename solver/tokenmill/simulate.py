"""Replays requests against a plan: continuous batching step by step, with the step times of the plan's own formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.errors import Mistake, ProblemError, nearest
from tokenmill.imports.traces import Trace
from tokenmill.simulate_clock import ROUTERS

if TYPE_CHECKING:
    from tokenmill.plan import Plan
    from tokenmill.problem import Problem

Array = NDArray[np.float64]
WORDS = ("mean", "p50", "p95", "p99")


@dataclass(frozen=True)
class Options:
    """How to replay. `rate`: requests/s in place of the trace's own; `router`: one of ROUTERS; `prefix`: replay prefix blocks;
    `slots`: most sequences of a replica; `warm`: share of the requests, from the start, that no figure counts;
    `concurrency`: requests kept in flight in place of the trace's times.
    """

    rate: float | None = None
    router: str = "least-loaded"
    prefix: bool = False
    slots: int | None = None
    warm: float = 0.0
    concurrency: int = 0
    workload: str | None = None


@dataclass(frozen=True)
class Held:
    """A limit of the file against the simulation: [s], whether it holds, and the share of requests within it."""

    limit: float
    value: float
    holds: bool
    within: float


@dataclass(frozen=True)
class PoolUse:
    """What happened on a pool: means over time and the greatest values; `kv`: share of the KV room; `busy`: share of time."""

    replicas: float
    engines: int
    queue: float
    queue_most: int
    running: float
    running_most: int
    kv: float
    kv_most: float
    busy: float
    preemptions: int
    prefix_hit: float


@dataclass(frozen=True)
class SimulationReport:
    """What a simulation found. Times in s: `ttft` from arrival to the first token, `tpot` mean of a request's later tokens,
    `gap` of single tokens, `e2e` of whole requests; each {mean, p50, p95, p99}.

    `slo`: limits by name ("ttft.p95"); `attained`: share of requests within every limit at once; `refused`: requests that no
    replica can hold; `cost`: {per_hour, per_request, per_million_output} USD; `requests`: arrays by request.
    """

    workload: str
    trace: str
    count: int
    refused: int
    seconds: float
    rate: float
    output_tokens_per_second: float
    ttft: Mapping[str, float]
    tpot: Mapping[str, float]
    gap: Mapping[str, float]
    e2e: Mapping[str, float]
    slo: Mapping[str, Held]
    attained: float
    pools: Mapping[str, PoolUse]
    cost: Mapping[str, float]
    notes: tuple[str, ...] = ()
    requests: Mapping[str, Array] = field(default_factory=dict, repr=False, compare=False)

    @property
    def holds(self) -> bool:
        """Whether every limit of the file holds, and nothing was refused."""
        return not self.refused and all(held.holds for held in self.slo.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON data, without the arrays by request."""
        from tokenmill.plan_json import encode

        data: dict[str, Any] = encode(replace(self, requests={}))
        data.pop("requests")
        return {"schema": 1, "holds": self.holds, **data}


@dataclass(frozen=True)
class Served:
    """What a stage's replay returns: arrays by request [s] (nan: refused), histogram of gaps {s: tokens}, use by pool."""

    arrival: Array
    first: Array
    last: Array
    gaps: Mapping[float, float]
    pools: Mapping[str, PoolUse]
    notes: tuple[str, ...] = ()


Replay = Callable[["Plan", str, Trace, Options, Any], Served]


def _replays() -> dict[str, Replay]:
    """Return how each stage is replayed, by its name."""
    from tokenmill.simulate_serving import replay

    return {"serving": replay}


def simulate(
    plan: Plan, trace: Trace, problem: Problem | None = None, options: Options | None = None
) -> SimulationReport:
    """Replay a trace against the pools of a plan, as they stand in its busiest slice.

    `problem`: the plan's, where its model is a file that lies beside it.

    Raises
    ------
    ProblemError
        For a plan without a pool that can be replayed, an unknown workload or router, a rate that is not above zero.
    """
    options = options or Options()
    _check(options)
    name = workload_named(plan, options.workload)
    replay = _replays()[plan.workloads[name].stage]
    scaled = at_rate(trace, options.rate) if options.rate is not None else trace
    served = replay(plan, name, scaled, options, problem.base if problem is not None else None)
    return _report(plan, name, scaled, served, options)


def at_rate(trace: Trace, rate: float) -> Trace:
    """Return a trace with its gaps stretched or shrunk evenly to a rate [requests/s]."""
    own = trace.rate
    return replace(trace, seconds=trace.seconds * (own / rate)) if own > 0 else trace


def _check(options: Options) -> None:
    mistakes = []
    if options.router not in ROUTERS:
        mistakes.append(Mistake("router", repr(options.router), ", ".join(ROUTERS), nearest(options.router, ROUTERS)))
    if options.rate is not None and not 0 < options.rate < float("inf"):
        mistakes.append(Mistake("rate", repr(options.rate), "requests a second above zero"))
    if not 0 <= options.warm < 1:
        mistakes.append(Mistake("warm", repr(options.warm), "a share from 0 to below 1"))
    if mistakes:
        raise ProblemError(mistakes)


def workload_named(plan: Plan, asked: str | None = None) -> str:
    """Return the workload of that name, or the only one that can be replayed.

    Raises
    ------
    ProblemError
        Where there is none, or several and none is named.
    """
    replays = _replays()
    known = [name for name, item in plan.workloads.items() if item.stage in replays and item.pools]
    if asked is None and len(known) == 1:
        return known[0]
    if asked in known:
        return str(asked)
    allowed = f"a workload with pools of {', '.join(replays)}: {', '.join(known) or 'the plan has none'}"
    found = "none named" if asked is None else repr(asked)
    raise ProblemError([Mistake("workload", found, allowed, nearest(asked or "", known))])


def _report(plan: Plan, name: str, trace: Trace, served: Served, options: Options) -> SimulationReport:
    done = np.isfinite(served.last)
    counted = done & (np.arange(done.size) >= options.warm * done.size)
    steps = trace.output_tokens - 1
    ttft = (served.first - served.arrival)[counted]
    e2e = (served.last - served.arrival)[counted]
    several = counted & (steps > 0)
    tpot = ((served.last - served.first)[several]) / steps[several]
    seconds = float(np.nanmax(served.last) - served.arrival[0]) if done.any() else 0.0
    written = float(trace.output_tokens[done].sum())
    whole = np.full(done.size, 0.0)
    whole[several] = tpot
    slo, within = _limits(plan, name, {"ttft": ttft, "tpot": whole[counted], "e2e": e2e})
    arrays = {"arrival": served.arrival, "first": served.first, "last": served.last}
    return SimulationReport(
        workload=name,
        trace=trace.name,
        count=int(done.sum()),
        refused=int((~done).sum()),
        seconds=seconds,
        rate=trace.rate,
        output_tokens_per_second=written / seconds if seconds > 0 else 0.0,
        ttft=_figures(ttft),
        tpot=_figures(tpot),
        gap=_weighted(served.gaps),
        e2e=_figures(e2e),
        slo=slo,
        attained=float(within.mean()) if within.size else 0.0,
        pools=served.pools,
        cost=_cost(plan, name, seconds, int(done.sum()), written),
        notes=served.notes,
        requests=arrays,
    )


def _figures(values: Array) -> dict[str, float]:
    if not values.size:
        return {}
    return dict(zip(WORDS, (float(values.mean()), *map(float, np.percentile(values, (50, 95, 99)))), strict=True))


def _weighted(gaps: Mapping[float, float]) -> dict[str, float]:
    """Return mean and percentiles of gaps that are given as {s: tokens}."""
    if not gaps:
        return {}
    values = np.array(sorted(gaps))
    weights = np.array([gaps[value] for value in values])
    order = np.cumsum(weights) / weights.sum()
    found = {"mean": float((values * weights).sum() / weights.sum())}
    for word, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        found[word] = float(values[min(int(np.searchsorted(order, share)), values.size - 1)])
    return found


def _limits(plan: Plan, name: str, times: Mapping[str, Array]) -> tuple[dict[str, Held], NDArray[np.bool_]]:
    """Return the limits of the workload against the times, and which requests are within all of them."""
    values = workload_of(plan, name).get("values", {})
    found: dict[str, Held] = {}
    within = np.ones(times["ttft"].size, bool)
    for figure, taken in times.items():
        for word, limit in (values.get(f"slo.{figure}") or {}).items():
            if limit is None or not taken.size:
                continue
            value = _figures(taken)[word]
            good = taken <= limit
            within &= good
            found[f"{figure}.{word}"] = Held(float(limit), value, value <= limit, float(good.mean()))
    return found, within


def workload_of(plan: Plan, name: str) -> Mapping[str, Any]:
    """Return the tables of a workload in the plan's resolved problem.

    Raises
    ------
    ProblemError
        Where the plan was written without its problem.
    """
    for item in plan.problem.get("workloads", ()):
        if item["name"] == name:
            return dict(item)
    raise ProblemError([Mistake("plan.problem", f"no workload {name!r}", "a plan with its resolved problem")])


def _cost(plan: Plan, name: str, seconds: float, count: int, tokens: float) -> dict[str, float]:
    """Return the workload's cost a time of the plan, spread over what the simulation served."""
    spent = plan.cost.by_workload.get(name)
    duration = (plan.problem.get("horizon") or {}).get("duration")
    if spent is None or not duration or not count:
        return {}
    rate = spent / float(duration)
    return {
        "per_hour": rate * 3600,
        "per_request": rate * seconds / count,
        "per_million_output": rate * seconds / tokens * 1e6,
    }
