"""The registry of symbols: Python name, LaTeX, dimension, meaning and origin of each, declared once.

A dimension is text over the base units s, B, FLOP, J, USD, kg (``"1"`` for counts and shares, ``"B/s"``, ``"USD/s"``,
``"J/FLOP"``). W is J/s. Tokens, sequences, requests and parameters are counts.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import sympy as sp

BASE_UNITS = ("s", "B", "FLOP", "J", "USD", "kg")

Dimension = Mapping[str, Fraction]


def parse_dimension(text: str) -> dict[str, Fraction]:
    """Return the exponents of the base units in a dimension such as ``"B/s"`` or ``"J/FLOP"``.

    Raises
    ------
    ValueError
        For a unit that is not a base unit.
    """
    exponents: dict[str, Fraction] = {}
    sign = 1
    for token in text.replace("*", " * ").replace("/", " / ").split():
        if token in "*/":
            sign = -1 if token == "/" else 1
            continue
        unit, _, power = token.partition("^")
        exponent = sign * Fraction(power or 1)
        parts = {"J": exponent, "s": -exponent} if unit == "W" else {} if unit == "1" else {unit: exponent}
        for name, value in parts.items():
            if name not in BASE_UNITS:
                raise ValueError(f"dimension {text!r}: {name!r} is not one of {', '.join(BASE_UNITS)}")
            exponents[name] = exponents.get(name, Fraction(0)) + value
    return {unit: value for unit, value in exponents.items() if value}


@dataclass(frozen=True)
class Quantity:
    """A symbol with what it stands for.

    `origin` says who provides the value of a leaf (``axis.``, ``input.``, ``request.``, ``arch.``, ``chip.``,
    ``system.``, ``store.``, ``engine.``, ``group.<name>.<field>``, ``part.<name>.<port>``, ``constant.<value>``);
    it is None where a Formula defines the symbol.
    """

    symbol: sp.Symbol
    dimension: str
    doc: str
    origin: str | None = None
    latex: str | None = None


_QUANTITIES: dict[str, Quantity] = {}


def declare(
    name: str,
    dimension: str,
    doc: str,
    *,
    origin: str | None = None,
    latex: str | None = None,
    sign: str = "nonnegative",
) -> sp.Symbol:
    """Declare a symbol, or return the one declared with the same meaning before.

    `dimension`: over the base units; `sign`: ``"positive"``, ``"nonnegative"`` or ``"real"``.

    Raises
    ------
    ValueError
        For a name that is no identifier or a keyword, or that stands for something else already.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"symbol {name!r} is no usable Python name")
    parse_dimension(dimension)
    made = Quantity(sp.Symbol(name, **{sign: True}), dimension, doc, origin, latex)
    known = _QUANTITIES.setdefault(name, made)
    leaf = origin is not None  # a defined symbol takes its words from the Formula at hand
    if (known.dimension, known.origin, known.symbol, known.doc if leaf else "") != (
        made.dimension,
        made.origin,
        made.symbol,
        made.doc if leaf else "",
    ):
        raise ValueError(f"symbol {name!r} declared twice: {known} and {made}")
    return known.symbol


def quantity(symbol: sp.Symbol) -> Quantity:
    """Return the registered quantity of a symbol.

    Raises
    ------
    KeyError
        For a symbol that was never declared.
    """
    return _QUANTITIES[symbol.name]


def latex_names() -> dict[sp.Symbol, str]:
    """Return the LaTeX spelling of every declared symbol that has one of its own."""
    return {q.symbol: q.latex for q in _QUANTITIES.values() if q.latex}


def constant(name: str, value: float, dimension: str, doc: str) -> sp.Symbol:
    """Declare a constant that carries a dimension (2 FLOP a multiply-add, seconds an hour)."""
    return declare(name, dimension, doc, origin=f"constant.{value!r}", sign="positive")


def uncapitalised(title: str) -> str:
    """Return a title as the meaning of its symbol: without its capital, unless an abbreviation begins it."""
    return title if title[1:2].isupper() else title[0].lower() + title[1:]
