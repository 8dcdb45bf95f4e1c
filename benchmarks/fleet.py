"""Sizes and times of fleet programmes: seconds to state, to solve, proven gap, memory; prints a table, never a test.

    python benchmarks/fleet.py [name ...]

`mix`: 60 buckets of request sizes over 8 kinds of accelerators at 200 requests/s. The others: pools over periods, slices and
sites, bought and rented, with power walls; rates and prices are drawn with a seed. From `two-years-flows` on systems are reserved for a year or rented, prompts are read
and answers written by pools of their own, coupled by KV flows over links between sites, in replicas that do not nest in
a domain; `large`: of 8 to 72 chips, a few of each.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from tokenmill.candidates.columns import Column, CouplingEnd, CouplingUse, OperatingPoint, WorkloadColumns
from tokenmill.milp.clock import Clock
from tokenmill.milp.formulation import formulate
from tokenmill.milp.objective import objective
from tokenmill.milp.sets import build_sets
from tokenmill.milp.solve import Wish, optimise
from tokenmill.offers import YEAR, Offer
from tokenmill.problem import Hardware, Horizon, Objective, Ownership, Problem, Site, Workload

Fleet = tuple[Problem, list[WorkloadColumns], list[Offer], list["Arc"], dict[str, np.ndarray]]
KV = 2e8  # B a request, 16 bit; half of it in 8 bit


@dataclass(frozen=True)
class Size:
    """A fleet: how many of each, the gap to prove, the seconds allowed.

    `columns` of all roles by workload and system; `chips` of their replicas in turn; `domain` chips; `chips_each`: chips
    that a workload takes, about. `split`: prefill and decode in pools of their own.
    """

    periods: int
    slices: int
    sites: int
    systems: int
    workloads: int
    columns: int
    classes: int
    gap: float
    seconds: float
    chips: tuple[int, ...] = (1, 2, 4, 8)
    domain: int = 8
    chips_each: float = 100.0
    split: bool = False


@dataclass(frozen=True)
class Arc:
    """One direction of a link between two sites: B/s."""

    name: str
    source: str
    target: str
    capacity: float
    per_chip: float = 0.0
    site: str = ""
    system: str = ""


ODD = (2, 3, 4, 8)  # no chain of divisors: laid into domains by pattern
SIZES = {
    "mix": Size(1, 1, 1, 8, 1, 1, 60, 0.0, 10.0, chips=(1,), domain=1, chips_each=10000.0),
    "quarter": Size(3, 3, 1, 4, 3, 4, 1, 0.005, 60.0),
    "year": Size(12, 3, 2, 6, 5, 4, 1, 0.005, 60.0),
    "two-years": Size(24, 3, 3, 12, 10, 8, 1, 0.002, 30.0, chips_each=20000.0),
    "two-years-flows": Size(24, 3, 3, 12, 10, 8, 1, 0.002, 30.0, ODD, 8, 20000.0, split=True),
    "large": Size(24, 3, 3, 12, 10, 8, 1, 0.005, 60.0, (8, 16, 36, 72), 72, 4000.0, split=True),
    "five-years": Size(60, 3, 5, 20, 30, 4, 1, 0.01, 600.0, ODD, 8, 4000.0, split=True),
}


def fleet(size: Size, seed: int = 0) -> Fleet:
    """Return a fleet of a size: rates a chip by system and workload, larger replicas somewhat quicker a chip."""
    rng = np.random.default_rng(seed)
    names = [f"system-{n:02d}" for n in range(size.systems)]
    price = dict(zip(names, rng.uniform(1.0, 4.0, size.systems), strict=True))
    watts = 900.0 * size.chips_each * size.workloads / size.sites
    sites = tuple(
        Site(f"site-{n}", power=float(rng.uniform(1.0, 3.0)) * watts, electricity={"all": float(rng.uniform(0.03, 0.15)) / 3.6e6})
        for n in range(size.sites)
    )  # fmt: skip
    made, demand = [], {}
    growth = 1.03 ** np.arange(size.periods)
    for w in range(size.workloads):
        name = f"work-{w:02d}"
        made.append(_workload(size, name, price, rng))
        rate = size.chips_each * rng.uniform(0.5, 2.0)
        demand[name] = growth[:, None] * rng.uniform(0.3, 1.0, size.slices)[None, :] * rate
    if size.classes > 1:
        demand = {name: np.array([[200.0]]) for name in demand}
    problem = Problem(
        tuple(Workload(name, "toy") for name in demand), objectives=(Objective("cost"),), gap=size.gap,
        horizon=Horizon(YEAR * max(1.0, size.periods / 12), size.periods, {f"slice-{n}": 1 / size.slices for n in range(size.slices)}),
        hardware=Hardware(sites=sites, ownership=Ownership()),
    )  # fmt: skip
    sent = sum(float(rate.max()) for rate in demand.values()) * KV
    arcs = [Arc(f"{a.name}-{b.name}", a.name, b.name, 0.05 * sent) for a, b in permutations(sites, 2) if size.split]
    return problem, made, _offers(size, price), arcs, demand


def _workload(size: Size, name: str, price: dict[str, float], rng: np.random.Generator) -> WorkloadColumns:
    roles = ("prefill", "decode") if size.split else ("mixed",)
    columns: dict[str, list[Column]] = {role: [] for role in roles}
    for system in price:
        speed = rng.uniform(0.5, 2.0) * price[system] / 2 * len(roles)
        for c in range(size.columns):
            role = roles[c * len(roles) // size.columns]
            columns[role].append(_column(size, name, system, role, c, speed, rng))
    shares = tuple(float(s) for s in rng.dirichlet(np.ones(size.classes)))
    coupling = (CouplingUse("kv", "prefill", "decode", "kv"),) if size.split else ()
    found = {role: tuple(of) for role, of in columns.items()}
    return WorkloadColumns(name, "toy", "pool", found, (roles,), coupling, tuple(map(str, range(size.classes))), shares)


def _column(
    size: Size, workload: str, system: str, role: str, c: int, speed: float, rng: np.random.Generator
) -> Column:
    chips = size.chips[c % len(size.chips)]
    each = speed * chips * (1 + 0.06 * (c % len(size.chips))) * rng.uniform(0.9, 1.1)
    if size.classes > 1:
        long, answers = np.meshgrid(np.linspace(1, 8, 10), np.linspace(1, 4, max(1, size.classes // 10)))
        falls = (1 / (long * answers) ** rng.uniform(0.5, 1.0)).ravel()
    else:
        falls = np.ones(1)
    rates = tuple(float(each * f * rng.uniform(0.9, 1.1)) for f in falls[: size.classes])
    point = OperatingPoint({}, rates, chips * float(rng.uniform(400, 900)))
    eight = system[-1] in "13579"  # which systems keep keys and values in 8 bit
    end = CouplingEnd(("8 bit" if eight else "16 bit",), 0.0, (KV / 2 if eight else KV,) if role == "prefill" else ())
    return Column(
        f"{workload}-{system}-{c}", workload, role, "pool", system, chips, ((system, chips),), {}, (point,),
        chips * 100.0, ends={"kv": end} if size.split else {},
    )  # fmt: skip


def _offers(size: Size, price: dict[str, float]) -> list[Offer]:
    shape = {"chips": size.domain, "domain": size.domain, "domains": 1, "chip_idle": 100.0, "chip_tdp": 900.0}
    offers = []
    for system in price:
        hour = price[system] * size.domain
        offers.append(Offer(system, "on-demand", "rent", hour, **shape))
        if size.split:
            offers.append(Offer(system, "reserve", "reserve", hour * 0.7, commitment=YEAR, **shape))
        elif size.periods > 1:
            offers.append(Offer(system, "buy", "buy", hour * 8760 * 1.6, **shape))
    return offers


def measure(name: str) -> dict[str, object]:
    """Return what stating and solving a fleet took."""
    size = SIZES[name]
    problem, columns, offers, arcs, demand = fleet(size)
    start = time.perf_counter()
    formulation = formulate(build_sets(problem, columns, offers, arcs, demand, demand))
    build = formulation.build
    arrays = build.programme.arrays(objective(build, problem.objectives[0], 0))
    stated = time.perf_counter() - start
    begun, cpu = time.perf_counter(), time.process_time()
    outcome = optimise(formulation, Wish(size.gap, size.seconds, 1, "highs", False), Clock(size.seconds)).outcome
    return {
        "name": f"fleet {name}",
        "columns": len(arrays.lower),
        "rows": len(arrays.row_lower),
        "integers": int(arrays.integer.sum()),
        "stated_s": round(stated, 2),
        "replicas": len(build.variables.replicas),
        "purchases": len(build.variables.new) + len(build.variables.rented),
        "patterns": len(build.variables.patterns),
        "flows": len(formulation.sent.shares) + len(formulation.sent.over),
        "solved_s": round(time.perf_counter() - begun, 2),
        "processor_s": round(time.process_time() - cpu, 2),
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
