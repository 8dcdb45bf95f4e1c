"""What can be had: every system in every asked market, with its price, its domains and where it may stand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any, Protocol

from tokenmill.catalog_stores import STORE
from tokenmill.errors import CatalogError, Mistake
from tokenmill.problem import MATURITIES, PriceOverride, Problem, Site, Supply

YEAR = 365 * 86400.0
KIND_OF_MARKET = {"buy": "buy", "on-demand": "rent", "spot": "rent", "reserved-1y": "reserve", "reserved-3y": "reserve"}
COMMITMENT = {"reserved-1y": YEAR, "reserved-3y": 3 * YEAR}


@dataclass(frozen=True)
class Offer:
    """One system in one market.

    `kind`: buy, reserve, rent or owned. `price`: USD to buy a system, else USD an hour of one; `later`: (from period,
    price) that replaces it. `chips` a system, in `domains` scale-up domains of `domain` chips. `by_chip`: had by the
    chip (counts are chips, each at its part of the price). `host_power`: W of a system beyond its chips; `chip_idle`,
    `chip_tdp`: W a chip. `commitment`: s. `sites`: where it may stand (None: anywhere). `at_most`: systems of this
    offer. `preemptions_per_day`: of one system on spot. `chip_outage`: failures of a chip times their repair, a share of
    time. `minimum`: the fewest systems of one order. `until`: last period in which it can be used. `counted`: its units are
    chips, which limits on chips count (units of a store are not).
    """

    system: str
    market: str
    kind: str
    price: float
    chips: int
    domain: int
    domains: int
    by_chip: bool = False
    host_power: float = 0.0
    chip_idle: float = 0.0
    chip_tdp: float = 0.0
    commitment: float | None = None
    sites: tuple[str, ...] | None = None
    at_most: int | None = None
    minimum: int = 0
    from_period: int = 1
    until: int | None = None
    later: tuple[tuple[int, float], ...] = ()
    preemptions_per_day: float | None = None
    chip_outage: float = 0.0
    price_source: str = ""
    stale: bool = False
    counted: bool = True

    @property
    def key(self) -> str:
        """Canonical text that orders offers."""
        where = "" if self.sites is None else "@" + ",".join(self.sites)
        until = "" if self.until is None else f"-{self.until}"
        return f"{self.system}/{self.market}{where}/{self.minimum:06d}/{self.from_period:04d}{until}"

    @property
    def unit_chips(self) -> int:
        """Chips of one counted unit: a chip where had by the chip, else a system's."""
        return 1 if self.by_chip else self.chips

    @property
    def counted_chips(self) -> int:
        """Chips of one counted unit that limits on chips count."""
        return self.unit_chips if self.counted else 0

    @property
    def unit_power(self) -> float:
        """W of one counted unit whose chips are idle, with its part of the host."""
        return (self.host_power / self.chips + self.chip_idle) * self.unit_chips

    def unit_price(self, period: int) -> float:
        """USD (an hour, or to buy) of one counted unit in a period."""
        price = self.price
        for start, value in self.later:
            if start <= period:
                price = value
        return price * self.unit_chips / self.chips


class CatalogLike(Protocol):
    """What is asked of the catalogue."""

    def find_systems(self, maturity: str = ...) -> Any: ...  # noqa: D102
    def system(self, id: str) -> Any: ...  # noqa: D102
    def chip(self, id: str) -> Any: ...  # noqa: D102
    def price(  # noqa: D102
        self,
        system_id: str,
        market: str,
        provider: str | None = ...,
        region: str | None = ...,
        price_date: str | None = ...,
    ) -> Any: ...


