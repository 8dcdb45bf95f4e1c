"""What every HTML page of the product is made of: one document without script, tables, colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

COLOURS = ("#0969da", "#1a7f37", "#9a6700", "#8250df", "#cf222e", "#57606a", "#bf3989", "#0a7ea4", "#6639ba", "#7d4e00")


def colour(at: int) -> str:
    """Return the colour of the thing at a place of a list; they come round again."""
    return COLOURS[at % len(COLOURS)]


def document(title: str, style: str, body: Iterable[str]) -> str:
    """Return a page that needs nothing else: no script, no network."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{style}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>\n' + "\n".join(body) + "\n</body></html>\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as a table; heads are text, cells are HTML already."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
