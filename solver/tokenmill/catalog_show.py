"""The catalogue for reading: rows and entries with units, sources and a mark for what is unchecked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tokenmill.catalog_records import Chip, Figure, Grid, Link, Network, Price, Store, System
from tokenmill.errors import CatalogError, nearest

if TYPE_CHECKING:
    from tokenmill.catalog import Catalog

Row = dict[str, Any]
KINDS = (
    "chips",
    "systems",
    "links",
    "networks",
    "stores",
    "prices",
    "services",
    "cpus",
    "grids",
    "power",
    "precisions",
    "refused",
)
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
KWH = 3.6e6
DECIMAL = ("FLOP/s", "op/s", "B/s", "W")


def readable(value: float | None, unit: str) -> str:
    """Return a value with its unit as people print it: 3.35 TB/s, 80 GiB, 989 TFLOP/s, 700 W."""
    if value is None:
        return "-"
    if unit == "B":
        return f"{value / 2**30:.4g} GiB" if value < 1e13 else f"{value / 1e12:.4g} TB"
    if unit == "USD":
        return f"${value:,.0f}" if value >= 100 else f"${value:.4g}"
    if unit == "s":
        return f"{value * 1e6:.4g} us" if value < 1e-2 else f"{value:.4g} s"
    scale, prefix = next(((s, p) for s, p in PREFIXES if unit in DECIMAL and abs(value) >= s), (1.0, ""))
    if unit == "W" and scale < 1e4 and value < 1e4:
        scale, prefix = 1.0, ""
    return f"{value / scale:.4g} {prefix}{unit}" if unit not in ("1", "") else f"{value:.4g}"


def mark(figures: Mapping[str, Figure], name: str) -> str:
    """Return the value of a figure, with ~ before a guess and ? after a claim."""
    figure = figures.get(name)
    if figure is None:
        return "-"
    text = readable(figure.value, figure.unit)
    return {"guess": f"~{text}", "claim": f"{text} ?"}.get(figure.evidence, text)


def short(source: str) -> str:
    """Return the names of the works cited, without what was read of them and when."""
    return "; ".join(dict.fromkeys(re.split(r",| [(]", cited)[0] for cited in source.split("; ")))


def _checked(record: Chip | System | Network | Store) -> str:
    return "yes" if record.checked else "no"


def _chip(chip: Chip) -> Row:
    return {
        "id": chip.id, "kind": chip.kind, "maturity": chip.maturity, "memory": mark(chip.figures, "capacity"),
        "bandwidth": mark(chip.figures, "bandwidth"),
        "bf16": mark(chip.figures, "peak.bf16" if "bf16" in chip.peak else "peak.fp16"),
        "fp8": mark(chip.figures, "peak.fp8"), "scale-up": mark(chip.figures, "scale_up"),
        "power": mark(chip.figures, "tdp"), "checked": _checked(chip), "origin": chip.origin, "source": short(chip.source),
    }  # fmt: skip


def _system(system: System) -> Row:
    return {
        "id": system.id, "kind": system.kind, "maturity": system.maturity, "chip": system.chip, "chips": system.chips,
        "domain": system.scale_up_domain, "topology": system.topology, "scale-up": mark(system.figures, "scale_up"),
        "scale-out": mark(system.figures, "scale_out"), "power": mark(system.figures, "power"),
        "list price": mark(system.figures, "list_price"), "checked": _checked(system), "origin": system.origin,
        "source": short(system.source),
    }  # fmt: skip


def _network(network: Network) -> Row:
    return {
        "id": network.id, "kind": network.kind, "a chip": readable(network.bandwidth, "B/s"), "leaf": network.leaf or "-",
        "oversubscription": network.oversubscription, "latency": readable(network.latency, "s"),
        "checked": _checked(network), "origin": network.origin, "source": short(network.source),
    }  # fmt: skip


def _link(link: Link) -> Row:
    return {
        "id": link.id, "kind": link.kind, "one way": readable(link.bandwidth, "B/s"), "of": link.of,
        "latency": readable(link.latency, "s"), "reached": "-" if link.achieved_fraction is None else link.achieved_fraction,
        "evidence": link.evidence, "source": short(link.source),
    }  # fmt: skip


def _store(store: Store) -> Row:
    month = None if store.price is None else store.price * 1e9 * 365 * 86400 / 12
    return {
        "id": store.id, "read": readable(store.read, "B/s"), "write": readable(store.write, "B/s"),
        "in all": "-" if store.total == float("inf") else readable(store.total, "B/s"),
        "latency": readable(store.latency, "s"), "price": "-" if month is None else f"${month:.4g}/GB-month",
        "checked": _checked(store), "origin": store.origin, "source": short(store.source),
    }  # fmt: skip


def _price(price: Price) -> Row:
    amount = (
        f"${price.per_chip_hour:.4g}/chip-h"
        if price.per_chip_hour is not None
        else f"${price.purchase:,.0f}/{price.unit}"
    )
    return {
        "chip": price.chip or "-", "system": price.system or "-", "provider": price.provider, "market": price.market,
        "region": price.region or "-", "price": amount, "as of": price.as_of, "evidence": price.evidence,
        "origin": price.origin, "source": short(price.source),
    }  # fmt: skip


def _grid(grid: Grid) -> Row:
    return {
        "id": grid.id,
        "region": grid.region,
        "carbon": "-" if grid.carbon is None else f"{grid.carbon * KWH * 1e3:.4g} g/kWh",
        "price": "-" if grid.price is None else f"${grid.price * KWH:.4g}/kWh",
        "water": "-" if grid.water is None else f"{grid.water * KWH * 1e3:.4g} L/kWh",
        "basis": grid.basis,
        "evidence": grid.evidence,
        "source": short(grid.source),
    }


def _plain(record: Any) -> Row:
    """Return the fields of a small record as they are."""
    row: Row = {}
    for name in record.__dataclass_fields__:
        value = getattr(record, name)
        if isinstance(value, Figure):
            row |= {
                "value": readable(value.value, value.unit),
                "evidence": value.evidence,
                "source": short(value.source),
            }
        else:
            row[name] = "-" if value is None else value
    return row


ROWS: Mapping[str, Callable[[Any], Row]] = {
    "chips": _chip, "systems": _system, "networks": _network, "links": _link, "stores": _store, "prices": _price,
    "grids": _grid,
}  # fmt: skip


def catalog_table(kind: str, catalog: Catalog | None = None) -> list[Row]:
    """Return the rows of a table for reading; ~ marks a guess, ? a claim of the maker.

    Raises
    ------
    CatalogError
        For a table that there is not.
    """
    shown = catalog or _shipped()
    if kind not in KINDS:
        hint = nearest(kind, KINDS)
        raise CatalogError(
            f"table: found {kind!r}" + (f" (did you mean {hint!r}?)" if hint else "") + f"; allowed: {', '.join(KINDS)}"
        )
    records = getattr(shown, kind)
    values = records.values() if isinstance(records, Mapping) else records
    return [ROWS.get(kind, _plain)(record) for record in values]


def catalog_entry(name: str, catalog: Catalog | None = None) -> Row:
    """Return all that the catalogue holds of a name, each figure with its unit, source and evidence.

    Raises
    ------
    CatalogError
        For a name that it does not hold, with the nearest; for one that is not offered, with the reason.
    """
    shown = catalog or _shipped()
    for kind in ("systems", "chips", "networks", "links", "stores", "services", "cpus", "grids", "power", "precisions"):
        record = getattr(shown, kind).get(name)
        if record is not None:
            return _entry(kind, record, shown)
    if name in shown.refused:
        return {"kind": "refused", **_plain(shown.refused[name])}
    known = [id for kind in KINDS if kind != "prices" for id in getattr(shown, kind)]
    hint = nearest(name, known)
    raise CatalogError(
        f"name: found {name!r}" + (f" (did you mean {hint!r}?)" if hint else "") + "; allowed: a name of the catalogue"
    )


def _entry(kind: str, record: Any, catalog: Catalog) -> Row:
    figures = getattr(record, "figures", {})
    row: Row = {"table": kind}
    for name in record.__dataclass_fields__:
        value = getattr(record, name)
        if name in ("figures", "peak", "measured_peak", "other_engines") or name in figures or value in (None, "", ()):
            continue
        row[name] = _plain(value) if isinstance(value, Figure) else value
    if isinstance(record, Chip):
        row["memory"] = [
            {
                "tier": t.name,
                "capacity": readable(t.capacity, "B"),
                "bandwidth": readable(t.bandwidth, "B/s"),
                "label": t.label,
            }
            for t in record.memory
        ]
    row["figures"] = {
        name: {
            "value": f.value,
            "unit": f.unit,
            "reads": readable(f.value, f.unit),
            "evidence": f.evidence,
            "source": short(f.source),
        }
        for name, f in figures.items()
    }
    if isinstance(record, Chip | System):
        chip, system = (record.id, None) if isinstance(record, Chip) else (record.chip, record.id)
        row["prices"] = [
            _price(p) for p in catalog.prices if (p.system == system if p.system and system else p.chip == chip)
        ]
    return row


def _shipped() -> Catalog:
    from tokenmill.catalog import load_catalog

    return load_catalog()