def offers(problem: Problem, catalog: CatalogLike, further: tuple[str, ...] = ()) -> tuple[list[Offer], list[Mistake]]:
    """Return every offer of a problem, and a note for each system left out of markets, with the reason.

    Asked systems, or all that the asked maturity admits, and `further` ones; the user's prices win over the catalogue's;
    owned systems are offers at price 0.
    """
    found: list[Offer] = []
    notes: list[Mistake] = []
    for name in sorted({*_asked(problem, catalog), *further}):
        missing = []
        for market in _markets(problem, catalog, name):
            made = _in_market(problem, catalog, name, market)
            if isinstance(made, str):
                missing.append(f"{market}{made}")
                continue
            found += made
        if missing:
            lacks = f"no price of {name} for {', '.join(missing)}"
            notes.append(
                Mistake(f"hardware.systems.{name}", lacks, "a price in the catalogue or under [[hardware.price]]")
            )
    for owned in problem.hardware.owned:
        base = _base(problem, catalog, owned.system, "owned", "owned", 0.0)
        sites = base.sites if owned.site is None else (owned.site,)
        found.append(replace(base, sites=sites, at_most=owned.count, until=owned.retires, price_source="owned"))
    notes = notes if problem.hardware.systems is not None else _together(notes)
    return sorted(_merged(found), key=lambda offer: offer.key), notes


def _markets(problem: Problem, catalog: CatalogLike, name: str) -> tuple[str, ...]:
    """Return the markets in which a system is sought; stores are rented as they are used, whatever else is asked."""
    asked = problem.hardware.markets
    if getattr(catalog.system(name), "hardware", "") != STORE:
        return asked
    rented = tuple(market for market in asked if market in ("on-demand", "spot"))
    return rented if "on-demand" in rented else ("on-demand", *rented)


def _together(notes: list[Mistake]) -> list[Mistake]:
    """Return one note for all systems that nobody asked for by name and that lack a price in the same markets."""
    alike: dict[str, list[Mistake]] = {}
    for note in notes:
        alike.setdefault(note.found.partition(" for ")[2], []).append(note)
    return [
        Mistake(
            "hardware.systems",
            f"no price for {markets} of {', '.join(sorted(note.key.rpartition('.')[2] for note in group))}",
            group[0].allowed,
        )
        for markets, group in sorted(alike.items())
    ]


def _asked(problem: Problem, catalog: CatalogLike) -> list[str]:
    hardware = problem.hardware
    if hardware.systems is not None:
        return sorted(set(hardware.systems))
    admitted = MATURITIES[: MATURITIES.index(hardware.maturity) + 1]
    names = {_name(system) for maturity in admitted for system in catalog.find_systems(maturity)}
    return sorted(names)


def _name(system: Any) -> str:
    return system if isinstance(system, str) else str(system.id)


def _in_market(problem: Problem, catalog: CatalogLike, name: str, market: str) -> list[Offer] | str:
    """Return the offers of a system in a market (one a price tier), or words on why there are none."""
    own = [p for p in problem.hardware.prices if p.market == market and _same(catalog, p.system, name)]
    if own:
        return _own_price(problem, catalog, name, market, own)
    narrow = {k: v for k in ("provider", "region", "price_date") if (v := getattr(problem.hardware, k)) is not None}
    try:
        choice = catalog.price(name, market, **narrow)
    except CatalogError as error:
        return f" ({error})"
    kind = KIND_OF_MARKET[market]
    price = None if choice is None else choice.purchase if kind == "buy" else choice.per_chip_hour
    if price is None:
        return ""
    offer = _base(problem, catalog, name, market, kind, 0.0)
    source = ", ".join((*_providers(choice), str(getattr(choice, "date", "")))).strip(", ")
    whole = float(price) * (1 if kind == "buy" else offer.chips)
    return [replace(offer, price=whole, price_source=source, stale=bool(getattr(choice, "stale", False)))]


def _providers(choice: Any) -> tuple[str, ...]:
    providers = getattr(choice, "providers", ())
    return (providers,) if isinstance(providers, str) else tuple(str(p) for p in providers)


def _own_price(problem: Problem, catalog: CatalogLike, name: str, market: str, own: list[PriceOverride]) -> list[Offer]:
    """Return offers at the user's prices: the first period's, later ones after it, and one more offer a tier."""
    offer = _base(problem, catalog, name, market, KIND_OF_MARKET[market], 0.0)

    def price(override: PriceOverride) -> float:
        if override.purchase is not None:
            return override.purchase
        return (
            override.per_system_hour
            if override.per_system_hour is not None
            else (override.per_chip_hour or 0.0) * offer.chips
        )

    ordered = sorted(own, key=lambda p: p.from_period)
    steps = tuple((p.from_period, price(p)) for p in ordered[1:])
    start = max(offer.from_period, ordered[0].from_period)
    first = replace(offer, price=price(ordered[0]), later=steps, from_period=start, price_source="problem file")
    tiers = [
        replace(
            first,
            minimum=max(first.minimum, start),
            price=first.price * factor,
            later=tuple((period, value * factor) for period, value in steps),
        )
        for start, factor in ordered[0].tiers
    ]
    return [first, *tiers]


