"""What calculus makes of a formula: limits, series, derivatives, elasticities, and two formulas made one.

Each change is a formula again: it prints, takes numbers and is solved as the one it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import sympy as sp

from tokenmill.derive_solve import Branch, cases, invert
from tokenmill.errors import Mistake, ProblemError
from tokenmill_models.formula import Formula, Source
from tokenmill_models.symbols import declare, parse_dimension, quantity

if TYPE_CHECKING:
    from tokenmill.derive import Derivation

SERIES_TERMS = 4
WORDS = {"inf": sp.oo, "oo": sp.oo, "infinity": sp.oo}


def shown(derivation: Derivation) -> sp.Expr:
    """Return the right-hand side as asked for: the formula's own, or its solution.

    Raises
    ------
    ProblemError
        Where the symbol solved for has no closed form.
    """
    if derivation.target is None:
        return derivation.formula.expr
    if not derivation.branches:
        raise ProblemError([Mistake("--for", repr(derivation.target.name), "a symbol that has a closed form")])
    return piecewise(derivation.branches)


def piecewise(branches: tuple[Branch, ...]) -> sp.Expr:
    """Return branches as one expression; the last holds where no other does."""
    *others, last = branches
    if not others:
        return last.expr
    pieces = [(branch.expr, sp.And(*branch.conditions, evaluate=False)) for branch in others]
    return sp.Piecewise(*pieces, (last.expr, True), evaluate=False)


def limit(derivation: Derivation, symbol: sp.Symbol, text: str) -> Derivation:
    """Return what the formula tends to as a symbol goes to a number (SI) or to ``inf``."""
    place = f"--limit {symbol.name}"
    goal = _goal(place, text)
    try:
        found = _positive_limit(shown(derivation), symbol, goal)
    except (NotImplementedError, ValueError, RecursionError) as error:
        raise ProblemError([Mistake(place, repr(text), "a value at which a limit is found")]) from error
    if found.has(sp.Limit, sp.AccumBounds, sp.nan, sp.zoo):
        raise ProblemError([Mistake(place, repr(text), "a value at which a limit is found")])
    return _changed(derivation, found, f"limit for {symbol.name} -> {text}", derivation.wanted)


def _goal(place: str, text: str) -> sp.Expr:
    if text.strip().lower() in WORDS:
        return WORDS[text.strip().lower()]
    try:
        number = Fraction(text.strip())
    except (ValueError, ZeroDivisionError) as error:
        raise ProblemError([Mistake(place, repr(text), "a number (SI) or inf")]) from error
    return sp.Rational(number.numerator, number.denominator)


def _positive_limit(expr: sp.Expr, symbol: sp.Symbol, goal: sp.Expr) -> sp.Expr:
    """Return the limit with all symbols above zero: one that may vanish would leave its sign open."""
    positive = {item: sp.Dummy(item.name, positive=True) for item in expr.free_symbols}
    back = {dummy: item for item, dummy in positive.items()}
    return sp.sympify(_limit(expr.xreplace(positive), positive.get(symbol, symbol), goal)).xreplace(back)


def _limit(expr: sp.Expr, symbol: sp.Symbol, goal: sp.Expr) -> sp.Expr:
    """Return the limit; a max or min is settled by the limits of its arguments first."""
    for node in sorted(expr.atoms(sp.Max, sp.Min), key=sp.count_ops):
        if symbol not in node.free_symbols:
            continue
        ends = [_limit(part, symbol, goal) for part in node.args]
        far = sp.oo if isinstance(node, sp.Max) else sp.S.Zero
        if far in ends:
            settled: sp.Expr = node.args[ends.index(far)]
        else:
            settled = node.func(*(end for end in ends if end is not sp.oo))
        return _limit(expr.xreplace({node: settled}), symbol, goal)
    direction = "-" if goal is sp.oo else "+"
    return sp.limit(expr, symbol, goal, direction)


def series(derivation: Derivation, symbol: sp.Symbol, text: str = "0") -> Derivation:
    """Return the first terms of the formula's series in a symbol about a number (SI), zero unless given."""
    place = f"--series {symbol.name}"
    goal = _goal(place, text or "0")
    expr = shown(derivation)
    try:
        found = sp.series(expr, symbol, goal, SERIES_TERMS).removeO()
    except (NotImplementedError, ValueError, TypeError, sp.PoleError) as error:
        raise ProblemError([Mistake(place, repr(text), "a value about which a series is found")]) from error
    return _changed(derivation, found, f"series in {symbol.name} about {text or '0'}", derivation.wanted)


def derivative(derivation: Derivation, symbol: sp.Symbol) -> Derivation:
    """Return the derivative of the formula by one of its symbols, by branches of its max and min."""
    wanted = derivation.wanted
    dimension = _over(quantity(wanted).dimension, quantity(symbol).dimension)
    made = declare(
        f"d_{wanted.name}_by_{symbol.name}", dimension, f"derivative of {wanted.name} by {symbol.name}", sign="real"
    )
    return _changed(derivation, _by_case(shown(derivation), symbol, False), f"derivative by {symbol.name}", made)


