"""`matrix`: workloads against resources, and levers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokenmill import cli_output as out

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
SHOWN = 6
"""Levers of a workload that are printed."""


def matrix(
    file: Annotated[Path, typer.Argument(help="A problem file.")],
    check: Annotated[bool, typer.Option(help="Move levers and solve anew.")] = True,
    time_limit: Annotated[str | None, typer.Option(help='Longest time for each solve: "60 s".')] = None,
    json: Json = False,
) -> int:
    """Show how far each workload exhausts each resource, and which lever lowers its cost most."""
    from rich.console import Console

    from tokenmill.cli import _seconds
    from tokenmill.matrix import CHANGE, RESOURCES
    from tokenmill.matrix import matrix as computed
    from tokenmill.plan_json import encode
    from tokenmill.reading import load_problem
    from tokenmill.report.text_words import percent, print_table

    found = computed(load_problem(file), check=check, time_limit=_seconds(time_limit))
    if json:
        out.write_json(encode(found.to_dict()))
        return out.exit_code(found.plan.status)
    console = Console(highlight=False)
    names = [f"{row.workload} ({row.stage})" for row in found.rows]
    lines = [
        (
            resource.replace("_", " "),
            *(percent(row.shares[resource]) if resource in row.shares else "-" for row in found.rows),
        )
        for resource in RESOURCES
    ]
    print_table(console, "Share of time, or of what there is", ("resource", *(f"{name}>" for name in names)), lines, {})
    more = f"{100 * (CHANGE - 1):.0f}%"
    for row in found.rows:
        levers = [
            (
                lever.name,
                lever.resource.replace("_", " "),
                f"{lever.elasticity:+.3f}",
                percent(lever.held - 1),
                "-" if lever.resolved is None else percent(lever.resolved - 1),
            )
            for lever in row.levers[:SHOWN]
        ]
        heads = ("lever", "resource", "elasticity of cost>", f"{more} more, layout held>", f"{more} more, solved anew>")
        print_table(console, f"What lowers the cost of {row.workload}", heads, levers, {})
    return out.exit_code(found.plan.status)
