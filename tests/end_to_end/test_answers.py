"""The smallest, the fastest and the cheapest hardware for a fine-tune, against every system solved alone."""

from __future__ import annotations

import json
from importlib import import_module

import pytest

from tokenmill.answers import answers
from tokenmill.api import solve
from tokenmill.cli import main
from tokenmill.reading import load_problem

ADAPT = """
objective = { minimise = "cost" }
[hardware]
systems = ["rtx-4090", "l40s", "hgx-h100"]
[[hardware.price]]
system = "rtx-4090"
market = "on-demand"
per_chip_hour = "$0.40/h"
[[hardware.price]]
system = "l40s"
market = "on-demand"
per_chip_hour = "$0.90/h"
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2.00/h"
[[workload]]
name = "adapt"
stage = "finetuning"
model = "llama-3.1-8b"
method = ["lora", "qlora"]
rank = 16
targets = "all-linear"
tokens = 50e6
sequence_length = 2048
[workload.layout]
chips = [1, 8]
tp = 1
pp = 1
cp = 1
virtual = 1
schedule = "1f1b"
"""
SYSTEMS = ("rtx-4090", "l40s", "hgx-h100")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("answers") / "adapt.toml"
    path.write_text(ADAPT)
    return path


@pytest.fixture(scope="module")
def found(file):
    return {one.name: one for one in answers(load_problem(file))}


def alone(file, system, minimise):
    text = ADAPT.replace('systems = ["rtx-4090", "l40s", "hgx-h100"]', f'systems = ["{system}"]')
    text = text.replace('minimise = "cost"', f'minimise = "{minimise}"')
    path = file.with_name(f"{system}-{minimise}.toml")
    path.write_text(text)
    return solve(load_problem(path))


def test_the_smallest_is_one_card_of_24_gigabytes(found):
    assert found["smallest"].systems.startswith("1 chips of rtx-4090")


def test_the_fastest_is_as_fast_as_the_fastest_of_every_system_alone(file, found):
    times = [alone(file, system, "time").objective.value for system in SYSTEMS]
    assert found["fastest"].wall_time == pytest.approx(min(times), rel=1e-6)


def test_the_cheapest_costs_as_little_as_the_cheapest_of_every_system_alone(file, found):
    costs = [alone(file, system, "cost").objective.value for system in SYSTEMS]
    assert found["cheapest"].plan.cost.total == pytest.approx(min(costs), rel=1e-6)


def test_the_command_prints_all_three(file, found, capsys, monkeypatch):
    # the package shows the verb under the module's name
    monkeypatch.setattr(import_module("tokenmill.answers"), "answers", lambda *_, **__: list(found.values()))
    assert main(["answers", str(file), "--json"]) == 0
    assert [one["answer"] for one in json.loads(capsys.readouterr().out)["answers"]] == [
        "smallest",
        "fastest",
        "cheapest",
    ]
    assert main(["answers", str(file)]) == 0
    assert "1 chips of rtx-4090" in capsys.readouterr().out
