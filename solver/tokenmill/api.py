"""The library's verbs: problem -> catalogue x topology -> candidates -> programme -> checked plan."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.errors import Mistake, ProblemError
from tokenmill.problem import Problem, Workload

if TYPE_CHECKING:
    from tokenmill.candidates.columns import Column
    from tokenmill.candidates.search import Ask, Searched
    from tokenmill.catalog import Catalog
    from tokenmill.milp.solution import Running
    from tokenmill.offers import Offer
    from tokenmill.plan import Plan
    from tokenmill.searches import Searches
    from tokenmill_models.stage import StageModel


def solve(
    problem: Problem, *, time_limit: float | str | None = None, gap: float | None = None, catalog: Catalog | None = None
) -> Plan:
    """Return the plan for a problem: columns searched, programme solved and proven, answer audited and traced.

    `time_limit` [s, or text such as "60 s"; of the programme: the search before it is not counted] and `gap` (relative) win over the problem's
    own. Infeasible and stopped by a limit are results.

    Raises
    ------
    ProblemError
        For what the problem asks and the product cannot do, in words.
    AuditError
        For a plan that fails its own re-check: a defect.
    """
    return solve_found(problem, time_limit=time_limit, gap=gap, catalog=catalog)[0]


def solve_found(
    problem: Problem,
    *,
    time_limit: float | str | None = None,
    gap: float | None = None,
    catalog: Catalog | None = None,
    searches: Searches | None = None,
    explained: bool = True,
) -> tuple[Plan, Found, Any]:
    """Return the plan of `solve`, what stood before the programme, and the programme's own solution.

    `searches`: shared with other solves on this catalogue. `explained`: with what a step more of each limit saves, and the
    next best plans.
    """
    from tokenmill import fleet
    from tokenmill.milp.highs import kept_from_stops, stop_is_asked

    start = time.perf_counter()
    asked, problem = problem, fleet.planned(problem)
    found = prepare(problem, catalog, searches)
    fleet.adapt(problem, found)
    limit = problem.time_limit if time_limit is None else _seconds(time_limit)
    with kept_from_stops():
        solution, found.searched, outcome = reduce(
            lambda best, case: case if _better(case[0], best[0]) else best,
            _of_cases(problem, found, limit, problem.gap if gap is None else gap, explained),
        )
        found.demand |= outcome
        plan = _built(asked, problem, found, solution, start)
    plan = _in_the_way(plan, problem, found, catalog)
    if not stop_is_asked():
        plan = fleet.price_of_robustness(
            asked,
            plan,
            lambda bare: solve_found(bare, time_limit=time_limit, gap=gap, catalog=catalog, explained=False)[0],
        )
    return plan, found, solution


def _built(asked: Problem, problem: Problem, found: Found, solution: Any, start: float) -> Plan:
    """Return the plan of a solution, with its costs apart and its spares; `start`: when the solve began [s]."""
    from tokenmill import fleet
    from tokenmill.cost_apart import with_costs_apart
    from tokenmill.fleet_spares import told
    from tokenmill.plan_build import build_plan

    evaluated = evaluate_solution(found, solution)
    seconds = time.perf_counter() - start
    plan = build_plan(asked, solution, found, evaluated, seconds, fleet.other_plans(solution))
    plan = with_costs_apart(fleet.with_margins(asked, plan))
    columns = {c.key: c for s in found.searched for own in s.columns.columns.values() for c in own}
    return told(plan, problem, columns, solution.runs, found.offers)


def _of_cases(
    problem: Problem, found: Found, limit: float | None, gap: float, explained: bool
) -> Iterator[tuple[Any, list[Searched], dict[str, Any]]]:
    """Yield the solution, the searches and the demand [units/s] of each case of closed loops; `limit` [s] is for all."""
    from tokenmill import fleet
    from tokenmill.closed_loop import cases
    from tokenmill.milp.formulation import solve_programme
    from tokenmill.milp.highs import stop_is_asked

    spent = 0.0
    for searched, outcome in cases(problem, found.searched, found.stages):
        began = time.perf_counter()
        solution = solve_programme(
            problem,
            [item.columns for item in searched],
            found.offers,
            found.arcs,
            demand=found.demand | outcome,
            served=found.served | outcome,
            elastic=found.elastic,
            time_limit=None if limit is None else max(limit - spent, 0.0),
            gap=gap,
            value_of_next=explained,
            alternatives=fleet.OTHERS if explained else 0,
        )
        spent += time.perf_counter() - began
        yield solution, searched, outcome
        if stop_is_asked():
            return


def _in_the_way(plan: Plan, problem: Problem, found: Found, catalog: Catalog | None) -> Plan:
    """Return a plan that says which lines of the file leave a workload without a layout, where they do."""
    from dataclasses import replace

    from tokenmill.milp.infeasible import able
    from tokenmill.releases import told

    lacking = [searched.columns for searched in found.searched if not able(searched.columns)]
    if plan.status != "infeasible" or not lacking:
        return plan
    limits = {item.workload: [drop.cure for drop in item.dropped if drop.cure] for item in lacking}
    defaults = {name: {item.name: item.default for item in found.stages[name].inputs} for name in limits}

    def search(alone: Problem) -> Any:
        return prepare(alone, catalog).searched[0].columns

    return replace(plan, infeasible=told(plan.infeasible, problem, limits, limits, defaults, search))


def _seconds(time: float | str) -> float:
    if not isinstance(time, str):
        return time
    from tokenmill.units import QuantityError, parse_quantity

    try:
        return parse_quantity(time, "s")
    except QuantityError as error:
        raise ProblemError([Mistake("time_limit", error.found, error.allowed)]) from error


def _better(one: Any, other: Any) -> bool:
    """Return whether a solution has a plan that the other lacks, or costs less in the objective."""
    mine, theirs = one.termination.objective, other.termination.objective
    return mine is not None and (theirs is None or mine < theirs)


def check(problem: Problem, *, catalog: Catalog | None = None) -> dict[str, Any]:
    """Return what a problem asks for and what would be left out of it, without solving.

    Raises
    ------
    ProblemError
        For what the problem asks and the product cannot do, in words.
    """
    from tokenmill.devices import every_offer
    from tokenmill.reading import unsupported
    from tokenmill_models.stage import stages

    data = catalog_for(problem, catalog)
    if mistakes := unsupported(problem):
        raise ProblemError(mistakes)
    had, notes = every_offer(problem, data, stages())
    return {
        "workloads": {workload.name: workload.stage for workload in problem.workloads},
        "offers": sorted({f"{offer.system} ({offer.market})" for offer in had}),
        "notes": [str(note) for note in notes],
        "defaulted": list(problem.defaulted),
    }


class Found:
    """Everything between the problem and the programme: offers, arcs, demand, and each workload's search.

    `demand`: units/s to plan for, `served`: those expected, without head-room; `elastic`:
    the least share of it to be served, where that is not all. `closed`: workloads whose rate is an
    outcome; their demand is a stand-in until a layout gives it.
    """

    def __init__(self, catalog: Catalog, offers: Sequence[Offer], notes: Sequence[Mistake]) -> None:
        self.catalog = catalog
        self.offers = list(offers)
        self.notes = list(notes)
        self.arcs: list[Any] = []
        self.demand: dict[str, Any] = {}
        self.served: dict[str, Any] = {}
        self.elastic: dict[str, float] = {}
        self.searched: list[Searched] = []
        self.stages: dict[str, StageModel] = {}
        self.closed: set[str] = set()


def catalog_for(problem: Problem, catalog: Catalog | None) -> Catalog:
    """Return the catalogue with the problem's own chips, and the figures it assumes of others, laid over it."""
    from tokenmill.catalog import load_catalog

    stated: dict[str, dict[str, Any]] = {
        chip.name: {**chip.fields, "like": chip.like} for chip in problem.hardware.chips
    }
    for name, figures in problem.assume.chip.items():
        stated[name] = {**stated.get(name, {}), **figures}
    data = catalog or load_catalog()
    return data.with_chips(stated) if stated else data


