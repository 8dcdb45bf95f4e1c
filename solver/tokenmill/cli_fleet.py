"""`sweep`, `pareto` and `compare`: one problem at several values, two objectives against one another, two plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tokenmill import cli_output as out
from tokenmill.errors import Mistake, ProblemError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
File = Annotated[Path, typer.Argument(help="A problem file (TOML, JSON, YAML).")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the file.")]
Limit = Annotated[str | None, typer.Option(help='Longest time to solve: "60 s".')]


def sweep(
    file: File,
    over: Annotated[
        list[str],
        typer.Option("--over", metavar="KEY=A,B,C", help="Values, or from:to:step; prices are price.SYSTEM.MARKET."),
    ],
    sets: Sets = None,
    time_limit: Limit = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Problems solved at a time (all cores).")] = None,
    json: Json = False,
) -> int:
    """Solve a problem at several values of its keys; several --over make every combination."""
    from tokenmill.cli import _seconds, pairs
    from tokenmill.sweep import sweep as swept
    from tokenmill.sweep import values_of

    asked: dict[str, Any] = {}
    for text in over:
        key, values = values_of(text)
        if key in asked:
            raise ProblemError([Mistake("--over", f"{key} twice", "each key once")])
        asked[key] = values
    overrides = pairs("--set", sets or [])
    limit = _seconds(time_limit)
    points = swept(file, asked, overrides=overrides, time_limit=limit, processes=processes, explained=json)
    if json:
        rows = [
            {"values": dict(p.values), "status": p.plan.status, "objective": p.plan.objective.value, "cost": p.plan.cost.total,
             "plan": p.plan.to_dict()}
            for p in points
        ]  # fmt: skip
        out.write_json({"schema": 1, "over": list(asked), "points": rows})
        return 0
    for point in points:
        given = ", ".join(f"{key} = {value}" for key, value in point.values.items())
        typer.echo(f"{given}: {_summary(point.plan)}")
    return 0


def pareto(
    file: File,
    against: Annotated[str, typer.Option(help="The other objective: time, carbon, power, ...")],
    points: Annotated[int, typer.Option(min=2, help="Most points, both ends among them.")] = 9,
    sets: Sets = None,
    time_limit: Limit = None,
    gap: Annotated[float | None, typer.Option(min=0.0, help="Relative gap at which to stop.")] = None,
    json: Json = False,
) -> int:
    """Show what the problem's objective costs in terms of another: the plans that none beats in both."""
    from tokenmill.cli import _problem, _seconds
    from tokenmill.pareto import pareto as front
    from tokenmill.plan_build import UNITS

    problem = _problem(file, sets)
    found = front(problem, against, points=points, time_limit=_seconds(time_limit), gap=gap)
    name = problem.objectives[0].minimise
    if json:
        rows = [{"objective": p.objective, "against": p.against, "plan": p.plan.to_dict()} for p in found]
        out.write_json({"schema": 1, "objective": name, "against": against, "points": rows})
    elif found:
        typer.echo(f"{name} [{UNITS[name]}] against {against} [{UNITS[against]}]: {len(found)} points")
        for point in found:
            typer.echo(f"{point.objective:>14.6g}  {point.against:>14.6g}  {_systems(point.plan)}")
    else:
        typer.echo("no plan works: tokenmill solve says what stands in the way")
    return out.SOLVED if found else out.INFEASIBLE


def compare(
    first: Annotated[Path, typer.Argument(help="A plan written by solve --json.")],
    second: Annotated[Path, typer.Argument(help="Another plan.")],
    every: Annotated[bool, typer.Option("--all", help="Lines that are equal too.")] = False,
    json: Json = False,
) -> int:
    """Lay two plans side by side, line by line."""
    from tokenmill.compare import compare as lines_of
    from tokenmill.compare import to_rows
    from tokenmill.plan import load_plan

    lines = lines_of(load_plan(first), load_plan(second))
    if json:
        out.write_json({"schema": 1, "a": str(first), "b": str(second), "rows": to_rows(lines)})
        return 0
    shown = [line for line in lines if every or line.first != line.second]
    if not shown:
        typer.echo("the plans are the same, line by line")
        return 0
    width = max(len(line.key) for line in shown)
    for line in shown:
        change = "" if line.relative is None else f"{line.relative:+.1%}"
        one, other = _text(line.first, line.unit), _text(line.second, line.unit)
        typer.echo(f"{line.key:<{width}}  {one:>24}  {other:>24}  {change:>8}".rstrip())
    return 0


def _text(value: float | str | None, unit: str) -> str:
    """Return a figure as the summary of a plan has it."""
    from tokenmill.report.text_words import money, per_second, percent, quantity

    if value is None or isinstance(value, str):
        return "-" if value is None else value
    if unit.startswith("USD"):
        return f"{money(value)}{unit.removeprefix('USD').replace('/million_', ' a million ').replace('/', ' a ')}"
    if unit in ("share", "1/s"):
        return percent(value) if unit == "share" else per_second(value)
    return quantity(value, unit or "1") if unit in ("", "s", "J", "W") or value == 1 else f"{quantity(value, unit)}s"


def _summary(plan: Any) -> str:
    if plan.objective.value is None:
        keys = ", ".join(item.key for item in plan.infeasible[:3])
        return f"{plan.status}" + (f" ({keys})" if keys else "")
    from tokenmill.report.summary import objective_text

    cost = "" if plan.cost.total is None or plan.objective.name == "cost" else f", cost ${plan.cost.total:,.0f}"
    return f"{plan.objective.name} {objective_text(plan, plan.objective.value)}{cost}; {_systems(plan)}"


def _systems(plan: Any) -> str:
    from tokenmill.report.summary import by_site

    rows = [f"{row.amount} ({row.market}){where}" for where, here in by_site(plan) for row in here]
    return ", ".join(rows) or "nothing"
