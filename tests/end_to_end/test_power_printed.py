"""One formula for what is paid and what is printed: energy of the plan against the draw that its pools are predicted to have."""

from pathlib import Path

import pytest

from tokenmill import load_problem, solve

PROBLEMS = Path(__file__).parents[2] / "problems"
TEXT = """
objective = {{ minimise = "cost" }}
[hardware]
systems = ["hgx-h100"]
markets = ["buy"]
[[hardware.price]]
system = "hgx-h100"
market = "buy"
purchase = "$250000"
[[hardware.site]]
name = "here"
pue = 1.0
electricity = "$0.10/kWh"
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-70b"
[workload.demand]
requests_per_second = {rate}
input_tokens = 1000
output_tokens = 250
[workload.slo]
tpot = {{ p95 = "60 ms" }}
[workload.engine]
disaggregated = false
chunk = 2048
[workload.layout]
tp = 8
pp = 1
"""
HOST = {"hgx-h100": 10_200.0 - 8 * 700.0, "hgx-b200": 14_300.0 - 8 * 1000.0}
"""W of a server beyond its chips: its rated draw less that of its chips."""
HOURS = 365 * 24


@pytest.mark.parametrize(
    ("rate", "under", "over"), [(1.5, 0.0, 0.25), (4.0, 0.0, 0.15), (7.0, 0.06, 0.06), (11.0, 0.06, 0.06)]
)
def test_the_energy_that_is_paid_is_the_power_that_is_printed(rate, under, over):
    """A line stands for a curve that is capped: near it where replicas of a fleet run, above it where one has little to do."""
    plan = solve(load_problem(TEXT.format(rate=rate)))
    (pool,) = plan.workloads["chat"].pools
    (bought,) = plan.purchases
    assert (pool.replicas, bought.count) == (1, 1)  # one replica fills the one server
    watts = plan.cost.by_kind["energy"] / (HOURS * 0.10 / 1000)
    assert 1.0 - under <= (watts - HOST["hgx-h100"]) / pool.predicted["power"] <= 1.0 + over


@pytest.mark.parametrize("name", ["two-sites-power-wall", "keep-or-upgrade"])
def test_so_it_is_in_fleets_whose_servers_are_full(name):
    problem = load_problem(PROBLEMS / f"{name}.toml")
    plan = solve(problem)
    dollars = 0.0
    for site in problem.hardware.sites:
        pools = [p for work in plan.workloads.values() for p in work.pools if p.site == site.name]
        bought = [b for b in plan.purchases if b.site == site.name]
        assert sum(pool.chips for pool in pools) == sum(each.chips for each in bought)
        watts = sum(HOST[b.system] * b.count for b in bought) + sum(p.replicas * p.predicted["power"] for p in pools)
        dollars += watts * site.pue * site.electricity["all"] * 3600 * HOURS
    assert plan.cost.by_kind["energy"] == pytest.approx(dollars, rel=0.01)