def prepare(problem: Problem, catalog: Catalog | None = None, searches: Searches | None = None) -> Found:
    """Return offers, arcs, demand and pruned columns of a problem (everything before the programme).

    Raises
    ------
    ProblemError
        For what the product cannot do, and for a demand that could not be told from none.
    """
    from tokenmill.closed_loop import closed
    from tokenmill.faint import faint
    from tokenmill.nearness import search_near
    from tokenmill.searches import Searches
    from tokenmill.topology import site_graph

    found, searches = offered(problem, catalog), searches or Searches()
    data, hardware = found.catalog, problem.hardware
    systems = tuple(data.system(name) for name in dict.fromkeys(offer.system for offer in found.offers))
    network = data.network(hardware.fabric) if hardware.fabric else None
    found.arcs = site_graph([s.name for s in hardware.sites], systems, hardware.wan, network).arcs()
    mistakes: list[Mistake] = []
    for workload in problem.workloads:
        ask = ask_of(problem, workload, data, found.offers)
        stage = found.stages[workload.name] = ask.stage
        found.searched.append(search_near(ask, searches.search))
        if closed(workload, stage):
            found.closed.add(workload.name)
            found.demand[workload.name] = np.ones((problem.horizon.periods, len(problem.horizon.slices)))
        elif stage.demand is not None:
            found.demand[workload.name] = demand_of(problem, workload, stage)
            mistakes += faint(found.searched[-1].columns, found.demand[workload.name], stage.demand.rate)
    if mistakes:
        raise ProblemError(mistakes)
    return found


