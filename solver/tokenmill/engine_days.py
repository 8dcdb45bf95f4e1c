"""How engines gain speed from month to month: what the day of a build says of the pace of its kernels."""

from __future__ import annotations

import re
from math import exp

MIDDLE = (2026, 3)
"""Month of an engine whose day is not said: the middle of the measured ones."""
MEASURED = (-5.0, 2.0)
"""First and last day of builds that were measured, in months from the start of `MIDDLE`: of October 2025 and April 2026."""
DAYS_A_MONTH = 30.4
GAINING = {"expert_pace": "expert_gain"}
"""Constants of engines that fall by a share every month, and the constant that says by how much [1/month]."""


def months(version: str) -> float:
    """Return the months from the start of `MIDDLE` to the day that a version names (2026-04-17, nightly-20260402); 0 without one.

    Days outside those measured count as the first or last of them: nothing says that the gain goes on.
    """
    found = re.search(r"(20\d\d)-?(0[1-9]|1[0-2])(?:-?([0-3]\d))?(?!\d)", version)
    if found is None:
        return 0.0
    year, month, day = int(found[1]), int(found[2]), int(found[3] or 15)
    since = 12 * (year - MIDDLE[0]) + month - MIDDLE[1] + (day - 1) / DAYS_A_MONTH
    return min(max(since, MEASURED[0]), MEASURED[1])


def release_pace(version: str, gain: float) -> float:
    """Return the time of what gains `gain` [1/month] in the build that a version names over that of `MIDDLE`: exp(-gain·months)."""
    return exp(-gain * months(version))
