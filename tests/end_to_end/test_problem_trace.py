"""Demand stated by a file of requests: what it measures stands in the problem, and every class keeps the limits."""

from __future__ import annotations

import numpy as np
import pytest

from tokenmill import data
from tokenmill.api import solve
from tokenmill.errors import ProblemError
from tokenmill.imports.traces import read_trace
from tokenmill.reading import load_problem

CHAT = """
objective = {{ minimise = "cost" }}
[hardware]
systems = ["hgx-h100"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2.00/h"
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
[workload.demand]
trace = "{trace}"
{more}
[workload.slo]
ttft = {{ p95 = "2 s" }}
tpot = {{ p95 = "60 ms" }}
[workload.engine]
disaggregated = false
chunk = 2048
[workload.layout]
tp = 1
pp = 1
"""
AZURE = data.path("measured") / "traces" / "azure-2023-conv.csv.gz"
MOONCAKE = data.path("measured") / "traces" / "mooncake-conversation.jsonl.gz"


def problem(folder, trace, more=""):
    path = folder / "problem.toml"
    path.write_text(CHAT.format(trace=trace, more=more))
    return load_problem(path)


def test_classes_rate_and_gaps_are_those_of_the_file(tmp_path):
    (chat,) = problem(tmp_path, AZURE).workloads
    trace = read_trace(AZURE)
    assert sum(one.share for one in chat.classes) == pytest.approx(1.0)
    mean = sum(one.share * one.values["input_tokens"].mean for one in chat.classes)
    assert mean == pytest.approx(trace.input_tokens.mean(), rel=1e-9)
    gaps = np.diff(trace.seconds)
    assert chat.values["demand.arrivals.cv"] == pytest.approx(gaps.std() / gaps.mean(), rel=1e-9)
    assert chat.values["demand.requests_per_second"] == pytest.approx(trace.rate)


def test_prefix_blocks_are_counted(tmp_path):
    (chat,) = problem(tmp_path, MOONCAKE).workloads
    trace = read_trace(MOONCAKE)
    seen = 1 - len(set(trace.blocks.tolist())) / trace.blocks.size
    assert chat.values["demand.prefix_cache_hit"] == pytest.approx(seen)


def test_what_is_stated_stays(tmp_path):
    (chat,) = problem(tmp_path, AZURE, "requests_per_second = 40\narrivals = { cv = 1.0 }").workloads
    assert chat.values["demand.requests_per_second"] == 40
    assert chat.values["demand.arrivals.cv"] == 1.0


@pytest.mark.parametrize(
    ("trace", "more", "said"),
    [
        (AZURE, "input_tokens = 100", "given beside a trace"),
        ("none.csv", "", "none.csv"),
        (data.path("measured") / "traces" / "README.md", "", "trace"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, trace, more, said):
    with pytest.raises(ProblemError, match=said):
        problem(tmp_path, trace, more)


def test_every_class_keeps_the_limits_in_the_plan(tmp_path):
    plan = solve(problem(tmp_path, AZURE, "requests_per_second = 60"))
    for pool in plan.workloads["chat"].pools:
        assert pool.predicted["ttft"]["p95"] <= 2.0
        assert pool.predicted["tpot"]["p95"] <= 0.06
        for figures in pool.by_class.values():
            assert figures["ttft"]["p95"] <= 2.0
            assert figures["tpot"]["p95"] <= 0.06
