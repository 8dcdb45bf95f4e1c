from __future__ import annotations

import json
import math

import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill import derive_plot
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


@pytest.mark.slow
def test_formulas_and_stages_share_one_vocabulary():
    # a name that means two things would fail only in a process that uses both
    from tokenmill.imports.architecture import load_architecture
    from tokenmill_models.stage import stages

    assert library()
    for stage in stages().values():
        for name in ("llama-3.1-8b", "mixtral-8x7b-v0.1", "deepseek-v3"):
            assert stage.roles(load_architecture(name))


def test_a_limit_is_what_the_formula_tends_to():
    # N products and N - 1 sums over 4N + 2 bytes of 16-bit numbers: one half for long vectors
    found = derive("roofline.dot_product_intensity").limit("vector_length", "inf").given({"element_width": 2})
    assert found.value == pytest.approx(0.5)
    # a batch without limit spreads the weights: a token reads its own cache alone
    ceiling = derive("serving.decode_throughput").limit("batch_size", "inf")
    numbers = {"W": 1e12, "eta_W": 1, "replica_devices": 2, "context_tokens": 1000, "kv_token_bytes": 1e6}
    assert ceiling.given(numbers).value == pytest.approx(2000)
    without = derive("roofline.time").limit("flops", "inf")
    assert "infinity" in without.text()
    assert without.json()["value"] is None
    # the larger of two is settled before the limit: without work the bytes remain
    assert (
        derive("roofline.time").limit("flops", "0").latex().strip() == r"T_{roofline} = \frac{bytes_{moved}}{W \eta_W}"
    )


def test_a_series_agrees_near_its_point():
    numbers = {"n_chips": 1e4, "lambda_chip": 1e-7, "run_time_given": 100.0}
    found = derive("reliability.survival").series("run_time_given").given(numbers).value
    # a thousandth of the square of a tenth over four factorial and less
    assert found == pytest.approx(math.exp(-0.1), abs=0.1**4 / 24)
    assert found != pytest.approx(math.exp(-0.1), abs=1e-9)


def test_a_derivative_carries_its_dimension_and_case():
    found = derive("roofline.time").derivative("flops")
    numbers = {"F": 1e15, "eta_F": 0.5, "W": 1e12, "eta_W": 1, "bytes_moved": 1e9}
    assert found.json()["unit"] == "s/FLOP"
    assert found.given({**numbers, "flops": 1e15}).value == pytest.approx(2e-15)
    assert found.given({**numbers, "flops": 1e9}).value == 0


def test_an_elasticity_is_a_share_of_time():
    found = derive("serving.decode_step").elasticity("batch_size")
    # cache reads are 10 of 40 GB: one percent more sequences takes a quarter of a percent more time
    numbers = {"weight_bytes": 30e9, "batch_size": 10, "context_tokens": 1000, "kv_token_bytes": 1e6}
    assert found.given(numbers).value == pytest.approx(0.25)


def test_two_formulas_are_made_one():
    found = derive("training.cost").eliminate("mfu_given", "training.flops_utilisation")
    # 6·N·D at 400 TFLOP/s, whatever the peak: 6e21/4e14 s at 3.6 dollars an hour
    numbers = {"N_train": 1e9, "D": 1e12, "achieved_rate": 4e14, "rent_price": 1e-3, "goodput_given": 1}
    assert found.given(numbers).value == pytest.approx(6e21 / 4e14 * 1e-3)
    batch = derive("serving.decode_throughput").eliminate("batch_size", "serving.largest_batch")
    assert "taken as R_max" in batch.text()
    assert not any(symbol.name == "batch_size" for symbol in batch.symbols)
    # backwards too: the other formula is solved for the symbol
    hours = derive("training.cost").eliminate("N_train", "training.chip_hours")
    assert hours.given({"chip_hours": 1000, "rent_price": 1 / 3600, "goodput_given": 1}).value == pytest.approx(1000)


def test_changes_name_their_mistakes():
    with pytest.raises(ProblemError, match="--limit"):
        derive("roofline.ridge").limit("F", "soon")
    with pytest.raises(ProblemError, match="--limit"):
        derive("roofline.ridge").limit("nothing", "inf")
    with pytest.raises(ProblemError, match="--eliminate"):
        derive("roofline.ridge").eliminate("F", "money.rent")
    with pytest.raises(ProblemError, match="--plot"):
        derive_plot.curve(derive("roofline.ridge"), {"F": "1:2"})
    with pytest.raises(ProblemError, match="--plot"):
        derive_plot.curve(derive("roofline.ridge").given({"W": 1}), {"F": "3:2"})


