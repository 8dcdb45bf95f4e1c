"""What the fleet asks of the candidates before the programme: spot systems, spares, and plans that hold in worse cases."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tokenmill import data
from tokenmill.errors import Mistake, ProblemError
from tokenmill.fleet_power import with_base
from tokenmill.fleet_spares import with_spares
from tokenmill.fleet_starts import begun, due
from tokenmill.problem import Problem, Robust, Workload

if TYPE_CHECKING:
    from tokenmill.candidates.columns import Column
    from tokenmill.candidates.search import Searched
    from tokenmill.milp import solution as milp
    from tokenmill.milp.solution import Had, Solution
    from tokenmill.offers import Offer
    from tokenmill.plan import Alternative, Plan
    from tokenmill_models.stage import StageModel

DAY = 86400.0
SLO = "slo."
SPOT = "spot"
OTHERS = 3
"""How many other plans a plan names."""


@cache
def assumed(name: str) -> float:
    """Return a figure of catalog/outages.toml: repair [s], restart [s], preemptions [1/day]."""
    table = tomllib.loads((data.path("catalog") / "outages.toml").read_text(encoding="utf-8"))
    return float(table[name]["value"])


def planned(problem: Problem) -> Problem:
    """Return the problem whose latency limits hold at the times of ``limits.robust``.

    All times grow by one factor: limits divided by it, at rates divided by it, are the same limits.
    """
    problem = due(problem, [w.name for w in problem.workloads if w.starts > 0.0 and w.needs])
    times = _robust(problem).times
    if times == 1.0:
        return problem
    return replace(problem, workloads=tuple(_tightened(workload, times) for workload in problem.workloads))


def _robust(problem: Problem) -> Robust:
    return problem.limits.robust or Robust()


def _tightened(workload: Workload, times: float) -> Workload:
    values = {key: _divided(value, times) if key.startswith(SLO) else value for key, value in workload.values.items()}
    return replace(workload, values=values)


def _divided(value: Any, by: float) -> Any:
    if isinstance(value, Mapping):
        return {key: _divided(item, by) for key, item in value.items()}
    return value / by if isinstance(value, int | float) and not isinstance(value, bool) else value


def adapt(problem: Problem, found: Any) -> None:
    """Fit what was found to the fleet: offers know failures and preemptions, columns the spot market and worse times."""
    robust = _robust(problem)
    for name in found.demand:
        found.demand[name], note = begun(problem, name, found.demand[name])
        found.notes += [note] if note is not None else []
    found.offers = [_with_failures(offer, found.catalog) for offer in found.offers]
    found.served = {name: rates / _headroom(problem, found.stages[name], name) for name, rates in found.demand.items()}
    for name in found.demand:
        if name not in found.closed:
            least, most = elasticity(problem, name, found.stages[name])
            found.demand[name] = found.demand[name] * robust.demand * most
            found.served[name] = found.served[name] * most
            if least < most:
                found.elastic[name] = least / most
    found.searched = [
        with_spares(problem, slower(_spread(problem, with_base(searched), found.offers), robust.times), found.offers)
        for searched in found.searched
    ]


def elasticity(problem: Problem, name: str, stage: StageModel) -> tuple[float, float]:
    """Return the least and the most share of a workload's demand that is to be served.

    Raises
    ------
    ProblemError
        Where the least is more than the most, or the most is nothing.
    """
    keys = stage.demand.elastic if stage.demand is not None else None
    if keys is None:
        return 1.0, 1.0
    values = next(w for w in problem.workloads if w.name == name).values
    given = [values.get(key) for key in keys]
    most = 1.0 if given[1] is None else float(given[1])
    least = min(1.0, most) if given[0] is None else float(given[0])
    if least > most or most <= 0.0:
        key = f"workload.{name}.{keys[1]}"
        raise ProblemError([Mistake(key, f"{most:g}", f"more than 0, and at least at_least, {least:g}")])
    return least, most


def _headroom(problem: Problem, stage: Any, name: str) -> float:
    """Return 1 + the head-room that stands beside the rate in the workload's table of demand."""
    workload = next(w for w in problem.workloads if w.name == name)
    table = stage.demand.rate.rpartition(".")[0]
    return 1.0 + float(workload.values.get(f"{table}.headroom") or 0.0)


def _restart(problem: Problem, searched: Searched) -> float:
    workload = next(w for w in problem.workloads if w.name == searched.columns.workload)
    return float(workload.values.get("restart") or assumed("restart"))


def _spread(problem: Problem, searched: Searched, offers: Sequence[Offer]) -> Searched:
    """Return the search with columns on the spot market, unless the workload may not be interrupted."""
    workload = next(w for w in problem.workloads if w.name == searched.columns.workload)
    if workload.values.get("interruptible") is False:
        return searched
    return with_spot(searched, offers, _restart(problem, searched))


def _with_failures(offer: Offer, catalog: Any) -> Offer:
    rate = catalog.failure_rate(catalog.system(offer.system).chip).value
    preemptions = offer.preemptions_per_day
    if offer.market == SPOT and preemptions is None:
        preemptions = assumed("preemptions")
    return replace(offer, chip_outage=float(rate) * assumed("repair"), preemptions_per_day=preemptions)


