"""Users at a distance: the way to them and back is taken off the limit on the first token, site by site."""

import pytest

from tokenmill import api
from tokenmill.nearness import nearer, ways
from tokenmill.problem import Hardware, Problem, Site, Workload
from tokenmill.reading import load_problem

TEXT = """
objective = {{ minimise = "cost" }}
[hardware]
systems = ["hgx-h100"]
markets = ["on-demand"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2/h"
{sites}
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
region = "eu"
[workload.demand]
requests_per_second = 300
input_tokens = 4000
output_tokens = 100
[workload.slo]
ttft = {{ p95 = "{limit}" }}
[workload.engine]
disaggregated = false
chunk = 2048
[workload.layout]
tp = 1
"""
SITE = '[[hardware.site]]\nname = "{name}"\nregions = {{ eu = "{away}" }}\n'


def solved(limit, *sites):
    made = "".join(SITE.format(name=name, away=away) for name, away in sites)
    return api.solve(load_problem(TEXT.format(limit=limit, sites=made)))


def test_the_way_there_and_back_counts_in_the_limit():
    far = solved("700 ms", ("far", "300 ms"))
    assert far.cost.total == pytest.approx(solved("400 ms", ("here", "0 ms")).cost.total)
    assert far.cost.total > solved("700 ms", ("here", "0 ms")).cost.total
    for pool in far.workloads["chat"].pools:
        assert pool.predicted["ttft"]["p95"] <= 0.4


def test_of_two_sites_the_near_one_is_taken_and_one_too_far_never():
    plan = solved("700 ms", ("far", "300 ms"), ("near", "5 ms"))
    assert plan.cost.total == pytest.approx(solved("700 ms", ("near", "5 ms")).cost.total)
    with_beyond = solved("700 ms", ("beyond", "700 ms"), ("near", "5 ms"))
    assert {p.site for p in with_beyond.purchases} == {"near"}
    nowhere = solved("700 ms", ("beyond", "700 ms"))
    assert nowhere.status == "infeasible"
    assert "700 ms" in nowhere.infeasible[0].limit


def test_limits_by_percentile_and_plain_ones():
    workload = Workload("chat", "toy", values={"slo.ttft": {"p95": 1.0, "p99": None}, "slo.e2e": 2.0, "slo.tpot": 0.05})
    left = nearer(workload, ("slo.ttft", "slo.e2e"), 0.25)
    assert left is not None
    assert left.values == {"slo.ttft": {"p95": 0.75, "p99": None}, "slo.e2e": 1.75, "slo.tpot": 0.05}
    assert nearer(workload, ("slo.ttft",), 1.0) is None


def test_sites_by_their_distance():
    sites = (Site("a", regions={"eu": 0.1}), Site("b"), Site("c", regions={"us": 0.1}), Site("d", regions={"eu": 0.1}))
    workload = Workload("chat", "toy", region="eu")
    asked = Problem((workload,), hardware=Hardware(sites=sites))
    assert ways(asked, workload) == {0.0: ("b",), 0.1: ("a", "d")}
