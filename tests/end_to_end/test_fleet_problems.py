"""The problem files of fleets, solved; each answer held to a reason of its own."""

import re
from functools import cache
from pathlib import Path

import pytest

from tokenmill import api
from tokenmill.pareto import pareto
from tokenmill.plan import Plan
from tokenmill.reading import load_problem
from tokenmill.report.summary import summary
from tokenmill.why_not import by_workload, why_not

PROBLEMS = Path(__file__).parents[2] / "problems"


@cache
def solved(name: str, *overrides: tuple[str, str]) -> Plan:
    return api.solve(load_problem(PROBLEMS / f"{name}.toml", overrides=list(overrides)))


@pytest.mark.slow
def test_growing_demand_mixes_what_each_market_alone_would_pay_more_for():
    plan = solved("grow-with-demand")
    for market in ("buy", "reserved-1y", "on-demand"):
        alone = solved("grow-with-demand", ("hardware.markets", f'["{market}"]'))
        assert plan.cost.total <= alone.cost.total * 1.001
    day = [p for p in plan.purchases if p.slice == "day"]
    assert day  # what the night does not need is rented for the day alone
    assert all(p.market == "on-demand" for p in day)


def test_the_cheap_site_is_filled_to_its_power():
    plan = solved("two-sites-power-wall")
    at = {p.site: p for p in plan.purchases}
    one = at["north"].power / at["north"].count
    assert at["north"].count == 45e3 // one
    (wall,) = [b for b in plan.binding if b.key == "hardware.site.north.power"]
    wide = solved("two-sites-power-wall", ("hardware.site.north.power", '"56 kW"'))
    assert wall.value_of_next.saves == pytest.approx(plan.cost.total - wide.cost.total, rel=1e-3)


def test_a_supplier_who_may_fail_is_worth_no_more_than_a_sure_one():
    plan = solved("supplier-delay")
    text = (PROBLEMS / "supplier-delay.toml").read_text()
    head, rest = text.split("[[scenario]]", 1)
    sure = api.solve(load_problem(head + "[[workload]]" + rest.split("[[workload]]", 1)[1]))
    never = solved("supplier-delay", ("hardware.systems", '["hgx-h100"]'))
    assert sure.cost.total <= plan.objective.value <= never.objective.value
    assert any(p.system == "hgx-h200" and p.market == "reserved-1y" for p in plan.purchases)
    # nine tenths of the mean of both years, a tenth of the worse one: both parts unfold
    usual, late = (plan.trace[f"objective.{name}"]["inputs"][1]["value"] for name in ("delivered", "late"))
    assert usual == pytest.approx(plan.cost.total)
    assert plan.objective.value == pytest.approx(0.9 * (0.75 * usual + 0.25 * late) + 0.1 * late, rel=1e-9)


def test_old_systems_stay_while_their_energy_costs_less_than_new_ones():
    plan = solved("keep-or-upgrade")
    assert {p.market for p in plan.purchases} == {"owned", "buy"}
    keep = solved("keep-or-upgrade", ("hardware.markets", '["spot"]'))
    assert plan.cost.total < keep.cost.total  # refusing costs more than adding
    assert next(p.count for p in plan.purchases if p.market == "owned") <= 16


def test_at_its_named_price_the_upgrade_comes_in():
    asked = load_problem(PROBLEMS / "keep-or-upgrade.toml")
    answer = why_not(asked, "gb300-nvl72")
    assert answer.enters_at
    prices = '[{ system = "hgx-b200", market = "buy", purchase = "$500000" }, { system = "gb300-nvl72", market = "buy", purchase = "$%r" }]'
    at = solved(
        "keep-or-upgrade",
        ("hardware.systems", '["hgx-b200", "gb300-nvl72"]'),
        ("hardware.price", prices % answer.enters_at),
    )
    assert any(p.system == "gb300-nvl72" for p in at.purchases)


def test_a_spike_is_met_by_what_costs_least():
    plan = solved("viral-spike")
    assert {p.slice for p in plan.purchases if p.market == "spot"} == {"spike"}
    for change in (("hardware.markets", '["reserved-1y", "on-demand"]'), ("limits.shed", '"$1/request"')):
        assert plan.cost.total <= solved("viral-spike", change).cost.total * 1.001
    head_room = solved("viral-spike", ("hardware.markets", '["buy", "reserved-1y"]'), ("limits.shed", '"$1/request"'))
    assert head_room.cost.total > 3 * plan.cost.total  # what stands all year for half an hour a day
    assert any("without refused demand" in other.what_changes for other in plan.alternatives)
    spot = sum(p.chips for p in plan.purchases if p.market == "spot")
    whole = sum(p.chips for p in plan.purchases)
    assert spot <= 0.5 * whole


