"""`derive`: a formula by name, changed, solved, with numbers, drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tokenmill import cli_output as out
from tokenmill.errors import Mistake, ProblemError

STYLES = ("text", "latex", "python", "json")


def derive(
    name: Annotated[str, typer.Argument(help="A formula, or the start of its name; nothing lists all.")] = "",
    target: Annotated[str | None, typer.Option("--for", metavar="SYMBOL", help="Solve for this symbol.")] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--given", metavar="a=1", help="Numbers with units; chip=NAME and model=NAME look symbols up."),
    ] = None,
    limit: Annotated[
        str | None, typer.Option(metavar="a=inf", help="What it tends to as a symbol goes to a number or inf.")
    ] = None,
    series: Annotated[
        str | None, typer.Option(metavar="a[=0]", help="The first terms of its series in a symbol.")
    ] = None,
    derivative: Annotated[str | None, typer.Option(metavar="SYMBOL", help="Its derivative by a symbol.")] = None,
    elasticity: Annotated[
        str | None, typer.Option(metavar="SYMBOL", help="By how many percent it grows with one percent of a symbol.")
    ] = None,
    eliminate: Annotated[
        str | None, typer.Option(metavar="SYMBOL", help="Replace a symbol by what the formula after --with says of it.")
    ] = None,
    other: Annotated[str | None, typer.Option("--with", metavar="NAME", help="The formula for --eliminate.")] = None,
    plot: Annotated[
        list[str] | None, typer.Option(metavar="a=1:512", help="Draw it against a symbol; twice for a table of two.")
    ] = None,
    plot_to: Annotated[
        Path | None, typer.Option("--plot-to", metavar="FILE", help="Write the plot as .svg or .png (matplotlib).")
    ] = None,
    style: Annotated[str, typer.Option("--as", help="text, latex, python or json.")] = "text",
    catalog: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Your chips, systems and prices, laid over the shipped ones.")
    ] = None,
    plugin: Annotated[
        list[str] | None, typer.Option("--plugin", metavar="MODULE", help="Import formulas and stages from a module.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> int:
    """Print a formula: as text, LaTeX, Python or JSON; solved for a symbol; changed; with numbers; drawn."""
    from tokenmill.cli import pairs, prepare
    from tokenmill.derive import derive as derivation
    from tokenmill.derive import listing

    data = prepare(catalog, plugin)
    style = "json" if json else style
    if style not in STYLES:
        raise ProblemError([Mistake("--as", repr(style), ", ".join(STYLES))])
    asked = (target, given, limit, series, derivative, elasticity, eliminate, plot)
    if not any(asked) and (rows := listing(name)):
        return _list(rows, style)
    before = [derivation(one) for one in (name, other) if one is not None]
    found = _changed(before[0], eliminate, other, target)
    found = _calculus(found, limit, series, derivative, elasticity)
    if given:
        gone = {symbol for one in before for symbol in _names(one)} - _names(found)
        found = found.given({key: value for key, value in pairs("--given", given) if key not in gone}, data)
    if plot:
        return _plot(found, dict(pairs("--plot", plot)), plot_to, style)
    if style == "json":
        out.write_json(found.json())
    else:
        typer.echo({"text": found.text, "latex": found.latex, "python": found.python}[style](), nl=False)
    return 0


def _names(derivation: Any) -> set[str]:
    """Return the names of all symbols of a formula; a number for one that a change has cancelled is no mistake."""
    return {symbol.name for symbol in (*derivation.symbols, derivation.formula.symbol)}


def _changed(found: Any, eliminate: str | None, other: str | None, target: str | None) -> Any:
    if bool(eliminate) != bool(other):
        raise ProblemError([Mistake("--eliminate", "one of --eliminate and --with", "both, or neither")])
    if eliminate:
        found = found.eliminate(eliminate, other)
    return found.solve_for(target) if target is not None else found


def _calculus(found: Any, limit: str | None, series: str | None, derivative: str | None, elasticity: str | None) -> Any:
    if limit:
        symbol, equals, to = limit.partition("=")
        if not equals:
            raise ProblemError([Mistake("--limit", repr(limit), "a symbol and a number or inf, such as a=inf")])
        found = found.limit(symbol.strip(), to.strip())
    if series:
        symbol, _, about = series.partition("=")
        found = found.series(symbol.strip(), about.strip() or "0")
    if derivative:
        found = found.derivative(derivative)
    return found.elasticity(elasticity) if elasticity else found


def _plot(found: Any, ranges: dict[str, str], path: Path | None, style: str) -> int:
    from tokenmill import derive_plot

    drawn = derive_plot.curve(found, ranges)
    if path is not None:
        derive_plot.write_figure(found, drawn, path)
    if style == "json":
        out.write_json({**found.json(), "plot": derive_plot.as_json(found, drawn)})
    elif path is not None:
        typer.echo(f"Wrote {path}.")
    else:
        typer.echo(derive_plot.as_text(found, drawn), nl=False)
    return 0


def _list(rows: list[dict[str, str]], style: str) -> int:
    if style == "json":
        out.write_json({"schema": 1, "formulas": rows})
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        typer.echo(f"{row['name']:<{width}}  {row['title']}")
    return 0