def elasticity(derivation: Derivation, symbol: sp.Symbol) -> Derivation:
    """Return by how many percent the formula's value grows when a symbol grows by one percent."""
    wanted = derivation.wanted
    made = declare(
        f"elasticity_{wanted.name}_by_{symbol.name}", "1", f"elasticity of {wanted.name} in {symbol.name}", sign="real"
    )
    return _changed(derivation, _by_case(shown(derivation), symbol, True), f"elasticity in {symbol.name}", made)


def _by_case(expr: sp.Expr, symbol: sp.Symbol, relative: bool) -> sp.Expr:
    """Return the derivative, or the elasticity, of each case of an expression as one piecewise expression."""
    found = []
    for case in _pieces(expr):
        slope = sp.diff(case.expr, symbol)
        if slope.has(sp.Derivative):
            allowed = "a formula that does not round its symbol inside"
            raise ProblemError([Mistake("--elasticity" if relative else "--derivative", repr(symbol.name), allowed)])
        found.append(Branch(_tidied(slope * symbol / case.expr) if relative else slope, case.conditions))
    return piecewise(tuple(found))


def _pieces(expr: sp.Expr) -> tuple[Branch, ...]:
    """Return the cases of a max or min, or of a distinction of cases that is the whole expression."""
    if not isinstance(expr, sp.Piecewise):
        return cases(expr)
    return tuple(Branch(value, () if condition == sp.true else (condition,)) for value, condition in expr.args)


def _tidied(expr: sp.Expr) -> sp.Expr:
    """Return a quotient without common factors; of others than rational functions the whole over one denominator."""
    return sp.cancel(expr) if expr.is_rational_function() else sp.together(expr)


def eliminate(derivation: Derivation, symbol: sp.Symbol, other: Formula) -> Derivation:
    """Return the formula with a symbol replaced by what another formula says of it.

    Raises
    ------
    ProblemError
        Where the other formula does not hold the symbol, cannot be solved for it, or holds the symbol defined here.
    """
    place, how = f"--eliminate {symbol.name}", f"{symbol.name} by {other.name}"
    if symbol == other.symbol:
        put = other.expr
    elif symbol in other.expr.free_symbols:
        branches = invert(other, symbol)
        if not branches:
            raise ProblemError([Mistake(place, f"--with {other.name}", "a formula that can be solved for it")])
        put = piecewise(branches)
    elif quantity(symbol).dimension == quantity(other.symbol).dimension:
        put, how = other.expr, f"{symbol.name} taken as {other.symbol.name} of {other.name}"
    else:
        allowed = f"a formula that holds {symbol.name}, or defines something in its unit, {quantity(symbol).dimension}"
        raise ProblemError([Mistake(place, f"--with {other.name}", allowed)])
    formula = derivation.formula
    if formula.symbol in put.free_symbols:
        raise ProblemError(
            [Mistake(place, f"--with {other.name}", f"a formula that does not hold {formula.symbol.name}")]
        )
    changed = _changed(
        replace(derivation, target=None, branches=()),
        formula.expr.xreplace({symbol: put}),
        how,
        formula.symbol,
    )
    merged = replace(
        changed.formula,
        assumes=tuple(dict.fromkeys((*formula.assumes, *other.assumes))),
        valid=tuple(relation.xreplace({symbol: put}) for relation in (*formula.valid, *other.valid)),
    )
    from tokenmill.derive import with_constants

    return replace(with_constants(merged), values={**with_constants(merged).values, **changed.values})


def _changed(derivation: Derivation, expr: sp.Expr, how: str, symbol: sp.Symbol) -> Derivation:
    """Return the derivation of the formula that a change made; numbers given stay."""
    formula = derivation.formula
    made = Formula(
        formula.name,
        f"{formula.title}: {how}",
        symbol,
        sp.sympify(expr),
        Source(formula.source.text, (*formula.source.steps, how)),
        None,
        formula.assumes,
        formula.valid,
    )
    kept = {name: value for name, value in derivation.values.items() if name != symbol.name}
    return replace(derivation, formula=made, target=None, branches=(), values=kept)


def _over(top: str, bottom: str) -> str:
    """Return the dimension of a quotient as text."""
    powers: dict[str, Fraction] = dict(parse_dimension(top))
    for unit, power in parse_dimension(bottom).items():
        powers[unit] = powers.get(unit, Fraction(0)) - power
    return dimension_text(powers)


def dimension_text(powers: Mapping[str, Any]) -> str:
    """Return exponents of base units as a dimension that `parse_dimension` reads."""
    above = "*".join(unit if power == 1 else f"{unit}^{power}" for unit, power in powers.items() if power > 0)
    below = "".join(f"/{unit}" if power == -1 else f"/{unit}^{-power}" for unit, power in powers.items() if power < 0)
    return (above or "1") + below
