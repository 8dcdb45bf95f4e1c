"""From the description of a system and a network to the shape of a machine: the numbers that its graph is built from."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import count
from math import prod
from pathlib import Path
from typing import Protocol

from tokenmill.errors import CatalogError

DIRECT = ("mesh", "torus")
"""Scale-up kinds whose chips are wired to one another, with no switch between."""


class SystemLike(Protocol):
    """What is read of a catalogue system; bandwidths in B/s of one chip, one direction, 0 where there is none."""

    @property
    def id(self) -> str:
        """Name in the catalogue."""

    @property
    def chips(self) -> int:
        """Chips of one system."""

    @property
    def chips_per_node(self) -> int:
        """Chips on one host."""

    @property
    def scale_up_domain(self) -> int:
        """Chips of one scale-up domain."""

    @property
    def topology(self) -> str:
        """``switch``, ``mesh``, ``torus2d``, ``torus3d``, ``dragonfly`` or ``none``."""

    @property
    def torus_dims(self) -> tuple[int, ...]:
        """Chips along each axis of the whole pod."""

    @property
    def torus_cube(self) -> int | None:
        """Side of the cubes that a pod is built from, if it is."""

    @property
    def link_bandwidth(self) -> float:
        """B/s of one scale-up link."""

    @property
    def scale_up(self) -> float:
        """B/s over all scale-up links of a chip."""

    @property
    def scale_up_pair(self) -> float:
        """B/s from one chip to one peer."""

    @property
    def in_switch_reduction(self) -> bool:
        """Whether the scale-up switches add up what passes."""

    @property
    def host_link(self) -> float:
        """B/s from a chip to its host."""

    @property
    def scale_out(self) -> float:
        """B/s to the network."""


class NetworkLike(Protocol):
    """What is read of a catalogue network; bandwidths in B/s, one direction."""

    @property
    def id(self) -> str:
        """Name in the catalogue."""

    @property
    def kind(self) -> str:
        """``rail``, ``fat-tree``, ``dragonfly``, ``ethernet`` or ``wan``."""

    @property
    def bandwidth(self) -> float:
        """B/s per chip."""

    @property
    def leaf(self) -> int | None:
        """Chips under one leaf or rail group; None for all."""

    @property
    def oversubscription(self) -> float:
        """Bandwidth below a leaf over that above it, at least 1."""

    @property
    def rails(self) -> int | None:
        """Rails of a rail-optimised network; None for one a chip of a host."""

    @property
    def latency(self) -> float:
        """Seconds end to end."""


@dataclass(frozen=True)
class ScaleUp:
    """One scale-up domain: `size` chips joined by links of `link` B/s (to the switch, to each peer, along each axis)."""

    kind: str  # switch | mesh | torus | host | dragonfly
    size: int
    link: float
    latency: float
    reduces: bool = False
    group: int = 1  # chips at one router of a dragonfly
    cube: int = 0  # side of the cubes that slices of a torus are made of
    axes: tuple[int, ...] = ()
    wrap: tuple[bool, ...] = ()


@dataclass(frozen=True)
class ScaleOut:
    """What joins the domains: a NIC a chip (`nic`, `port` B/s on its two sides), leaves of `leaf` chips, and a spine."""

    kind: str
    nic: float
    port: float
    latency: float
    leaf: int
    leaves: int
    rails: int
    oversubscription: float


@dataclass(frozen=True)
class Shape:
    """A machine of `domains` scale-up domains, some hosts' worth of them joined by `host_link`, all joined by `out`."""

    chips: int
    domains: int
    up: ScaleUp
    host: int = 0  # chips on one host that holds several domains, else 0
    host_link: float = 0.0
    out: ScaleOut | None = None

    @property
    def built(self) -> int:
        """Chips of the graph: whole domains."""
        return self.domains * self.up.size


