"""What the catalogue holds: frozen records in SI units (B, B/s one direction per chip, FLOP/s dense, s, W, USD)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from tokenmill.errors import CatalogError

MATURITY = ("production", "customer-test", "lab", "simulation")
"""Order of maturity: a choice admits all before it."""
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int4")
EVIDENCE = ("measured", "calibrated", "datasheet", "claim", "guess")
TOPOLOGIES = ("switch", "mesh", "torus2d", "torus3d", "dragonfly", "none")
TIERS = ("hbm", "gddr", "lpddr", "ddr", "host", "sram")
"""Kinds of memory, in the order in which one of a chip is its main one."""
MARKETS = ("on-demand", "spot", "reserved-1y", "reserved-3y", "capacity-block", "buy")


@dataclass(frozen=True)
class Figure:
    """One number (SI) with its unit, where it was read, and what stands behind it: one of EVIDENCE."""

    value: float
    unit: str
    source: str
    evidence: str


@dataclass(frozen=True)
class MemoryTier:
    """One memory of a chip: usable `capacity` [B], `bandwidth` [B/s], and the maker's printed `label`."""

    name: str
    capacity: float
    bandwidth: float
    label: str = ""


def main_tier(tiers: Sequence[MemoryTier]) -> MemoryTier:
    """Return the tier that holds weights: device memory before the processor's, on-chip memory where nothing else is."""
    return min(tiers, key=lambda tier: TIERS.index(tier.name))


