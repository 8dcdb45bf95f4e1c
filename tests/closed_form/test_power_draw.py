"""Mean draw of a device: between idle and its limit while it works, idle draw while it waits."""

import pytest

from tokenmill_models import energy

BOARD = {energy.idle: 100.0, energy.tdp: 700.0, energy.base_weight: 0.5, energy.compute_weight: 1.6, energy.memory_weight: 0.4, energy.pipes_weight: 0.3}  # fmt: skip


def watts(compute, memory, busy, pipes=0):
    return float(energy.draw(compute, memory, busy, pipes).subs(BOARD))


def test_a_device_at_its_limit_half_of_the_time_draws_the_mean_of_limit_and_idle():
    """0.5 of the time at full compute: half at 700 W, half at 100 W."""
    assert watts(0.5, 0.0, 0.5) == pytest.approx(400.0)


@pytest.mark.parametrize("busy", [1.0, 0.6, 0.25])
def test_below_the_limit_draw_adds_up(busy):
    """While it works it uses 10% of compute and 20% of bandwidth: 0.5 + 0.16 + 0.08 of the range of 600 W."""
    assert watts(0.1 * busy, 0.2 * busy, busy) == pytest.approx(100.0 + 600.0 * 0.74 * busy)


def test_fed_matrix_units_draw_for_as_long_as_they_are_fed():
    """Nothing counted in half of the time: 0.5 for being at work and half of 0.3; all of the time is the most that there is."""
    assert watts(0.0, 0.0, 1.0, 0.5) == pytest.approx(100 + 600 * 0.65)
    assert watts(0.0, 0.0, 1.0, 1.7) == watts(0.0, 0.0, 1.0, 1.0) == pytest.approx(100 + 600 * 0.8)
    assert watts(0.0, 0.0, 0.25, 0.5) == pytest.approx(100 + 600 * 0.8 * 0.25)
