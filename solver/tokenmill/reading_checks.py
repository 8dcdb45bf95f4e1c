"""Mistakes that only show between keys: shares, periods, duplicates, circles, objectives without their object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tokenmill.imports.architecture import load_architecture
from tokenmill.problem import Objective, PriceOverride, Problem, Workload
from tokenmill.reading_values import Reading, check_sum, listed
from tokenmill_models.stage import ENCODER, StageModel

_FIGURES = ("per_chip_hour", "per_system_hour", "purchase")
_RUN_OBJECTIVES = ("time", "cost_per_run")


def check_problem(problem: Problem, state: Reading, stages: Mapping[str, StageModel]) -> Problem:
    """Note the mistakes between keys; return the problem with objectives that name their workload."""
    periods = problem.horizon.periods
    dated: tuple[Any, ...] = (*problem.hardware.prices, *problem.hardware.supply)
    for item in dated:
        if item.from_period > periods:
            path = f"{state.places.get(id(item), 'hardware')}.from_period"
            state.refuse(path, str(item.from_period), f"1 to {periods}, the periods of the horizon")
    for price in problem.hardware.prices:
        _price(price, state)
    _once(problem.hardware.prices, ("system", "market", "from_period"), state)
    _once(problem.hardware.supply, ("system", "from_period"), state)
    _wan(problem, state)
    if problem.scenarios:
        check_sum((scenario.probability for scenario in problem.scenarios), "scenario", state)
    for workload in problem.workloads:
        path = state.places.get(id(workload), "workload")
        if workload.deadline is not None and workload.deadline <= workload.starts:
            state.refuse(f"{path}.deadline", f"{workload.deadline:g} s", f"after starts, {workload.starts:g} s")
        if workload.deadline is not None and stages[workload.stage].demand is not None:
            _standing(workload, path, state, stages)
        _reads_only(workload, path, state, stages)
    _circles(problem.workloads, state)
    objectives = tuple(
        _objective(item, state.places.get(id(item), "objective"), problem.workloads, state, stages)
        for item in problem.objectives
    )
    return Problem(**{**problem.__dict__, "objectives": objectives})


def _standing(workload: Workload, path: str, state: Reading, stages: Mapping[str, StageModel]) -> None:
    """Note a deadline of work that arrives for as long as the horizon lasts: nothing would keep it."""
    ending = listed(name for name, stage in stages.items() if stage.demand is None)
    found = f"{workload.deadline:g} s for {workload.stage}, whose demand stands for as long as the horizon lasts"
    state.refuse(f"{path}.deadline", found, f"no deadline; work that is there from the start and ends: {ending}")


def _reads_only(workload: Workload, path: str, state: Reading, stages: Mapping[str, StageModel]) -> None:
    """Note a model that only reads texts where a stage has it write."""
    taking = {
        name: any(i.name == "model" and ENCODER in i.among for i in stage.inputs) for name, stage in stages.items()
    }
    if not workload.model or taking[workload.stage] or any(m.key == f"{path}.model" for m in state.mistakes):
        return
    if load_architecture(workload.model, state.base).encoder:
        found = f"{workload.model}, an encoder: it writes no tokens"
        fitting = listed(name for name, takes in taking.items() if takes)
        state.refuse(f"{path}.model", found, f"a model that writes tokens, or a stage for models that read: {fitting}")


def _price(price: PriceOverride, state: Reading) -> None:
    path = state.places.get(id(price), "hardware.price")
    given = [name for name in _FIGURES if getattr(price, name) is not None]
    unread = any(mistake.key.startswith(path) for mistake in state.mistakes)  # a mistaken figure is no missing one
    if len(given) > 1 or (not given and not unread):
        state.refuse(path, listed(given), f"exactly one of {listed(_FIGURES)}")
    elif given and (given[0] == "purchase") != (price.market == "buy"):
        state.refuse(
            f"{path}.{given[0]}", f"a {given[0]} on the market {price.market}", "purchase with buy, else a rent"
        )


def _once(items: Iterable[Any], names: tuple[str, ...], state: Reading) -> None:
    seen = set()
    for item in items:
        label = tuple(getattr(item, name) for name in names)
        if label in seen:
            path = state.places.get(id(item), "hardware")
            state.refuse(path, f"a second entry for {listed(map(str, label))}", f"one for each {listed(names)}")
        seen.add(label)


def _wan(problem: Problem, state: Reading) -> None:
    seen = set()
    for link in problem.hardware.wan:
        path, ends = state.places.get(id(link), "hardware.wan"), frozenset((link.source, link.target))
        if len(ends) == 1:
            state.refuse(f"{path}.to", repr(link.target), "another site than from")
        elif ends in seen:
            state.refuse(path, f"a second link between {listed(sorted(ends))}", "one link between two sites")
        seen.add(ends)


def _circles(workloads: Iterable[Workload], state: Reading) -> None:
    """Note every workload that must wait for itself."""
    needs = {workload.name: workload.needs for workload in workloads}
    for workload in workloads:
        reached: set[str] = set()
        ahead = list(workload.needs)
        while ahead:
            name = ahead.pop()
            if name not in reached:
                reached.add(name)
                ahead.extend(needs.get(name, ()))
        if workload.name in reached:
            path = f"{state.places.get(id(workload), 'workload')}.needs"
            state.refuse(path, f"a circle back to {workload.name}", "workloads that do not wait for this one")


def _objective(
    objective: Objective, path: str, workloads: tuple[Workload, ...], state: Reading, stages: Mapping[str, StageModel]
) -> Objective:
    """Check that the objective has a meaning for its workload; name the only workload where none is named."""
    kind = objective.minimise
    if kind not in _RUN_OBJECTIVES and not kind.startswith("cost_per_"):
        return objective
    fitting = [item for item in workloads if _has(stages[item.stage], kind)]
    named = [item for item in workloads if item.name == objective.workload]
    if named and named[0] not in fitting:
        found = f"{kind} of {named[0].name}, whose stage is {named[0].stage}"
        state.refuse(f"{path}.minimise", found, _meant(kind))
    elif workloads and not fitting:
        state.refuse(f"{path}.minimise", f"{kind}, which no workload here has", _meant(kind))
    elif objective.workload is None and len(fitting) > 1 and kind != "time":
        state.refuse(f"{path}.workload", "nothing", f"one of {listed(item.name for item in fitting)}")
    elif objective.workload is None and len(fitting) == 1:
        objective = Objective(kind, fitting[0].name, objective.count)
    for item in fitting:
        if item.name == objective.workload:
            _asks(item, kind, state, stages[item.stage])
        counts = stages[item.stage].yields.get(kind, {})
        if item.name == objective.workload and counts and objective.count not in counts:
            default = objective.count == Objective(kind).count
            if not default:
                state.refuse(f"{path}.count", repr(objective.count), listed(counts))
            else:
                objective = Objective(kind, objective.workload, next(iter(counts)))
    return objective


def _asks(workload: Workload, kind: str, state: Reading, stage: StageModel) -> None:
    """Check that a workload whose units a cost is divided by has a demand at some time."""
    given = workload.values.get(stage.demand.rate) if stage.demand is not None else None
    rates = given.values() if isinstance(given, Mapping) else () if given is None else (given,)
    if stage.demand is not None and rates and not any(rates):
        place = f"{state.places.get(id(workload), 'workload')}.{stage.demand.rate}"
        allowed = "a demand above 0, which the cost is divided by; or another objective"
        state.refuse(place, f"0, with {kind} to be minimised", allowed)


def _has(stage: StageModel, kind: str) -> bool:
    return stage.demand is None if kind in _RUN_OBJECTIVES else kind in stage.yields


def _meant(kind: str) -> str:
    return f"{kind} of a run that ends" if kind in _RUN_OBJECTIVES else f"{kind} of a workload whose stage counts it"
