"""Amounts, lines and tables as they are printed for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap

from rich.console import Console
from rich.table import Table

from tokenmill.explain import value_text

LONGEST = 300
"""Letters of a line beyond which the rest is left to the JSON."""


def say(console: Console, text: str, indent: int = 2, shortened: bool = False) -> None:
    """Print a line, indented; a terminal gets it broken between words, a file or a pipe whole."""
    text = cut(text) if shortened else text
    start = " " * indent
    lines = [start + text]
    if console.is_terminal:
        lines = wrap(text, console.width, initial_indent=start, subsequent_indent=start + "  ") or lines
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def cut(text: str) -> str:
    """Return a text without what lies beyond `LONGEST` letters."""
    return text if len(text) <= LONGEST else text[:LONGEST].rpartition(" ")[0] + " ... (the JSON holds all)"


def print_table(
    console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], dull: Mapping[str, str]
) -> None:
    """Print rows under a title. A column named with ``>`` stands to the right.

    One that is empty all through, or holds what is `dull` by its name, is left out.
    """
    shown = [at for at, name in enumerate(columns) if any(row[at] not in ("", dull.get(name)) for row in rows)]
    table = Table(box=None, pad_edge=False)
    for at in shown:
        name = columns[at]
        right = name.endswith(">")
        table.add_column(name.removesuffix(">"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(row[at] for at in shown))
    console.print(f"\n{title}", style="bold", markup=False)
    console.print(table)


def quantity(value: float | None, unit: str) -> str:
    """Return a value (SI) in words; units that are no dimension stand as they are."""
    known = ("s", "B", "W", "J", "kg", "USD", "J/s", "B/s", "FLOP", "FLOP/s")
    if unit in known or value is None:
        return value_text(value, unit)
    return f"{value:,.6g} {'' if unit == '1' else unit}".rstrip()


def per_second(value: float) -> str:
    """Return a rate [1/s] without powers of ten: ``110,300/s``."""
    return f"{value:,.0f}/s" if abs(value) >= 1000 else f"{value:.4g}/s"


def money(value: float) -> str:
    """Return an amount of USD."""
    if value < 0:
        return f"-{money(-value)}"
    if value and abs(value) < 0.1:
        return f"${value:.3g}"
    return f"${value:,.2f}" if abs(value) < 1000 else f"${value:,.0f}"


def percent(share: float) -> str:
    """Return a share in per cent."""
    return f"{100 * share:.3g}%"
