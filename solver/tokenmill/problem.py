"""The resolved problem: what a user asked, in SI units, with every default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

MATURITIES = ("production", "customer-test", "lab", "simulation")
MARKETS = ("buy", "reserved-1y", "reserved-3y", "on-demand", "spot")
OBJECTIVES = ("cost", "cost_per_token", "cost_per_run", "cost_per_task", "time", "power", "energy", "carbon", "chips")


@dataclass(frozen=True)
class Objective:
    """What to minimise; `workload` and `count` ("output" or "all") for the ratios."""

    minimise: str
    workload: str | None = None
    count: str = "output"


@dataclass(frozen=True)
class Assume:
    """What the user lays down in place of a prediction; `chip` maps chip id to {field: SI value}."""

    efficiency: str = "calibrated"
    mfu: float | None = None
    memory_fraction: float | None = None
    chip: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Horizon:
    """The planned time: `duration` [s] in equal `periods`, each day in `slices` (name to share of the day)."""

    duration: float = 365 * 86400.0
    periods: int = 1
    slices: Mapping[str, float] = field(default_factory=lambda: {"all": 1.0})
    discount_rate: float = 0.0
    commitments: str = "full"


@dataclass(frozen=True)
class PriceOverride:
    """A price of the user's: one of USD a chip-hour, USD a system-hour, or USD to buy a system."""

    system: str
    market: str
    per_chip_hour: float | None = None
    per_system_hour: float | None = None
    purchase: float | None = None
    from_period: int = 1
    tiers: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Site:
    """A place: IT power limit [W], PUE, electricity [USD/J], carbon [kg/J], rack power [W], latency to regions [s]."""

    name: str = "site"
    power: float = inf
    pue: float = 1.3
    electricity: Mapping[str, float] = field(default_factory=lambda: {"all": 0.08 / 3.6e6})
    carbon: Mapping[str, float] = field(default_factory=lambda: {"all": 0.4 / 3.6e6})
    rack_power: float = inf
    cooling: str | None = None
    regions: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Wan:
    """A link between two sites, both directions alike: bandwidth [B/s], latency [s]."""

    source: str
    target: str
    bandwidth: float
    latency: float = 0.0


@dataclass(frozen=True)
class Supply:
    """What can be had of a system: at most so many, from a period, after a lead time [s]; spot: preemptions a day."""

    system: str
    at_most: int | None = None
    from_period: int = 1
    lead_time: float = 0.0
    minimum_order: int = 0
    preemptions_per_day: float | None = None


@dataclass(frozen=True)
class Owned:
    """Systems that stand already: at a site, so many, until the end of period `retires`."""

    system: str
    count: int
    site: str | None = None
    retires: int | None = None


@dataclass(frozen=True)
class CustomChip:
    """A chip of the user's: catalogue field to SI value, and the chip whose efficiencies it takes."""

    name: str
    fields: Mapping[str, float]
    like: str | None = None


@dataclass(frozen=True)
class Ownership:
    """Terms of what is bought: life [s], residual share at its end, operations a year and maintenance share of time."""

    life: float = 5 * 365 * 86400.0
    residual: float = 0.0
    operations: float = 0.0
    maintenance: float = 0.0


@dataclass(frozen=True)
class Hardware:
    """What may be used: systems (None: all of the asked maturity that have a price), markets, prices, places, supply."""

    systems: tuple[str, ...] | None = None
    markets: tuple[str, ...] = ("on-demand",)
    maturity: str = "production"
    fabric: str | None = None
    topology: Path | None = None
    provider: str | None = None
    region: str | None = None
    price_date: str | None = None
    prices: tuple[PriceOverride, ...] = ()
    sites: tuple[Site, ...] = (Site(),)
    wan: tuple[Wan, ...] = ()
    supply: tuple[Supply, ...] = ()
    owned: tuple[Owned, ...] = ()
    chips: tuple[CustomChip, ...] = ()
    ownership: Ownership = Ownership()


@dataclass(frozen=True)
class Robust:
    """Factors under which the plan must still hold: on the demand, and on the predicted times."""

    demand: float = 1.0
    times: float = 1.0


@dataclass(frozen=True)
class Limits:
    """The user's limits: budget and cost [USD], chips, IT power [W], spot share, shed price [USD a unit], availability."""

    budget: float | None = None
    budget_per_period: float | None = None
    cost: float | None = None
    chips: int | None = None
    power: float | None = None
    spot_share: float | None = None
    robust: Robust | None = None
    shed: float | None = None
    availability: float | None = None


@dataclass(frozen=True)
class Scenario:
    """One future: probability, demand factor, price factor by market, supply by system."""

    name: str
    probability: float
    demand: float = 1.0
    price: Mapping[str, float] = field(default_factory=dict)
    supply: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Risk:
    """Weight and level of the conditional value at risk in the expected cost."""

    cvar_weight: float = 0.0
    cvar_level: float = 0.9


@dataclass(frozen=True)
class Lengths:
    """Length of prompts or answers [tokens]: lognormal where `p95` is given, else every one the mean."""

    mean: float
    p95: float | None = None


@dataclass(frozen=True)
class RequestClass:
    """A bucket of requests: its share of the workload, and its values by input name (without ``demand.classes[].``)."""

    name: str
    share: float
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Workload:
    """One stage of one model with its demand and limits.

    `values`: the stage's inputs by dotted name (SI; lengths as Lengths, percentiles and slices as mappings).
    `held`: choices by key (``layout.tp``, ``precision.weights``) to the tuple of values the file allows; a single
    value is held. `role_held`: the same, for one role alone, by role name. `classes`: at least one.
    """

    name: str
    stage: str
    model: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    held: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    role_held: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    classes: tuple[RequestClass, ...] = ()
    needs: tuple[str, ...] = ()
    sites: tuple[str, ...] | None = None
    region: str | None = None
    deadline: float | None = None
    starts: float = 0.0


@dataclass(frozen=True)
class Problem:
    """A whole question. `defaulted`: key paths that the file left to their defaults; `base`: the file's folder."""

    workloads: tuple[Workload, ...]
    title: str = ""
    seed: int = 0
    objectives: tuple[Objective, ...] = (Objective("cost"),)
    gap: float = 1e-3
    time_limit: float | None = None
    assume: Assume = Assume()
    horizon: Horizon = Horizon()
    hardware: Hardware = Hardware()
    limits: Limits = Limits()
    scenarios: tuple[Scenario, ...] = ()
    risk: Risk = Risk()
    base: Path = Path()
    defaulted: tuple[str, ...] = ()
