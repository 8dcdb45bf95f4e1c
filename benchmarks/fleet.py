"""Sizes and times of fleet programmes: seconds to state, to solve, proven gap, memory; prints a table, never a test.

    python benchmarks/fleet.py [name ...]

`mix`: 60 buckets of request sizes over 8 kinds of accelerators at 200 requests/s. `year`, `two-years`: pools over periods,
slices and sites; rates and prices are drawn with a seed.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import dataclass

import numpy as np

from tokenmill.candidates.columns import Column, OperatingPoint, WorkloadColumns
from tokenmill.milp.formulation import formulate
from tokenmill.milp.highs import solve_arrays
from tokenmill.milp.objective import objective
from tokenmill.milp.sets import build_sets
from tokenmill.offers import YEAR, Offer
from tokenmill.problem import Hardware, Horizon, Objective, Ownership, Problem, Site, Workload


@dataclass(frozen=True)
class Size:
    """A fleet: how many of each, the gap to prove, the seconds allowed."""

    periods: int
    slices: int
    sites: int
    systems: int
    workloads: int
    columns: int
    classes: int
    gap: float
    seconds: float


SIZES = {
    "mix": Size(1, 1, 1, 8, 1, 1, 60, 0.0, 10.0),
    "quarter": Size(3, 3, 1, 4, 3, 4, 1, 0.005, 60.0),
    "year": Size(12, 3, 2, 6, 5, 4, 1, 0.005, 60.0),
    "two-years": Size(24, 3, 3, 12, 10, 8, 1, 0.005, 120.0),
}


def fleet(size: Size, seed: int = 0) -> tuple[Problem, list[WorkloadColumns], list[Offer], dict[str, np.ndarray]]:
    """Return a fleet of a size: rates a chip by system and workload, larger replicas somewhat quicker a chip."""
    rng = np.random.default_rng(seed)
    names = [f"system-{n:02d}" for n in range(size.systems)]
    price = dict(zip(names, rng.uniform(1.0, 4.0, size.systems), strict=True))
    sites = tuple(
        Site(f"site-{n}", power=float(rng.uniform(2e6, 6e6)) * size.workloads, electricity={"all": float(rng.uniform(0.03, 0.15)) / 3.6e6})
        for n in range(size.sites)
    )  # fmt: skip
    made, demand = [], {}
    long, answers = np.meshgrid(np.linspace(1, 8, 10), np.linspace(1, 4, max(1, size.classes // 10)))
    for w in range(size.workloads):
        name = f"work-{w:02d}"
        columns = []
        for system in names:
            speed = rng.uniform(0.5, 2.0) * price[system] / 2
            for c in range(size.columns):
                chips = 1 if size.classes > 1 else 2 ** (c % 4)
                each = speed * chips * (1 + 0.06 * c) * rng.uniform(0.9, 1.1)
                falls = (1 / (long * answers) ** rng.uniform(0.5, 1.0)).ravel() if size.classes > 1 else np.ones(1)
                rates = tuple(float(each * f * rng.uniform(0.9, 1.1)) for f in falls[: size.classes])
                point = OperatingPoint({}, rates, chips * float(rng.uniform(400, 900)))
                columns.append(
                    Column(
                        f"{name}-{system}-{c}",
                        name,
                        "mixed",
                        "pool",
                        system,
                        chips,
                        ((system, chips),),
                        {},
                        (point,),
                        chips * 100.0,
                    )
                )
        shares = tuple(float(s) for s in rng.dirichlet(np.ones(size.classes)))
        made.append(
            WorkloadColumns(
                name,
                "toy",
                "pool",
                {"mixed": tuple(columns)},
                (("mixed",),),
                (),
                tuple(map(str, range(size.classes))),
                shares,
            )
        )
        growth = 1.03 ** np.arange(size.periods)
        demand[name] = growth[:, None] * rng.uniform(0.3, 1.0, size.slices)[None, :] * rng.uniform(100, 400)
    if size.classes > 1:
        demand = {name: np.array([[200.0]]) for name in demand}
    offers = []
    for system in names:
        shape = {
            "chips": 1 if size.classes > 1 else 8,
            "domain": 1 if size.classes > 1 else 8,
            "domains": 1,
            "chip_idle": 100.0,
            "chip_tdp": 900.0,
        }
        chips = shape["chips"]
        offers.append(Offer(system, "on-demand", "rent", price[system] * chips, **shape))
        if size.periods > 1:
            offers.append(Offer(system, "buy", "buy", price[system] * chips * 8760 * 1.6, **shape))
    problem = Problem(
        tuple(Workload(name, "toy") for name in demand), objectives=(Objective("cost"),), gap=size.gap,
        horizon=Horizon(YEAR * max(1.0, size.periods / 12), size.periods, {f"slice-{n}": 1 / size.slices for n in range(size.slices)}),
        hardware=Hardware(sites=sites, ownership=Ownership()),
    )  # fmt: skip
    return problem, made, offers, demand


def measure(name: str) -> dict[str, object]:
    """Return what stating and solving a fleet took."""
    size = SIZES[name]
    problem, columns, offers, demand = fleet(size)
    start = time.perf_counter()
    build = formulate(build_sets(problem, columns, offers, (), demand, demand)).build
    arrays = build.programme.arrays(objective(build, problem.objectives[0], 0))
    stated = time.perf_counter() - start
    outcome = solve_arrays(arrays, time_limit=size.seconds, gap=size.gap)
    return {
        "name": f"fleet {name}",
        "columns": len(arrays.lower),
        "rows": len(arrays.row_lower),
        "integers": int(arrays.integer.sum()),
        "stated_s": round(stated, 2),
        "solved_s": round(outcome.seconds, 2),
        "status": outcome.status,
        "gap": outcome.gap,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    """Print a line of JSON for every size asked, all but the largest where none is."""
    for name in sys.argv[1:] or ["mix", "quarter", "year"]:
        print(json.dumps(measure(name)), flush=True)


if __name__ == "__main__":
    main()
