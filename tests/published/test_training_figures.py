"""Published figures of training, through the formulas that derive offers.

lc: The AI Lifecycle on Hardware (2026). ec, nw: essay on the two economies of training and inference (2026). tp: From Raw FLOPs to
Milliseconds (2026).
"""

import pytest

import tokenmill_models.reliability
import tokenmill_models.training_forms  # noqa: F401
from sample_leaves import dense
from tokenmill_models.compile import constants, exact
from tokenmill_models.formula import library
from training_samples import figures

H100 = 989e12  # FLOP/s, dense bf16


def value(name: str, **given: float) -> float:
    """A library formula at the given values of its symbols, as evaluated: with its rounding."""
    formula = library()[name]
    symbols = formula.expr.free_symbols
    known = {**constants(symbols), **given}
    return float(exact(formula.rounded, {symbol: known[symbol.name] for symbol in symbols}))


def test_lc_01_training_flops_of_a_70b_model() -> None:
    """6ND at 70e9 parameters, 15e12 tokens: 6.3e24 FLOP."""
    assert value("training.flops", N_train=70e9, D=15e12) == pytest.approx(6.3e24, rel=1e-6)


def test_lc_02_its_chip_hours_on_h100_at_40_percent() -> None:
    found = value("training.chip_hours", N_train=70e9, D=15e12, F=H100, mfu_given=0.40)
    assert found == pytest.approx(4.4236603e6, rel=1e-6)


def test_ec_01_training_flops_of_llama_405b() -> None:
    assert value("training.flops", N_train=405e9, D=15.6e12) == pytest.approx(3.79e25, rel=5e-3)


def test_ec_02_the_mfu_that_its_chip_hours_imply() -> None:
    """3.8e25 FLOP in 30.84e6 H100-hours: 0.346 over the whole run (Llama 3.1 model card)."""
    found = value("training.implied_mfu", N_train=405e9, D=15.6e12, F=H100, chip_hours_given=30.84e6)
    assert found == pytest.approx(0.346, rel=5e-3)


ADAM = {"b_w": 2.0, "b_g": 2.0, "b_opt": 12.0}  # 16-bit weights and gradients; 32-bit master copy and two moments


def test_ft_01_bytes_a_parameter_with_adam() -> None:
    assert value("training.bytes_per_parameter", **ADAM) == 16


def test_tp_01_a_70b_model_needs_several_chips_for_its_states() -> None:
    """16 B x 70e9 = 1.12e12 B: 14 chips of 80e9 B at the least."""
    assert value("training.chips_for_states", N_train=70e9, M=80e9, **ADAM) == 14


def test_nw_01_nvlink_against_the_nic_like_for_like() -> None:
    assert value("training.level_ratio", beta_inside=450e9, beta_outside=50e9) == 9


def test_goodput_of_a_slow_checkpoint() -> None:
    """Write 900 s, restart 600 s, failures every 3.1 h, Young's interval: 0.61, where the first order says 0.54."""
    given = {"delta_write": 900.0, "MTBF": 3.1 * 3600, "R_restart": 600.0}
    tau = value("reliability.young_interval", delta_write=900.0, MTBF=given["MTBF"])
    assert value("reliability.goodput", tau_given=tau, **given) == pytest.approx(0.61, abs=0.005)
    assert value("reliability.goodput_first_order", tau_given=tau, **given) == pytest.approx(0.54, abs=0.005)


def test_failures_of_a_16384_chip_run() -> None:
    """419 unplanned interruptions in 54 days on 16384 chips: one every 3.09 h (Llama 3, arXiv:2407.21783, section 3.3.4)."""
    rate = 419 / (16384 * 54 * 86400)
    assert value("reliability.mtbf", n_chips=16384, lambda_chip=rate) / 3600 == pytest.approx(3.09, abs=0.005)


@pytest.mark.parametrize(("p", "m", "v", "share"), [(8, 8, 1, 7 / 8), (8, 64, 1, 7 / 64), (8, 8, 4, 7 / 32)])
def test_bubble_of_equal_stages(p: int, m: int, v: int, share: float) -> None:
    """(p-1)/(v·m): Narayanan et al. 2021, section 2.2."""
    assert value("training.bubble", p=p, m_given=m, v=v) == pytest.approx(share)


def test_activations_of_gpt3_175b_before_and_after() -> None:
    """Korthikanti et al. 2022, section 5: at 175B (96 heads, 12288 wide, 2048 tokens) 5as/h is 80; selective cuts it to 34."""
    shape = {"s": 2048.0, "b": 1.0, "h_hidden": 12288.0}
    unit = 2048 * 12288
    none = value("training.activations_none", t=1.0, a_heads=96.0, **shape) / unit
    assert none == pytest.approx(34 + 80)
    assert value("training.activations_selective", t=1.0, **shape) / unit == 34


OLD_STACK = {
    "input.kernels.flash_attention": 0, "input.kernels.dropout": 1, "input.sequence_length": 2048, "engine.bucket": 0,
    "engine.accumulates": 1,  # the figure counts activations alone, no gradients beside those kept
}  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "p", "v", "b", "kept", "selective"),
    [
        (48, 6144, 64, 1, 1, 4, 59.25, 9.5625),  # the figure leaves the logits out: 0.5 GiB
        (96, 12288, 96, 8, 3, 1, 66.84375, 12.3515625),
        (105, 20480, 128, 35, 3, 1, 114.0234375, 23.076171875),
    ],
    ids=["22b", "175b", "530b"],
)
def test_activations_of_whole_models(
    layers: int, hidden: int, heads: int, p: int, v: int, b: int, kept: float, selective: float
) -> None:
    """Korthikanti et al. 2022, figure 1: GiB of activations of the fullest of eight tensor ranks."""
    arch = dense(hidden, heads, heads, hidden // heads, 4 * hidden, layers, 51200, gated=False)
    origins = {**OLD_STACK, "input.global_batch": 8 * p * b}
    layout = {"t": 8, "p": p, "v": v, "b": b, "q_i": float(v > 1), "z": 0}
    plain = figures(arch, origins, sp=0.0, **layout)["memory.activations"] / 2**30
    assert plain == pytest.approx(kept, rel=0.01)
    shared = figures(arch, origins, sp=1.0, r_s=1.0, **layout)["memory.activations"] / 2**30
    assert shared == pytest.approx(selective, rel=0.05 if p == 1 else 0.001)
