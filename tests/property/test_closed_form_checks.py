"""What every closed form must pass: dimensions, two ways of evaluation, inversion, LaTeX that renders, Python that runs."""

import math
import random

import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.derive import derive, library
from tokenmill_models.checks import dimension_failures, route_failures
from tokenmill_models.compile import constants, exact
from tokenmill_models.formula import Graph

NAMES = sorted(library())
TRIES = 200
# symbols that stand for whole choices: a ZeRO stage is 0 to 3, a flag is 0 or 1
WHOLE = {"z": (0, 3), "untied": (0, 1)}


def numbers(formula, seed):
    """Random numbers of the symbols under which the formula is valid and has a real value; None where no try finds any."""
    draw = random.Random(seed)
    fixed = constants(formula.expr.free_symbols)
    for turn in range(TRIES):
        spread = (0.05, 0.95) if turn % 2 else (0.1, 60.0)
        values = {s.name: math.exp(draw.uniform(*map(math.log, spread))) for s in formula.expr.free_symbols}
        values |= {name: float(draw.randint(*ends)) for name, ends in WHOLE.items() if name in values} | fixed
        if settled(formula, values) is not None:
            return values
        # mixed: every symbol a share or a size of its own
        values |= {
            s.name: math.exp(draw.uniform(*map(math.log, draw.choice([(0.05, 0.95), (1.0, 60.0)]))))
            for s in formula.expr.free_symbols if s.name not in fixed and s.name not in WHOLE
        }  # fmt: skip
        if settled(formula, values) is not None:
            return values
    return None


def settled(formula, values):
    try:
        if not all(exact(r, {s: values[s.name] for s in r.free_symbols}) for r in formula.valid):
            return None
        value = float(exact(formula.expr, {s: values[s.name] for s in formula.expr.free_symbols}))
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None
    # of values near nothing floats keep no digits where a sum cancels
    return value if 1e-5 < abs(value) < 1e15 and (value > 0 or not formula.symbol.is_nonnegative) else None


@pytest.mark.parametrize("name", NAMES)
def test_it_says_how_it_comes_about(name):
    formula = library()[name]
    assert formula.source.text
    assert formula.source.steps, "no derivation"
    assert formula.assumes, "no assumption"
    assert formula.title[0].isupper()


@pytest.mark.parametrize("name", NAMES)
def test_it_scales_by_its_dimension_and_two_ways_agree(name):
    formula = library()[name]
    graph = Graph({formula.symbol: formula})
    for seed in range(3):
        values = numbers(formula, seed)
        assert values is not None, "no numbers at which it is valid"
        assert dimension_failures(graph, values) == []
        assert route_failures(graph, values) == []


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 10**6), pick=st.integers(0, 50))
def test_solving_for_a_symbol_gives_its_number_back(name, seed, pick):
    formula = library()[name]
    values = numbers(formula, seed)
    if values is None:
        return
    fixed = constants(formula.expr.free_symbols)
    free = sorted(set(values) - set(fixed) - set(WHOLE))
    if not free:
        return
    target = free[pick % len(free)]
    value = settled(formula, values)
    stepped = formula.expr.has(sp.Max, sp.Min, sp.Piecewise, sp.floor, sp.ceiling)
    rounded = formula.expr.has(sp.floor, sp.ceiling)
    if not rounded and abs(sensitivity(formula, values, target)) < 1e-3:
        return  # flat there: any number gives the value, or rounding decides which comes back
    known = {key: number for key, number in values.items() if key != target} | {formula.symbol.name: value}
    solved = derive(name).solve_for(target)
    found = solved.given(known).value
    assert found is not None
    # several numbers may give the same value: the one found must give it
    back = exact(formula.expr, {s: {**values, target: found}[s.name] for s in formula.expr.free_symbols})
    assert float(back) == pytest.approx(value, rel=1e-6)
    if len(solved.branches) == 1 and not stepped:
        assert found == pytest.approx(values[target], rel=1e-5)


def sensitivity(formula, values, target):
    """By how much the value changes with a relative change of the symbol."""
    nudged = {**values, target: values[target] * (1 + 1e-6)}
    at = [
        float(exact(formula.expr, {s: point[s.name] for s in formula.expr.free_symbols})) for point in (values, nudged)
    ]
    return (at[1] / at[0] - 1) / 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_its_latex_renders(name):
    pytest.importorskip("matplotlib")
    from matplotlib.mathtext import MathTextParser

    parser = MathTextParser("path")
    for line in derive(name).latex().splitlines():
        # mathtext has no environments: of a case distinction each case is rendered
        for part in cases(line):
            width, height = parser.parse(f"${part}$")[:2]
            assert width > 0
            assert height > 0


def cases(line):
    if r"\begin{cases}" not in line:
        return [line]
    before, _, rest = line.partition(r"\begin{cases}")
    inside, _, after = rest.partition(r"\end{cases}")
    pieces = [piece for row in inside.split(r"\\") for piece in row.split("&")]
    texts = [piece.replace(r"\text{for}\:", "").replace(r"\text{otherwise}", "1").strip() for piece in pieces]
    return [before + texts[0] + after, *[text for text in texts[1:] if text]]


@pytest.mark.parametrize("name", NAMES)
def test_its_python_runs_alone_and_agrees(name):
    formula = library()[name]
    values = numbers(formula, 7)
    namespace = {}
    exec(derive(name).python(), namespace)
    (function,) = [item for key, item in namespace.items() if callable(item) and not key.startswith("__")]
    expected = float(exact(formula.rounded, {s: values[s.name] for s in formula.expr.free_symbols}))
    given_values = {key: value for key, value in values.items() if key not in constants(formula.expr.free_symbols)}
    assert function(**given_values) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_its_elasticity_is_that_of_a_small_change(name):
    formula = library()[name]
    values = numbers(formula, 11)
    if formula.expr.has(sp.floor, sp.ceiling):
        return  # a step has no slope
    target = min(set(values) - set(constants(formula.expr.free_symbols)))
    if target in WHOLE:
        return
    changed = derive(name).elasticity(target)
    found = changed.given({symbol.name: values[symbol.name] for symbol in changed.symbols}).value
    assert found == pytest.approx(sensitivity(formula, values, target), rel=1e-3, abs=1e-4)
