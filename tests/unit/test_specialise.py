"""Fixing inputs of a generated function changes what is computed, never the result."""

import ast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill_models.specialise import specialise as tree_of

SOURCE = """def graph(a, b, c, flag):
    x = a*flag + b*(1 - flag)
    y = np.maximum(x, c)*flag + np.minimum(1, flag)
    z = np.where((flag > 0), y, b/(c - a))
    w = -flag + 0*c
    return (y, z, w, )
"""


def specialise(source, fixed):
    return ast.unparse(tree_of(source, fixed))


def run(source, **values):
    space = {"np": np}
    exec(compile(source, "<test>", "exec"), space)
    return [np.asarray(v, float) for v in space["graph"](**values)]


numbers = st.floats(0.5, 100.0)


@given(numbers, numbers, numbers, st.sampled_from([0.0, 1.0]))
def test_results_stay(a, b, c, flag):
    if c == a:
        return
    plain = run(SOURCE, a=a, b=b, c=c, flag=flag)
    fixed = run(specialise(SOURCE, {"flag": flag}), a=a, b=b, c=c, flag=flag)
    for one, other in zip(plain, fixed, strict=True):
        assert one == pytest.approx(other, rel=1e-15)


def test_dead_branches_and_terms_are_gone():
    text = specialise(SOURCE, {"flag": 0.0})
    assert "maximum" not in text
    assert "where" not in text
    assert "a * " not in text


def test_a_division_by_zero_is_not_worked_out():
    assert "/" in specialise("def graph(a, b):\n    x = a/b\n    return (x, )\n", {"b": 0.0})