@dataclass(frozen=True)
class Chip:
    """One accelerator, processor or SoC.

    `peak`: dense FLOP/s by precision (absent: no native path); `measured_peak`: the best a matrix product reached;
    `measured_bandwidth` [B/s]: what large reads reached;
    `other_engines`: ops/s of NPUs and DLAs, which `peak` does not count. `memory`: tiers, fastest first. `sram`: on-chip
    bytes. `scale_up` [B/s, one direction], `scale_up_pair` to one peer, `scale_up_domain` in chips (1: none). `ranks`:
    devices that one chip counts as in degrees of parallelism. `host_chips`: chips of its
    plainest host (None: the usual number). `units`: units that share out the tiles of a product (streaming multiprocessors,
    compute units; 1: not stated, or one works through all tiles). `idle_power`, `tdp` [W]. `like`: the chip whose achieved
    shares it takes where it has none of its own.
    """

    id: str
    name: str
    vendor: str
    kind: str
    family: str
    year: int | None
    maturity: str
    ranks: int
    peak: Mapping[str, float]
    measured_peak: Mapping[str, float]
    measured_bandwidth: float | None
    other_engines: Mapping[str, float]
    memory: tuple[MemoryTier, ...]
    sram: float
    scale_up: float
    scale_up_pair: float
    scale_up_domain: int
    scale_up_name: str
    scale_up_topology: str
    in_switch_reduction: bool
    host_link: float
    host_link_name: str
    tdp: float
    idle_power: float
    figures: Mapping[str, Figure]
    source: str
    checked: bool
    host_chips: int | None = None
    units: int = 1
    notes: str = ""
    like: str | None = None
    status: str = "shipping"
    origin: str = "catalogue"

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the figures without which the chip cannot be modelled, and that nobody has published."""
        needs = {"peak": self.peak, "memory": self.memory, "tdp": self.tdp}
        return tuple(name for name, value in needs.items() if not value)

    @property
    def main_memory(self) -> MemoryTier:
        """The tier that holds weights: HBM, GDDR, LPDDR or DDR; SRAM on machines that have nothing else."""
        if not self.memory:
            raise CatalogError(f"chip {self.id!r}: no memory figures are published")
        return main_tier(self.memory)

    @property
    def capacity(self) -> float:
        """Usable bytes of the main memory tier."""
        return self.main_memory.capacity

    @property
    def bandwidth(self) -> float:
        """B/s of the main memory tier."""
        return self.main_memory.bandwidth


@dataclass(frozen=True)
class System:
    """What is bought or rented as a unit: a server, a rack, a pod, an instance.

    `scale_up`, `scale_up_pair`, `link_bandwidth`, `scale_out`, `host_link`: B/s of one chip, one direction. `power`: W of
    the whole system at most; `host_power`: the part that is not accelerators. `host_ram` [B], `host_nvme` [B].
    `rent_by_chip`: rented in single chips or slices, else whole. `built`: made up here from its chip alone.
    """

    id: str
    name: str
    vendor: str
    kind: str
    year: int | None
    maturity: str
    chip: str
    chips_per_node: int
    nodes: int
    chips: int
    scale_up_domain: int
    topology: str
    torus_dims: tuple[int, ...]
    link_bandwidth: float
    scale_up: float
    scale_up_pair: float
    in_switch_reduction: bool
    host_link: float
    scale_out: float
    scale_out_name: str
    power: float
    host_power: float
    rent_by_chip: bool
    figures: Mapping[str, Figure]
    source: str
    checked: bool
    torus_cube: int | None = None
    links_per_chip: int | None = None
    host_cpu: str = ""
    host_cores: int | None = None
    host_vcpus: int | None = None
    host_ram: float | None = None
    host_nvme: float | None = None
    racks: int | None = None
    cooling: str | None = None
    list_price: float | None = None
    provider: str | None = None
    notes: str = ""
    status: str = "shipping"
    origin: str = "catalogue"
    built: bool = False

    @property
    def cores(self) -> float | None:
        """Processor cores of all its hosts: as given, else half of its vCPUs (two threads a core); None where not known."""
        if self.host_cores is not None:
            return float(self.host_cores)
        return None if self.host_vcpus is None else self.host_vcpus / 2

    @property
    def hardware(self) -> str:
        """What it is made of: ``processor`` (a server without accelerators), ``store``, or ``accelerator``."""
        return {"cpu-server": "processor", "store": "store"}.get(self.kind, "accelerator")

    @property
    def rack_power(self) -> float:
        """W that one rack must bear for it: of its racks where their number is known, else of one node."""
        return self.power / (self.racks or self.nodes)


@dataclass(frozen=True)
class Network:
    """A fabric that joins systems: `bandwidth` [B/s of one chip, one direction], `leaf` chips under one leaf or rail group
    (None: one level), `oversubscription` (>= 1) above it, `latency` [s] end to end.
    """

    id: str
    name: str
    kind: str
    bandwidth: float
    leaf: int | None
    oversubscription: float
    latency: float
    rails: int | None
    source: str
    checked: bool
    figures: Mapping[str, Figure] = field(default_factory=dict)
    notes: str = ""
    origin: str = "catalogue"


@dataclass(frozen=True)
class Link:
    """A link: `bandwidth` [B/s, one direction] of what `of` names, `latency` [s] or None, share reached in use or None."""

    id: str
    name: str
    kind: str
    attach: str
    bandwidth: float
    of: str
    latency: float | None
    achieved_fraction: float | None
    source: str
    evidence: str
    latency_evidence: str
    notes: str = ""


@dataclass(frozen=True)
class Achieved:
    """What a collective of so many chips reached on its link: `share` of it, and `latency` [s] of a small message or None.

    `general` False: a peculiarity of one machine.
    """

    chip: str
    operation: str
    chips: int
    share: float
    latency: float | None
    general: bool
    source: str
    evidence: str


@dataclass(frozen=True)
class Store:
    """A store: `read`, `write`, [B/s a node], `total` [B/s, inf: not the limit], `latency` [s] of the first byte,
    `usable` share of its capacity, `price` [USD a byte-second] or None, `capacity` [B] or None where elastic.
    """

    id: str
    name: str
    read: float
    write: float
    total: float
    connection: float | None
    per_byte: float | None
    latency: float
    usable: float
    capacity: float | None
    price: float | None
    source: str
    checked: bool
    figures: Mapping[str, Figure] = field(default_factory=dict)
    notes: str = ""
    origin: str = "catalogue"

    @property
    def unit_rate(self) -> float:
        """B/s that a provisioned terabyte brings; the rate of the whole store where capacity does not set it."""
        return self.total if self.per_byte is None else self.per_byte * 1e12

    @property
    def connection_rate(self) -> float:
        """B/s of one connection; infinite where connections are not the limit."""
        return inf if self.connection is None else self.connection

    @property
    def requests(self) -> float:
        """Reads a second of one prefix; infinite where requests are not the limit."""
        figure = self.figures.get("reads_per_s_per_prefix")
        return inf if figure is None else figure.value

    @property
    def request_price(self) -> float:
        """USD of one read request."""
        figure = self.figures.get("usd_per_1000_reads")
        return 0.0 if figure is None else figure.value / 1000

    @property
    def write_request_price(self) -> float:
        """USD of one write request: many times that of a read."""
        figure = self.figures.get("usd_per_1000_writes")
        return 0.0 if figure is None else figure.value / 1000


@dataclass(frozen=True)
class Rate:
    """A named figure of a table (CPU steps, power shares, PUE, embodied carbon): SI where the unit has one, else as printed."""

    id: str
    category: str
    name: str
    figure: Figure
    per: str = ""
    low: float | None = None
    high: float | None = None
    notes: str = ""


@dataclass(frozen=True)
class Grid:
    """Electricity of a region: `carbon` [kg CO2e/J], `price` [USD/J], `water` [m3/J]; None where not known."""

    id: str
    region: str
    basis: str
    carbon: float | None
    price: float | None
    water: float | None
    as_of: str
    source: str
    evidence: str
    notes: str = ""


@dataclass(frozen=True)
class Price:
    """What an offer costs: USD a chip-hour (rent) or USD a unit (`purchase`; `unit` chip or system).

    `chip`: catalogue chip; `system`: the system it is a price of, None: any. `as_of`: as written; `date`: its first month.
    """

    chip: str
    system: str | None
    provider: str
    market: str
    region: str
    per_chip_hour: float | None
    purchase: float | None
    unit: str
    as_of: str
    date: str
    offer: str
    source: str
    evidence: str
    notes: str = ""
    origin: str = "catalogue"


@dataclass(frozen=True)
class PriceChoice:
    """The price taken: USD a chip-hour, or USD for a whole system (`purchase`), with who asked it and when.

    `stale`: over a year older than the newest price of the catalogue.
    """

    per_chip_hour: float | None
    purchase: float | None
    providers: tuple[str, ...]
    date: str
    stale: bool
    source: str
    evidence: str


@dataclass(frozen=True)
class Precision:
    """A number format: `bits` a value with its scales, `compute`: the key of `Chip.peak` that its products run at.

    `tile`: serving engines pad the inputs of an expert to a multiple of it, the outputs to one of its half (1: they do not).
    """

    id: str
    bits: float
    compute: str
    source: str
    tile: float = 1.0
    notes: str = ""


@dataclass(frozen=True)
class Refused:
    """A name that is asked for and not offered, with the reason."""

    id: str
    name: str
    status: str
    reason: str
    source: str


@dataclass(frozen=True)
class Source:
    """A citation and the date it was read or published."""

    id: str
    cite: str
    date: str = field(default="")
