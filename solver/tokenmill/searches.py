"""Searches of layouts that several solves share: those that differ in the programme's numbers alone find the same layouts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokenmill.problem import Problem, Workload

if TYPE_CHECKING:
    from tokenmill.candidates.search import Ask, Searched
    from tokenmill_models.stage import StageModel


class Searches:
    """Searches made so far, by all that they read: of the problem neither objectives, prices, power nor rates of demand.

    For solves on one catalogue. Prices count where a run has parts, which are compared over systems by what they cost.
    """

    def __init__(self) -> None:
        self._made: dict[str, list[tuple[str, Searched]]] = {}

    def search(self, ask: Ask) -> Searched:
        """Return the search of a workload, made or found."""
        from tokenmill.candidates.search import search

        key, prices = _key(ask), repr(ask.offers)
        for at, found in self._made.get(key, ()):
            if at == prices or not any(column.parts for own in found.columns.columns.values() for column in own):
                return found
        found = search(ask)
        self._made.setdefault(key, []).append((prices, found))
        return found


def _key(ask: Ask) -> str:
    """Return what a search reads, as text: the workload without its rates, the problem without the programme's numbers."""
    offered = sorted({(offer.system, offer.market, offer.by_chip) for offer in ask.offers})
    systems = [system.id for system in ask.systems]
    return repr((_unrated(ask.workload, ask.stage), _read(ask.problem), systems, offered, ask.power_matters))


def _unrated(workload: Workload, stage: StageModel) -> Workload:
    """Return a workload without what it is asked to carry, where no formula reads that."""
    demand = stage.demand
    if demand is None:
        return workload
    known = {item.name for item in stage.inputs if item.symbol is not None or item.parts}
    rates = {demand.rate, *(demand.elastic or ())} - known
    if not all(isinstance(workload.values.get(name, 0.0), (int, float, dict)) for name in rates):
        return workload
    return replace(workload, values={k: v for k, v in sorted(workload.values.items()) if k not in rates})


def _read(problem: Problem) -> Any:
    hardware, limits = problem.hardware, problem.limits
    sites = [(site.name, sorted((site.regions or {}).items())) for site in hardware.sites]
    supplied = [sorted(scenario.supply) for scenario in problem.scenarios]
    return (
        problem.assume, problem.horizon.duration, str(problem.base), limits.chips, limits.spot_share, limits.availability,
        hardware.chips, hardware.fabric, hardware.topology, hardware.markets, hardware.supply, sites, supplied,
    )  # fmt: skip
