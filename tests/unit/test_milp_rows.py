"""The door to the programme, its two solvers, and scaling."""

from __future__ import annotations

import re
import subprocess
import sys
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest

from tokenmill.errors import SolverError
from tokenmill.milp.cbc import cbc, solve_cbc
from tokenmill.milp.highs import fixed, solve_arrays
from tokenmill.milp.rows import Linear, Programme
from tokenmill.milp.scaling import scale


def knapsack() -> tuple[Programme, Linear]:
    """Return: least 3x + 2y for 2x + y >= 7.5, x - y <= 1, x whole: x = 3, y = 2, at 13."""
    programme = Programme()
    x = programme.variable("whole", "x", integer=True)
    y = programme.variable("part", "y", upper=9.0)
    programme.row("cover", left=Linear({x: 2.0, y: 1.0}), sense=">=", right=7.5)
    programme.row("near", left=Linear({x: 1.0, y: -1.0}, constant=1.0), sense="<=", right=2.0)
    programme.row("tie", left=Linear({y: 2.0}), sense="=", right=4.0)
    return programme, Linear({x: 3.0, y: 2.0}, constant=0.0)


def test_both_solvers_find_the_optimum():
    programme, cost = knapsack()
    outcome = solve_arrays(programme.arrays(cost))
    assert (outcome.status, outcome.objective, outcome.bound) == ("optimal", pytest.approx(13.0), pytest.approx(13.0))
    if cbc() is not None:
        assert solve_cbc(programme, cost).objective == pytest.approx(13.0)


def test_pulp_holds_the_same_programme():
    programme, cost = knapsack()
    arrays, stated = programme.arrays(cost), programme.state(cost)
    by_name = {v.name: v for v in stated.variables()}
    for n, name in enumerate(programme.names):
        variable = by_name[name]
        highest = inf if variable.upBound is None else variable.upBound  # None in PuLP 3, infinite in 4
        assert (variable.lowBound, highest) == (arrays.lower[n], arrays.upper[n])
        assert (variable.cat == "Integer") == arrays.integer[n]
        assert stated.objective.get(variable, 0.0) == arrays.cost[n]
    rows = stated.constraints() if callable(stated.constraints) else list(stated.constraints.values())
    assert len(rows) == len(programme.rows)
    for n, row in enumerate(rows):
        terms = {variable.name: value for variable, value in row.items()}
        part = slice(arrays.starts[n], arrays.starts[n + 1])
        assert terms == {programme.names[i]: v for i, v in zip(arrays.index[part], arrays.value[part], strict=True)}
        low = -row.constant if row.sense >= 0 else -inf
        high = -row.constant if row.sense <= 0 else inf
        assert (arrays.row_lower[n], arrays.row_upper[n]) == (low, high)


def test_names_are_plain_and_labels_are_ours():
    programme, _ = knapsack()
    names = [*programme.names, *(row.name for row in programme.rows)]
    assert all(re.fullmatch(r"[A-Za-z0-9_.]+", name) for name in names)
    assert len(set(names)) == len(names)
    assert programme.labels == [("whole", "x"), ("part", "y")]


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_numbers_must_be_finite(bad):
    programme = Programme()
    x = programme.variable("x")
    with pytest.raises(SolverError, match="number of the programme"):
        programme.row("r", left=Linear({x: bad}), sense="<=", right=1.0)
    with pytest.raises(SolverError, match="number of the programme"):
        programme.row("r", left=Linear({x: 1.0}), sense="<=", right=bad)
    with pytest.raises(SolverError, match="number of the programme"):
        programme.arrays(Linear({x: bad}))


def test_duplicates_and_odd_names_are_refused():
    programme = Programme()
    x = programme.variable("x", 1)
    with pytest.raises(SolverError, match="stated twice"):
        programme.variable("x", 1)
    programme.row("r", left=Linear({x: 1.0}), sense="<=")
    with pytest.raises(SolverError, match="stated twice"):
        programme.row("r", left=Linear({x: 1.0}), sense="<=")
    with pytest.raises(SolverError, match="letters"):
        programme.variable("x[1]")
    with pytest.raises(SolverError, match="sense"):
        programme.row("s", left=Linear({x: 1.0}), sense="<")
    with pytest.raises(SolverError, match="bounds"):
        programme.variable("y", lower=2.0, upper=1.0)


def test_infeasible_unbounded_and_out_of_time_are_told_apart():
    programme = Programme()
    x = programme.variable("x")
    assert solve_arrays(programme.arrays(Linear({x: -1.0}))).status == "unbounded"
    assert solve_arrays(programme.arrays(Linear({x: 1.0})), time_limit=0.0).status == "unknown"
    programme.row("r", left=Linear({x: 1.0}), sense="<=", right=-1.0)
    outcome = solve_arrays(programme.arrays(Linear({x: 1.0})))
    assert (outcome.status, outcome.values, outcome.objective) == ("infeasible", None, None)


def test_duals_of_the_fixed_programme():
    programme = Programme()
    x, y = programme.variable("x", integer=True), programme.variable("y")
    programme.row("need", left=Linear({x: 2.0, y: 1.0}), sense=">=", right=7.0)
    arrays = programme.arrays(Linear({x: 1.0, y: 3.0}))
    outcome = solve_arrays(fixed(arrays, np.array([3.0, 1.0])))
    assert outcome.duals == pytest.approx([3.0])  # one more unit is met by y at 3


def test_small_coefficients_survive_scaling():
    programme = Programme()
    x, y = programme.variable("x"), programme.variable("y", integer=True)
    programme.row("tiny", left=Linear({x: 1e-12, y: 1e-6}), sense=">=", right=3e-6)
    programme.row("large", left=Linear({x: 1e9}), sense="<=", right=1e15)
    arrays = programme.arrays(Linear({x: 1e-9, y: 1.0}))
    assert np.abs(scale(arrays).arrays.value).min() >= 1e-9
    outcome = solve_arrays(arrays)  # x up to 1e6 gives 1e-6 of the 3e-6 at 1e-3; the rest is y = 2
    assert outcome.objective == pytest.approx(2.001)


def test_scales_are_powers_of_two_and_spare_integers():
    programme, cost = knapsack()
    scaled = scale(programme.arrays(cost))
    for each in (scaled.column, scaled.row):
        assert np.all(np.exp2(np.round(np.log2(each))) == each)
    assert scaled.column[0] == 1.0


def test_nothing_is_printed_and_threads_are_fixed():
    code = """
import sys
from tokenmill.milp.highs import solve_arrays
from tokenmill.milp.rows import Linear, Programme
from tokenmill.errors import SolverError
p = Programme(); x = p.variable("x", integer=True)
p.row("r", left=Linear({x: 2.0}), sense=">=", right=3.0)
solve_arrays(p.arrays(Linear({x: 1.0})))
try:
    solve_arrays(p.arrays(Linear({x: 1.0})), threads=2)
except SolverError as error:
    sys.stderr.write(str(error))
print("done")
"""
    paths = [p for p in sys.path if Path(p).name in ("solver", "models")]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": ":".join(paths)}, check=True
    )
    assert done.stdout == "done\n"
    assert "threads: found 2" in done.stderr
