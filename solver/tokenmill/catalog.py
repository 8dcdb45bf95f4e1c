"""The catalogue: chips, systems, networks, stores, prices and what is known of each, looked up by name.

Everything is in SI units: B, B/s of one chip in one direction, FLOP/s dense, s, W, USD. The files under ``catalog/`` are
the record; their forms are described at the head of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from tokenmill import data
from tokenmill.catalog_chips import borrowed, own_chip, own_share, read_chip
from tokenmill.catalog_entry import Entry, read_csv, read_toml
from tokenmill.catalog_prices import RENTAL, choose_price, prices_of, read_purchases, read_rentals
from tokenmill.catalog_records import (
    MATURITY,
    PRECISIONS,
    Achieved,
    Chip,
    Figure,
    Grid,
    Link,
    MemoryTier,
    Network,
    Precision,
    Price,
    PriceChoice,
    Rate,
    Refused,
    Source,
    Store,
    System,
)
from tokenmill.catalog_show import catalog_entry, catalog_table
from tokenmill.catalog_stores import STORE, store_chip, store_price, store_system
from tokenmill.catalog_systems import plainest_host, read_system
from tokenmill.catalog_tables import (
    read_achieved,
    read_failures,
    read_grids,
    read_links,
    read_network,
    read_precisions,
    read_rates,
    read_refused,
    read_services,
    read_sources,
    read_store,
)
from tokenmill.errors import CatalogError, nearest

__all__ = [
    "Achieved",
    "Catalog",
    "Chip",
    "Figure",
    "Grid",
    "Link",
    "MemoryTier",
    "Network",
    "Precision",
    "Price",
    "PriceChoice",
    "Rate",
    "Refused",
    "Source",
    "Store",
    "System",
    "catalog_entry",
    "catalog_table",
    "load_catalog",
]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Catalog:
    """All tables by id; `version` is a digest of the files they were read from."""

    chips: Mapping[str, Chip]
    systems: Mapping[str, System]
    links: Mapping[str, Link]
    achieved: tuple[Achieved, ...]
    networks: Mapping[str, Network]
    stores: Mapping[str, Store]
    prices: tuple[Price, ...]
    services: Mapping[str, Rate]
    cpus: Mapping[str, Rate]
    grids: Mapping[str, Grid]
    power: Mapping[str, Rate]
    precisions: Mapping[str, Precision]
    failures: Mapping[str, Figure]
    refused: Mapping[str, Refused]
    version: str

    def chip(self, id: str) -> Chip:
        """Return a chip, or a unit of the store of that name; raises CatalogError with the nearest name, or why it is not offered."""
        if id in self.stores and id not in self.chips:
            return store_chip(self.stores[id])
        return self._find(id, self.chips, "chip")

    def system(self, id: str) -> System:
        """Return a system, the plainest host of the chip, or the store of that name; raises CatalogError like `chip`."""
        if id in self.systems:
            return self.systems[id]
        if id in self.chips:
            return plainest_host(self.chips[id], self._host_watts)
        if id in self.stores:
            return store_system(self.stores[id])
        names: dict[str, System | Chip] = {**self.chips, **self.systems}
        raise self._unknown(id, names, "system")

    def network(self, id: str) -> Network:
        """Return a network; raises CatalogError with the nearest name."""
        return self._find(id, self.networks, "network")

    def store(self, id: str) -> Store:
        """Return a store; raises CatalogError with the nearest name."""
        return self._find(id, self.stores, "store")

    def precision(self, id: str) -> Precision:
        """Return a number format; raises CatalogError with the nearest name."""
        return self._find(id, self.precisions, "precision")

    def failure_rate(self, chip_id: str) -> Figure:
        """Return unplanned interruptions per chip and second of running [1/s]."""
        return self.failures.get(chip_id) or self.failures["default"]

    def find_systems(self, maturity: str = "production") -> list[System]:
        """Return the systems that a choice of maturity admits, and the plainest host of each chip that has none of them."""
        if maturity not in MATURITY:
            raise CatalogError(f"maturity: found {maturity!r}; allowed: {', '.join(MATURITY)}")
        admitted = MATURITY[: MATURITY.index(maturity) + 1]
        found = [system for system in self.systems.values() if system.maturity in admitted]
        hosted = {system.chip for system in self.systems.values()}
        bare = (c for c in self.chips.values() if c.maturity in admitted and c.id not in hosted and not c.missing)
        return [*found, *(self.system(chip.id) for chip in bare)]

    def prices_of(
        self,
        system_id: str,
        market: str,
        provider: str | None = None,
        region: str | None = None,
        price_date: str | None = None,
    ) -> list[Price]:
        """Return all prices that stand for a system in a market (see `tokenmill.catalog_prices`), oldest first."""
        return prices_of(self.prices, self.system(system_id), market, provider, region, price_date)

    def price(
        self,
        system_id: str,
        market: str,
        provider: str | None = None,
        region: str | None = None,
        price_date: str | None = None,
    ) -> PriceChoice | None:
        """Return the price taken: the median over providers of the newest month; to buy, else the list price; None if none."""
        system = self.system(system_id)
        if system.hardware == STORE:
            return store_price(self.stores[system_id], market)
        newest = max((price.date for price in self.prices), default="0000-01")
        rows = prices_of(self.prices, system, market, provider, region, price_date)
        whole = [row for row in rows if row.unit == "system"]
        if market == "buy" and not whole and system.list_price is not None:
            figure = system.figures["list_price"]
            return PriceChoice(None, system.list_price, (system.vendor,), "", False, figure.source, figure.evidence)
        return choose_price(whole or rows, system, newest)

    def measured_share(self, chip_id: str, precision: str) -> Figure:
        """Return the share of the dense peak (or, for ``bandwidth``, of memory bandwidth) that a chip reaches [1].

        Its own measured maximum; else that of its nearest measured relative (`Chip.like`), then of another precision of
        either, then the median of all measured chips: never 1 for want of a measurement.
        """
        lineage = self.lineage(chip_id)
        for chip in lineage:
            share = own_share(chip, precision)
            if share is not None:
                return borrowed(share, chip, chip_id, precision)
        kinds = ("bandwidth",) if precision == "bandwidth" else PRECISIONS
        for chip in lineage:
            for other in kinds:
                share = own_share(chip, other)
                if share is not None:
                    return borrowed(share, chip, chip_id, other, exact=False)
        shares = [s for c in self.chips.values() for kind in kinds if (s := own_share(c, kind)) is not None]
        return Figure(median(shares), "1", "median of all measured chips", "guess")

    def link_share(self, chip_id: str, operation: str = "all_gather") -> Figure:
        """Return the share of the scale-up (or host) link that a collective reaches [1], of the chip or a relative.

        `operation`: all_gather, reduce_scatter, alltoall, all_reduce, pair_copy, scale_out_all_reduce.
        """
        for chip in self.lineage(chip_id):
            for wanted in (operation, "all_gather", "all_reduce"):
                for row in self.achieved:
                    if row.general and row.chip == chip.id and row.operation == wanted:
                        own = chip.id == chip_id and wanted == operation
                        return Figure(
                            row.share, "1", f"{wanted} on {chip.id}: {row.source}", row.evidence if own else "guess"
                        )
        rows = [row.share for row in self.achieved if row.general and row.operation in (operation, "all_gather")]
        return Figure(median(rows), "1", f"median of measured {operation}", "guess")

    def fabric_share(self, system_id: str) -> Figure:
        """Return the share of its network rate that a system's collectives over several nodes reach [1]."""
        rows = [row for row in self.achieved if row.general and row.operation == "scale_out_all_reduce"]
        own = next((row for row in rows if row.chip == self.system(system_id).chip), None)
        if own:
            return Figure(own.share, "1", f"all-reduce over nodes of {own.chip}: {own.source}", own.evidence)
        return Figure(median(row.share for row in rows), "1", "median of measured all-reduces over nodes", "guess")

    def with_chips(self, stated: Mapping[str, Mapping[str, Any]]) -> Catalog:
        """Return the catalogue with chips of a problem file: {name: {key of `own_chip`: SI value, like: name}}.

        Systems whose links are those of a chip that is replaced have the links of the new one.
        """
        idle = self.power["gpu-idle-power-fraction"].figure.value
        own = [
            own_chip(name, fields, self.chips.get(name), self.chips.get(fields.get("like") or ""), idle)
            for name, fields in stated.items()
        ]
        before = {chip.id: self.chips[chip.id] for chip in own if chip.id in self.chips}
        after = {chip.id: chip for chip in own}
        systems = [
            _relinked(system, before[system.chip], after[system.chip])
            for system in self.systems.values()
            if system.chip in before
        ]
        return self.overlaid(chips=own, systems=systems)

    def overlaid(
        self, chips: Iterable[Chip] = (), systems: Iterable[System] = (), prices: Iterable[Price] = ()
    ) -> Catalog:
        """Return the catalogue with further records; one of a known id takes its place, prices replace those of their
        chip or system and market.
        """
        prices = tuple(prices)
        laid = {(price.chip or price.system, price.market) for price in prices}
        kept = tuple(p for p in self.prices if not {(p.chip, p.market), (p.system, p.market)} & laid)
        return replace(
            self,
            chips={**self.chips, **{chip.id: chip for chip in chips}},
            systems={**self.systems, **{system.id: system for system in systems}},
            prices=(*kept, *prices),
        )

    @property
    def _host_watts(self) -> float:
        return self.power["h100-server-non-gpu-power"].figure.value / 8

    def lineage(self, chip_id: str) -> list[Chip]:
        """Return the chip and the relatives whose shares it takes, nearest first."""
        line = [self.chip(chip_id)]
        while (like := line[-1].like) and like in self.chips and self.chips[like] not in line:
            line.append(self.chips[like])
        return line

    def _find(self, id: str, table: Mapping[str, T], kind: str) -> T:
        if id in table:
            return table[id]
        raise self._unknown(id, table, kind)

    def _unknown(self, id: str, known: Iterable[str], kind: str) -> CatalogError:
        if id in self.refused:
            refused = self.refused[id]
            return CatalogError(f"{kind} {id!r} is not offered ({refused.status}): {refused.reason}")
        hint = nearest(id, known)
        meant = f" (did you mean {hint!r}?)" if hint else ""
        return CatalogError(f"{kind}: found {id!r}{meant}; allowed: a name of the catalogue")


