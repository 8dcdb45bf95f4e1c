"""The command line: a thin caller of the library. Imports wait until a command needs them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tokenmill import cli_output as out
from tokenmill.cli_catalog import catalog_app, import_app
from tokenmill.cli_claim import claim
from tokenmill.cli_derive import derive
from tokenmill.cli_fleet import compare, pareto, sweep
from tokenmill.cli_front import front
from tokenmill.cli_matrix import matrix
from tokenmill.cli_measured import calibrate, validate
from tokenmill.cli_plan import answers, explore, export, report
from tokenmill.cli_questions import fits, simulate, size
from tokenmill.cli_sizes import sizes
from tokenmill.errors import Mistake, ProblemError

app = typer.Typer(
    name="tokenmill",
    help="Which hardware, how much of it, laid out how, for every stage in the life of an AI model.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(catalog_app, name="catalog")
app.add_typer(import_app, name="import")
app.command()(derive)
app.command()(fits)
app.command()(size)
app.command()(simulate)
app.command()(calibrate)
app.command()(validate)
app.command()(sweep)
app.command()(pareto)
app.command()(front)
app.command()(compare)
app.command()(sizes)
app.command()(matrix)
app.command()(claim)
app.command()(answers)
app.command()(explore)
app.command()(report)
app.command()(export)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
CatalogDir = Annotated[
    Path | None,
    typer.Option("--catalog", metavar="DIR", help="Lay the chips, systems, prices of a folder over the shipped ones."),
]
Plugin = Annotated[
    list[str] | None, typer.Option("--plugin", metavar="MODULE", help="Import formulas and stages from a module.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Replace a value: workload.chat.slo.ttft.p95='\"2 s\"'."),
]


@app.command()
def solve(
    file: Annotated[Path, typer.Argument(help="A problem file (TOML, JSON, YAML).")],
    json: Annotated[
        str | None, typer.Option("--json", metavar="OUT", help="Write the plan as JSON to OUT (- is stdout).")
    ] = None,
    report: Annotated[
        str | None, typer.Option("--report", metavar="OUT", help="Write the plan as an HTML page to OUT.")
    ] = None,
    sets: Sets = None,
    catalog: CatalogDir = None,
    plugin: Plugin = None,
    time_limit: Annotated[str | None, typer.Option(help='Longest time to solve: "60 s".')] = None,
    gap: Annotated[float | None, typer.Option(min=0.0, help="Relative gap at which to stop.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify-by-simulation", help="Simulate the demand; add replicas until the limits hold.")
    ] = False,
    why_not: Annotated[
        str | None,
        typer.Option("--why-not", metavar="SYSTEM", help="Say at what price a system left out would come in."),
    ] = None,
) -> int:
    """Find the plan for a problem file and print it."""
    from tokenmill import api

    out.check_target("--json", json)
    out.check_target("--report", report)
    data = prepare(catalog, plugin)
    problem = _problem(file, sets)
    limit = _seconds(time_limit)

    def solved(asked: Any) -> Any:
        return api.solve(asked, time_limit=limit, gap=gap, catalog=data)

    from tokenmill.simulate_verify import verify as verified_plan

    with out.progress():
        verified = verified_plan(problem, solved) if verify else None
        plan = verified.plan if verified is not None else solved(problem)
    if why_not is not None:
        from dataclasses import replace

        from tokenmill.why_not import notes

        plan = replace(plan, notes=(*notes(problem, why_not, time_limit=limit, gap=gap, catalog=data), *plan.notes))
    with out.whole():
        return _told(plan, json, report, "" if verified is None else verified.text())


def _told(plan: Any, json: str | None, report: str | None, further: str) -> int:
    """Write and print a plan, and what else there is to say; return the exit code."""
    from tokenmill.plan_json import dump, write_text

    if report is not None:
        from tokenmill.report.html import page

        write_text(page(plan), report)
    if json == "-":
        sys.stdout.write(dump(plan.to_dict()))
        return out.exit_code(plan.status)
    if json is not None:
        write_text(dump(plan.to_dict()), json)
    from tokenmill.report.text import print_plan

    print_plan(plan)
    typer.echo(further, nl=False)
    return out.exit_code(plan.status)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A problem file.")],
    json: Json = False,
    sets: Sets = None,
    catalog: CatalogDir = None,
    plugin: Plugin = None,
) -> int:
    """Read a problem file and say everything that is wrong with it, without solving."""
    from tokenmill import api

    data = prepare(catalog, plugin)
    problem = _problem(file, sets)
    summary = api.check(problem, catalog=data)
    if json:
        out.write_json({"schema": 1, "status": "ok", **summary})
        return 0
    names = ", ".join(f"{w.name} ({w.stage})" for w in problem.workloads)
    typer.echo(f"{file}: no mistakes. Workloads: {names}. {len(problem.defaulted)} keys took their default.")
    from tokenmill.report.text_words import cut

    for note in summary.get("notes", ()):
        typer.echo(f"  note: {cut(note)}")
    return 0


@app.command()
def new(
    stage: Annotated[str, typer.Argument(help="A stage: serving, pretraining, ...; any other word lists them all.")],
    plugin: Plugin = None,
    json: Json = False,
) -> int:
    """Print a commented problem file for a stage."""
    from tokenmill.templates import new as template

    prepare(None, plugin)
    text = template(stage)
    if json:
        out.write_json({"schema": 1, "stage": stage, "text": text})
    else:
        typer.echo(text, nl=False)
    return 0


@app.command()
def explain(
    plan: Annotated[Path, typer.Argument(help="A plan written by solve --json.")],
    figure: Annotated[str, typer.Argument(help="A figure: chat.decode.tpot.p95, cost.total, ...")],
    style: Annotated[str, typer.Option("--as", help="text, markdown or json.")] = "text",
    depth: Annotated[int | None, typer.Option(min=0, help="How many levels to unfold (all).")] = None,
    json: Json = False,
) -> int:
    """Unfold a figure of a plan to formulas, numbers and sources."""
    from tokenmill.explain import explain as unfold
    from tokenmill.plan import load_plan

    text = unfold(load_plan(plan), figure, "json" if json else style, depth)
    typer.echo(text, nl=not text.endswith("\n"))
    return 0


@app.command()
def schema(json: Json = False) -> int:
    """Print the JSON Schema of problem files."""
    from tokenmill.schema import schema as build

    out.write_json(build())
    return 0


def prepare(catalog: Path | None, plugins: list[str] | None) -> Any:
    """Import and check the plugins; return the catalogue with the user's folder laid over it, or None for the shipped one."""
    from tokenmill.plugins import load

    load(plugins or ())
    if catalog is None:
        return None
    if not catalog.is_dir():
        raise ProblemError([Mistake("--catalog", repr(str(catalog)), "a folder that exists")])
    from tokenmill.catalog import load_catalog

    return load_catalog(catalog)


def _problem(file: Path, sets: list[str] | None) -> Any:
    from tokenmill.reading import load_problem

    return load_problem(file, overrides=pairs("--set", sets or []))


def pairs(option: str, items: Sequence[str]) -> list[tuple[str, str]]:
    """Return ``key=value`` texts as pairs; several may stand in one text, parted by blanks."""
    mistakes = [
        Mistake(option, repr(item), "key=value") for item in items if not item.partition("=")[0] or "=" not in item
    ]
    if mistakes:
        raise ProblemError(mistakes)
    return [(key.strip(), value.strip()) for key, _, value in (item.partition("=") for item in items)]


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    from tokenmill.units import QuantityError, parse_quantity

    try:
        seconds = float(text) if text.replace(".", "", 1).isdigit() else parse_quantity(text, "s")
    except QuantityError as error:
        raise ProblemError([Mistake("--time-limit", error.found, error.allowed)]) from error
    if seconds <= 0:
        raise ProblemError([Mistake("--time-limit", repr(text), "a time above zero")])
    return seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    asked = out.settle(sys.argv[1:] if arguments is None else arguments)
    return out.guarded(lambda: app(args=asked, prog_name="tokenmill", standalone_mode=False), asked)
