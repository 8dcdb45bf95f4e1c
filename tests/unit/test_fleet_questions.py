"""Sweeps, fronts, comparisons, and the price at which a system comes in: each answer checked by solving again."""

from __future__ import annotations

import json
from itertools import product

import pytest

from cross_check.toys import pool, pool_column, problem, rent, run
from tokenmill import api, load_problem
from tokenmill.cli import main
from tokenmill.compare import compare
from tokenmill.errors import ProblemError
from tokenmill.milp.formulation import formulate
from tokenmill.milp.front import front
from tokenmill.milp.narrow import solve_narrowed
from tokenmill.milp.sets import build_sets
from tokenmill.milp.solve import Wish
from tokenmill.pareto import pareto
from tokenmill.problem import Objective, Workload
from tokenmill.sweep import sweep, values_of, with_values
from tokenmill.why_not import why_not

HOURS = 8760
FILE = """
objective = { minimise = "cost" }
[hardware]
systems = ["hgx-h100"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2/h"
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
[workload.demand]
requests_per_second = 300
input_tokens = 1000
output_tokens = 200
[workload.slo]
tpot = { p95 = "50 ms" }
[workload.engine]
disaggregated = false
[workload.layout]
tp = 1
pp = 1
"""


def test_values_of_a_sweep():
    assert values_of("a.b=1,2") == ("a.b", ["1", "2"])
    assert values_of('k=["a","b"],["c"]') == ("k", ['["a","b"]', '["c"]'])
    assert values_of("k=10:50:20") == ("k", ["10", "30", "50"])
    assert values_of("k=$1/h:$2/h:$0.5/h")[1] == ['"$1/h"', '"$1.5/h"', '"$2/h"']
    for text in ("k", "k=", "=1", "k=1:2:0", "k=5:1:1", "k=1,,2"):
        with pytest.raises(ProblemError):
            values_of(text)


def test_prices_of_a_sweep():
    (price,) = with_values(FILE, {"price.hgx-h100.on-demand": "$7.20/h"}).hardware.prices
    assert (price.per_chip_hour, price.market) == (pytest.approx(7.2), "on-demand")
    bought = with_values(FILE, {"price.hgx-h100.buy": "$300000"}).hardware.prices[-1]
    assert bought.purchase == pytest.approx(300_000)
    with pytest.raises(ProblemError, match="SYSTEM"):
        with_values(FILE, {"price.hgx-h100.rent": 1})


def test_a_sweep_is_what_single_solves_are():
    points = sweep(FILE, {"workload.chat.demand.requests_per_second": [200, 400]}, processes=1)
    for point, rate in zip(points, (200, 400), strict=True):
        alone = api.solve(load_problem(FILE, [("workload.chat.demand.requests_per_second", rate)]))
        assert point.plan.cost.total == pytest.approx(alone.cost.total)
        assert point.values == {"workload.chat.demand.requests_per_second": str(rate)}
    assert points[1].plan.cost.total > points[0].plan.cost.total
    bare = sweep(FILE, {"workload.chat.demand.requests_per_second": [200, 400]}, processes=1, explained=False)
    assert [point.plan.purchases for point in bare] == [point.plan.purchases for point in points]
    assert [point.plan.alternatives for point in bare] == [(), ()]


def brute_front(ways):
    """Return (cost, time) of single ways that none beats in both."""
    return sorted(w for w in ways if not any(v[0] <= w[0] and v[1] <= w[1] and v != w for v in ways))


