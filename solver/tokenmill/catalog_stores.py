"""Stores as systems: provisioned by the terabyte, so that a plan buys capacity and throughput like any other hardware."""

from __future__ import annotations

from dataclasses import replace

from tokenmill.catalog_chips import blank_chip
from tokenmill.catalog_records import Chip, Figure, MemoryTier, PriceChoice, Store, System

STORE = "store"
UNIT = 1e12
"""Bytes of capacity of one unit of a store."""
HOUR = 3600.0


def suits(system: System, hardware: str | None) -> bool:
    """Tell whether a role that asks for a kind of hardware (None: any that computes) may stand on a system."""
    return system.hardware == hardware or (hardware is None and system.hardware != STORE)


def store_system(store: Store) -> System:
    """Return a store as a system of one unit of `UNIT` bytes, had by the unit."""
    return System(
        id=store.id,
        name=store.name,
        vendor="",
        kind=STORE,
        year=None,
        maturity="production",
        chip=store.id,
        chips_per_node=1,
        nodes=1,
        chips=1,
        scale_up_domain=1,
        topology="none",
        torus_dims=(),
        link_bandwidth=0.0,
        scale_up=0.0,
        scale_up_pair=0.0,
        in_switch_reduction=False,
        host_link=0.0,
        scale_out=store.read,
        scale_out_name="network of a client node",
        power=0.0,
        host_power=0.0,
        rent_by_chip=True,
        figures=store.figures,
        source=store.source,
        checked=store.checked,
        notes=store.notes,
        origin=store.origin,
        built=True,
    )


def store_chip(store: Store) -> Chip:
    """Return one unit of a store in the form of a chip: capacity, and nothing that computes or draws power."""
    unit = MemoryTier("ddr", UNIT * store.usable, min(store.read, store.unit_rate), f"{UNIT / 1e12:g} TB")
    return replace(
        blank_chip(store.id),
        name=store.name,
        vendor="",
        kind=STORE,
        family=STORE,
        memory=(unit,),
        scale_up_name="",
        host_link_name="",
        figures=store.figures,
        source=store.source,
        checked=store.checked,
        notes=store.notes,
        origin=store.origin,
    )


def store_price(store: Store, market: str) -> PriceChoice | None:
    """Return the list price of a unit of a store an hour, where it has one; it is rented, and nothing interrupts it."""
    if store.price is None or market not in ("on-demand", "spot"):
        return None
    figure = store.figures.get("price") or Figure(store.price, "USD/(B s)", store.source, "guess")
    return PriceChoice(store.price * UNIT * HOUR, None, (), "", False, figure.source, figure.evidence)
