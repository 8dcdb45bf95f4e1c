"""`derive`: a formula as text, LaTeX, JSON or Python; solved for any of its symbols; with numbers plugged in.

What a user gives is names and numbers with units; no expression of theirs is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import sympy as sp

import tokenmill_models
from tokenmill.derive_solve import Branch, invert, numeric
from tokenmill.errors import Mistake, ProblemError, nearest
from tokenmill_models import formula as formulas
from tokenmill_models.compile import constants, exact
from tokenmill_models.formula import Formula


@dataclass(frozen=True)
class Given:
    """A number laid in for a symbol (SI), and where it comes from."""

    value: float
    source: str = "given"


@dataclass(frozen=True)
class Derivation:
    """A formula with what was asked of it: the symbol to solve for, and the numbers given by symbol name."""

    formula: Formula
    target: sp.Symbol | None = None
    branches: tuple[Branch, ...] = ()
    values: Mapping[str, Given] = field(default_factory=dict)

    @property
    def symbols(self) -> tuple[sp.Symbol, ...]:
        """The symbols of the right-hand side, by name."""
        return tuple(sorted(self.formula.expr.free_symbols, key=str))

    @property
    def wanted(self) -> sp.Symbol:
        """The symbol on the left: the one solved for, else the one that the formula defines."""
        return self.target or self.formula.symbol

    @property
    def value(self) -> float | None:
        """The wanted value (SI), or None while a symbol that it needs has no number."""
        known = {name: given.value for name, given in self.values.items()}
        if self.target is None:
            return _evaluate(self.formula.rounded, known)
        found = [_evaluate(branch.expr, known) for branch in self.branches if branch.holds(known)]
        if not self.branches:
            found = [numeric(self.formula, self.target, known)]
        return next((value for value in found if value is not None), None)

    def solve_for(self, symbol: str | sp.Symbol) -> Derivation:
        """Return the formula solved for one of its symbols; where no closed form exists `branches` is empty.

        Raises
        ------
        ProblemError
            For a symbol that the formula does not hold.
        """
        target = _symbol(self.formula, str(symbol), "--for")
        if target == self.formula.symbol:
            return replace(self, target=None, branches=())
        return replace(self, target=target, branches=invert(self.formula, target))

    def given(self, values: Mapping[str, Any], catalog: Any = None) -> Derivation:
        """Return the derivation with numbers plugged in.

        `values`: symbol name to an SI number or text with a unit ("80 GB"); ``chip`` and ``model`` name entries of the
        catalogue that give the symbols of those origins.

        Raises
        ------
        ProblemError
            For every name that the formula does not hold and every value that cannot be read, at once.
        """
        from tokenmill.derive_given import read_given

        every = {*self.symbols, self.formula.symbol}
        return replace(self, values={**self.values, **read_given(every, values, catalog)})

    def text(self) -> str:
        """Return title, formula, symbols with units, assumptions, source and value as plain text."""
        from tokenmill.derive_show import as_text

        return as_text(self)

    def latex(self) -> str:
        """Return the formula (or its solution) in LaTeX."""
        from tokenmill.derive_show import as_latex

        return as_latex(self)

    def python(self) -> str:
        """Return the source of a Python function that runs alone."""
        from tokenmill.derive_show import as_python

        return as_python(self)

    def json(self) -> dict[str, Any]:
        """Return everything as JSON data."""
        from tokenmill.derive_show import as_json

        return as_json(self)


def derive(name: str) -> Derivation:
    """Return the derivation of a registered formula by its dotted name.

    Raises
    ------
    ProblemError
        For an unknown name, with the nearest one.
    """
    prefix = name.partition(".")[0]
    known = _of_topic(prefix)
    if name not in known:
        known = library()
    if name not in known:
        near = nearest(name, known)
        same = [other for other in known if other.startswith(prefix + ".")]
        allowed = ", ".join(same[:8]) if same else f"{len(known)} formulas; list them without a name"
        raise ProblemError([Mistake("derive", repr(name), allowed, near)])
    formula = known[name]
    fixed = constants(formula.expr.free_symbols)
    return Derivation(formula, values={symbol: Given(value, "constant") for symbol, value in fixed.items()})


def _homes(prefix: str = "") -> list[str]:
    """Return the modules that register formulas whose names start with a stage or topic, or all."""
    names = [module.name for module in iter_modules(tokenmill_models.__path__)]
    closed = f"closed_{prefix}"
    return [
        name
        for name in names
        if (name.startswith("closed_") or name.endswith("_forms"))
        and (not prefix or name in (closed, f"{prefix}_forms") or name.startswith(f"{closed}_"))
    ]


def _of_topic(prefix: str) -> dict[str, Formula]:
    """Return what is registered once the modules of a topic, if there are any, are imported: quicker than all."""
    for name in _homes(prefix):
        import_module(f"tokenmill_models.{name}")
    return formulas.library()


def library() -> dict[str, Formula]:
    """Return every registered formula by dotted name: the shipped ones and those of plugins."""
    for name in _homes():
        import_module(f"tokenmill_models.{name}")
    return formulas.library()


def listing(prefix: str = "") -> list[dict[str, str]]:
    """Return name, title and defined symbol of the formulas whose name starts with `prefix`; none for a whole name."""
    if "." in prefix and prefix in _of_topic(prefix.partition(".")[0]):
        return []
    known = library()
    return [
        {"name": name, "title": formula.title, "symbol": formula.symbol.name, "unit": formula.quantity.dimension}
        for name, formula in known.items()
        if name.startswith(prefix) and prefix not in known
    ]


def _symbol(formula: Formula, name: str, place: str) -> sp.Symbol:
    known = {s.name: s for s in (*formula.expr.free_symbols, formula.symbol)}
    if name not in known:
        raise ProblemError([Mistake(place, repr(name), ", ".join(sorted(known)), nearest(name, known))])
    return known[name]


def _evaluate(expr: sp.Expr, known: Mapping[str, float]) -> float | None:
    symbols = expr.free_symbols
    if any(symbol.name not in known for symbol in symbols):
        return None
    return float(exact(expr, {symbol: known[symbol.name] for symbol in symbols}))
