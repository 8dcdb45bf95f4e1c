"""A plan as people read it in a terminal: what to get, what it costs, what it delivers, how far to trust it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from tokenmill.explain import value_text
from tokenmill.plan import NextUnit, Plan, Pool, WorkloadPlan

WIDTH = 110
MOST_LINES = 6
ENDINGS = {
    "optimal": "Optimal: proven to within {gap} of the best there is.",
    "feasible": "A plan, not proven best: it may cost up to {gap} too much. Stopped by the {limit}.",
    "infeasible": "No plan can meet what is asked.",
    "unbounded": "The objective can fall without end: a price or a limit is missing.",
    "unknown": "Stopped by the {limit} before a plan was found.",
    "error": "The solve failed.",
}
PROVEN = "Optimal: proven that nothing better exists."
SHOWN_FIGURES = (
    ("step_time", "s"),
    ("tokens_per_second", "1/s"),
    ("tokens_per_second_per_chip", "1/s"),
    ("mfu", "share"),
    ("mbu", "share"),
    ("power_per_chip", "J/s"),
    ("energy_per_token", "J"),
)


def print_plan(plan: Plan, file: TextIO | None = None) -> None:
    """Print a plan on a stream (stdout)."""
    console = Console(file=file, width=None if file is None else WIDTH, highlight=False)
    console.print(_heading(plan), markup=False)
    if plan.status == "infeasible":
        _infeasible(console, plan)
    if plan.objective.value is not None:
        _purchases(console, plan)
        _cost(console, plan)
        for name, workload in plan.workloads.items():
            _workload(console, name, workload)
        _runs(console, plan)
        _binding(console, plan)
        _alternatives(console, plan)
    _trust(console, plan)


def render(plan: Plan) -> str:
    """Return what `print_plan` prints, without colours."""
    from io import StringIO

    stream = StringIO()
    print_plan(plan, stream)
    return stream.getvalue()


def _heading(plan: Plan) -> str:
    title = plan.problem.get("title") or "Plan"
    ended = plan.termination
    gap = "an unknown gap" if ended.gap is None else percent(ended.gap)
    proven = plan.status == "optimal" and not ended.gap
    how = PROVEN if proven else ENDINGS[plan.status].format(gap=gap, limit=ended.limit or "limit")
    lines = [title, f"status {plan.status}, gap {'none' if ended.gap is None else percent(ended.gap)}. {how}"]
    if plan.objective.value is not None:
        lines.append(f"{plan.objective.name.replace('_', ' ')}: {_objective_value(plan, plan.objective.value)}")
    return "\n".join(lines)


def _objective_value(plan: Plan, value: float) -> str:
    unit, _, per = plan.objective.unit.partition("/")
    if per == "token":
        return f"{money(value * 1e6)} per million tokens"
    return money(value) + (f" per {per}" if per else "") if unit == "USD" else quantity(value, unit)


def _purchases(console: Console, plan: Plan) -> None:
    table = _table(
        "What to get", "system", "market", "site", "when", "count>", "chips>", "unit price>", "cost>", "power>"
    )
    for item in plan.purchases:
        when = f"{item.period}" if item.period == item.until else f"{item.period}-{item.until}"
        by_chip = item.count < 1 and item.chips > 0
        price = money(item.unit_price * item.count / item.chips if by_chip else item.unit_price)
        unit = price + ("" if item.market == "buy" else "/h") + (" a chip" if by_chip else "")
        table.add_row(
            item.system,
            item.market,
            item.site,
            f"{when} {item.slice or ''}".strip(),
            "by chip" if by_chip else f"{item.count:g}",
            f"{item.chips:g}",
            unit,
            money(item.cost),
            quantity(item.power, "W"),
        )
    if plan.purchases:
        console.print(table)


def _cost(console: Console, plan: Plan) -> None:
    cost = plan.cost
    if cost.total is None:
        return
    parts = [f"{kind} {money(value)}" for kind, value in cost.by_kind.items() if value]
    console.print(f"\nCost {money(cost.total)} over the horizon" + (f": {', '.join(parts)}." if parts else "."))
    if len(cost.by_workload) > 1:
        console.print("  by workload: " + ", ".join(f"{name} {money(v)}" for name, v in cost.by_workload.items()))
    words = {"million_input": "per million input tokens", "million_output": "per million output tokens"}
    per = [
        f"{money(value * 1e6)} per million tokens"
        if name == "token"
        else f"{money(value)} {words.get(name, f'per {name}')}"
        for name, value in cost.per.items()
        if not (name == "million_output" and value == 1e6 * cost.per.get("token", 0.0))
    ]
    if per:
        console.print("  " + ", ".join(per))
    if cost.idle:
        console.print(f"  of which {money(cost.idle)} pays for hardware that stands idle")


def _workload(console: Console, name: str, workload: WorkloadPlan) -> None:
    if not workload.pools:
        return
    table = _table(f"{name} ({workload.stage})", "pool", "system", "site", "replicas>", "chips>", "layout", "batch>")
    for pool in workload.pools:
        table.add_row(
            pool.name,
            pool.system,
            pool.site,
            f"{pool.replicas:g}",
            f"{pool.chips:g}",
            layout_text(pool),
            "" if pool.batch is None else f"{pool.batch:.4g}",
        )
    console.print(table)
    for pool in workload.pools:
        for line in _delivers(pool):
            console.print(f"  {pool.name}: {line}", markup=False, soft_wrap=True)
    wall = workload.totals.get("wall_time")
    if wall is not None:
        good = workload.totals.get("goodput")
        console.print(f"  wall time {quantity(wall, 's')}" + (f", goodput {percent(good)}" if good else ""))
    if workload.bottleneck:
        held = workload.bottleneck
        second = f", then {held.second.replace('_', ' ')}" if held.second else ""
        console.print(f"  time goes to {held.resource.replace('_', ' ')} ({percent(held.share)}){second}")


def layout_text(pool: Pool) -> str:
    """Return degrees over 1, then words of a layout, in one line: ``tp 4, pp 2, fp8``."""
    said = sorted(pool.layout.items(), key=lambda item: isinstance(item[1], str))
    parts = [f"{key} {value}" for key, value in said if _worth_saying(key, value)]
    words = dict.fromkeys(str(value) for value in pool.precision.values() if value is not None)
    return ", ".join(parts + list(words))


def _worth_saying(key: str, value: Any) -> bool:
    return value not in (None, 1, "none", False, "") and key not in ("system", "chips", "replicas", "order")


def _delivers(pool: Pool) -> Iterable[str]:
    predicted = pool.predicted
    for name in ("ttft", "tpot", "e2e"):
        if isinstance(predicted.get(name), Mapping):
            values = ", ".join(
                f"{word} {quantity(value, 's')}" for word, value in predicted[name].items() if value is not None
            )
            yield f"{name.upper()} {values}"
    shown = []
    for name, unit in SHOWN_FIGURES:
        value = predicted.get(name)
        if isinstance(value, int | float):
            text = percent(value) if unit == "share" else f"{value:,.4g}/s" if unit == "1/s" else quantity(value, unit)
            shown.append(f"{name.replace('_', ' ')} {text}")
    if shown:
        yield ", ".join(shown)
    memory: Mapping[str, Any] = predicted.get("memory", {})
    used = (
        next((memory[name] for name in ("total", "reserved", "allocated") if memory.get(name)), None)
        if memory
        else None
    )
    if used is not None:
        parts = {k: v for k, v in memory.items() if k not in ("total", "capacity", "allocated", "reserved") and v}
        held = ", ".join(f"{name} {quantity(value, 'B')}" for name, value in parts.items())
        room = f" of {quantity(memory['capacity'], 'B')}" if memory.get("capacity") else ""
        yield f"memory {quantity(used, 'B')}{room}: {held}"


def _runs(console: Console, plan: Plan) -> None:
    if not plan.runs:
        return
    table = _table("Runs", "workload", "site", "market", "chips>", "start>", "end>", "cost>")
    for run in plan.runs:
        cost = "" if run.cost is None else money(run.cost)
        table.add_row(
            run.workload, run.site, run.market, f"{run.chips:g}", quantity(run.start, "s"), quantity(run.end, "s"), cost
        )
    console.print(table)


def _binding(console: Console, plan: Plan) -> None:
    if not plan.binding:
        return
    console.print("\nWhat holds it back")
    valued = sorted(plan.binding, key=lambda bound: not isinstance(bound.value_of_next, NextUnit))
    for bound in valued[:MOST_LINES]:
        line = f"  {bound.limit}"
        if isinstance(bound.value_of_next, NextUnit):
            following = bound.value_of_next
            step = quantity(following.step, following.unit)
            line += f": {step} more would save {_objective_value(plan, following.saves)}"
        console.print(line, markup=False, soft_wrap=True)
    _more(console, len(valued) - MOST_LINES, "limits")


def _more(console: Console, count: int, what: str) -> None:
    if count > 0:
        console.print(f"  and {count} more {what}; the JSON holds all")


def _alternatives(console: Console, plan: Plan) -> None:
    if plan.alternatives:
        console.print("\nOther plans")
    for other in plan.alternatives:
        worse = _objective_value(plan, other.difference)
        console.print(f"  {other.what_changes}: {worse} more", markup=False, soft_wrap=True)


def _infeasible(console: Console, plan: Plan) -> None:
    # memory, time and money before rules of shape, which only say what layouts there are
    ordered = sorted(plan.infeasible, key=lambda short: short.unit in ("", "1"))
    for short in ordered[:MOST_LINES]:
        amount = "" if short.shortfall is None else f" by {quantity(short.shortfall, short.unit)}"
        alone = {True: " Easing it alone would do.", False: " Easing it alone would not do.", None: ""}[
            short.alone_would_do
        ]
        console.print(f"  {short.limit} ({short.key}) is missed{amount}.{alone}", markup=False, soft_wrap=True)
        if short.cure:
            console.print(f"    {short.cure}", markup=False, soft_wrap=True)
    _more(console, len(ordered) - MOST_LINES, "requirements")


def _trust(console: Console, plan: Plan) -> None:
    lines = []
    counts = evidence_counts(plan)
    if counts:
        lines.append("predictions rest on: " + ", ".join(f"{word} {count}" for word, count in counts.items()))
    guesses = sorted({leaf["title"].partition(",")[0] for leaf in leaves(plan) if leaf["evidence"] == "guess"})
    if guesses:
        more = f" and {len(guesses) - 4} more" if len(guesses) > 4 else ""
        lines.append(f"guessed: {'; '.join(guesses[:4])}{more}")
    sources = sorted({item.price_source for item in plan.purchases if item.price_source})
    lines += [f"price: {source}" for source in sources]
    if plan.audit.passed is not None:
        verdict = "passed" if plan.audit.passed else "FAILED"
        lines.append(
            f"re-check without the solver: {verdict}, largest residual {plan.audit.largest_residual or 0.0:.1e}"
        )
    if lines:
        console.print("\nHow far to trust it")
    if plan.notes:
        lines += plan.notes[:MOST_LINES]
    for line in lines:
        console.print(f"  {line}", markup=False, soft_wrap=True)
    _more(console, len(plan.notes) - MOST_LINES, "notes")


def leaves(plan: Plan) -> list[Mapping[str, Any]]:
    """Return the leaves of the plan's trace, once each."""
    found = {}
    for node in plan.trace.values():
        for item in node["inputs"]:
            if not isinstance(item, str):
                found[item["symbol"], item["value"], item["origin"]] = item
    return list(found.values())


