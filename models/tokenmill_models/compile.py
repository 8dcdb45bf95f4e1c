"""A graph of formulas to one numpy function, and the same graph walked in exact numbers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from sympy.printing.pycode import PythonCodePrinter

from tokenmill_models.formula import Graph
from tokenmill_models.specialise import specialise
from tokenmill_models.symbols import quantity

DIGITS = 40
_COMPILING = Lock()
"""Held around Python's own parser, whose nesting count is one for all threads before 3.12."""


class _NumpyPrinter(PythonCodePrinter):
    """Prints expressions as numpy calls that broadcast (sympy's own printer stacks the arguments of Max)."""

    def _pairwise(self, function: str, arguments: tuple[sp.Expr, ...]) -> str:
        text = self._print(arguments[0])
        for argument in arguments[1:]:
            text = f"np.{function}({text}, {self._print(argument)})"
        return str(text)

    def _print_Max(self, expr: sp.Max) -> str:
        return self._pairwise("maximum", expr.args)

    def _print_Min(self, expr: sp.Min) -> str:
        return self._pairwise("minimum", expr.args)

    def _print_ceiling(self, expr: sp.ceiling) -> str:
        return f"np.ceil({self._print(expr.args[0])})"

    def _print_floor(self, expr: sp.floor) -> str:
        return f"np.floor({self._print(expr.args[0])})"

    def _print_exp(self, expr: sp.exp) -> str:
        return f"np.exp({self._print(expr.args[0])})"

    def _print_log(self, expr: sp.log) -> str:
        return f"np.log({self._print(expr.args[0])})"

    def _print_Pow(self, expr: sp.Pow, rational: bool = False) -> str:
        if expr.exp == sp.Rational(1, 2):
            return f"np.sqrt({self._print(expr.base)})"
        if expr.exp.is_Integer and 2 <= int(expr.exp) <= 3:
            base = self.parenthesize(expr.base, 100)
            return "(" + "*".join([base] * int(expr.exp)) + ")"
        return str(super()._print_Pow(expr, rational=rational))

    def _print_Piecewise(self, expr: sp.Piecewise) -> str:
        *branches, last = expr.args
        text = self._print(last[0])
        for value, condition in reversed(branches):
            text = f"np.where({self._print(condition)}, {self._print(value)}, {text})"
        return str(text)

    def _print_And(self, expr: sp.And) -> str:
        return "(" + " & ".join(f"({self._print(a)})" for a in expr.args) + ")"

    def _print_Or(self, expr: sp.Or) -> str:
        return "(" + " | ".join(f"({self._print(a)})" for a in expr.args) + ")"


