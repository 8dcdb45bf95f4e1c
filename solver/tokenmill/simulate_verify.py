"""`solve --verify-by-simulation`: a plan held against a simulated load, and enlarged until its limits hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tokenmill.errors import Mistake, ProblemError
from tokenmill.simulate import Options, SimulationReport, simulate
from tokenmill.simulate_load import asked_concurrency, generated, planned_rate
from tokenmill.units import format_quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenmill.plan import Plan
    from tokenmill.problem import Problem, Workload

MORE = 0.1  # head-room added a round, as a share of the demand
ROUNDS = 8
LEAST, MOST = 3000, 200_000  # requests of a generated load
LIFETIMES = 20.0  # mean times of a request that a load lasts at least, so that it reaches its steady state
WARM = 0.2
CLOSE = 0.1  # share by which a formula may differ from the simulation unmarked
HEADROOM = "demand.headroom"
STAGES = ("serving",)


@dataclass(frozen=True)
class Verified:
    """A plan with the simulations of its workloads, and whether every limit holds.

    `added`: what the plan has beyond the one that the demand alone asks for, in words. `marks`: figures of the closed
    formulas that lie more than CLOSE from the simulation, in words; they stand in the plan's notes too.
    """

    plan: Plan
    reports: Mapping[str, SimulationReport]
    added: tuple[str, ...]
    holds: bool
    marks: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the simulations and what was added, as people read it."""
        from tokenmill.simulate_text import text

        told = "held by simulation" if self.holds else "NOT held by simulation"
        added = "".join(f"  added: {line}\n" for line in self.added)
        marked = "".join(f"  {line}\n" for line in self.marks)
        return f"\nLimits {told}\n{added}{marked}" + "".join(text(report) for report in self.reports.values())


def verify(problem: Problem, solve: Callable[[Problem], Plan], *, options: Options | None = None) -> Verified:
    """Solve a problem, simulate its serving workloads at their demand, and add head-room until every limit holds.

    `solve`: from problem to plan. Each round adds a tenth of the demand as head-room to the workloads that miss a
    limit; the load stays that of the demand. Where no head-room helps, the first plan is returned and `holds` is false.

    Raises
    ------
    ProblemError
        For a problem without a workload that can be simulated.
    """
    if not any(w.stage in STAGES for w in problem.workloads):
        raise ProblemError(
            [Mistake("--verify-by-simulation", "no serving workload", "a problem with one of stage serving")]
        )
    settings = options or Options(warm=WARM)
    asked = {w.name: _headroom(w) for w in problem.workloads}
    first = solve(problem)
    reports = _simulated(first, problem, asked, settings)
    best, current = (first, reports), problem
    for _ in range(ROUNDS):
        short = {name for name, report in reports.items() if not report.holds}
        if not short:
            break
        current = replace(current, workloads=tuple(_more(w) if w.name in short else w for w in current.workloads))
        plan = solve(current)
        if plan.status not in ("optimal", "feasible"):
            break
        reports = _simulated(plan, current, asked, settings)
        if all(report.holds for report in reports.values()):
            return _verified(plan, reports, _added(_replicas(first), _replicas(plan), current, asked))
    return _verified(*best, ())


def _verified(plan: Plan, reports: Mapping[str, SimulationReport], added: tuple[str, ...]) -> Verified:
    holds = bool(reports) and all(report.holds for report in reports.values())
    marks = tuple(line for report in reports.values() for line in marks_of(plan, report))
    notes = (*plan.notes, *(f"simulation, {line}" for line in (*added, *marks)))
    return Verified(replace(plan, notes=notes), reports, added, holds, marks)


def marks_of(plan: Plan, report: SimulationReport) -> list[str]:
    """Return the predicted medians and 95th percentiles that lie more than CLOSE from the simulated ones, in words.

    Time per output token is a request's mean; the gaps between single tokens stand beside it.
    """
    found = []
    for pool in plan.workloads[report.workload].pools:
        for figure, simulated in (
            ("ttft", report.ttft),
            ("tpot", report.tpot),
            ("itl", report.gap),
            ("e2e", report.e2e),
        ):
            predicted = pool.predicted.get(figure)
            for word in ("p50", "p95"):
                if not isinstance(predicted, Mapping) or not simulated or predicted.get(word) is None:
                    continue
                off = float(predicted[word]) / simulated[word] - 1
                if abs(off) > CLOSE:
                    said, seen = format_quantity(float(predicted[word]), "s"), format_quantity(simulated[word], "s")
                    found.append(
                        f"{report.workload}.{pool.name}.{figure}.{word}: formula {said}, simulated {seen} ({off:+.0%})"
                    )
    return found


def _simulated(
    plan: Plan, problem: Problem, asked: Mapping[str, float], options: Options
) -> dict[str, SimulationReport]:
    """Return the simulation of every serving workload at its own demand, without what was added to it."""
    reports = {}
    for workload in problem.workloads:
        if workload.stage not in STAGES or not plan.workloads[workload.name].pools:
            continue
        name = workload.name
        rate = planned_rate(plan, name) * (1 + asked[name]) / (1 + _headroom(workload))
        trace = generated(plan, name, _count(plan, name, rate), problem.seed, rate)
        reports[name] = simulate(
            plan, trace, problem, replace(options, workload=name, concurrency=asked_concurrency(plan, name))
        )
    return reports


def _count(plan: Plan, name: str, rate: float) -> int:
    """Return how many requests a load has: some lifetimes of a request, within LEAST and MOST."""
    lasts = max(
        float((pool.predicted.get(figure) or {}).get("mean") or 0.0)
        for pool in plan.workloads[name].pools
        for figure in ("e2e", "answer", "ttft")
    )
    return int(min(MOST, max(LEAST, rate * lasts * LIFETIMES)))


def _headroom(workload: Workload) -> float:
    return float(workload.values.get(HEADROOM) or 0.0)


def _more(workload: Workload) -> Workload:
    return replace(workload, values={**workload.values, HEADROOM: _headroom(workload) + MORE})


def _replicas(plan: Plan) -> dict[str, float]:
    return {
        f"{name}, {pool.role} on {pool.system}": pool.replicas
        for name, item in plan.workloads.items()
        for pool in item.pools
    }


def _added(
    before: Mapping[str, float], after: Mapping[str, float], problem: Problem, asked: Mapping[str, float]
) -> tuple[str, ...]:
    """Return what verification changed, in words; nothing where the first plan held."""
    words = [
        f"{workload.name}: head-room {asked[workload.name]:.0%} -> {_headroom(workload):.0%} of the demand"
        for workload in problem.workloads
        if _headroom(workload) > asked[workload.name]
    ]
    if not words:
        return ()
    changed: list[Any] = [key for key in {**before, **after} if before.get(key, 0) != after.get(key, 0)]
    return (*words, *(f"{key}: replicas {before.get(key, 0):g} -> {after.get(key, 0):g}" for key in changed))
