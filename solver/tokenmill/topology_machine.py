"""What the candidate search reads of a topology: nested levels, and what a group of ranks gets at each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenmill.topology_shape import slice_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MAX_LEVELS = 3
"""Levels a group is described on: scale-up domain, under one leaf switch, across the spine."""

UNBOUNDED = 1e30
"""Bandwidth (B/s) of a level that a group does not use: finite, so that V/bandwidth is 0 and never NaN."""


@dataclass(frozen=True)
class Level:
    """One level of nested domains: the chips of one domain, and what joins them.

    Attributes
    ----------
    name : what joins the chips (``scale-up``, ``leaf``, ``spine``, ...)
    size : chips inside one domain
    bandwidth : B/s per chip, one direction, every chip of the domain talking across this level
    pair_bandwidth : B/s, one direction, one chip to one peer
    latency : s, one message to the nearest chip across this level (one hop on a torus)
    kind : ``switch`` | ``mesh`` | ``torus`` | ``fabric`` | ``wan`` | ``host``
    in_switch_reduction : the switches add up what passes
    axes, wrap : torus dimensions, innermost first, and whether each closes to a ring
    cube : side of the cubes that slices of the torus are made of (1: chips); 0 where its shape is fixed
    """

    name: str
    size: int
    bandwidth: float
    pair_bandwidth: float
    latency: float
    kind: str
    in_switch_reduction: bool = False
    axes: tuple[int, ...] = ()
    wrap: tuple[bool, ...] = ()
    cube: int = 0


@dataclass(frozen=True)
class GroupLevels:
    """What groups of ranks get at each level: MAX_LEVELS arrays a field, innermost level first.

    Attributes
    ----------
    n : members a level joins; their product over levels is the size of the group
    beta : B/s per chip, one direction, for reduce-scatter, all-gather, all-reduce
    alpha : s per step of a ring over n members
    pair : B/s from one member to one other, for a send
    exchange : B/s such that an all-to-all of V bytes a chip takes (n-1)/n V/exchange (bound by bisection)

    A level with n = 1 costs nothing: its bandwidths are UNBOUNDED, its latency 0.
    """

    n: tuple[Ints, ...]
    beta: tuple[Floats, ...]
    alpha: tuple[Floats, ...]
    pair: tuple[Floats, ...]
    exchange: tuple[Floats, ...]


@dataclass(frozen=True)
class Machine:
    """Chips in nested domains, innermost level first; every size a multiple of the one before.

    Attributes
    ----------
    levels : at most MAX_LEVELS; the first is the scale-up domain (of one chip where there is none)
    chips : chips in use; the last level holds them all, and may have room for more
    """

    levels: tuple[Level, ...]
    chips: int

    def groups(self, size: ArrayLike, stride: ArrayLike, ranks: ArrayLike | None = None) -> GroupLevels:
        """Return what groups of `size` ranks, `stride` apart, get at each level.

        Parameters
        ----------
        size, stride : broadcastable positive integers; a group is r, r + stride, ... (parallel dimensions innermost first).
        ranks : ranks of the whole run. Absent, a group is placed for itself: where its size * stride ranks fit into one
            domain they lie in one, if need be leaving chips idle.

        Notes
        -----
        Ranks are spread evenly over as few domains as hold them where that divides, and fill domains of S else; members
        inside a domain are those with the same r // S. Where groups lie unlike each other on the domains, n inside is the
        largest divisor of the size that every one of them keeps whole (conservative). On a torus the ranks are a slice.
        """
        sizes, strides = np.broadcast_arrays(np.asarray(size, np.int64), np.asarray(stride, np.int64))
        given = sizes * strides if ranks is None else np.asarray(ranks, np.int64)
        sizes, strides, total = np.broadcast_arrays(sizes, strides, given)
        shape = sizes.shape
        inside: Ints = np.ones(shape, np.int64)
        n, rates = [], []
        for level, domain in zip(self.levels, _domains(self.levels, total), strict=True):
            members = sizes if level is self.levels[-1] else _members(sizes, strides, domain)
            n.append(members // inside)
            rates.append(_rates(level, n[-1], sizes, strides, total))
            inside = members
        for _ in range(MAX_LEVELS - len(n)):
            n.append(np.ones(shape, np.int64))
            rates.append(_rates(self.levels[0], n[-1], sizes, strides, total))
        beta, alpha, pair, exchange = (tuple(column) for column in zip(*rates, strict=True))
        return GroupLevels(tuple(n), beta, alpha, pair, exchange)

    def shared(self, jobs: float, level: int = -1) -> Machine:
        """Return the machine as one of `jobs` (>= 1) sees it that use the links of `level` at once."""
        if not jobs >= 1:
            raise ValueError(f"jobs that share a level: found {jobs}, allowed: at least 1")
        old = self.levels[level]
        new = replace(old, bandwidth=old.bandwidth / jobs, pair_bandwidth=old.pair_bandwidth / jobs)
        return replace(self, levels=tuple(new if part is old else part for part in self.levels))

    def without_wrap(self, axis: int) -> Machine:
        """Return the machine with the ring of one torus axis (0 innermost) opened to a line."""
        torus = next((level for level in self.levels if level.kind == "torus"), None)
        if torus is None or not 0 <= axis < len(torus.axes):
            found = "no torus" if torus is None else f"axes {torus.axes}"
            raise ValueError(f"axis {axis} to open: found {found}, allowed: the index of an axis of a torus")
        lost = _links(torus.axes[axis], torus.wrap[axis]) - _links(torus.axes[axis], False)
        wrap = tuple(ring and i != axis for i, ring in enumerate(torus.wrap))
        new = replace(torus, wrap=wrap, bandwidth=torus.bandwidth - lost * torus.pair_bandwidth)
        return replace(self, levels=tuple(new if part is torus else part for part in self.levels))

    def split(self, ranks: int) -> Machine:
        """Return the machine in ranks, of which a chip counts as several that share its links evenly."""
        if ranks == 1:
            return self

        def cut(level: Level) -> Level:
            torus = level.kind == "torus"
            return replace(
                level,
                size=level.size * ranks,
                bandwidth=level.bandwidth / ranks,
                pair_bandwidth=level.pair_bandwidth / ranks,
                axes=(ranks, *level.axes) if torus else (),
                wrap=(False, *level.wrap) if torus else (),
                cube=0,
            )

        return Machine(tuple(cut(level) for level in self.levels), self.chips * ranks)


def _domains(levels: tuple[Level, ...], total: Ints) -> list[Ints]:
    """Return the ranks in one domain of each level when `total` ranks are spread evenly over as few as hold them."""
    inner, nominal, sizes = np.ones_like(total), 1, []
    for level in levels:
        parts = -(-total // inner)
        domains = -(-parts // (level.size // nominal))
        per_domain = np.where(parts % domains == 0, parts // domains, level.size // nominal)
        inner, nominal = inner * per_domain, level.size
        sizes.append(inner)
    return sizes


def _members(size: Ints, stride: Ints, domain: Ints | int) -> Ints:
    """Return how many members of any group one domain keeps together."""
    return np.gcd(size, np.where(domain % stride == 0, domain // stride, 1))


def _rates(level: Level, n: Ints, size: Ints, stride: Ints, total: Ints) -> tuple[Floats, Floats, Floats, Floats]:
    """Return beta, alpha, pair and exchange of groups that have n members across a level."""
    steps = np.maximum(n - 1, 1)
    alpha = np.full(n.shape, level.latency)
    pair = np.full(n.shape, level.pair_bandwidth)
    if level.kind == "torus":
        links, hops, longest, rings = _slices(level, n, size, stride, total)
        beta = links * level.pair_bandwidth
        alpha = alpha * hops / steps
        exchange = np.minimum(beta, 4 * rings * level.pair_bandwidth * steps / (n * longest))
    else:
        beta = np.full(n.shape, level.bandwidth)
        if level.kind == "mesh":
            beta = np.minimum(beta, level.pair_bandwidth * steps)
        exchange = beta
    idle = n == 1
    beta, pair, exchange = (np.where(idle, UNBOUNDED, x) for x in (beta, pair, exchange))
    return beta, np.where(idle, 0.0, alpha), pair, exchange


def _slices(level: Level, n: Ints, size: Ints, stride: Ints, total: Ints) -> tuple[Floats, Floats, Floats, Floats]:
    """Return what `_torus` does, each group on the slice of the torus that holds `total` ranks."""
    if not level.cube:
        return _torus(level.axes, level.wrap, n, size, stride)
    found = np.empty((4, *n.shape))
    for ranks in np.unique(total):
        axes, rings = slice_of(int(ranks), level.axes, level.cube)
        wrap = tuple(ring and whole for ring, whole in zip(rings, level.wrap, strict=True))
        here = total == ranks
        found[:, here] = _torus(axes, wrap, n[here], size[here], stride[here])
    return found[0], found[1], found[2], found[3]


def _torus(
    axes: tuple[int, ...], wrap: tuple[bool, ...], n: Ints, size: Ints, stride: Ints
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return, of groups on a torus: links a chip, hops, members along the longest axis, links across its middle per line.

    Axes are domains within domains, so members along each follow from size and stride. Groups interleaved on an axis
    share its links.
    """
    links, hops = np.zeros(n.shape), np.zeros(n.shape)
    longest, rings = np.ones(n.shape), np.ones(n.shape)
    inside, prefix = np.ones_like(n), 1
    for i, (axis, ring) in enumerate(zip(axes, wrap, strict=True)):
        outermost = i == len(axes) - 1
        members = np.maximum(n, inside) if outermost else _members(size, stride, prefix * axis)
        along = np.maximum(members // inside, 1)
        interleaved = np.maximum(stride // prefix, 1)
        closed = (along * interleaved == axis) & ring & (axis > 2)
        here = np.where(closed, 2.0, 1.0) / interleaved
        used = along > 1
        links += np.where(used, here, 0.0)
        reach = np.where(closed, along * interleaved / 2, (along - 1) * interleaved)
        hops = np.maximum(hops, np.where(used, reach, 0.0))
        narrower = used & ((longest == 1) | (here / along < rings / longest))
        longest, rings = np.where(narrower, along, longest), np.where(narrower, here, rings)
        inside, prefix = np.maximum(members, inside), prefix * axis
    return links, hops, longest, rings


def _links(axis: int, ring: bool) -> int:
    """Return the links a chip has along a torus axis, at its worst place."""
    if axis == 1:
        return 0
    return 2 if ring and axis > 2 else 1
