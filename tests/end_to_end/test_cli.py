from __future__ import annotations

import json
import subprocess
import sys

import pytest

from samples_plan import sample_plan
from tokenmill import cli_output
from tokenmill.cli import main
from tokenmill.errors import SolverError
from tokenmill.plan import write_json


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.json"
    write_json(sample_plan(), path)
    return path


def only_json(capsys):
    """Return the one JSON object on stdout; anything else there fails."""
    return json.loads(capsys.readouterr().out)


def test_a_missing_problem_file_is_bad_input(tmp_path, capsys):
    target = tmp_path / "out.json"
    assert main(["solve", str(tmp_path / "absent.toml"), "--json", str(target)]) == 2
    data = json.loads(target.read_text())
    assert (data["schema"], data["status"]) == (1, "error")
    assert set(data["errors"][0]) == {"key", "found", "allowed", "nearest"}
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error" in captured.err
    assert "Traceback" not in captured.err


def test_every_mistake_of_a_file_is_in_the_json(tmp_path, capsys):
    path = tmp_path / "bad.toml"
    path.write_text('title = 3\ngapp = 0.1\n[[workload]]\nname = "a"\nstage = "servin"\n')
    assert main(["solve", str(path), "--json", "-"]) == 2
    data = only_json(capsys)
    assert data["status"] == "error"
    assert len(data["errors"]) >= 3
    assert any(error["nearest"] == "serving" for error in data["errors"])