def load_catalog(extra: Path | None = None) -> Catalog:
    """Return the shipped catalogue, with a user's own folder laid over it.

    `extra` holds any of ``chips/ systems/ networks/ stores/ prices/`` in the forms of the shipped files: a table of a
    known id overrides the keys that it gives, and is marked ``origin = "user"``; prices replace those of their chip and
    market (a rental table of ours, or a SkyPilot-style one).

    Raises
    ------
    CatalogError
        For a folder that is not there, or a file with a fault, with its place.
    """
    return _shipped() if extra is None else _load(Path(extra))


@cache
def _shipped() -> Catalog:
    return _load(None)


def _load(extra: Path | None) -> Catalog:
    root = data.path("catalog")
    if extra is not None and not extra.is_dir():
        raise CatalogError(f"catalogue folder: found {str(extra)!r}; allowed: a directory")
    cite = _citer(read_sources(root))
    power = read_rates(root / "power" / "power.csv", cite)
    idle = power["gpu-idle-power-fraction"].figure
    watts = power["h100-server-non-gpu-power"].figure.value / 8
    chips = {id: read_chip(id, entry, cite, idle, user) for id, entry, user in _tables(root, extra, "chips")}
    systems = {
        id: read_system(id, entry, chips, cite, watts, user) for id, entry, user in _tables(root, extra, "systems")
    }
    catalog = Catalog(
        chips=chips,
        systems=systems,
        links=read_links(root / "links" / "links.csv", cite),
        achieved=read_achieved(root / "links" / "achieved.csv", cite),
        networks={id: read_network(id, e, cite, user) for id, e, user in _tables(root, extra, "networks")},
        stores={id: read_store(id, e, cite, user) for id, e, user in _tables(root, extra, "stores")},
        prices=(
            *read_rentals(root / "prices" / "rental.csv", cite),
            *read_purchases(root / "prices" / "purchase.csv", chips, cite),
        ),
        services=read_services(root / "prices" / "services.csv", cite),
        cpus=read_rates(root / "cpus" / "rates.csv", cite),
        grids=read_grids(root / "grids", cite),
        power=power,
        precisions=read_precisions(root),
        failures=read_failures(root),
        refused=read_refused(root, cite),
        version=_digest(root, extra),
    )
    return catalog if extra is None else catalog.overlaid(prices=_own_prices(extra, chips, cite))


