"""Chips and systems: from the tables of the catalogue to records in SI units, every figure with its source and evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenmill.catalog_entry import Entry
from tokenmill.catalog_records import MATURITY, PRECISIONS, TOPOLOGIES, Chip, Figure, MemoryTier, System
from tokenmill.errors import CatalogError

GB, GIB, TERA = 1e9, 2.0**30, 1e12
TIERS = ("sram", "hbm", "gddr", "lpddr", "ddr", "host")
KINDS = ("gpu", "tpu", "asic", "npu", "sram", "cpu", "soc")
STATUSES = ("shipping", "announced", "company-claim", "estimate")
LARGEST_HOST = 8
"""Chips of the plainest host of a chip (problem-files contract, section 1)."""


class Provenance:
    """Judges the figures of one entry: what its ``checked``, ``unchecked`` and ``status`` say of each."""

    def __init__(self, entry: Entry, cite: Callable[[str, tuple[str, ...]], str]) -> None:
        self.unchecked = entry.names("unchecked")
        self.checked = entry.flag("checked")
        self.status = entry.word("status", STATUSES, "shipping")
        self.source = cite(entry.place, entry.names("sources"))
        self.figures: dict[str, Figure] = {}

    def add(self, name: str, value: float | None, unit: str, group: str = "", evidence: str | None = None) -> None:
        """Record a figure under its name; `group` is what ``unchecked`` may call it by."""
        if value is None:
            return
        if evidence is None:
            doubted = {"all", name, name.rpartition(".")[2], group} & set(self.unchecked)
            claimed = "claim" if self.status in ("announced", "company-claim") else "datasheet"
            evidence = "guess" if doubted or self.status == "estimate" else claimed
        self.figures[name] = Figure(value, unit, self.source, evidence)


def read_chip(
    id: str, entry: Entry, cite: Callable[[str, tuple[str, ...]], str], idle_share: Figure, user: bool
) -> Chip:
    """Return the chip of one table; raises CatalogError with the place of the first fault."""
    seen = Provenance(entry, cite)
    peak = entry.rates("tflops", PRECISIONS, TERA)
    measured = entry.rates("measured_tflops", PRECISIONS, TERA)
    other = entry.rates("other_engines_tops", ("npu_int8", "dla_int8"), TERA)
    memory = _memory(entry)
    up, host = _scale_up(entry), entry.table("host_link")
    for name, rate in peak.items():
        seen.add(f"peak.{name}", rate, "FLOP/s")
    for name, rate in measured.items():
        seen.add(f"measured_peak.{name}", rate, "FLOP/s", evidence="measured")
    for name, rate in other.items():
        seen.add(f"other_engines.{name}", rate, "op/s")
    main = next((tier for tier in memory if tier.name != "sram"), memory[0] if memory else None)
    reached = entry.maybe("measured_gb_per_s", least=1e-6)
    seen.add("measured_bandwidth", None if reached is None else reached * GB, "B/s", evidence="measured")
    if main:
        seen.add("capacity", main.capacity, "B", "memory")
        seen.add("bandwidth", main.bandwidth, "B/s")
    sram, tdp = entry.maybe("sram_mb"), entry.maybe("tdp_w", least=0.01)
    seen.add("sram", None if sram is None else sram * 1e6, "B")
    seen.add("tdp", tdp, "W")
    idle = entry.maybe("idle_w")
    seen.add("idle_power", idle, "W")
    if idle is None and tdp is not None:
        seen.figures["idle_power"] = Figure(tdp * idle_share.value, "W", idle_share.source, idle_share.evidence)
    host_rate = host.number("gb_per_s", 0) * GB
    for name, value in (("scale_up", up["rate"]), ("scale_up_pair", up["pair"]), ("host_link", host_rate)):
        seen.add(name, value or None, "B/s")
    seen.add("scale_up_domain", float(up["domain"]), "chip")
    chip = Chip(
        id=id, name=entry.text("name", id), vendor=entry.text("vendor", "unknown"), kind=entry.word("kind", KINDS, "gpu"),
        family=entry.text("family", id), year=int(entry.number("year", 0)) or None,
        maturity=entry.word("maturity", MATURITY, "production"), ranks=entry.count("ranks", 1),
        peak=peak, measured_peak=measured,
        measured_bandwidth=None if reached is None else reached * GB, other_engines=other, memory=memory, sram=(sram or 0.0) * 1e6,
        scale_up=up["rate"], scale_up_pair=up["pair"], scale_up_domain=up["domain"], scale_up_name=up["link"],
        scale_up_topology=up["topology"], in_switch_reduction=up["reduces"],
        host_link=host_rate, host_link_name=host.text("link", "none"),
        tdp=tdp or 0.0, idle_power=seen.figures["idle_power"].value if tdp else 0.0,
        figures=seen.figures, source=seen.source, checked=seen.checked, notes=entry.text("note", ""),
        like=entry.text("like", "") or None, status=seen.status, origin="user" if user else "catalogue",
    )  # fmt: skip
    host.finish()
    entry.finish()
    return chip


def _memory(entry: Entry) -> tuple[MemoryTier, ...]:
    """Return the tiers, fastest first; one of usable_gib, gib (2^30 B) and gb (1e9 B) says the capacity."""
    first = entry.table("memory")
    tables = ([first] if first else []) + list(entry.tables("more_memory"))
    tiers = []
    for table in tables:
        sizes = [table.maybe(key, least=1e-6) for key in ("usable_gib", "gib", "gb")]
        if sum(size is not None for size in sizes) != 1:
            raise CatalogError(f"{table.place}: allowed: exactly one of usable_gib, gib, gb")
        usable, gib, gb = sizes
        capacity = gb * GB if gb is not None else (usable if usable is not None else gib or 0.0) * GIB
        bandwidth = table.number("gb_per_s", least=1e-6) * GB
        tiers.append(MemoryTier(table.word("kind", TIERS), capacity, bandwidth, table.text("label", "")))
        table.finish()
    return tuple(sorted(tiers, key=lambda tier: -tier.bandwidth))


def _scale_up(entry: Entry) -> dict[str, Any]:
    table = entry.table("scale_up")
    rate = table.number("gb_per_s", 0) * GB
    found = {
        "link": table.text("link", "none"),
        "topology": table.word("topology", (*TOPOLOGIES, "bridge"), "switch" if rate else "none"),
        "rate": rate,
        "pair": table.number("pair_gb_per_s", 0) * GB,
        "domain": table.count("domain", 1),
        "reduces": table.flag("in_switch_reduction"),
    }
    table.finish()
    return found


def read_system(
    id: str,
    entry: Entry,
    chips: Mapping[str, Chip],
    cite: Callable[[str, tuple[str, ...]], str],
    extra: float,
    user: bool,
) -> System:
    """Return the system of one table. `extra` [W]: power of a host a chip, where the table has no power of its own."""
    seen = Provenance(entry, cite)
    chip = chips.get(entry.text("chip"))
    if chip is None:
        raise entry.refuse("chip", "the id of a chip of the catalogue")
    per_node, nodes = entry.count("chips_per_node", 1), entry.count("nodes", 1)
    total = per_node * nodes
    up, torus = _system_scale_up(entry, chip, total), entry.table("torus")
    out, host = entry.table("scale_out"), entry.table("host")
    power = entry.maybe("power_kw", least=1e-6)
    watts = power * 1e3 if power is not None else total * (chip.tdp + extra)
    price = entry.maybe("list_price_usd")
    seen.add("power", watts, "W", evidence=None if power is not None else "guess")
    seen.add("list_price", price, "USD")
    for name, value in (("scale_up", up["rate"]), ("scale_up_pair", up["pair"]), ("link_bandwidth", up["link"])):
        seen.add(name, value or None, "B/s", "scale_up")
    scale_out = out.number("gbit_per_s", 0) / 8 * GB
    seen.add("scale_out", scale_out or None, "B/s")
    ram, nvme = host.maybe("ram_gib"), host.maybe("nvme_tb")
    seen.add("host_ram", None if ram is None else ram * GIB, "B", "ram" if "ram" in seen.unchecked else "host")
    seen.add("host_nvme", None if nvme is None else nvme * 1e12, "B", "nvme" if "nvme" in seen.unchecked else "host")
    cores, vcpus = host.maybe("cores", least=1), host.maybe("vcpus", least=1)
    seen.add("host_cores", cores, "core", "host")
    seen.add("host_vcpus", vcpus, "vCPU", "host")
    racks = entry.maybe("racks")
    maturity = max(entry.word("maturity", MATURITY, "production"), chip.maturity, key=MATURITY.index)
    system = System(
        id=id, name=entry.text("name", id), vendor=entry.text("vendor", chip.vendor), kind=entry.text("kind", "server"),
        year=int(entry.number("year", 0)) or None, maturity=maturity, chip=chip.id, chips_per_node=per_node, nodes=nodes,
        chips=total, scale_up_domain=up["domain"], topology=up["topology"], torus_dims=torus.counts("dims"),
        torus_cube=int(torus.number("cube", 0)) or None, links_per_chip=up["links"], link_bandwidth=up["link"],
        scale_up=up["rate"], scale_up_pair=up["pair"], in_switch_reduction=up["reduces"], host_link=chip.host_link,
        scale_out=scale_out, scale_out_name=out.text("nic", ""), power=watts, host_power=max(watts - total * chip.tdp, 0.0),
        host_cpu=host.text("cpu", ""), host_cores=None if cores is None else int(cores),
        host_vcpus=None if vcpus is None else int(vcpus), host_ram=None if ram is None else ram * GIB,
        host_nvme=None if nvme is None else nvme * 1e12, racks=None if racks is None else int(racks),
        cooling=entry.text("cooling", "") or None, list_price=price, rent_by_chip=entry.flag("rent_by_chip"),
        provider=entry.text("provider", "") or None, figures=seen.figures, source=seen.source, checked=seen.checked,
        notes=entry.text("note", ""), status=seen.status, origin="user" if user else "catalogue",
    )  # fmt: skip
    for part in (torus, out, host, entry):
        part.finish()
    return system


def _system_scale_up(entry: Entry, chip: Chip, total: int) -> dict[str, Any]:
    """Return the scale-up network of a system: its own figures, else those of its chip."""
    table = entry.table("scale_up")
    own = chip.scale_up_topology if chip.scale_up_topology != "bridge" else "none"
    topology = table.word("topology", TOPOLOGIES, own)
    domain = table.count("domain", 1 if topology == "none" else min(total, chip.scale_up_domain))
    given, links, link = table.maybe("gb_per_s"), table.maybe("links"), table.maybe("link_gb_per_s")
    rate = 0.0 if topology == "none" else chip.scale_up if given is None else given * GB
    if topology != "none" and domain > 1 and not rate:
        raise entry.refuse("scale_up", "gb_per_s above 0, or topology = 'none'")
    found = {
        "topology": topology,
        "domain": domain,
        "rate": rate,
        "links": None if links is None else int(links),
        "link": (link or 0.0) * GB,
        "pair": _pair(topology, domain, rate, (link or 0.0) * GB),
        "reduces": table.flag("in_switch_reduction", chip.in_switch_reduction and topology == "switch"),
    }
    table.finish()
    return found


def _pair(topology: str, domain: int, rate: float, link: float) -> float:
    """Return B/s to one peer: all of it through a switch, an even share in a mesh, one link in a torus."""
    if topology == "mesh":
        return rate / max(domain - 1, 1)
    return link if topology.startswith("torus") and link else rate


def plainest_host(chip: Chip, extra: float) -> System:
    """Return the plainest host of a chip: up to eight on one board where they share a scale-up link that is part of the
    board, else on the host link; SoCs and modules alone. `extra` [W]: power of the host a chip.

    Raises
    ------
    CatalogError
        Where the figures of the chip that a plan needs are not published.
    """
    if chip.missing:
        raise CatalogError(
            f"chip {chip.id!r} cannot be planned with: no published {', '.join(chip.missing)}"
            + (f" ({chip.notes})" if chip.notes else "")
        )
    alone = chip.kind in ("soc", "npu") and chip.scale_up_domain < LARGEST_HOST
    topology = "none" if alone or chip.scale_up_topology == "bridge" else chip.scale_up_topology
    dims = {"torus2d": (2, 4), "torus3d": (2, 2, 1)}.get(topology, ())
    count = 1 if alone else 4 if topology == "torus3d" else LARGEST_HOST
    domain = 1 if topology == "none" else min(count, chip.scale_up_domain)
    rate = 0.0 if topology == "none" else chip.scale_up
    host_power = 0.0 if alone else extra * count
    scale_out = 12.5 * GB / count
    network = Figure(scale_out, "B/s", "one 100 Gbit/s port a host is assumed", "guess")
    power = Figure(count * chip.tdp + host_power, "W", chip.source, "guess")
    return System(
        id=chip.id, name=f"{count}x {chip.name}" if count > 1 else chip.name, vendor=chip.vendor, kind="host",
        year=chip.year, maturity=chip.maturity, chip=chip.id, chips_per_node=count, nodes=1, chips=count,
        scale_up_domain=domain, topology=topology, torus_dims=dims, torus_cube=None,
        links_per_chip=None, link_bandwidth=chip.scale_up_pair if dims else 0.0, scale_up=rate,
        scale_up_pair=_pair(topology, domain, rate, chip.scale_up_pair), host_link=chip.host_link,
        in_switch_reduction=chip.in_switch_reduction and topology == "switch",
        scale_out=scale_out, scale_out_name="one 100 Gbit/s port a host (assumed)", power=power.value, host_power=host_power,
        host_cpu="", host_cores=None, host_vcpus=None, host_ram=None, host_nvme=None, racks=None, cooling=None,
        list_price=None, rent_by_chip=True, provider=None,
        figures={"power": power, "scale_out": network, **{k: chip.figures[k] for k in ("host_link",) if k in chip.figures}},
        source=chip.source, checked=chip.checked, notes="the plainest host of the chip", status=chip.status,
        origin=chip.origin, built=True,
    )  # fmt: skip
