"""From the programme's answer and the evaluated columns to a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tokenmill import plan as p
from tokenmill.bills import with_bills
from tokenmill.candidates.columns import Column, WorkloadColumns
from tokenmill.milp.money import discount
from tokenmill.milp.solution import Running, RunStart, Solution
from tokenmill.plan_pools import NOTHING, bottleneck_of, class_weights, layout_of, nested, per_name, predictions
from tokenmill.plan_reasons import formats_assumed, reasoned
from tokenmill.plan_record import record
from tokenmill.plan_trace import answer_nodes, plan_trace
from tokenmill.problem import Objective, Problem
from tokenmill.trace import Evaluated
from tokenmill.trace_pools import pool_nodes

UNITS = {
    "cost": "USD",
    "cost_per_token": "USD/token",
    "cost_per_run": "USD/run",
    "cost_per_task": "USD/task",
    "time": "s",
    "power": "W",
    "energy": "J",
    "carbon": "kg",
    "chips": "chip",
}
RUN_TOTALS = ("goodput", "steps", "flops")
"""Figures of a run of one pool that count for the whole of it; of a run of parts all do."""
COST_KINDS = ("rent", "capital", "energy", "storage", "network", "operations")


@dataclass(frozen=True)
class Answer:
    """All that a plan is built from, with columns and evaluations by key; `stores`: systems whose units are no chips."""

    problem: Problem
    solution: Solution
    workloads: Mapping[str, WorkloadColumns]
    columns: Mapping[str, Column]
    evaluated: Mapping[str, Evaluated]
    pool_names: Mapping[tuple[str, str], str] = field(default_factory=dict)
    stores: frozenset[str] = frozenset()


class Prepared(Protocol):
    """What stood before the programme: the searches (each with `columns`), the catalogue, what was left out."""

    @property
    def searched(self) -> Sequence[Any]: ...  # noqa: D102

    @property
    def catalog(self) -> Any: ...  # noqa: D102

    @property
    def notes(self) -> Sequence[Any]: ...  # noqa: D102


def build_plan(
    problem: Problem,
    solution: Solution,
    found: Prepared,
    evaluated: Iterable[Evaluated],
    seconds: float | None = None,
    alternatives: Sequence[p.Alternative] = (),
) -> p.Plan:
    """Return the plan of a solved programme.

    `evaluated`: one record a used column (and part of a used run). `seconds`: of the whole solve; absent: the
    programme's own.
    """
    from tokenmill.reading import resolved

    columns = [searched.columns for searched in found.searched]
    records = list(evaluated)
    answer = replace(
        _answer(problem, columns, solution, records), stores=frozenset(getattr(found.catalog, "stores", ()))
    )
    workloads = {item.workload: _workload(answer, item) for item in columns}
    cost, taken = _cost(answer), tuple(_run(answer, run) for run in solution.runs)
    workloads = with_bills(problem, found.catalog, workloads, taken, cost.by_workload)
    ended, objective = solution.termination, _objective(problem, solution)
    binding = tuple(_bound(bound) for bound in solution.binding)
    return p.Plan(
        status=ended.status,
        objective=objective,
        cost=cost,
        purchases=solution.purchases,
        workloads=workloads,
        runs=taken,
        flows=tuple(_flow(flow) for flow in solution.flows),
        packing=solution.packing,
        binding=binding,
        alternatives=tuple(alternatives),
        infeasible=reasoned(solution.infeasible, {s.columns.workload: s.left_out for s in found.searched}, found.notes),
        audit=_audit(solution),
        trace={
            **_pool_trace(
                answer, plan_trace(solution, cost, _classes_by_pool(answer), _per_workload(answer), answer.stores)
            ),
            **answer_nodes(objective, binding, alternatives, solution.scenarios),
        },
        problem=resolved(problem),
        catalog_version=found.catalog.version,
        run=record(problem, ended, seconds),
        notes=(*_notes(found, solution, records), *formats_assumed(problem.workloads, workloads)),
    )


def _notes(found: Prepared, solution: Solution, evaluated: Iterable[Evaluated]) -> tuple[str, ...]:
    """Return what a reader must know: what roles say of their figures, systems not offered or left out and why, what the
    programme says.
    """
    remarks = [f"{record.workload}.{remark}" for record in evaluated for remark in record.remarks]
    left_out = [
        f"{searched.columns.workload}: {system} is left out: {reason}"
        for searched in found.searched
        for system, reason in searched.left_out.items()
    ]
    return tuple(dict.fromkeys([*remarks, *(str(note) for note in found.notes), *left_out, *solution.notes]))


def _answer(
    problem: Problem, columns: Sequence[WorkloadColumns], solution: Solution, evaluated: Iterable[Evaluated]
) -> Answer:
    by_key: dict[str, Column] = {}
    for item in columns:
        for role in item.columns.values():
            for column in role:
                by_key[column.key] = column
                by_key.update({part.key: part for part in column.parts})
    used = [by_key[key] for key in dict.fromkeys(_used_keys(solution))]
    every = [pool for column in used for pool in (column.parts or (column,))]
    return Answer(
        problem,
        solution,
        {item.workload: item for item in columns},
        by_key,
        {record.column: record for record in evaluated},
        _pool_names(every, solution),
    )


def _used_keys(solution: Solution) -> list[str]:
    return [running.column for running in solution.running] + [run.column for run in solution.runs]


def _pool_names(columns: Iterable[Column], solution: Solution) -> dict[tuple[str, str], str]:
    """Name each (column, site): its role, numbered from the second pool of the role in the workload on."""
    sites: dict[str, list[str]] = {}
    for key, site in [(r.column, r.site) for r in solution.running] + [(r.column, r.site) for r in solution.runs]:
        if site not in sites.setdefault(key, []):
            sites[key].append(site)
    counts: dict[tuple[str, str], int] = {}
    names: dict[tuple[str, str], str] = {}
    for column in columns:
        for site in sites.get(column.key, [""]):
            at = counts[column.workload, column.role] = counts.get((column.workload, column.role), 0) + 1
            names[column.key, site] = column.role if at == 1 else f"{column.role}-{at}"
    return names


def _pool_name(answer: Answer, key: str, site: str) -> str:
    named = answer.pool_names
    return named.get((key, site)) or named.get((key, "")) or answer.columns[key].role


def _workload(answer: Answer, item: WorkloadColumns) -> p.WorkloadPlan:
    pools = [*_running_pools(answer, item.workload), *_run_pools(answer, item.workload)]
    return p.WorkloadPlan(
        stage=item.stage,
        bottleneck=bottleneck_of(pools, answer.evaluated.values(), item.workload),
        totals=_totals(answer, item),
        pools=tuple(pools),
    )


def _running_pools(answer: Answer, workload: str) -> list[p.Pool]:
    grouped: dict[tuple[str, str], list[Running]] = {}
    for running in answer.solution.running:
        if answer.columns[running.column].workload == workload and running.replicas > 0:
            grouped.setdefault((running.column, running.site), []).append(running)
    return [_pool(answer, key, site, rows) for (key, site), rows in grouped.items()]


def _run_pools(answer: Answer, workload: str) -> list[p.Pool]:
    pools = []
    for run in answer.solution.runs:
        if run.workload == workload:
            column = answer.columns[run.column]
            pools += [_pool(answer, part.key, run.site, []) for part in column.parts or (column,)]
    return pools


def _pool(answer: Answer, key: str, site: str, rows: Sequence[Running]) -> p.Pool:
    column = answer.columns[key]
    schedule = _schedule(rows)
    replicas = max((row.replicas for row in schedule), default=1.0)
    record = answer.evaluated.get(key)
    predicted = predictions(record, class_weights(column, rows)) if record else {}
    operating = record.operating if record else {}
    layout = layout_of({**column.layout, **operating})
    return p.Pool(
        name=_pool_name(answer, key, site),
        role=column.role,
        system=column.system,
        site=site,
        chips=whole(replicas * column.room),
        replicas=whole(replicas * (column.layout.get("layout.replicas", 1) if column.kind != "pool" else 1)),
        layout=layout["layout"],
        precision=layout["precision"],
        batch=_batch(predicted.get("predicted", {}), layout),
        schedule=schedule,
        settings=layout["settings"],
        **({"predicted": {}} | predicted),
    )


def _batch(predicted: Mapping[str, Any], layout: Mapping[str, Mapping[str, Any]]) -> float | None:
    for table, name in ((predicted, "batch"), (layout["settings"], "batch"), (layout["layout"], "micro_batch")):
        if table.get(name) is not None:
            return whole(float(table[name]))
    return None


def _schedule(rows: Sequence[Running]) -> tuple[p.Scheduled, ...]:
    """Return the pool in each period and slice, over own, rented and spot systems together."""
    moments: dict[tuple[int, str], list[Running]] = {}
    for row in rows:
        moments.setdefault((row.period, row.slice), []).append(row)
    return tuple(_scheduled(period, part, together) for (period, part), together in moments.items())


def _scheduled(period: int, part: str, rows: Sequence[Running]) -> p.Scheduled:
    replicas = sum(row.replicas for row in rows)
    return p.Scheduled(
        period,
        part,
        whole(replicas),
        sum(sum(row.rates.values()) for row in rows),
        sum(row.utilisation * row.replicas for row in rows) / replicas,
        sum(row.power for row in rows),
    )


def _totals(answer: Answer, item: WorkloadColumns) -> dict[str, Any]:
    """Return wall time and goodput of a run, units that a pool carries over the horizon, and what they yield."""
    totals: dict[str, Any] = {}
    runs = [run for run in answer.solution.runs if run.workload == item.workload]
    if runs:
        totals["wall_time"] = max(run.end for run in runs) - min(run.start for run in runs)
        for run in runs:
            record = answer.evaluated.get(run.column)
            whole_of = next(iter(record.classes.values())) if record else NOTHING
            figures, every = whole_of.figures, bool(answer.columns[run.column].parts)
            if every and whole_of.intervals:
                totals["intervals"] = nested({name: list(ends) for name, ends in whole_of.intervals.items()})
            totals = nested({name: figures[name] for name in figures if every or name in RUN_TOTALS}) | totals
            totals |= nested(answer.columns[run.column].layout if every else {})
    elif any(units := served(answer, item)):
        totals["units"] = sum(units)
        if answer.problem.horizon.discount_rate:
            totals["present_worth"] = sum(served(answer, item, present=True)) / sum(units)
    for name, count in _yields(answer, item).items():
        kind, _, counted = name.rpartition(".")
        totals[f"{kind.removeprefix('cost_per_')}s_{counted}"] = count
    return totals


def _yields(answer: Answer, item: WorkloadColumns, present: bool = False) -> dict[str, float]:
    """Return what the workload yields over the horizon, by the names of `counts`; `present`: discounted as its cost is."""
    runs = sum(run.workload == item.workload for run in answer.solution.runs)
    units = [float(runs)] * len(item.classes) if runs else served(answer, item, present)
    if not any(units):
        return {}
    return {name: sum(n * u for n, u in zip(counts, units, strict=False)) for name, counts in item.counts.items()}


def served(answer: Answer, item: WorkloadColumns, present: bool = False) -> list[float]:
    """Return the units of demand carried over the horizon, by request class; `present`: discounted as dollars are."""
    horizon = answer.problem.horizon
    first = {route[0] for route in item.routes}
    units = [0.0] * len(item.classes)
    for row in answer.solution.running:
        column = answer.columns[row.column]
        if column.workload != item.workload or column.role not in first:
            continue
        seconds = horizon.duration / horizon.periods * horizon.slices.get(row.slice, 1.0)
        seconds *= answer.solution.expected.get((item.workload, row.period, row.slice), 1.0)
        seconds *= discount(horizon, row.period) if present else 1.0
        for (at, _), rate in row.rates.items():
            units[at] += rate * seconds
    return units


def _cost(answer: Answer) -> p.Cost:
    solution = answer.solution
    if solution.cost_total is None:
        return p.Cost()
    return p.Cost(
        total=solution.cost_total,
        by_period=solution.cost_by_period,
        by_kind=dict.fromkeys(COST_KINDS, 0.0) | dict(solution.cost_by_kind or {}),
        by_workload=solution.cost_by_workload or {},
        idle=solution.idle_cost,
        per=_cost_per(answer),
    )


def _per_workload(answer: Answer) -> str | None:
    """Return the workload that ratios are about: the objective's, else the only one."""
    named = answer.problem.objectives[0].workload
    return named or (next(iter(answer.workloads)) if len(answer.workloads) == 1 else None)


