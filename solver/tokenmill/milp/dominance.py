"""Exact pruning before the programme: operating points and columns that another replaces in every plan.

A column goes where k replicas of another stand in the place of one of it and carry no less at no more power: then any plan has one
as good without it, whatever is bought, packed or limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite

from tokenmill.candidates.columns import Column, OperatingPoint
from tokenmill.offers import Offer
from tokenmill.problem import Problem

READ_POWER = ("power", "energy", "carbon")


def power_is_tight(problem: Problem) -> bool:
    """Tell whether the draw of loaded replicas is limited or minimised: then every replica is set to a point."""
    return (
        problem.limits.power is not None
        or any(isfinite(site.power) for site in problem.hardware.sites)
        or any(each.minimise == "power" for each in problem.objectives)
    )


def power_is_read(problem: Problem, offers: Iterable[Offer]) -> bool:
    """Tell whether anything in the programme depends on what replicas draw."""
    own = any(offer.kind in ("buy", "owned") for offer in offers)
    return own or power_is_tight(problem) or any(each.minimise in READ_POWER for each in problem.objectives)


def useful_points(column: Column, problem: Problem, offers: Sequence[Offer], tight: bool) -> tuple[int, ...]:
    """Return the operating points of a column that no other of its points replaces (`tight`: at no more power either)."""
    kept: list[int] = []
    for p, point in enumerate(column.points):
        others = [q for q in range(len(column.points)) if q != p and (q in kept or q > p)]
        read = power_is_read(problem, offers)
        if any(point.rate) and not any(
            _carries(column.points[q], point, 1, column.power_idle, column.power_idle, read, tight)
            and not (q > p and _same(column.points[q], point))
            for q in others
        ):
            kept.append(p)
    return tuple(kept)


def _same(one: OperatingPoint, other: OperatingPoint) -> bool:
    return one.rate == other.rate and one.power_loaded == other.power_loaded


def _carries(
    one: OperatingPoint, other: OperatingPoint, k: int, idle: float, other_idle: float, read: bool, tight: bool,
    freed: float = 0.0,
) -> bool:  # fmt: skip
    """Tell whether k replicas at a point carry what one at another does, at no more energy (and, if tight, power).

    `freed`: W that chips draw which are free again.
    """
    if any(k * a < b for a, b in zip(one.rate, other.rate, strict=True)):
        return False
    extra, others = one.power_loaded - idle, other.power_loaded - other_idle
    if read and any(extra / a > others / b for a, b in zip(one.rate, other.rate, strict=True) if b > 0.0):
        return False
    return not tight or k * one.power_loaded + freed <= other.power_loaded


def dominated(columns: Sequence[Column], problem: Problem, offers: Sequence[Offer]) -> frozenset[int]:
    """Return the numbers of columns of pools that another column replaces."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for n, column in enumerate(columns):
        if column.kind == "pool":
            groups.setdefault(
                (column.workload, column.role, column.system, column.reliability, column.sites), []
            ).append(n)
    gone: set[int] = set()
    tight = power_is_tight(problem)
    points = {
        n: [columns[n].points[p] for p in useful_points(columns[n], problem, offers, tight)]
        for g in groups.values()
        for n in g
    }
    for (workload, role, system, *_), numbers in groups.items():
        here = [offer for offer in offers if offer.system == system]
        counted = problem.limits.availability is not None or _held(problem, str(workload), str(role))
        for b in reversed(numbers):  # of equals the first stays
            for a in numbers:
                if a == b or a in gone:
                    continue
                k = _in_place(columns[a].chips, columns[b].chips, here)
                if k < 1 or not _ends(columns[a], columns[b]):
                    continue
                if _replaces(columns[a], columns[b], points[a], points[b], 1 if counted else k, here, problem, offers):
                    gone.add(b)
                    break
    return frozenset(gone)


def _held(problem: Problem, name: str, role: str) -> bool:
    asked = next(w for w in problem.workloads if w.name == name)
    return bool(asked.role_held.get(role, {}).get("layout.replicas", asked.held.get("layout.replicas")))


def _in_place(one: int, other: int, offers: Sequence[Offer]) -> int:
    """Return how many replicas of `one` chips always stand where one of `other` chips does."""
    counts = [other // one]
    for offer in offers:
        domain = offer.domain
        if other > domain and not offer.by_chip:
            whole = -(-other // domain)
            counts.append(whole * (domain // one) if one <= domain else whole // -(-one // domain))
    return min(counts)


def _ends(one: Column, other: Column) -> bool:
    """Tell whether a column sends and takes what another does, within no more of the budget."""
    if one.ends.keys() != other.ends.keys():
        return False
    for name, end in one.ends.items():
        than = other.ends[name]
        if end.match != than.match or end.budget > than.budget or len(end.per_unit) != len(than.per_unit):
            return False
        if any(a > b for a, b in zip(end.per_unit, than.per_unit, strict=True)):
            return False
    return True


def _replaces(
    one: Column, other: Column, points: Sequence[OperatingPoint], others: Sequence[OperatingPoint], k: int,
    here: Sequence[Offer], problem: Problem, offers: Sequence[Offer],
) -> bool:  # fmt: skip
    """Tell whether k replicas of a column do all that one of another does, at no more power."""
    read, tight = power_is_read(problem, offers), power_is_tight(problem)
    idle = [offer.chip_idle for offer in here] or [0.0]
    freed = other.chips * max(idle) - k * one.chips * min(idle)
    if read and k * one.power_idle + freed > other.power_idle:
        return False
    return all(
        any(_carries(a, b, k, one.power_idle, other.power_idle, read, tight, freed) for a in points) for b in others
    )
