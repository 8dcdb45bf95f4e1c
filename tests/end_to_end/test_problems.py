"""The shipped problem files of the rail, solved; each answer held to a reason of its own."""

from functools import cache
from pathlib import Path

import pytest

from tokenmill import api
from tokenmill.catalog import load_catalog
from tokenmill.plan import Plan
from tokenmill.reading import load_problem

PROBLEMS = Path(__file__).parents[2] / "problems"

# Llama 3.1 70B from its configuration: 80 layers, 8 key/value heads of 128, width 8192, vocabulary 128256
PARAMETERS = 70_553_706_496
EMBEDDING = 128_256 * 8192
KV_BYTES = 2 * 80 * 8 * 128 * 2  # a token, 16 bits


@cache
def solved(name: str, *overrides: tuple[str, str]) -> Plan:
    return api.solve(load_problem(PROBLEMS / f"{name}.toml", overrides=list(overrides)))


@pytest.mark.parametrize("name", ["serve-70b", "batch-swing", "pretrain-70b"])
def test_every_file_has_a_proven_audited_plan(name):
    plan = solved(name)
    assert plan.status == "optimal"
    assert plan.audit.passed
    assert plan.objective.gap <= 1e-3
    assert plan.objective.bound <= plan.objective.value * (1 + 1e-9)


def test_no_system_alone_serves_for_less_and_limits_are_kept():
    plan = solved("serve-70b")
    problem = load_problem(PROBLEMS / "serve-70b.toml")
    alone = {}
    for name in problem.hardware.systems:
        if load_catalog().price(name, "on-demand") is not None:
            alone[name] = solved("serve-70b", ("hardware.systems", f'["{name}"]')).cost.total
    assert plan.cost.total == pytest.approx(min(alone.values()), rel=2e-3)
    # the floor: the weights and caches that answers must read, at full bandwidth, on the cheapest bandwidth there is
    catalog = load_catalog()
    dollars = {
        n: catalog.price(n, "on-demand").per_chip_hour / catalog.chip(catalog.system(n).chip).bandwidth for n in alone
    }
    cache_bytes = 40 * 300 * (1200 + 150) * KV_BYTES / 2
    assert plan.cost.total > cache_bytes * min(dollars.values()) * 24 * 365
    for pool in plan.workloads["chat"].pools:
        assert pool.predicted["ttft"]["p95"] <= 2.0
        assert pool.predicted["tpot"]["p95"] <= 0.05
        assert pool.predicted["memory"]["total"] <= pool.predicted["memory"]["capacity"]
    hours = 365 * 24
    assert plan.cost.total == pytest.approx(sum(p.count * p.unit_price * hours for p in plan.purchases), rel=1e-9)
    tokens = 40 * 300 * 365 * 86400
    assert plan.objective.value == pytest.approx(plan.cost.total / tokens, rel=1e-9)


def test_batch_swing_is_the_bandwidth_bound():
    one = solved("batch-swing")
    many = solved("batch-swing", ("workload.chat.engine.batch", "384"))
    bandwidth = 8 * 3.35e12
    per_step = PARAMETERS - EMBEDDING + 4096 * KV_BYTES
    alone = 32.0 / 3600 * per_step / bandwidth * 1e6
    assert alone == pytest.approx(23.84, rel=0.016)  # published with the embedding read
    assert one.objective.value * 1e6 == pytest.approx(alone, rel=0.01)
    together = 32.0 / 3600 * (PARAMETERS - EMBEDDING + 384 * 4096 * KV_BYTES) / bandwidth / 384 * 1e6
    # what is left is the exchange: two all-reduces a layer of 384 x 8192 16-bit values, in the switch 9/8 of the bytes
    exchange = 160 * 384 * 8192 * 2 * 9 / 8 / 450e9
    expected = together + 32.0 / 3600 * exchange / 384 * 1e6
    assert many.objective.value * 1e6 == pytest.approx(expected, rel=0.12)
    assert 35 < one.objective.value / many.objective.value < 48


def test_pretraining_meets_its_deadline_above_the_physical_floor():
    plan = solved("pretrain-70b")
    (run,) = plan.runs
    assert run.end <= 90 * 86400
    (purchase,) = plan.purchases
    hours = (run.end - run.start) / 3600
    assert plan.cost.total == pytest.approx(run.chips * hours * purchase.unit_price / 8, rel=1e-6)
    pool = plan.workloads["pretrain"].pools[0]
    assert 0.3 < pool.predicted["mfu"] < 0.6  # published dense runs on these chips
    chip = load_catalog().chip(load_catalog().system(purchase.system).chip)
    floor = 6 * (PARAMETERS - EMBEDDING) * 15e12 / chip.peak["bf16"] / 3600
    assert run.chips * hours > floor


def test_what_does_not_fit_names_memory_and_the_missing_bytes():
    plan = solved("infeasible-one-h100")
    assert plan.status == "infeasible"
    (short,) = plan.infeasible
    assert "memory" in short.limit
    assert short.unit == "B"
    usable = 0.9 * 81_559 * 2**20  # what a driver shows of an H100, and the engine's share
    assert short.shortfall == pytest.approx(2 * PARAMETERS - usable, rel=0.05)