def shape_of(system: SystemLike, network: NetworkLike | None = None, chips: int | None = None) -> Shape:
    """Return the shape of `chips` chips (default: one system) of a system, joined by a network or by its own links.

    It has whole scale-up domains; of a single one only the part that holds the chips.

    Raises
    ------
    CatalogError
        Where the system has no link that would join so many chips.
    ValueError
        Where chips is not a positive count.
    """
    wanted = system.chips if chips is None else chips
    if wanted < 1:
        raise ValueError(f"chips of {system.id}: found {wanted}, allowed: at least 1")
    up = _scale_up(system, min(wanted, _domain(system)))
    domains = -(-wanted // up.size)
    host, host_link = _host(system, up.size, domains)
    out = _scale_out(system, network, up.size, domains) if domains * up.size > max(up.size, host) else None
    return Shape(wanted, domains, up, host, host_link, out)


@lru_cache(maxsize=4096)
def slice_of(chips: int, pod: tuple[int, ...], cube: int) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return dimensions (smallest first) and wrap-around of the most compact torus slice that holds `chips` chips.

    A pod of cubes (optical switches join them) gives slices of whole cubes in any arrangement, whose axes all close to
    rings, or a part of one cube, whose axes do not; any other pod (cube 1) gives sub-boxes of itself, whose axes close
    where they are whole axes of the pod. Two chips along an axis have one link.
    """
    sides = tuple(sorted(pod))
    whole = cube ** len(pod)
    if chips >= prod(pod):
        axes = pod
    elif cube > 1 and chips > whole:
        axes = tuple(cube * side for side in _box(-(-chips // whole), (prod(pod) // whole,) * len(pod)))
    else:
        axes = _box(chips, tuple(min(side, cube) for side in sides) if cube > 1 else sides)
    rings = all(axis % cube == 0 for axis in axes) if cube > 1 else None
    return axes, tuple(axis > 2 and (axis in pod if rings is None else rings) for axis in axes)


def _box(volume: int, limits: tuple[int, ...]) -> tuple[int, ...]:
    """Return the most compact box of at least `volume` within limits (ascending)."""

    def boxes(size: int) -> list[tuple[int, ...]]:
        return [box for box in _factors(size, len(limits)) if all(a <= b for a, b in zip(box, limits, strict=True))]

    return min(next(filter(None, map(boxes, count(volume)))), key=lambda box: (box[-1], sum(box)))


def _factors(size: int, parts: int, least: int = 1) -> Iterator[tuple[int, ...]]:
    """Yield the ascending factorisations of `size` into so many parts."""
    if parts == 1:
        if size >= least:
            yield (size,)
        return
    first = least
    while first**parts <= size:
        if size % first == 0:
            yield from ((first, *rest) for rest in _factors(size // first, parts - 1, first))
        first += 1


def _domain(system: SystemLike) -> int:
    """Return the chips of a whole scale-up domain."""
    if system.topology.startswith("torus"):
        return prod(system.torus_dims) if system.torus_dims else system.chips
    if system.topology == "none":
        return max(system.chips_per_node, 1)
    return max(system.scale_up_domain, 1)


def _scale_up(system: SystemLike, size: int) -> ScaleUp:
    """Return the scale-up domain of a system, or the slice of it that holds `size` chips."""
    kind = {"torus2d": "torus", "torus3d": "torus", "none": "host"}.get(system.topology, system.topology)
    axes: tuple[int, ...] = ()
    wrap: tuple[bool, ...] = ()
    if kind == "torus":
        axes, wrap = slice_of(size, _pod(system), system.torus_cube or 1)
        size = prod(axes)
    link = _link(system, kind)
    if size > 1 and not link > 0:
        raise CatalogError(
            f"system {system.id!r}: found no scale-up bandwidth to join {size} chips; allowed: 1 chip a domain"
        )
    latency = default_latency("switch" if kind == "dragonfly" else kind)
    reduces = system.in_switch_reduction and kind == "switch"
    group = max(system.chips_per_node, 1) if kind == "dragonfly" and size % max(system.chips_per_node, 1) == 0 else 1
    cube = system.torus_cube or 1 if kind == "torus" else 0
    return ScaleUp(kind, size, link, latency, reduces, group, cube, axes, wrap)


def _link(system: SystemLike, kind: str) -> float:
    """Return B/s of one link, one direction; where only the chip's sum is given, its even share."""
    if kind == "mesh":
        return system.scale_up_pair or system.scale_up / max(_domain(system) - 1, 1)
    if kind == "torus":
        # links of unlike axes (one at half speed) are taken as their mean, so that the chip's sum stays true
        ports = 2 * max(sum(axis > 1 for axis in _pod(system)), 1)
        return min((rate for rate in (system.link_bandwidth, system.scale_up / ports) if rate > 0), default=0.0)
    if kind == "host":
        return system.scale_up or system.host_link or default_rate("pcie")
    return system.scale_up


def _pod(system: SystemLike) -> tuple[int, ...]:
    """Return the dimensions of a whole torus; where they are not given, those of the most compact one of its chips."""
    return system.torus_dims or _box(system.chips, (system.chips,) * int(system.topology[5]))


def _host(system: SystemLike, size: int, domains: int) -> tuple[int, float]:
    """Return chips and B/s a chip of a host that joins several scale-up domains (bridged pairs of cards), else 0, 0."""
    link = system.host_link
    per_host = system.chips_per_node // size * size
    if not link or domains == 1 or per_host <= size:
        return 0, 0.0
    return min(per_host, domains * size), link


def _scale_out(system: SystemLike, network: NetworkLike | None, size: int, domains: int) -> ScaleOut:
    """Return the network between domains; leaves hold whole domains."""
    nic = system.scale_out or (network.bandwidth if network else 0.0)
    if not nic > 0:
        raise CatalogError(
            f"system {system.id!r}: found no scale-out bandwidth to join {domains} domains of {size} chips; "
            f"allowed: {size} chips, or a fabric named in [hardware]"
        )
    if network is None:
        return ScaleOut("fabric", nic, nic, default_latency("fabric"), domains * size, 1, 1, 1.0)
    per_leaf = min(max((network.leaf or domains * size) // size, 1), domains)
    rails = (network.rails or system.chips_per_node) if network.kind == "rail" else 1
    rails = rails if rails >= 1 and size % rails == 0 else 1
    latency = network.latency or default_latency("fabric")
    leaves = -(-domains // per_leaf)
    return ScaleOut(
        network.kind, nic, network.bandwidth, latency, per_leaf * size, leaves, rails, network.oversubscription
    )


@cache
def _defaults() -> dict[str, dict[str, float]]:
    return tomllib.loads((Path(__file__).parent / "topology_defaults.toml").read_text(encoding="utf-8"))


def default_latency(kind: str) -> float:
    """Return s of one step between neighbours joined by ``switch``, ``mesh``, ``torus``, ``host``, ``fabric`` or ``wan``."""
    return _defaults()[kind]["seconds"]


def default_rate(link: str) -> float:
    """Return B/s, one direction, of one ``nvlink`` or ``pcie`` link of the commonest kind."""
    return _defaults()[link]["bytes_per_second"]
