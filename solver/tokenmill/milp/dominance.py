"""Exact pruning before the programme: operating points and columns that another replaces in every plan.

A column goes where k replicas of another stand in the place of one of it and carry no less at no more power: then any plan has one
as good without it, whatever is bought, packed or limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, inf, isfinite

from tokenmill.candidates.columns import Column, OperatingPoint
from tokenmill.offers import Offer
from tokenmill.problem import Problem

READ_POWER = ("power", "energy", "carbon")
ROUNDING = 1e-12


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
            _carries(column.points[q], point, column.power_idle, read, tight)
            and not (q > p and _same(column.points[q], point))
            for q in others
        ):
            kept.append(p)
    return tuple(kept)


def _same(one: OperatingPoint, other: OperatingPoint) -> bool:
    return one.rate == other.rate and one.power_loaded == other.power_loaded


def _carries(one: OperatingPoint, other: OperatingPoint, idle: float, read: bool, tight: bool) -> bool:
    """Tell whether a column carries at one of its points what it does at another, at no more energy (and, if tight, power)."""
    if any(a < b for a, b in zip(one.rate, other.rate, strict=True)):
        return False
    extra, others = one.power_loaded - idle, other.power_loaded - idle
    if read and any(
        extra / a > others / b * (1.0 + ROUNDING) for a, b in zip(one.rate, other.rate, strict=True) if b > 0.0
    ):
        return False
    return not tight or one.power_loaded <= other.power_loaded


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
                k = _in_place(columns[a].room, columns[b].room, here)
                if k < 1 or not _ends(columns[a], columns[b]):
                    continue
                if _replaces(columns[a], columns[b], points[a], points[b], 1 if counted else k, here, problem, offers):
                    gone.add(b)
                    break
    return frozenset(gone)


def _held(problem: Problem, name: str, role: str) -> bool:
    asked = next(w for w in problem.workloads if w.name == name)
    return bool(asked.role_held.get(role, {}).get("layout.replicas", asked.held.get("layout.replicas")))


def _in_place(one: float, other: float, offers: Sequence[Offer]) -> int:
    """Return how many replicas of `one` chips always stand where one of `other` chips does."""
    counts = [int(other // one)]
    for offer in offers:
        domain = offer.domain
        if other > domain and not offer.by_chip:
            whole = ceil(other / domain)
            counts.append(whole * int(domain // one) if one <= domain else whole // ceil(one / domain))
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
    r"""Tell whether at most k replicas of a column do all that one of another does, at no more power at any load.

    Carrying :math:`\lambda \le 1` of the other's rate takes :math:`j = \lceil \lambda \rho \rceil` replicas, at most
    :math:`j p^{idle} + \lambda \delta` beyond chips that stay idle, against :math:`p^{idle}_{other}`: checked at both ends of every j.

    | symbol | meaning | unit |
    |---|---|---|
    | rho | replicas that carry what one of the other does at its full rate | 1 |
    | delta | draw at that load beyond idle, less the other's | W |
    """
    read, tight = power_is_read(problem, offers), power_is_tight(problem)
    idle = [offer.chip_idle for offer in here] or [0.0]

    def freed(replicas: int) -> float:
        return other.room * max(idle) - replicas * one.room * min(idle)

    rho, delta = 0.0, -inf
    for b in others:
        fits = [(part, a) for a in points if (part := _replicas(a, b)) <= k]
        if tight:
            fits = [(n, a) for n, a in fits if ceil(n) * a.power_loaded + freed(ceil(n)) <= b.power_loaded]
        if not fits:
            return False
        part, a = min(
            fits, key=lambda fit: (fit[0] * (fit[1].power_loaded - one.power_idle), fit[0]) if read else fit[:1]
        )
        rho = max(rho, part)
        delta = max(delta, part * (a.power_loaded - one.power_idle) - (b.power_loaded - other.power_idle))
    if not read or rho <= 0.0:
        return True
    return all(
        j * one.power_idle + freed(j) + max(delta * min(1.0, j / rho), delta * (j - 1) / rho) <= other.power_idle
        for j in range(1, ceil(rho) + 1)
    )


def _replicas(one: OperatingPoint, other: OperatingPoint) -> float:
    """Return the replicas at a point that carry what one does at another."""
    return max((b / a if a > 0.0 else inf for a, b in zip(one.rate, other.rate, strict=True) if b > 0.0), default=0.0)
