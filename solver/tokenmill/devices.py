"""Devices that stand with users: what they cost, and how the programme comes by them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tokenmill.catalog import Catalog
from tokenmill.errors import Mistake
from tokenmill.needed import further_systems
from tokenmill.offers import Offer, offers
from tokenmill.problem import Problem, Workload
from tokenmill_models.stage import StageModel

SYSTEM = "layout.system"
PRICED = 'a price under [[hardware.price]], or the market "buy"'
"""What gives a device a price."""
ALLOWED = "a system of hardware.systems, or of those on offer where that is not given"


def every_offer(
    problem: Problem, catalog: Catalog, stages: Mapping[str, StageModel]
) -> tuple[list[Offer], list[Mistake]]:
    """Return all offers of a problem: of devices that workloads name, and of systems for everything else, with notes.

    A device costs what ``[[hardware.price]]`` says; with the market "buy" also what the catalogue says; else its user has it
    already, and only the energy of its tokens costs. Where cost decides, devices without a price are not held against those that
    have one. Devices are had one by one, and draw nothing for the model at rest.
    """
    devices, remarks = _devices(problem, catalog, stages)
    owned = replace(problem, hardware=replace(problem.hardware, systems=()))
    rest = all(named(workload, stages[workload.stage]) for workload in problem.workloads)
    had, notes = offers(owned if rest else problem, catalog, further_systems(problem, catalog, stages))
    taken = {offer.system for offer in devices}
    others = [offer for offer in had if offer.system not in taken or offer.kind == "owned"]
    offered = [*others, *devices]
    return offered, [*notes, *remarks, *_in_a_building(problem, stages), *_idle_tables(problem, catalog, offered)]


def _in_a_building(problem: Problem, stages: Mapping[str, StageModel]) -> list[Mistake]:
    """Return a note for each site whose PUE devices share with servers: at their users' there is no building around them."""
    users = [(workload, named(workload, stages[workload.stage])) for workload in problem.workloads]
    if all(devices for _, devices in users):
        return []
    return [
        Mistake(
            f"hardware.site.{site.name}.pue",
            f"{site.pue:g}, by which the energy of {', '.join(devices)} is counted too: they stand with users",
            f'a site with pue = 1.0 for them, which the workload {workload.name} names: sites = ["..."]',
        )
        for site in problem.hardware.sites
        for workload, devices in users
        if devices and site.pue != 1.0 and site.name in (workload.sites or (site.name,))
    ]


def _idle_tables(problem: Problem, catalog: Catalog, offered: Collection[Offer]) -> list[Mistake]:
    """Return a note for each table of a system that is neither asked for nor on offer: nothing reads it."""
    known = {catalog.system(name).id for name in problem.hardware.systems or ()} | {offer.system for offer in offered}
    tables = [("hardware.price", "price", price.system) for price in problem.hardware.prices]
    tables += [("hardware.supply", "supply", supply.system) for supply in problem.hardware.supply]
    tables += [("scenario.supply", "supply", name) for scenario in problem.scenarios for name in scenario.supply]
    return [
        Mistake(place, f"a {what} of {name}, which is not among the systems here: it changes nothing", ALLOWED)
        for place, what, name in dict.fromkeys(tables)
        if catalog.system(name).id not in known
    ]


def _devices(problem: Problem, catalog: Catalog, stages: Mapping[str, StageModel]) -> tuple[list[Offer], list[Mistake]]:
    found: list[Offer] = []
    notes: list[Mistake] = []
    by_cost = problem.objectives[0].minimise == "cost"
    for workload in problem.workloads:
        had = {name: _priced(problem, catalog, name) for name in named(workload, stages[workload.stage])}
        compared = by_cost and any(had.values())
        for name, priced in had.items():
            found += [_single(offer) for offer in priced or ([] if compared else [_users_own(catalog, name)])]
            if not priced:
                why = "not compared by cost with those that have one" if compared else "it counts as its user's own"
                notes.append(Mistake(f"workload.{workload.name}.devices", f"no price of {name}: {why}", PRICED))
    return list({offer.key: offer for offer in found}.values()), notes


def at_home(problem: Problem, stages: Mapping[str, StageModel], defaulted: Collection[str]) -> Problem:
    """Return a problem whose sites have no facility around them, where all it asks for runs on devices of users.

    `defaulted`: the keys that its file leaves out; a PUE that it states stays.
    """
    if not problem.workloads or not all(named(one, stages[one.stage]) for one in problem.workloads):
        return problem
    whole = {"hardware", "hardware.site"} & set(defaulted)
    sites = tuple(
        replace(site, pue=1.0) if whole or f"hardware.site.{site.name}.pue" in defaulted else site
        for site in problem.hardware.sites
    )
    return replace(problem, hardware=replace(problem.hardware, sites=sites))


def named(workload: Workload, stage: StageModel) -> tuple[str, ...]:
    """Return the devices of users that a workload names; none where its stage knows no such key."""
    if stage.demand is None or not stage.demand.devices:
        return ()
    return tuple(workload.held.get(stage.demand.devices) or workload.held.get(SYSTEM) or ())


def _priced(problem: Problem, catalog: Catalog, name: str) -> list[Offer]:
    """Return the offers at the user's prices, or at the catalogue's where buying is asked for."""
    prices = tuple(
        price for price in problem.hardware.prices if catalog.system(price.system).id == catalog.system(name).id
    )
    markets = tuple(dict.fromkeys(price.market for price in prices)) or tuple(
        m for m in problem.hardware.markets if m == "buy"
    )
    if not markets:
        return []
    hardware = replace(problem.hardware, systems=(name,), markets=markets, owned=())
    return offers(replace(problem, hardware=hardware), catalog)[0]


def _users_own(catalog: Catalog, name: str) -> Offer:
    system = catalog.system(name)
    return Offer(system.id, "buy", "buy", 0.0, int(system.chips), 1, int(system.chips), price_source="its user's own")


def _single(offer: Offer) -> Offer:
    return replace(offer, by_chip=True, host_power=0.0, chip_idle=0.0)