def with_spot(searched: Searched, offers: Sequence[Offer], restart: float) -> Searched:
    """Return the search with a column more for each whose system is on the spot market: slower by what preemptions cost."""
    spot = {offer.system: offer for offer in offers if offer.market == SPOT}
    contexts = dict(searched.contexts)
    columns: dict[str, tuple[Column, ...]] = {}
    for role, own in searched.columns.columns.items():
        more = [
            _on_spot(column, spot, restart)
            for column in own
            if column.reliability == "owned" and all(name in spot for name, _ in column.footprint)
        ]
        for column in more:
            known = column.key.removesuffix(f"/{SPOT}")
            if known in searched.contexts:
                contexts[column.key] = searched.contexts[known]
        columns[role] = (*own, *more)
    return replace(searched, columns=replace(searched.columns, columns=columns), contexts=contexts)


def _on_spot(column: Column, spot: Mapping[str, Offer], restart: float) -> Column:
    from tokenmill_models.reliability import spot_availability

    down = 0.0
    for name, chips in column.footprint:
        offer = spot[name]
        down += (offer.preemptions_per_day or 0.0) * -(-chips // offer.chips)
    share = float(spot_availability(down / DAY, 1, restart))
    return replace(
        column,
        key=f"{column.key}/{SPOT}",
        reliability=SPOT,
        points=tuple(replace(p, rate=tuple(rate * share for rate in p.rate)) for p in column.points),
        duration=None if column.duration is None else column.duration / share,
    )


def slower(searched: Searched, times: float) -> Searched:
    """Return the search with every predicted time longer by a factor: rates lower, runs longer."""
    if times == 1.0:
        return searched

    def slow(column: Column) -> Column:
        points = tuple(replace(p, rate=tuple(rate / times for rate in p.rate)) for p in column.points)
        return replace(column, points=points, duration=None if column.duration is None else column.duration * times)

    columns = {role: tuple(slow(column) for column in own) for role, own in searched.columns.columns.items()}
    return replace(searched, columns=replace(searched.columns, columns=columns))


def other_plans(solution: Solution) -> list[Alternative]:
    """Return the alternatives of a solution in the plan's words."""
    from tokenmill.milp.alternatives import had
    from tokenmill.plan import Alternative

    now, best = had(solution.purchases), solution.termination.objective
    if best is None:
        return []
    return [
        Alternative(other.objective, other.objective - best, _said(other, changes(now, other.had)))
        for other in solution.alternatives
    ]


def _said(other: milp.Alternative, change: str) -> str:
    """Return a change with the kinds that were forbidden, where it does not name them itself, and what else is other."""
    unsaid = [kind for kind in other.without if kind not in change]
    parts = [other.change] if other.change else []
    parts += [f"without {' and '.join(unsaid)}"] if unsaid else []
    return ": ".join([*parts, change])


def changes(now: Sequence[Had], then: Sequence[Had]) -> str:
    """Return in words what one plan has that another has not."""
    keep = {(row.system, row.market, row.count) for row in now} & {(row.system, row.market, row.count) for row in then}
    more, less = _listed(then, keep), _listed(now, keep)
    if not then:
        return "nothing at all: what may be refused is"
    if more and less:
        return f"{more} in place of {less}"
    return more or (f"without {less}" if less else "the same systems, used otherwise")


def _listed(rows: Sequence[Had], keep: set[tuple[str, str, float]]) -> str:
    return ", ".join(f"{row.amount} ({row.market})" for row in rows if (row.system, row.market, row.count) not in keep)


def price_of_robustness(asked: Problem, plan: Plan, solve: Callable[[Problem], Plan]) -> Plan:
    """Return a plan with a note on what holding in worse cases costs: the same problem solved without that."""
    robust, value = asked.limits.robust, plan.objective.value
    if robust is None or value is None:
        return plan
    bare = solve(replace(asked, limits=replace(asked.limits, robust=None))).objective.value
    if bare is None:
        return plan
    name, unit = plan.objective.name, plan.objective.unit
    note = (
        f"limits.robust: to hold at {robust.demand:g} times the demand and {robust.times:g} times the predicted times, "
        f"{name} is {value:.6g} {unit} in place of {bare:.6g} {unit}"
    )
    return replace(plan, notes=(*plan.notes, note))


def with_margins(asked: Problem, plan: Plan) -> Plan:
    """Return a plan whose workloads with list prices have their revenue and margin [USD] among the totals."""
    from tokenmill.plan_trace import margin_nodes

    workloads, trace = dict(plan.workloads), dict(plan.trace)
    for workload in asked.workloads:
        prices = _list_prices(workload)
        made = workloads.get(workload.name)
        if made is None or not any(prices) or plan.cost.total is None:
            continue
        answers = float(made.totals.get("tokens_output", 0.0))
        prompts = float(made.totals.get("tokens_input", made.totals.get("tokens_all", answers) - answers))
        cached = float(made.totals.get("tokens_cached", 0.0))
        cost = plan.cost.by_workload.get(workload.name, 0.0)
        worth = float(made.totals.get("present_worth", 1.0))  # revenue is discounted as the cost is
        tokens = [count * worth for count in (prompts - cached, cached, answers)]
        nodes = margin_nodes(workload.name, prices, tokens, cost)
        trace |= nodes
        revenue, margin = (nodes[f"{workload.name}.{name}"]["value"] for name in ("revenue", "margin"))
        workloads[workload.name] = replace(made, totals={**made.totals, "revenue": revenue, "margin": margin})
    return replace(plan, workloads=workloads, trace=trace)


def _list_prices(workload: Workload) -> list[float]:
    """Return what a token brings [USD]: of prompts, of what the prefix cache holds of them (the same, unless stated), of answers."""
    fresh, cached, answer = (workload.values.get(f"demand.list_price.{kind}") for kind in ("input", "cached", "output"))
    return [float(fresh or 0.0), float((fresh if cached is None else cached) or 0.0), float(answer or 0.0)]
