from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

from tokenmill.cli import main
from tokenmill.explain import explain

CHAT = """
title = "Chat"
objective = { minimise = "cost" }
[hardware]
systems = ["hgx-h100"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2.00/h"
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
[workload.demand]
requests_per_second = 5
input_tokens = 1000
output_tokens = 200
[workload.slo]
tpot = { p95 = "100 ms" }
[workload.layout]
tp = 1
pp = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("solve")
    (place / "chat.toml").write_text(CHAT)
    return place


@pytest.fixture(scope="module")
def solved(folder):
    """Return the plan as a process prints it: anything else on stdout fails here."""
    code = "import sys; from tokenmill.cli import main; sys.exit(main())"
    paths = ":".join(path for path in sys.path if path)
    words = [sys.executable, "-c", code, "solve", str(folder / "chat.toml"), "--json", "-"]
    done = subprocess.run(words, capture_output=True, text=True, env={"PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_plan_is_proven_and_passes_its_re_check(solved):
    assert solved["status"] == "optimal"
    assert solved["objective"]["gap"] <= 1e-3
    assert solved["audit"]["passed"] is True


def test_the_cost_is_chips_times_price_times_hours(solved):
    (bought,) = solved["purchases"]
    assert solved["cost"]["total"] == pytest.approx(bought["chips"] * 2.0 * 8760, rel=1e-9)
    (pool,) = solved["workloads"]["chat"]["pools"]
    assert pool["chips"] <= bought["chips"]
    assert pool["predicted"]["tpot"]["p95"] <= 0.1
    assert solved["cost"]["per"]["million_output"] == pytest.approx(
        solved["cost"]["total"] / (5 * 200 * 365 * 86400) * 1e6, rel=1e-9
    )


def test_every_figure_of_the_trace_follows_from_its_printed_inputs(solved):
    trace = solved["trace"]
    words = {"max": max, "min": min, "ceil": math.ceil, "floor": math.floor, "exp": math.exp, "log": math.log,
             "sqrt": math.sqrt, "Abs": abs}  # fmt: skip
    for key, node in trace.items():
        items = [trace[item] if isinstance(item, str) else item for item in node["inputs"]]
        if node["formula"] == "sum":
            value = sum(item["value"] for item in items)
        else:
            values = {item["symbol"]: item["value"] for item in items}
            value = eval(node["formula"], {"__builtins__": {}}, words | values)
        assert value == pytest.approx(node["value"], rel=1e-9, abs=1e-300), key
    assert len(trace) > 50


def test_every_predicted_figure_can_be_explained_down_to_sources(solved):
    (pool,) = solved["workloads"]["chat"]["pools"]
    for name in pool["predicted"]:
        if name not in ("time_shares", "batch"):
            assert "=" in explain(solved, f"chat.{pool['role']}.{name}")
    text = explain(solved, "chat.mixed.tokens_per_second")
    assert "chip." in text
    assert "problem file" in text


def test_solving_twice_gives_the_same_plan(solved, folder):
    target = folder / "again.json"
    assert main(["solve", str(folder / "chat.toml"), "--json", str(target)]) == 0
    again = json.loads(target.read_text())
    assert {k: v for k, v in again.items() if k != "run"} == {k: v for k, v in solved.items() if k != "run"}


def test_a_limit_that_cannot_hold_is_infeasible_and_named(folder, capsys):
    target = folder / "infeasible.json"
    words = ["solve", str(folder / "chat.toml"), "--json", str(target), "--set", "limits.cost='$100'"]
    assert main(words) == 1
    data = json.loads(target.read_text())
    assert data["status"] == "infeasible"
    assert data["objective"]["value"] is None
    assert any("cost" in item["key"] for item in data["infeasible"])
    assert "No plan can meet what is asked" in capsys.readouterr().out


def test_set_replaces_a_value(solved, folder):
    target = folder / "more.json"
    words = [
        "solve",
        str(folder / "chat.toml"),
        "--json",
        str(target),
        "--set",
        "workload.chat.demand.requests_per_second=500",
    ]
    assert main(words) == 0
    assert json.loads(target.read_text())["cost"]["total"] > solved["cost"]["total"]


def test_check_says_there_are_no_mistakes(folder, capsys):
    assert main(["check", str(folder / "chat.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "ok"


@pytest.mark.slow
def test_fits_writes_the_problem_it_solves(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # 8.03e9 parameters at 2 bytes are 16 GB: one card of 24 GB holds them; 405e9 x 2 bytes are 810 GB: eight do not
    assert main(["fits", "llama-3.1-8b", "rtx-4090", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    (pool,) = plan["workloads"]["fits"]["pools"]
    assert pool["predicted"]["memory"]["capacity"] > 16e9 / pool["chips"]
    assert main(["solve", "fits-llama-3.1-8b-rtx-4090.toml", "--json", "again.json"]) == 0
    capsys.readouterr()
    assert main(["fits", "llama-3.1-405b", "rtx-4090", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["infeasible"]


@pytest.mark.slow
def test_size_finds_hardware_for_a_rate(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["size", "--model", "llama-3.1-8b", "--rps", "10", "--ttft", "1 s", "--tpot", "50 ms", "--json"]
    assert main(words) == 0
    plan = json.loads(capsys.readouterr().out)
    assert all(
        pool["predicted"]["tpot"]["p95"] <= 0.05
        for pool in plan["workloads"]["size"]["pools"]
        if "tpot" in pool["predicted"]
    )
    assert (tmp_path / "size-llama-3.1-8b.toml").is_file()
