"""The problem files of fleets, solved; each answer held to a reason of its own."""

from functools import cache
from pathlib import Path

import pytest

from tokenmill import api
from tokenmill.plan import Plan
from tokenmill.reading import load_problem
from tokenmill.why_not import why_not

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
    spot = sum(p.chips for p in plan.purchases if p.market == "spot")
    whole = sum(p.chips for p in plan.purchases)
    assert spot <= 0.5 * whole
