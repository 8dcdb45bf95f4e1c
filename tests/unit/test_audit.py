"""The re-check passes sound plans and catches every kind of tampering."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cross_check.brute_force import Link
from cross_check.toys import YEAR, Ownership, buy, pool, pool_column, problem, rent, run
from tokenmill import audit
from tokenmill.candidates.columns import CouplingEnd, CouplingUse, WorkloadColumns
from tokenmill.errors import AuditError
from tokenmill.milp.formulation import solve_programme
from tokenmill.problem import Supply, Workload

DEMAND = {"chat": np.array([[25.0]])}


def mixed_case():
    asked = problem(
        Workload("chat", "toy"), Workload("train", "toy", deadline=30 * 86400.0),
        limits={"chips": 40, "power": 60_000.0, "budget": 1e9}, hardware={"supply": (Supply("node", at_most=5),)},
    )  # fmt: skip
    return asked, [pool(pool_column()), run("train", (8, 20.0))], [rent()], ()


def split_case():
    ends = {"kv": CouplingEnd(("fp16",), 0.4, (1e9,))}
    source = replace(pool_column(chips=2, name="p"), role="prefill", ends=ends)
    target = replace(pool_column(chips=4, name="d"), role="decode", ends=ends)
    columns = WorkloadColumns("chat", "toy", "pool", {"prefill": (source,), "decode": (target,)}, (("prefill", "decode"),),
                              (CouplingUse("kv", "prefill", "decode", "kv", 1.0),), ("all",), (1.0,))  # fmt: skip
    arcs = (Link("out", "site/node", "site/fabric", 30e9), Link("in", "site/fabric", "site/node", 30e9))
    return problem(), [columns], [rent()], arcs


def bought_case():
    asked = problem(Workload("chat", "toy"), Workload("train", "toy"), hardware={"ownership": Ownership(life=YEAR)})
    return asked, [pool(pool_column()), run("train", (8, 20.0))], [buy(1000.0)], ()


def solved(case):
    asked, columns, offers, arcs = case()
    plan = solve_programme(asked, columns, offers, arcs, demand=DEMAND)
    assert plan.termination.status == "optimal"
    return plan, lambda changed, problem=asked: audit.check(problem, columns, offers, arcs, changed, DEMAND)


@pytest.mark.parametrize("case", [mixed_case, split_case, bought_case])
def test_sound_plans_pass(case):
    plan, check = solved(case)
    assert check(plan) <= 1e-9
    assert plan.residual == check(plan)


def test_tampering_is_caught():
    plan, check = solved(mixed_case)
    pool_rent = next(p for p in plan.purchases if not p.workload)
    others = tuple(p for p in plan.purchases if p is not pool_rent)
    running, (train,) = plan.running[0], plan.runs
    changed = {
        "cost": replace(plan, cost_total=plan.cost_total * 0.99),
        "domains|systems": replace(plan, purchases=(*others, replace(pool_rent, count=2.0))),
        "whole units": replace(plan, purchases=(*others, replace(pool_rent, count=3.5))),
        "load": replace(plan, running=(replace(running, replicas=2.0),)),
        "demand": replace(plan, running=(replace(running, rates={(0, 0): 20.0}),)),
        "deadline": replace(plan, runs=(replace(train, start=20 * 86400.0, end=40 * 86400.0),)),
        "duration": replace(plan, runs=(replace(train, end=train.end / 2),)),
        "runs of train": replace(plan, runs=()),
        "chips of node": replace(plan, purchases=(pool_rent,), cost_total=None),
        "supply": replace(plan, purchases=(*others, replace(pool_rent, count=6.0))),
    }
    for words, wrong in changed.items():
        with pytest.raises(AuditError, match=words):
            check(wrong)


def test_limits_are_checked_from_the_plan():
    plan, check = solved(mixed_case)
    asked = mixed_case()[0]
    for words, limits in (
        ("chips in", {"chips": 31}), ("power in", {"power": 4 * 1800.0 + 3.5 * 8 * 600 - 100}),
        ("budget", {"budget": plan.cost_total * 0.999}), ("cost limit", {"cost": plan.cost_total * 0.999}),
        ("budget of period", {"budget_per_period": plan.cost_total * 0.999}), ("least replicas", {}),
    ):  # fmt: skip
        tight = replace(asked, limits=replace(asked.limits, **limits))
        if not limits:
            held = replace(asked.workloads[0], held={"layout.replicas": (4,)})
            tight = replace(asked, workloads=(held, asked.workloads[1]))
        with pytest.raises(AuditError, match=words):
            check(plan, tight)


def test_flows_are_checked():
    plan, check = solved(split_case)
    (flow,) = plan.flows
    assert {name: rate for name, rate, _ in flow.arcs} == pytest.approx({"out": 25e9, "in": 25e9})
    arcs = tuple((name, rate * 1.3, share) for name, rate, share in flow.arcs)
    with pytest.raises(AuditError, match="arc"):
        check(replace(plan, flows=(replace(flow, arcs=arcs),)))
    with pytest.raises(AuditError, match="flow"):
        check(replace(plan, flows=(replace(flow, arcs=(arcs[0],)),)))
    with pytest.raises(AuditError, match="bytes of chat"):
        check(replace(plan, flows=()))


def test_runs_on_bought_systems_are_laid_out():
    plan, check = solved(bought_case)
    (owned,) = plan.purchases
    assert owned.count == 4
    with pytest.raises(AuditError, match=r"do not fit|domains"):
        check(replace(plan, purchases=(replace(owned, count=3.0, cost=3000.0),), cost_total=None))
