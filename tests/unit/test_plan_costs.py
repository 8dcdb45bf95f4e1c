"""What a plan says of its money: a run carries its share of what is bought, sums unfold down to what was paid, words of layouts."""

from __future__ import annotations

import pytest

from tokenmill import load_problem, solve
from tokenmill.cli_fleet import _text
from tokenmill.explore import HEADS, Candidate, lines
from tokenmill.report.text_pools import choices_text

TEXT = """
objective = { minimise = "cost" }
[hardware]
systems = ["hgx-h100"]
markets = ["buy"]
[[hardware.price]]
system = "hgx-h100"
market = "buy"
purchase = "$300000"
[[hardware.site]]
name = "here"
electricity = "$0.10/kWh"
[hardware.ownership]
life = "4 years"
operations = 0.06
[[workload]]
name = "tune"
stage = "finetuning"
model = "llama-3.1-8b"
method = "lora"
rank = 16
tokens = 50e6
sequence_length = 2048
[workload.layout]
system = "hgx-h100"
chips = 8
"""


@pytest.fixture(scope="module")
def plan():
    return solve(load_problem(TEXT))


def test_a_run_on_bought_systems_carries_their_cost(plan):
    (run,) = plan.runs
    assert run.cost == pytest.approx(plan.cost.total)
    assert run.cost > 300_000 / 4 > plan.cost.by_kind["energy"]  # a quarter of the price is gone after a year of four


def test_capital_unfolds_to_what_was_bought_less_its_upkeep(plan):
    """Hand calculation: a quarter of 300 000 is capital, 6% of it a year upkeep, both in what the purchase costs."""
    node = plan.trace["cost.capital"]
    assert node["value"] == pytest.approx(75_000)
    assert [item["value"] for item in node["inputs"]] == pytest.approx([93_000, -18_000])
    price, count, part = plan.trace["purchases.1.cost"]["inputs"]
    assert (price["value"], count["value"], part["value"]) == pytest.approx((300_000, 1, 0.31))
    assert plan.trace["cost.by_period"]["inputs"][0]["value"] == pytest.approx(plan.cost.total)


def test_the_order_of_a_pipeline_is_told_where_there_is_one():
    assert choices_text({"tp": 8, "pp": 1, "schedule": "1f1b"}, {}, {}) == "tp 8"
    assert choices_text({"tp": 8}, {}, {"speculative": "draft"}) == "tp 8, speculative draft"
    assert choices_text({"tp": 8}, {}, {"speculative": "none"}) == "tp 8"
    assert choices_text({"tp": 8, "pp": 2, "schedule": "1f1b"}, {}, {}) == "tp 8, pp 2, schedule 1f1b"


def test_figures_of_a_comparison_are_in_words():
    assert [_text(*each) for each in ((2313778.81, "USD"), (4.5e-7, "USD/token"), (0.5, "USD/million_output"))] == [
        "$2,313,779", "$4.5e-07 a token", "$0.50 a million output",
    ]  # fmt: skip
    assert [_text(*each) for each in ((0.0479, "s"), (0.449, "share"), (9785.0, "1/s"), (1.0, "chip"), (48.0, "chip"))] == [
        "47.9 ms", "44.9%", "9,785/s", "1 chip", "48 chips",
    ]  # fmt: skip
    assert (_text(None, "s"), _text("tp 4", "")) == ("-", "tp 4")


def test_candidates_cost_a_million_or_a_run():
    pool = Candidate("chat", "mixed", "node", "on-demand", 8, "tp 8", 10.0, None, 2.0, 1.25e-3, 5600.0)
    run = Candidate("tune", "train", "node", "on-demand", 8, "dp 8", None, 7200.0, 2.0, 32.0, 5600.0)
    heads = [head.removesuffix(">") for head in HEADS]
    rows = [dict(zip(heads, cells, strict=True)) for cells in lines([pool, run])]
    assert [(row["per million"], row["per run"]) for row in rows] == [("$1,250", ""), ("", "$32.00")]
