"""A formula drawn against one symbol, or tabled against two: in text, or as SVG or PNG where matplotlib is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.errors import Mistake, ProblemError
from tokenmill.explain import value_text
from tokenmill_models.symbols import quantity

if TYPE_CHECKING:
    from tokenmill.derive import Derivation

WIDE, HIGH = 60, 16
ROWS, COLUMNS = 9, 6
LOGARITHMIC = 50.0  # a range whose ends are so far apart is laid out by factors
FORMATS = (".svg", ".png")


@dataclass(frozen=True)
class Curve:
    """Values of a formula (SI; None where it has none) over points of one symbol, or of two: by row."""

    symbols: tuple[str, ...]
    points: tuple[tuple[float, ...], ...]
    values: tuple[tuple[float | None, ...], ...]


def curve(derivation: Derivation, ranges: Mapping[str, str], points: tuple[int, int] | None = None) -> Curve:
    """Return the formula's values over ranges ``low:high`` (with units) of one or two symbols.

    Raises
    ------
    ProblemError
        For a range that cannot be read, a third symbol, or symbols that have no number yet.
    """
    if not 1 <= len(ranges) <= 2:
        raise ProblemError([Mistake("--plot", f"{len(ranges)} symbols", "one symbol or two")])
    counts = points or ((WIDE + 1, 1) if len(ranges) == 1 else (ROWS, COLUMNS))
    names = tuple(ranges)
    ends = [_ends(derivation, name, ranges[name]) for name in names]
    grids = [_grid(*end, count) for end, count in zip(ends, counts, strict=False)]
    known = {item.name for item in derivation.formula.expr.free_symbols} | {derivation.formula.symbol.name}
    missing = sorted(known - {derivation.wanted.name} - set(derivation.values) - set(names))
    if missing:
        raise ProblemError([Mistake("--plot", f"no number for {', '.join(missing)}", "--given a number for each")])
    inner = grids[1] if len(grids) == 2 else [None]
    rows = tuple(tuple(derivation.given(_at(names, first, second)).value for second in inner) for first in grids[0])
    return Curve(names, tuple(tuple(grid) for grid in grids), rows)


def _at(names: Sequence[str], first: float, second: float | None) -> dict[str, float]:
    return {names[0]: first} if second is None else {names[0]: first, names[1]: second}


def _ends(derivation: Derivation, name: str, text: str) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    allowed = 'two numbers with units and a colon between, such as "1:512", the first the smaller'
    if not colon:
        raise ProblemError([Mistake(f"--plot {name}", repr(text), allowed)])
    read = [derivation.given({name: part}).values[name].value for part in (low, high)]
    if not read[0] < read[1]:
        raise ProblemError([Mistake(f"--plot {name}", repr(text), allowed)])
    return read[0], read[1]


def _grid(low: float, high: float, count: int) -> list[float]:
    steps = range(count)
    if low > 0 and high / low >= LOGARITHMIC:
        return [low * (high / low) ** (step / (count - 1)) for step in steps]
    return [low + (high - low) * step / (count - 1) for step in steps]


def as_text(derivation: Derivation, drawn: Curve) -> str:
    """Return a chart of one symbol, or a table of two, in plain text."""
    return _chart(derivation, drawn) if len(drawn.symbols) == 1 else _table(derivation, drawn)


def _chart(derivation: Derivation, drawn: Curve) -> str:
    wanted, (name,), (grid,) = quantity(derivation.wanted), drawn.symbols, drawn.points
    values = [row[0] for row in drawn.values]
    known = [value for value in values if value is not None]
    if not known:
        return f"{wanted.symbol.name}: no value in this range\n"
    low, high = min(known), max(known)
    span = (high - low) or 1.0
    lines = [[" "] * len(values) for _ in range(HIGH)]
    for column, value in enumerate(values):
        if value is not None:
            lines[HIGH - 1 - round((value - low) / span * (HIGH - 1))][column] = "*"
    labels = {0: value_text(high, wanted.dimension), HIGH - 1: value_text(low, wanted.dimension)}
    margin = max(map(len, labels.values()))
    body = [f"{labels.get(at, ''):>{margin}} |{''.join(line).rstrip()}" for at, line in enumerate(lines)]
    dimension = _dimension(derivation, name)
    left, right = value_text(grid[0], dimension), value_text(grid[-1], dimension)
    scale = ", by factors" if grid[0] > 0 and grid[-1] / grid[0] >= LOGARITHMIC else ""
    below = f"{' ' * margin} +{'-' * len(values)}\n{' ' * margin}  {left}{right:>{max(1, len(values) - len(left))}}"
    return "\n".join([f"{wanted.symbol.name} against {name}{scale}", *body, below]) + "\n"


def _dimension(derivation: Derivation, name: str) -> str:
    symbols = {item.name: item for item in (*derivation.formula.expr.free_symbols, derivation.formula.symbol)}
    return quantity(symbols[name]).dimension


def _table(derivation: Derivation, drawn: Curve) -> str:
    wanted, (down, across) = quantity(derivation.wanted), drawn.symbols
    heads = [value_text(value, _dimension(derivation, across)) for value in drawn.points[1]]
    sides = [value_text(value, _dimension(derivation, down)) for value in drawn.points[0]]
    cells = [[value_text(value, wanted.dimension) for value in row] for row in drawn.values]
    widths = [max(len(text) for text in column) for column in zip(heads, *cells, strict=True)]
    margin = max(map(len, sides))
    first = f"{' ' * margin} | {'  '.join(f'{text:>{width}}' for text, width in zip(heads, widths, strict=True))}"
    rows = [
        f"{side:>{margin}} | {'  '.join(f'{text:>{width}}' for text, width in zip(row, widths, strict=True))}"
        for side, row in zip(sides, cells, strict=True)
    ]
    title = f"{wanted.symbol.name} against {down} (down) and {across} (across)"
    return "\n".join([title, first, "-" * len(first), *rows]) + "\n"


def as_json(derivation: Derivation, drawn: Curve) -> dict[str, Any]:
    """Return the points and values (SI) as JSON data."""
    wanted = quantity(derivation.wanted)
    return {
        "symbol": wanted.symbol.name,
        "unit": wanted.dimension,
        "against": [
            {"symbol": name, "unit": _dimension(derivation, name), "points": list(points)}
            for name, points in zip(drawn.symbols, drawn.points, strict=True)
        ],
        "values": [list(row) for row in drawn.values],
    }


def write_figure(derivation: Derivation, drawn: Curve, path: Path) -> None:
    """Write the plot as SVG or PNG; needs matplotlib (``pip install tokenmill[plot]``).

    Raises
    ------
    ProblemError
        For another kind of file, or where matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise ProblemError([Mistake("--plot-to", repr(str(path)), "a file that ends in .svg or .png")])
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ProblemError([Mistake("--plot-to", "no matplotlib", "pip install 'tokenmill[plot]'")]) from error
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    wanted, name = quantity(derivation.wanted), drawn.symbols[0]
    columns = range(len(drawn.values[0]))
    for column in columns:
        cells = [row[column] for row in drawn.values]
        line = [float("nan") if cell is None else cell for cell in cells]
        label = f"{drawn.symbols[1]} = {drawn.points[1][column]:.4g}" if len(drawn.symbols) == 2 else None
        axes.plot(drawn.points[0], line, label=label)
    if drawn.points[0][0] > 0 and drawn.points[0][-1] / drawn.points[0][0] >= LOGARITHMIC:
        axes.set_xscale("log")
    axes.set_xlabel(f"{name} [{_dimension(derivation, name)}]")
    axes.set_ylabel(f"{wanted.symbol.name} [{wanted.dimension}]")
    axes.set_title(derivation.formula.title, fontsize="medium")
    axes.grid(alpha=0.3)
    if len(drawn.symbols) == 2:
        axes.legend(fontsize="small")
    aside = path.with_name(f".{path.name}.part{path.suffix}")
    figure.savefig(aside)
    aside.replace(path)