def test_a_front_of_cost_against_time():
    rng = [(8, 30.0), (16, 18.0), (24, 11.5), (32, 10.0), (40, 9.8)]
    columns = [run("train", *rng)]
    asked = problem(Workload("train", "toy"), objectives=("cost",))
    sets = build_sets(asked, columns, [rent(10.0)], (), {}, {})
    found = front(lambda: formulate(sets), Objective("time", "train"), Wish(0.0, None, 1, "highs", False), 9)
    expected = brute_front([(-(-chips // 8) * 10.0 * days * 24, days * 86400.0) for chips, days in rng])
    ends = [(plan.termination.objective, value) for value, plan in (found[0], found[-1])]
    assert ends == [pytest.approx(expected[0]), pytest.approx(expected[-1])]
    for value, plan in found:  # exact: each is one of the points that trying all gives
        assert any((plan.termination.objective, value) == pytest.approx(point) for point in expected)


def test_a_front_of_pools_has_no_point_that_another_beats():
    columns = [pool(pool_column(system="a", rate=10.0, watts=700.0), pool_column(system="b", rate=8.0, watts=300.0))]
    sets = build_sets(
        problem(), columns, [rent(10.0, system="a"), rent(12.0, system="b")], (), *({"chat": [[60.0]]},) * 2
    )
    found = front(lambda: formulate(sets), Objective("power"), Wish(0.0, None, 1, "highs", False), 7)
    tried = []
    for a, b in product(range(9), range(9)):
        if 10.0 * a + 8.0 * b >= 60.0:
            tried.append(((10.0 * a + 12.0 * b) * HOURS, a * (1000 + 5600.0) + b * (1000 + 2400.0)))
    expected = brute_front(tried)
    points = [(s.termination.objective, v) for v, s in found]
    assert points[0] == pytest.approx(expected[0])
    assert points[-1] == pytest.approx(expected[-1])
    assert all(any(p == pytest.approx(e) for e in expected) for p in points)
    assert len(points) >= 3


def test_ends_that_are_one_plan_leave_nothing_to_look_for_between(monkeypatch):
    solves = []

    def counted(*given, **more):
        solves.append(more["start"] is not None)
        return solve_narrowed(*given, **more)

    monkeypatch.setattr("tokenmill.milp.front.solve_narrowed", counted)
    sets = build_sets(problem(), [pool(pool_column())], [rent()], (), *({"chat": [[25.0]]},) * 2)
    ((chips, plan),) = front(lambda: formulate(sets), Objective("chips"), Wish(0.0, None, 1, "highs", False), 9)
    assert (chips, plan.cost_total) == (24, pytest.approx(3 * 16 * HOURS))
    assert solves == [
        False,
        True,
        True,
        True,
    ]  # both ends, each objective then the other; a plan in hand after the first


def test_a_front_from_a_file_and_its_refusals():
    found = pareto(load_problem(FILE), "chips", points=3)
    assert found[0].objective == pytest.approx(api.solve(load_problem(FILE)).cost.total)
    for against in ("cost", "speed", "time"):
        with pytest.raises(ProblemError):
            pareto(load_problem(FILE), against)


@pytest.mark.parametrize("price", ["$1.2/h", "$2/h"])
def test_at_the_price_that_is_named_the_system_comes_in(price):
    asked = load_problem(
        FILE, [("hardware.price", [{"system": "hgx-h100", "market": "on-demand", "per_chip_hour": price}])]
    )
    assert {p.system for p in api.solve(asked).purchases} == {"hgx-h100"}
    answer = why_not(asked, "l40s")
    assert answer.enters_at is not None
    names = {"hardware.systems": ["hgx-h100", "l40s"]}
    at = sorted({p.system for p in _priced(asked, names, answer.enters_at).purchases})
    assert any("l40s" in name for name in at)
    above = {p.system for p in _priced(asked, names, answer.enters_at * 1.3).purchases}
    assert above == {"hgx-h100"}


def _priced(asked, names, price):
    own = [
        {"system": p.system, "market": p.market, "per_chip_hour": f"${p.per_chip_hour}/h"}
        for p in asked.hardware.prices
    ]
    own.append({"system": "l40s", "market": "on-demand", "per_chip_hour": f"${price}/h"})
    return api.solve(load_problem(FILE, [("hardware.price", own), *names.items()]))


def test_what_is_in_the_plan_and_what_cannot_be():
    assert why_not(load_problem(FILE), "hgx-h100").used
    small = why_not(load_problem(FILE, [("workload.chat.model", "llama-3.1-70b")]), "rtx-4090")
    assert small.enters_at is None
    assert "no layout of chat" in small.text


def test_comparison_of_two_plans():
    first = api.solve(load_problem(FILE))
    second = api.solve(load_problem(FILE, [("workload.chat.demand.requests_per_second", 600)]))
    lines = {line.key: line for line in compare(first, second)}
    assert lines["cost.total"].difference == pytest.approx(second.cost.total - first.cost.total)
    assert lines["systems.hgx-h100.on-demand"].second == second.purchases[0].count
    assert all(line.difference in (None, 0.0) for line in compare(first, first))


def test_commands(tmp_path, capsys):
    file = tmp_path / "chat.toml"
    file.write_text(FILE)
    assert main(["sweep", str(file), "--over", "price.hgx-h100.on-demand=1,3", "--processes", "1", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert points[1]["cost"] == pytest.approx(3 * points[0]["cost"])
    assert main(["pareto", str(file), "--against", "power", "--points", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["against"] == "power"
    for name, rate in (("a", 300), ("b", 600)):
        set_ = f"workload.chat.demand.requests_per_second={rate}"
        assert main(["solve", str(file), "--set", set_, "--json", str(tmp_path / f"{name}.json")]) == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--json"]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["cost.total"]["difference"] > 0
    assert main(["sweep", str(file), "--over", "nonsense=1"]) == 2
