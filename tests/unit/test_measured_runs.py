"""Steps that a user measured: read with every mistake named, laid beside predictions, taken into a fit."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tokenmill.api import solve
from tokenmill.calibration_training import OWN, Steps
from tokenmill.cli import main
from tokenmill.errors import ProblemError
from tokenmill.measured_runs import beside, errors_by_system, read_runs
from tokenmill.reading import load_problem

HEAD = "model,system,chips,sequence_length,global_batch,step_time_s,tp,pp,virtual,cp,dp,micro_batch,zero,recompute,schedule\n"
ROW = "llama-3.1-8b,hgx-h100,64,8192,512,{seconds},2,1,1,1,32,1,1,none,1f1b\n"
PROBLEM = """
objective = { minimise = "time" }
[hardware]
systems = ["hgx-h100"]
[[workload]]
name = "train"
stage = "pretraining"
model = "llama-3.1-8b"
tokens = 1e12
sequence_length = 8192
global_batch = 512
optimizer = "adam"
[workload.precision]
compute = "bf16"
[workload.layout]
chips = 64
tp = 2
pp = 1
virtual = 1
cp = 1
dp = 32
micro_batch = 1
zero = 1
recompute = "none"
schedule = "1f1b"
"""


@pytest.fixture(scope="module")
def predicted(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "problem.toml"
    path.write_text(PROBLEM)
    (pool,) = solve(load_problem(path)).workloads["train"].pools
    return pool.predicted["step_time"]


def test_a_row_is_laid_beside_what_a_plan_predicts(tmp_path, predicted):
    path = tmp_path / "steps.csv"
    path.write_text(HEAD + ROW.format(seconds=10.0) + ROW.format(seconds=8.0))
    found = beside(read_runs(path))
    assert [one.predicted for one in found] == pytest.approx([predicted, predicted], rel=1e-9)
    assert found[0].error == pytest.approx(predicted / 10 - 1)
    rows, error, bias = errors_by_system(found)["hgx-h100"]
    assert rows == 2
    assert bias == pytest.approx(np.median([predicted / 10 - 1, predicted / 8 - 1]))
    assert error == pytest.approx(np.median([abs(predicted / 10 - 1), abs(predicted / 8 - 1)]))


def test_every_mistake_is_named(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text("model,system,chips,sequence_length,global_batch,step_time_s,tpp\n")
    with pytest.raises(ProblemError, match="tpp"):
        read_runs(path)
    path.write_text(HEAD + "llama-9,hgx-h100,64.5,8192,512,-1,2,1,1,1,32,1,1,none,1f1b\n")
    with pytest.raises(ProblemError) as raised:
        read_runs(path)
    assert {mistake.key.rpartition(": ")[2] for mistake in raised.value.mistakes} == {"model", "chips", "step_time_s"}
    assert all("line 2" in mistake.key for mistake in raised.value.mistakes)


def test_the_fit_takes_them_in(tmp_path, monkeypatch):
    path = tmp_path / "steps.csv"
    path.write_text(HEAD + ROW.format(seconds=10.0))
    monkeypatch.setattr("tokenmill.calibration_training.READERS", {})
    from tokenmill.catalog import load_catalog

    steps = Steps(load_catalog(), read_runs(path))
    assert steps.files.tolist() == [OWN]
    assert steps.seconds.tolist() == [10.0]
    assert steps.usable.all()


def test_the_command_prints_rows_and_medians(tmp_path, capsys):
    path = tmp_path / "steps.csv"
    path.write_text(HEAD + ROW.format(seconds=10.0))
    assert main(["import", "measured", str(path)]) == 0
    assert "median error" in capsys.readouterr().out
    assert main(["import", "measured", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["measured"] == 10.0
