from __future__ import annotations

import pytest

from samples_plan import SECONDS, sample_plan
from tokenmill.plan_pools import bottleneck_of, layout_of, nested
from tokenmill.report.text import render


@pytest.fixture(scope="module")
def plan():
    return sample_plan()


@pytest.fixture(scope="module")
def pool(plan):
    (only,) = plan.workloads["chat"].pools
    return only


def test_a_pool_counts_chips_over_all_replicas_of_its_busiest_slice(pool):
    assert (pool.name, pool.replicas, pool.chips) == ("mixed", 3, 24)
    # by day two replicas are rented and one is owned
    assert [(row.slice, row.replicas, row.rate, row.power) for row in pool.schedule] == [
        ("day", 3, 5.0, 3000.0), ("night", 1, 1.25, 900.0),
    ]  # fmt: skip


def test_axis_values_are_split_into_tables(pool):
    assert pool.layout == {"tp": 8}
    assert pool.precision == {"weights": "fp8"}
    assert pool.settings == {"chunk": 512, "batch": 8}
    assert pool.batch == 8


def test_figures_of_classes_are_weighted_by_the_time_they_take(pool):
    # class short: 5 units/s of 2 a replica: 2.5 replicas; long: 1.25 of 1: 1.25 replicas: weights 2/3 and 1/3.
    # step times by hand: short max(1 ms, 1.5 ms), long max(4 ms, 1.5 ms)
    assert pool.predicted["step_time"] == pytest.approx((2 * 1.5e-3 + 4e-3) / 3)
    assert pool.predicted["memory"]["capacity"] == 3e9
    assert pool.by_class["long"]["tpot"]["mean"] == pytest.approx(4e-3)
    assert pool.intervals["step_time"] == [1e-3, 9e-3]
    assert pool.evidence["step_time"] == "measured"


def test_time_shares_sum_to_one(pool):
    assert sum(pool.predicted["time_shares"].values()) == pytest.approx(1)


def test_cost_per_token_divides_by_the_tokens_served(plan):
    half = SECONDS / 2
    output = half * (4 * 100 + 1 * 400 + 1 * 100 + 0.25 * 400)
    assert plan.cost.per["token"] == pytest.approx(1536.0 / output)
    assert plan.cost.per["million_output"] == pytest.approx(1e6 * 1536.0 / output)
    assert plan.workloads["chat"].totals["units"] == pytest.approx(half * 6.25)


def test_the_bottleneck_is_the_resource_with_the_most_time(plan):
    # by hand: compute (2 x 1 + 4) / 3 = 2 ms, memory 1.5 ms, wait 0.1 ms: compute 2 / 3.6
    held = plan.workloads["chat"].bottleneck
    assert (held.resource, held.second) == ("compute", "memory_bandwidth")
    assert held.share == pytest.approx(2 / 3.6)
    assert bottleneck_of([], [], "chat") is None


def test_dotted_names_nest():
    assert nested({"a.b": 1, "a.c": 2, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}
    assert layout_of({"layout.tp": 2.0, "precision.kv": "fp8", "other": 1.5}) == {
        "layout": {"tp": 2}, "precision": {"kv": "fp8"}, "settings": {"other": 1.5},
    }  # fmt: skip


def test_the_report_says_what_to_get_what_it_costs_and_what_it_delivers(plan):
    text = render(plan)
    for words in ("optimal", "node-8", "on-demand", "$1,536", "per million tokens", "tp 8", "fp8", "power of site",
                  "8.0 kW more would save", "a note", "largest residual", "measured"):  # fmt: skip
        assert words in text, words
