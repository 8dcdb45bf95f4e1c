"""Free pool sizes and mixed deployments against n identical replicas, on the same predicted speeds.

Llama 3.1 70B on H100, 2 000 tokens in and 500 out, TTFT 1 s and TPOT 40 ms (mean), 22 loads of 3 to 150 requests/s. Prints, for each load,
the chips of the best n identical units (a layout that does all, or x prefill and y decode replicas as one unit, copied until the load is
carried) and those of the programme, which mixes layouts and sizes pools freely.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import Any

import numpy as np

from tokenmill.api import prepare
from tokenmill.milp.formulation import solve_programme
from tokenmill.reading import load_problem

LOADS = (3, 5, 7, 10, 13, 16, 20, 24, 28, 33, 38, 44, 50, 57, 64, 72, 80, 90, 100, 115, 130, 150)
COPIES = 8
"""Most replicas of one role in a unit of a prefill and a decode pool."""
TEXT = """
objective = { minimise = "chips" }
[hardware]
systems = ["hgx-h100"]
markets = ["on-demand"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2/h"
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-70b"
[workload.demand]
requests_per_second = 1
input_tokens = 2000
output_tokens = 500
[workload.slo]
ttft = { mean = "1 s" }
tpot = { mean = "40 ms" }
[workload.engine]
disaggregated = [true, false]
chunk = 2048
[workload.layout]
pp = 1
"""


@dataclass(frozen=True)
class Load:
    """Requests/s; chips of n replicas of one layout that does all, of n identical units of either kind, of the programme."""

    rate: float
    one_layout: int
    identical: int
    free: float

    def saving(self, chips: int) -> float:
        """Return the share of `chips` that free pools save."""
        return 1.0 - self.free / chips


def speeds() -> Any:
    """Return what was found for one request/s: layouts with the rates that they sustain, and offers by the chip."""
    found = prepare(load_problem(TEXT))
    found.offers = [replace(offer, by_chip=True) for offer in found.offers]
    return found


def identical(columns: dict[str, list[tuple[int, float]]], rate: float) -> int:
    """Return the fewest chips of n identical units. `columns`: (chips, requests/s) of replicas by role."""
    units = [(chips, speed) for chips, speed in columns["mixed"]]
    for (g, p), (k, d), x, y in product(
        columns["prefill"], columns["decode"], range(1, COPIES + 1), range(1, COPIES + 1)
    ):
        units.append((x * g + y * k, min(x * p, y * d)))
    return min(chips * ceil(rate / speed - 1e-9) for chips, speed in units if speed > 0.0)


def compare(loads: tuple[float, ...] = LOADS) -> list[Load]:
    """Return both answers at every load."""
    found = speeds()
    (searched,) = found.searched
    best = {
        role: [(column.chips, max(point.rate[0] for point in column.points)) for column in own]
        for role, own in searched.columns.columns.items()
    }
    asked, rows = load_problem(TEXT), []
    for rate in loads:
        plan = solve_programme(
            asked, [searched.columns], found.offers, (), demand={"chat": np.array([[float(rate)]])},
            gap=1e-6, time_limit=60.0, value_of_next=False,
        )  # fmt: skip
        alone = identical({**best, "prefill": [], "decode": []}, rate)
        rows.append(Load(rate, alone, identical(best, rate), plan.termination.objective or float("nan")))
    return rows


def main() -> None:
    """Print the comparison."""
    rows = compare()
    print("requests/s  one layout  identical units  free pools  saving  of units")
    for row in rows:
        savings = f"{row.saving(row.one_layout):>6.1%}  {row.saving(row.identical):>8.1%}"
        print(f"{row.rate:>10g}  {row.one_layout:>10d}  {row.identical:>15d}  {row.free:>10g}  {savings}")
    for name in ("one_layout", "identical"):
        savings = [row.saving(getattr(row, name)) for row in rows]
        print(f"saving against {name}: mean {sum(savings) / len(savings):.1%}, most {max(savings):.1%}")
    print("a peer with speeds of its own saved 13.5% in the mean, 25% at most")


if __name__ == "__main__":
    main()
