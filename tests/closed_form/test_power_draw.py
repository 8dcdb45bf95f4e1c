"""Mean draw of a device: between idle and its limit while it works, idle draw while it waits."""

import pytest

from tokenmill_models import energy

BOARD = {energy.idle: 100.0, energy.tdp: 700.0, energy.base_weight: 0.5, energy.compute_weight: 1.6, energy.memory_weight: 0.4}  # fmt: skip


def watts(compute, memory, busy):
    return float(energy.draw(compute, memory, busy).subs(BOARD))


def test_a_device_at_its_limit_half_of_the_time_draws_the_mean_of_limit_and_idle():
    """0.5 of the time at full compute: half at 700 W, half at 100 W."""
    assert watts(0.5, 0.0, 0.5) == pytest.approx(400.0)


@pytest.mark.parametrize("busy", [1.0, 0.6, 0.25])
def test_below_the_limit_draw_adds_up(busy):
    """While it works it uses 10% of compute and 20% of bandwidth: 0.5 + 0.16 + 0.08 of the range of 600 W."""
    assert watts(0.1 * busy, 0.2 * busy, busy) == pytest.approx(100.0 + 600.0 * 0.74 * busy)