@dataclass(frozen=True)
class Compiled:
    """A numpy function of the leaf symbols, by name; arrays broadcast against one another."""

    inputs: tuple[sp.Symbol, ...]
    outputs: tuple[sp.Symbol, ...]
    source: str
    function: Callable[..., tuple[Any, ...]]

    def fixed(self, values: Mapping[str, float]) -> Compiled:
        """Return the same function with some inputs fixed (it still takes them): what they cancel is not computed."""
        with _COMPILING:
            function = _run(specialise(self.source, {name: float(value) for name, value in values.items()}))
        return Compiled(self.inputs, self.outputs, self.source, function)

    def __call__(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Evaluate: `values` by symbol name (SI units, scalars or arrays) to outputs by symbol name."""
        results = self.function(*(values[symbol.name] for symbol in self.inputs))
        return {symbol.name: result for symbol, result in zip(self.outputs, results, strict=True)}


def generate_source(
    graph: Graph, outputs: Iterable[sp.Symbol], wide: Container[sp.Symbol] = frozenset()
) -> tuple[str, tuple[sp.Symbol, ...]]:
    """Return Python source of a function ``graph`` with a line a definition, and its inputs in order.

    `wide`: leaves that carry more array dimensions than the others; what does not depend on them is computed apart, narrow.
    """
    wanted = tuple(outputs)
    order, leaves = graph.needs(wanted)
    printer = _NumpyPrinter({"fully_qualified_modules": False, "strict": True})
    lines = [f"def graph({', '.join(symbol.name for symbol in leaves)}):"]
    for symbol, expr in _shared(_split(graph, order, wide)):
        lines.append(f"    {symbol.name} = {printer.doprint(expr)}")
    lines.append(f"    return ({''.join(symbol.name + ', ' for symbol in wanted)})")
    return "\n".join(lines) + "\n", tuple(leaves)


def _split(graph: Graph, order: list[sp.Symbol], wide: Container[sp.Symbol]) -> list[tuple[sp.Symbol, sp.Expr]]:
    """Return the definitions in order, equal right-hand sides once, with what is narrow in a wide one put before it."""
    known: dict[sp.Expr, sp.Symbol] = {}
    broad: set[sp.Symbol] = set()
    lines: list[tuple[sp.Symbol, sp.Expr]] = []
    for symbol in order:
        formula = graph.formulas[symbol]
        expr = formula.rounded
        broad |= {leaf for leaf in formula.inputs if leaf in wide}
        if not broad.isdisjoint(formula.inputs):
            broad.add(symbol)
            expr = _narrowed(expr, broad, known, lines)
        earlier = known.setdefault(expr, symbol)
        lines.append((symbol, expr if earlier is symbol else earlier))
    return lines


def _shared(lines: list[tuple[sp.Symbol, sp.Expr]]) -> list[tuple[sp.Symbol, sp.Expr]]:
    """Give sums and calls that stand in several definitions a line of their own."""
    seen: dict[sp.Expr, int] = {}
    for _, expr in lines:
        for part in sp.preorder_traversal(expr):
            if (
                part is not expr
                and part.args
                and not part.is_number
                and isinstance(part, sp.Add | sp.Max | sp.Min | sp.ceiling)
            ):
                seen[part] = seen.get(part, 0) + 1
    named = {part: sp.Symbol(f"shared_{i}") for i, part in enumerate(part for part, n in seen.items() if n > 1)}
    done: set[sp.Expr] = set()
    found: list[tuple[sp.Symbol, sp.Expr]] = []

    def put(expr: sp.Expr, top: bool) -> sp.Expr:
        if expr in named and not top:
            if expr not in done:
                done.add(expr)
                found.append((named[expr], put(expr, True)))
            return named[expr]
        if not expr.args or isinstance(expr, sp.Piecewise):
            return expr
        arguments = [put(argument, False) for argument in expr.args]
        if all(new is old for new, old in zip(arguments, expr.args, strict=True)):
            return expr
        return expr.func(*arguments, evaluate=False) if isinstance(expr, sp.Max | sp.Min) else expr.func(*arguments)

    for symbol, expr in lines:
        found.append((symbol, put(expr, True)))
    return found


def _narrowed(
    expr: sp.Expr, broad: set[sp.Symbol], known: dict[sp.Expr, sp.Symbol], parts: list[tuple[sp.Symbol, sp.Expr]]
) -> sp.Expr:
    """Replace the largest subexpressions without a broad symbol by symbols of their own, added to `parts`."""
    if broad.isdisjoint(expr.free_symbols):
        if not expr.args or expr.is_Number or (isinstance(expr, sp.Pow) and expr.exp.is_Number):
            return expr
        named = known.get(expr)
        if named is None:
            named = known[expr] = sp.Symbol(f"narrow_{len(known)}")
            parts.append((named, expr))
        return named
    if isinstance(expr, sp.Add | sp.Mul):
        inner = [argument for argument in expr.args if broad.isdisjoint(argument.free_symbols)]
        outer = [argument for argument in expr.args if argument not in inner]
        if len(inner) > 1:
            inner = [expr.func(*inner)]
        arguments = [_narrowed(argument, broad, known, parts) for argument in (*inner, *outer)]
        return expr.func(*arguments)
    if isinstance(expr, sp.Piecewise) or not expr.args:
        return expr
    arguments = [_narrowed(argument, broad, known, parts) for argument in expr.args]
    return expr.func(*arguments, evaluate=False) if isinstance(expr, sp.Max | sp.Min) else expr.func(*arguments)


@cache
def _function(source: str) -> Callable[..., tuple[Any, ...]]:
    with _COMPILING:
        return _run(source)


def _run(code: str | ast.Module) -> Callable[..., tuple[Any, ...]]:
    namespace: dict[str, Any] = {"np": np}
    # The text was printed above from our own expressions; nothing a user writes reaches it.
    exec(compile(code, "<graph>", "exec"), namespace)
    function: Callable[..., tuple[Any, ...]] = namespace["graph"]
    return function


def compile_graph(graph: Graph, outputs: Iterable[sp.Symbol], wide: Container[sp.Symbol] = frozenset()) -> Compiled:
    """Compile the part of a graph that the outputs need into one numpy function; `wide` as in `generate_source`."""
    wanted = tuple(outputs)
    source, inputs = generate_source(graph, wanted, wide)
    return Compiled(inputs, wanted, source, _function(source))


def constants(symbols: Iterable[sp.Symbol]) -> dict[str, float]:
    """Return the values of those symbols whose origin is a constant, by name."""
    prefix = "constant."
    origins = {symbol.name: quantity(symbol).origin or "" for symbol in symbols}
    return {name: float(origin.removeprefix(prefix)) for name, origin in origins.items() if origin.startswith(prefix)}


def walk(graph: Graph, outputs: Iterable[sp.Symbol], values: Mapping[str, Any]) -> dict[str, mpmath.mpf]:
    """Evaluate a graph definition by definition with 40 digits: the second route beside the compiled function.

    `values`: leaves by symbol name, SI. Returns every defined and leaf symbol that the outputs need, by name.
    """
    order, leaves = graph.needs(outputs)
    with mpmath.workdps(DIGITS):
        known = {symbol: mpmath.mpf(values[symbol.name]) for symbol in leaves}
        for symbol in order:
            known[symbol] = _exact(graph.formulas[symbol].rounded, known)
    return {symbol.name: value for symbol, value in known.items()}


def exact(expr: sp.Expr, values: Mapping[sp.Symbol, Any]) -> mpmath.mpf:
    """Evaluate one expression with 40 digits from the values of its symbols."""
    with mpmath.workdps(DIGITS):
        return _exact(expr, {symbol: mpmath.mpf(value) for symbol, value in values.items()})


def _exact(expr: sp.Basic, known: Mapping[sp.Symbol, mpmath.mpf]) -> Any:
    if isinstance(expr, sp.Symbol):
        return known[expr]
    if isinstance(expr, sp.Integer):
        return mpmath.mpf(int(expr))
    if isinstance(expr, sp.Rational):
        return mpmath.mpf(int(expr.p)) / int(expr.q)
    if isinstance(expr, sp.Piecewise):
        return next(_exact(value, known) for value, condition in expr.args if _exact(condition, known))
    if expr.is_Number or expr.is_NumberSymbol:
        return mpmath.mpf(sp.N(expr, DIGITS))
    if expr in (sp.true, sp.false):
        return expr is sp.true
    return _EXACT[type(expr)](*(_exact(argument, known) for argument in expr.args))


_EXACT: dict[type[sp.Basic], Callable[..., Any]] = {
    sp.Add: lambda *terms: mpmath.fsum(terms),
    sp.Mul: lambda *factors: mpmath.fprod(factors),
    sp.Pow: lambda base, power: base**power,
    sp.Max: lambda *items: max(items),
    sp.Min: lambda *items: min(items),
    sp.ceiling: mpmath.ceil,
    sp.floor: mpmath.floor,
    sp.exp: mpmath.exp,
    sp.log: mpmath.log,
    sp.Abs: abs,
    sp.Gt: lambda left, right: left > right,
    sp.Ge: lambda left, right: left >= right,
    sp.Lt: lambda left, right: left < right,
    sp.Le: lambda left, right: left <= right,
    sp.Eq: lambda left, right: left == right,
    sp.Ne: lambda left, right: left != right,
    sp.And: lambda *items: all(items),
    sp.Or: lambda *items: any(items),
    sp.Not: lambda item: not item,
}