def _cost_per(answer: Answer) -> dict[str, float]:
    """Return USD a unit of what the objective's workload (or the only one) yields."""
    objective = answer.problem.objectives[0]
    name = _per_workload(answer)
    cost = (answer.solution.cost_by_workload or {}).get(name or "")
    if name is None or cost is None:
        return {}
    per: dict[str, float] = {}
    for yielded, count in _yields(answer, answer.workloads[name], present=True).items():
        if count > 0:
            per |= per_name(yielded, cost / count, objective.count)
    runs = sum(run.workload == name for run in answer.solution.runs)
    return per | ({"run": cost / runs} if runs else {})


def _objective(problem: Problem, solution: Solution) -> p.Objective:
    asked: Objective = problem.objectives[0]
    ended = solution.termination
    return p.Objective(asked.minimise, ended.objective, UNITS[asked.minimise], ended.bound, ended.gap)


def _run(answer: Answer, run: RunStart) -> p.Run:
    column = answer.columns[run.column]
    record = answer.evaluated.get(run.column)
    figures = next(iter(record.classes.values())).figures if record else {}
    chips = sum(count for system, count in column.footprint if system not in answer.stores)
    cost = (answer.solution.cost_by_workload or {}).get(run.workload, run.cost)
    return p.Run(run.workload, run.start, run.end, chips, run.market, figures.get("checkpoints"), run.site, cost)


