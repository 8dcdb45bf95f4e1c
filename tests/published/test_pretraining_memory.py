"""Memory that devices showed in pretraining: constants of a framework found again, and the sweep of BLOOM on halves left out."""

import numpy as np
import pytest

from tokenmill.calibration_fit import left_out
from tokenmill.calibration_reserved import Shown, constants_shown, fit_shown, residuals_shown
from tokenmill.validate import score


def runs(peak: np.ndarray, share: float, reserve: float) -> Shown:
    return Shown(
        peak, peak * (1 + share) + reserve, np.array(["megatron-deepspeed"] * peak.size), np.arange(peak.size) % 2 == 0
    )


def test_fragmentation_and_reserve_of_a_framework_are_found_again() -> None:
    found = runs(np.linspace(20e9, 60e9, 20), 0.1, 5e9)
    for part in (found.even, ~found.even):
        share, reserve = fit_shown(found, part)["megatron-deepspeed"]
        assert share == pytest.approx(0.1, rel=1e-3)
        assert reserve == pytest.approx(5e9, rel=1e-3)
    for values in constants_shown(found).values():
        assert {(one.constant, round(one.value, 3 if one.value < 1 else -6)) for one in values} == {
            ("fragmentation", 0.1), ("reserve_train", 5e9),
        }  # fmt: skip


def test_one_half_does_not_know_the_other_and_few_runs_tell_nothing() -> None:
    found = runs(np.linspace(20e9, 60e9, 20), 0.1, 5e9)
    spoilt = Shown(found.peak, np.where(found.even, found.bytes, 2 * found.bytes), found.engines, found.even)
    assert fit_shown(spoilt, spoilt.even)["megatron-deepspeed"] == pytest.approx(
        fit_shown(found, found.even)["megatron-deepspeed"]
    )
    few = runs(np.linspace(20e9, 60e9, 10), 0.1, 5e9)
    assert fit_shown(few, few.even) == {}
    assert np.isnan(left_out(few, {"even": {}, "odd": {}})).all()


def test_residuals_are_those_of_the_other_half() -> None:
    # exact runs leave nothing; peaks that were measured 3% over the count widen the class of any framework alone
    found, peaks = runs(np.linspace(20e9, 60e9, 20), 0.1, 5e9), runs(np.linspace(20e9, 60e9, 20), 0.03, 0.0)
    by_class = {(row[0], row[2]): (float(row[4]), float(row[5])) for row in residuals_shown(found, peaks)}
    assert by_class["pretraining", "megatron-deepspeed"] == pytest.approx((0.0, 0.0), abs=1e-3)
    low, high = by_class["pretraining", "generic"]
    assert low <= np.log(1.03) + 1e-4
    assert high >= np.log(1.03)
    assert by_class["sft", "generic"] == (low, high)


@pytest.mark.slow
def test_the_sweep_of_bloom_is_predicted() -> None:
    from tokenmill import validate_steps

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validate_steps, "READERS", {"bloom_layout_sweep": validate_steps.READERS["bloom_layout_sweep"]})
        found = validate_steps.evaluate("bloom_layout_sweep")
        rows = [one for one in found.outcomes if one.metric in ("reserved_memory", "fits")]
    shown = score("bloom", "", "reserved_memory", [one for one in rows if one.metric == "reserved_memory"], found)
    fits = score("bloom", "", "fits", [one for one in rows if one.metric == "fits"], found)
    assert shown.count >= 35
    assert shown.median_error is not None
    assert shown.median_error <= 0.07
    assert shown.bias is not None
    assert abs(shown.bias) <= 0.03
    assert shown.coverage_80 is not None
    assert 0.75 <= shown.coverage_80 <= 0.85
    assert fits.false_fit == 0.0
    assert fits.false_no_fit is not None
    assert fits.false_no_fit <= 0.02
