"""Time of computed, cached and answer tokens apart, by hand on an ideal device."""

import pytest

from sample_leaves import IDEAL, dense
from serving_samples import evaluate, serving_values
from tokenmill_models.checks import dimension_failures, route_failures
from tokenmill_models.serving import STAGE

HEADS, WIDTH, LAYERS = 16, 128, 24
SMALL = dense(2048, HEADS, 4, WIDTH, 8192, LAYERS, 32000)
PLAIN = {origin.replace(".", "__"): value for origin, value in IDEAL.items() if "[" not in origin}
ROLES = {role.name: role for role in STAGE.roles(SMALL)}
PEAK = 1e15  # of the device at 16 bits, all of which attention reaches here


def found(name, **given):
    return evaluate(ROLES[name], SMALL, **PLAIN, **given)


def attending(tokens, keys):
    """Scores and mixing: two products of a multiply and an add for every head, query, key and element of a head."""
    return LAYERS * 2 * 2 * HEADS * WIDTH * tokens * keys / PEAK


def test_cached_tokens_cost_the_attention_that_sees_them():
    """1600 tokens are computed of 8000; each sees all 6400 cached ones: attention to them, and nothing else of the pass."""
    given = {"request__input_tokens": 8000.0, "input__demand__prefix_cache_hit": 0.8, "axis__tp": 1.0}
    one = found("prefill", **given)
    by_hand = attending(1600, 6400)
    assert one["cached_time_prompt"] == pytest.approx(by_hand, rel=1e-9)
    assert one["cached_share"] == pytest.approx(by_hand / one["prompt_time"])
    mixed = found("mixed", **given)
    assert mixed["cached_time_full"] == pytest.approx(by_hand * mixed["prefill_carried"] / 1600, rel=1e-9)
    assert mixed["cached_share"] + (mixed["prompt_share"] - mixed["cached_share"]) + mixed["answer_share"] == (
        pytest.approx(1)
    )
    assert 0 < mixed["cached_share"] < mixed["prompt_share"] < 1


def test_nothing_cached_has_no_bill():
    for name in ("mixed", "prefill", "decode"):
        assert found(name)["cached_share"] == 0


@pytest.mark.parametrize("hit", [0.3, 0.99])
def test_a_pass_lengthens_by_what_it_attends_to(hit):
    """The same 1000 tokens computed, alone or after a cached context: the pass is longer by the attention to the context, no more."""
    tokens = 1000 / (1 - hit)
    after = found("prefill", request__input_tokens=tokens, input__demand__prefix_cache_hit=hit)
    alone = found("prefill", request__input_tokens=1000.0)
    assert after["T_prompt"] - alone["T_prompt"] == pytest.approx(after["cached_time_prompt"], rel=1e-6)


@pytest.mark.parametrize("name", ["mixed", "prefill", "decode"])
def test_every_definition_has_its_dimension_and_two_routes_agree(name):
    values = serving_values(ROLES[name], SMALL, input__demand__prefix_cache_hit=0.7)
    assert dimension_failures(ROLES[name].graph, values) == []
    assert route_failures(ROLES[name].graph, values) == []