def test_a_plot_shows_the_values_it_is_given(tmp_path):
    ridge = derive("roofline.ridge").given({"W": "1 TB/s"})
    drawn = derive_plot.curve(ridge, {"F": "1e12:100e12"})
    assert drawn.values[0][0] == pytest.approx(1.0)
    assert drawn.values[-1][0] == pytest.approx(100.0)
    text = derive_plot.as_text(ridge, drawn)
    assert "ridge against F, by factors" in text
    assert text.count("*") == len(drawn.values)
    table = derive_plot.curve(derive("roofline.ridge"), {"F": "1e12:2e12", "W": "1e12:2e12"})
    assert table.values[0][-1] == pytest.approx(0.5)
    assert "across" in derive_plot.as_text(derive("roofline.ridge"), table)
    pytest.importorskip("matplotlib")
    derive_plot.write_figure(ridge, drawn, tmp_path / "ridge.svg")
    assert (tmp_path / "ridge.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")
    with pytest.raises(ProblemError, match="svg"):
        derive_plot.write_figure(ridge, drawn, tmp_path / "ridge.txt")


def test_a_model_of_the_catalogue_fills_what_is_asked_of_it_as_a_whole():
    step = derive("serving.decode_step").given(
        {"model": "llama-3.1-8b", "chip": "h100-sxm", "batch": 1, "context_tokens": 1}
    )
    values = {name: given.value for name, given in step.values.items()}
    # published: 8,030,261,248 parameters of 2 bytes; 2·32 layers·8 heads·128·2 bytes a token
    assert values["weight_bytes"] == pytest.approx(2 * 8030261248)
    assert values["kv_token_bytes"] == 131072
    assert values["batch_size"] == 1
    assert "numbers:" in step.text()
    assert max(map(len, step.text().splitlines())) < 220


def test_a_quadratic_gives_the_root_that_its_symbol_may_have():
    found = made(a**2 + a * b).solve_for("derive_a").given({"derive_b": 1.0, "derive_y": 6.0})
    assert found.value == pytest.approx(2.0)


def test_an_even_curve_is_solved_on_both_sides_of_its_peak():
    error = (
        derive("evaluation.standard_error")
        .solve_for("accuracy")
        .given({"suite_prompts": 100, "standard_error": 0.0499})
    )
    assert error.value * (1 - error.value) / 100 == pytest.approx(0.0499**2)


def test_numbers_that_a_symbol_cannot_have_are_refused():
    with pytest.raises(ProblemError) as raised:
        derive("serving.largest_batch").given({"replica_devices": 0, "activation_bytes": -1, "M": 0})
    assert [mistake.key for mistake in raised.value.mistakes] == ["--given replica_devices", "--given activation_bytes"]


def test_a_start_that_is_one_symbol_s_alone_names_it():
    assert derive("serving.largest_batch").solve_for("context").wanted.name == "context_tokens"
    with pytest.raises(ProblemError, match="--for"):
        derive("money.replacement_price").solve_for("running")  # of running_cost_old and running_cost_new


def test_slopes_of_cases_and_of_steps():
    interval = derive("reliability.daly_interval").elasticity("MTBF")
    # beyond twice the write time the interval is the time between failures itself: one percent for one percent
    assert interval.given({"MTBF": 10, "delta_write": 100}).value == pytest.approx(1.0)
    # far above it grows as its square root
    assert interval.given({"MTBF": 1e9, "delta_write": 1e-3}).value == pytest.approx(0.5, rel=1e-3)
    assert run(interval.python(), 1e9, 1e-3) == pytest.approx(0.5, rel=1e-3)
    with pytest.raises(ProblemError, match="--derivative"):
        derive("network.torus_diameter").derivative("torus_side")


def test_a_branch_without_a_closed_form_leaves_none_for_the_whole():
    # memory binds: (100e9 - 60e9 * 0.5**2 + 2 * 1000 * 1e6 B) / (1e12 B/s * 1) = 87 ms; compute takes 2 * 2 * 1e9 / 1e15 = 4 us
    solved = derive("claim.step_bound").solve_for("batch_size")
    known = {"F": 1e15, "W": 1e12, "replica_devices": 1, "claim_computed": 1e9, "claim_active_share": 0.5}
    known |= {"claim_routed_weights": 60e9, "claim_weights": 100e9, "context_tokens": 1000, "kv_token_bytes": 1e6}
    assert solved.given(known | {"claim_step": 0.087}).value == pytest.approx(2, rel=1e-6)
    assert "no closed form" in solved.python()
