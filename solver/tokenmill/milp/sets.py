"""The index sets of the programme, in canonical order: the same problem in another order gives the same programme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import ceil
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenmill.candidates.columns import Column, WorkloadColumns
from tokenmill.milp.dominance import dominated, power_is_tight, useful_points
from tokenmill.milp.ways import needed
from tokenmill.offers import Offer
from tokenmill.problem import Problem, Site, Workload

TENURE = {"buy": "own", "owned": "own", "reserve": "rent", "rent": "rent"}


class ArcLike(Protocol):
    """One direction of a link: `capacity` B/s, and `per_chip` B/s more for each chip of `system` at `site`.

    Nodes are ``site/system`` (the domains of a pool), ``site/fabric`` or ``site``.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def source(self) -> str: ...  # noqa: D102
    @property
    def target(self) -> str: ...  # noqa: D102
    @property
    def capacity(self) -> float: ...  # noqa: D102
    @property
    def per_chip(self) -> float: ...  # noqa: D102
    @property
    def site(self) -> str: ...  # noqa: D102
    @property
    def system(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class Leaf:
    """A pool's node that one arc leaves and one arc reaches, both joining it to the same node: all it sends takes them."""

    hub: str
    out: ArcLike
    into: ArcLike


@dataclass(frozen=True)
class Stock:
    """Systems that are the same to a replica: one system in one tenure (own: bought and owned; rent; spot).

    `offers`: indices of the offers that fill it; counts are chips where `by_chip`.
    """

    system: str
    tenure: str
    by_chip: bool
    domain: int
    domains: int
    chip_idle: float
    offers: tuple[int, ...]

    @property
    def key(self) -> str:
        """Canonical text that orders stocks."""
        return f"{self.system}/{self.tenure}{'/chip' if self.by_chip else ''}"


@dataclass(frozen=True)
class Use:
    """A pool's column on a stock at a site (indices)."""

    column: int
    stock: int
    site: int


@dataclass(frozen=True)
class Held:
    """Units of an hourly offer that a run holds for itself, for as long as it lasts."""

    offer: int
    units: int


@dataclass(frozen=True)
class Way:
    """A run's column at a site, with what carries it: places (stock, chips) in stocks, and hourly holdings of its own."""

    column: int
    site: int
    places: tuple[tuple[int, int], ...]
    held: tuple[Held, ...]


@dataclass(frozen=True)
class Sets:
    """Everything the programme is indexed by. `seconds`, `demand[w]`, `served[w]`: arrays (period, slice).

    `elastic`: workload to the least share of its demand that must be served, where that is not all.
    `together`: maximal sets of runs that may go on at one time. `owner`: workload index of each column. `hungriest`: where
    power is limited, replicas count at their hungriest point, whichever they run at.
    """

    problem: Problem
    workloads: tuple[WorkloadColumns, ...]
    columns: tuple[Column, ...]
    owner: tuple[int, ...]
    offers: tuple[Offer, ...]
    sites: tuple[Site, ...]
    stocks: tuple[Stock, ...]
    uses: tuple[Use, ...]
    ways: tuple[Way, ...]
    slices: tuple[str, ...]
    seconds: NDArray[np.float64]
    demand: Mapping[str, NDArray[np.float64]]
    served: Mapping[str, NDArray[np.float64]]
    together: tuple[frozenset[str], ...]
    arcs: tuple[ArcLike, ...]
    elastic: Mapping[str, float] = field(default_factory=dict)
    hungriest: bool = False

    @property
    def periods(self) -> range:
        """Period numbers, from 1."""
        return range(1, self.problem.horizon.periods + 1)

    @property
    def moments(self) -> list[tuple[int, int]]:
        """All (period number, slice index)."""
        return [(h, l) for h in self.periods for l in range(len(self.slices))]

    def by_given(self, table: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        """Return arrays (period, slice) with slices in the horizon's own order again."""
        order = [self.slices.index(name) for name in self.problem.horizon.slices]
        return {name: values[:, order] for name, values in table.items()}

    def planned(self, w: int, h: int, l: int) -> float:
        """Return units/s of a workload to plan for in a period and slice."""
        return float(self.demand[self.workloads[w].workload][h - 1, l])

    def expected(self, w: int, h: int, l: int) -> float:
        """Return units/s of a workload that are expected: what is planned for, without head-room."""
        return float(self.served[self.workloads[w].workload][h - 1, l])

    def length(self, h: int, l: int) -> float:
        """Return seconds of a slice in a period."""
        return float(self.seconds[h - 1, l])

    def workload(self, name: str) -> Workload:
        """Return a workload of the problem by name."""
        return next(w for w in self.problem.workloads if w.name == name)

    @cached_property
    def _uses_by_role(self) -> dict[tuple[int, str], list[int]]:
        found: dict[tuple[int, str], list[int]] = {}
        for n, use in enumerate(self.uses):
            found.setdefault((self.owner[use.column], self.columns[use.column].role), []).append(n)
        return found

    def uses_of(self, workload: int, role: str) -> list[int]:
        """Return the uses of a workload's role."""
        return self._uses_by_role.get((workload, role), [])

    @cached_property
    def standing(self) -> dict[tuple[int, int], dict[float, list[int]]]:
        """Uses on each stock at each site, by the chips that a replica takes."""
        found: dict[tuple[int, int], dict[float, list[int]]] = {}
        for n, use in enumerate(self.uses):
            chips = self.columns[use.column].room
            found.setdefault((use.stock, use.site), {}).setdefault(chips, []).append(n)
        return found

    def ways_of(self, workload: str) -> list[int]:
        """Return the ways of a run workload."""
        return [n for n, way in enumerate(self.ways) if self.columns[way.column].workload == workload]

    @cached_property
    def points(self) -> tuple[tuple[int, ...], ...]:
        """Operating points of each column that no other of its points replaces."""
        return tuple(useful_points(column, self.problem, self.offers, self.power_is_tight) for column in self.columns)

    @cached_property
    def power_is_tight(self) -> bool:
        """Whether replicas are set to points, since the draw of loaded ones is limited or minimised."""
        return power_is_tight(self.problem) and not self.hungriest

    @cached_property
    def nodes(self) -> frozenset[str]:
        """Ends of arcs."""
        return frozenset(end for arc in self.arcs for end in (arc.source, arc.target))

    @cached_property
    def pool_nodes(self) -> frozenset[str]:
        """Nodes of pools' own: nothing passes through them on its way."""
        return frozenset(f"{site.name}/{offer.system}" for site in self.sites for offer in self.offers)

    @cached_property
    def leaves(self) -> dict[str, Leaf]:
        """Pools' nodes that one arc leaves and one arc reaches, both at one other node that is no pool's."""
        found: dict[str, Leaf] = {}
        for node in sorted(self.pool_nodes):
            out = [a for a in self.arcs if a.source == node]
            into = [a for a in self.arcs if a.target == node]
            if len(out) == len(into) == 1 and out[0].target == into[0].source not in self.pool_nodes:
                found[node] = Leaf(out[0].target, out[0], into[0])
        return found

    def per_site(self, table: Mapping[str, float], slice_index: int) -> float:
        """Return a site's value (electricity, carbon) in a slice."""
        name = self.slices[slice_index]
        return table[name] if name in table else table.get("all", 0.0)


def build_sets(
    problem: Problem,
    columns: Sequence[WorkloadColumns],
    offers: Sequence[Offer],
    arcs: Sequence[ArcLike],
    demand: Mapping[str, NDArray[np.float64]],
    served: Mapping[str, NDArray[np.float64]],
    elastic: Mapping[str, float] | None = None,
) -> Sets:
    """Return the index sets, sorted by name or key."""
    workloads = tuple(sorted(columns, key=lambda w: w.workload))
    flat, owner = [], []
    for number, each in enumerate(workloads):
        for column in sorted((c for cs in each.columns.values() for c in cs), key=lambda c: (c.role, c.key)):
            flat.append(column)
            owner.append(number)
    sites = tuple(sorted(problem.hardware.sites, key=lambda s: s.name))
    ordered = tuple(sorted(offers, key=lambda o: o.key))
    stocks = _stocks(ordered)
    names = list(problem.horizon.slices)
    order = sorted(range(len(names)), key=lambda n: names[n])
    length = problem.horizon.duration / problem.horizon.periods
    shares = np.array([problem.horizon.slices[names[n]] for n in order])
    uses, ways = _places(problem, flat, ordered, stocks, sites, dominated(flat, problem, ordered))
    sets = Sets(
        problem=problem, workloads=workloads, columns=tuple(flat), owner=tuple(owner), offers=ordered, sites=sites,
        stocks=stocks, uses=uses, ways=ways, slices=tuple(names[n] for n in order),
        seconds=np.tile(shares * length, (problem.horizon.periods, 1)),
        demand={w: np.asarray(v, dtype=np.float64)[:, order] for w, v in demand.items()},
        served={w: np.asarray(v, dtype=np.float64)[:, order] for w, v in served.items()},
        together=_together(problem, [w.workload for w in workloads if w.kind == "run"]),
        arcs=tuple(sorted(arcs, key=lambda a: a.name)),
        elastic=dict(sorted((elastic or {}).items())),
    )  # fmt: skip
    return replace(sets, ways=needed(sets))


def _tenure(offer: Offer) -> str:
    return "spot" if offer.market == "spot" else TENURE[offer.kind]


def _stocks(offers: tuple[Offer, ...]) -> tuple[Stock, ...]:
    groups: dict[tuple[str, str, bool], list[int]] = {}
    for number, offer in enumerate(offers):
        groups.setdefault((offer.system, _tenure(offer), offer.by_chip), []).append(number)
    return tuple(
        Stock(system, tenure, by_chip, offers[ns[0]].domain, offers[ns[0]].domains, offers[ns[0]].chip_idle, tuple(ns))
        for (system, tenure, by_chip), ns in sorted(groups.items())
    )


def carries(column: Column, tenure: str) -> bool:
    """Tell whether a column's reliability class may stand in a tenure: spot columns on spot, others elsewhere."""
    return column.reliability == "any" or (column.reliability == "spot") == (tenure == "spot")


def _places(
    problem: Problem,
    columns: list[Column],
    offers: tuple[Offer, ...],
    stocks: tuple[Stock, ...],
    sites: tuple[Site, ...],
    gone: frozenset[int],
) -> tuple[tuple[Use, ...], tuple[Way, ...]]:
    """Return where every column (but those gone) may stand: its workload's sites, its region's, its systems' offers there."""
    uses: list[Use] = []
    ways: list[Way] = []
    by_name = {w.name: w for w in problem.workloads}
    for number, column in enumerate(columns):
        if number in gone:
            continue
        workload = by_name[column.workload]
        for site_number, site in enumerate(sites):
            if not _admits(workload, site) or (column.sites is not None and site.name not in column.sites):
                continue
            if column.kind == "run":
                ways += _ways(number, column, site_number, site, offers, stocks)
                continue
            uses += [
                Use(number, n, site_number)
                for n, stock in enumerate(stocks)
                if stock.system == column.system and carries(column, stock.tenure) and _stands(stock, offers, site)
            ]
    return tuple(uses), tuple(ways)


def _admits(workload: Workload, site: Site) -> bool:
    if workload.sites is not None and site.name not in workload.sites:
        return False
    return workload.region is None or not site.regions or workload.region in site.regions


def at_site(offer: Offer, site: Site) -> bool:
    """Tell whether an offer may stand at a site."""
    return offer.sites is None or site.name in offer.sites


def _stands(stock: Stock, offers: tuple[Offer, ...], site: Site) -> bool:
    return any(at_site(offers[k], site) for k in stock.offers)


def _ways(
    number: int, column: Column, site_number: int, site: Site, offers: tuple[Offer, ...], stocks: tuple[Stock, ...]
) -> list[Way]:
    """Return the ways to carry a run at a site: each part of its footprint in a stock with lasting systems, or by the hour."""
    choices: list[list[tuple[int, int] | Held]] = []
    for system, chips in column.footprint:
        part: list[tuple[int, int] | Held] = []
        for n, stock in enumerate(stocks):
            lasting = any(offers[k].kind != "rent" and at_site(offers[k], site) for k in stock.offers)
            if stock.system == system and carries(column, stock.tenure) and lasting:
                part.append((n, chips))
        for n, offer in enumerate(offers):
            if (
                offer.system == system
                and offer.kind == "rent"
                and carries(column, _tenure(offer))
                and at_site(offer, site)
            ):
                units = units_for(chips, offer)
                if units >= offer.minimum:
                    part.append(Held(n, units))
        choices.append(part)
    ways = (
        Way(
            number,
            site_number,
            tuple(sorted(p for p in way if isinstance(p, tuple))),
            tuple(sorted((p for p in way if isinstance(p, Held)), key=lambda held: (held.offer, held.units))),
        )
        for way in product(*choices)
    )
    return list(dict.fromkeys(ways))  # two parts of one size on one system change places to no effect


def units_for(chips: int, offer: Offer) -> int:
    """Return the counted units (chips, or whole systems of whole domains) that a footprint of `chips` takes alone."""
    return chips if offer.by_chip else ceil(ceil(chips / offer.domain) / offer.domains)


def before(problem: Problem) -> dict[str, frozenset[str]]:
    """Return, for each workload, all that must be done before it, directly or through others."""
    needs = {w.name: frozenset(w.needs) for w in problem.workloads}
    closed: dict[str, frozenset[str]] = {}

    def close(name: str) -> frozenset[str]:
        if name not in closed:
            closed[name] = frozenset()
            closed[name] = needs.get(name, frozenset()).union(*(close(n) for n in needs.get(name, frozenset())))
        return closed[name]

    return {name: close(name) for name in needs}


def _together(problem: Problem, runs: list[str]) -> tuple[frozenset[str], ...]:
    """Return the maximal sets of runs none of which must wait for, or has to end before, another."""
    done = before(problem)
    by_name = {w.name: w for w in problem.workloads}

    def apart(a: str, b: str) -> bool:
        deadline = by_name[a].deadline
        return a in done[b] or (deadline is not None and deadline <= by_name[b].starts)

    def grow(chosen: frozenset[str], open_: list[str], closed: list[str]) -> list[frozenset[str]]:
        if not open_:
            return [] if closed else [chosen]
        found: list[frozenset[str]] = []
        for n, run in enumerate(open_):
            near = [r for r in open_[n + 1 :] if not (apart(r, run) or apart(run, r))]
            past = [r for r in [*closed, *open_[:n]] if not (apart(r, run) or apart(run, r))]
            found += grow(chosen | {run}, near, past)
        return found

    return tuple(sorted(grow(frozenset(), sorted(runs), []), key=sorted))
