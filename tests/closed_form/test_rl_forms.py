"""Closed forms of reinforcement learning and of a model's life, each against a count or sum made here."""

import math

import numpy as np
import pytest

import tokenmill_models.closed_lifetime
import tokenmill_models.closed_rl  # noqa: F401
from tokenmill_models.compile import constants, exact
from tokenmill_models.formula import library

DAY = 86400.0


def value(name: str, **given: float) -> float:
    formula = library()[name]
    symbols = formula.expr.free_symbols
    known = {**constants(symbols), **given}
    return float(exact(formula.rounded, {symbol: known[symbol.name] for symbol in symbols}))


def test_a_synchronous_step_is_the_sum_over_token_indices() -> None:
    lengths = [7, 3, 12, 5, 9, 30, 4, 10]
    one, every = 0.010, 0.024
    count = len(lengths)
    steps = [sum(length > j for length in lengths) for j in range(max(lengths))]
    summed = sum(one + (r - 1) * (every - one) / (count - 1) for r in steps)
    given = {
        "step_time_one": one,
        "step_time_all": every,
        "rl_sequences": count,
        "answer_tokens_mean": sum(lengths) / count,
        "answer_most": max(lengths),
    }
    assert value("rl.synchronous_time", **given) == pytest.approx(summed, rel=1e-12)
    # neither the mean answer nor the longest at a full batch
    assert sum(lengths) / count * every < summed < max(lengths) * every
    assert value("rl.tail_factor", **given) == pytest.approx(summed / (sum(lengths) / count * every))


def test_the_balanced_split_is_the_best_of_all_splits() -> None:
    write, train, chips = 3000.0, 1000.0, 64
    shares = np.arange(1, chips) / chips
    times = np.maximum(write / (shares * chips), train / ((1 - shares) * chips))
    best = shares[int(np.argmin(times))]
    assert value("rl.write_share_of_chips", write_chip_time=write, train_chip_time_step=train) == pytest.approx(best)
    assert value(
        "rl.balanced_step", write_chip_time=write, train_chip_time_step=train, pools_chips=chips
    ) == pytest.approx(times.min())


def test_both_at_once_gain_at_most_a_factor_of_two() -> None:
    assert value("rl.asynchronous_gain", write_latency=60.0, train_step=60.0) == pytest.approx(2.0)
    assert value("rl.asynchronous_gain", write_latency=90.0, train_step=10.0) == pytest.approx(100 / 90)
    assert value("rl.writing_share", write_latency=90.0, train_step=10.0) == pytest.approx(0.9)
    assert value("rl.staleness_needed", write_latency=100.0, write_through=30.0) == math.ceil(100 / 30)


def test_weights_in_buckets_and_tensor_by_tensor() -> None:
    # 470 GB of Qwen3 235B, 50 GB/s a rank: eight ranks of a copy take 1.175 s at the whole wire
    assert value(
        "rl.weight_sync_sharded",
        weights_sent=470e9,
        sync_wire=50e9,
        sync_reached=1.0,
        sync_senders=64,
        sync_receivers=8,
    ) == pytest.approx(1.175)
    one = value(
        "rl.weight_sync_broadcast",
        weights_sent=470e9,
        sync_wire=50e9,
        sync_reached=1.0,
        sync_tensors_given=36_000,
        sync_each=1e-3,
    )
    assert one == pytest.approx(9.4 + 36.0)


def test_longer_answers_of_a_smaller_model_against_a_larger_one() -> None:
    # 70B against 8B: as many FLOPs at 8.75 times the tokens, or at 8.75 votes of the same length
    assert value("lifetime.equal_answer", answer_large=1000, N_large=70e9, N_small=8e9) == pytest.approx(8750)
    assert value(
        "lifetime.equal_votes", answer_large=1000, answer_small=1000, N_large=70e9, N_small=8e9
    ) == pytest.approx(8.75)
    assert value(
        "lifetime.equal_answer_price", answer_large=1000, price_large=2e-6, price_small=0.5e-6
    ) == pytest.approx(4000)
    assert value("lifetime.answer_price", votes=4, answer_small=1000, price_small=0.5e-6) == pytest.approx(2e-3)


def test_distillation_pays_after_as_many_tokens_as_its_work_is_worth() -> None:
    served = value("lifetime.distillation_pays", N_large=70e9, N_small=8e9, D_distilled=1e12)
    assert 2 * (70e9 - 8e9) * served == pytest.approx(6 * 8e9 * 1e12)
    labelled = value("lifetime.distillation_pays_labelled", N_large=70e9, N_small=8e9, D_distilled=1e12)
    assert 2 * (70e9 - 8e9) * labelled == pytest.approx((6 * 8e9 + 2 * 70e9) * 1e12)
    assert labelled > served


def test_money_crosses_over() -> None:
    # $10M of training, $1 a million tokens, 1e11 tokens a day: $100k a day, a hundred days
    given = {"train_cost": 10e6, "served_price": 1e-6}
    assert value("lifetime.cost_crossover", **given, tokens_per_second_served=1e11 / DAY) == pytest.approx(100)
    # eight runs in two years against serving at the same rate: 80M against 73M
    share = value(
        "lifetime.training_share", **given, retrainings=8, tokens_per_second_served=1e11 / DAY, horizon_time=730 * DAY
    )
    assert share == pytest.approx(80 / 153)
    rate = value("lifetime.even_rate", **given, retrainings=8, horizon_time=730 * DAY)
    assert rate * DAY == pytest.approx(80e6 / 730 / 1e-6)
