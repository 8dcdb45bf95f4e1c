"""Reference figures of serving and of the life of a model, each through the formula that `derive` prints.

Figures lc-* are of "The AI Lifecycle on Hardware" (2026), rf-* and ec-* of an essay on the two economies of training and
inference (2026), q-* of "From Raw FLOPs to Milliseconds" (2026), moe-01 of "From Training to Inference: A Beginner's Map" (2026).
"""

import pytest

from tokenmill_models import closed_lifecycle, closed_serving, money  # noqa: F401
from tokenmill_models.compile import constants, exact
from tokenmill_models.formula import library

HOUR, DAY, MINUTE = 3600.0, 86400.0, 60.0
H100 = {"F": 1979e12, "W": 3.35e12, "eta_F": 1.0, "eta_W": 1.0}
TRAIN_70B = 6 * 70e9 * 15e12 / (989e12 * 0.40)
# Llama 3.1 70B in FP8 with 16-bit KV: 2·80 layers·8 heads·128 wide·2 B a token
LLAMA = {"weight_bytes": 70.55e9, "kv_token_bytes": 327680.0, "context_tokens": 4096.0, "replica_devices": 8.0}


def value(name: str, **given: float) -> float:
    formula = library()[name]
    symbols = formula.expr.free_symbols
    known = constants(symbols) | given
    return float(exact(formula.expr, {symbol: known[symbol.name] for symbol in symbols}))


SERVE_8 = {"N_serve": 70e9, "F": 989e12, "serve_mfu": 0.08}
ROWS = [
    ("lc-03", "lifecycle.serving_chips", SERVE_8 | {"served_rate": 1e9 / DAY}, 491.518 / 24, 1e-5),
    *(
        (f"lc-04, lc-05 at {tokens:g}", "lifecycle.chip_time_crossover",
         {"train_chip_time": TRAIN_70B, "serve_chips": 2 * 70e9 * tokens / DAY / (989e12 * 0.08)}, days * DAY, 1e-6)
        for tokens, days in ((1e9, 9000), (1e10, 900), (1e11, 90), (1e12, 9))
    ),
    *(
        (f"lc-06 at {tokens:g}", "lifecycle.chip_time_crossover",
         {"train_chip_time": TRAIN_70B, "serve_chips": 2 * 70e9 * tokens / DAY / (989e12 * 0.20)}, days * DAY, 1e-6)
        for tokens, days in ((1e9, 22500), (1e10, 2250), (1e11, 225), (1e12, 22.5))
    ),
    ("lc-08", "lifecycle.crossover_shift", {"serve_mfu": 0.08, "train_mfu": 0.40}, 0.2, 1e-9),
    ("rf-01", "roofline.ridge", H100, 590.75, 1e-4),
    ("rf-02", "serving.ridge_share", H100 | {"batch_size": 1.0, "weight_width": 1.0}, 0.0033855, 1e-3),
    ("rf-03", "serving.compute_bound_batch", H100 | {"weight_width": 1.0}, 295.4, 1e-3),
    ("rf-04", "serving.bandwidth_gain", {"W": 3.35e12, "W_other": 4.8e12}, 1.4328, 1e-3),
    ("ec-03", "lifecycle.crossover_tokens_of_flops", {"C_train": 3.8e25, "N_serve": 4.05e11}, 4.69e13, 5e-3),
    ("ec-03 by 6ND", "lifecycle.crossover_tokens", {"N_train": 4.05e11, "N_serve": 4.05e11, "D_train": 15.6e12}, 4.69e13, 5e-3),
    ("ec-04", "lifecycle.crossover_multiple", {"N_train": 4.05e11, "N_serve": 4.05e11}, 3.007, 5e-3),
    ("ec-05", "lifecycle.time_to_tokens", {"served_tokens": 4.69e13, "served_rate": 6e9 / MINUTE}, 5.43 * DAY, 1e-2),
    ("ec-06", "lifecycle.time_to_tokens", {"served_tokens": 4.69e13, "served_rate": 3.2e15 / (730.5 * HOUR)}, 10.7 * HOUR, 1e-2),
    ("ec-07", "lifecycle.tasks_to_tokens", {"served_tokens": 4.69e13, "task_tokens": 4.3e4}, 1.09e9, 1e-2),
    ("ec-08", "serving.cost_per_million", H100 | LLAMA | {"batch_size": 1.0, "rent_price": 4 / HOUR}, 23.84, 5e-3),
    ("ec-09", "serving.cost_per_million", H100 | LLAMA | {"batch_size": 384.0, "rent_price": 4 / HOUR}, 0.51, 2e-2),
    ("ec-10", "serving.price_swing", LLAMA | {"batch_size": 384.0, "batch_small": 1.0}, 47.0, 2e-2),
    ("ec-11", "money.rent", {"chips": 226.75 * 8, "duration": DAY, "rent_price": 2 / HOUR}, 87072.0, 1e-6),
    ("ec-12", "money.margin_on_cost", {"revenue": 562027.0, "cost": 87072.0}, 5.45, 2e-3),
    ("ec-13", "serving.verify_overhead", H100 | LLAMA | {"drafted": 5.0, "N_active": 70.55e9}, 0.0135, 0.1),
    ("q-01, 8 bits", "serving.traffic_cut", {"weight_bits": 8.0}, 0.50, 1e-12),
    ("q-01, 4 bits", "serving.traffic_cut", {"weight_bits": 4.0}, 0.75, 1e-12),
    ("q-01, 4 bits with scale and zero a group of 128", "serving.traffic_cut", {"weight_bits": 4 + 20 / 128}, 0.74, 1e-3),
    ("q-02, least", "serving.speculative_gain", {"drafted": 5.0, "acceptance": 0.7, "draft_cost": 0.1}, 1.96, 1e-3),
    ("q-02, most", "serving.speculative_gain", {"drafted": 5.0, "acceptance": 0.8, "draft_cost": 0.1}, 2.46, 1e-3),
]  # fmt: skip


