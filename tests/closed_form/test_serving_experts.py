"""The fullest expert rank against draws at random, and answers that must be ordered."""

from functools import cache

import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sample_leaves import dense, expert
from serving_samples import evaluate
from tokenmill_models.inference_experts import largest_of
from tokenmill_models.serving import roles

SMALL = dense(2048, 16, 4, 128, 8192, 24, 32000)
WIDE = expert(512, 8, 8, 64, 128, 256, 8, 256, 2, 1, 1000)


@cache
def role_of(shape, name):
    return next(role for role in roles({"dense": SMALL, "experts": WIDE}[shape]) if role.name == name)


def drawn(experts, active, tokens, ranks, trials=400):
    """Mean over trials of the most experts that a rank reads, and of the most pairs over the mean."""
    random = np.random.default_rng(3)
    read, pairs = [], []
    for _ in range(trials):
        chosen = np.argsort(random.random((tokens, experts)), axis=1)[:, :active]
        counts = np.bincount(chosen.ravel(), minlength=experts).reshape(ranks, -1)
        read.append((counts > 0).sum(axis=1).max())
        pairs.append(counts.sum(axis=1).max() / (tokens * active / ranks))
    return np.mean(read), np.mean(pairs)


@pytest.mark.parametrize(("count", "exact"), [(8, 1.4236), (32, 2.0697), (128, 2.5946)])
def test_largest_of_normal_values(count, exact):
    """Exact means of the largest of n normal values (Harter 1961, Biometrika 48, table 1)."""
    assert float(largest_of(sp.Integer(count))) == pytest.approx(exact, rel=0.08)


def test_one_rank_is_the_mean():
    assert largest_of(sp.Integer(1)) == 0


@pytest.mark.parametrize(("ranks", "tokens"), [(32, 8), (32, 64), (8, 8), (8, 128)])
def test_fullest_rank_against_draws(ranks, tokens):
    """256 experts, 8 a token: 8 tokens over 32 ranks read 4.5 experts on the fullest rank against a mean of 1.8."""
    batch = float(tokens)
    found = evaluate(
        role_of("experts", "decode"), WIDE, axis__attention_dp=float(ranks), axis__ep=float(ranks), axis__batch=batch
    )
    read, pairs = drawn(256, 8, tokens, ranks)
    assert found["routed_plain_1"] == pytest.approx(max(tokens, ranks))  # a rank has a sequence at least
    if tokens >= ranks:
        assert found["touched_plain_1"] == pytest.approx(read, rel=0.12)
        assert found["expert_load_plain_1"] == pytest.approx(pairs, rel=0.12)


def test_fullest_rank_of_few_tokens():
    """One attention group of 32 ranks with 8 sequences: the case that DeepSeek's expert layout meets."""
    one = expert(512, 32, 32, 64, 128, 256, 8, 256, 2, 1, 1000)
    role = next(role for role in roles(one) if role.name == "decode")
    found = evaluate(role, one, axis__tp=32.0, axis__ep=32.0, axis__batch=8.0)
    assert found["touched_plain_1"] == pytest.approx(4.5, rel=0.05)


FAST = settings(max_examples=25, deadline=None)


@FAST
@given(batch=st.integers(1, 200), faster=st.floats(1.0, 4.0))
def test_more_bandwidth_never_slows(batch, faster):
    one, two = (
        evaluate(role_of("dense", "mixed"), SMALL, axis__batch=float(batch), chip__bandwidth=width)
        for width in (3e12, 3e12 * faster)
    )
    assert two["rate"] >= one["rate"] * (1 - 1e-9)
    assert two["tpot_mean"] <= one["tpot_mean"] * (1 + 1e-9)


@FAST
@given(prompt=st.floats(16, 8000), answer=st.floats(2, 2000), batch=st.integers(1, 500), hit=st.floats(0, 0.9))
def test_figures_are_finite_and_ordered(prompt, answer, batch, hit):
    found = evaluate(
        role_of("dense", "mixed"), SMALL, request__input_tokens=prompt, request__output_tokens=answer,
        axis__batch=float(batch), input__demand__prefix_cache_hit=hit,
    )  # fmt: skip
    assert all(np.isfinite(value) for value in found.values())
    assert 0 < found["mfu"] < 1
    assert 0 < found["mbu"] < 1
    assert 100 <= found["power_rank"] <= 700
    assert found["T_plain"] <= found["tpot_mean"] <= found["T_full"] * (1 + 1e-12)
    for name in ("ttft", "e2e"):
        assert found[f"{name}_p50"] <= found[f"{name}_p95"] <= found[f"{name}_p99"]


@FAST
@given(batch=st.integers(1, 200), hit=st.floats(0, 0.8))
def test_a_prefix_cache_never_lowers_the_rate(batch, hit):
    without, cached = (
        evaluate(role_of("dense", "mixed"), SMALL, axis__batch=float(batch), input__demand__prefix_cache_hit=share)
        for share in (0.0, hit)
    )
    assert cached["rate"] >= without["rate"] * (1 - 1e-9)


@pytest.mark.parametrize(("ranks", "tokens"), [(8, 8), (8, 128), (32, 64)])
def test_the_mean_rank_reads_the_mean_of_the_draws(ranks, tokens):
    """Chips draw for what all ranks read, not for what the fullest does: 256 experts, each left out by a token with 248/256."""
    found = evaluate(
        role_of("experts", "decode"),
        WIDE,
        axis__attention_dp=float(ranks),
        axis__ep=float(ranks),
        axis__batch=float(tokens),
    )
    mean = 256 / ranks * (1 - (1 - 8 / 256) ** tokens)
    assert found["unread_plain_1"] == pytest.approx(1 - mean / found["touched_plain_1"])
    assert 0 < found["spare_plain"] < found["moved_plain"]


def test_experts_in_eight_bits_and_attention_feed_matrix_units_for_as_long_as_they_run():
    """Eight sequences: all else is bound by memory. In 16 bits experts feed them not at all, in 8 for their whole time."""
    role, counts = role_of("experts", "decode"), [kind.count for kind in WIDE.layers]
    fed = {width: evaluate(role, WIDE, axis__batch=8.0, precision__experts=width) for width in (2.0, 1.0)}
    for width, found in fed.items():
        attention = sum(count * found[f"core_plain_{i}"] for i, count in enumerate(counts))
        assert found["pipes_plain"] - attention == pytest.approx(
            (width < 2) * counts[1] * found["expert_plain_1"], abs=1e-12
        )
    assert fed[1.0]["expert_plain_1"] > 0
