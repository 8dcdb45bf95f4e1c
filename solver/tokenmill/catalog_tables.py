"""Networks, links, stores, rates, grids, formats, refused names: from the files of the catalogue to records in SI units."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

from tokenmill.catalog_chips import GB, Cite, Provenance
from tokenmill.catalog_entry import Entry, read_csv
from tokenmill.catalog_records import (
    EVIDENCE,
    PRECISIONS,
    Achieved,
    Figure,
    Grid,
    Link,
    Network,
    Precision,
    Rate,
    Refused,
    Source,
    Store,
)

NETWORKS = ("rail", "fat-tree", "dragonfly", "ethernet", "wan")
MICRO = 1e-6
KWH = 3.6e6
MONTH = 365 * 86400 / 12
"""Seconds of a month: a twelfth of a year of 365 days."""

UNITS: Mapping[str, tuple[float, str]] = {
    "GB/s": (1e9, "B/s"),
    "GB/s out": (1e9, "B/s"),
    "MB/s text": (1e6, "B/s"),
    "GB/h": (1e9 / 3600, "B/s"),
    "ms": (1e-3, "s"),
    "kW": (1e3, "W"),
    "kW per GPU": (1e3, "W"),
    "gCO2e/kWh": (1e-3 / KWH, "kg/J"),
    "L/kWh": (1e-3 / KWH, "m3/J"),
    "L/kWh IT": (1e-3 / KWH, "m3/J"),
    "kgCO2e per GB": (1e-9, "kg/B"),
    "kgCO2e per GPU": (1.0, "kg"),
    "kgCO2e per chip": (1.0, "kg"),
    "kgCO2e per server": (1.0, "kg"),
}
"""Units printed in the tables that SI replaces: factor and SI unit; any other is kept as printed."""


def read_sources(root: Path) -> dict[str, Source]:
    """Return the citations by key."""
    file = root / "sources.toml"
    tables = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return {key: Source(key, table["cite"], table.get("date", "")) for key, table in tables.items()}


def read_network(id: str, entry: Entry, cite: Cite, user: bool) -> Network:
    """Return the network of one table."""
    seen = Provenance(entry, cite)
    bandwidth = entry.number("gbit_per_s", least=1e-9) / 8 * GB
    latency = entry.number("latency_us", 0) * MICRO
    over = entry.number("oversubscription", 1, least=1)
    leaf, rails = entry.maybe("leaf", least=1), entry.maybe("rails", least=1)
    for name, value, unit in (
        ("bandwidth", bandwidth, "B/s"),
        ("latency", latency, "s"),
        ("oversubscription", over, "1"),
    ):
        seen.add(name, value, unit)
    seen.add("leaf", leaf, "chip")
    network = Network(
        id=id, name=entry.text("name", id), kind=entry.word("kind", NETWORKS), bandwidth=bandwidth,
        leaf=None if leaf is None else int(leaf), oversubscription=over, latency=latency,
        rails=None if rails is None else int(rails), source=seen.source, checked=seen.checked, figures=seen.figures,
        notes=entry.text("note", ""), origin="user" if user else "catalogue",
    )  # fmt: skip
    entry.finish()
    return network


def read_store(id: str, entry: Entry, cite: Cite, user: bool) -> Store:
    """Return the store of one table."""
    seen = Provenance(entry, cite)
    read, write = entry.number("read_gb_per_s", least=1e-9) * GB, entry.number("write_gb_per_s", least=1e-9) * GB
    total, connection = entry.maybe("total_gb_per_s", least=1e-9), entry.maybe("connection_gb_per_s", least=1e-9)
    per_tib, size = entry.maybe("gb_per_s_per_tib", least=1e-9), entry.maybe("capacity_tb", least=1e-9)
    month = entry.maybe("usd_per_gb_month")
    for name in ("usd_per_1000_reads", "usd_per_1000_writes", "reads_per_s_per_prefix"):
        seen.add(name, entry.maybe(name), name.rpartition("_per_")[2])
    store = Store(
        id=id, name=entry.text("name", id), read=read, write=write, total=inf if total is None else total * GB,
        connection=None if connection is None else connection * GB,
        per_byte=None if per_tib is None else per_tib * GB / 2.0**40, latency=entry.number("latency_us", 0) * MICRO,
        usable=entry.number("usable", 1), capacity=None if size is None else size * 1e12,
        price=None if month is None else month / 1e9 / MONTH, source=seen.source, checked=seen.checked,
        figures=seen.figures, notes=entry.text("note", ""), origin="user" if user else "catalogue",
    )  # fmt: skip
    entry.text("as_of", "")
    for name, value, unit in (("read", read, "B/s"), ("write", write, "B/s"), ("latency", store.latency, "s")):
        seen.add(name, value, unit)
    seen.add("price", store.price, "USD/(B s)")
    entry.finish()
    return store


def evidence_of(row: Entry) -> str:
    """Return the evidence of a CSV row from its columns checked and status."""
    if not row.flag("checked"):
        return "guess"
    return {"": "datasheet", "estimate": "guess"}.get(row.text("status", ""), "claim")


def read_links(file: Path, cite: Cite) -> dict[str, Link]:
    """Return the links of a CSV by id."""
    found = {}
    for row in _rows(file):
        share, latency = row.maybe("achieved_share"), row.maybe("latency_us")
        evidence = evidence_of(row)
        found[row.text("id")] = Link(
            id=row.text("id"), name=row.text("name"), kind=row.text("kind"), attach=row.text("attach", ""),
            bandwidth=row.number("gb_per_s") * GB, of=row.text("of"), latency=None if latency is None else latency * MICRO,
            achieved_fraction=share, source=cite(row.place, row.names("source")), evidence=evidence,
            latency_evidence=evidence if row.flag("latency_checked") else "guess", notes=row.text("note", ""),
        )  # fmt: skip
    return found


def read_achieved(file: Path, cite: Cite) -> tuple[Achieved, ...]:
    """Return what collectives reached, in the order of the CSV."""
    found = []
    for row in _rows(file):
        latency = row.maybe("small_message_us")
        found.append(
            Achieved(
                row.text("chip"),
                row.text("operation"),
                row.count("chips"),
                row.number("share"),
                None if latency is None else latency * MICRO,
                row.flag("general"),
                cite(row.place, row.names("source")),
                "measured" if row.flag("checked") else "guess",
            )
        )
    return tuple(found)


def read_rates(file: Path, cite: Cite) -> dict[str, Rate]:
    """Return the named figures of a CSV (CPU steps, power, PUE) by id, in SI where the unit has one."""
    found = {}
    for row in _rows(file):
        factor, unit = UNITS.get(row.text("unit"), (1.0, row.text("unit")))
        low, high = row.maybe("low"), row.maybe("high")
        figure = Figure(row.number("value") * factor, unit, cite(row.place, row.names("source")), evidence_of(row))
        found[row.text("id")] = Rate(
            row.text("id"), row.text("category"), row.text("name"), figure, row.text("per", ""),
            None if low is None else low * factor, None if high is None else high * factor, row.text("note", ""),
        )  # fmt: skip
    return found


def read_services(file: Path, cite: Cite) -> dict[str, Rate]:
    """Return the prices of services (storage, network, colocation, building) by id: USD per what `per` names."""
    found = {}
    for row in _rows(file):
        figure = Figure(row.number("usd"), "USD", cite(row.place, row.names("source")), evidence_of(row))
        offer = f"{row.text('name')}, {row.text('provider')}, {row.text('region')}"
        found[row.text("id")] = Rate(
            row.text("id"),
            row.text("category"),
            offer,
            figure,
            row.text("per"),
            row.maybe("low"),
            row.maybe("high"),
            row.text("note", ""),
        )
    return found


def read_grids(folder: Path, cite: Cite) -> dict[str, Grid]:
    """Return electricity by region: carbon and water of ``carbon.csv``, prices of ``electricity.csv``."""
    found = {}
    for row in _rows(folder / "carbon.csv"):
        factor, unit = UNITS[row.text("unit")]
        value = row.number("value") * factor
        carbon, water = (value, None) if unit == "kg/J" else (None, value)
        found[row.text("id")] = Grid(
            row.text("id"), row.text("region"), row.text("basis", row.text("category")), carbon, None, water, "",
            cite(row.place, row.names("source")), evidence_of(row), row.text("note", ""),
        )  # fmt: skip
    for row in _rows(folder / "electricity.csv"):
        found[row.text("id")] = Grid(
            row.text("id"), row.text("region"), "retail, industry", None, row.number("usd_per_kwh") / KWH, None,
            row.text("as_of", ""), cite(row.place, row.names("source")), evidence_of(row), row.text("note", ""),
        )  # fmt: skip
    return found


def read_precisions(root: Path) -> dict[str, Precision]:
    """Return the number formats by name."""
    found = {}
    for id, entry in _tables(root / "precisions.toml"):
        compute = entry.word("compute", PRECISIONS)
        found[id] = Precision(
            id, entry.number("bits", least=0.1), compute, entry.text("source"), entry.number("tile", 1.0, least=1.0)
        )
        entry.finish()
    return found


def read_refused(root: Path, cite: Cite) -> dict[str, Refused]:
    """Return the names that are not offered, with the reason."""
    found = {}
    for id, entry in _tables(root / "refused.toml"):
        source = cite(entry.place, entry.names("sources"))
        found[id] = Refused(id, entry.text("name", id), entry.text("status"), entry.text("reason"), source)
        entry.finish()
    return found


def read_failures(root: Path) -> dict[str, Figure]:
    """Return unplanned interruptions per chip and second of running, by chip id and ``default``."""
    found = {}
    for id, entry in _tables(root / "reliability.toml"):
        rate = entry.number("per_chip_year") / (365 * 86400)
        found[id] = Figure(rate, "1/s", entry.text("source"), entry.word("evidence", EVIDENCE))
        entry.finish()
    return found


def _rows(file: Path) -> list[Entry]:
    return [Entry(f"{file.parent.name}/{file.name}[{at}]", row) for at, row in enumerate(read_csv(file), start=1)]


def _tables(file: Path) -> list[tuple[str, Entry]]:
    tables: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return [(id, Entry(f"{file.name}[{id}]", table)) for id, table in tables.items()]
