"""What is known of the programme of a fleet of pools beyond its numbers: what a solver of large ones makes use of."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.blocks import RowBlock
from tokenmill.milp.constraints.flows import Join, joins
from tokenmill.milp.constraints.limits import enough
from tokenmill.milp.packing import packing_weights
from tokenmill.milp.quantities import Build
from tokenmill.milp.sums import Sums

Numbers = NDArray[np.int64]
Rows = dict[str, dict[tuple[Hashable, ...], int]]
ADDED = ("filled", "domains", "sent", "taken", "leaves", "passes", "arc", "route")  # families of rows that sums read
ASIDE = ("pattern", "flow", "over")  # families of columns that fall out of sums


@dataclass(frozen=True)
class Fleet:
    """What is known of the columns of a programme.

    | field | of each column |
    |---|---|
    | linking | committed for many moments |
    | classes | number of the class, role and moment that a share belongs to, -1 for others: shares of one are at most one together |
    | stands | replicas that a share loads, -1 for others |
    | sizes | chips of one of these replicas, 0 for others |
    | pools | number of the workload, role, what they may talk to, and moment of replicas, -1 for others |
    | most | what no plan needs more of |
    | aside | falls out of sums of rows |

    `commitments`: columns of one offer at one site, period by period, and the chips of a unit. `sums`: of rows, for the relaxation.
    """

    linking: NDArray[np.bool_]
    classes: Numbers
    stands: Numbers
    sizes: Numbers
    pools: Numbers
    most: NDArray[np.float64]
    aside: NDArray[np.bool_]
    commitments: tuple[Numbers, ...]
    sums: Sums

    def among(self, columns: NDArray[np.bool_] | Numbers) -> Fleet:
        """Return what is known of some of the columns, but for what refers to others."""
        return replace(
            self, linking=self.linking[columns], classes=self.classes[columns], stands=self.stands[columns],
            sizes=self.sizes[columns], pools=self.pools[columns], most=self.most[columns], aside=self.aside[columns], commitments=(),
        )  # fmt: skip


def fleet_of(build: Build) -> Fleet:
    """Return what is known of the columns of a fleet of pools: what links moments, which shares go together."""
    sets, made, size = build.sets, build.variables, len(build.programme)
    linking, most = np.zeros(size, dtype=np.bool_), np.full(size, inf)
    numbers = dict[tuple[int, int], list[int]]()
    units = [enough(build, k) for k in range(len(sets.offers))]
    for (k, i, _), index in sorted(made.new.items()):
        numbers.setdefault((k, i), []).append(index)
        linking[index], most[index] = True, units[k]
    for (k, *_), index in made.rented.items():
        most[index] = units[k]
    for (s, *_), index in made.patterns.items():
        most[index] = sets.stocks[s].domains * sum(units[k] for k in sets.stocks[s].offers)
    for index in build.programme.of_family("over"):
        most[index] = 1.0  # of the unit that all flows count in; none goes round in circles
    classes = _classes(build)
    stands, sizes, pools = _replicas(build)
    commitments = tuple(np.array(of, dtype=np.int64) for of in numbers.values())
    aside = np.zeros(size, dtype=np.bool_)
    aside[[index for family in ASIDE for index in build.programme.of_family(family)]] = True
    return Fleet(linking, classes, stands, sizes, pools, most, aside, commitments, _sums(build))


def _classes(build: Build) -> Numbers:
    """Return for every column the number of the class, role and moment of a share."""
    made, place = build.variables, 0
    classes = np.full(len(build.programme), -1, dtype=np.int64)
    for (w, b, *_), (low, high) in made.shares.spans.items():
        for first in made.shares.first[made.shares.number[w, b]].ravel():
            if first >= 0:
                classes[first + low : first + high] = place
                place += 1
    return classes


def _replicas(build: Build) -> tuple[Numbers, Numbers, Numbers]:
    """Return for every column: the replicas that a share loads; chips, and pool, of replicas."""
    sets, made, size = build.sets, build.variables, len(build.programme)
    stands, pools, sizes = np.full(size, -1), np.full(size, -1), np.zeros(size, dtype=np.int64)
    columns = [sets.columns[use.column] for use in sets.uses]
    owners = [
        (sets.owner[use.column], column.role, repr([(name, end.match) for name, end in sorted(column.ends.items())]))
        for use, column in zip(sets.uses, columns, strict=True)
    ]
    numbers = {owner: n for n, owner in enumerate(sorted(set(owners)))}
    pool, chips = np.array([numbers[owner] for owner in owners]), np.array([column.chips for column in columns])
    for moment, (h, l) in enumerate(sets.moments):
        replicas = made.replicas.at(h, l)
        sizes[replicas], pools[replicas] = chips, pool + moment * len(numbers)
        loaded, index, _ = made.shares.loads(h, l)
        stands[index[loaded]] = replicas[made.shares.entries.use[loaded]]
    return stands, sizes, pools


def _sums(build: Build) -> Sums:
    """Return sums of the rows of packing and of flows."""
    rows: Rows = {family: {} for family in ADDED}
    for number, item in enumerate(build.programme.rows.items):
        if not isinstance(item, RowBlock) and item.label[0] in rows:
            rows[str(item.label[0])][item.label[1:]] = number
    gone = np.zeros(len(build.programme.rows), dtype=np.bool_)
    added = [*_of_packing(build, rows), *_of_flows(build, rows)]
    for family in ("filled", "domains", "sent", "taken", "leaves", "passes"):
        gone[list(rows[family].values())] = True
    gone[list(_through_joins(build, rows))] = True
    return Sums(
        np.array([row for terms in added for row, _ in terms], dtype=np.int64),
        np.repeat(np.arange(len(added)), [len(terms) for terms in added]),
        np.array([weight for terms in added for _, weight in terms], dtype=np.float64), gone,
    )  # fmt: skip


def _of_packing(build: Build, rows: Rows) -> Iterable[list[tuple[int, float]]]:
    """Return sums of rows that leave no pattern: each size at the share of a domain that it takes."""
    filled: dict[tuple[Hashable, ...], dict[int, int]] = {}
    for (*at, size), row in rows["filled"].items():
        filled.setdefault(tuple(at), {})[int(str(size))] = row
    for where, domains in rows["domains"].items():
        sizes = filled[where]
        for weights in packing_weights(tuple(sizes), build.sets.stocks[int(str(where[0]))].domain):
            yield [(domains, 1.0), *((row, w) for row, w in zip(sizes.values(), weights, strict=True) if w > 0.0)]


def _of_flows(build: Build, rows: Rows) -> Iterable[list[tuple[int, float]]]:
    """Return sums of rows that leave no flow: what pools send is what those that may talk to any of them take."""
    found: dict[tuple[Hashable, ...], list[tuple[int, float]]] = {}
    talk = [_talk(join) for join in joins(build.sets)]
    for side, (family, sign) in enumerate((("sent", 1.0), ("taken", -1.0))):
        for (j, group, *at), row in rows[family].items():
            number = talk[int(str(j))][side][int(str(group))]
            found.setdefault((j, number, *at), []).append((row, sign))
    return found.values()


def _talk(join: Join) -> tuple[list[int], list[int]]:
    """Return for all source and target groups of a coupling the number of the set of groups that talk, by some way."""
    first = len(join.sources)
    number = list(range(first + len(join.targets)))
    for s, t in join.pairs:
        one, other = number[s], number[first + t]
        number = [min(one, other) if n in (one, other) else n for n in number]
    return number[:first], number[first:]


def _through_joins(build: Build, rows: Rows) -> Iterable[int]:
    """Return the rows of routes that the sums of flows imply."""
    coupled = {(build.sets.workloads[join.workload].workload, join.route, join.position) for join in joins(build.sets)}
    for (workload, _, route, position, *_), row in rows["route"].items():
        if (workload, route, position) in coupled:
            yield row