def test_an_output_folder_that_is_not_there_is_refused_before_solving(tmp_path, capsys):
    assert main(["solve", "whatever.toml", "--json", str(tmp_path / "absent" / "plan.json")]) == 2
    assert "folder that exists" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_bad_words_on_the_command_line(tmp_path, capsys):
    assert main(["solv", "x.toml"]) == 2
    assert main(["derive", "roofline.ridge", "--as", "html"]) == 2
    assert main(["derive", "roofline.ridge", "--given", "F"]) == 2
    assert main(["solve", "x.toml", "--time-limit", "4 GB"]) == 2
    assert main(["solve", "x.toml", "--plugin", "no.such.module"]) == 2
    assert main(["solve", "x.toml", "--catalog", str(tmp_path / "absent")]) == 2
    assert main(["catalog", "list", "chip"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert main(["catalog", "show", "h100-sx", "--json"]) == 2
    assert only_json(capsys)["errors"][0]["nearest"] == "h100-sxm"


def test_an_internal_failure_says_so_without_a_traceback(capsys):
    def fail():
        raise SolverError("the optimiser refused")

    assert cli_output.guarded(fail, ["solve", "x.toml", "--json", "-"]) == 4
    captured = capsys.readouterr()
    assert json.loads(captured.out)["status"] == "error"
    assert "Traceback" not in captured.err
    assert cli_output.guarded(lambda: 1 / 0, []) == 4


def test_an_interrupt_without_a_plan_is_no_plan():
    def stop():
        raise KeyboardInterrupt

    assert cli_output.guarded(stop, []) == 3


@pytest.mark.parametrize(
    ("status", "code"),
    [("optimal", 0), ("feasible", 0), ("infeasible", 1), ("unbounded", 3), ("unknown", 3), ("error", 4)],
)
def test_exit_codes_are_those_of_the_contract(status, code):
    assert cli_output.exit_code(status) == code


@pytest.mark.parametrize(
    ("given", "settled"),
    [
        (["solve", "a.toml", "--json"], ["solve", "a.toml", "--json", "-"]),
        (["solve", "a.toml", "--json", "--gap", "0"], ["solve", "a.toml", "--json", "-", "--gap", "0"]),
        (["solve", "--json", "out.json", "a.toml"], ["solve", "--json", "out.json", "a.toml"]),
        (["check", "a.toml", "--json", "-"], ["check", "a.toml", "--json"]),
        (
            ["derive", "x", "--given", "a=1", "b=2", "--json"],
            ["derive", "x", "--given", "a=1", "--given", "b=2", "--json"],
        ),
        (["derive", "x", "--given"], ["derive", "x", "--given"]),
        (["derive", "--given", "a=1", "x"], ["derive", "--given", "a=1", "x"]),
    ],
)
def test_words_are_settled(given, settled):
    assert cli_output.settle(given) == settled


def test_explain_prints_text_and_json(plan_file, capsys):
    assert main(["explain", str(plan_file), "cost.total"]) == 0
    assert "cost.total = $1,536" in capsys.readouterr().out.replace("$1536.00", "$1,536")
    assert main(["explain", str(plan_file), "cost.total", "--json"]) == 0
    assert only_json(capsys)["figures"][0]["value"] == 1536.0
    assert main(["explain", str(plan_file), "cost.totl"]) == 2
    assert main(["explain", str(plan_file.parent / "absent.json"), "cost.total"]) == 2


def test_derive_lists_prints_and_plugs_in(capsys):
    assert main(["derive", "roofline.ridge", "--as", "latex"]) == 0
    assert r"\frac{F}{W}" in capsys.readouterr().out
    assert main(["derive", "roofline.ridge", "--given", "F=1 PFLOP/s", "W=2 TB/s", "--json"]) == 0
    assert only_json(capsys)["value"] == 500.0
    assert main(["derive", "roofline.ridge", "--for", "W", "--given", "F=1e15", "ridge=500", "--json"]) == 0
    assert only_json(capsys)["value"] == 2e12


def test_import_architecture_reads_a_configuration_as_it_is(tmp_path, capsys):
    # GPT-2: 124,439,808 parameters (Radford et al. 2019, the smallest of the released models)
    config = {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_layer": 12, "n_head": 12,
        "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert main(["import", "architecture", str(path), "--json"]) == 0
    data = only_json(capsys)
    assert data["parameters"]["total"] == 124_439_808
    assert set(data["parameters"]) >= {"total", "active", "embedding", "output_head", "experts"}
    path.write_text("{")
    assert main(["import", "architecture", str(path), "--json"]) == 2
    assert only_json(capsys)["status"] == "error"


def test_import_topology_finds_the_domains(tmp_path, capsys):
    nodes = [{"id": f"gpu{at}", "kind": "chip"} for at in range(4)] + [{"id": "switch", "kind": "switch"}]
    links = [{"source": f"gpu{at}", "target": "switch", "bandwidth": "50 GB/s", "latency": "1 us"} for at in range(4)]
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({"directed": False, "multigraph": False, "graph": {}, "nodes": nodes, "links": links}))
    assert main(["import", "topology", str(path), "--json"]) == 0
    data = only_json(capsys)
    assert data["chips"] == 4
    # two and two chips talk over four links of 50 GB/s: each has its own link
    assert data["levels"][0]["bandwidth"] == 50e9


def test_import_prices_divides_by_chips_and_names_what_it_leaves_out(tmp_path, capsys):
    path = tmp_path / "prices.csv"
    path.write_text(
        "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region\n"
        "big,H100,8,80.0,,east\nodd,NoSuchChip,1,1.0,,east\n"
    )
    assert main(["import", "prices", str(path), "--provider", "me", "--as-of", "2026-01", "--json"]) == 0
    data = only_json(capsys)
    assert [price["per_chip_hour"] for price in data["prices"]] == [10.0]
    assert "NoSuchChip" in data["refused"][0]


def test_the_catalogue_lists_and_shows(capsys):
    assert main(["catalog", "list", "chips", "--json"]) == 0
    rows = only_json(capsys)["rows"]
    assert any(row["id"] == "h100-sxm" for row in rows)
    assert main(["catalog", "list", "architectures", "--json"]) == 0
    assert {"name": "llama-3.1-70b"} in only_json(capsys)["rows"]
    assert main(["catalog", "show", "h100-sxm"]) == 0
    assert "3.35 TB/s" in capsys.readouterr().out


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom tokenmill.cli import main\nmain(['--help'])\n"
        "heavy = {'sympy', 'numpy', 'pulp', 'highspy', 'pydantic', 'pint', 'networkx'} & set(sys.modules)\n"
        "sys.exit(1 if heavy else 0)"
    )
    paths = ":".join(path for path in sys.path if path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    assert "solve" in done.stdout
