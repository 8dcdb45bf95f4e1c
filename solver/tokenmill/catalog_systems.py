"""Systems: from the tables of the catalogue to records in SI units, and the plainest host of a chip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenmill.catalog_chips import GB, GIB, Cite, Provenance
from tokenmill.catalog_entry import Entry
from tokenmill.catalog_records import MATURITY, TOPOLOGIES, Chip, Figure, System
from tokenmill.errors import CatalogError

LARGEST_HOST = 8
"""Chips of the plainest host of a chip (problem-files contract, section 1)."""
ASSUMED_PORT = 12.5 * GB
"""B/s of the network port that the plainest host is given: 100 Gbit/s."""


def read_system(id: str, entry: Entry, chips: Mapping[str, Chip], cite: Cite, host_watts: float, user: bool) -> System:
    """Return the system of one table; `host_watts`: W of a host a chip, for a table that states no power.

    Raises
    ------
    CatalogError
        For the first fault, with its place, what was found and what is allowed.
    """
    seen = Provenance(entry, cite)
    chip = chips.get(entry.text("chip"))
    if chip is None:
        raise entry.refuse("chip", "the id of a chip of the catalogue")
    per_node, nodes = entry.count("chips_per_node", 1), entry.count("nodes", 1)
    seen.figures |= _host_link(chip)
    system = System(
        id=id,
        name=entry.text("name", id),
        vendor=entry.text("vendor", chip.vendor),
        kind=entry.text("kind", "server"),
        year=int(entry.number("year", 0)) or None,
        maturity=max(entry.word("maturity", MATURITY, "production"), chip.maturity, key=MATURITY.index),
        chip=chip.id,
        chips_per_node=per_node,
        nodes=nodes,
        chips=per_node * nodes,
        **_scale_up(entry, seen, chip, per_node * nodes),
        **_network(entry, seen),
        **_host(entry, seen),
        **_power(entry, seen, chip, per_node * nodes, host_watts),
        host_link=chip.host_link,
        **_terms(entry, seen),
        figures=seen.figures,
        source=seen.source,
        checked=seen.checked,
        notes=entry.text("note", ""),
        status=seen.status,
        origin="user" if user else "catalogue",
    )
    entry.finish()
    return system


def _scale_up(entry: Entry, seen: Provenance, chip: Chip, total: int) -> dict[str, Any]:
    """Return the scale-up network of a system: its own figures, else those of its chip."""
    table, torus = entry.table("scale_up"), entry.table("torus")
    own = chip.scale_up_topology if chip.scale_up_topology != "bridge" else "none"
    topology = table.word("topology", TOPOLOGIES, own)
    domain = table.count("domain", 1 if topology == "none" else min(total, chip.scale_up_domain))
    given, links = table.maybe("gb_per_s"), table.maybe("links", least=1)
    rate = 0.0 if topology == "none" else chip.scale_up if given is None else given * GB
    if topology != "none" and domain > 1 and not rate:
        raise entry.refuse("scale_up", "gb_per_s above 0, or topology = 'none'")
    link = table.number("link_gb_per_s", 0) * GB
    pair = _pair(topology, domain, rate, link)
    for name, value in (("scale_up", rate), ("scale_up_pair", pair), ("link_bandwidth", link)):
        seen.add(name, value or None, "B/s", "scale_up")
    found = {
        "topology": topology,
        "scale_up_domain": domain,
        "scale_up": rate,
        "scale_up_pair": pair,
        "links_per_chip": None if links is None else int(links),
        "link_bandwidth": link,
        "torus_dims": torus.counts("dims"),
        "torus_cube": int(torus.number("cube", 0)) or None,
        "in_switch_reduction": table.flag("in_switch_reduction", chip.in_switch_reduction and topology == "switch"),
    }
    table.finish()
    torus.finish()
    return found


def _pair(topology: str, domain: int, rate: float, link: float) -> float:
    """Return B/s to one peer: all of it through a switch, an even share in a mesh, one link in a torus."""
    if topology == "mesh":
        return rate / max(domain - 1, 1)
    return link if topology.startswith("torus") and link else rate


def _network(entry: Entry, seen: Provenance) -> dict[str, Any]:
    table = entry.table("scale_out")
    rate = table.number("gbit_per_s", 0) / 8 * GB
    seen.add("scale_out", rate or None, "B/s")
    name = table.text("nic", "")
    table.finish()
    return {"scale_out": rate, "scale_out_name": name}


def _host(entry: Entry, seen: Provenance) -> dict[str, Any]:
    table = entry.table("host")
    ram, nvme = table.maybe("ram_gib"), table.maybe("nvme_tb")
    cores, vcpus = table.maybe("cores", least=1), table.maybe("vcpus", least=1)
    found = {
        "host_cpu": table.text("cpu", ""),
        "host_cores": None if cores is None else int(cores),
        "host_vcpus": None if vcpus is None else int(vcpus),
        "host_ram": None if ram is None else ram * GIB,
        "host_nvme": None if nvme is None else nvme * 1e12,
    }
    groups = {
        "host_cores": ("core", ""),
        "host_vcpus": ("vCPU", ""),
        "host_ram": ("B", "ram"),
        "host_nvme": ("B", "nvme"),
    }
    for name, (unit, group) in groups.items():
        value = found[name]
        if isinstance(value, int | float):
            seen.add(name, float(value), unit, group if group in seen.unchecked else "host")
    table.finish()
    return found


def _power(entry: Entry, seen: Provenance, chip: Chip, total: int, host_watts: float) -> dict[str, Any]:
    """Return the most the system draws, as given, else its chips' limit with the usual host; and the host's part."""
    given = entry.maybe("power_kw", least=1e-6)
    watts = given * 1e3 if given is not None else total * (chip.tdp + host_watts)
    host = max(watts - total * chip.tdp, 0.0)
    evidence = None if given is not None else "guess"
    seen.add("power", watts, "W", evidence=evidence)
    seen.add("host_power", host or None, "W", "power", evidence)
    return {"power": watts, "host_power": host}


def _host_link(chip: Chip) -> dict[str, Figure]:
    return {"host_link": chip.figures["host_link"]} if "host_link" in chip.figures else {}


def _terms(entry: Entry, seen: Provenance) -> dict[str, Any]:
    """Return how the system is sold and where it can stand."""
    price, racks = entry.maybe("list_price_usd"), entry.maybe("racks", least=1)
    seen.add("list_price", price, "USD")
    return {
        "racks": None if racks is None else int(racks),
        "cooling": entry.text("cooling", "") or None,
        "list_price": price,
        "rent_by_chip": entry.flag("rent_by_chip"),
        "provider": entry.text("provider", "") or None,
    }


def plainest_host(chip: Chip, host_watts: float) -> System:
    """Return the plainest host of a chip (`host_watts`: W of the host a chip).

    Up to eight of them, on their board's own links where these are part of it, else on the host link; SoCs and modules
    alone.

    Raises
    ------
    CatalogError
        Where figures of the chip that a plan needs are not published.
    """
    if chip.missing:
        why = f" ({chip.notes})" if chip.notes else ""
        raise CatalogError(f"chip {chip.id!r} cannot be planned with: no published {', '.join(chip.missing)}{why}")
    shape = _plainest_shape(chip)
    count = shape["chips"]
    host_power = host_watts * count * (count > 1)
    power = Figure(count * chip.tdp + host_power, "W", chip.source, "guess")
    port = Figure(ASSUMED_PORT / count, "B/s", "one 100 Gbit/s port a host is assumed", "guess")
    return System(
        id=chip.id,
        name=f"{count}x {chip.name}" if count > 1 else chip.name,
        vendor=chip.vendor,
        kind="host",
        year=chip.year,
        maturity=chip.maturity,
        chip=chip.id,
        **shape,
        scale_out=port.value,
        scale_out_name=port.source,
        power=power.value,
        host_power=host_power,
        rent_by_chip=True,
        figures={"power": power, "scale_out": port, **_host_link(chip)},
        source=chip.source,
        checked=chip.checked,
        notes="the plainest host of the chip",
        status=chip.status,
        origin=chip.origin,
        built=True,
    )


def _plainest_shape(chip: Chip) -> dict[str, Any]:
    """Return chips and scale-up network of the plainest host."""
    alone = chip.kind in ("soc", "npu") and chip.scale_up_domain < LARGEST_HOST
    topology = "none" if alone or chip.scale_up_topology == "bridge" else chip.scale_up_topology
    alone |= topology == "none" and not chip.host_link
    count = chip.host_chips or (1 if alone else 4 if topology == "torus3d" else LARGEST_HOST)
    topology = topology if count > 1 else "none"
    domain, rate = (1, 0.0) if topology == "none" else (min(count, chip.scale_up_domain), chip.scale_up)
    dims = {"torus2d": (2, 4), "torus3d": (2, 2, 1)}.get(topology, ())
    return {
        "chips_per_node": count,
        "nodes": 1,
        "chips": count,
        "host_link": chip.host_link,
        "topology": topology,
        "scale_up_domain": domain,
        "torus_dims": dims,
        "link_bandwidth": chip.scale_up_pair if dims else 0.0,
        "scale_up": rate,
        "scale_up_pair": _pair(topology, domain, rate, chip.scale_up_pair),
        "in_switch_reduction": chip.in_switch_reduction and topology == "switch",
    }
