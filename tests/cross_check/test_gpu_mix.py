"""A mix of accelerators for bucketed request sizes: whole numbers of each kind, continuous shares of each bucket.

The same choice stated a second time, by hand, straight to the solver: one row a bucket, one a kind.
"""

from __future__ import annotations

from time import perf_counter

import highspy
import numpy as np
import pytest

from cross_check.toys import FREE
from tokenmill.candidates.columns import Column, OperatingPoint, WorkloadColumns
from tokenmill.milp.formulation import solve_programme
from tokenmill.offers import YEAR, Offer
from tokenmill.problem import Hardware, Horizon, Objective, Problem, Workload

BUCKETS, KINDS, DEMAND = 60, 8, 200.0


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rates (kind, bucket), USD an hour of each kind, shares of the buckets; rates fall with both lengths."""
    rng = np.random.default_rng(seed)
    prompt, answer = np.meshgrid(np.geomspace(100, 8000, 10), np.geomspace(20, 1000, 6))
    price = np.sort(rng.uniform(0.5, 8.0, KINDS))
    work = prompt.ravel() / 1000 + answer.ravel() / 60
    rates = (
        price[:, None] * rng.uniform(0.6, 1.4, (KINDS, 1)) / (1 + work[None, :]) ** rng.uniform(0.8, 1.2, (KINDS, 1))
    )
    return rates * rng.uniform(0.9, 1.1, rates.shape) * 4, price, rng.dirichlet(np.ones(BUCKETS))


def by_hand(rates: np.ndarray, price: np.ndarray, shares: np.ndarray) -> float:
    """Return USD an hour: min p·y, every bucket routed, the time of a kind's systems at most their number."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("threads", 1)
    width = KINDS + KINDS * BUCKETS
    solver.addVars(width, np.zeros(width), np.full(width, np.inf))
    for k in range(KINDS):
        solver.changeColCost(k, price[k])
        solver.changeColIntegrality(k, highspy.HighsVarType.kInteger)
        at = np.array([k, *(KINDS + k * BUCKETS + b for b in range(BUCKETS))], dtype=np.int32)
        solver.addRow(-np.inf, 0.0, len(at), at, np.array([-1.0, *(DEMAND * shares / rates[k])]))
    for b in range(BUCKETS):
        at = np.array([KINDS + k * BUCKETS + b for k in range(KINDS)], dtype=np.int32)
        solver.addRow(1.0, 1.0, KINDS, at, np.ones(KINDS))
    solver.run()
    return float(solver.getInfo().objective_function_value)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sixty_buckets_over_eight_kinds(seed):
    rates, price, shares = drawn(seed)
    columns = tuple(
        Column(f"k{k}", "chat", "mixed", "pool", f"kind-{k}", 1, ((f"kind-{k}", 1),), {}, (OperatingPoint({}, tuple(rates[k]), 500.0),), 100.0)
        for k in range(KINDS)
    )  # fmt: skip
    pool = WorkloadColumns(
        "chat", "toy", "pool", {"mixed": columns}, (("mixed",),), (), tuple(map(str, range(BUCKETS))), tuple(shares)
    )
    offers = [Offer(f"kind-{k}", "on-demand", "rent", float(price[k]), 1, 1, 1) for k in range(KINDS)]
    asked = Problem(
        (Workload("chat", "toy"),),
        objectives=(Objective("cost"),),
        gap=0.0,
        horizon=Horizon(YEAR),
        hardware=Hardware(sites=(FREE,)),
    )
    began = perf_counter()
    plan = solve_programme(asked, [pool], offers, demand={"chat": np.array([[DEMAND]])}, value_of_next=False)
    seconds = perf_counter() - began
    assert plan.termination.status == "optimal"
    assert plan.cost_total / 8760 == pytest.approx(by_hand(rates, price, shares), rel=1e-7)
    assert seconds < 10.0  # well under one on a machine that does nothing else
