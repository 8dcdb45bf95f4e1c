"""`report`, `export`, `explore`, `answers`: a plan as a page or as commands, the candidates behind it, three plans of one problem."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tokenmill import cli_output as out

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="OUT", help="Where it goes (absent: stdout).")]
PlanFile = Annotated[Path, typer.Argument(help="A plan written by solve --json.")]
SHOWN = 15
"""Candidates of a role that the terminal shows."""


def report(plan: PlanFile, into: Out = None, json: Json = False) -> int:
    """Write a plan as one HTML page that needs nothing else."""
    from tokenmill.plan import load_plan
    from tokenmill.report.html import page

    text = page(load_plan(plan))
    _deliver(text, into, json, {"html": text})
    return 0


def export(
    plan: PlanFile,
    to: Annotated[str, typer.Option("--to", metavar="KIND", help="vllm, sglang, trtllm, llama-cpp, megatron or csv.")],
    into: Out = None,
    json: Json = False,
) -> int:
    """Print what runs a plan: the commands of an engine or a framework; or its figures as CSV."""
    from tokenmill.export import export as exported
    from tokenmill.plan import load_plan

    text = exported(load_plan(plan), to)
    _deliver(text, into, json, {"kind": to, "text": text})
    return 0


def explore(
    file: Annotated[Path, typer.Argument(help="A problem file.")],
    into: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="OUT", help="An HTML page with all of them.")
    ] = None,
    json: Json = False,
) -> int:
    """Show the layouts that survive the search, with what each costs, before the programme chooses."""
    from rich.console import Console

    from tokenmill.explore import HEADS, lines, page
    from tokenmill.explore import explore as candidates
    from tokenmill.plan_json import encode, write_text
    from tokenmill.reading import load_problem
    from tokenmill.report.text_words import print_table

    problem = load_problem(file)
    rows = candidates(problem)
    if into is not None:
        write_text(page(problem.title or file.stem, rows), into)
    if json:
        out.write_json({"schema": 1, "candidates": encode([asdict(row) for row in rows])})
        return 0
    roles: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for row, cells in zip(rows, lines(rows), strict=True):
        roles.setdefault((row.workload, row.role), []).append(cells)
    for (workload, role), cells_of in roles.items():
        title = f"{workload}, {role}: {len(cells_of)} layouts, the cheapest first"
        print_table(Console(highlight=False), title, HEADS, cells_of[:SHOWN], {})
    if into is not None:
        typer.echo(f"\nAll of them are in {into}")
    return 0


def answers(
    file: Annotated[Path, typer.Argument(help="A problem file.")],
    time_limit: Annotated[str | None, typer.Option(help='Longest time for each: "60 s".')] = None,
    json: Json = False,
) -> int:
    """Give three answers: the smallest hardware that does the work, the fastest, and the cheapest."""
    from rich.console import Console

    from tokenmill.answers import answers as answered
    from tokenmill.cli import _seconds
    from tokenmill.reading import load_problem
    from tokenmill.report.text_pools import layout_text
    from tokenmill.report.text_words import money, print_table, quantity

    found = answered(load_problem(file), time_limit=_seconds(time_limit))
    if json:
        rows = [{"answer": one.name, "plan": one.plan.to_dict()} for one in found]
        out.write_json({"schema": 1, "answers": rows})
    else:
        cells = [
            (
                one.name,
                one.systems or one.plan.status,
                "; ".join(layout_text(pool) for work in one.plan.workloads.values() for pool in work.pools),
                "" if one.wall_time is None else quantity(one.wall_time, "s"),
                "" if one.plan.cost.total is None else money(one.plan.cost.total),
            )
            for one in found
        ]
        print_table(
            Console(highlight=False), "Three answers", ("answer", "hardware", "layout", "time>", "cost>"), cells, {}
        )
        typer.echo(
            "smallest: the fewest bytes of memory on its chips; fastest: the least time of runs; cheapest: the least cost"
        )
    return max(out.exit_code(one.plan.status) for one in found)


def _deliver(text: str, into: Path | None, json: bool, data: dict[str, str]) -> None:
    from tokenmill.plan_json import write_text

    if into is not None:
        write_text(text, into)
    if json:
        out.write_json({"schema": 1, **data} if into is None else {"schema": 1, "written": str(into)})
    elif into is None:
        typer.echo(text, nl=False)
