"""The resolved problem: what a user asked, in SI units, with every default filled in.

Each field that a problem file may hold carries its Key (see reading_keys); the reader and the schema come from these.
"""

# key() makes a dataclasses.field, which ruff cannot see: RUF009 is off here
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from tokenmill.reading_keys import key

MATURITIES = ("production", "customer-test", "lab", "simulation")
MARKETS = ("buy", "reserved-1y", "reserved-3y", "on-demand", "spot")
OBJECTIVES = ("cost", "cost_per_token", "cost_per_run", "cost_per_task", "time", "power", "energy", "carbon", "chips")
CHIP_DIMENSIONS = {
    "memory": "B",
    "bandwidth": "B/s",
    **dict.fromkeys(("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4"), "FLOP/s"),
    "power": "W",
    "host_link": "B/s",
    "scale_up": "B/s",
}  # what a chip of the user's may state, with its dimension

YEAR = 365 * 86400.0
HOUR = 3600.0


@dataclass(frozen=True)
class Objective:
    """What to minimise; `workload` and `count` ("output" or "all") for the ratios."""

    minimise: str = key("what is made smallest", "word", among=OBJECTIVES)
    workload: str | None = key("the workload that a ratio or a time is of", "name", of="workload", default=None)
    count: str = key("the tokens that a cost per token counts", "text", default="output")


@dataclass(frozen=True)
class Assume:
    """What the user lays down in place of a prediction; `chip` maps chip id to {key of CHIP_DIMENSIONS: SI value}."""

    efficiency: str = key(
        "shares of the peaks that are reached", "word", among=("calibrated", "ideal"), default="calibrated"
    )
    mfu: float | None = key("replaces the prediction of compute time", above=0.0, maximum=1.0, default=None)
    memory_fraction: float | None = key(
        "share of a chip's memory that an engine takes", above=0.0, maximum=1.0, default=None
    )
    chip: Mapping[str, Mapping[str, Any]] = key(
        "figures of chips to put in place of the catalogue's", "chip_table", default={}
    )


@dataclass(frozen=True)
class Horizon:
    """The planned time: `duration` [s] in equal `periods`, each day in `slices` (name to share of the day)."""

    duration: float = key("the planned time", dimension="s", above=0.0, default=YEAR)
    periods: int = key("equal parts of it", whole=True, minimum=1, maximum=1200, default=1)
    slices: Mapping[str, float] = key(
        "shares of each day, which sum to 1", "shares", above=0.0, maximum=1.0, default={"all": 1.0}
    )
    discount_rate: float = key("a year", maximum=1.0, default=0.0)
    commitments: str = key(
        "what a reservation costs past the horizon", "word", among=("full", "prorate"), default="full"
    )


@dataclass(frozen=True)
class Tier:
    """A rebate: from so many systems on, the price times a factor."""

    start: int = key("systems from which it holds", name="from", whole=True, minimum=1)
    factor: float = key("of the price", above=0.0, maximum=1.0)


@dataclass(frozen=True)
class PriceOverride:
    """A price of the user's: one of USD a chip-hour, USD a system-hour, or USD to buy a system."""

    system: str = key("the system or chip", "name", of="system")
    market: str = key("how it is had", "word", among=MARKETS)
    per_chip_hour: float | None = key("rent of a chip", dimension="USD/s", scale=HOUR, default=None)
    per_system_hour: float | None = key("rent of a system", dimension="USD/s", scale=HOUR, default=None)
    purchase: float | None = key("price of a system", dimension="USD", default=None)
    from_period: int = key("first period in which it holds", whole=True, minimum=1, default=1)
    tiers: tuple[tuple[int, float], ...] = key("rebates on volume", "tuples", table=Tier, default=())


@dataclass(frozen=True)
class Site:
    """A place: IT power limit [W], PUE, electricity [USD/J], carbon [kg/J], rack power [W], latency to regions [s]."""

    name: str = key("its name", "identifier", default="site")
    power: float = key("IT power that it has", dimension="W", default=inf)
    pue: float = key("facility power over IT power", minimum=1.0, maximum=10.0, default=1.3)
    electricity: Mapping[str, float] = key(
        "price of electricity, one or by slice", "by_slice", dimension="USD/J", default={"all": 0.08 / 3.6e6}
    )
    carbon: Mapping[str, float] = key(
        "carbon of electricity, one or by slice", "by_slice", dimension="kg/J", default={"all": 0.4 / 3.6e6}
    )
    rack_power: float = key("power that one rack may draw", dimension="W", above=0.0, default=inf)
    cooling: str | None = key("how heat is taken away", "word", among=("air", "liquid"), default=None)
    regions: Mapping[str, float] = key("time to regions of users and back", "table", dimension="s", default={})


