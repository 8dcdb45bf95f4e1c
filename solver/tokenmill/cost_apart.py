"""Cost of a workload's tokens apart by kind (prompt, cached prompt, answer): each pool's money by the time that it gives to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tokenmill.plan import Plan, Pool, WorkloadPlan
from tokenmill.trace import Node, row, total

SHARES = "token_shares"
"""Figure of a pool: kind of token to the share of its time, where the pool's formulas say so."""
PER_MILLION = 1e6
WITHIN = {"cached": "input"}
"""Kind of token to the kind that counts it, too: a bill of the whole is for those of it that have no bill of their own."""


def with_costs_apart(plan: Plan) -> Plan:
    """Return a plan whose workloads have `cost_apart` {million_<kind>, request: USD} among the totals, where their pools tell kinds of token apart."""
    if plan.cost.total is None:
        return plan
    workloads, trace = dict(plan.workloads), dict(plan.trace)
    for name, made in plan.workloads.items():
        nodes = _nodes(plan, name, made)
        if nodes:
            apart = {key.rpartition(".")[2]: node["value"] for key, node in nodes.items()}
            workloads[name] = replace(made, totals={**made.totals, "cost_apart": apart})
            trace |= nodes
    return replace(plan, workloads=workloads, trace=trace)


def pool_costs(plan: Plan, name: str) -> dict[str, float]:
    """Return the workload's cost [USD] by pool: in proportion to what its system costs and to its part of that system's chips."""
    paid: dict[str, float] = {}
    for item in plan.purchases:
        paid[item.system] = paid.get(item.system, 0.0) + item.cost
    chips: dict[str, float] = {}
    for made in plan.workloads.values():
        for pool in made.pools:
            chips[pool.system] = chips.get(pool.system, 0.0) + pool.chips
    pools = plan.workloads[name].pools
    weights = {pool.name: paid.get(pool.system, 0.0) * pool.chips / chips[pool.system] for pool in pools if pool.chips}
    whole = sum(weights.values())
    cost = plan.cost.by_workload.get(name, 0.0)
    return {pool: cost * weight / whole for pool, weight in weights.items()} if whole > 0 else {}


def alone(amount: Callable[[str], float | None], kind: str) -> float:
    """Return the amount of a kind of token without the kinds within it."""
    inner = sum(amount(name) or 0.0 for name, whole in WITHIN.items() if whole == kind)
    return (amount(kind) or 0.0) - inner


def _shares(pool: Pool) -> Mapping[str, float]:
    found = pool.predicted.get(SHARES) or {}
    return found if isinstance(found, Mapping) else {}


def _nodes(plan: Plan, name: str, made: WorkloadPlan) -> dict[str, Node]:
    """Return ``<workload>.cost_apart.<key>`` by key: sums over pools of their cost and share, over the tokens of the kind."""
    costs = pool_costs(plan, name)
    told = [pool for pool in made.pools if pool.name in costs and _shares(pool)]
    if not costs or len(told) < len(costs):
        return {}
    worth = float(made.totals.get("present_worth", 1.0))
    nodes: dict[str, Node] = {}
    for kind in dict.fromkeys(kind for pool in told for kind in _shares(pool)):
        tokens = alone(lambda name: float(made.totals.get(f"tokens_{name}") or 0.0), kind) * worth
        if tokens > 0:
            parts = [
                (pool.name, costs[pool.name] * alone(_shares(pool).get, kind) * PER_MILLION / tokens) for pool in told
            ]
            key = f"{name}.cost_apart.million_{kind}"
            rows = [
                row(pool, value, "USD", f"workloads.{name}.pools.{pool}.predicted.{SHARES}.{kind}")
                for pool, value in parts
            ]
            title = f"cost of a million {kind} tokens by the time that pools give to them"
            nodes[key] = total(f"million_{kind}", title, "USD", rows, sum(value for _, value in parts))
    units = float(made.totals.get("units") or 0.0) * worth
    if nodes and units > 0:
        each = plan.cost.by_workload[name] / units
        rows = [row("each", each, "USD", f"cost.by_workload.{name}")]
        nodes[f"{name}.cost_apart.request"] = total("request", "cost of a request", "USD", rows, each)
    return nodes
