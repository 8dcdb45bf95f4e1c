"""The next best plans: each lacks a kind of hardware, a market, a site or the refusals of every better one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.narrow import solve_narrowed, systems_of, without
from tokenmill.milp.quantities import Build
from tokenmill.milp.rows import Arrays
from tokenmill.milp.solution import Alternative, Had, Purchase

if TYPE_CHECKING:
    from tokenmill.milp.clock import Clock
    from tokenmill.milp.solve import Wish

WITHIN = 0.25
"""Alternatives beyond the first cost at most so much more than the best plan, relative."""
REFUSING = "refused demand"
Masks = Mapping[str, NDArray[np.bool_]]


@dataclass(frozen=True)
class Family:
    """Kinds of one sort (system, market, site, refusal): which variables mean that a kind is used, from `least` on."""

    sort: str
    masks: Masks
    least: float = 0.5


@dataclass
class Search:
    """What is looked for: the programme, its first objective's best, time, and how a plan is read."""

    arrays: Arrays
    systems: Masks
    wish: Wish
    clock: Clock
    longest: float
    best: float
    read: Callable[[NDArray[np.float64]], tuple[Had, ...]]
    cut_short: bool = False
    began: float = field(default_factory=perf_counter)

    def left(self) -> float:
        """Return seconds left for other plans."""
        spare, limit = self.longest - (perf_counter() - self.began), self.clock.left()
        return spare if limit is None else min(spare, limit)

    @property
    def most(self) -> float:
        """Objective up to which plans beyond the runner-up are named."""
        return self.best + WITHIN * abs(self.best)


def families(builds: Sequence[Build]) -> list[Family]:
    """Return the sorts of kinds that plans may lack, in the order in which they are tried; over all parts of a programme."""
    size = len(builds[0].programme)
    made: dict[str, dict[str, NDArray[np.bool_]]] = {"market": {}, "site": {}, "refusal": {}}

    def mark(sort: str, kind: str, index: int) -> None:
        made[sort].setdefault(kind, np.zeros(size, dtype=np.bool_))[index] = True

    for build in builds:
        sets, variables = build.sets, build.variables
        for (k, i, *_), index in [*variables.new.items(), *variables.rented.items()]:
            mark("market", sets.offers[k].market, index)
            mark("site", sets.sites[i].name, index)
        for (n, *_), index in variables.replicas.items():
            mark("site", sets.sites[sets.uses[n].site].name, index)
        for n, index in variables.taken.items():
            mark("site", sets.sites[sets.ways[n].site].name, index)
            for held in sets.ways[n].held:
                mark("market", sets.offers[held.offer].market, index)
        for index in variables.refused.values():
            mark("refusal", REFUSING, index)
    least = {"refusal": 1e-6}
    sorts = [Family(sort, masks, least.get(sort, 0.5)) for sort, masks in made.items()]
    return [Family("system", systems(builds)), *sorts]


def systems(builds: Sequence[Build]) -> Masks:
    """Return, for each system, which variables mean that it is had or used, over all parts of a programme."""
    size = len(builds[0].programme)
    found: dict[str, NDArray[np.bool_]] = {}
    for build in builds:
        for name, mask in systems_of(build).items():
            found.setdefault(name, np.zeros(size, dtype=np.bool_))[: len(mask)] |= mask[:size]
    return found


def alternatives(
    search: Search, values: NDArray[np.float64], sorts: Sequence[Family], wanted: int
) -> tuple[Alternative, ...]:
    """Return up to `wanted` plans, best first; the runner-up whatever it costs, others within a quarter.

    Plans that differ in systems first; where these are fewer, those that differ in markets, then in sites, then in what
    is refused: the best of each sort in any case.
    """
    found: list[Alternative] = []
    for family in sorts if wanted > 0 else ():
        if found and len(family.masks) < 2 and family.sort != "refusal":
            continue  # nothing is left without the only kind
        most = max(wanted - len(found), 1)
        more = _of_family(search, values, family, most, found)
        same = {(round(other.objective, 6), other.had) for other in found}
        found += [other for other in more if (round(other.objective, 6), other.had) not in same]
    return tuple(sorted(found, key=lambda other: other.objective))