@dataclass(frozen=True)
class Wan:
    """A link between two sites, both directions alike: bandwidth [B/s], latency [s]."""

    source: str = key("a site", "name", name="from", of="site")
    target: str = key("another site", "name", name="to", of="site")
    bandwidth: float = key("in each direction", dimension="B/s", above=0.0)
    latency: float = key("one way", dimension="s", default=0.0)


@dataclass(frozen=True)
class Supply:
    """What can be had of a system: at most so many, from a period, after a lead time [s]; spot: preemptions a day."""

    system: str = key("the system or chip", "name", of="system")
    at_most: int | None = key("systems that can be had", whole=True, default=None)
    from_period: int = key("first period in which it can be had", whole=True, minimum=1, default=1)
    lead_time: float = key("between order and use", dimension="s", default=0.0)
    minimum_order: int = key("fewest systems of an order", whole=True, default=0)
    preemptions_per_day: float | None = key("of a spot system", default=None)


@dataclass(frozen=True)
class Owned:
    """Systems that stand already: at a site, so many, until the end of period `retires`."""

    system: str = key("the system or chip", "name", of="system")
    count: int = key("systems that stand", whole=True, minimum=1)
    site: str | None = key("where they stand", "name", of="site", default=None)
    retires: int | None = key("last period in which they serve", whole=True, minimum=1, default=None)


@dataclass(frozen=True)
class CustomChip:
    """A chip of the user's: key of CHIP_DIMENSIONS to SI value, and the chip whose efficiencies it takes."""

    name: str
    fields: Mapping[str, float]
    like: str | None = None


@dataclass(frozen=True)
class Ownership:
    """Terms of what is bought: life [s], residual share at its end, operations a year and maintenance share of time."""

    life: float = key("time over which it is written off", dimension="s", above=0.0, default=5 * YEAR)
    residual: float = key("share of the price left at the end", maximum=1.0, default=0.0)
    operations: float = key("share of the price, a year", maximum=1.0, default=0.0)
    maintenance: float = key("share of time out of service", maximum=0.99, default=0.0)


@dataclass(frozen=True)
class Hardware:
    """What may be used: systems (None: all of the asked maturity that have a price), markets, prices, places, supply."""

    systems: tuple[str, ...] | None = key("systems or chips that may be chosen", "names", of="system", default=None)
    markets: tuple[str, ...] = key("how they may be had", "words", among=MARKETS, default=("on-demand",))
    maturity: str = key(
        "what may be chosen; each word admits those before it", "word", among=MATURITIES, default="production"
    )
    fabric: str | None = key("a network of the catalogue", "name", of="network", default=None)
    topology: Path | None = key("a file with the network of one's own", "path", default=None)
    provider: str | None = key("whose prices count", "text", default=None)
    region: str | None = key("where prices hold", "text", default=None)
    price_date: str | None = key("newest month of a price that counts (2026-03)", "date", default=None)
    prices: tuple[PriceOverride, ...] = key(
        "prices in place of the catalogue's", "records", name="price", table=PriceOverride, default=()
    )
    sites: tuple[Site, ...] = key("places", "records", name="site", table=Site, default=(Site(),))
    wan: tuple[Wan, ...] = key("links between places", "records", table=Wan, default=())
    supply: tuple[Supply, ...] = key("what can be had", "records", table=Supply, default=())
    owned: tuple[Owned, ...] = key("what stands already", "records", table=Owned, default=())
    chips: tuple[CustomChip, ...] = key("chips of one's own", "chips", name="chip", default=())
    ownership: Ownership = key("terms of what is bought", "record", table=Ownership, default=Ownership())


@dataclass(frozen=True)
class Robust:
    """Factors under which the plan must still hold: on the demand, and on the predicted times."""

    demand: float = key("on the demand", above=0.0, maximum=100.0, default=1.0)
    times: float = key("on the predicted times", above=0.0, maximum=100.0, default=1.0)