SUMMARISED = (
    "two-sites-power-wall", "supplier-delay", "keep-or-upgrade", "viral-spike", "carbon-against-cost", "negative-margin",
    "mtbf-hundred-thousand",
)  # fmt: skip


@pytest.mark.parametrize("name", SUMMARISED)
def test_ten_lines_say_it_and_every_figure_unfolds(name):
    plan = solved(name)
    lines = summary(plan)
    assert len(lines) <= 10
    for word in ("decision: ", "cost ", "binding: ", "runner-up: "):
        assert any(line.startswith(word) for line in lines), word
    keys = [key for line in lines for group in re.findall(r"\[([^\]]+)\]", line) for key in group.split(", ")]
    assert {"objective", "cost.total", "alternatives.1"} <= set(keys)
    for key in keys:
        assert plan.explain(key)


def test_a_hundred_thousand_chips_fail_twice_an_hour():
    plan = solved("mtbf-hundred-thousand")
    (pool,) = plan.workloads["pretrain"].pools
    assert pool.predicted["mtbf"] == pytest.approx(8760 * 3600 / (98_304 * 0.1728), rel=1e-6)
    # parameters and two moments in 4 bytes, weights in 2: 14 bytes each of 405.9e9
    assert pool.predicted["checkpoint_bytes"] == pytest.approx(14 * 405.85e9, rel=1e-3)
    assert pool.predicted["checkpoint_write"] == pytest.approx(pool.predicted["checkpoint_bytes"] / 100e9, rel=1e-6)
    assert plan.workloads["pretrain"].totals["spare_systems"] == 15  # see tests/unit/test_fleet_spares.py
    assert sum(p.count for p in plan.purchases) == 98_304 / 8 + 15
    fast = solved("mtbf-hundred-thousand", ("workload.pretrain.checkpoint.store", '"lustre-1000"'))
    saved = plan.objective.value - fast.objective.value
    assert 0.01 * plan.objective.value < saved < 0.05 * plan.objective.value


def test_a_larger_batch_mends_the_margin_and_costs_latency():
    small, free = (
        solved("negative-margin"),
        solved("negative-margin", ("workload.chat.engine.batch", "[8, 16, 32, 64]")),
    )
    margin = [plan.workloads["chat"].totals["margin"] for plan in (small, free)]
    assert margin[0] < 0.0 < margin[1]
    # 50 requests/s for a year at 1 000 tokens of $0.50 and 500 of $1.50 a million
    assert margin[0] + small.cost.total == pytest.approx(50 * 365 * 86400 * (1000 * 0.5e-6 + 500 * 1.5e-6))
    worst = [max(pool.predicted["tpot"]["p95"] for pool in plan.workloads["chat"].pools) for plan in (small, free)]
    assert worst[0] < worst[1] <= 60e-3


def test_carbon_falls_first_where_a_tonne_costs_least():
    """By hand: coal to water (1.1 x $0.13 - 1.2 x $0.05)/(1.2 x 0.82 - 1.1 x 0.024) = $0.0867/kg, coal to gas $0.03/0.33 = $0.0909/kg."""
    points = pareto(load_problem(PROBLEMS / "carbon-against-cost.toml"), "carbon", points=5)
    assert [point.against for point in points] == sorted((point.against for point in points), reverse=True)
    assert {p.site for p in points[0].plan.purchases} == {"coal"}
    assert {p.site for p in points[-1].plan.purchases} == {"gas", "water"}
    # a further system, at the clean end, is no move from site to site
    systems = [sum(bought.count for bought in point.plan.purchases) for point in points]
    moved = [point for point, count in zip(points, systems, strict=True) if count == systems[0]]
    assert len(moved) >= 3
    first, last = moved[0], moved[-1]
    paid = (last.objective - first.objective) / (first.against - last.against)
    assert 0.0866 < paid < 0.0910


@pytest.mark.slow
def test_break_even_stage_by_stage():
    asked = load_problem(PROBLEMS / "upgrade-by-stage.toml")
    answers = by_workload(asked, "hgx-b200")
    # H100 at $220 000 can be had too: a B200 system does the work of two to three of them
    for name in ("chat", "suite"):
        assert 2 * 220e3 < answers[name].enters_at < 3 * 220e3
    assert answers["tune"].enters_at < 2 * 220e3
