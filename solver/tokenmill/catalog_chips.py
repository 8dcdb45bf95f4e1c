"""Chips: from the tables of the catalogue, or of a problem file, to records in SI units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tokenmill.catalog_entry import Entry
from tokenmill.catalog_records import MATURITY, PRECISIONS, TIERS, TOPOLOGIES, Chip, Figure, MemoryTier, main_tier
from tokenmill.errors import CatalogError

GB, GIB, TERA = 1e9, 2.0**30, 1e12
KINDS = ("gpu", "tpu", "asic", "npu", "sram", "cpu", "soc")
STATUSES = ("shipping", "announced", "company-claim", "estimate")
BOARD = 8
"""Chips of a scale-up domain where a problem file states its rate but not its size: one board."""

Cite = Callable[[str, tuple[str, ...]], str]


class Provenance:
    """Judges the figures of one entry: what its ``checked``, ``unchecked`` and ``status`` say of each."""

    def __init__(self, entry: Entry, cite: Cite) -> None:
        self.unchecked = entry.names("unchecked")
        self.checked = entry.flag("checked")
        self.status = entry.word("status", STATUSES, "shipping")
        self.source = cite(entry.place, entry.names("sources"))
        self.figures: dict[str, Figure] = {}

    def add(self, name: str, value: float | None, unit: str, group: str = "", evidence: str | None = None) -> None:
        """Record a figure under its name; `group` is what ``unchecked`` may call it by. None is no figure."""
        if value is None:
            return
        if evidence is None:
            doubted = {"all", name, name.rpartition(".")[2], group} & set(self.unchecked)
            claimed = "claim" if self.status in ("announced", "company-claim") else "datasheet"
            evidence = "guess" if doubted or self.status == "estimate" else claimed
        self.figures[name] = Figure(value, unit, self.source, evidence)


def read_chip(id: str, entry: Entry, cite: Cite, idle_share: Figure, user: bool) -> Chip:
    """Return the chip of one table.

    Raises
    ------
    CatalogError
        For the first fault, with its place, what was found and what is allowed.
    """
    seen = Provenance(entry, cite)
    hosted = entry.maybe("host_chips", least=1)
    chip = Chip(
        id=id,
        name=entry.text("name", id),
        vendor=entry.text("vendor", "unknown"),
        kind=entry.word("kind", KINDS, "gpu"),
        family=entry.text("family", id),
        year=int(entry.number("year", 0)) or None,
        maturity=entry.word("maturity", MATURITY, "production"),
        ranks=entry.count("ranks", 1),
        **_rates(entry, seen),
        **_memory(entry, seen),
        **_links(entry, seen),
        **_power(entry, seen, idle_share),
        figures=seen.figures,
        source=seen.source,
        checked=seen.checked,
        host_chips=None if hosted is None else int(hosted),
        units=_units(entry, seen),
        notes=entry.text("note", ""),
        like=entry.text("like", "") or None,
        status=seen.status,
        origin="user" if user else "catalogue",
    )
    entry.finish()
    return chip


def _units(entry: Entry, seen: Provenance) -> int:
    units = entry.count("units", 1)
    seen.add("units", float(units) if units > 1 else None, "1")
    return units


def _rates(entry: Entry, seen: Provenance) -> dict[str, Any]:
    peak = entry.rates("tflops", PRECISIONS, TERA)
    measured = entry.rates("measured_tflops", PRECISIONS, TERA)
    other = entry.rates("other_engines_tops", ("npu_int8", "dla_int8"), TERA)
    for name, rate in peak.items():
        seen.add(f"peak.{name}", rate, "FLOP/s")
    for name, rate in measured.items():
        seen.add(f"measured_peak.{name}", rate, "FLOP/s", evidence="measured")
    for name, rate in other.items():
        seen.add(f"other_engines.{name}", rate, "op/s")
    return {"peak": peak, "measured_peak": measured, "other_engines": other}


def _memory(entry: Entry, seen: Provenance) -> dict[str, Any]:
    """Return the tiers, fastest first, and what is on the chip."""
    first = entry.table("memory")
    tables = ([first] if first else []) + list(entry.tables("more_memory"))
    tiers = tuple(sorted(map(_tier, tables), key=lambda tier: -tier.bandwidth))
    main = main_tier(tiers) if tiers else None
    if main:
        seen.add("capacity", main.capacity, "B", "memory")
        seen.add("bandwidth", main.bandwidth, "B/s")
    reached, sram = entry.maybe("measured_gb_per_s", least=1e-6), entry.maybe("sram_mb")
    measured = None if reached is None else reached * GB
    seen.add("measured_bandwidth", measured, "B/s", evidence="measured")
    seen.add("sram", None if sram is None else sram * 1e6, "B")
    return {"memory": tiers, "measured_bandwidth": measured, "sram": (sram or 0.0) * 1e6}


def _tier(table: Entry) -> MemoryTier:
    """Return a tier; one of usable_gib, gib (2^30 B) and gb (1e9 B) says its capacity."""
    sizes = {"usable_gib": GIB, "gib": GIB, "gb": GB}
    given = [size * unit for key, unit in sizes.items() if (size := table.maybe(key, least=1e-6)) is not None]
    if len(given) != 1:
        raise CatalogError(f"{table.place}: found {len(given)} capacities; allowed: exactly one of {', '.join(sizes)}")
    bandwidth = table.number("gb_per_s", least=1e-6) * GB
    tier = MemoryTier(table.word("kind", TIERS), given[0], bandwidth, table.text("label", ""))
    table.finish()
    return tier


def _links(entry: Entry, seen: Provenance) -> dict[str, Any]:
    up, host = entry.table("scale_up"), entry.table("host_link")
    rate, link = up.number("gb_per_s", 0) * GB, host.number("gb_per_s", 0) * GB
    pair, domain = up.number("pair_gb_per_s", 0) * GB, up.count("domain", 1)
    for name, value in (("scale_up", rate), ("scale_up_pair", pair), ("host_link", link)):
        seen.add(name, value or None, "B/s")
    seen.add("scale_up_domain", float(domain), "chip")
    found = {
        "scale_up": rate,
        "scale_up_pair": pair,
        "scale_up_domain": domain,
        "scale_up_name": up.text("link", "none"),
        "scale_up_topology": up.word("topology", (*TOPOLOGIES, "bridge"), "switch" if rate else "none"),
        "in_switch_reduction": up.flag("in_switch_reduction"),
        "host_link": link,
        "host_link_name": host.text("link", "none"),
    }
    up.finish()
    host.finish()
    return found


def _power(entry: Entry, seen: Provenance, idle_share: Figure) -> dict[str, Any]:
    """Return the power limit, and what the chip draws when idle: as given, else the usual share of the limit."""
    tdp, idle = entry.maybe("tdp_w", least=0.01), entry.maybe("idle_w")
    seen.add("tdp", tdp, "W")
    seen.add("idle_power", idle, "W")
    if idle is None and tdp is not None:
        idle = tdp * idle_share.value
        seen.figures["idle_power"] = Figure(idle, "W", idle_share.source, idle_share.evidence)
    return {"tdp": tdp or 0.0, "idle_power": idle or 0.0}


def own_chip(name: str, stated: Mapping[str, Any], base: Chip | None, relative: Chip | None, idle_share: float) -> Chip:
    """Return a chip of a problem file: `base` (or nothing) with what the file states in its place, in SI units.

    Keys: memory [B], bandwidth, host_link, scale_up [B/s], power [W], a precision [FLOP/s dense], like (a chip).
    A new chip that states no host link takes that of its `relative`; where it states no idle power, the usual share.

    Raises
    ------
    CatalogError
        Where a new chip lacks memory, bandwidth, power or any arithmetic rate.
    """
    chip = base or blank_chip(name)
    peak = {**chip.peak, **{key: float(stated[key]) for key in PRECISIONS if key in stated}}
    power = float(stated.get("power", chip.tdp))
    memory = _own_memory(stated, chip)
    lacking = [] if memory else ["memory and bandwidth"]
    lacking += [] if power else ["power"]
    lacking += [] if peak else ["a rate such as bf16"]
    if lacking:
        raise CatalogError(f"chip {name!r} of the problem file lacks {', '.join(lacking)}")
    return replace(
        chip,
        peak=peak,
        memory=memory,
        tdp=power,
        idle_power=power * (chip.idle_power / chip.tdp if chip.tdp else idle_share),
        host_link=float(stated.get("host_link", chip.host_link or (relative.host_link if relative else 0.0))),
        **_own_scale_up(stated, chip),
        units=chip.units if base or relative is None else relative.units,
        figures={**chip.figures, **_own_figures(stated)},
        like=stated.get("like") or chip.like,
        origin="user",
    )


def _own_memory(stated: Mapping[str, Any], chip: Chip) -> tuple[MemoryTier, ...]:
    main = chip.main_memory if chip.memory else MemoryTier("hbm", 0.0, 0.0)
    changed = replace(
        main,
        capacity=float(stated.get("memory", main.capacity)),
        bandwidth=float(stated.get("bandwidth", main.bandwidth)),
    )
    if not (changed.capacity and changed.bandwidth):
        return ()
    others = [tier for tier in chip.memory if tier is not main]
    return tuple(sorted([*others, changed], key=lambda tier: -tier.bandwidth))


def _own_scale_up(stated: Mapping[str, Any], chip: Chip) -> dict[str, Any]:
    """Return the scale-up link as stated; the share of one peer stays, a new link is a switch over one board."""
    if "scale_up" not in stated:
        return {}
    rate = float(stated["scale_up"])
    if not chip.scale_up:
        board = {"scale_up_domain": BOARD, "scale_up_topology": "switch"}
        return {"scale_up": rate, "scale_up_pair": rate, "scale_up_name": "as stated", **board}
    return {"scale_up": rate, "scale_up_pair": rate * chip.scale_up_pair / chip.scale_up}


def _own_figures(stated: Mapping[str, Any]) -> dict[str, Figure]:
    names = {"memory": ("capacity", "B"), "power": ("tdp", "W")}
    names |= {key: (f"peak.{key}", "FLOP/s") for key in PRECISIONS}
    figures = {}
    for key, value in stated.items():
        if key != "like" and value is not None:
            name, unit = names.get(key, (key, "B/s"))
            figures[name] = Figure(float(value), unit, "problem file", "claim")
    return figures


def blank_chip(name: str) -> Chip:
    """Return a chip of which nothing is known: no arithmetic, no memory, no links, no draw."""
    return Chip(
        id=name,
        name=name,
        vendor="own",
        kind="gpu",
        family=name,
        year=None,
        maturity="production",
        ranks=1,
        peak={},
        measured_peak={},
        measured_bandwidth=None,
        other_engines={},
        memory=(),
        sram=0.0,
        scale_up=0.0,
        scale_up_pair=0.0,
        scale_up_domain=1,
        scale_up_name="none",
        scale_up_topology="none",
        in_switch_reduction=False,
        host_link=0.0,
        host_link_name="none",
        tdp=0.0,
        idle_power=0.0,
        figures={},
        source="problem file",
        checked=False,
    )


def own_share(chip: Chip, kind: str) -> float | None:
    """Return the measured share of a chip's own peak or bandwidth, or None."""
    if kind == "bandwidth":
        reached = chip.measured_bandwidth
        return reached / chip.bandwidth if reached else None
    kind = "bf16" if kind == "fp16" and "fp16" not in chip.measured_peak else kind
    best, peak = chip.measured_peak.get(kind), chip.peak.get(kind)
    return best / peak if best and peak else None


def borrowed(share: float, chip: Chip, asked: str, kind: str, exact: bool = True) -> Figure:
    """Return a share with its evidence: measured on the chip itself, a guess from a relative or another precision."""
    own = chip.id == asked and exact
    source = f"measured {kind} of {chip.id}: {chip.source}"
    return Figure(share, "1", source, "measured" if own else "guess")
