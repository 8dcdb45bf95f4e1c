"""Variables of pools by index, kept as arrays: millions of replicas and shares without an object each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.blocks import Floats, Integers

if TYPE_CHECKING:
    from tokenmill.milp.sets import Sets

ShareKey = tuple[int, int, int, int, int, int, int, int]
Path = tuple[int, int, int, int]


class Replicas(Mapping[tuple[int, int, int], int]):
    """Index of the replicas of a use in a period and slice, by (use, period, slice): ``table[h - 1, l, use]``."""

    def __init__(self, periods: int, slices: int, uses: int) -> None:
        self.table: Integers = np.full((periods, slices, uses), -1, dtype=np.int64)

    def at(self, h: int, l: int) -> Integers:
        """Return the indices of all uses in a period and slice."""
        here: Integers = self.table[h - 1, l]
        return here

    def __getitem__(self, key: tuple[int, int, int]) -> int:
        n, h, l = key
        return int(self.table[h - 1, l, n])

    def __len__(self) -> int:
        return int(self.table.size)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        periods, slices, uses = self.table.shape
        return ((n, h + 1, l) for h in range(periods) for l in range(slices) for n in range(uses))


@dataclass(frozen=True)
class Entries:
    """What every class sends to every operating point of the uses that serve it, for every moment the same.

    In order of use, point, class, route, position: `use`, `point`, `workload`; `group` is the place of (workload,
    class) in `groups`, `offset` that of the share among the shares of the group; `rate`: units/s of a replica.
    """

    groups: tuple[tuple[int, int], ...]
    use: Integers
    point: Integers
    workload: Integers
    group: Integers
    offset: Integers
    rate: Floats


class Shares(Mapping[ShareKey, int]):
    """Index of shares by (workload, class, route, position, use, point, period, slice).

    Shares of a class at a moment stand together, `first` (group, period, slice) on, -1 where there is no demand.
    """

    def __init__(self, sets: Sets) -> None:
        self.sets = sets
        self.groups = tuple(
            (w, b) for w, each in enumerate(sets.workloads) if each.kind == "pool"
            for b, share in enumerate(each.shares) if share > 0.0
        )  # fmt: skip
        self.number = {group: place for place, group in enumerate(self.groups)}
        shape = (len(self.groups), sets.problem.horizon.periods, len(sets.slices))
        self._places_of: dict[tuple[tuple[int, int, int, int], tuple[int, ...]], Integers] = {}
        self.first: Integers = np.full(shape, -1, dtype=np.int64)

    @cached_property
    def paths(self) -> tuple[dict[Path, int], ...]:
        """For each group, the place of (route, position, use, point) among its shares, in order."""
        return tuple(self._paths(w, b) for w, b in self.groups)

    def _paths(self, w: int, b: int) -> dict[Path, int]:
        sets, found = self.sets, dict[Path, int]()
        for r, route in enumerate(sets.workloads[w].routes):
            for position, role in enumerate(route):
                for n in sets.uses_of(w, role):
                    column = sets.uses[n].column
                    for p in sets.points[column]:
                        if sets.columns[column].points[p].rate[b] > 0.0:
                            found[r, position, n, p] = len(found)
        return found

    @cached_property
    def spans(self) -> dict[tuple[int, int, int, int], tuple[int, int]]:
        """First and last place (excluded) of the shares of (workload, class, route, position) in their group."""
        found: dict[tuple[int, int, int, int], tuple[int, int]] = {}
        for (w, b), paths in zip(self.groups, self.paths, strict=True):
            for (r, position, _, _), place in paths.items():
                first, _ = found.get((w, b, r, position), (place, place))
                found[w, b, r, position] = (first, place + 1)
        return found

    def through(self, w: int, b: int, r: int, position: int, h: int, l: int) -> range:
        """Return the indices of a class's shares through one role of a route."""
        group = self.number.get((w, b))
        first = -1 if group is None else int(self.first[group, h - 1, l])
        if first < 0:
            return range(0)
        low, high = self.spans.get((w, b, r, position), (0, 0))
        return range(first + low, first + high)

    @cached_property
    def places(self) -> dict[tuple[int, int, int, int], dict[int, list[int]]]:
        """Places in their group of the shares of (workload, class, route, position), by use."""
        found: dict[tuple[int, int, int, int], dict[int, list[int]]] = {}
        for (w, b), paths in zip(self.groups, self.paths, strict=True):
            for (r, position, n, _), place in paths.items():
                found.setdefault((w, b, r, position), {}).setdefault(n, []).append(place)
        return found

    def of_uses(self, key: tuple[int, int, int, int], uses: tuple[int, ...], h: int, l: int) -> list[int]:
        """Return the indices of the shares of (workload, class, route, position) that go to any of some uses."""
        group = self.number.get(key[:2])
        first = -1 if group is None else int(self.first[group, h - 1, l])
        if first < 0:
            return []
        if (key, uses) not in self._places_of:
            by_use = self.places.get(key, {})
            self._places_of[key, uses] = np.array([p for n in uses for p in by_use.get(n, ())], dtype=np.int64)
        found: list[int] = (first + self._places_of[key, uses]).tolist()
        return found

    @cached_property
    def entries(self) -> Entries:
        """All shares of a moment, by use and point."""
        rows = [
            (n, p, w, b, r, position, group, place)
            for group, ((w, b), paths) in enumerate(zip(self.groups, self.paths, strict=True))
            for (r, position, n, p), place in paths.items()
        ]
        table = np.array(rows, dtype=np.int64).reshape(-1, 8)
        order = np.lexsort(tuple(table[:, c] for c in (5, 4, 3, 1, 0)))
        n, p, w, b, _, _, group, place = table[order].T
        columns, uses = self.sets.columns, self.sets.uses
        rates = [columns[uses[use].column].points[point].rate[cls] for use, point, cls in zip(n, p, b, strict=True)]
        return Entries(self.groups, n, p, w, group, place, np.array(rates, dtype=np.float64))

    def loads(self, h: int, l: int) -> tuple[NDArray[np.bool_], Integers, Floats]:
        """Return which entries stand at a moment, the index of each (-1: none), and its load: replicas' worth of work a share."""
        entries, sets = self.entries, self.sets
        rates = np.array([sets.planned(w, h, l) * sets.workloads[w].shares[b] for w, b in entries.groups])
        first = self.first[:, h - 1, l][entries.group]
        stands = first >= 0
        return stands, np.where(stands, first + entries.offset, -1), rates[entries.group] / entries.rate

    def __getitem__(self, key: ShareKey) -> int:
        w, b, r, position, n, p, h, l = key
        group = self.number[w, b]
        first = int(self.first[group, h - 1, l])
        if first < 0:
            raise KeyError(key)
        return first + self.paths[group][r, position, n, p]

    def __len__(self) -> int:
        made = (self.first >= 0).sum(axis=(1, 2))
        return int(sum(count * len(paths) for count, paths in zip(made, self.paths, strict=True)))

    def __iter__(self) -> Iterator[ShareKey]:
        for h, l in self.sets.moments:
            for group, (w, b) in enumerate(self.groups):
                if self.first[group, h - 1, l] >= 0:
                    for r, position, n, p in self.paths[group]:
                        yield (w, b, r, position, n, p, h, l)
