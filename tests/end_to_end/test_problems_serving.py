"""Problem files of serving, each held to its answer in words by figures with reasons of their own."""

import numpy as np
import pytest

import tokenmill as tm
from tokenmill import data
from tokenmill.imports.traces import Trace
from tokenmill.simulate import Options, simulate


def solved(name, *overrides):
    plan = tm.solve(tm.load_problem(data.path("problems") / f"{name}.toml", overrides))
    assert plan.status == "optimal", plan.infeasible
    return plan, plan.workloads["chat"].pools[0]


CLIENTS = "workload.chat.demand.arrivals.concurrency"


def test_speculation_pays_at_small_batch_and_ends_at_large():
    """4 tokens at acceptance 0.75 keep (1 - 0.75^5)/0.25 = 3.05 a step; draft and check take the rest of the gain."""
    _, chosen = solved("speculative-decoding")
    _, alone = solved("speculative-decoding", ("workload.chat.engine.speculative", '"none"'))
    assert chosen.settings["speculative"] == "draft"
    gain = alone.predicted["tpot"]["mean"] / chosen.predicted["tpot"]["mean"]
    assert 2.0 < gain < (1 - 0.75**5) / 0.25
    _, full = solved("speculative-decoding", (CLIENTS, "256"))
    assert full.settings["speculative"] == "none"


def test_speculation_gains_less_with_every_request_in_flight():
    """Checking five tokens of 64 sequences is 320 rows, past the ridge of fp8 weights: the gain is under a half, and above none."""
    gains = []
    for clients in ("16", "64"):
        _, chosen = solved("speculative-decoding", (CLIENTS, clients))
        _, alone = solved("speculative-decoding", (CLIENTS, clients), ("workload.chat.engine.speculative", '"none"'))
        assert chosen.settings["speculative"] == "draft"
        gains.append(alone.predicted["tpot"]["mean"] / chosen.predicted["tpot"]["mean"])
    assert gains[0] > 1.5 > gains[1] > 1


def test_a_draft_that_is_never_right_only_costs():
    given = '{ draft = "llama-3.2-1b", gamma = 4, acceptance = 0.0 }'
    _, wrong = solved("speculative-decoding", ("workload.chat.engine.speculative", given))
    _, alone = solved("speculative-decoding", ("workload.chat.engine.speculative", '"none"'))
    assert wrong.predicted["tpot"]["mean"] > alone.predicted["tpot"]["mean"]
    assert wrong.predicted["memory"]["weights"] == pytest.approx(
        alone.predicted["memory"]["weights"] + 1.236e9 / 4, rel=2e-3
    )


def test_pages_fit_several_times_the_sequences_of_contiguous_caches():
    """A 40 GB device at nine tenths holds 26 GB of weights; a token's cache is 2·40 layers·5120·2 B = 0.82 MB."""
    _, paged = solved("paged-cache")
    _, reserved = solved("paged-cache", ("workload.chat.engine.reserved_tokens", "2048"))
    room = reserved.predicted["memory"]["kv"]
    assert reserved.predicted["max_batch"] == room // (2048 * 2 * 40 * 5120 * 2)
    assert paged.predicted["max_batch"] > 5 * reserved.predicted["max_batch"]
    assert 2 < paged.predicted["tokens_per_second"] / reserved.predicted["tokens_per_second"] < 6
    assert reserved.replicas > 2 * paged.replicas


@pytest.mark.slow
def test_a_prefix_held_once_makes_room_and_saves_its_prompts():
    """Llama 3.1 8B caches 2·32·8·128·2 B = 131 072 B a token; sequences hold 6400 + 400 (1 + cv²)/2 tokens, 6000 of them shared."""
    _, shared = solved("shared-prefix")
    _, alone = solved("shared-prefix", ("workload.chat.demand.prefix.tokens", "0"))
    room, token = shared.predicted["memory"]["kv"], 131072
    context = room / (alone.predicted["max_batch"] + 0.5) / token
    assert 6600 < context < 7000
    assert shared.predicted["max_batch"] == pytest.approx((room / token - 6000) / (context - 6000), rel=0.06)
    assert shared.predicted["max_batch"] > 5 * alone.predicted["max_batch"]
    assert shared.replicas < 0.7 * alone.replicas


@pytest.mark.slow
def test_batch_answers_fill_the_troughs_of_a_chat():
    """The chips that the chat leaves idle, slice by slice, times what one carries: below that nothing is bought, above it something is."""
    file = data.path("problems") / "batch-in-troughs.toml"
    rate = "workload.suite.demand.requests_per_second"
    plan = tm.solve(tm.load_problem(file))
    (chat,) = plan.workloads["chat"].pools
    chips = sum(bought.chips for bought in plan.purchases)
    idle = sum(0.5 * (chips - row.replicas) for row in chat.schedule)
    (bulk,) = plan.workloads["suite"].pools
    each = bulk.predicted["tokens_per_second"] / 1000
    assert plan.workloads["suite"].totals["units"] == pytest.approx(50 * 365 * 86400)
    for asked, more in ((0.001, False), (0.97 * idle * each, False), (1.06 * idle * each, True)):
        other = tm.solve(tm.load_problem(file, [(rate, f"{asked:.4f}")]))
        assert (sum(bought.chips for bought in other.purchases) > chips) == more


@pytest.mark.slow
def test_a_replay_holds_a_shared_prefix_once():
    """100 requests at once on a card with room for 37 of their own: with 6000 of 6400 tokens shared all of them run, and none waits its turn."""
    plan, _ = solved("shared-prefix", ("workload.chat.demand.requests_per_second", "1.2"))
    count = 100
    together = Trace("at once", "generated", np.arange(count) * 1e-3, np.full(count, 6400.0), np.full(count, 200.0))
    served = simulate(plan, together, options=Options())
    (use,) = served.pools.values()
    bare, _ = solved(
        "shared-prefix",
        ("workload.chat.demand.requests_per_second", "1.2"),
        ("workload.chat.demand.prefix.tokens", "0"),
    )
    waited = simulate(bare, together, options=Options())
    assert served.refused == waited.refused == 0
    answer = 200 * served.tpot["p50"]  # whoever had no room would wait for an answer to end
    assert served.ttft["p95"] < answer / 2
    assert waited.ttft["p95"] > answer
    assert use.preemptions == 0
    assert use.prefix_hit == pytest.approx(6000 / 6400, rel=0.01)
