"""The reference figures that a formula alone gives, and an index that every one of the 42 is tested somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenmill.derive import derive

IDS = [
    "lc-01",
    "lc-02",
    "lc-03",
    "lc-04",
    "lc-05",
    "lc-06",
    "lc-07",
    "lc-08",
    "ft-01",
    "ft-02",
    "ft-03",
    "rl-01",
    "dl-01",
    "ed-01",
    "rf-01",
    "rf-02",
    "rf-03",
    "rf-04",
    "rf-05",
    "nw-01",
    "ec-01",
    "ec-02",
    "ec-03",
    "ec-04",
    "ec-05",
    "ec-06",
    "ec-07",
    "ec-08",
    "ec-09",
    "ec-10",
    "ec-11",
    "ec-12",
    "ec-13",
    "q-01",
    "q-02",
    "q-03",
    "tp-01",
    "moe-01",
    "ag-01",
    "ag-02",
    "an-01",
    "an-02",
]
ELSEWHERE = {
    "dl-01": "end_to_end/test_problems_data.py",
    "ag-02": "end_to_end/test_problems_data.py",
    "an-01": "unit/test_claim.py",
    "an-02": "unit/test_claim.py",
}
"""File under tests/ of figures whose tests do not name them."""


def value(name, **given):
    return derive(name).given(given).value


@pytest.mark.parametrize(
    ("id", "found", "expected", "tolerance"),
    [
        # The AI Lifecycle on Hardware (2026): 6ND at 40% of 989 TFLOP/s
        (
            "lc-02",
            lambda: value("training.chip_hours", N_train=70e9, D=15e12, F=989e12, mfu_given=0.40),
            4.4236603e6,
            1e-6,
        ),
        # essay on the two economies of training and inference (2026)
        ("ec-01", lambda: value("training.flops", N_train=405e9, D=15.6e12), 3.79e25, 5e-3),
        (
            "ec-02",
            lambda: value(
                "training.implied_mfu", N_train=405e9, D=3.8e25 / 6 / 405e9, F=989e12, chip_hours_given=30.84e6
            ),
            0.346,
            5e-3,
        ),
        ("nw-01", lambda: value("training.level_ratio", beta_inside=450e9, beta_outside=50e9), 9.0, 1e-12),
        # bf16 weights and gradients, 32-bit master and two moments
        ("ft-01", lambda: value("training.bytes_per_parameter", b_w=2.0, b_g=2.0, b_opt=12.0), 16.0, 0.0),
    ],
)
def test_what_a_formula_alone_gives(id, found, expected, tolerance):
    assert found() == pytest.approx(expected, rel=tolerance)


def test_seventy_billion_parameters_with_adam_do_not_fit_one_accelerator():
    """tp-01, From Raw FLOPs to Milliseconds (2026): 16 B x 70e9 = 1.12 TB; the largest chips of the catalogue hold a quarter."""
    from tokenmill.catalog import load_catalog

    largest = max(
        chip.capacity
        for chip in load_catalog().chips.values()
        if chip.memory and chip.maturity == "production" and chip.kind not in ("cpu", "soc")
    )
    assert value("training.chips_for_states", N_train=70e9, b_w=2.0, b_g=2.0, b_opt=12.0, M=largest) > 1


def test_cost_per_success_grows_without_end_as_success_falls():
    """ag-01: a loop of 10 dollars that fails costs 10/q a success."""
    for share in (0.5, 1e-3, 1e-9):
        assert value("agents.cost_per_success", attempt_cost=10.0, success_share=share) == pytest.approx(10 / share)


def test_every_reference_figure_is_tested_somewhere():
    tests = Path(__file__).parents[1]
    assert len(IDS) == len(set(IDS)) == 42
    here = {"lc-02", "ec-01", "ec-02", "nw-01", "ft-01", "tp-01", "ag-01"}
    text = "\n".join(file.read_text(encoding="utf-8") for file in tests.rglob("test_*.py") if file != Path(__file__))
    missing = [
        id for id in IDS if id not in text and id not in here and not (tests / ELSEWHERE.get(id, "none")).is_file()
    ]
    assert not missing
