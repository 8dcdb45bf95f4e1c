"""Demand so small that the programme could not tell it from none."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tokenmill.candidates.columns import WorkloadColumns
from tokenmill.errors import Mistake

LEAST = 1e-11
"""Share of what one replica carries under which a demand could pass for none: far under the solver's tolerance of 1e-9, over the 1e-13 at
which no scaling of the row brings it back above that."""


def faint(columns: WorkloadColumns, demand: NDArray[np.float64], rate: str) -> list[Mistake]:
    """Return the mistake of a demand [units/s], (period, slice), that is above zero and under `LEAST` of a replica's, if it is one.

    `rate`: the key of the demand. Request classes are counted at their shares.
    """
    most = [max(_rates(columns, b), default=0.0) / share for b, share in enumerate(columns.shares) if share > 0.0]
    least = LEAST * min(most, default=0.0)  # a rare class beside others makes no empty plan
    found = demand[(demand > 0.0) & (demand < least)]
    if not found.size:
        return []
    allowed = f"0, or at least {least:.2g} a second: less could not be told from none"
    return [Mistake(f"workload.{columns.workload}.{rate}", f"{found.min():.2g} a second", allowed)]


def _rates(columns: WorkloadColumns, b: int) -> Iterable[float]:
    return (point.rate[b] for role in columns.columns.values() for column in role for point in column.points)
