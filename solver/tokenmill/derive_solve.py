"""Inverting a formula: closed forms by branch of its max and min, numbers where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from math import isfinite, lcm, prod

import sympy as sp

from tokenmill_models.compile import exact
from tokenmill_models.formula import Formula

MOST_BRANCHES = 16
MOST_OPERATIONS = 120
TOLERANCE = 1e-9
# decades that are searched for a change of sign, and points a decade: the fine one finds two roots beside a peak
GRIDS = ((-18, 24, 4), (-3, 3, 100))


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
            try:
                sides = [float(exact(side, {s: known[s.name] for s in side.free_symbols})) for side in condition.args]
            except ZeroDivisionError:  # at the very edge of what the branch is for
                return False
            if sides[0] < sides[1] - TOLERANCE * max(abs(sides[0]), abs(sides[1])):
                return False
        return True


def cases(expr: sp.Expr) -> tuple[Branch, ...]:
    """Return an expression with each max and min settled, and when each of them holds; the whole where that is too much."""
    found = tuple(Branch(case, conditions) for case, conditions in _branches(expr))
    return found or (Branch(expr),)


def invert(formula: Formula, target: sp.Symbol) -> tuple[Branch, ...]:
    """Return the closed forms of `target`; empty where a branch that holds it has none, for the others would be taken for all."""
    found = []
    for expr, conditions in _branches(formula.expr):
        if target not in expr.free_symbols:
            continue
        solutions = _solutions(expr - formula.symbol, target) if sp.count_ops(expr) <= MOST_OPERATIONS else []
        if not solutions:
            return ()
        for solution in solutions:
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
    """Return where `zero` vanishes: what is done to the symbol is undone as far as it stands in one place, then a quadratic."""
    if _linear(zero, target):
        slope = sp.diff(zero, target)
        return [sp.together(-zero.subs(target, 0) / slope)]
    inner, value = _undone(zero, target)
    if inner == target:
        return [value]
    powers = {
        node for node in inner.atoms(sp.Pow, sp.exp, sp.log) if target in node.free_symbols and _grows(node, target)
    }
    if len(powers) == 1:
        part = sp.Dummy("part", positive=True)
        left = (inner - value).xreplace({powers.pop(): part})
        if target not in left.free_symbols:
            node = next(node for node in inner.atoms(sp.Pow, sp.exp, sp.log) if _grows(node, target))
            return [found for root in _quadratic(left, part) for found in _solutions(node - root, target)]
        return []
    return _quadratic(inner - value, target)


def _grows(node: sp.Expr, target: sp.Symbol) -> bool:
    """Return whether a symbol stands in an exponent or a logarithm."""
    inside = node.exp if isinstance(node, sp.Pow) else node.args[0]
    return target in inside.free_symbols


def _linear(zero: sp.Expr, target: sp.Symbol) -> bool:
    """Return whether the symbol stands in terms and factors alone, in the first power, and no product holds it twice."""
    for node in sp.preorder_traversal(zero):
        if not isinstance(node, sp.Add | sp.Mul) and node != target and target in node.free_symbols:
            return False
        if isinstance(node, sp.Mul) and sum(target in factor.free_symbols for factor in node.args) > 1:
            return False
    return True


def _undone(expr: sp.Expr, target: sp.Symbol) -> tuple[sp.Expr, sp.Expr]:
    """Return the innermost part of `expr` = 0 that holds the symbol in one place, and its value."""
    value: sp.Expr = sp.Integer(0)
    while expr != target:
        holding = [index for index, part in enumerate(expr.args) if target in part.free_symbols]
        if len(holding) > 1:
            break
        at = holding[0]
        others = [*expr.args[:at], *expr.args[at + 1 :]]
        if isinstance(expr, sp.Add):
            value = value - sp.Add(*others)
        elif isinstance(expr, sp.Mul):
            value = value / sp.Mul(*others)
        elif isinstance(expr, sp.exp):
            value = sp.log(value)
        elif isinstance(expr, sp.log):
            value = sp.exp(value)
        elif isinstance(expr, sp.Pow):
            value = value ** (1 / others[0]) if at == 0 else sp.log(value) / sp.log(others[0])
        else:
            break
        expr = expr.args[at]
    return expr, value


def _quadratic(zero: sp.Expr, target: sp.Symbol) -> list[sp.Expr]:
    """Return the roots in a whole or half power of the symbol where the numerator is of degree two at most."""
    powers = [node.exp for node in zero.atoms(sp.Pow) if target in node.free_symbols]
    if any(not power.is_Rational for power in powers):
        return []
    root = sp.Dummy("root", positive=True)
    degree = lcm(*(int(power.q) for power in powers))
    numerator = sp.fraction(sp.together(zero.subs(target, root**degree)))[0]
    try:
        polynomial = sp.Poly(numerator, root)
    except sp.PolynomialError:
        return []
    # a root of zero (or a pole that the numerator shares with it) solves nothing
    coefficients = polynomial.all_coeffs()
    while coefficients and coefficients[-1] == 0:
        coefficients.pop()
    if len(coefficients) == 2:
        return [(-coefficients[1] / coefficients[0]) ** degree]
    if len(coefficients) != 3:
        return []
    a, b, c = coefficients
    spread = sp.sqrt(b**2 - 4 * a * c)
    return [((sign * spread - b) / (2 * a)) ** degree for sign in (1, -1)]


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

    for first, last, fineness in GRIDS:
        grid = [(at / fineness, miss(at / fineness)) for at in range(first * fineness, last * fineness + 1)]
        for (low, at_low), (high, at_high) in pairwise(grid):
            if isfinite(at_low) and isfinite(at_high) and at_low * at_high <= 0:
                return _bisect(miss, low, high, at_low)
    return None


def _bisect(miss: Callable[[float], float], low: float, high: float, at_low: float) -> float:
    middle = low
    for _ in range(60):
        middle = (low + high) / 2
        at_middle = miss(middle)
        if at_middle == 0:
            break
        if at_middle * at_low > 0:
            low, at_low = middle, at_middle
        else:
            high = middle
    return float(10.0**middle)