def offered(problem: Problem, catalog: Catalog | None = None) -> Found:
    """Return the catalogue as a problem sees it, and what can be had: the rest is empty.

    Raises
    ------
    ProblemError
        For what the problem asks and the product cannot do, in words.
    """
    from tokenmill.devices import every_offer
    from tokenmill.reading import unsupported
    from tokenmill_models.stage import stages

    if mistakes := unsupported(problem):
        raise ProblemError(mistakes)
    data = catalog_for(problem, catalog)
    return Found(data, *every_offer(problem, data, stages()))


def ask_of(problem: Problem, workload: Workload, catalog: Catalog, offers: Sequence[Offer]) -> Ask:
    """Return a workload with all that the search of its layouts reads, among the systems on offer."""
    from tokenmill.candidates.search import Ask
    from tokenmill.closed_loop import a_replica
    from tokenmill.devices import named
    from tokenmill.imports.architecture import load_architecture
    from tokenmill_models.stage import stages

    stage = stages()[workload.stage]
    systems = tuple(catalog.system(name) for name in dict.fromkeys(offer.system for offer in offers))
    users = {catalog.system(name).id for w in problem.workloads for name in named(w, stages()[w.stage])}
    model = load_architecture(workload.model, problem.base) if workload.model else None
    power = _power_matters(problem) or bool(named(workload, stage))
    further = {key: load_architecture(name, problem.base) for key, name in _further_models(workload, stage)}
    may = systems if named(workload, stage) else tuple(system for system in systems if system.id not in users)
    return Ask(a_replica(workload, stage), stage, problem, catalog, model, may, power, further, tuple(offers))


def _further_models(workload: Workload, stage: StageModel) -> Iterator[tuple[str, str]]:
    """Yield (key, name) of the models that a workload names beside its own; in a list of tables ``steps.2.model``."""
    for item in stage.inputs:
        listed, bracket, member = item.name.partition("[].")
        if item.kind != "architecture":
            continue
        if not bracket and workload.values.get(item.name):
            yield item.name, str(workload.values[item.name])
        for at, row in enumerate(workload.values.get(listed) or () if bracket else ()):
            if row.get(member):
                yield f"{listed}.{at}.{member}", str(row[member])


