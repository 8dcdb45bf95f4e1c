"""`front`: batch against latency against cost, held against hand calculation, brute force and a plan."""

from __future__ import annotations

import csv
import io
import json
from itertools import permutations

import pytest

from tokenmill.api import solve
from tokenmill.cli import main
from tokenmill.errors import ProblemError, TokenmillError
from tokenmill.front import best, front
from tokenmill.reading import load_problem

CHAT = """
objective = { minimise = "cost" }
[hardware]
systems = ["hgx-h100", "hgx-h200"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2.00/h"
[[hardware.price]]
system = "hgx-h200"
market = "on-demand"
per_chip_hour = "$3.00/h"
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-70b"
[workload.precision]
weights = "fp8"
[workload.demand]
requests_per_second = 5
input_tokens = 1000
output_tokens = 200
[workload.slo]
tpot = { p95 = "20 ms" }
[workload.engine]
disaggregated = false
chunk = 2048
[workload.layout]
tp = [4, 8]
pp = 1
"""


@pytest.fixture(scope="module")
def points():
    return front(load_problem(text_file(CHAT)))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("front") / "chat.toml"
    path.write_text(CHAT)
    return path


def text_file(text: str):
    import tomllib

    return tomllib.loads(text)


def test_cost_follows_from_price_and_rate(points):
    prices = {"hgx-h100": 2.0, "hgx-h200": 3.0}
    assert {point.system for point in points} == set(prices)
    for point in points:
        tokens_an_hour = point.rate * 200 * 3600
        assert point.cost_per_million == pytest.approx(prices[point.system] * point.chips / tokens_an_hour * 1e6)
        assert point.tokens_per_second_per_chip == pytest.approx(point.rate * 200 / point.chips)
        assert point.tokens_per_second_per_user == pytest.approx(1 / point.tpot)


def test_the_load_follows_from_rate_and_time_by_littles_law(points):
    # running sequences: from the first token on a request holds its place for 199 further tokens, and while its prompt is worked on
    for point in points:
        assert point.rate * 199 * point.tpot <= point.load * 1.001
        assert point.rate * (199 * point.tpot + point.ttft) >= point.load * 0.98


def test_no_point_of_a_system_is_beaten_by_another(points):
    assert len(points) > 10
    for one, other in permutations(points, 2):
        if one.system == other.system:
            worse = (
                other.tpot >= one.tpot,
                other.ttft >= one.ttft,
                other.tokens_per_second_per_chip <= one.tokens_per_second_per_chip,
            )
            assert not all(worse)


def test_a_point_goes_only_where_another_is_no_worse_in_all_three(points):
    assert best([*points[:3], points[0]]) == points[:3]


def test_limits_mark_points_and_cut_none(points):
    marks = {point.within for point in points}
    assert marks == {True, False}
    for point in points:
        if point.within:
            assert point.tpot <= 20e-3


def test_a_plan_of_the_same_layout_and_load_says_the_same(points):
    point = next(p for p in points if p.system == "hgx-h200" and p.chips == 4 and p.within)
    held = {"engine.batch": point.load, "layout.tp": 4}
    problem = load_problem(
        text_file(CHAT.replace('systems = ["hgx-h100", "hgx-h200"]', 'systems = ["hgx-h200"]')),
        overrides=[(f"workload.chat.{key}", str(value)) for key, value in held.items()]
        + [("workload.chat.demand.requests_per_second", str(point.rate * 0.999999))],
    )
    pool = solve(problem).workloads["chat"].pools[0]
    assert pool.replicas == 1
    assert pool.predicted["tpot"]["mean"] == pytest.approx(point.tpot, rel=1e-3)
    assert pool.predicted["ttft"]["mean"] == pytest.approx(point.ttft, rel=1e-3)


def test_one_system_can_be_asked_for(points):
    alone = front(load_problem(text_file(CHAT)), system="hgx-h200")
    assert alone == [point for point in points if point.system == "hgx-h200"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"workload": "talk"}, "chat"), ({"system": "hgx-b200"}, "hgx-h100"), ({"system": "nope"}, "catalogue")],
)
def test_what_is_not_there_is_refused(asked, said):
    with pytest.raises(TokenmillError, match=said):
        front(load_problem(text_file(CHAT)), **asked)


def test_a_workload_without_answers_is_refused():
    from sample_problems import TRAIN

    with pytest.raises(ProblemError, match="answer token by token"):
        front(load_problem(text_file(TRAIN)))


def test_printed_as_text_csv_and_json(file, capsys, points):
    assert main(["front", str(file), "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["tpot"]) for row in rows] == [point.tpot for point in points]
    assert main(["front", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["within"] for row in told["points"]] == [point.within for point in points]
    assert main(["front", str(file), "--system", "hgx-h100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"hgx-h100, on-demand: {len(lines) - 2} points"


def test_pools_apart_are_refused_with_the_key_that_joins_them():
    with pytest.raises(ProblemError, match=r"engine\.disaggregated = false"):
        front(load_problem(text_file(CHAT.replace("disaggregated = false", "disaggregated = true"))))
