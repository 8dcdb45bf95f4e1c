"""`front`: batch against latency against cost on a chosen system."""

from __future__ import annotations

import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokenmill import cli_output as out

if TYPE_CHECKING:
    from tokenmill.front import LoadPoint

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
HEADS = {"batch": 6, "TPOT": 9, "TTFT": 9, "TTFT p95": 9, "tok/s/user": 11, "tok/s/chip": 11, "per million": 12,
         "chips": 6, "limits": 7}  # fmt: skip
"""Columns and their widths; the layout comes last."""


def front(
    file: Annotated[Path, typer.Argument(help="A problem file (TOML, JSON, YAML).")],
    system: Annotated[str | None, typer.Option(help="Only this system (absent: each on offer).")] = None,
    workload: Annotated[str | None, typer.Option(help="The workload, where the problem has several.")] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the file.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV and nothing else.")] = False,
    json: Json = False,
) -> int:
    """Show batch against latency against cost: every layout at every load that no other on its system beats."""
    from tokenmill.cli import _problem
    from tokenmill.front import front as points_of
    from tokenmill.plan_json import encode

    found = points_of(_problem(file, sets), workload=workload, system=system)
    if json:
        out.write_json({"schema": 1, "points": encode([asdict(point) for point in found])})
    elif csv:
        _csv(found)
    elif found:
        _tables(found)
    else:
        typer.echo("no layout fits: tokenmill solve says what stands in the way")
    return out.SOLVED if found else out.INFEASIBLE


def _csv(found: list[LoadPoint]) -> None:
    import csv

    from tokenmill.front import LoadPoint

    writer = csv.DictWriter(sys.stdout, [field.name for field in fields(LoadPoint)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(point) for point in found)


def _tables(found: list[LoadPoint]) -> None:
    systems: dict[str, list[LoadPoint]] = {}
    for point in found:
        systems.setdefault(point.system, []).append(point)
    for name, points in systems.items():
        paid = f", {points[0].market}" if points[0].market else ""
        typer.echo(f"{name}{paid}: {len(points)} points")
        typer.echo("".join(f"{head:>{width}}" for head, width in HEADS.items()) + "  layout")
        for point in points:
            cells = zip(_cells(point), HEADS.values(), strict=True)
            typer.echo("".join(f"{cell:>{width}}" for cell, width in cells) + f"  {point.layout}")


def _cells(point: LoadPoint) -> tuple[str, ...]:
    from tokenmill.report.text_words import money, quantity

    return (
        f"{point.load:g}",
        *(quantity(seconds, "s") for seconds in (point.tpot, point.ttft, point.ttft_p95)),
        f"{point.tokens_per_second_per_user:.1f}",
        f"{point.tokens_per_second_per_chip:,.0f}",
        "-" if point.cost_per_million is None else money(point.cost_per_million),
        f"{point.chips:g}",
        "kept" if point.within else "missed",
    )
