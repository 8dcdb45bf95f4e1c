"""A plan in whole numbers for a fleet that falls into parts: commitments rounded, then replicas moment by moment.

In each part commitments are held. Replicas are rounded by size, the largest first: down to whole numbers, what is left
goes to smaller ones, and the smallest are rounded up; then domains are packed and systems rented. While all parts lose
more than their share of the gap, the solver looks for better numbers of the smallest replicas, part after part, and then
of all, size by size.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.eliminate import rows_of
from tokenmill.milp.highs import Again, solve_arrays, stop_is_asked
from tokenmill.milp.parts import Part, extract, held, parts
from tokenmill.milp.rows import Arrays
from tokenmill.milp.structure import Fleet

FEW = 3  # shares of a pool and a size of replicas, of least reduced cost, that whole numbers are looked for among
TAKEN = 1e-3  # shares from which the relaxation is said to take a column
PASSES = 4  # of rounding, after the second only while the plan costs
MORE = 2.0  # times the room set aside where that was not enough: what is rounded next is other replicas
FAR = 4.0  # times what there is room for
DEARER = 1.5  # what systems cost more where the relaxation has none, so that few kinds are rounded up
NODES = 200  # of a part's tree
PART = 0.75  # share of the gap that the rounding of parts may take
INNER = 0.1  # of a part's share, that the solver may leave
WORKERS = 2  # parts at a time: the solver works beside Python
LEAST_SECONDS = 5.0
STEP_SECONDS = 2.0  # of the solver's for one size of replicas, where time is short
ROUGH = 1e-4  # gap of a part for which commitments are added
ROUNDING = 1e-6

Floats = NDArray[np.float64]
Left = Callable[[], float | None]


@dataclass(frozen=True)
class Hint:
    """What the relaxation says of all columns: values and reduced costs (infinite: not in it), in their own units."""

    values: Floats
    reduced: Floats


@dataclass(frozen=True)
class Task:
    """A programme, what is known of it, what a plan may cost beyond the bound, and how it is to be solved."""

    arrays: Arrays
    fleet: Fleet
    room: float
    threads: int
    left: Left


@dataclass(frozen=True)
class Bit:
    """A part alone: the last columns are commitments, held at their lower bounds; `room`: what its rounding may cost."""

    arrays: Arrays
    fleet: Fleet
    room: float
    threads: int
    left: Left


@dataclass
class Tried:
    """A part, the cost of its relaxation, and its best plan so far."""

    bit: Bit
    bound: float
    values: Floats | None

    @property
    def lost(self) -> float:
        """What the plan costs beyond the relaxation."""
        return 0.0 if self.values is None else float(self.bit.arrays.cost @ self.values) - self.bound


def whole(task: Task, hint: Hint, up: float) -> Floats | None:
    """Return a plan in whole numbers: commitments rounded, then all parts, those that lose most looked at again."""
    arrays, fleet = task.arrays, task.fleet
    chosen = _chosen(fleet, hint)
    columns = np.flatnonzero(chosen)
    restricted, known = extract(arrays, np.arange(len(arrays.row_lower)), columns), fleet.among(chosen)
    place = np.full(len(arrays.lower), -1)
    place[columns] = np.arange(len(columns))
    values, lower = restricted.lower.copy(), restricted.lower.copy()
    for numbers in fleet.commitments:
        lower[place[numbers]] = np.maximum(_in_steps(hint.values[numbers], up), lower[place[numbers]])
    pieces = parts(restricted, known.linking)
    room = PART * task.room / len(pieces)
    bits = [_bit(restricted, known, piece, lower, room, task) for piece in pieces]
    with ThreadPoolExecutor(WORKERS) as workers:
        tried = [Tried(bit, *found) for bit, found in zip(bits, workers.map(_rounded, bits), strict=True)]
        _look_again(tried, PART * task.room, task.left, workers)
    for piece, each in zip(pieces, tried, strict=True):
        if each.values is None:
            each.values = _adding(_bit(restricted, known, piece, lower, room, task))
        if each.values is None:
            return None
        values[piece.columns] = each.values
        lower[piece.links] = each.values[len(piece.own) :]
    values[known.linking] = lower[known.linking]
    result = np.zeros(len(arrays.lower))
    result[columns] = values
    return result


def _bit(arrays: Arrays, fleet: Fleet, piece: Part, lower: Floats, room: float, task: Task) -> Bit:
    """Return a part with commitments at some lower bounds."""
    part = replace(extract(arrays, piece.rows, piece.columns), lower=lower[piece.columns])
    return Bit(part, fleet.among(piece.columns), room, task.threads, task.left)


def _look_again(tried: list[Tried], room: float, left: Left, workers: ThreadPoolExecutor) -> None:
    """Improve parts, those that lose most first, until all together lose no more than there is room for."""
    *quick, last = (partial(_improved, free) for free in (_smallest_used, _smallest_all, _every))
    ways: list[Callable[[Tried], Floats | None]] = [*quick, _size_by_size, last]
    for better in ways:
        order = sorted((each for each in tried if each.lost > 0.0), key=lambda each: -each.lost)
        for first in range(0, len(order), WORKERS):
            if sum(each.lost for each in tried) <= room or left() == 0.0 or stop_is_asked():
                return
            some = order[first : first + WORKERS]
            for each, values in zip(some, workers.map(better, some), strict=True):
                each.values = values


def _chosen(fleet: Fleet, hint: Hint) -> NDArray[np.bool_]:
    """Return the columns that a plan is looked for among: in pools that the relaxation takes, shares that it takes or nearly does."""
    stands = fleet.stands >= 0
    pool = np.where(stands, fleet.pools[fleet.stands], -1)
    busy = np.bincount(pool[stands], weights=hint.values[stands]) > TAKEN
    able = stands & busy[pool]
    size = np.where(stands, fleet.sizes[fleet.stands], 0)
    chosen = (fleet.classes < 0) & (fleet.pools < 0) | (able & (hint.values > TAKEN))
    chosen[best_of(np.where(able, pool * (int(size.max(initial=0)) + 1) + size, -1), hint.reduced, FEW)] = True
    chosen[fleet.stands[chosen & stands]] = True
    return chosen


def best_of(classes: NDArray[np.int64], cost: Floats, few: int) -> NDArray[np.int64]:
    """Return the few columns of least cost in each class (-1: in none)."""
    members = np.flatnonzero(classes >= 0)
    order = members[np.lexsort((cost[members], classes[members]))]
    groups = classes[order]
    first = np.searchsorted(groups, groups)
    return order[np.arange(len(order)) - first < few]


def _in_steps(relaxed: Floats, up: float) -> Floats:
    """Return commitments of one kind, period by period, in whole numbers: what is had by then is rounded."""
    total = np.cumsum(relaxed)
    return np.diff(np.where(total > 0.5, np.floor(total + up), 0.0), prepend=0.0)


def _adding(bit: Bit) -> Floats | None:
    """Return a part in whole numbers, commitments added where need be."""
    found = solve_arrays(bit.arrays, time_limit=_seconds(bit), gap=ROUGH, threads=bit.threads).values
    return None if found is None else np.where(bit.arrays.integer, np.round(found), found)


def _seconds(bit: Bit) -> float | None:
    """Return seconds that a part may take of the solver's: some even where none are left, for there is no plan without it."""
    left = bit.left()
    return None if left is None else max(0.1 * left, LEAST_SECONDS)


