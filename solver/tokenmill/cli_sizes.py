"""`sizes`: numbers of chips of a run that do better than every smaller one, and what stands beside a size of one's own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tokenmill import cli_output as out
from tokenmill.errors import Mistake, ProblemError


def sizes(
    file: Annotated[Path, typer.Argument(help="A problem file (TOML, JSON, YAML).")],
    at: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Numbers of chips to place among the good ones.")
    ] = None,
    workload: Annotated[str | None, typer.Option(metavar="NAME", help="The run (the file's first workload).")] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> int:
    """List the numbers of chips on which a run is quicker than on any fewer: between them more chips are wasted."""
    from tokenmill.cli import _problem
    from tokenmill.sizes import cliffs, good_sizes

    problem = _problem(file, sets)
    good, placed = good_sizes(problem, workload), cliffs(problem, _numbers(at), workload)
    if json:
        rows = [{**asdict(each), "bad": each.bad} for each in placed]
        out.write_json({"schema": 1, "good": [asdict(size) for size in good], "at": rows})
    else:
        for size in good:
            typer.echo(f"{size.chips:>8} chips  {(size.duration or 0.0) / 86400:>10.4g} days  {size.system}")
        for each in placed:
            typer.echo(each.text)
    return out.SOLVED if good else out.INFEASIBLE


def _numbers(text: str | None) -> list[int]:
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ProblemError([Mistake("--at", repr(text), "numbers of chips, parted by commas")])
    return [int(part) for part in parts]
