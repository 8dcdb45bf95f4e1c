"""Formulas, and graphs of them: each Formula defines one symbol, a Graph is a set of definitions without a cycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import sympy as sp

from tokenmill_models.symbols import Quantity, declare, quantity

ROUNDINGS = ("floor", "ceil")


@dataclass(frozen=True)
class Source:
    """Where a formula comes from: paper and equation, or "definition", and how it was derived."""

    text: str
    steps: tuple[str, ...] = ()

    def by(self, *steps: str) -> Source:
        """Return the same source with the steps that lead from it to one formula."""
        return Source(self.text, steps)


DEFINITION = Source("definition")


@dataclass(frozen=True)
class Formula:
    """One definition: `symbol` = `expr`, rounded where the quantity is a whole number.

    `rounding` is applied at evaluation only; derive inverts the continuous form. `valid` are relations under which
    the formula holds, `assumes` the same in words.
    """

    name: str
    title: str
    symbol: sp.Symbol
    expr: sp.Expr
    source: Source = DEFINITION
    rounding: str | None = None
    assumes: tuple[str, ...] = ()
    valid: tuple[sp.Basic, ...] = ()

    def __post_init__(self) -> None:
        if self.rounding is not None and self.rounding not in ROUNDINGS:
            raise ValueError(f"{self.name}: rounding {self.rounding!r} is not one of {ROUNDINGS}")
        if self.symbol in self.expr.free_symbols:
            raise ValueError(f"{self.name}: {self.symbol} is defined by itself")

    @cached_property
    def inputs(self) -> tuple[sp.Symbol, ...]:
        """The symbols of the right-hand side, by name."""
        return tuple(sorted(self.expr.free_symbols, key=lambda symbol: str(symbol.name)))

    @property
    def quantity(self) -> Quantity:
        """The registered quantity that the formula defines (dimension, meaning)."""
        return quantity(self.symbol)

    @property
    def rounded(self) -> sp.Expr:
        """The right-hand side as evaluated: with its rounding."""
        if self.rounding == "floor":
            return sp.floor(self.expr)
        return sp.ceiling(self.expr) if self.rounding == "ceil" else self.expr


@dataclass
class Graph:
    """Definitions by symbol; the order of `formulas` does not matter."""

    formulas: dict[sp.Symbol, Formula] = field(default_factory=dict)

    def add(self, formula: Formula) -> sp.Symbol:
        """Add a formula and return its symbol; the same formula twice is harmless.

        Raises
        ------
        ValueError
            Where the symbol has another definition already.
        """
        known = self.formulas.setdefault(formula.symbol, formula)
        if known != formula:
            raise ValueError(f"{formula.symbol} is defined twice: {known.expr} and {formula.expr}")
        return formula.symbol

    def let(self, name: str, dimension: str, title: str, expr: Any, **about: Any) -> sp.Symbol:
        """Declare a symbol, define it by `expr` and return it.

        `about`: source, rounding, assumes, valid of the Formula, and latex, sign of the symbol.
        """
        shape = {key: about.pop(key) for key in ("latex", "sign") if key in about}
        symbol = declare(name, dimension, title, **shape)
        return self.add(Formula(name, title, symbol, sp.sympify(expr, strict=True), **about))

    def named(self, name: str) -> sp.Symbol:
        """Return the defined symbol of a name."""
        return next(symbol for symbol in self.formulas if symbol.name == name)

    def merge(self, other: Graph) -> Graph:
        """Add every definition of `other`; return self."""
        for formula in other.formulas.values():
            self.add(formula)
        return self

    def needs(self, outputs: Iterable[sp.Symbol]) -> tuple[list[sp.Symbol], list[sp.Symbol]]:
        """Return (defined symbols in an order of evaluation, leaf symbols by name) that the outputs need.

        Raises
        ------
        ValueError
            For a cycle.
        """
        order: list[sp.Symbol] = []
        leaves: set[sp.Symbol] = set()
        state: dict[sp.Symbol, bool] = {}  # False while its inputs are being visited
        stack = [(symbol, False) for symbol in reversed(list(outputs))]
        while stack:
            symbol, done = stack.pop()
            if symbol not in self.formulas:
                leaves.add(symbol)
            elif done:
                if not state[symbol]:
                    state[symbol] = True
                    order.append(symbol)
            elif symbol not in state:
                state[symbol] = False
                stack.append((symbol, True))
                inputs = self.formulas[symbol].inputs
                cyclic = [other for other in inputs if state.get(other) is False]
                if cyclic:
                    raise ValueError(f"{symbol} and {cyclic[0]} define each other")
                stack.extend((other, False) for other in inputs if other not in state)
        return order, sorted(leaves, key=lambda leaf: str(leaf.name))

    def read(self, outputs: Iterable[sp.Symbol], fixed: Mapping[str, float]) -> frozenset[sp.Symbol]:
        """Return the leaves that the outputs still depend on with the leaves named in `fixed` at their values."""
        seen: set[sp.Symbol] = set()
        stack = list(outputs)
        while stack:
            symbol = stack.pop()
            if symbol in seen or symbol.name in fixed:
                continue
            seen.add(symbol)
            if symbol in self.formulas:
                formula = self.formulas[symbol]
                known = {leaf: sp.Number(fixed[leaf.name]) for leaf in formula.inputs if leaf.name in fixed}
                stack += formula.expr.xreplace(known).free_symbols if known else formula.inputs
        return frozenset(seen - set(self.formulas))

    def inline(self, symbol: sp.Symbol) -> sp.Expr:
        """Return the definition of a symbol with all other definitions put in (for derive alone)."""
        order, _ = self.needs([symbol])
        values: dict[sp.Symbol, sp.Expr] = {}
        for defined in order:
            values[defined] = self.formulas[defined].expr.xreplace(values)
        return values.get(symbol, symbol)


_LIBRARY: dict[str, Formula] = {}


def register(formula: Formula) -> Formula:
    """Put a formula into the library that `derive` offers, under its dotted name; return it.

    Raises
    ------
    ValueError
        For a name that is taken by another formula.
    """
    known = _LIBRARY.setdefault(formula.name, formula)
    if known != formula:
        raise ValueError(f"formula {formula.name!r} is registered twice")
    return formula


def library() -> dict[str, Formula]:
    """Return the registered formulas by dotted name, sorted."""
    return dict(sorted(_LIBRARY.items()))


def maximum(*items: Any) -> sp.Expr:
    """Return Max without the rewriting that costs milliseconds each and is never wanted in a graph."""
    return sp.Max(*(sp.sympify(item, strict=True) for item in items), evaluate=False)


def minimum(*items: Any) -> sp.Expr:
    """Return Min without rewriting; see `maximum`."""
    return sp.Min(*(sp.sympify(item, strict=True) for item in items), evaluate=False)


def alias(graph: Graph, name: str, title: str, expr: Any) -> sp.Symbol:
    """Define a name for a side of a rule or a size of a group in `graph`; it is no quantity and is not registered."""
    return graph.add(Formula(name, title, sp.Symbol(name), sp.sympify(expr, strict=True)))
