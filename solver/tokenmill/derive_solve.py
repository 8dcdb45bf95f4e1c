"""Inverting a formula: closed forms by branch of its max and min, numbers where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from math import isfinite, prod

import sympy as sp

from tokenmill_models.compile import exact
from tokenmill_models.formula import Formula

MOST_BRANCHES = 16
MOST_OPERATIONS = 120
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Branch:
    """A closed form and the relations under which it holds (none: always)."""

    expr: sp.Expr
    conditions: tuple[sp.Basic, ...] = ()

    def holds(self, known: Mapping[str, float]) -> bool:
        """Return whether the conditions hold at the numbers known (also where they cannot be told)."""
        for condition in self.conditions:
            if any(symbol.name not in known for symbol in condition.free_symbols):
                continue
            sides = [float(exact(side, {s: known[s.name] for s in side.free_symbols})) for side in condition.args]
            if sides[0] < sides[1] - TOLERANCE * max(abs(sides[0]), abs(sides[1])):
                return False
        return True


def invert(formula: Formula, target: sp.Symbol) -> tuple[Branch, ...]:
    """Return the closed forms of `target`; empty where none is found."""
    found = []
    for expr, conditions in _branches(formula.expr):
        if target not in expr.free_symbols or sp.count_ops(expr) > MOST_OPERATIONS:
            continue
        for solution in _solutions(expr - formula.symbol, target):
            settled = tuple(condition.xreplace({target: solution}) for condition in conditions)
            found.append(Branch(solution, settled))
    return tuple(found)


def _branches(expr: sp.Expr) -> Iterator[tuple[sp.Expr, tuple[sp.Basic, ...]]]:
    """Yield the expression with each max and min replaced by one of its arguments, and when that is so."""
    choices = sorted(expr.atoms(sp.Max, sp.Min), key=sp.count_ops)
    if prod(len(node.args) for node in choices) > MOST_BRANCHES or expr.has(sp.Piecewise, sp.floor, sp.ceiling):
        return
    for picks in product(*(node.args for node in choices)):
        conditions = []
        changed = expr
        replaced: dict[sp.Expr, sp.Expr] = {}
        for node, pick in zip(choices, picks, strict=True):
            greatest = isinstance(node, sp.Max)
            pick = pick.xreplace(replaced)
            others = [other.xreplace(replaced) for other in node.args]
            conditions += [
                sp.Ge(pick, other, evaluate=False) if greatest else sp.Ge(other, pick, evaluate=False)
                for other in others
                if other != pick
            ]
            replaced[node] = pick
        for node in reversed(choices):
            changed = changed.xreplace({node: replaced[node]})
        yield changed, tuple(conditions)


def _solutions(zero: sp.Expr, target: sp.Symbol) -> list[sp.Expr]:
    slope = sp.diff(zero, target)
    if target not in slope.free_symbols:
        return [sp.together(-zero.subs(target, 0) / slope)]
    if _transcendental(zero, target):
        return []
    try:
        found = sp.solve(zero, target)
    except NotImplementedError:
        return []
    return [solution for solution in found if not solution.has(sp.I, sp.LambertW)]


def _transcendental(zero: sp.Expr, target: sp.Symbol) -> bool:
    """Return whether the symbol stands in an exponent or logarithm and elsewhere: a long search without a closed form."""
    inside = [power.exp for power in zero.atoms(sp.Pow)] + [node.args[0] for node in zero.atoms(sp.exp, sp.log)]
    return (
        any(target in part.free_symbols for part in inside)
        and sum(node == target for node in sp.preorder_traversal(zero)) > 1
    )


def numeric(formula: Formula, target: sp.Symbol, known: Mapping[str, float]) -> float | None:
    """Return a positive value of `target` at which the formula gives the known value of its symbol, by bisection.

    None where another symbol has no number, or no change of sign is found between 1e-18 and 1e24.
    """
    needed = {symbol.name for symbol in formula.expr.free_symbols} - {target.name}
    if formula.symbol.name not in known or not needed <= set(known):
        return None
    fixed = {symbol: known[symbol.name] for symbol in formula.expr.free_symbols if symbol != target}
    goal = known[formula.symbol.name]

    def miss(exponent: float) -> float:
        try:
            return float(exact(formula.expr, {**fixed, target: 10.0**exponent})) - goal
        except (ZeroDivisionError, TypeError, ValueError, OverflowError):
            return float("nan")

    grid = [(at / 4, miss(at / 4)) for at in range(-72, 97)]
    for (low, at_low), (high, at_high) in pairwise(grid):
        if isfinite(at_low) and isfinite(at_high) and at_low * at_high <= 0:
            return _bisect(miss, low, high, at_low)
    return None


def _bisect(miss: Callable[[float], float], low: float, high: float, at_low: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        at_middle = miss(middle)
        if at_middle * at_low > 0:
            low, at_low = middle, at_middle
        else:
            high = middle
    return float(10.0 ** ((low + high) / 2))
