"""A prefix that all prompts share, by hand: its cache is held once, its tokens are computed by nobody."""

from dataclasses import replace

import pytest

from sample_leaves import dense
from serving_samples import evaluate, serving_values
from tokenmill_models.checks import dimension_failures, route_failures
from tokenmill_models.serving import STAGE

SMALL = dense(2048, 16, 4, 128, 8192, 24, 32000)
WINDOWED = replace(SMALL, layers=tuple(replace(kind, mixer=replace(kind.mixer, window=256)) for kind in SMALL.layers))
TOKEN = 24 * 2 * 4 * 128 * 2
CACHED = 1000 + 201 / 2 + 16 / 2  # prompt, half of the answer, half a page
HELD = 3e9


def staffed(arch, tokens):
    return {role.name: role for role in STAGE.staffed(arch, {}, {"demand.prefix.tokens": tokens})}


SHARING, ALONE, PASSED = staffed(SMALL, 512.0), staffed(SMALL, 0.0), staffed(WINDOWED, 512.0)


def found(roles=SHARING, name="decode", arch=SMALL, tokens=512.0, count=1.0, **given):
    values = (
        {"input__demand__prefix__tokens": tokens, "input__demand__prefix__count": count} if roles is not ALONE else {}
    )
    return evaluate(roles[name], arch, input__engine__kv_memory=HELD, **values, **given)


@pytest.mark.parametrize(("tokens", "count"), [(512.0, 1.0), (512.0, 20.0), (520.0, 1.0)])
def test_more_sequences_fit_as_their_prefix_is_held_once(tokens, count):
    """Whole pages alone are shared: 520 tokens are 32 pages of 16, as 512 are."""
    one = found(tokens=tokens, count=count)
    assert one["kv_shared"] == pytest.approx(512 * TOKEN)
    assert one["max_batch"] == (HELD - count * 512 * TOKEN) // ((CACHED - 512) * TOKEN)
    assert found(ALONE)["max_batch"] == HELD // (CACHED * TOKEN)
    assert one["kv_tokens"] == found(ALONE)["kv_tokens"]  # what the engine prints is room, whoever shares it


def test_running_sequences_take_what_is_theirs_alone_and_the_prefix_once():
    one = found(axis__batch=48.0)
    assert one["memory_cached"] == pytest.approx((48 * (CACHED - 512) + 512) * TOKEN)


def test_every_group_of_ranks_holds_the_prefix():
    one = found(axis__batch=48.0, axis__attention_dp=2.0)
    assert one["memory_cached"] == pytest.approx((24 * (CACHED - 512) + 512) * TOKEN)
    assert one["max_batch"] == 2 * ((HELD - 512 * TOKEN) // ((CACHED - 512) * TOKEN))


def test_the_prefix_is_found_in_the_cache_or_more_where_more_is_stated():
    assert found(name="prefill")["prompt_computed"] == pytest.approx(1000 - 512)
    assert found(name="prefill", input__demand__prefix_cache_hit=0.7)["prompt_computed"] == pytest.approx(300)
    assert found(name="mixed")["cached_tokens"] == pytest.approx(512)


def test_a_window_that_has_passed_the_prefix_shares_nothing():
    assert found(PASSED, arch=WINDOWED)["kv_shared"] == pytest.approx(0.0, abs=1e-3)


def test_a_contiguous_cache_shares_nothing():
    one = found(input__engine__reserved_tokens=2048.0)
    assert one["kv_shared"] == 0
    assert one["max_batch"] == HELD // (2048 * TOKEN)


@pytest.mark.parametrize("name", ["mixed", "prefill", "decode"])
def test_every_definition_has_its_dimension_and_two_routes_agree(name):
    role = SHARING[name]
    values = serving_values(role, SMALL, input__demand__prefix__tokens=512.0, input__demand__prefix__count=3.0)
    assert dimension_failures(role.graph, values) == []
    assert route_failures(role.graph, values) == []


def test_a_prefix_longer_than_its_prompts_leaves_no_layout():
    for role in SHARING.values():
        (rule,) = (rule for rule in role.rules if rule.name == "prefix")
        assert rule.cure == "demand.prefix.tokens"
        assert str(rule.left) == "prefix_tokens"
        assert rule.kind == "at_most"
    assert not any(rule.name == "prefix" for role in ALONE.values() for rule in role.rules)
