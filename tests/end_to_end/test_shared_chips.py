"""Several models on one chip, decided against chips of their own; and chips of which a replica takes one device of two."""

import tomllib

import pytest

import tokenmill as tm
from tokenmill import data
from tokenmill.simulate import Options, simulate
from tokenmill.simulate_load import generated

FILE = data.path("problems") / "shared-chips.toml"
OWN = [(f"workload.{name}.layout.chip_share", "1") for name in ("chat", "code")]


def solved(*overrides):
    plan = tm.solve(tm.load_problem(FILE, list(overrides)))
    assert plan.status == "optimal", plan.infeasible
    assert plan.audit.passed
    return plan


@pytest.mark.slow
def test_two_small_models_stand_on_one_card_and_keep_their_limits():
    shared, apart = solved(), solved(*OWN)
    assert sum(item.chips for item in shared.purchases) == 1
    assert sum(item.chips for item in apart.purchases) == 2
    assert shared.cost.total == pytest.approx(apart.cost.total / 2)
    pools = [pool for work in shared.workloads.values() for pool in work.pools]
    assert sum(pool.chips for pool in pools) <= 1
    assert sum(pool.predicted["memory"]["capacity"] for pool in pools) <= 80 * 2**30
    for pool in pools:
        assert pool.predicted["memory"]["weights"] > 6e9  # each holds its own model
        assert pool.predicted["ttft"]["p95"] <= 2
        assert pool.predicted["tpot"]["p95"] <= 0.06


@pytest.mark.slow
def test_a_limit_that_a_part_cannot_keep_asks_for_a_card_each():
    """Reading 6.4 GB of weights takes 2 ms of a card's 3.35 TB/s, and more of a part of it: at 5 ms a token each needs its own."""
    limits = [(f"workload.{name}.slo.tpot.p95", '"5 ms"') for name in ("chat", "code")]
    plan = solved(*limits)
    assert sum(item.chips for item in plan.purchases) == 2


@pytest.mark.slow
def test_a_share_that_is_no_half_of_a_half_is_refused_in_words():
    plan = tm.solve(tm.load_problem(FILE, [("workload.chat.layout.chip_share", "0.4")]))
    assert plan.status == "infeasible"
    assert any("shared by halves" in short.limit or "share" in short.limit for short in plan.infeasible)


def test_a_replica_on_one_of_two_devices_of_a_chip_takes_half_of_it():
    plan = tm.solve(
        tm.load_problem(
            {
                "hardware": {"systems": ["trn1-32xlarge"]},
                "workload": [
                    {
                        "name": "chat", "stage": "serving", "model": "qwen3-0.6b", "layout": {"tp": 1, "pp": 1},
                        "demand": {"requests_per_second": 5, "input_tokens": 300, "output_tokens": 100},
                        "engine": {"disaggregated": False, "chunk": 512},
                    }
                ],
            }
        )
    )  # fmt: skip
    (pool,) = plan.workloads["chat"].pools
    assert plan.audit.passed
    assert pool.chips == pool.replicas / 2


@pytest.mark.slow
def test_an_embedder_shares_the_card_of_two_chats():
    third = {
        "name": "search", "stage": "embedding", "model": "bge-m3", "layout": {"chip_share": [1, 0.5, 0.25]},
        "demand": {"requests_per_second": 20, "input_tokens": 300}, "slo": {"latency": {"p95": 0.2}},
    }  # fmt: skip
    given = tomllib.loads(FILE.read_text(encoding="utf-8"))
    for workload in given["workload"]:
        workload["slo"] = {"ttft": {"p95": 2.0}, "tpot": {"p95": 0.06}}
    plan = tm.solve(tm.load_problem({**given, "workload": [*given["workload"], third]}))
    assert plan.audit.passed
    assert sum(item.chips for item in plan.purchases) == 1
    (pool,) = plan.workloads["search"].pools
    assert pool.predicted["latency"]["p95"] <= 0.2


@pytest.mark.slow
def test_a_replay_on_a_part_of_a_chip_takes_as_long_as_the_plan_says():
    plan = solved(("workload.chat.layout.chip_share", "0.25"), ("workload.code.layout.chip_share", "0.25"))
    served = simulate(plan, generated(plan, "chat", 400, seed=3), options=Options(workload="chat"))
    (pool,) = plan.workloads["chat"].pools
    assert served.tpot["p50"] == pytest.approx(pool.predicted["tpot"]["p50"], rel=0.15)
