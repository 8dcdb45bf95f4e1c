from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tokenmill import plugins
from tokenmill.derive import derive
from tokenmill.errors import ProblemError

TESTS = Path(__file__).resolve().parents[1]


def run(*arguments):
    """The command line in a process of its own: what is registered here must not help it."""
    code = "import sys; from tokenmill.cli import main; sys.exit(main(sys.argv[1:]))"
    paths = [str(TESTS.parent / "solver"), str(TESTS.parent / "models"), str(TESTS)]
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip


def test_a_users_formula_is_derived_like_a_shipped_one():
    done = run("derive", "own.hold_time", "--plugin", "own_formulas", "--for", "own_water", "--given",
               "own_heat=42000 J/kg", "own_draw=100 kW", "own_hold=42 s", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    # 42 s of 100 kW are 4.2 MJ, at 42 kJ a kilogram 100 kg
    assert json.loads(done.stdout)["value"] == pytest.approx(100.0)


def test_a_formula_of_the_wrong_dimension_is_refused_before_use():
    done = run("derive", "wrong.sum", "--plugin", "own_formulas_wrong")
    assert done.returncode == 2
    assert "wrong_sum" in done.stderr
    assert "dimension" in done.stderr


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(ProblemError, match="no_such_module"):
        plugins.load(["no_such_module"])


def test_a_users_stage_passes_the_same_checks():
    done = run("new", "printshop", "--plugin", "own_stage")
    assert done.returncode == 0, done.stderr
    assert "pages_per_second" in done.stdout


def test_an_entry_point_is_loaded_without_a_word(monkeypatch):
    monkeypatch.syspath_prepend(str(TESTS))
    point = EntryPoint(name="own", value="own_formulas", group=plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == plugins.GROUP else [])
    plugins.load()
    assert derive("own.hold_time").given({"own_water": 1, "own_heat": 4200, "own_draw": 42}).value == pytest.approx(
        100.0
    )
