"""Plans under scenarios against every commitment tried one by one."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf
from random import Random

import numpy as np
import pytest

from cross_check.toys import YEAR, Ownership, buy, pool, pool_column, problem, rent, solve
from tokenmill import load_problem
from tokenmill import solve as plan_of
from tokenmill.errors import ProblemError
from tokenmill.problem import Risk, Scenario, Supply

HOURS = 8760


def cvar(costs, chances, level):
    """Return the mean of the worst 1 - level, from the dearest down."""
    left, total = 1.0 - level, 0.0
    for cost, chance in sorted(zip(costs, chances, strict=True), reverse=True):
        part = min(left, chance)
        total, left = total + part * cost, left - part
    return total / (1.0 - level)


def tried(chances, demands, rents, supplies, price, rent_price, weight, level):
    """Return the least weighted cost over every number of systems bought, and that number."""
    best = (inf, 0)
    for bought in range(12):
        costs = []
        for demand, factor, most in zip(demands, rents, supplies, strict=True):
            arrives = range(min(bought, most) + 1) if most < 99 else [bought]  # cut supply lets one cancel
            needs = ceil(demand / 10.0 - 1e-9)
            costs.append(min(a * price + max(0, needs - a) * rent_price * factor * HOURS for a in arrives))
        mean = sum(p * c for p, c in zip(chances, costs, strict=True))
        best = min(best, ((1 - weight) * mean + weight * cvar(costs, chances, level), bought))
    return best


def test_every_commitment_tried():
    decided = 0
    for seed in range(60):
        rng = Random(seed)
        chances = rng.choice([(0.5, 0.5), (0.7, 0.3), (0.2, 0.5, 0.3)])
        factors = [rng.choice([0.4, 1.0, 1.7, 2.6]) for _ in chances]
        rents = [rng.choice([1.0, 1.0, 2.0]) for _ in chances]
        supplies = [rng.choice([99, 99, 1, 0]) for _ in chances]
        weight, level = rng.choice([0.0, 0.3, 1.0]), rng.choice([0.5, 0.8])
        price = rng.choice([60_000.0, 90_000.0, 130_000.0, 180_000.0])
        scenarios = tuple(
            Scenario(f"s{n}", p, demand=d, price={"on-demand": r}, supply={} if most == 99 else {"bought": most})
            for n, (p, d, r, most) in enumerate(zip(chances, factors, rents, supplies, strict=True))
        )
        asked = problem(hardware={"ownership": Ownership(life=YEAR)})
        asked = type(asked)(**{**asked.__dict__, "scenarios": scenarios, "risk": Risk(weight, level)})
        columns = [pool(pool_column(), pool_column(system="bought"))]
        plan = solve(asked, columns, [rent(16.0), buy(price, system="bought")], demand=25.0)
        expected = tried(chances, [25.0 * f for f in factors], rents, supplies, price, 16.0, weight, level)
        assert plan.termination.objective == pytest.approx(expected[0]), seed
        decided += expected[1] > 0
    assert decided > 15


def test_what_knowing_is_worth():
    scenarios = (Scenario("low", 0.5, demand=0.4), Scenario("high", 0.5, demand=2.0))
    asked = problem(hardware={"ownership": Ownership(life=YEAR)})
    asked = type(asked)(**{**asked.__dict__, "scenarios": scenarios})
    columns = [pool(pool_column(), pool_column(system="bought"))]
    plan = solve(asked, columns, [rent(16.0), buy(100_000.0, system="bought")], demand=25.0)
    # one system in the low future, five in the high: a bought one costs 100 000, a rented one 140 160
    commit = {
        n: 0.5 * (n * 100_000 + max(0, 1 - n) * 140_160) + 0.5 * (n * 100_000 + max(0, 5 - n) * 140_160)
        for n in range(6)
    }
    best = min(commit.values())
    assert plan.termination.objective == pytest.approx(best)
    known = 0.5 * 100_000 + 0.5 * 500_000
    notes = " ".join(plan.notes)
    assert f"value of perfect information: {best - known:,.6g}" in notes
    assert f"value of the stochastic solution: {commit[3] - best:,.6g}" in notes  # the mean is 30: three systems
    assert plan.residual is not None


def test_what_the_mean_plan_loses_by_every_commitment_tried():
    """Buying n systems of 10 units/s and renting what a future lacks: the mean's own best n, priced over all futures, less the best n."""
    rng, above = Random(11), 0
    for _ in range(12):
        chances = [0.2, 0.3, 0.5]
        demands = [round(rng.uniform(5.0, 80.0), 1) for _ in chances]
        price = rng.choice([50_000.0, 70_000.0, 90_000.0, 120_000.0])
        futures = tuple(
            Scenario(f"s{n}", chance, demand=demand / 25.0)
            for n, (chance, demand) in enumerate(zip(chances, demands, strict=True))
        )
        asked = replace(problem(hardware={"ownership": Ownership(life=YEAR)}), scenarios=futures)
        columns = [pool(pool_column(), pool_column(system="bought"))]
        plan = solve(asked, columns, [rent(16.0), buy(price, system="bought")], demand=25.0)

        def cost(bought: int, demand: float, price: float = price) -> float:
            return bought * price + max(0, ceil(demand / 10.0 - 1e-9) - bought) * 16.0 * HOURS

        over = {n: sum(c * cost(n, d) for c, d in zip(chances, demands, strict=True)) for n in range(10)}
        best = min(over.values())
        mean = sum(c * d for c, d in zip(chances, demands, strict=True))
        of_mean = {n: cost(n, mean) for n in range(10)}
        tied = [n for n in of_mean if of_mean[n] == min(of_mean.values())]
        assert plan.termination.objective == pytest.approx(best)
        (note,) = [note for note in plan.notes if note.startswith("value of the stochastic solution")]
        said = float(note.split(": ")[1].split()[0].replace(",", ""))
        assert any(said == pytest.approx(over[n] - best, rel=1e-4, abs=1e-3) for n in tied)
        above += said > 0.0
    assert above >= 4