def _flow(flow: Any) -> p.Flow:
    arcs = tuple(p.Arc(*arc) for arc in flow.arcs)
    return p.Flow(flow.workload, flow.kind, flow.source, flow.target, flow.period, flow.slice, arcs)


def _bound(binding: Any) -> p.Bound:
    known = binding.step is not None and binding.saves is not None
    following = p.NextUnit(binding.step, binding.saves, binding.unit) if known else p.NOT_COMPUTED
    return p.Bound(binding.limit, binding.slack, following, binding.key, binding.unit)


def _audit(solution: Solution) -> p.Audit:
    return p.Audit(None if solution.residual is None else True, solution.residual)


def _classes_by_pool(answer: Answer) -> dict[str, Mapping[str, Any]]:
    """Return the evaluated classes of every pool by ``workload.pool``."""
    named = [(key, name) for (key, _), name in answer.pool_names.items()]
    whole = (run.column for run in answer.solution.runs if answer.columns[run.column].parts)
    named += [(key, answer.columns[key].role) for key in whole]
    return {
        f"{answer.columns[key].workload}.{name}": answer.evaluated[key].classes
        for key, name in named
        if key in answer.evaluated
    }


def _pool_trace(answer: Answer, nodes: dict[str, Any]) -> dict[str, Any]:
    """Return the nodes, and those of figures that pools mix from their classes."""
    running = answer.solution.running
    weights = {
        f"{answer.columns[key].workload}.{name}": class_weights(
            answer.columns[key], [row for row in running if (row.column, row.site) == (key, site)]
        )
        for (key, site), name in answer.pool_names.items()
    }
    return {**nodes, **pool_nodes(_classes_by_pool(answer), weights, nodes)}


def whole(value: float) -> float:
    """Return a whole number as int, so that counts print without a point."""
    return int(value) if float(value).is_integer() else value