def _held_back(arrays: Arrays, which: NDArray[np.bool_]) -> Arrays:
    """Return a programme with some columns at their lower bounds."""
    return replace(arrays, upper=np.where(which, arrays.lower, arrays.upper))


def _smallest_used(fleet: Fleet, plan: Floats) -> NDArray[np.bool_]:
    """Return the smallest replicas of pools that a plan has."""
    return _smallest(fleet) & (plan > 0.5)


def _smallest_all(fleet: Fleet, plan: Floats) -> NDArray[np.bool_]:
    """Return the smallest replicas of pools."""
    return _smallest(fleet)


def _every(fleet: Fleet, plan: Floats) -> NDArray[np.bool_]:
    """Return all replicas."""
    return fleet.pools >= 0


def _improved(free_of: Callable[[Fleet, Floats], NDArray[np.bool_]], tried: Tried) -> Floats | None:
    """Return a better plan of a part near the one it has: some replicas free, systems rented where they are."""
    bit, start = tried.bit, tried.values
    if start is None:
        return None
    fleet, arrays = bit.fleet, _held_back(bit.arrays, bit.fleet.linking)
    free = free_of(fleet, start)
    stays = (fleet.pools >= 0) & arrays.integer & ~free
    lower, upper = np.where(stays, start, arrays.lower), np.where(stays, start, arrays.upper)
    upper = np.where(_rents(arrays, fleet) & (start < 0.5), lower, upper)
    gap = INNER * bit.room / max(abs(float(arrays.cost @ start)), 1e-12)
    near = replace(arrays, lower=lower, upper=upper)
    found = solve_arrays(near, time_limit=_seconds(bit), gap=gap, threads=bit.threads, start=start, nodes=NODES).values
    if found is None or float(arrays.cost @ found) > float(arrays.cost @ start):
        return start
    return np.where(arrays.integer, np.round(found), found)


