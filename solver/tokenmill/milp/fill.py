"""Laying replicas into domains, once their numbers are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import ceil

from tokenmill.errors import SolverError
from tokenmill.milp.packing import Pattern, packing_weights

ROUNDING = 1e-9

Bins = list[tuple[Pattern, int]]  # what one domain holds, and how many domains hold it


def fill(replicas: Mapping[float, int], domain: int, domains: int) -> list[tuple[Pattern, int, int]]:
    """Return (pattern, domains it spans, how often) that hold all replicas, {chips: number}, in at most `domains`.

    Raises
    ------
    SolverError
        Where they do not fit, which the programme's rows rule out.
    """
    result = [(((g, 1),), ceil(g / domain), n) for g, n in sorted(replicas.items()) if g > domain and n]
    left = domains - sum(spans * times for _, spans, times in result)
    small = {g: n for g, n in replicas.items() if g <= domain and n}
    bins = _largest_first(small, domain)
    if sum(times for _, times in bins) > left:
        found = _search(tuple(sorted(small.items(), reverse=True)), domain, left)
        if found is None:
            raise SolverError(f"{dict(replicas)} do not fit {domains} domains of {domain} chips")
        counted: Counter[Pattern] = Counter()
        for pattern, times in found:
            counted[pattern] += times
        bins = sorted(counted.items())
    return result + [(pattern, 1, times) for pattern, times in bins]


def _largest_first(small: Mapping[float, int], domain: int) -> Bins:
    """Return domains filled largest first, like ones counted together: exact where sizes are nested."""
    groups: list[tuple[dict[float, int], float, int]] = []  # what a domain holds, its room, how many
    for size in sorted(small, reverse=True):
        left, after = small[size], list[tuple[dict[float, int], float, int]]()
        for held, room, times in [*groups, ({}, domain, left)]:
            each = int(room // size)
            full = min(times, left // each) if each else 0
            rest = left - full * each if each and full < times else 0
            if full:
                after.append(({**held, size: each}, room - each * size, full))
            if 0 < rest < each:
                after.append(({**held, size: rest}, room - rest * size, 1))
            untouched = times - full - (1 if 0 < rest < each else 0)
            if untouched and held:
                after.append((held, room, untouched))
            left -= full * each + (rest if 0 < rest < each else 0)
        groups = after
    counted: Counter[Pattern] = Counter()
    for held, _, times in groups:
        counted[tuple(sorted(held.items()))] += times
    return sorted(counted.items())


def _search(small: Pattern, domain: int, left: int) -> Bins | None:
    """Return bins found by depth-first search over fillings, each laid as often as it can be first; None where there are none."""
    dead: set[tuple[Pattern, int]] = set()
    rules = [dict(zip(dict(small), weights, strict=True)) for weights in packing_weights(tuple(dict(small)), domain)]

    def go(rest: Pattern, bins: int) -> Bins | None:
        rest = tuple((g, n) for g, n in rest if n)
        if not rest:
            return []
        if any(sum(rule[g] * n for g, n in rest) > bins + ROUNDING for rule in rules) or (rest, bins) in dead:
            return None
        for chosen in _fillings(rest, domain):
            most = min(bins, *(n // chosen[g] for g, n in rest if g in chosen))
            for times in range(most, 0, -1):
                found = go(tuple((g, n - times * chosen.get(g, 0)) for g, n in rest), bins - times)
                if found is not None:
                    return [(tuple(sorted(chosen.items())), times), *found]
        dead.add((rest, bins))
        return None

    return go(small, left)


def _fillings(rest: Pattern, domain: int) -> list[dict[float, int]]:
    """Return the fillings of one domain that hold one of the largest left and have no room for another, fullest first."""
    found: list[dict[float, int]] = []

    def add(at: int, room: float, chosen: dict[float, int]) -> None:
        if at == len(rest):
            if all(chosen[g] == n or g > room for g, n in rest):
                found.append({g: n for g, n in chosen.items() if n})
            return
        size, many = rest[at]
        for n in range(min(many, int(room // size)), 0 if at == 0 else -1, -1):
            add(at + 1, room - n * size, {**chosen, size: n})

    add(0, domain, {})
    return sorted(found, key=lambda chosen: -sum(g * n for g, n in chosen.items()))