@pytest.mark.parametrize(("name", "formula", "given", "expected", "tolerance"), ROWS, ids=[row[0] for row in ROWS])
def test_reference_figure(name, formula, given, expected, tolerance):
    assert value(formula, **given) == pytest.approx(expected, rel=tolerance)


def test_the_ridge_is_far_above_decode_at_batch_1():
    """rf-03 is the inverse of rf-02."""
    share = value("serving.ridge_share", **H100, batch_size=1.0, weight_width=1.0)
    assert 1 / share == pytest.approx(295.4, rel=1e-3)


def test_batch_384_fits_and_is_near_the_most_that_fits():
    """ec-09: with 79.6 GiB a chip and u = 0.95 the batch fits; with 80e9 B and 0.9 only 376 do."""
    outside = {"activation_bytes": 0.0, "reserve_bytes": 0.0}
    assert value("serving.largest_batch", **LLAMA, **outside, M=79.6 * 2**30, memory_share=0.95) >= 384
    assert int(value("serving.largest_batch", **LLAMA, **outside, M=80e9, memory_share=0.9)) == 376


def test_the_advertised_gain_needs_capacity_beside_bandwidth():
    """rf-05: bandwidth gives 1.433 of the 1.9 of an H200 on Llama 2 70B; the larger batch must give the rest."""
    bandwidth = value("serving.bandwidth_gain", W=3.35e12, W_other=4.8e12)
    assert bandwidth < 1.9
    shared = {
        "weight_bytes": 69e9, "kv_token_bytes": 327680.0, "context_tokens": 2048.0, "memory_share": 0.9,
        "replica_devices": 1.0, "activation_bytes": 0.0, "reserve_bytes": 0.0,
    }  # fmt: skip
    capacity = value("serving.capacity_gain", **shared, M=79.6 * 2**30, M_other=140.4 * 2**30)
    assert bandwidth * capacity > 1.9
    small, large = (value("serving.largest_batch", **shared, M=size * 2**30) for size in (79.6, 140.4))
    assert large > 5 * small


def test_speculative_gain_over_the_stated_range():
    """q-02: gamma 4-5 and acceptance 0.7-0.8 give 1.96 to 2.46."""
    gains = [
        value("serving.speculative_gain", drafted=drafted, acceptance=acceptance, draft_cost=0.1)
        for drafted in (4.0, 5.0)
        for acceptance in (0.7, 0.8)
    ]
    assert round(min(gains), 2) >= 1.96
    assert round(max(gains), 2) <= 2.46


def test_paged_cache_doubles_throughput_at_a_typical_spread():
    """q-03: sequences of 600 tokens in the mean where 2048 are reserved (ShareGPT lengths, LLaMA 13B on an A100 40 GB)."""
    gain = value(
        "serving.paged_throughput_gain", reserved_tokens=2048.0, context_tokens=600.0, block_tokens=16.0, batch_size=8.0,
        weight_bytes=26e9, kv_token_bytes=819200.0,
    )  # fmt: skip
    assert gain >= 2


def test_all_experts_are_stored_and_few_are_computed():
    """moe-01: 2.8T parameters, 16 of 896 experts."""
    experts = {"experts": 896.0, "N_expert": 2.8e12 / 896, "N_outside_experts": 0.0}
    assert value("serving.moe_stored", **experts) == pytest.approx(2.8e12)
    assert value("serving.moe_computed", **experts, experts_active=16.0) == pytest.approx(2.8e12 * 16 / 896)


def test_training_work_of_a_mixture_follows_its_active_parameters():
    """lc-07: 37B active on 15T tokens take 3.33e24 FLOP; the crossover is still three times the corpus."""
    tokens = value("lifecycle.crossover_tokens", N_train=37e9, N_serve=37e9, D_train=15e12)
    assert tokens * 2 * 37e9 == pytest.approx(3.33e24, rel=1e-6)