def _tables(root: Path, extra: Path | None, folder: str) -> list[tuple[str, Entry, bool]]:
    """Return id, table and whether the user gave some of it, for a folder of TOML files."""
    shipped = read_toml(root / folder)
    own = read_toml(extra / folder) if extra else {}
    merged = {id: {**shipped.get(id, {}), **own.get(id, {})} for id in {**shipped, **own}}
    return [(id, Entry(f"{folder}.{id}", table), id in own) for id, table in merged.items()]


def _relinked(system: System, before: Chip, after: Chip) -> System:
    """Return a system of a chip that was replaced, with links that were the chip's own in the proportion of the new ones."""
    links: dict[str, Any] = {}
    if before.scale_up and system.scale_up == before.scale_up:
        share = after.scale_up / before.scale_up
        links = {name: getattr(system, name) * share for name in ("scale_up", "scale_up_pair", "link_bandwidth")}
    if system.host_link == before.host_link:
        links["host_link"] = after.host_link
    return replace(system, **links)


def _own_prices(extra: Path, chips: Mapping[str, Chip], cite: Callable[[str, tuple[str, ...]], str]) -> list[Price]:
    """Return the prices of a user's folder: each CSV is a rental table, a purchase table or a SkyPilot-style list."""
    from tokenmill.imports.prices import read_prices

    found: list[Price] = []
    for file in sorted((extra / "prices").glob("*.csv")):
        columns = next(iter(read_csv(file)), {})
        if all(name in columns for name in RENTAL):
            found += read_rentals(file, cite, user=True)
        elif "usd" in columns:
            found += read_purchases(file, chips, cite, user=True)
        else:
            found += [replace(price, origin="user") for price in read_prices(file)]
    return found


def _citer(sources: Mapping[str, Source]) -> Callable[[str, tuple[str, ...]], str]:
    """Return the function from the place of an entry and its source keys to one citation with dates."""
    texts = {key: f"{s.cite} ({s.date})" if s.date else s.cite for key, s in sources.items()}

    def cite(place: str, keys: tuple[str, ...]) -> str:
        return "; ".join(texts.get(key, key) for key in keys) or "no source given"

    return cite


def _digest(root: Path, extra: Path | None) -> str:
    """Return twelve hexadecimal digits of the digest of all files of the catalogue, whatever the folder's place."""
    digest = hashlib.sha256()
    for base in (root, extra):
        for file in sorted(base.rglob("*")) if base else ():
            if file.is_file():
                digest.update(str(file.relative_to(base)).encode() + b"\0")  # type: ignore[arg-type]
                digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
