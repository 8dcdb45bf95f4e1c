from __future__ import annotations

import json
import math

import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.derive import Derivation, derive, library, listing
from tokenmill.derive_solve import invert
from tokenmill.errors import ProblemError
from tokenmill_models.compile import exact
from tokenmill_models.formula import Formula, maximum
from tokenmill_models.symbols import declare

a = declare("derive_a", "1", "a count", origin="input.derive_a", sign="positive")
b = declare("derive_b", "1", "another", origin="input.derive_b", sign="positive")
y = declare("derive_y", "1", "what it makes", sign="positive")
sizes = st.floats(0.01, 1e6)


def made(expr, **about) -> Derivation:
    return Derivation(Formula("test.made", "made for a test", y, expr, **about))


def run(source: str, *arguments: float) -> float:
    namespace: dict = {}
    exec(source, namespace)
    function = next(item for name, item in namespace.items() if callable(item) and not name.startswith("__"))
    return function(*arguments)


def test_the_ridge_of_an_h100_is_peak_over_bandwidth():
    # published: 989.4 TFLOP/s dense bf16 (half of 1979 with sparsity) over 3.35 TB/s
    found = derive("roofline.ridge").given({"F": "989.4 TFLOP/s", "W": "3.35 TB/s"})
    assert found.value == pytest.approx(989.4e12 / 3.35e12, rel=1e-12)
    assert "ridge = F/W" in found.text()
    assert found.latex().strip() == r"ridge = \frac{F}{W}"


def test_a_chip_of_the_catalogue_fills_its_symbols():
    found = derive("roofline.ridge").given({"chip": "h100-sxm"})
    assert found.value == pytest.approx(989.4e12 / 3.35e12, rel=2e-3)
    assert "h100-sxm" in found.text()


def test_python_runs_alone_and_agrees_with_the_value():
    given_values = {"flops": 3e12, "bytes_moved": 5e9, "F": 9e14, "W": 3e12, "eta_F": 0.7, "eta_W": 0.8}
    found = derive("roofline.time")
    order = sorted(given_values)
    assert run(found.python(), *(given_values[name] for name in order)) == pytest.approx(
        max(3e12 / (9e14 * 0.7), 5e9 / (3e12 * 0.8)), rel=1e-12
    )
    plugged = found.given(given_values)
    assert run(plugged.python()) == pytest.approx(plugged.value, rel=1e-12)


def test_every_registered_formula_prints_in_every_notation():
    for name in library():
        found = derive(name)
        assert found.formula.title in found.text()
        assert found.latex().strip()
        compile(found.python(), name, "exec")
        json.dumps(found.json())


@settings(max_examples=30, deadline=None)
@given(a_value=sizes, b_value=sizes, pick=st.integers(0, 4))
def test_inverting_gives_the_number_back(a_value, b_value, pick):
    expr = (a * b, a + b, b / a, maximum(a, b) + b, a**2 * b)[pick]
    forward = made(expr).given({"derive_a": a_value, "derive_b": b_value}).value
    back = made(expr).solve_for("derive_a").given({"derive_b": b_value, "derive_y": forward})
    if pick == 3 and a_value <= b_value:
        return  # the sum does not change with the smaller: any value under b would do
    assert back.value == pytest.approx(a_value, rel=1e-6)


def test_branches_of_a_max_carry_their_conditions():
    found = derive("roofline.time").solve_for("flops")
    (branch,) = found.branches
    known = {"F": 1e15, "eta_F": 1.0, "W": 1e12, "eta_W": 1.0, "bytes_moved": 1e9}
    assert found.given({**known, "T_roofline": 2e-3}).value == pytest.approx(2e12)
    # a step of 0.5 ms cannot move 1 GB at 1 TB/s, whatever the work
    assert found.given({**known, "T_roofline": 0.5e-3}).value is None
    assert "no value meets these numbers" in found.given({**known, "T_roofline": 0.5e-3}).text()
    assert branch.conditions


def test_a_rounded_formula_inverts_to_an_inequality():
    found = made(b / a, rounding="floor")
    assert found.given({"derive_a": 2, "derive_b": 7}).value == 3
    assert "<= derive_b/derive_a <" in found.text()
    # floor(b/a) = y: a larger a gives less, so a <= b/y; a larger b gives more, so b >= y a
    assert "derive_a <= derive_b/derive_y" in found.solve_for("derive_a").text()
    assert "derive_b >= derive_a*derive_y" in found.solve_for("derive_b").text()


def test_what_has_no_closed_form_is_said_and_found_numerically():
    expr = a * sp.exp(a) + sp.log(a) * b
    assert invert(made(expr).formula, a) == ()
    found = made(expr).solve_for("derive_a")
    assert "no closed form" in found.text()
    assert "no closed form" in found.python()
    value = found.given({"derive_b": 2.0, "derive_y": 30.0}).value
    assert value * math.exp(value) + 2 * math.log(value) == pytest.approx(30.0, rel=1e-9)


def test_validity_is_checked_at_the_numbers():
    found = made(a - b, valid=(sp.Gt(a, b),))
    assert "does not hold" in found.given({"derive_a": 1, "derive_b": 2}).text()
    assert "does not hold" not in found.given({"derive_a": 3, "derive_b": 2}).text()


def test_every_mistake_is_named_at_once():
    with pytest.raises(ProblemError) as raised:
        derive("roofline.ridge").given({"F": "989 GB", "X": 1, "W": "__import__('os')", "chip": "h100-sx"})
    keys = [mistake.key for mistake in raised.value.mistakes]
    assert keys == ["--given F", "--given X", "--given W", "--given chip"]
    with pytest.raises(ProblemError, match=r"did you mean 'roofline\.ridge'"):
        derive("roofline.rigde")
    with pytest.raises(ProblemError, match="--for"):
        derive("roofline.ridge").solve_for("Q")


def test_the_listing_is_by_prefix():
    names = [row["name"] for row in listing("roofline")]
    assert "roofline.ridge" in names
    assert all(name.startswith("roofline") for name in names)


def test_exact_and_python_agree_on_powers():
    found = made(sp.sqrt(a) * b ** sp.Rational(3, 2) + sp.ceiling(a / b))
    expected = float(exact(found.formula.expr, {a: 5.0, b: 3.0}))
    assert run(found.python(), 5.0, 3.0) == pytest.approx(expected, rel=1e-12)


def test_formulas_and_stages_share_one_vocabulary():
    # a name that means two things would fail only in a process that uses both
    from tokenmill.imports.architecture import load_architecture
    from tokenmill_models.stage import stages

    assert library()
    for stage in stages().values():
        for name in ("llama-3.1-8b", "mixtral-8x7b-v0.1", "deepseek-v3"):
            assert stage.roles(load_architecture(name))
