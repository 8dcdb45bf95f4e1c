"""A layout that memory forbids is refused for what is missing, weights before KV."""

import pytest

import tokenmill as tm

HELD = """
[hardware]
systems = ["hgx-h100"]
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-70b"
demand = { requests_per_second = 1, input_tokens = 1000, output_tokens = 200 }
engine = { disaggregated = false, chunk = 512, attention_dp = 1, context_limit = LIMIT }
layout = { tp = TP, pp = 1 }
precision = { weights = "bf16" }
"""


def missing(tp, limit=1200):
    plan = tm.solve(tm.load_problem(HELD.replace("TP", str(tp)).replace("LIMIT", str(limit))))
    assert plan.status == "infeasible"
    return plan.infeasible


def test_weights_that_do_not_fit_are_named_with_their_bytes():
    """141.1 GB of weights and a few of activations against nine tenths of 85.5 GB (79.65 GiB)."""
    (short,) = missing(tp=1)
    assert short.limit.startswith("memory (")
    assert short.key == "workload.chat.layout.tp"
    assert short.shortfall == pytest.approx(141.1e9 - 0.9 * 79.65 * 2**30, rel=0.06)


def test_a_context_that_does_not_fit_is_named_with_its_bytes():
    """131072 tokens of 2·80 layers·4 heads·128·2 B take 21.5 GB of a rank; weights leave some 5 GB."""
    (short,) = missing(tp=2, limit=131072)
    assert short.limit.startswith("memory.context (")
    assert short.key == "workload.chat.engine.context_limit"
    left = 0.9 * 79.65 * 2**30 - 70.6e9
    assert 21.4e9 - left < short.shortfall < 21.6e9
