"""A prefix cache outside the chips, by hand: what is read back, how long its link takes, and when computing anew is faster."""

import pytest

import tokenmill as tm
from sample_leaves import dense
from serving_samples import evaluate, serving_values
from tokenmill import data
from tokenmill.simulate import simulate
from tokenmill.simulate_load import generated
from tokenmill_models.checks import dimension_failures, route_failures
from tokenmill_models.serving import STAGE

SMALL = dense(2048, 16, 4, 128, 8192, 24, 32000)
TOKEN = 24 * 2 * 4 * 128 * 2
LINK = 1e10
GIVEN = {"input__engine__cache_store__tokens": 1e6, "input__engine__cache_store__price": 1e-16}


def staffed(rate):
    return {role.name: role for role in STAGE.staffed(SMALL, {}, {"engine.cache_store.bandwidth": rate})}


READS, BARE = staffed(LINK), staffed(None)


def found(roles=READS, name="mixed", link=LINK, hit=0.6, **given):
    values = {"input__engine__cache_store__bandwidth": link, **GIVEN} if roles is READS else {}
    return evaluate(roles[name], SMALL, **{"input__demand__prefix_cache_hit": hit, **values, **given})


@pytest.mark.parametrize("name", ["mixed", "prefill"])
def test_six_tenths_of_a_prompt_are_read_back_over_a_link_that_others_use_too(name):
    one, bare = found(name=name), found(BARE, name)
    alone = 600 * TOKEN / LINK
    busy = one["rate"] * alone
    assert one["rate"] == bare["rate"]
    assert one["reload_alone"] == pytest.approx(alone)
    assert one["reload_share"] == pytest.approx(busy)
    assert one["reload_time"] == pytest.approx(alone / (1 - min(busy, 0.999)))
    for word in ("mean", "p50", "p95", "p99"):  # all prompts are of one length here
        assert one[f"ttft_{word}"] - bare[f"ttft_{word}"] == pytest.approx(one["reload_time"])


def test_ranks_read_their_own_parts_at_once():
    """Two tensor ranks hold half of the heads each, two stages half of the layers."""
    for given in ({"axis__tp": 2.0}, {"axis__pp": 2.0}):
        assert found(**given)["reload_alone"] == pytest.approx(300 * TOKEN / LINK)


def test_a_prompt_twice_as_long_reads_twice_as_much():
    given = {"request__input_tokens__p95": 2000.0, "request__input_tokens__cv": 0.5}
    for name in ("mixed", "prefill"):
        one, bare = found(name=name, **given), found(BARE, name, **given)
        assert one["ttft_p95"] - bare["ttft_p95"] == pytest.approx(2 * one["reload_time"])


def test_a_slow_link_takes_longer_than_computing_anew():
    fast, slow = found(link=1e14), found(link=1e6)
    assert fast["reload_longer"] == 0
    assert slow["reload_longer"] == pytest.approx(slow["reload_time"] - slow["recompute_time"])
    assert slow["reload_longer"] > 0
    assert slow["recompute_time"] == fast["recompute_time"] > 0


def test_what_is_kept_and_what_that_costs():
    one = found()
    assert one["cache_kept"] == pytest.approx(1e6 * TOKEN)
    assert one["cache_cost"] == pytest.approx(1e6 * TOKEN * 1e-16)


def test_a_link_carries_no_more_than_its_time_and_pools_that_write_answers_read_nothing():
    (rule,) = (rule for rule in READS["mixed"].rules if rule.name == "cache_store")
    assert (rule.kind, str(rule.left), rule.right) == ("at_most", "reload_share", 1)
    assert READS["decode"].figures.keys() == BARE["decode"].figures.keys()


@pytest.mark.parametrize("name", ["mixed", "prefill"])
def test_every_definition_has_its_dimension_and_two_routes_agree(name):
    role = READS[name]
    values = serving_values(role, SMALL, input__engine__cache_store__bandwidth=LINK, **GIVEN)
    assert not dimension_failures(role.graph, values)
    assert not route_failures(role.graph, values)


def test_the_simulation_reads_back_too():
    file, key = data.path("problems") / "stored-prefixes.toml", "workload.agents.engine.cache_store.bandwidth"
    plans = [tm.solve(tm.load_problem(file, [(key, f'"{rate}"')])) for rate in ("25 GB/s", "1e9 GB/s")]
    kept = [plan.workloads["agents"].pools[0].predicted["cache_store"]["reload"] for plan in plans]
    slow, fast = (simulate(plan, generated(plans[0], "agents", 200)) for plan in plans)
    assert slow.ttft["mean"] - fast.ttft["mean"] == pytest.approx(kept[0] - kept[1])
    assert slow.e2e["p95"] - fast.e2e["p95"] == pytest.approx(kept[0] - kept[1])
    assert slow.tpot["mean"] == pytest.approx(fast.tpot["mean"])


def test_conversations_kept_in_host_memory():
    """The problem file: 18 000 tokens of 2·32·8·128·2 B over 25 GB/s, and ten million kept at 0.21 USD a GB and month."""
    (pool,) = tm.solve(tm.load_problem(data.path("problems") / "stored-prefixes.toml")).workloads["agents"].pools
    kept = pool.predicted["cache_store"]
    alone = 18_000 * 131_072 / 25e9
    rate = pool.schedule[0].rate / pool.replicas
    assert kept["reload"] == pytest.approx(alone / (1 - rate * alone), rel=0.02)
    assert kept["bytes"] == 1e7 * 131_072
    assert kept["cost"] * 3600 == pytest.approx(1310.72 * 0.21 / 730, rel=0.01)
    assert kept["recompute"] > 5 * kept["reload"]
    assert kept["longer"] == 0
