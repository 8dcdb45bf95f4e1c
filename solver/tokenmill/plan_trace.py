"""The trace of a whole plan: sums over named rows, and the figures of every pool by request class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tokenmill.milp.solution import InScenario, Purchase, Solution
from tokenmill.plan import Alternative, Bound, Cost, NextUnit, Objective
from tokenmill.plan_trace_energy import energy_nodes
from tokenmill.trace import ClassFigures, Node, adds_up, prefixed, row, total

RENTED = ("on-demand", "spot", "reserved-1y", "reserved-3y")


def plan_trace(
    solution: Solution,
    cost: Cost,
    classes: Mapping[str, Mapping[str, ClassFigures]],
    per_workload: str | None = None,
    stores: frozenset[str] = frozenset(),
) -> dict[str, Node]:
    """Return the trace: ``cost.*`` and ``power`` as sums, then the nodes of every pool.

    `classes`: evaluated classes by ``workload.pool``. One class: keys are ``workload.pool.figure``; several: the class
    follows the pool (``workload.pool.class.figure``). `per_workload`: the workload that ``cost.per`` is about. `stores`:
    systems that keep data.
    """
    nodes = {**_cost_nodes(solution, cost, stores), **_per_nodes(cost, per_workload), **_power_nodes(solution)}
    for pool, by_class in classes.items():
        for name, one in by_class.items():
            prefix = pool if len(by_class) == 1 else f"{pool}.{name}"
            nodes |= prefixed(one.trace, prefix)
    return nodes


def answer_nodes(
    objective: Objective,
    binding: Sequence[Bound],
    alternatives: Sequence[Alternative],
    scenarios: Sequence[InScenario] = (),
) -> dict[str, Node]:
    """Return ``objective``, ``binding.<key>`` (what a step saves) and ``alternatives.<n>`` (what another plan would cost).

    Over several scenarios the objective is the sum of ``objective.<scenario>``, each by its weight.
    """
    if objective.value is None:
        return {}
    unit, now = objective.unit.partition("/")[0], objective.value  # runs, tokens and tasks are counts
    best = row("best", now, unit, "objective.value")
    nodes = _scenario_nodes(objective.name, unit, now, scenarios) if scenarios else {}
    if not nodes:
        nodes["objective"] = total(objective.name, f"{objective.name} of the plan", unit, [best], now)
    for at, bound in enumerate(binding):
        following = bound.value_of_next
        if isinstance(following, NextUnit):
            step = f"{following.step:+.6g} {following.unit}"
            parts = [
                row("now", now, unit, "objective.value"),
                row("eased", now - following.saves, unit, f"binding[{at}]", f"solved again at {step}"),
            ]
            title = f"saved by {step} of {bound.limit}"
            nodes[f"binding.{bound.key}"] = _node(title, "now - eased", following.saves, unit, parts)
    for at, other in enumerate(alternatives):
        origin = f"alternatives[{at}].difference"
        worse = row("difference", other.difference, unit, origin, "solved again without a kind of the plan")
        nodes[f"alternatives.{at + 1}"] = _node(
            other.what_changes, "best + difference", other.objective, unit, [best, worse]
        )
    return nodes


def _scenario_nodes(name: str, unit: str, value: float, scenarios: Sequence[InScenario]) -> dict[str, Node]:
    """Return ``objective`` as the sum of ``objective.<scenario>``."""
    nodes: dict[str, Node] = {}
    for each in scenarios:
        parts: list[str | Node] = [
            row("weight", each.weight, "1", "risk" if each.worst else "scenario", "problem file", "input"),
            row("value", each.value, unit, f"the plan in {'the worst scenarios' if each.worst else each.name}"),
        ]
        title = f"{name}, mean of the worst scenarios" if each.worst else f"{name} in the scenario {each.name}"
        nodes[f"objective.{each.name}"] = _node(title, "weight*value", each.weight * each.value, unit, parts)
    return {"objective": total(name, f"{name} over scenarios, by their weights", unit, list(nodes), value), **nodes}


def margin_nodes(workload: str, prices: Sequence[float], tokens: Sequence[float], cost: float) -> dict[str, Node]:
    """Return ``<workload>.revenue`` and ``<workload>.margin`` [USD]; `prices` [USD/token], `tokens`: of prompts computed, of prompts in the cache, of answers."""
    parts: list[str | Node] = []
    kinds = [
        item
        for item in zip(("prompts", "cached", "answers"), prices, tokens, strict=True)
        if item[0] != "cached" or item[2]
    ]
    for name, price, count in kinds:
        parts.append(row(f"price_{name}", price, "USD", f"workload.{workload}.demand.list_price"))
        parts.append(row(name, count, "1", f"workloads.{workload}.totals"))
    revenue = sum(price * count for price, count in zip(prices, tokens, strict=True))
    paid = row("cost", cost, "USD", f"cost.by_workload.{workload}")
    formula = " + ".join(f"price_{name}*{name}" for name, *_ in kinds)
    return {
        f"{workload}.revenue": _node("what the demand served pays", formula, revenue, "USD", parts, "revenue"),
        f"{workload}.margin": _node(
            "revenue less cost", "revenue - cost", revenue - cost, "USD", [f"{workload}.revenue", paid], "margin"
        ),
    }


def _node(
    title: str, formula: str, value: float, unit: str, inputs: Sequence[str | Node], symbol: str = "value"
) -> Node:
    return {**total(symbol, title, unit, inputs, value), "formula": formula}


def _cost_nodes(solution: Solution, cost: Cost, stores: frozenset[str]) -> dict[str, Node]:
    if cost.total is None:
        return {}
    nodes = _purchase_nodes(solution)
    inputs: list[str | Node] = []
    for kind, value in cost.by_kind.items():
        if kind == "rent" and (rows := _rent_rows(solution, value, stores)):
            nodes[f"cost.{kind}"] = total(kind, "rent of what is used", "USD", rows, value)
            inputs.append(f"cost.{kind}")
        elif kind == "storage" and (rows := _storage_rows(solution, value, stores)):
            nodes[f"cost.{kind}"] = total(kind, "rent of what keeps data", "USD", rows, value)
            inputs.append(f"cost.{kind}")
        elif kind == "energy" and (found := energy_nodes(solution.electricity, value)):
            nodes |= found
            inputs.append(f"cost.{kind}")
        elif kind == "capital" and (rows := _capital_rows(solution, value, cost.by_kind.get("operations", 0.0))):
            nodes[f"cost.{kind}"] = total(kind, "what is bought, less what it is worth at the end", "USD", rows, value)
            inputs.append(f"cost.{kind}")
        else:
            inputs.append(row(kind, value, "USD", f"cost.by_kind.{kind}"))
    nodes["cost.total"] = total("cost", "cost over the horizon", "USD", inputs, cost.total)
    periods = [
        row(f"period {h}", value, "USD", f"cost.by_period[{h - 1}]") for h, value in enumerate(cost.by_period, 1)
    ]
    if periods:
        nodes["cost.by_period"] = total("cost", "cost of the periods", "USD", periods, cost.total)
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
                {**yielded, "title": f"{word}s over the horizon, discounted as the cost is"},
            ],
            "source": "definition",
        }
    return nodes


def _purchase_nodes(solution: Solution) -> dict[str, Node]:
    """Return ``purchases.<n>.cost``: price times count times the hours had, or the part of the price of what is bought."""
    nodes: dict[str, Node] = {}
    for at, item in enumerate(solution.purchases):
        whole = item.unit_price * item.count
        if whole <= 0.0:
            continue
        word, said = (
            ("hours", "hours had") if item.market in RENTED else ("part", "payments and upkeep, less what is left")
        )
        part = row(word, item.cost / whole, "1", f"purchases[{at}]")
        nodes[f"purchases.{at + 1}.cost"] = _node(
            _purchase_label(item), f"unit_price*count*{word}", item.cost, "USD",
            [
                row("unit_price", item.unit_price, "USD", f"purchases[{at}].unit_price", item.price_source, "datasheet"),
                row("count", item.count, "1", f"purchases[{at}].count"),
                {**part, "title": f"{said}, discounted to the start of the horizon"},
            ],
        )  # fmt: skip
    return nodes


def _capital_rows(solution: Solution, value: float, operations: float) -> list[Node]:
    """Return the rows (purchases, less their upkeep) that add up to the capital; none where they do not."""
    rows = _purchase_rows(solution, lambda item: item.market == "buy")
    if operations:
        rows.append(row("of it operations", -operations, "USD", "cost.by_kind.operations"))
    return _that_add_up([rows], value)


def _storage_rows(solution: Solution, value: float, stores: frozenset[str]) -> list[Node]:
    """Return the rows (what is rented of stores) that add up to the cost of storage; none where they do not."""
    return _that_add_up([_purchase_rows(solution, lambda item: item.market in RENTED and item.system in stores)], value)


def _rent_rows(solution: Solution, value: float, stores: frozenset[str]) -> list[Node]:
    """Return the rows (purchases, runs, or both) that add up to the rent; none where they do not."""
    bought = _purchase_rows(solution, lambda item: item.market in RENTED and item.system not in stores)
    runs = [
        row(f"run of {run.workload}, {run.market}", run.cost, "USD", f"runs[{at}].cost", "", "datasheet")
        for at, run in enumerate(solution.runs)
        if run.market in RENTED
    ]
    return _that_add_up([bought, runs, bought + runs], value)


def _purchase_rows(solution: Solution, wanted: Callable[[Purchase], bool]) -> list[Node]:
    return [
        row(_purchase_label(item), item.cost, "USD", f"purchases[{at}].cost", item.price_source, "datasheet")
        for at, item in enumerate(solution.purchases)
        if wanted(item)
    ]


def _that_add_up(choices: Sequence[list[Node]], value: float) -> list[Node]:
    """Return the first rows that add up to a plan's own figure; none where none do."""
    return next((rows for rows in choices if adds_up((each["value"] for each in rows), value)), [])


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
