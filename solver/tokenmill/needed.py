"""Systems that workloads need beside those that the problem lists: processors, stores, and whatever their tables name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tokenmill.catalog import Catalog
from tokenmill.catalog_stores import STORE
from tokenmill.problem import MATURITIES, Problem, Workload
from tokenmill_models.stage import StageModel

SYSTEM = "layout.system"
ONLINE = 1.0
"""Seconds to the first byte beyond which a store is taken only by name: data that is worked on is read at once."""


def further_systems(problem: Problem, catalog: Catalog, stages: Mapping[str, StageModel]) -> tuple[str, ...]:
    """Return the systems to offer beside the asked ones.

    Those that a workload names in an input of kind "system" or in the table of a role; and for each kind of hardware that a
    stage needs, where neither these nor ``hardware.systems`` hold one of it, all of that kind that have a price.
    """
    found: dict[str, None] = {}
    listed = [catalog.system(name) for name in problem.hardware.systems or ()]
    for workload in problem.workloads:
        stage = stages[workload.stage]
        named = dict.fromkeys(_named(workload, stage))
        found |= {name: None for name in named if catalog.system(name).hardware in stage.hardware}
        have = {system.hardware for system in (*listed, *(catalog.system(name) for name in named))}
        for hardware in stage.hardware:
            if hardware not in have:
                found |= dict.fromkeys(_priced(problem, catalog, hardware))
    return tuple(found)


def _named(workload: Workload, stage: StageModel) -> Iterator[str]:
    """Yield the systems that a workload names itself."""
    for item in stage.inputs:
        if item.kind == "system":
            yield from workload.values.get(item.name) or ()
    for choices in workload.role_held.values():
        yield from choices.get(SYSTEM, ())


def _priced(problem: Problem, catalog: Catalog, hardware: str) -> Iterator[str]:
    """Yield the systems of a kind of hardware that have a price in an asked market, of the catalogue or of the user's."""
    if hardware == STORE:
        known = [catalog.system(name) for name, store in catalog.stores.items() if store.latency <= ONLINE]
    else:
        admitted = MATURITIES[: MATURITIES.index(problem.hardware.maturity) + 1]
        every = (system for system in catalog.systems.values() if system.maturity in admitted)
        known = [system for system in every if system.hardware == hardware]
    own = {(price.system, price.market) for price in problem.hardware.prices}
    for system in known:
        markets = problem.hardware.markets if hardware != STORE else (*problem.hardware.markets, "on-demand")
        if any((system.id, market) in own or catalog.price(system.id, market) for market in markets):
            yield system.id
