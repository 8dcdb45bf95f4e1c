"""How a derivation reads: text, LaTeX, Python, JSON."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import sympy as sp

from tokenmill.derive_change import piecewise
from tokenmill.explain import value_text
from tokenmill_models import printing
from tokenmill_models.compile import exact
from tokenmill_models.symbols import quantity

if TYPE_CHECKING:
    from tokenmill.derive import Derivation

NO_CLOSED_FORM = "no closed form; give every other symbol a number and it is found numerically"


def as_text(derivation: Derivation) -> str:
    """Return the derivation as plain text."""
    formula = derivation.formula
    lines = [f"{formula.name}: {formula.title}", ""]
    lines += [f"  {line}" for line in _equations(derivation, printing.text)]
    lines += ["", "where"]
    lines += [f"  {row}" for row in _symbol_rows(derivation)]
    if formula.assumes:
        lines += ["", "assuming", *(f"  {words}" for words in formula.assumes)]
    relations = [printing.text(relation) for relation in formula.valid]
    lines += ["", "valid where", *(f"  {words}" for words in relations or ["every symbol is above zero"])]
    lines += ["", f"source: {formula.source.text}"]
    lines += [f"  {step}" for step in formula.source.steps]
    lines += _number_lines(derivation)
    return "\n".join([*lines, *_value_lines(derivation)]) + "\n"


def _number_lines(derivation: Derivation) -> list[str]:
    """Return where numbers of the catalogue come from, once each: the first source, and how many more there are."""
    told = {given.short: given.detail for given in derivation.values.values() if given.detail}
    lines = []
    for short, detail in told.items():
        first, *more = detail.split("; ")
        lines.append(f"  {short}: {first}" + (f" (and {len(more)} more; --json has all)" if more else ""))
    return ["numbers:", *lines] if lines else []


def _value_lines(derivation: Derivation) -> list[str]:
    """Return the value, or why there is none although every number is there."""
    wanted, value = quantity(derivation.wanted), derivation.value
    if value is None:
        missing = [s.name for s in _needed(derivation) if s.name not in derivation.values]
        return ["", f"{wanted.symbol.name}: no value meets these numbers"] if not missing else []
    if not isfinite(value):
        return ["", f"{wanted.symbol.name} grows without limit"]
    lines = ["", f"{wanted.symbol.name} = {value_text(value, wanted.dimension)}  ({value:.12g} {wanted.dimension})"]
    return lines + [f"  not valid here: {printing.text(relation)} does not hold" for relation in _broken(derivation)]


def _needed(derivation: Derivation) -> list[sp.Symbol]:
    return [symbol for symbol in _all_symbols(derivation) if symbol != derivation.wanted]


def as_latex(derivation: Derivation) -> str:
    """Return the equation, or those of its solution, in LaTeX; one a line."""
    return "\n".join(_equations(derivation, printing.latex, equal=" = ", when=r" \quad\text{{if }} {}")) + "\n"


def as_python(derivation: Derivation) -> str:
    """Return a Python function that runs alone, with units in its docstring; given numbers are defaults."""
    formula = derivation.formula
    if derivation.target is not None and not derivation.branches:
        return f"# {derivation.target.name}: {NO_CLOSED_FORM}\n"
    expr = formula.rounded if derivation.target is None else piecewise(derivation.branches)
    symbols = sorted(expr.free_symbols, key=str)
    wanted = quantity(derivation.wanted)
    doc = [f"{formula.title}: {wanted.symbol.name} [{wanted.dimension}].", ""]
    doc += [f"{s.name}: {quantity(s).doc} [{quantity(s).dimension}]" for s in symbols]
    doc += ["", f"Source: {formula.source.text}"]
    name = formula.name.rpartition(".")[2] if derivation.target is None else derivation.target.name
    given = {key: item.value for key, item in derivation.values.items()}
    return printing.python_function(
        f"{name}_of" if name in {s.name for s in symbols} else name, symbols, expr, doc, given
    )


def as_json(derivation: Derivation) -> dict[str, Any]:
    """Return name, equation in each notation, symbols, assumptions, source, value."""
    formula, wanted, value = derivation.formula, quantity(derivation.wanted), derivation.value
    return {
        "schema": 1,
        "name": formula.name,
        "title": formula.title,
        "symbol": wanted.symbol.name,
        "unit": wanted.dimension,
        "rounding": formula.rounding,
        "text": _equations(derivation, printing.text),
        "latex": as_latex(derivation).splitlines(),
        "python": as_python(derivation),
        "symbols": [_symbol_json(derivation, symbol) for symbol in _all_symbols(derivation)],
        "assumes": list(formula.assumes),
        "valid": [printing.text(relation) for relation in formula.valid],
        "source": formula.source.text,
        "steps": list(formula.source.steps),
        "solvable": derivation.target is None or bool(derivation.branches),
        "value": value if value is not None and isfinite(value) else None,
    }


def _equations(derivation: Derivation, show: Any, equal: str = " = ", when: str = "  where {}") -> list[str]:
    formula = derivation.formula
    left = show(derivation.wanted)
    if derivation.target is None:
        lines = [left + equal + show(formula.rounded)]
        if formula.rounding == "floor" and show is printing.text:
            lines.append(f"so {left} <= {show(formula.expr)} < {left} + 1")
        if formula.rounding == "ceil" and show is printing.text:
            lines.append(f"so {left} - 1 < {show(formula.expr)} <= {left}")
        return lines
    if not derivation.branches:
        if show is printing.text:
            return [show(formula.symbol) + equal + show(formula.rounded), f"{left}: {NO_CLOSED_FORM}"]
        return [show(formula.symbol) + equal + show(formula.rounded)]
    relation = equal if formula.rounding is None or show is not printing.text else _relation(derivation)
    lines = []
    for branch in derivation.branches:
        conditions = " and ".join(show(condition) for condition in branch.conditions)
        lines.append(left + relation + show(branch.expr) + (when.format(conditions) if conditions else ""))
    return lines


def _relation(derivation: Derivation) -> str:
    """Return the sign of the inequality that a rounded formula turns into when it is inverted."""
    formula = derivation.formula
    slope = sp.diff(formula.expr, derivation.target)
    grows, falls = slope.is_nonnegative, slope.is_nonpositive
    if not grows and not falls:
        return " = "
    at_least = bool(grows) == (formula.rounding == "floor")
    return " >= " if at_least else " <= "


def _all_symbols(derivation: Derivation) -> list[sp.Symbol]:
    return sorted({*derivation.symbols, derivation.formula.symbol}, key=str)


def _symbol_rows(derivation: Derivation) -> list[str]:
    symbols = _all_symbols(derivation)
    width = max(len(symbol.name) for symbol in symbols)
    unit_width = max(len(quantity(symbol).dimension) for symbol in symbols)
    rows = []
    for symbol in symbols:
        about, given = quantity(symbol), derivation.values.get(symbol.name)
        known = given is not None and symbol != derivation.wanted
        value = f" = {value_text(given.value, about.dimension)} ({given.short})" if given and known else ""
        rows.append(f"{symbol.name:<{width}}  {about.dimension:<{unit_width}}  {about.doc}{value}")
    return rows


def _symbol_json(derivation: Derivation, symbol: sp.Symbol) -> dict[str, Any]:
    about, given = quantity(symbol), derivation.values.get(symbol.name)
    return {
        "symbol": symbol.name,
        "unit": about.dimension,
        "doc": about.doc,
        "origin": about.origin,
        "latex": about.latex or symbol.name,
        "value": given.value if given else None,
        "source": given.source if given else None,
    }


def _broken(derivation: Derivation) -> list[sp.Basic]:
    """Return the relations of validity that the given numbers break."""
    formula = derivation.formula
    known = {name: given.value for name, given in derivation.values.items()}
    if derivation.target is not None and derivation.value is not None:
        known[derivation.target.name] = derivation.value
    told = [relation for relation in formula.valid if all(s.name in known for s in relation.free_symbols)]
    return [r for r in told if not exact(r, {s: known[s.name] for s in r.free_symbols})]
