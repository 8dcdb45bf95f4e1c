"""The shipped problem files of data preparation and of agents, their answers held to reasons of their own."""

from functools import cache
from pathlib import Path

import pytest

from tokenmill import api
from tokenmill.catalog import load_catalog
from tokenmill.reading import load_problem
from tokenmill.templates import new

PROBLEMS = Path(__file__).parents[2] / "problems"
RULES_ALONE = '[{do="extract"},{do="language"},{do="filter"},{do="deduplicate"},{do="tokenise"},{do="write"}]'


@cache
def solved(name, *overrides):
    return api.solve(load_problem(PROBLEMS / f"{name}.toml", overrides=list(overrides)))


def pools(plan):
    (workload,) = plan.workloads.values()
    return {pool.role: pool for pool in workload.pools}


def test_a_petabyte_crawl_becomes_fifteen_trillion_tokens():
    plan = solved("data-petabyte-crawl")
    assert plan.status == "optimal"
    assert plan.audit.passed
    found = plan.workloads["corpus"]
    assert plan.runs[0].end <= 60 * 86400
    assert found.totals["tokens_out"] == pytest.approx(2e15 * 0.2 * 0.35 * 0.45 / 4.2)
    # extraction alone is 250e9 pages at 60 a second and core
    assert found.totals["core_hours"] > 250e9 / 60 / 3600
    assert found.bottleneck.resource == "cpu"
    assert set(pools(plan)) == {"cpu", "storage", "classify"}
    # the cheapest floor: core-hours at the price of a core, and the store for as long as the run takes
    price = load_catalog().price("cpu-epyc-9654", "on-demand").per_chip_hour / 96
    floor = found.totals["core_hours"] * price
    assert floor < plan.cost.total < 3 * floor
    assert pools(plan)["cpu"].chips <= 80  # as many servers as are to be had, nearly
    assert pools(plan)["storage"].system == "object-store"
    # 3,284 TB at the list price of the store for the length of the run
    rent = load_catalog().store("object-store").price * pools(plan)["storage"].chips * 1e12
    assert plan.cost.by_kind["storage"] == pytest.approx(rent * found.totals["wall_time"])
    assert plan.cost.by_kind["rent"] + plan.cost.by_kind["storage"] == pytest.approx(plan.cost.total)


def test_without_a_model_no_accelerator_appears():
    plan = solved("data-petabyte-crawl", ("workload.corpus.operators", RULES_ALONE))
    assert set(pools(plan)) == {"cpu", "storage"}
    assert plan.cost.total < solved("data-petabyte-crawl").cost.total


def test_a_slow_store_binds_and_a_fast_one_does_not():
    slow = solved("data-slow-store")
    fast = solved("data-slow-store", ("workload.text.storage.system", '"lustre-1000"'))
    few = solved("data-slow-store", ("workload.text.cpu.chips", "64"))
    more = solved("data-slow-store", ("workload.text.cpu.chips", "512"))
    resources = [plan.workloads["text"].bottleneck.resource for plan in (slow, fast, few, more)]
    assert resources == ["storage_throughput", "cpu", "cpu", "storage_throughput"]
    assert more.workloads["text"].totals["wall_time"] == slow.workloads["text"].totals["wall_time"]
    assert more.cost.total > 1.9 * slow.cost.total * 0.99
    # half a petabyte at 57.5 GB/s, and an hour to start and end
    moved = 5 * 50e12 + 5 * 50e12 * 4 / 4.2 - 50e12 * (1 - 4 / 4.2)
    assert slow.workloads["text"].totals["wall_time"] == pytest.approx(3600 + moved / 57.5e9, rel=0.02)


def test_figures_of_the_run_unfold():
    plan = solved("data-slow-store")
    node = plan.trace["text.corpus.wall_time"]
    assert node["value"] == plan.workloads["text"].totals["wall_time"]
    assert node["inputs"]


def test_agents_cost_by_success_and_report_each_figure_apart():
    plan = solved("agents-coder")
    assert plan.status == "optimal"
    assert plan.audit.passed
    roles = [pool.role for pool in plan.workloads["coder"].pools]
    assert set(roles) == {"mixed", "environment"}
    tasks = 2.0 * 365 * 86400
    assert plan.cost.per["task"] == pytest.approx(plan.cost.total / (tasks * (1 - 0.4**3)))
    for pool in plan.workloads["coder"].pools:
        if pool.role == "mixed":
            found = pool.predicted
            assert found["task"]["p95"] <= 30 * 60
            assert found["steps"] == pytest.approx(25 * 1.56)
            assert {"ttft", "tpot", "tokens_per_second", "success", "attempts", "task"} <= set(found)
    # 78 tools a second hold 4 GB for 14 s each, in sockets of 768 GiB
    sandboxes = sum(pool.chips for pool in plan.workloads["coder"].pools if pool.role == "environment")
    assert sandboxes == -(-2 * 25 * 1.56 * 14 * 4e9 // (768 * 2**30))
    assert plan.to_dict()["workloads"]["coder"]["totals"]["tasks_output"] == pytest.approx(tasks * (1 - 0.4**3))


def test_agents_without_reuse_or_in_haste_cost_more():
    usual = solved("agents-coder").cost.per["task"]
    cold = solved("agents-coder", ("workload.coder.prefix_reuse", "false")).cost.per["task"]
    quick = solved("agents-coder", ("workload.coder.slo.task.p95", '"10 min"')).cost.per["task"]
    assert cold > 3 * usual
    assert quick > 3 * usual


@pytest.mark.parametrize(("stage", "systems"), [("data", None), ("agents", '["hgx-h100"]')])
def test_a_new_file_is_complete(stage, systems):
    overrides = [("hardware.systems", systems)] if systems else []
    plan = api.solve(load_problem(new(stage), overrides=overrides))
    assert plan.status == "optimal"
