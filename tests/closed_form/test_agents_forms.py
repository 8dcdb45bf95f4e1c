"""Closed forms of agents against loops over calls and attempts, and drawn tasks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill_models.closed_agents  # noqa: F401
from tokenmill_models.compile import constants, exact
from tokenmill_models.formula import library


def value(name: str, **known: float) -> float:
    formula = library()[name]
    symbols = formula.expr.free_symbols
    known = {**constants(symbols), **known}
    return float(exact(formula.rounded, {symbol: known[symbol.name] for symbol in symbols}))


def by_call(calls, first, answer, tool):
    """Walk the calls of a task: prompt tokens read, computed where all before is kept, computed where nothing is."""
    context, read, kept, cold, cached = first, 0, 0, 0, 0
    for _ in range(calls):
        read += context
        cold += context
        kept += context - cached
        cached = context + answer
        context = cached + tool
    return read, kept, cold


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.integers(1, 9000), st.integers(1, 900), st.integers(1, 3000))
def test_tokens_of_a_growing_context(calls, first, answer, tool):
    sizes = {"calls": calls, "tokens_first": first, "tokens_answer": answer, "tokens_tool": tool}
    read, kept, cold = by_call(calls, first, answer, tool)
    assert value("agents.prompt_tokens", **sizes) == pytest.approx(cold)
    reused = {name: sizes[name] for name in ("calls", "tokens_first", "tokens_tool")}
    assert value("agents.prompt_tokens_reused", **reused) == pytest.approx(kept)
    assert value("agents.cached_tokens", **sizes) == pytest.approx(read - kept)
    assert value("agents.reuse_gain", **sizes) == pytest.approx(cold / kept)
    assert value("agents.reuse_gain", **sizes) >= 1


@settings(max_examples=50, deadline=None)
@given(st.floats(0.01, 1.0), st.integers(1, 12))
def test_attempts_one_after_another(share, most):
    attempts = sum((1 - share) ** i for i in range(most))
    success = sum(share * (1 - share) ** i for i in range(most))
    assert value("agents.attempts", success_share=share, attempts_most=most) == pytest.approx(attempts)
    assert value("agents.success", success_share=share, attempts_most=most) == pytest.approx(success)
    assert value("agents.task_cost", attempt_cost=2.0, success_share=share, attempts_most=most) == pytest.approx(
        2 * attempts
    )
    # whatever the limit of attempts, a success costs c/q
    assert value("agents.cost_per_success", attempt_cost=2.0, success_share=share) == pytest.approx(
        2 * attempts / success
    )


def test_uneven_attempts_as_drawn():
    """Attempts until one succeeds: those that fail cost 3, the one that succeeds 1."""
    tries = np.random.default_rng(0).geometric(0.25, 200_000)
    found = value("agents.cost_per_success_uneven", success_cost=1.0, failure_cost=3.0, success_share=0.25)
    assert found == pytest.approx(float((1 + 3 * (tries - 1)).mean()), rel=0.01)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 0.9), st.floats(0.1, 0.999))
def test_attempts_wanted_are_the_fewest(share, wanted):
    most = value("agents.attempts_wanted", success_share=share, wanted_share=wanted)
    assert value("agents.success", success_share=share, attempts_most=most) >= wanted - 1e-9
    if most > 1:
        assert value("agents.success", success_share=share, attempts_most=most - 1) < wanted + 1e-9


def test_a_cache_is_kept_or_computed_again_by_its_idle_time():
    """8e9 parameters, 131072 B a token, 60 GB of room on 989 TFLOP/s at half of peak: both ways by hand at 10,000 tokens."""
    idle = value(
        "agents.idle_time", active_parameters=8e9, cache_room=60e9, F=989e12, prefill_mfu=0.5, kv_of_token=131072
    )
    tokens = 10_000
    held = tokens * 131072 / 60e9 * idle  # device-seconds
    again = 2 * 8e9 * tokens / (989e12 * 0.5)
    assert held == pytest.approx(again)
    assert idle == pytest.approx(14.81, rel=1e-3)
    link = value("agents.reload_bandwidth", kv_of_token=131072, F=989e12, prefill_mfu=0.5, active_parameters=8e9)
    assert tokens * 131072 / link == pytest.approx(again)


def test_chains_and_sub_agents():
    assert value("agents.chain_success", step_share=0.99, calls=40) == pytest.approx(0.669, abs=1e-3)
    longest = value("agents.longest_chain", wanted_share=0.5, step_share=0.99)
    assert 0.99**longest >= 0.5 > 0.99 ** (longest + 1)
    assert value("agents.parallel_speedup", parallel_share=1.0, sub_agents=4) == pytest.approx(4)
    assert value("agents.parallel_speedup", parallel_share=0.5, sub_agents=4) == pytest.approx(1.6)
    assert value("agents.sandboxes", task_rate=2.0, calls=25, tool_time=4.0) == pytest.approx(200)


def test_worth_of_an_attempt_and_of_another_model():
    assert value("agents.worth_share", attempt_cost=2.0, task_value=20.0) == pytest.approx(0.1)
    rival = value("agents.rival_share", success_share=0.6, other_cost=5.0, attempt_cost=10.0)
    assert 5.0 / rival == pytest.approx(10.0 / 0.6)
