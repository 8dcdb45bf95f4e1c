"""Markdown: tables, mathematics, anchors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from tokenmill_models import printing

LONGEST = 1200
"""Letters of LaTeX beyond which a definition is shown as text: no page is wide enough for it."""


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as a table; nothing where there are none."""
    body = [f"| {' | '.join(cell(value) for value in row)} |" for row in rows]
    if not body:
        return ""
    return "\n".join([f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |", *body]) + "\n"


def cell(value: object) -> str:
    """Return a value as one cell of a table."""
    return " ".join(str(value).split()).replace("|", r"\|")


def equation(left: Any, right: Any) -> str:
    """Return an equation of a symbol and an expression as displayed LaTeX, or as text where it is too long."""
    latex = f"{printing.latex(left)} = {printing.latex(right)}"
    if len(latex) > LONGEST:
        return f"```\n{left.name} = {printing.text(right)}\n```\n"
    return f"$$\n{latex}\n$$\n"


def plain(text: str) -> str:
    """Return prose in which no bracket begins a link."""
    return text.replace("[", r"\[")


_DISPLAYED = re.compile(r"\$\$\n(.+?)\n\$\$", re.DOTALL)
_INLINE = re.compile(r"(?<![$\\\w`])\$([^$\n]+?)\$(?![\w$])")
_ROLE = re.compile(r":math:`([^`]+)`")


def rendered(text: str) -> str:
    """Return a page with its LaTeX as MathML, which browsers show without any script (needs latex2mathml)."""
    from latex2mathml.converter import convert

    text = _DISPLAYED.sub(lambda found: f"<p>{convert(found[1], display='block')}</p>", text)
    text = _ROLE.sub(lambda found: convert(found[1]), text)
    return _INLINE.sub(
        lambda found: convert(found[1]) if "\\" in found[1] or "_" in found[1] or len(found[1]) < 3 else found[0], text
    )
