"""One page a group of closed forms: equation, symbols, steps, assumptions, source."""

from __future__ import annotations

from collections.abc import Iterator

from tokenmill.derive import listing
from tokenmill.docs.text import equation, table
from tokenmill_models import printing
from tokenmill_models.formula import Formula, library
from tokenmill_models.symbols import quantity


def pages() -> Iterator[tuple[str, str]]:
    """Yield path and text of the page of every group (the word before the dot), and of their index."""
    listing("")  # loads every module of formulas
    groups: dict[str, list[Formula]] = {}
    for name, formula in library().items():
        groups.setdefault(name.partition(".")[0], []).append(formula)
    for group, formulas in groups.items():
        body = "\n".join(_formula(formula) for formula in formulas)
        yield f"formulas/{group}.md", f"# Formulas: {group}\n\n{body}"
    rows = [(f"[{group}]({group}.md)", len(formulas)) for group, formulas in groups.items()]
    yield (
        "formulas/index.md",
        f"# Formulas\n\n`tokenmill derive NAME` works with each.\n\n{table(('group', 'formulas'), rows)}",
    )


def _formula(formula: Formula) -> str:
    symbols = sorted(formula.expr.free_symbols, key=str)
    rows = [
        (f"`{s.name}`", f"${printing.latex(s)}$", quantity(s).dimension, quantity(s).doc)
        for s in (formula.symbol, *symbols)
    ]
    parts = [
        f"## {formula.name}\n\n{formula.title}.\n",
        equation(formula.symbol, formula.rounded),
        table(("name", "symbol", "unit", "meaning"), rows),
    ]
    if formula.source.steps:
        parts.append("".join(f"{at}. {step}\n" for at, step in enumerate(formula.source.steps, 1)))
    assumed = [*formula.assumes, *(f"`{printing.text(relation)}`" for relation in formula.valid)]
    if assumed:
        parts.append("Assuming:\n\n" + "".join(f"- {words}\n" for words in assumed))
    parts.append(f"Source: {formula.source.text}\n")
    return "\n".join(parts)