def evidence_counts(plan: Plan) -> dict[str, int]:
    """Return how many of the values that predictions rest on are measured, calibrated, datasheet, claim or guess."""
    words = ("measured", "calibrated", "datasheet", "claim", "guess")
    found = [leaf["evidence"] for leaf in leaves(plan)]
    return {word: found.count(word) for word in words if word in found}


def print_rows(rows: Sequence[Mapping[str, Any]], left_out: Sequence[str] = ("source", "origin")) -> None:
    """Print records as aligned columns, a column a key; long ones are left to `catalog show` and JSON."""
    if not rows:
        print("none")
        return
    keys = [key for key in rows[0] if key not in left_out]
    cells = [keys] + [["" if row.get(key) is None else str(row[key]) for key in keys] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(keys))]
    for line in cells:
        print("  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip())


def print_entry(entry: Mapping[str, Any], indent: str = "") -> None:
    """Print a record, nested tables indented."""
    for key, value in entry.items():
        if isinstance(value, Mapping):
            print(f"{indent}{key}")
            print_entry(value, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            print(f"{indent}{key}")
            for item in value:
                shown = (f"{name} {held}" for name, held in item.items() if held not in (None, "", []))
                print(f"{indent}  " + ", ".join(shown))
        elif value not in (None, "", []):
            print(f"{indent}{key}: {value}")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.removesuffix(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    return table


def quantity(value: float | None, unit: str) -> str:
    """Return a value (SI) in words; units that are no dimension stand as they are."""
    known = ("s", "B", "W", "J", "kg", "USD", "J/s", "B/s", "FLOP", "FLOP/s")
    if unit in known or value is None:
        return value_text(value, unit)
    return f"{value:,.6g} {'' if unit == '1' else unit}".rstrip()


def money(value: float) -> str:
    """Return an amount of USD."""
    if value and abs(value) < 0.1:
        return f"${value:.3g}"
    return f"${value:,.2f}" if abs(value) < 1000 else f"${value:,.0f}"


def percent(share: float) -> str:
    """Return a share in per cent."""
    return f"{100 * share:.3g}%"
