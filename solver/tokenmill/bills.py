"""What each workload takes over the horizon: work, accelerator-hours, money; and when a pool has taken as much as the runs it needs.

Bills of one workload sum over its pools and runs; nothing here knows what a workload does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tokenmill.milp.sets import before
from tokenmill.plan import Pool, Run, WorkloadPlan
from tokenmill.problem import Problem

DAY, HOUR = 86400.0, 3600.0
WORK = "flops"


@dataclass(frozen=True)
class Bill:
    """Counted work [FLOP], accelerator-hours and money [USD]; None where it is not known."""

    flops: float | None
    accelerator_hours: float
    cost: float | None


@dataclass(frozen=True)
class Billed:
    """A workload with its bill, and for a pool what it takes in each period, as shares of the bill."""

    bill: Bill
    shares: tuple[float, ...] = ()


def with_bills(
    problem: Problem,
    catalog: Any,
    workloads: Mapping[str, WorkloadPlan],
    runs: Sequence[Run],
    cost: Mapping[str, float],
) -> dict[str, WorkloadPlan]:
    """Return workloads whose totals also hold their ``bill``, and pools that need runs the ``crossover``.

    A crossover holds the bill of all runs that the pool needs, and for each figure the days of service until the pool has taken as
    much (at the rates of the periods, those of the last one beyond the horizon).
    """
    billed = {
        name: _billed(problem, catalog, made, [run for run in runs if run.workload == name], cost.get(name))
        for name, made in workloads.items()
    }
    needed = before(problem)
    starts = {run.workload for run in runs}
    totals: dict[str, dict[str, Any]] = {}
    for name, one in billed.items():
        totals[name] = {"bill": asdict(one.bill)}
        behind = [billed[other].bill for other in sorted(needed[name]) if other in starts]
        if one.shares and behind:
            totals[name]["crossover"] = _crossover(problem, one, behind)
    return {name: replace(made, totals={**made.totals, **totals[name]}) for name, made in workloads.items()}


def _billed(problem: Problem, catalog: Any, made: WorkloadPlan, runs: Sequence[Run], cost: float | None) -> Billed:
    if runs:
        others = sum(pool.chips for pool in made.pools if catalog.system(pool.system).hardware == "processor")
        seconds = sum(run.end - run.start for run in runs)
        hours = sum((run.chips - others) * (run.end - run.start) for run in runs) / HOUR
        work = made.totals.get(WORK)
        if work is None:
            work = sum(_rate_of_work(catalog, pool) * seconds for pool in made.pools if _accelerates(catalog, pool))
        return Billed(Bill(work if work or not hours else None, hours, cost))
    slices = problem.horizon.slices
    period = problem.horizon.duration / problem.horizon.periods
    chip_time, work = [0.0] * problem.horizon.periods, 0.0
    for pool in made.pools:
        if not _accelerates(catalog, pool):
            continue
        busiest = max((row.utilisation for row in pool.schedule), default=1.0) or 1.0
        for row in pool.schedule:
            taken = row.replicas * pool.chips / max(pool.replicas, 1e-12) * slices[row.slice] * period
            chip_time[row.period - 1] += taken
            work += _rate_of_work(catalog, pool) / pool.chips * taken * row.utilisation / busiest
    total = sum(chip_time)
    shares = tuple(taken / total for taken in chip_time) if total > 0 else ()
    return Billed(Bill(work if work or not total else None, total / HOUR, cost), shares)


def _accelerates(catalog: Any, pool: Pool) -> bool:
    return bool(catalog.system(pool.system).hardware == "accelerator")


def _rate_of_work(catalog: Any, pool: Pool) -> float:
    """Return the counted work of a pool at work [FLOP/s]: its MFU times the 16-bit peak of its chips."""
    peak = catalog.chip(catalog.system(pool.system).chip).peak
    widest = next((peak[word] for word in ("bf16", "fp16", "fp32") if word in peak), 0.0)
    return float(pool.predicted.get("mfu") or 0.0) * float(widest) * pool.chips


def _crossover(problem: Problem, pool: Billed, behind: Sequence[Bill]) -> dict[str, Any]:
    needed: dict[str, float | None] = {}
    for name in asdict(pool.bill):
        values = [getattr(bill, name) for bill in behind]
        needed[name] = None if None in values else sum(values)
    days = {f"{name}_days": _days(problem, pool, getattr(pool.bill, name), amount) for name, amount in needed.items()}
    return {"needed": needed, **days}


def _days(problem: Problem, pool: Billed, taken: float | None, amount: float | None) -> float | None:
    """Return the days of service until `amount` is taken, from the first period in which anything is."""
    if not taken or amount is None:
        return None
    period = problem.horizon.duration / problem.horizon.periods
    first = next(h for h, share in enumerate(pool.shares) if share > 0)
    left, passed = amount, 0.0
    for share in pool.shares[first:]:
        if share * taken >= left:
            return (passed + left / (share * taken) * period) / DAY
        left, passed = left - share * taken, passed + period
    last = pool.shares[-1] * taken
    return (passed + left / last * period) / DAY if last > 0 else None