@dataclass(frozen=True)
class Limits:
    """The user's limits: budget and cost [USD], chips, IT power [W], spot share, shed price [USD a unit], availability."""

    budget: float | None = key("cash paid over the horizon", dimension="USD", default=None)
    budget_per_period: float | None = key("cash paid in any period", dimension="USD", default=None)
    cost: float | None = key("accounting cost", dimension="USD", default=None)
    chips: int | None = key("chips at any time", whole=True, default=None)
    power: float | None = key("IT power at any time", dimension="W", default=None)
    spot_share: float | None = key("share of chips on the spot market", maximum=1.0, default=None)
    robust: Robust | None = key("the plan must still hold then", "record", table=Robust, default=None)
    shed: float | None = key("price at which demand may be refused", dimension="USD", default=None)
    availability: float | None = key("share of time with all that is needed", above=0.0, maximum=0.999999, default=None)


@dataclass(frozen=True)
class Scenario:
    """One future: probability, demand factor, price factor by market, supply by system."""

    name: str = key("its name", "identifier")
    probability: float = key("all of them sum to 1", above=0.0, maximum=1.0)
    demand: float = key("factor on the demand", default=1.0)
    price: Mapping[str, float] = key("factor on prices by market", "table", of="market", default={})
    supply: Mapping[str, int] = key("systems that can be had, by system", "table", of="system", whole=True, default={})


@dataclass(frozen=True)
class Risk:
    """Weight and level of the conditional value at risk in the expected cost."""

    cvar_weight: float = key("share of the cost that is the tail's mean", maximum=1.0, default=0.0)
    cvar_level: float = key("where the tail begins", maximum=0.9999, default=0.9)


@dataclass(frozen=True)
class Lengths:
    """Length of prompts or answers [tokens]: lognormal where `p95` is given, else every one the mean."""

    mean: float = key("mean tokens", above=0.0)
    p95: float | None = key("tokens that 95 of 100 do not pass", above=0.0, default=None)


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

    name: str = key("its name", "identifier")
    stage: str = key("the step of the model's life", "text")
    model: str | None = key("a name of the catalogue, or a path to a config.json", "model", default=None)
    values: Mapping[str, Any] = field(default_factory=dict)
    held: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    role_held: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    classes: tuple[RequestClass, ...] = ()
    needs: tuple[str, ...] = key("workloads that must end before", "names", of="workload", default=())
    sites: tuple[str, ...] | None = key("sites where it may stand", "names", of="site", default=None)
    region: str | None = key("where its users are", "name", of="region", default=None)
    deadline: float | None = key("latest end", dimension="s", above=0.0, default=None)
    starts: float = key("earliest start", dimension="s", default=0.0)
    quality: Mapping[str, float] = key(
        "share of the model's quality that a format keeps, as you judge it; one not named keeps all",
        "table", of="precision", maximum=1.0, default={},
    )  # fmt: skip
    min_quality: float = key("least share of the model's quality", maximum=1.0, default=0.0)


@dataclass(frozen=True)
class Problem:
    """A whole question. `defaulted`: key paths that the file left to their defaults; `base`: the file's folder."""

    workloads: tuple[Workload, ...] = key("the work", "workloads", name="workload")
    title: str = key("what is asked, in words", "text", default="")
    seed: int = key("of random numbers", whole=True, default=0)
    objectives: tuple[Objective, ...] = key(
        "what is made smallest; a list is lexicographic",
        "one_or_more",
        name="objective",
        table=Objective,
        default=(Objective("cost"),),
    )
    gap: float = key("proven distance to the best that is enough", maximum=1.0, default=1e-3)
    time_limit: float | None = key("of the search", dimension="s", above=0.0, default=None)
    assume: Assume = key("what is laid down in place of a prediction", "record", table=Assume, default=Assume())
    horizon: Horizon = key("the planned time", "record", table=Horizon, default=Horizon())
    hardware: Hardware = key("what may be used", "record", table=Hardware, default=Hardware())
    limits: Limits = key("what the plan may not pass", "record", table=Limits, default=Limits())
    scenarios: tuple[Scenario, ...] = key(
        "futures; none is certainty", "records", name="scenario", table=Scenario, default=()
    )
    risk: Risk = key("weight of the bad futures", "record", table=Risk, default=Risk())
    base: Path = Path()
    defaulted: tuple[str, ...] = ()