def test_a_future_without_supply_leaves_no_plan_or_a_dear_one():
    scenarios = (Scenario("fine", 0.9), Scenario("late", 0.1, supply={"node": 0}))
    asked = problem(hardware={"supply": (Supply("node", at_most=9),)})
    asked = type(asked)(**{**asked.__dict__, "scenarios": scenarios})
    plan = solve(asked, [pool(pool_column())], [rent()], demand=25.0)
    assert plan.termination.status == "infeasible"
    assert "hardware.supply.node" in {s.key for s in plan.infeasible}
    both = solve(
        asked, [pool(pool_column(), pool_column(system="other"))], [rent(), rent(40.0, system="other")], demand=25.0
    )
    assert both.termination.objective == pytest.approx(3 * HOURS * (0.9 * 16 + 0.1 * 40))


FILE = """
objective = { minimise = "cost" }
[hardware]
systems = ["hgx-h100"]
markets = ["reserved-1y", "on-demand"]
[[hardware.price]]
system = "hgx-h100"
market = "reserved-1y"
per_chip_hour = "$1.5/h"
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$3/h"
[[scenario]]
name = "base"
probability = 0.7
[[scenario]]
name = "boom"
probability = 0.3
demand = 3.0
price = { on-demand = 1.4 }
[risk]
cvar_weight = 0.3
cvar_level = 0.9
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
[workload.demand]
requests_per_second = 400
input_tokens = 1000
output_tokens = 200
[workload.slo]
tpot = { p95 = "50 ms" }
[workload.engine]
disaggregated = false
"""


def test_scenarios_from_a_file():
    plan = plan_of(load_problem(FILE))
    assert plan.status == "optimal"
    assert any(p.market == "reserved-1y" for p in plan.purchases)
    assert any(note.startswith("scenario boom (30%)") for note in plan.notes)
    assert np.isfinite(plan.objective.value)
    with pytest.raises(ProblemError, match="scenarios"):
        plan_of(load_problem(_without_scenarios()))


def _without_scenarios() -> str:
    head, tail = FILE.split("[[scenario]]", 1)
    return head + "[risk]" + tail.split("[risk]", 1)[1]
