from __future__ import annotations

import json

import pytest
import sympy as sp

from samples_plan import sample_graph, sample_plan
from tokenmill.errors import ProblemError
from tokenmill.explain import explain, unfold, value_text
from tokenmill_models.compile import exact


@pytest.fixture(scope="module")
def trace():
    return sample_plan().to_dict()["trace"]


def inputs(trace, node):
    return {item["symbol"]: item["value"] for item in (trace[i] if isinstance(i, str) else i for i in node["inputs"])}


def test_every_node_is_its_formula_at_its_printed_inputs(trace):
    graph, _ = sample_graph()
    by_name = {symbol.name: formula for symbol, formula in graph.formulas.items()}
    checked = 0
    for node in trace.values():
        values = inputs(trace, node)
        if node["formula"] == "sum":
            items = [trace[i] if isinstance(i, str) else i for i in node["inputs"]]
            expected = sum(item["value"] for item in items)
        elif node["symbol"] in by_name:
            formula = by_name[node["symbol"]]
            assert set(values) == {symbol.name for symbol in formula.expr.free_symbols}
            expected = float(exact(formula.rounded, {s: values[s.name] for s in formula.expr.free_symbols}))
        elif node["formula"] in ("cost/count", "1000000*cost/count"):
            expected = values["cost"] / values["count"] * (1e6 if "1000000" in node["formula"] else 1)
        else:  # another name of a node, or the mean or greatest of a pool's classes
            expected = eval(node["formula"], {"__builtins__": {}}, {"max": max, **values})
        assert node["value"] == pytest.approx(expected, rel=1e-9)
        checked += 1
    assert checked >= 10


def test_the_printed_formula_says_the_same_as_the_graph(trace):
    graph, _ = sample_graph()
    for symbol, formula in graph.formulas.items():
        printed = trace[f"chat.mixed.short.{symbol.name}"]["formula"]
        names = {s.name: s for s in formula.expr.free_symbols} | {"max": sp.Max}
        assert sp.simplify(sp.sympify(printed, locals=names) - formula.expr) == 0


def test_the_cost_is_the_sum_of_its_purchases(trace):
    assert trace["cost.rent"]["value"] == 1152.0 + 384.0
    assert [leaf["origin"] for leaf in trace["cost.rent"]["inputs"]] == ["purchases[0].cost", "purchases[1].cost"]
    assert trace["power"]["value"] == 3000.0
    # tokens by hand: half a day's worth of seconds twice, see test_plan_build
    counted = {leaf["symbol"]: leaf["value"] for leaf in trace["cost.per.token"]["inputs"]}
    assert counted == {"cost": 1536.0, "count": pytest.approx(86400 * 1000.0)}


def test_leaves_carry_origin_source_and_evidence(trace):
    leaves = [i for node in trace.values() for i in node["inputs"] if not isinstance(i, str)]
    for leaf in leaves:
        assert {"symbol", "value", "unit", "origin", "source", "evidence"} <= set(leaf)
    speed = next(leaf for leaf in leaves if leaf["symbol"] == "sample_speed")
    assert (speed["source"], speed["evidence"], speed["origin"]) == ("data sheet", "datasheet", "chip.sample_speed")


def test_text_plugs_the_numbers_in():
    text = explain(sample_plan(), "chat.mixed.long.step_time")
    assert "sample_T = max(sample_C, sample_R)" in text
    assert "= max(4 ms, 1.5 ms)" in text
    assert "= (4.0 TFLOP)/(1.0 PFLOP/s)" in text
    assert "data sheet" in text


def test_the_start_of_a_name_shows_all_that_follow():
    assert "chat.mixed.short.tpot.mean = " in explain(sample_plan(), "chat.mixed.short.tpot")


def test_json_unfolds_to_leaves_and_depth_stops_it(trace):
    plan = sample_plan()
    (figure,) = json.loads(explain(plan, "chat.mixed.short.step_time", "json"))["figures"]
    assert figure["inputs"][0]["inputs"][0]["symbol"] == "sample_speed"
    assert unfold(trace, "chat.mixed.short.step_time", 0)["inputs"][0] == "chat.mixed.short.sample_C"


def test_markdown_is_a_list():
    assert explain(sample_plan(), "cost.total", "markdown").startswith("- **cost.total** = $1536")


def test_an_unknown_figure_names_the_nearest():
    with pytest.raises(ProblemError) as raised:
        explain(sample_plan(), "chat.mixed.short.step_tim")
    assert raised.value.mistakes[0].nearest == "chat.mixed.short.step_time"
    with pytest.raises(ProblemError, match="markdown"):
        explain(sample_plan(), "cost.total", "html")


def test_a_pool_mixes_its_classes_by_their_share_of_busy_time(trace):
    mixed = trace["chat.mixed.step_time"]
    short, long = (trace[f"chat.mixed.{name}.step_time"]["value"] for name in ("short", "long"))
    busy = {leaf["symbol"]: leaf["value"] for leaf in mixed["inputs"] if not isinstance(leaf, str)}
    assert sum(busy.values()) == pytest.approx(1.0)
    assert mixed["value"] == pytest.approx(busy["busy_0"] * short + busy["busy_1"] * long, rel=1e-12)


def test_a_level_that_is_not_used_has_no_limit():
    assert value_text(1e30, "B/s") == "no limit"
    assert value_text(5e10, "B/s") == "50.0 GB/s"
