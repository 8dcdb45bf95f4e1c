"""One formula for what is paid and what is printed: energy of the plan against the draw that its pools are predicted to have."""

import pytest

from tokenmill import load_problem, solve

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
HOST = 4600.0  # W of an HGX H100 server beyond its chips: 10.2 kW less 8 x 700 W


@pytest.mark.parametrize("rate", [1.5, 4.0, 7.0, 11.0])
def test_the_energy_that_is_paid_is_the_power_that_is_printed(rate):
    plan = solve(load_problem(TEXT.format(rate=rate)))
    (pool,) = plan.workloads["chat"].pools
    (bought,) = plan.purchases
    assert (pool.replicas, bought.count) == (1, 1)  # one replica fills the one server
    watts = plan.cost.by_kind["energy"] / (365 * 24 * 0.10 / 1000)
    assert watts == pytest.approx(HOST + pool.predicted["power"], rel=0.05)