def _size_by_size(tried: Tried) -> Floats | None:
    """Return a better plan of a part: systems and the largest replicas whole while smaller ones are not, then the next."""
    bit, start = tried.bit, tried.values
    if start is None:
        return None
    fleet, arrays = bit.fleet, _held_back(bit.arrays, bit.fleet.linking)
    replicas, rents = (fleet.pools >= 0) & arrays.integer, _rents(arrays, fleet)
    gap = INNER * bit.room / max(abs(float(arrays.cost @ start)), 1e-12)
    limit = None if bit.left() is None else STEP_SECONDS
    lower, upper, values = arrays.lower.copy(), arrays.upper.copy(), None
    sizes = np.unique(fleet.sizes[replicas])[::-1]
    for size in sizes:
        here = replicas & (fleet.sizes == size)
        near = replace(arrays, lower=lower, upper=upper, integer=arrays.integer if size == sizes[-1] else rents | here)
        first = start if values is None else None
        values = solve_arrays(near, time_limit=limit, gap=gap, threads=bit.threads, start=first, nodes=NODES).values
        if values is None:
            return start
        lower[here] = upper[here] = np.round(values[here])
    if values is None or float(arrays.cost @ values) > float(arrays.cost @ start):
        return start
    return np.where(arrays.integer, np.round(values), values)


def _rents(arrays: Arrays, fleet: Fleet) -> NDArray[np.bool_]:
    """Return what is had for a moment: neither replicas nor commitments, and paid for."""
    return arrays.integer & (fleet.pools < 0) & ~fleet.linking & (arrays.cost > 0.0)


def _rounded(bit: Bit) -> tuple[float, Floats | None]:
    """Return the relaxation's cost of a part, and a plan made by rounding.

    A pass that costs too much is followed by one in which systems cost more where the relaxation rents none, and then by
    those in which room is set aside for what rounding went over.
    """
    fleet, arrays = bit.fleet, _held_back(bit.arrays, bit.fleet.linking)
    replicas, rents = (fleet.pools >= 0) & arrays.integer, _rents(arrays, fleet)
    bound, best, least, tight, spare = np.inf, None, np.inf, arrays, 1.0
    for done in range(PASSES):
        loose, dived = _dive(tight, fleet, replicas, bit)
        if loose is None or dived is None:
            break
        bound = min(bound, float(arrays.cost @ loose))
        values = np.where(replicas, np.ceil(dived - ROUNDING), dived)
        found = _filled(arrays, fleet, replicas, values, bit)
        if found is not None and float(arrays.cost @ found) < least:
            best, least = found, float(arrays.cost @ found)
        if least - bound <= (bit.room if done == 0 else FAR * bit.room):
            break
        if done == 0:
            tight = replace(arrays, cost=np.where(rents & (loose < ROUNDING), DEARER * arrays.cost, arrays.cost))
        spare *= MORE if found is None else 1.0
        if done > 0 or found is None:
            over = np.where(rents, np.ceil(dived - ROUNDING), values) - dived
            tight = replace(tight, row_upper=arrays.row_upper - spare * _over(arrays, over, replicas | rents))
    return bound, best


def _dive(arrays: Arrays, fleet: Fleet, replicas: NDArray[np.bool_], bit: Bit) -> tuple[Floats | None, Floats | None]:
    """Return the relaxation's values, and those where all but the smallest replicas of a pool are whole."""
    lower, upper = arrays.lower.copy(), arrays.upper.copy()
    again = Again(arrays, threads=bit.threads)
    loose = values = again.between(lower, upper)
    smallest = _smallest(fleet)
    for size in np.unique(fleet.sizes[replicas])[::-1]:
        if values is None:
            break
        here = replicas & (fleet.sizes == size) & ~smallest
        if not here.any():
            continue
        lower[here] = upper[here] = np.floor(values[here] + ROUNDING)
        values = again.between(lower, upper)
    return loose, values


def _smallest(fleet: Fleet) -> NDArray[np.bool_]:
    """Return the replicas than which a pool has none smaller."""
    least = np.full(int(fleet.pools.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    members = fleet.pools >= 0
    np.minimum.at(least, fleet.pools[members], fleet.sizes[members])
    result = members.copy()
    result[members] = fleet.sizes[members] == least[fleet.pools[members]]
    return result


def _over(arrays: Arrays, added: Floats, whole: NDArray[np.bool_]) -> Floats:
    """Return by how much rounding up columns goes over the sides of rows that it does not serve."""
    terms = whole[arrays.index] & (arrays.value > 0.0) & np.isinf(arrays.row_lower)[rows_of(arrays)]
    weights = (arrays.value * added[arrays.index])[terms]
    return np.bincount(rows_of(arrays)[terms], weights=weights, minlength=len(arrays.row_lower)).astype(np.float64)


def _filled(arrays: Arrays, fleet: Fleet, replicas: NDArray[np.bool_], values: Floats, bit: Bit) -> Floats | None:
    """Return values with replicas, shares and flows held, domains packed and systems rented for them."""
    stays = replicas | (fleet.classes >= 0) | ~arrays.integer & fleet.aside | fleet.linking
    rest = held(arrays, stays, values)
    if rest is None:
        return None
    columns = np.flatnonzero(~stays)
    outcome = solve_arrays(rest, time_limit=_seconds(bit), gap=1e-6, threads=bit.threads, nodes=NODES)
    if outcome.values is None:
        return None
    result = values.copy()
    result[columns] = outcome.values
    return np.where(arrays.integer, np.round(result), result)
