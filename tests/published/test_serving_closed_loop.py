"""Closed-loop plans against InferenceX (InferenceMAX) points: fixed concurrency, lengths of 80 to 100% of the nominal."""

from statistics import median

import pytest

import tokenmill as tm

# Llama 3.1 70B in fp8 on H200, vLLM, dump of 2026-04-06: tp, nominal prompt and answer, in flight, TTFT and TPOT [ms]
POINTS = [
    (1, 1024, 1024, 16, 315.8, 24.72),
    (2, 1024, 1024, 8, 154.1, 14.36),
    (4, 1024, 1024, 16, 126.2, 10.94),
    (4, 1024, 1024, 64, 264.5, 16.07),
    (8, 1024, 1024, 4, 73.0, 7.93),
    (2, 8192, 1024, 32, 1820.8, 46.07),
    (4, 8192, 1024, 4, 468.6, 11.27),
    (4, 8192, 1024, 64, 1817.5, 46.11),
    (8, 8192, 1024, 16, 479.5, 13.36),
]


def problem(tp, prompt, answer, clients, **more):
    return {
        "hardware": {"systems": ["hgx-h200"], "price": [{"system": "hgx-h200", "market": "on-demand", "per_chip_hour": 3.0 / 3600}]},
        "workload": [{
            "name": "chat", "stage": "serving", "model": "llama-3.1-70b",
            "demand": {"input_tokens": 0.9 * prompt, "output_tokens": 0.9 * answer, "arrivals": {"concurrency": clients}},
            "engine": {"name": "vllm", "chunk": 8192, "disaggregated": False},
            "layout": {"tp": tp, "pp": 1, **more}, "precision": {"weights": "fp8", "kv": "fp8"},
        }],
    }  # fmt: skip


def solved(*given, **more):
    plan = tm.solve(tm.load_problem(problem(*given, **more)))
    assert plan.status == "optimal"
    return plan, plan.workloads["chat"].pools[0]


@pytest.mark.slow
def test_points_that_were_measured():
    first, later = [], []
    for *given, ttft, tpot in POINTS:
        predicted = solved(*given)[1].predicted
        first.append(predicted["ttft"]["mean"] * 1e3 / ttft - 1)
        later.append(predicted["tpot"]["mean"] * 1e3 / tpot - 1)
    assert median(map(abs, later)) < 0.10
    assert max(map(abs, later)) < 0.20
    assert median(map(abs, first)) < 0.25


def test_the_rate_is_an_outcome_that_keeps_the_clients_busy():
    """Little's law: rate times the time of a request is the number in flight."""
    plan, pool = solved(4, 1024, 1024, 64)
    rate = sum(row.rate for row in pool.schedule)
    answered = pool.predicted["ttft"]["mean"] + (0.9 * 1024 - 1) * pool.predicted["tpot"]["mean"]
    assert rate * answered == pytest.approx(64, rel=0.02)
    assert plan.cost.per["million_output"] == pytest.approx(plan.cost.total / (rate * 0.9 * 1024 * 365 * 86400) * 1e6)


def test_replicas_share_the_clients():
    alone = solved(4, 1024, 1024, 32)[1]
    shared = solved(4, 1024, 1024, 64, replicas=2)[1]
    assert shared.replicas == 2
    assert shared.predicted["tpot"]["mean"] == pytest.approx(alone.predicted["tpot"]["mean"])
    assert sum(r.rate for r in shared.schedule) == pytest.approx(2 * sum(r.rate for r in alone.schedule))


def test_clients_beyond_the_memory_wait_for_a_slot():
    """One H200 holds some 60 GB of KV, 160 KB a token: about 40 of 64 sequences of 7.8k tokens run, the rest wait."""
    pool = solved(1, 8192, 1024, 64)[1]
    assert 30 < pool.batch < 50
    assert pool.predicted["ttft"]["mean"] > 10 * solved(1, 8192, 1024, 32)[1].predicted["ttft"]["mean"]


def test_a_closed_loop_through_two_pools_is_refused_in_words():
    asked = problem(4, 1024, 1024, 64)
    asked["workload"][0]["engine"]["disaggregated"] = True
    with pytest.raises(tm.ProblemError, match="prefill then decode"):
        tm.solve(tm.load_problem(asked))


def test_among_layouts_the_one_of_the_least_cost_a_token_is_taken():
    """Each layout is solved for the rate that it gives; the choice is that of holding each in turn."""
    asked = problem([1, 2, 4, 8], 1024, 1024, 16)
    asked["objective"] = {"minimise": "cost_per_token", "workload": "chat", "count": "output"}
    free = tm.solve(tm.load_problem(asked))
    held = {}
    for tp in (1, 2, 4, 8):
        asked["workload"][0]["layout"]["tp"] = tp
        held[tp] = tm.solve(tm.load_problem(asked)).cost.per["token"]
    assert free.cost.per["token"] == pytest.approx(min(held.values()))
    assert held[free.workloads["chat"].pools[0].layout["tp"]] == min(held.values())


def test_an_ideal_engine_sends_the_first_token_at_once():
    """One client, one round: no wait, no overhead; what is left is half a step that may be running, and the prompt in a step."""
    asked = problem(4, 1024, 1024, 1)
    asked["assume"] = {"efficiency": "ideal"}
    predicted = tm.solve(tm.load_problem(asked)).workloads["chat"].pools[0].predicted
    prompt = 2 * 69.5e9 * 0.9 * 1024 / (4 * 1979e12)  # products in fp8; the embedding is looked up
    wire = (
        2 * 80 * 2 * 3 / 4 * 0.9 * 1024 * 8192 * 2 / 450e9
    )  # two all-reduces a layer over four chips, by ring at most
    assert prompt < predicted["ttft"]["mean"] < prompt + wire + 2.5 * predicted["tpot"]["mean"]
