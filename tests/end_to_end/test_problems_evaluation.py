"""The shipped problem file of evaluation, its answer held to reasons of its own."""

from pathlib import Path

import pytest

from tokenmill import api
from tokenmill.catalog import load_catalog
from tokenmill.reading import load_problem
from tokenmill.templates import new

PROBLEMS = Path(__file__).parents[2] / "problems"
ANSWERS = 120000 * 4


def test_the_suite_ends_in_time_on_full_pools():
    plan = api.solve(load_problem(PROBLEMS / "evaluation-suite.toml"))
    assert plan.status == "optimal"
    assert plan.runs[0].end <= 2 * 86400
    pools = {pool.role: pool for pool in plan.workloads["suite"].pools}
    assert set(pools) == {"mixed", "judge"}
    mixed, judge = pools["mixed"].predicted, pools["judge"].predicted
    assert mixed["wall_time"] == pytest.approx(ANSWERS / mixed["requests_per_second"], rel=0.1)
    assert mixed["wall_time"] >= ANSWERS / mixed["requests_per_second"]
    assert judge["requests_per_second"] >= mixed["requests_per_second"] * 0.99
    # the floor: products of every answer and prompt at the peak of the cheapest compute, two FLOP a parameter
    catalog = load_catalog()
    floor = min(
        catalog.price(name, "on-demand").per_chip_hour / catalog.chip(catalog.system(name).chip).peak["bf16"] / 3600
        for name in ("hgx-h100", "hgx-h200", "hgx-b200")
    )
    work = ANSWERS * (2900 * 2 * 69.5e9 + 3200 * 2 * 32e9)
    assert floor * work < plan.cost.total < 8 * floor * work
    assert plan.cost.per["million_output"] == pytest.approx(plan.cost.total / (ANSWERS * 2200) * 1e6, rel=1e-6)


def test_a_new_file_of_evaluation_is_complete():
    plan = api.solve(load_problem(new("evaluation"), overrides=[("hardware.systems", '["hgx-h100"]')]))
    assert plan.status == "optimal"
    assert plan.runs[0].workload == "evaluation"
