"""Two vLLM request logs replayed on the plan of the set-up that wrote them. Nothing here is fitted to these logs."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tokenmill import data
from tokenmill.api import solve
from tokenmill.imports.traces import read_trace
from tokenmill.reading import load_problem
from tokenmill.simulate import Options, simulate
from tokenmill.simulate_steps import plan_leaves

TEXT = """
objective = {{ minimise = "cost" }}
[hardware]
systems = ["{system}"]
[[hardware.owned]]
system = "{system}"
count = 1
[[workload]]
name = "chat"
stage = "serving"
model = "{model}"
[workload.demand]
requests_per_second = 0.2
input_tokens = 860
output_tokens = 660
[workload.engine]
name = "vllm"
disaggregated = false
chunk = 2048
attention_dp = {ranks}
[workload.layout]
chips = {ranks}
tp = 1
pp = 1
ep = {ranks}
[workload.precision]
weights = "bf16"
"""
LOGS = {
    "vllm-rtx-4090-llama-3.1-8b": ("rtx-4090", "llama-3.1-8b", 1),
    "vllm-rtx-pro-6000-qwen3-30b-a3b": ("rtx-pro-6000-8", "qwen3-30b-a3b", 2),
}
SLOTS = 256  # both set-ups: 256 sequences on one rank, 128 on each of two
PRINTED_KV_TOKENS = 41_408  # by the RTX 4090's engine at start


@cache
def replayed(name: str):
    system, model, ranks = LOGS[name]
    plan = solve(load_problem(TEXT.format(system=system, model=model, ranks=ranks)))
    trace = read_trace(data.path("measured") / "traces" / f"{name}.jsonl.gz")
    return plan, trace, simulate(plan, trace, options=Options(slots=SLOTS))


@pytest.mark.parametrize("name", LOGS)
def test_tokens_take_about_as_long_as_measured(name):
    _, trace, report = replayed(name)
    for word, percent, close in (("p50", 50, 0.15), ("p95", 95, 0.25)):
        measured = np.nanpercentile(trace.measured["tpot"], percent)
        assert report.tpot[word] == pytest.approx(measured, rel=close)
    assert report.count == trace.count


def test_room_for_kv_is_what_the_engine_printed():
    plan, trace, report = replayed("vllm-rtx-4090-llama-3.1-8b")
    (pool,) = plan.workloads["chat"].pools
    assert pool.predicted["kv_tokens"] == pytest.approx(PRINTED_KV_TOKENS, rel=0.1)
    # the log shows a cache that is full most of the time, and requests that wait for a minute in the median
    assert report.pools["mixed"].kv_most > 0.99
    assert report.pools["mixed"].preemptions > 0
    for word, percent, close in (("p50", 50, 0.15), ("p95", 95, 0.25)):
        assert report.ttft[word] == pytest.approx(np.percentile(trace.measured["ttft"], percent), rel=close)


def test_idle_engine_answers_within_a_quarter_of_a_second_as_measured():
    plan, trace, report = replayed("vllm-rtx-pro-6000-qwen3-30b-a3b")
    assert np.median(trace.measured["ttft"]) < 0.25
    # the log holds the engine's own times: the steps until the front end sends the first token are not in them
    late = plan_leaves(plan.trace, "chat.mixed")["engine_stream"] * report.tpot["p50"]
    assert report.ttft["p50"] - late < 0.25
