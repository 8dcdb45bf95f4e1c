"""Workloads against resources, and levers: derivatives on the graph against solving anew."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sample_problems import TRAIN
from tokenmill.api import solve
from tokenmill.cli import main
from tokenmill.matrix import CHANGE, RESOURCES, matrix
from tokenmill.reading import load_problem
from tokenmill_models.formula import Graph, maximum
from tokenmill_models.sensitivity import elasticities
from tokenmill_models.symbols import declare

HELD = TRAIN.replace("[[workload]]", '[[hardware.site]]\nname = "hall"\nrack_power = "40 kW"\n[[workload]]', 1) + (
    'cp = 1\ndp = 16\nvirtual = 1\nschedule = "1f1b"\nrecompute = "none"\n'
)
"""The same in racks of 40 kW, with every choice held."""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("matrix") / "train.toml"
    path.write_text(HELD)
    return path


@pytest.fixture(scope="module")
def found(file):
    return matrix(load_problem(file), check=False)


def test_elasticities_are_those_of_calculus():
    work = declare("matrix_work", "FLOP", "work", origin="input.matrix_work", sign="positive")
    speed = declare("matrix_speed", "FLOP/s", "speed", origin="chip.matrix_speed", sign="positive")
    wait = declare("matrix_wait", "s", "wait", origin="input.matrix_wait", sign="positive")
    graph = Graph()
    busy = graph.let("matrix_busy", "s", "time of the work", work / speed)
    time = graph.let("matrix_time", "s", "time in all", maximum(busy, wait / 2) + wait)
    values = {"matrix_work": 6.0, "matrix_speed": 2.0, "matrix_wait": 1.0}
    # T = w/v + u = 3 + 1: dT/dv · v/T = -3/4, dT/du · u/T = 1/4; both by one factor c: (3/c + c), so (-3 + 1)/4
    assert elasticities(graph, {"t": time}, ["matrix_speed"], values)["t"] == pytest.approx(-3 / 4, abs=1e-12)
    assert elasticities(graph, {"t": time}, ["matrix_wait"], values)["t"] == pytest.approx(1 / 4, abs=1e-12)
    both = elasticities(graph, {"t": time}, ["matrix_speed", "matrix_wait"], values)["t"]
    assert both == pytest.approx(-1 / 2, abs=1e-12)


def test_shares_of_time_are_parts_of_one(found):
    (row,) = found.rows
    assert set(row.shares) <= set(RESOURCES)
    times = [row.shares.get(name, 0.0) for name in ("compute", "memory_bandwidth", "scale_up", "scale_out")]
    assert 0.9 < sum(times) <= 1 + 1e-9
    assert row.shares["cost"] == pytest.approx(1.0)
    memory = found.plan.workloads["train"].pools[0].predicted["memory"]
    assert row.shares["memory_capacity"] == pytest.approx(memory["total"] / memory["capacity"])
    assert row.shares["reliability"] == pytest.approx(1 - found.plan.workloads["train"].totals["goodput"])
    (bought,) = found.plan.purchases
    assert row.shares["cooling"] == pytest.approx(bought.power / bought.count / 40e3)


@pytest.mark.parametrize(
    ("lever", "keys"), [("chip.peak", ("bf16", "tf32", "fp32", "fp16")), ("chip.bandwidth", ("bandwidth",))]
)
def test_a_lever_does_to_the_cost_what_solving_anew_says(file, found, lever, keys):
    # everything is held, so the two differ by the curvature over 10% alone
    problem = load_problem(file)
    chip = {"bandwidth": 3.35e12, "bf16": 989.4e12, "fp16": 989.4e12, "tf32": 494.7e12, "fp32": 66.9e12}
    moved = replace(problem.assume, chip={"h100-sxm": {key: chip[key] * CHANGE for key in keys}})
    anew = solve(replace(problem, assume=moved)).cost.total / found.plan.cost.total
    (row,) = found.rows
    (own,) = [one for one in row.levers if one.name == lever]
    assert own.held == pytest.approx(anew, abs=0.006)
    assert own.elasticity < 0


def test_a_faster_link_in_a_problem_file_reaches_the_systems_of_the_chip(file):
    problem = load_problem(file)
    faster = replace(problem, assume=replace(problem.assume, chip={"h100-sxm": {"scale_up": 900e9}}))
    assert solve(faster).cost.total < solve(problem).cost.total


def test_the_command_prints_both_tables(file, capsys):
    assert main(["matrix", str(file), "--no-check"]) == 0
    said = capsys.readouterr().out
    assert "What lowers the cost of train" in said
    assert main(["matrix", str(file), "--no-check", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["levers"][0]["elasticity"] < 0
