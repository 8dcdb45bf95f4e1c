"""`claim`: an announcement answered."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokenmill import cli_output as out

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def claim(file: Annotated[Path, typer.Argument(help="A TOML file with a [claim].")], json: Json = False) -> int:
    """Hold an announcement against the roofline of the hardware it names, and say what it leaves out."""
    from tokenmill.claim import claim as answered
    from tokenmill.plan_json import encode
    from tokenmill.report.text_words import quantity

    found = answered(file)
    if json:
        out.write_json(encode(found.to_dict()))
        return 0
    mark = " (made up, as a test)" if found.made_up else ""
    typer.echo(f"{found.text}{mark}\n  source: {found.source}\n")
    for question, answer in found.answers.items():
        typer.echo(f"{question + '?':<23}{answer}")
    typer.echo(f"{'what is missing?':<23}{', '.join(found.missing) or 'nothing'}\n")
    typer.echo(found.verdict)
    if found.bound is not None:
        typer.echo(f"  bound: {found.bound.title}: {quantity(found.bound.value, found.bound.unit)}")
    for condition in found.conditions:
        typer.echo(f"  {condition}")
    if found.bound is not None and found.bound.text:
        typer.echo(f"\n{found.bound.text}", nl=False)
    return 0
