"""Requests drawn from a plan's own demand: arrivals with its variation of gaps, lengths with its means and percentiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.errors import Mistake, ProblemError
from tokenmill.imports.traces import Trace
from tokenmill.simulate import workload_of

if TYPE_CHECKING:
    from tokenmill.plan import Plan

Array = NDArray[np.float64]
Z95 = NormalDist().inv_cdf(0.95)


def generated(plan: Plan, name: str, count: int, seed: int = 0, rate: float | None = None) -> Trace:
    """Return `count` requests of a workload's demand at `rate` [requests/s] (absent: what the plan carries in its busiest slice).

    Gaps are gamma distributed with the demand's variation (exponential at 1), lengths lognormal where a p95 is given.
    """
    told = workload_of(plan, name)
    carried = rate if rate is not None else planned_rate(plan, name)
    if carried <= 0:
        raise ProblemError([Mistake(f"workloads.{name}", "no load in any slice", "a plan that carries requests")])
    random = np.random.default_rng(seed)
    classes = told["classes"]
    of = random.choice(len(classes), size=count, p=_shares(classes))
    prompts, answers = np.empty(count), np.empty(count)
    for at, one in enumerate(classes):
        chosen = of == at
        number = int(chosen.sum())
        prompts[chosen] = lengths(random, one["values"]["input_tokens"], number)
        answers[chosen] = lengths(random, one["values"]["output_tokens"], number)
    cv = float(told["values"].get("demand.arrivals.cv") or 1.0)
    seconds = np.cumsum(gaps(random, carried, cv, count))
    return Trace(
        f"{count} requests drawn from the demand, seed {seed}", "generated", seconds - seconds[0], prompts, answers
    )


def planned_rate(plan: Plan, name: str) -> float:
    """Return the requests a second that enter the workload's pools in its busiest slice, as the plan carries them."""
    pools = plan.workloads[name].pools
    first = "prefill" if any(pool.role == "prefill" for pool in pools) else None
    moments: dict[tuple[int, str], float] = {}
    for pool in pools:
        if first is None or pool.role == first:
            for row in pool.schedule:
                moments[row.period, row.slice] = moments.get((row.period, row.slice), 0.0) + row.rate
    return max(moments.values(), default=0.0)


def asked_concurrency(plan: Plan, name: str) -> int:
    """Return the requests that the workload's closed-loop clients keep in flight; 0 for open arrivals."""
    return int(workload_of(plan, name)["values"].get("demand.arrivals.concurrency") or 0)


def gaps(random: np.random.Generator, rate: float, cv: float, count: int) -> Array:
    """Return gaps [s] of mean 1/rate and variation `cv`, gamma distributed."""
    if cv <= 0:
        return np.full(count, 1 / rate)
    shape = 1 / cv**2
    return random.gamma(shape, 1 / (rate * shape), count)


def lengths(random: np.random.Generator, given: Any, count: int) -> Array:
    """Return lengths [tokens], whole and at least 1: `given` is a number, or {mean, p95} of a lognormal."""
    mean = float(given["mean"] if isinstance(given, Mapping) else given)
    p95 = given.get("p95") if isinstance(given, Mapping) else None
    if p95 is None:
        return np.full(count, max(1.0, round(mean)))
    sigma = Z95 - sqrt(max(0.0, Z95 * Z95 - 2 * log(float(p95) / mean)))
    drawn = random.lognormal(log(mean) - sigma * sigma / 2, sigma, count)
    return np.maximum(1.0, np.round(drawn))


def _shares(classes: Sequence[Mapping[str, Any]]) -> Array:
    shares = np.array([float(one["share"]) for one in classes])
    return np.asarray(shares / shares.sum())
