"""The agents stage against hand calculations: calls, attempts, sandboxes, idle caches, and what must never cost more."""

from functools import cache

import pytest

from tokenmill import api
from tokenmill.catalog import load_catalog
from tokenmill.reading import load_problem
from tokenmill_models.agents import sandboxes
from tokenmill_models.checks import dimension_failures, route_failures
from tokenmill_models.compile import constants

CATALOG = load_catalog()
HEAD = """
{objective}
[hardware]
systems = ["hgx-h100"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$3/h"
[[hardware.price]]
system = "cpu-epyc-9654"
market = "on-demand"
per_chip_hour = "$5/h"
[[workload]]
name = "coder"
stage = "agents"
model = "qwen3-8b"
tasks_per_second = {rate}
calls = 10
tokens_first = 2000
tokens_tool = 800
tokens_out = 200
{more}
{tables}
"""
TOOL = 'tool = { seconds = 4.0, core_seconds = 2.5, memory = "4 GB", system = "cpu-epyc-9654" }'
LAYOUT = "[workload.layout]\ntp = 1\npp = 1\n[workload.engine]\nchunk = 2048\n"


@cache
def solved(
    more="",
    tables=LAYOUT,
    rate=2.0,
    objective='objective = { minimise = "cost_per_task", workload = "coder" }',
    tool=TOOL,
):
    return api.solve(load_problem(HEAD.format(more=f"{tool}\n{more}", tables=tables, rate=rate, objective=objective)))


def pool(plan, role="mixed"):
    return next(p for p in plan.workloads["coder"].pools if p.role == role)


def test_calls_tokens_and_attempts_of_a_task():
    found = pool(solved("success = 0.6\nmax_attempts = 3")).predicted
    # contexts of 2000, 3000, ... 11000 tokens; kept: 2000 at first, then the 800 of each tool
    assert found["tokens"]["read"] == pytest.approx(sum(2000 + 1000 * i for i in range(10)))
    assert found["tokens"]["computed"] == pytest.approx(2000 + 9 * 800)
    assert found["attempts"] == pytest.approx(1 + 0.4 + 0.16)
    assert found["success"] == pytest.approx(1 - 0.4**3)
    assert found["steps"] == pytest.approx(15.6)
    assert found["calls_per_second"] == pytest.approx(found["tasks_per_second"] * 15.6)


def test_cost_of_a_success():
    plan = solved("success = 0.6\nmax_attempts = 3")
    tasks = 2.0 * 365 * 86400
    assert plan.cost.per["task"] == pytest.approx(plan.cost.total / (tasks * (1 - 0.4**3)))


def test_sandboxes_are_bound_by_cores_or_by_memory():
    """20 tools a second: 20 x 2.5 s of 96 cores at 70%; or 20 x 14 s x 4 GB of 768 GiB a socket."""
    assert pool(solved(), "environment").chips == 2  # 1120 GB of 824 GB a socket; cores alone: 50 of 67
    light = solved(tool=TOOL.replace("4 GB", "0.1 GB"))
    assert pool(light, "environment").chips == 1
    busy = solved(tool=TOOL.replace("core_seconds = 2.5", "core_seconds = 10.0"))
    assert pool(busy, "environment").chips == 3  # 200 of 67
    away = solved(tool="tool = { seconds = 4.0, sandbox = false }")
    assert {p.role for p in away.workloads["coder"].pools} == {"mixed"}


def test_idle_caches_take_room_by_little_law():
    """Agents that wait: calls a second times four seconds, each with the cache of a mean context."""
    found = pool(solved(tables=LAYOUT + 'idle_cache = "keep"'))
    predicted = found.predicted
    assert predicted["idle_agents"] == pytest.approx(predicted["calls_per_second"] * 4.0)
    config = 2 * 36 * 8 * 128 * 2  # bytes a token of qwen3-8b: 36 layers, 8 heads of 128, keys and values in 16 bits
    context = 2000 + 4.5 * 1000 + 100
    held = (predicted["batch"] + predicted["idle_agents"]) * context * config
    assert held <= predicted["memory"]["kv"] * 1.02


def test_offloaded_caches_come_back_before_the_first_token():
    tables = LAYOUT + "batch = 8\n"
    kept, away = (
        pool(solved(tables=tables + f'idle_cache = "{word}"', rate=0.05)).predicted for word in ("keep", "offload")
    )
    bytes_ = (2000 + 4.5 * 1000 + 100) * 2 * 36 * 8 * 128 * 2
    back = bytes_ / CATALOG.chip("h100-sxm").host_link
    assert away["cache_return"] == pytest.approx(back, rel=0.01)
    assert kept["cache_return"] == 0
    assert away["ttft"]["mean"] - kept["ttft"]["mean"] == pytest.approx(back, rel=0.05)


def test_reuse_never_costs_more():
    with_reuse = solved(rate=20.0).cost.total
    without = solved("prefix_reuse = false", rate=20.0).cost.total
    again = solved(tables=LAYOUT + 'idle_cache = "recompute"', rate=20.0).cost.total
    assert with_reuse <= without * (1 + 1e-3)
    assert with_reuse <= again * (1 + 1e-3)
    assert again == pytest.approx(without, rel=2e-3)  # what is computed again is as if never kept


def test_a_tighter_wait_never_costs_less():
    costs = [solved(tables=LAYOUT + f'[workload.slo]\ntask = {{ p95 = "{limit} s" }}', rate=20.0).cost.total for limit in (400, 120, 80)]  # fmt: skip
    assert costs == sorted(costs)


def test_the_time_of_a_task_by_hand():
    found = pool(solved("success = 0.6\nmax_attempts = 3")).predicted
    attempt = 10 * (found["e2e"]["mean"] + 4.0)
    assert found["task"]["mean"] == pytest.approx(1.56 * attempt)
    assert found["task"]["p50"] == pytest.approx(attempt)  # six of ten tasks need one attempt
    assert found["task"]["p95"] >= 3 * attempt  # one of six needs the third


def test_sub_agents_shorten_a_task_and_read_less():
    alone, three = (pool(solved(more)).predicted for more in ("", "parallel = 2"))
    assert three["task"]["mean"] < alone["task"]["mean"]
    # two agents of five calls: 2 x (2000 + ... + 6000)
    assert three["tokens"]["read"] == pytest.approx(2 * sum(2000 + 1000 * i for i in range(5)))


def test_a_budget_of_tokens_stops_attempts():
    attempt = sum(2000 + 1000 * i for i in range(10)) + 10 * 200
    two = pool(solved(f"success = 0.5\nmax_attempts = 5\n[workload.budget]\ntokens = {2.5 * attempt}")).predicted
    assert two["attempts"] == pytest.approx(1.5)
    assert two["success"] == pytest.approx(0.75)
    assert solved(f"[workload.budget]\ntokens = {0.5 * attempt}").status == "infeasible"


def test_sandboxes_pass_dimension_and_two_routes():
    role = sandboxes()
    _, leaves = role.graph.needs(role.graph.formulas)
    values = {leaf.name: 3.0 for leaf in leaves} | constants(leaves) | {"attempt_success": 0.6, "tool_use": 0.7}
    assert dimension_failures(role.graph, values) == []
    assert route_failures(role.graph, values) == []
