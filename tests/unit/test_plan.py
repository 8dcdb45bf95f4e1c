from __future__ import annotations

import json
import os
import stat

import pytest

from samples_plan import sample_plan
from tokenmill.errors import ProblemError
from tokenmill.plan import load_plan, write_json
from tokenmill.plan_json import encode

KEYS = [
    "schema",
    "status",
    "objective",
    "cost",
    "purchases",
    "workloads",
    "runs",
    "flows",
    "packing",
    "binding",
    "alternatives",
    "infeasible",
    "audit",
    "trace",
    "problem",
    "catalog_version",
    "run",
]


@pytest.fixture(scope="module")
def plan():
    return sample_plan()


def test_json_has_the_keys_of_the_contract_and_only_json_values(plan):
    data = plan.to_dict()
    assert [key for key in KEYS if key not in data] == []
    assert data["schema"] == 1
    json.dumps(data, allow_nan=False)
    assert {"name", "value", "unit", "bound", "gap"} == set(data["objective"])
    assert {"total", "by_period", "by_kind", "by_workload", "idle", "per"} == set(data["cost"])
    assert data["flows"][0]["from"] == "a"
    assert data["flows"][0]["arcs"] == [{"arc": "a->b", "bytes_per_second": 1e9, "share": 0.5}]
    assert data["binding"][0]["value_of_next"] == {"step": 8000.0, "saves": 12.5, "unit": "W"}


def test_numbers_are_printed_to_twelve_digits():
    assert encode({"a": 1 / 3, "b": float("inf"), "c": 3, "d": True}) == {
        "a": 0.333333333333, "b": None, "c": 3, "d": True,
    }  # fmt: skip


def test_times_and_host_stand_in_run_alone(plan):
    data = plan.to_dict()
    assert data["run"]["seconds"] == 1.5
    rest = json.dumps({key: value for key, value in data.items() if key != "run"})
    assert data["run"]["versions"]["python"] not in rest


def test_a_written_plan_reads_back_the_same(plan, tmp_path):
    path = tmp_path / "plan.json"
    write_json(plan, path)
    again = load_plan(path)
    assert again.to_dict() == plan.to_dict()
    assert again.workloads["chat"].pools[0].schedule[0].slice == "day"
    assert again.termination == plan.termination
    write_json(again, path)
    assert load_plan(path).to_dict() == plan.to_dict()
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_missing_folder_is_refused_and_nothing_left(plan, tmp_path):
    with pytest.raises(ProblemError, match="folder that exists"):
        write_json(plan, tmp_path / "absent" / "plan.json")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_refused(plan, tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(ProblemError):
        write_json(plan, tmp_path / "plan.json")
    assert os.listdir(tmp_path) == []


def test_an_interrupted_write_leaves_the_old_file(plan, tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    path.write_text("old")

    def fail(source, target):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(ProblemError, match="disk full"):
        write_json(plan, path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": 2, "objective": {}}', '{"schema": 1, "objective": {"name": "cost"}}', "\x00"]
)
def test_what_is_no_plan_is_refused(tmp_path, text):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(ProblemError):
        load_plan(path)
