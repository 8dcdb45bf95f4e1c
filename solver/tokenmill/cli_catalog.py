"""`catalog` and `import`: looking data up, and reading foreign files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenmill import cli_output as out
from tokenmill.errors import Mistake, ProblemError, nearest

if TYPE_CHECKING:
    from tokenmill.imports.peers import Imported

KINDS = ("chips", "systems", "links", "networks", "prices", "architectures")

catalog_app = typer.Typer(
    help="Look up chips, systems, links, networks, prices, architectures.", rich_markup_mode=None, no_args_is_help=True
)
import_app = typer.Typer(
    help="Read a foreign file and print what it says.", rich_markup_mode=None, no_args_is_help=True
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
File = Annotated[Path, typer.Argument(help="The file to read.")]


@catalog_app.command("list")
def list_entries(
    kind: Annotated[str, typer.Argument(help=", ".join(KINDS))] = "chips",
    json: Json = False,
    catalog: Annotated[
        Path | None, typer.Option("--catalog", metavar="DIR", help="A folder laid over the catalogue.")
    ] = None,
) -> int:
    """List what the catalogue holds of a kind."""
    if kind not in KINDS:
        raise ProblemError([Mistake("catalog list", repr(kind), ", ".join(KINDS), nearest(kind, KINDS))])
    rows = _rows(kind, catalog)
    if json:
        out.write_json({"schema": 1, "kind": kind, "rows": rows})
        return 0
    from tokenmill.report.text_rows import print_rows

    print_rows(rows)
    return 0


def _rows(kind: str, extra: Path | None) -> list[dict[str, Any]]:
    from tokenmill.plan_json import encode

    if kind == "architectures":
        from tokenmill.imports.architecture import architecture_names

        return [{"name": name} for name in architecture_names()]
    from tokenmill.catalog import catalog_table, load_catalog

    rows: list[dict[str, Any]] = encode(catalog_table(kind, load_catalog(extra)) if extra else catalog_table(kind))
    return rows


@catalog_app.command("show")
def show_entry(
    name: Annotated[str, typer.Argument(help="A chip, system, link, network, price or architecture.")],
    json: Json = False,
) -> int:
    """Show one entry of the catalogue with its sources."""
    from tokenmill.catalog import catalog_entry
    from tokenmill.plan_json import encode

    entry = encode(_architecture(name) or catalog_entry(name))
    if json:
        out.write_json({"schema": 1, **entry})
        return 0
    from tokenmill.report.text_rows import print_entry

    print_entry(entry)
    return 0


def _architecture(name: str) -> dict[str, Any] | None:
    from tokenmill.imports.architecture import architecture_names, architecture_report, load_architecture

    return architecture_report(load_architecture(name)) if name in architecture_names() else None


@import_app.command("architecture")
def import_architecture(file: File, json: Json = False) -> int:
    """Read a Hugging Face config.json: parameters, weight bytes, KV bytes a token."""
    from tokenmill.imports.architecture import architecture_report, read_architecture

    _show(architecture_report(read_architecture(_readable(file))), json)
    return 0


@import_app.command("prices")
def import_prices(
    file: File,
    provider: Annotated[str | None, typer.Option(help="Who sells, where the file does not say.")] = None,
    as_of: Annotated[str | None, typer.Option(help="Date of the list: 2026, 2026-H2, 2026-03 or 2026-03-01.")] = None,
    json: Json = False,
) -> int:
    """Read a price list (CSV): USD a chip-hour, and the rows left out with the reason."""
    from tokenmill.imports.prices import read_price_list

    found = read_price_list(_readable(file), provider, as_of)
    if json:
        _show({"prices": found.prices, "refused": found.refused}, json)
        return 0
    from tokenmill.report.text_rows import print_rows

    print_rows([asdict(price) for price in found.prices])
    for reason in found.refused:
        typer.echo(f"left out: {reason}")
    return 0


@import_app.command("topology")
def import_topology(file: File, json: Json = False) -> int:
    """Read a topology (node-link JSON, GraphML, nvidia-smi topo -m): nested domains with bandwidth and latency."""
    from tokenmill.imports.topology import read_topology

    machine = read_topology(_readable(file))
    _show({"chips": machine.chips, "levels": machine.levels}, json)
    return 0


@import_app.command("trace")
def import_trace(
    file: File,
    classes: Annotated[int, typer.Option(min=1, max=64, help="Buckets of prompt length to make classes of.")] = 4,
    json: Json = False,
) -> int:
    """Read a request trace: rate, variation of gaps, fitted lengths, prefix hits, and request classes for a problem file."""
    from tokenmill.imports.traces import facts, read_trace, request_classes

    trace = read_trace(_readable(file))
    _show({"kind": trace.kind, **asdict(facts(trace)), "classes": request_classes(trace, classes)}, json)
    return 0


@import_app.command("measured")
def import_measured(file: File, json: Json = False) -> int:
    """Read steps that you measured (CSV) and lay them beside predictions; calibrate FILE fits on them."""
    from tokenmill.measured_runs import beside, errors_by_system, read_runs
    from tokenmill.report.text_words import percent

    found = beside(read_runs(_readable(file)))
    if json:
        out.write_json({"schema": 1, "rows": [{**asdict(one), "error": one.error} for one in found]})
        return 0
    for one in found:
        said = one.reason if one.error is None else f"predicted {one.predicted:.4g} s, {100 * one.error:+.1f}%"
        typer.echo(f"{one.row}: measured {one.measured:.4g} s on {one.system}, {said}")
    for system, (rows, error, bias) in errors_by_system(found).items():
        typer.echo(f"{system}: {rows} rows, median error {percent(error)}, bias {100 * bias:+.1f}%")
    return 0


@import_app.command("calculon")
def import_calculon(file: File, json: Json = False) -> int:
    """Read an execution, application or system file of calculon: what a problem file takes of it."""
    from tokenmill.imports.peers import read_calculon

    return _taken_over(read_calculon(_readable(file)), json)


@import_app.command("simumax")
def import_simumax(file: File, json: Json = False) -> int:
    """Read a strategy, model or system file of SimuMax: what a problem file takes of it."""
    from tokenmill.imports.peers import read_simumax

    return _taken_over(read_simumax(_readable(file)), json)


def _taken_over(found: Imported, json: bool) -> int:
    if json:
        out.write_json({"schema": 1, **asdict(found)})
    else:
        typer.echo(found.text(), nl=False)
    return 0


def _show(data: dict[str, Any], json: bool) -> None:
    from tokenmill.plan_json import encode

    if json:
        out.write_json({"schema": 1, **encode(data)})
        return
    from tokenmill.report.text_rows import print_entry

    print_entry(encode(data))


def _readable(file: Path) -> Path:
    if not file.is_file():
        raise ProblemError([Mistake(str(file), "no such file", "a file that exists")])
    return file
