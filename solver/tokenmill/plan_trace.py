"""The trace of a whole plan: sums over named rows, and the figures of every pool by request class."""

from __future__ import annotations

from collections.abc import Mapping

from tokenmill.milp.solution import Purchase, Solution
from tokenmill.plan import Cost, WorkloadPlan
from tokenmill.trace import ClassFigures, Node, prefixed, row, total

RENTED = ("on-demand", "spot", "reserved-1y", "reserved-3y")
CLOSE = 1e-9


def plan_trace(
    solution: Solution,
    cost: Cost,
    workloads: Mapping[str, WorkloadPlan],
    classes: Mapping[str, Mapping[str, ClassFigures]],
    per_workload: str | None = None,
) -> dict[str, Node]:
    """Return the trace: ``cost.*`` and ``power`` as sums, then the nodes of every pool.

    `classes`: evaluated classes by ``workload.pool``. One class: keys are ``workload.pool.figure``; several: the class
    follows the pool (``workload.pool.class.figure``). `per_workload`: the workload that ``cost.per`` is about.
    """
    nodes = {**_cost_nodes(solution, cost), **_per_nodes(cost, per_workload), **_power_nodes(solution)}
    for pool, by_class in classes.items():
        for name, one in by_class.items():
            prefix = pool if len(by_class) == 1 else f"{pool}.{name}"
            nodes |= prefixed(one.trace, prefix)
    return nodes


def _cost_nodes(solution: Solution, cost: Cost) -> dict[str, Node]:
    if cost.total is None:
        return {}
    nodes: dict[str, Node] = {}
    inputs: list[str | Node] = []
    for kind, value in cost.by_kind.items():
        if kind == "rent" and (rows := _rent_rows(solution, value)):
            nodes[f"cost.{kind}"] = total(kind, "rent of what is used", "USD", rows, value)
            inputs.append(f"cost.{kind}")
        else:
            inputs.append(row(kind, value, "USD", f"cost.by_kind.{kind}"))
    nodes["cost.total"] = total("cost", "cost over the horizon", "USD", inputs, cost.total)
    for name, value in cost.by_workload.items():
        nodes[f"cost.{name}"] = total(
            name, f"cost of {name}", "USD", [row(name, value, "USD", f"cost.by_workload.{name}")], value
        )
    return nodes


def _per_nodes(cost: Cost, workload: str | None) -> dict[str, Node]:
    """Return ``cost.per.*`` as the workload's cost over what it yields in the horizon."""
    nodes: dict[str, Node] = {}
    for name, value in cost.per.items():
        if workload is None or value <= 0:
            continue
        million = name.startswith("million_")
        spent = cost.by_workload[workload]
        word = "token" if million else name
        yielded = row("count", spent * (1e6 if million else 1.0) / value, "1", f"workloads.{workload}.totals")
        nodes[f"cost.per.{name}"] = {
            "symbol": name,
            "title": f"cost a {name.replace('_', ' ')}",
            "formula": "1000000*cost/count" if million else "cost/count",
            "value": value,
            "unit": "USD",
            "inputs": [
                {**row("cost", spent, "USD", f"cost.by_workload.{workload}"), "title": f"cost of {workload}"},
                {**yielded, "title": f"{word}s over the horizon"},
            ],
            "source": "definition",
        }
    return nodes


def _rent_rows(solution: Solution, value: float) -> list[Node]:
    """Return the rows (purchases, runs, or both) that add up to the rent; none where they do not."""
    bought = [
        row(_purchase_label(item), item.cost, "USD", f"purchases[{at}].cost", item.price_source, "datasheet")
        for at, item in enumerate(solution.purchases)
        if item.market in RENTED
    ]
    runs = [
        row(f"run of {run.workload}, {run.market}", run.cost, "USD", f"runs[{at}].cost", "", "datasheet")
        for at, run in enumerate(solution.runs)
        if run.market in RENTED
    ]
    for rows in (bought, runs, bought + runs):
        if rows and abs(sum(item["value"] for item in rows) - value) <= CLOSE * max(1.0, abs(value)):
            return rows
    return []


def _purchase_label(item: Purchase) -> str:
    when = f"period {item.period}" if item.until == item.period else f"periods {item.period}-{item.until}"
    part = f", {item.slice}" if item.slice else ""
    return f"{item.count:g} {item.system}, {item.market}, {item.site}, {when}{part}"


def _power_nodes(solution: Solution) -> dict[str, Node]:
    """Return the greatest IT power as the sum of what stands in that period and slice."""
    moments = {(item.period, item.slice) for item in solution.purchases}
    if not moments:
        return {}
    sums = {}
    for period, part in moments:
        rows = [
            row(_purchase_label(item), item.power, "W", f"purchases[{at}].power")
            for at, item in enumerate(solution.purchases)
            if item.period <= period <= item.until and item.slice in (None, part)
        ]
        sums[period, part or ""] = rows
    (period, part), rows = max(sorted(sums.items()), key=lambda item: sum(leaf["value"] for leaf in item[1]))
    when = f"period {period}" + (f", {part}" if part else "")
    return {"power": total("power", f"IT power drawn at most ({when})", "W", rows, sum(leaf["value"] for leaf in rows))}
