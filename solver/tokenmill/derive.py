"""`derive`: a formula as text, LaTeX, JSON or Python; solved for any of its symbols; with numbers plugged in.

What a user gives is names and numbers with units; no expression of theirs is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import isfinite
from pkgutil import iter_modules
from typing import Any

import sympy as sp

import tokenmill_models
from tokenmill import derive_change
from tokenmill.derive_solve import Branch, invert, numeric
from tokenmill.errors import Mistake, ProblemError, nearest
from tokenmill_models import formula as formulas
from tokenmill_models.compile import constants, exact
from tokenmill_models.formula import Formula

CLOSE = 1e-6


@dataclass(frozen=True)
class Given:
    """A number laid in for a symbol (SI), and where it comes from."""

    value: float
    source: str = "given"

    @property
    def short(self) -> str:
        """The name and evidence of the source."""
        return self.source.partition(": ")[0]

    @property
    def detail(self) -> str:
        """What follows the name: papers, pages, packages."""
        return self.source.partition(": ")[2]


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
        solved = [value for value in found if value is not None and self._meets(value, known)]
        if not solved and not (self.branches and all(b.conditions for b in self.branches)):
            solved = [value for value in [numeric(self.formula, self.target, known)] if value is not None]
        return solved[0] if solved else None

    def _meets(self, value: float, known: Mapping[str, float]) -> bool:
        """Return whether a solution is a number its symbol may have, and gives the formula's value back."""
        target, formula = self.wanted, self.formula
        if not isfinite(value) or (target.is_nonnegative and value < 0):
            return False
        back = _evaluate(formula.expr, {**known, target.name: value})
        goal = known.get(formula.symbol.name)
        return goal is None or (back is not None and abs(back - goal) <= CLOSE * max(abs(goal), abs(back)))

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

    def limit(self, symbol: str, to: str) -> Derivation:
        """Return what the formula tends to as a symbol goes to a number (SI) or to "inf"."""
        return derive_change.limit(self, _symbol(self.formula, symbol, "--limit"), to)

    def series(self, symbol: str, about: str = "0") -> Derivation:
        """Return the first terms of the formula's series in a symbol."""
        return derive_change.series(self, _symbol(self.formula, symbol, "--series"), about)

    def derivative(self, symbol: str) -> Derivation:
        """Return the derivative by a symbol."""
        return derive_change.derivative(self, _symbol(self.formula, symbol, "--derivative"))

    def elasticity(self, symbol: str) -> Derivation:
        """Return by how many percent the value grows when a symbol grows by one percent."""
        return derive_change.elasticity(self, _symbol(self.formula, symbol, "--elasticity"))

    def eliminate(self, symbol: str, name: str) -> Derivation:
        """Return the formula with a symbol replaced by what the formula `name` says of it."""
        return derive_change.eliminate(self, _symbol(self.formula, symbol, "--eliminate"), derive(name).formula)

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
    return with_constants(known[name])


def with_constants(formula: Formula) -> Derivation:
    """Return the derivation of a formula with the values of its constants laid in."""
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
    """Return a symbol of the formula by its name, or by a start that is its alone: batch for batch_size."""
    known = {s.name: s for s in (*formula.expr.free_symbols, formula.symbol)}
    starting = [symbol for other, symbol in known.items() if other.startswith(f"{name}_")]
    if name not in known and len(starting) == 1:
        return starting[0]
    if name not in known:
        raise ProblemError([Mistake(place, repr(name), ", ".join(sorted(known)), nearest(name, known))])
    return known[name]


def _evaluate(expr: sp.Expr, known: Mapping[str, float]) -> float | None:
    symbols = expr.free_symbols
    if any(symbol.name not in known for symbol in symbols):
        return None
    try:
        return float(exact(expr, {symbol: known[symbol.name] for symbol in symbols}))
    except (ZeroDivisionError, TypeError, ValueError, OverflowError):
        return None  # no real number there: a root of a negative number, a division by nothing
