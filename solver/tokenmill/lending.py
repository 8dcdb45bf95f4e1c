"""What a fitted share of peak means on a relative: shares of matrix units follow the power that a chip has for each operation."""

from __future__ import annotations

from collections.abc import Callable

from tokenmill.catalog import Chip

CLOCKED = ("compute_share", "attention_share", "expert_share")
"""Shares of the peak of matrix units: they hold at the clock that the power limit leaves."""
SUSTAINED = ("train_product_share", "train_attention_share")
"""What of single kernels a training step keeps up: less power lowers it as it lowers them, more leaves what else holds steps back."""
UNLIMITED = 0.9
"""Share of peak that large products reach where power holds nothing back: the most of the fitted chips (A100 0.88, RTX PRO 6000 0.89)."""
FLOOR, RISE = 0.7, 0.4
"""Voltage against clock: flat below this part of the rated clock, then growing evenly to so much more at the rated clock.

The two regions are those of Guerreiro et al. 2018, GPGPU Power Modeling for Multi-Domain Voltage-Frequency Scaling, HPCA;
0.7 V up to 70% of the clock and about 1 V at the whole are usual for server cards (recalled).
"""
HALF = ("bf16", "fp16")
"""Formats of 16 bits: the peak of shares that name no format."""
STEPS = 40
"""Halvings of a bisection: more than a double holds."""


def draw(clock: float) -> float:
    """Return the power of matrix units at a part of the rated clock, in units of clock times squared least voltage [1]."""
    voltage = 1 + RISE * max(0.0, clock - FLOOR) / (1 - FLOOR)
    return clock * voltage**2


def lent_share(share: float, lender: Chip, borrower: Chip, precision: str) -> float:
    """Return the share of peak [1] of a chip whose relative reaches `share`, by the power limit of both for each rated operation.

    A chip that has less power for an operation than its relative settles at a lower clock, one that has more at a higher, up to the
    rated one. Chips of two families differ in process: their share is lent as it is, as where a limit or a peak is not known.
    """
    peaks = [chip.peak.get(precision or HALF[0]) or chip.peak.get(HALF[1], 0.0) for chip in (lender, borrower)]
    known = all(peaks) and lender.tdp and borrower.tdp
    if not known or lender.family.partition("-")[0] != borrower.family.partition("-")[0]:
        return share
    clock = min(1.0, share / UNLIMITED)
    power = draw(clock) * (borrower.tdp / peaks[1]) / (lender.tdp / peaks[0])
    reached = clock if power == draw(clock) else _inverse(draw, power)
    return share * reached / clock


def _inverse(rising: Callable[[float], float], value: float) -> float:
    """Return where a rising function of [0, 1] takes a value, 1 where it stays below."""
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return high
