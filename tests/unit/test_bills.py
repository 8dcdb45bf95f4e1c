"""Bills of workloads and the days at which a pool has taken what the runs before it took, each counted by hand."""

from types import SimpleNamespace

import pytest

from tokenmill.bills import with_bills
from tokenmill.plan import Pool, Run, Scheduled, WorkloadPlan

DAY, HOUR = 86400.0, 3600.0
CATALOG = SimpleNamespace(
    system=lambda name: SimpleNamespace(hardware="processor" if name == "server" else "accelerator", chip=name),
    chip=lambda name: SimpleNamespace(peak={"bf16": 1e15}),
)


def problem(needs=("learn",), periods=2):
    workloads = (SimpleNamespace(name="learn", needs=()), SimpleNamespace(name="ask", needs=needs))
    horizon = SimpleNamespace(duration=200 * DAY, periods=periods, slices={"day": 0.5, "night": 0.5})
    return SimpleNamespace(workloads=workloads, horizon=horizon)


def pool(role, system, chips, replicas, mfu, schedule=()):
    return Pool(role, role, system, "site", chips, replicas, {}, {}, None, {"mfu": mfu}, schedule=tuple(schedule))


def growing(*replicas):
    """Replicas of four chips by period, all day long."""
    return [Scheduled(h, part, n, 1.0, 1.0, 0.0) for h, n in enumerate(replicas, 1) for part in ("day", "night")]


def billed(**changes):
    learn = WorkloadPlan("learn", pools=(pool("train", "card", 80, 1, 0.5), pool("check", "server", 3, 1, 0.0)))
    ask = WorkloadPlan("ask", pools=(pool("serve", "card", 8, 2, 0.25, growing(1, 2)),))
    runs = [Run("learn", 0.0, 5 * DAY, 83, "on-demand")]
    return with_bills(problem(**changes), CATALOG, {"learn": learn, "ask": ask}, runs, {"learn": 1000.0, "ask": 300.0})


def test_a_run_is_billed_for_its_accelerators_alone():
    bill = billed()["learn"].totals["bill"]
    assert bill["accelerator_hours"] == pytest.approx(80 * 5 * 24)
    assert bill["flops"] == pytest.approx(0.5 * 1e15 * 80 * 5 * DAY)
    assert bill["cost"] == 1000.0


def test_a_pool_is_billed_for_what_stands_in_each_period():
    bill = billed()["ask"].totals["bill"]
    assert bill["accelerator_hours"] == pytest.approx((4 * 100 + 8 * 100) * 24)
    assert bill["flops"] == pytest.approx(0.25 * 1e15 * (4 + 8) * 100 * DAY)


def test_days_until_the_pool_has_taken_as_much():
    crossing = billed()["ask"].totals["crossover"]
    assert crossing["needed"]["accelerator_hours"] == pytest.approx(9600)
    # 400 chip-days are needed: four chips give them in the first hundred days exactly
    assert crossing["accelerator_hours_days"] == pytest.approx(100)
    # twice the MFU was needed: 800 chip-days of the pool, 400 in the first period, 400 more at eight chips
    assert crossing["flops_days"] == pytest.approx(150)
    # $1000 against $300 over 1200 chip-days: 4000 chip-days, the rest at eight chips
    assert crossing["cost_days"] == pytest.approx(200 + (4000 - 1200) / 8)


def test_a_pool_that_needs_no_run_has_no_crossover():
    assert "crossover" not in billed(needs=())["ask"].totals
