"""How closed forms are written: inputs that a person gives, and formulas with the steps that lead to them."""

from __future__ import annotations

from typing import Any

import sympy as sp

from tokenmill_models.formula import Formula, Source, register
from tokenmill_models.symbols import declare, uncapitalised

DEFINITION = "definition"


def given(name: str, dimension: str, doc: str, latex: str | None = None, sign: str = "positive") -> sp.Symbol:
    """Declare a symbol whose value a person gives."""
    return declare(name, dimension, doc, origin=f"input.{name}", latex=latex, sign=sign)


def form(
    name: str,
    title: str,
    symbol: tuple[str, str],
    expr: sp.Expr,
    source: str,
    steps: tuple[str, ...],
    assumes: tuple[str, ...],
    valid: tuple[sp.Basic, ...] = (),
    **about: Any,
) -> Formula:
    """Register `expr` under its dotted name as the definition of `symbol` (name, dimension); return it.

    `steps` lead from the source, or from first principles, to the expression. `about`: rounding of the Formula, latex
    and sign of the symbol.
    """
    rounding = about.pop("rounding", None)
    defined = declare(symbol[0], symbol[1], uncapitalised(title), **about)
    return register(Formula(name, title, defined, expr, Source(source, steps), rounding, assumes, valid))