def sizes(search: Search, values: NDArray[np.float64], build: Build) -> tuple[Alternative, ...]:
    """Return, for each run, the best plan on fewer chips and the best on more: the good sizes beside the one that is taken."""
    found: list[Alternative] = []
    sets = build.sets
    chips = {index: sets.columns[sets.ways[n].column].chips for n, index in build.variables.taken.items()}
    for name in sorted(build.variables.start):
        mine = [build.variables.taken[n] for n in sets.ways_of(name)]
        now = max((chips[index] for index in mine if values[index] > 0.5), default=0)
        for keep in ([i for i in mine if chips[i] < now], [i for i in mine if chips[i] > now]):
            mask = np.zeros(len(search.arrays.lower), dtype=np.bool_)
            mask[[i for i in mine if i not in set(keep)]] = True
            best = _without(search, Family("size", {name: mask}), frozenset([name]), False) if keep and now else None
            if best is not None:
                then = max(chips[index] for index in mine if best[1][index] > 0.5)
                change = f"{name} on {then} chips in place of {now}"
                found.append(Alternative(best[0], search.read(best[1]), change=change))
    return tuple(found)


def _of_family(
    search: Search, values: NDArray[np.float64], family: Family, wanted: int, known: Sequence[Alternative]
) -> list[Alternative]:
    """Return the next plans by one sort of kinds.

    A tree over forbidden kinds, best first: below a plan stand those without one of its kinds, so that no plan that
    lacks one is missed.
    """
    open_: list[tuple[float, tuple[str, ...], NDArray[np.float64]]] = [(-inf, (), values)]
    seen: set[frozenset[str]] = set()
    found: list[Alternative] = []
    kinds_found = {kinds_of(family, values)}
    while open_ and len(found) < wanted:
        cost, forbidden, plan = heappop(open_)
        if (found or known) and cost > search.most:
            break
        kinds = kinds_of(family, plan)
        if kinds not in kinds_found:
            kinds_found.add(kinds)
            found.append(Alternative(cost, search.read(plan), forbidden))
        for kind in sorted(kinds):
            without_ = frozenset((*forbidden, kind))
            if without_ in seen:
                continue
            seen.add(without_)
            next_ = _without(search, family, without_, bool(found or known))
            if next_ is not None:
                heappush(open_, (next_[0], tuple(sorted(without_)), next_[1]))
    return found


def _without(
    search: Search, family: Family, forbidden: frozenset[str], bounded: bool
) -> tuple[float, NDArray[np.float64]] | None:
    """Return the best plan without some kinds, None where there is none or it was not proven in the time."""
    left = search.left()
    if left <= 0.0:
        search.cut_short = True
        return None
    outcome = solve_narrowed(
        without(search.arrays, family.masks, forbidden), search.systems, time_limit=left,
        gap=search.wish.gap, threads=search.wish.threads, most=search.most if bounded else inf,
    )  # fmt: skip
    search.cut_short |= outcome.status in ("feasible", "unknown")
    if outcome.status != "optimal" or outcome.values is None or outcome.objective is None:
        return None
    return outcome.objective, outcome.values


def kinds_of(family: Family, values: NDArray[np.float64]) -> frozenset[str]:
    """Return the kinds that a plan has or uses."""
    return frozenset(
        name for name, mask in family.masks.items() if (values[: len(mask)][mask[: len(values)]] > family.least).any()
    )


def had(purchases: Sequence[Purchase]) -> tuple[Had, ...]:
    """Return the most systems had at one time of each kind and market, and their chips."""
    moments: dict[tuple[str, str], dict[tuple[int, str], tuple[float, float]]] = {}
    parts = sorted({p.slice or "" for p in purchases})
    for bought in purchases:
        table = moments.setdefault((bought.system, bought.market), {})
        for h in range(bought.period, bought.until + 1):
            for part in parts if bought.slice is None else [bought.slice]:
                count, chips = table.get((h, part), (0.0, 0.0))
                table[h, part] = round(count + bought.count, 6), round(chips + bought.chips, 6)
    return tuple(Had(system, market, *max(table.values())) for (system, market), table in sorted(moments.items()))
