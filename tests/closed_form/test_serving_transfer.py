"""The cache of a prompt between split pools: its time by hand, and what it adds to the token times."""

import pytest

from sample_leaves import dense
from serving_samples import evaluate
from tokenmill_models.serving import roles
from tokenmill_models.serving_transfer import by_layer

SMALL = dense(2048, 16, 4, 128, 8192, 24, 32000)
ROLES = {role.name: role for role in roles(SMALL)}
CACHE = 1000 * 2 * 24 * 4 * 128 * 2  # prompt tokens · keys and values · layers · heads · width · bytes
LINK = {"group__transfer__n1": 2.0, "group__transfer__pair1": 25e9, "group__transfer__alpha1": 5e-6}
FABRIC = 0.8  # share of the network's rate in sample_leaves


def found(role="decode", **given):
    return evaluate(ROLES[role], SMALL, **{**LINK, **given})


def test_transfer_takes_the_bytes_over_the_link_and_each_rank_carries_its_share():
    one = found()
    assert one["kv_share"] == CACHE
    assert one["T_kv_transfer"] == pytest.approx(CACHE / (25e9 * FABRIC) + 5e-6)
    assert found(axis__tp=4.0)["T_kv_transfer"] == pytest.approx(CACHE / 4 / (25e9 * FABRIC) + 5e-6)


def test_transfer_is_spread_over_the_answer_and_lengthens_the_whole():
    """201 answer tokens: 200 after the first, which the prefill pool emits."""
    far, near = found(), found(group__transfer__pair1=1e15, group__transfer__alpha1=0.0)
    added = far["T_kv_transfer"] - near["T_kv_transfer"]
    assert added == pytest.approx(CACHE / (25e9 * FABRIC), rel=0.01)
    for word in ("mean", "p50", "p95", "p99"):
        assert far[f"tpot_{word}"] - near[f"tpot_{word}"] == pytest.approx(added / 200)
    assert far["written_mean"] - near["written_mean"] == pytest.approx(added)
    assert far["rate"] == near["rate"]


def test_longer_prompts_travel_longer():
    long = found(request__input_tokens__p95=3000.0)
    assert long["tpot_p95"] - long["tpot_p50"] == pytest.approx(2 * long["T_kv_transfer"] / 200 + long["W_slot_p95"] / 200 - long["W_slot_p50"] / 200)  # fmt: skip


def test_layer_by_layer_only_the_last_layer_is_left():
    assert found(input__engine__transfer_by_layer=1.0)["kv_delay"] == pytest.approx(found()["T_kv_transfer"] / 24)


@pytest.mark.parametrize(("rate", "kept"), [(25e9, True), (1e6, False)])
def test_layer_by_layer_asks_that_the_link_keeps_pace_with_the_prompt(rate, kept):
    role = ROLES["prefill"]
    (rule,) = [rule for rule in role.rules if rule.name == "transfer"]
    one = found("prefill", group__transfer__pair1=rate)
    assert (one[str(role.graph.formulas[rule.right].symbol)] >= one["T_kv_transfer"]) is kept
    assert rule.left.subs(by_layer, 0) == 0
