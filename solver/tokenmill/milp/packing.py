"""How replicas fit whole scale-up domains: exact rows where footprints are nested, else maximal patterns."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil

Pattern = tuple[tuple[float, int], ...]
MOST_PATTERNS = 2000


@dataclass(frozen=True)
class PackingRow:
    """A row over footprints: sum of weight·replicas <= room·domains."""

    weights: Mapping[float, int]
    room: int


@dataclass(frozen=True)
class PackingRule:
    """What makes replicas packable: rows, or patterns; `rounded`: footprints were rounded up to a nested chain."""

    rows: tuple[PackingRow, ...]
    patterns: tuple[Pattern, ...]
    whole: Mapping[float, int]
    rounded: bool = False


def packing_rule(footprints: Sequence[float], domain: int) -> PackingRule:
    """Return the rule for replicas of these chips (of less than one: a half, a quarter, ...) in domains of `domain` chips.

    A footprint larger than a domain takes whole domains. Nested ones (each divides the next) fit exactly when, for
    every size, all that is as large or larger fits the slots of that size, floor(domain/size) a domain: whatever is
    laid largest first leaves slots of every smaller size whole. Others need patterns: how many of each size one domain
    takes, none of which could take more. Beyond 2000 patterns sizes are rounded up to a nested chain, which is safe
    but may cost more.
    """
    return _rule(tuple(footprints), domain)


@cache
def _rule(footprints: tuple[float, ...], domain: int) -> PackingRule:
    small = sorted({g for g in footprints if g <= domain})
    whole = {g: ceil(g / domain) for g in footprints if g > domain}
    if all(b % a == 0 for a, b in itertools.pairwise(small)):
        return PackingRule(_nested({g: g for g in small}, whole, domain), (), whole)
    patterns = maximal_patterns(small, domain)
    if patterns:
        return PackingRule((), patterns, whole)
    power = {g: 1 << ceil(g - 1).bit_length() if g > 1 else g for g in small}
    sizes = {g: size for g, size in power.items() if size <= domain}
    full = {g: 1 for g, size in power.items() if size > domain}
    return PackingRule(_nested(sizes, whole | full, domain), (), whole, rounded=True)


def _nested(sizes: Mapping[float, float], whole: Mapping[float, int], domain: int) -> tuple[PackingRow, ...]:
    """Return one row a size, without those that an earlier one implies."""
    rows: list[PackingRow] = []
    tightest: float = domain + 1
    for size in sorted(set(sizes.values())) or [domain]:
        slots = int(domain // size)
        if slots * size >= tightest:
            continue
        tightest = slots * size
        weights = {g: int(s // size) for g, s in sizes.items() if s >= size}
        rows.append(PackingRow({**weights, **{g: n * slots for g, n in whole.items()}}, slots))
    return tuple(rows)


def maximal_patterns(sizes: Sequence[float], domain: int) -> tuple[Pattern, ...]:
    """Return all ways to fill a domain to which no size can be added; none where there are more than 2000."""
    ordered = sorted(sizes, reverse=True)
    found: list[Pattern] = []

    def fill(at: int, left: float, chosen: Pattern) -> bool:
        if at == len(ordered):
            if left < ordered[-1]:
                found.append(tuple(sorted((g, n) for g, n in chosen if n)))
            return len(found) <= MOST_PATTERNS
        size = ordered[at]
        most = int(left // size)
        counts = range(most, -1, -1) if at + 1 < len(ordered) else [most]
        return all(fill(at + 1, left - n * size, (*chosen, (size, n))) for n in counts)

    return tuple(sorted(found)) if fill(0, domain, ()) else ()


def packing_weights(sizes: Sequence[float], domain: int) -> list[tuple[float, ...]]:
    r"""Return shares of a domain that replicas of some sizes take, one tuple a rule that every filling of a domain meets.

    .. math:: \sum_g \frac{g}{D}\, n_g \le 1, \qquad
       \sum_g \frac{\lfloor g / t \rfloor}{\lfloor D / t \rfloor}\, n_g \le 1 \quad (t = g_1, g_2, \dots)

    | symbol | meaning | unit |
    |---|---|---|
    | n, g, D | replicas of a size, their chips, chips of a domain | 1 |

    For sum_g floor(g/t) n_g <= floor(sum_g g n_g / t) (dual feasible functions: Fekete and Schepers 2001). Rules that
    another implies are left out.
    """
    found = {tuple((g // t) / (domain // t) for g in sizes) for t in sizes} | {tuple(g / domain for g in sizes)}
    return sorted(one for one in found if not any(one != more and _covers(more, one) for more in found))


def _covers(more: Sequence[float], one: Sequence[float]) -> bool:
    return all(a >= b for a, b in zip(more, one, strict=True))