def _power_matters(problem: Problem) -> bool:
    """Return whether anything that the programme reads depends on the watts that chips draw."""
    hardware = problem.hardware
    return (
        "buy" in hardware.markets
        or bool(hardware.owned)
        or problem.limits.power is not None
        or any(site.power != float("inf") or site.rack_power != float("inf") for site in hardware.sites)
        or any(objective.minimise in ("power", "energy", "carbon") for objective in problem.objectives)
    )


def demand_of(problem: Problem, workload: Workload, stage: StageModel) -> np.ndarray[Any, Any]:
    """Return the demand of a workload [units/s], (periods, slices): rate x growth, compounding, x (1 + head-room).

    Of work that may be done at any time of the day: the rate of a slice in which all of it would be done.
    """
    stated = stage.demand
    if stated is None:
        raise ProblemError([Mistake(f"workload.{workload.name}", "a run", "a stage with a demand")])
    given = workload.values.get(stated.rate)
    if given is None:
        raise ProblemError([Mistake(f"workload.{workload.name}.{stated.rate}", "nothing", "a rate")])
    table = stated.rate.rpartition(".")[0]
    defaults = {item.name: item.default for item in stage.inputs}

    def factor(name: str) -> float:
        key = f"{table}.{name}" if table else name
        value = workload.values.get(key, defaults.get(key))
        return float(value or 0.0)

    slices = list(problem.horizon.slices)
    rates = np.array([given[name] if isinstance(given, Mapping) else given for name in slices], float)
    if stated.anytime:
        rates = rates / np.array(list(problem.horizon.slices.values()), float)
    growth = (1 + factor("growth_per_period")) ** np.arange(problem.horizon.periods)
    return np.asarray(growth[:, None] * rates[None, :] * (1 + factor("headroom")))


def class_points(column: Column, rows: Iterable[Running], classes: int) -> dict[int, Mapping[str, Any]]:
    """Return by request class the values of the operating point it runs at: that of the last row with it, else the highest within its limits."""
    used = {index: point for row in rows for index, point in sorted(row.rates)}
    may = {index: [n for n, point in enumerate(column.points) if point.rate[index] > 0] for index in range(classes)}
    highest = max(used.values(), default=len(column.points) - 1)
    return {n: column.points[used.get(n, max(may[n], default=highest))].values for n in range(classes)}


def evaluate_solution(found: Found, solution: Any) -> list[Any]:
    """Return every column of a solution evaluated in full, at the mean load of its busiest slice (a closed loop at its own)."""
    from tokenmill.candidates.unfold import balanced, unfold

    columns = {
        column.key: (column, searched)
        for searched in found.searched
        for role in searched.columns.columns.values()
        for column in role
    }
    done: dict[str, Any] = {}
    busiest: dict[str, Any] = {}
    for running in solution.running:
        held = busiest.get(running.column)
        if held is None or running.utilisation > held.utilisation:
            busiest[running.column] = running
    for key, running in busiest.items():
        column, searched = columns[key]
        rates: dict[int, float] = {}
        for (index, _), rate in running.rates.items():
            rates[index] = rates.get(index, 0.0) + rate
        others = [row for row in solution.running if row.column == key and row is not running]
        of_classes = class_points(column, [*others, running], len(searched.columns.classes))
        if column.workload in found.closed:
            rates = {}
        points = balanced(searched.contexts[key], column, rates, max(running.replicas, 1e-12), of_classes)
        busiest_class = max(points, key=lambda index: rates.get(index, 0.0))
        done[key] = unfold(column, points[busiest_class], searched.contexts, searched.columns.classes, points)
    for run in solution.runs:
        column, searched = columns[run.column]
        for used in (column, *column.parts):
            done[used.key] = unfold(used, {}, searched.contexts, searched.columns.classes)
    return list(done.values())