def _same(catalog: CatalogLike, a: str, b: str) -> bool:
    return a == b or _name(catalog.system(a)) == _name(catalog.system(b))


def _base(problem: Problem, catalog: CatalogLike, name: str, market: str, kind: str, price: float) -> Offer:
    """Return an offer with the system's shape and power, and the user's limits of supply."""
    system = catalog.system(name)
    chip = catalog.chip(system.chip)
    domain = max(1, min(int(system.scale_up_domain or 1), int(system.chips)))
    by_chip = bool(system.rent_by_chip) and kind == "rent"
    supply = [s for s in problem.hardware.supply if s.system == name]
    tdp = float(chip.tdp or 0.0)
    offer = Offer(
        system=_name(system),
        market=market,
        kind=kind,
        price=price,
        chips=int(system.chips),
        domain=domain,
        domains=max(1, int(system.chips) // domain),
        by_chip=by_chip,
        host_power=_host_power(system, tdp),
        chip_idle=float(chip.idle_power or 0.0),
        chip_tdp=tdp,
        commitment=COMMITMENT.get(market),
        sites=_sites(problem.hardware.sites, system),
        minimum=max((s.minimum_order for s in supply if s.minimum_order > 1), default=0) if kind != "owned" else 0,
        preemptions_per_day=_preemptions(supply) if market == "spot" else None,
    )
    if getattr(system, "hardware", "") == STORE:
        return replace(offer, counted=False, preemptions_per_day=0.0)  # nothing interrupts a store
    return offer


def _preemptions(supply: list[Supply]) -> float | None:
    """Return preemptions a day that the problem states of a system, None where it does not."""
    return max((s.preemptions_per_day for s in supply if s.preemptions_per_day is not None), default=None)


def _host_power(system: Any, tdp: float) -> float:
    """Return W of a system beyond its chips: as given, else what its largest draw leaves over its chips' TDP."""
    if getattr(system, "host_power", None):
        return float(system.host_power)
    whole = getattr(system, "power", None)
    return max(0.0, float(whole) - tdp * int(system.chips)) if whole else 0.0


def _sites(sites: tuple[Site, ...], system: Any) -> tuple[str, ...] | None:
    """Return the sites whose cooling and racks suit a system; None where all do."""
    cooling = getattr(system, "cooling", None)
    rack = getattr(system, "rack_power", None) or 0.0
    fit = [s.name for s in sites if not (cooling == "liquid" and s.cooling == "air") and float(rack) <= s.rack_power]
    return None if len(fit) == len(sites) else tuple(sorted(fit))


def _merged(found: list[Offer]) -> list[Offer]:
    """Return offers with those of one key added up (the same owned systems listed twice)."""
    by_key: dict[str, Offer] = {}
    for offer in found:
        same = by_key.get(offer.key)
        if same is None:
            by_key[offer.key] = offer
        elif offer.kind == "owned":
            by_key[offer.key] = replace(same, at_most=(same.at_most or 0) + (offer.at_most or 0))
    return list(by_key.values())


def most_of(problem: Problem, system: str, period: int) -> float:
    """Return how many of a system can be had by a period (inf: no limit); 0 before its first period and its lead time."""
    records = sorted((s for s in problem.hardware.supply if s.system == system), key=lambda s: s.from_period)
    begins = (period - 1) * problem.horizon.duration / problem.horizon.periods
    most = 0.0 if records else inf
    for record in records:
        if record.from_period <= period and record.lead_time <= begins * (1 + 1e-12):
            most = inf if record.at_most is None else float(record.at_most)
    return most


def lead_time_of(problem: Problem, system: str) -> float:
    """Return the longest lead time [s] that the problem states for a system."""
    return max((s.lead_time for s in problem.hardware.supply if s.system == system), default=0.0)
