"""Every figure of a plan unfolds: to a formula whose value at the printed inputs is the printed value, down to sourced leaves."""

import json
import math
from pathlib import Path

import pytest

from tokenmill import data, explain, load_problem, solve

PROBLEMS = sorted(Path(data.path("problems")).glob("*.toml"))
QUICK = ("edge-car", "evaluation-suite", "speculative-decoding", "two-sites-power-wall")
WORDS = {
    "max": max,
    "min": min,
    "ceil": math.ceil,
    "floor": math.floor,
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
}


def files():
    return [
        pytest.param(path, id=path.stem, marks=() if path.stem in QUICK else pytest.mark.slow)
        for path in PROBLEMS
        if "infeasible" not in path.stem
    ]


def flat(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield prefix + key


def inputs(trace, node):
    return [trace[item] if isinstance(item, str) else item for item in node["inputs"]]


def recomputed(trace, node):
    """The node's printed formula at the printed values of its inputs."""
    items = inputs(trace, node)
    if node["formula"] == "sum":
        return sum(item["value"] for item in items)
    values = {item["symbol"]: item["value"] for item in items}
    assert len(values) == len(items), "two inputs under one symbol"
    return eval(node["formula"], {"__builtins__": {}}, WORDS | values)


def agrees(trace, node):
    found = recomputed(trace, node)
    # a difference of large numbers keeps their rounding: plans print twelve digits
    scale = max([abs(found), abs(node["value"]), *(1e-5 * abs(item["value"]) for item in inputs(trace, node))])
    return abs(found - node["value"]) <= 1e-6 * scale


@pytest.mark.parametrize("path", files())
def test_every_figure_unfolds_and_is_its_formula_at_its_inputs(path):
    plan = solve(load_problem(path))
    shown = plan.to_dict()
    trace = shown["trace"]
    wanted = [
        f"{workload}.{pool['name']}.{figure}"
        for workload, table in shown["workloads"].items()
        for pool in table["pools"]
        for figure in flat(pool["predicted"])
    ]
    wanted += [f"cost.per.{name}" for name in shown["cost"]["per"]]
    wanted += ["cost.total", "power"] if shown["purchases"] else ["cost.total"]
    assert [name for name in wanted if name not in trace] == []
    assert [key for key, node in trace.items() if not agrees(trace, node)] == []
    for node in trace.values():
        for item in node["inputs"]:
            assert item in trace if isinstance(item, str) else item["origin"], node["symbol"]


@pytest.mark.parametrize(("name", "kind"), [("keep-or-upgrade", "energy"), ("data-slow-store", "storage")])
def test_what_energy_and_storage_cost_unfolds_to_watts_hours_and_prices(name, kind):
    shown = solve(load_problem(data.path("problems") / f"{name}.toml")).to_dict()
    trace = shown["trace"]
    key = f"cost.{kind}"

    def exact(item):
        """The figure from its leaves alone."""
        if not isinstance(item, str):
            return item["value"]
        node = trace[item]
        values = [exact(each) for each in node["inputs"]]
        return sum(values) if node["formula"] == "sum" else math.prod(values)

    assert key in trace["cost.total"]["inputs"]
    assert exact(key) == pytest.approx(shown["cost"]["by_kind"][kind], rel=1e-9)
    if kind == "energy":
        formulas = {trace[each]["formula"] for each in trace[key]["inputs"]}
        assert formulas == {"power*pue*time*price*discount"}


def test_a_figure_reads_as_text_markdown_and_json():
    plan = solve(load_problem(data.path("problems") / "edge-car.toml"))
    (workload,) = plan.workloads
    pool = plan.workloads[workload].pools[0]
    figure = next(flat(pool.predicted))
    key = f"{workload}.{pool.name}.{figure}"
    assert explain(plan, key).startswith(f"{key} = ")
    assert explain(plan, key, "markdown").startswith(f"- **{key}** = ")
    (node,) = json.loads(explain(plan, key, "json"))["figures"]
    assert node["key"] == key
    assert node["inputs"]
