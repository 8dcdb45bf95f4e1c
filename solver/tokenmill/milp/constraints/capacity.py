r"""Whole domains: replicas and runs fit the systems in hand."""

from __future__ import annotations

from tokenmill.milp.packing import PackingRule, packing_rule
from tokenmill.milp.quantities import Build, count, holding
from tokenmill.milp.rows import Linear, total
from tokenmill.milp.sets import at_site


def stock_units(build: Build, s: int, i: int, h: int, l: int) -> Linear:
    """Return counted units (systems, or chips where had by the chip) of a stock at a site."""
    return total(count(build, k, i, h, l) for k in build.sets.stocks[s].offers)


def occupants(build: Build, s: int, i: int, h: int, l: int, together: frozenset[str]) -> dict[float, Linear]:
    """Return how many replicas and runs of each footprint [chips] stand on a stock at a site."""
    sets, found = build.sets, dict[float, Linear]()
    replicas = build.variables.replicas.at(h, l)
    for chips, uses in sets.standing.get((s, i), {}).items():
        found[chips] = Linear().many(replicas[uses].tolist())
    for n, way in enumerate(sets.ways):
        if way.site == i and sets.columns[way.column].workload in together:
            for stock, chips in way.places:
                if stock == s:
                    found.setdefault(chips, Linear()).plus(holding(build, n, h))
    return found


def _companies(build: Build, s: int, i: int) -> list[frozenset[str]]:
    """Return the maximal sets of runs that may stand on a stock at one time."""
    sets = build.sets
    here = {
        sets.columns[way.column].workload
        for way in sets.ways
        if way.site == i and any(stock == s for stock, _ in way.places)
    }
    found = {together & here for together in sets.together} or {frozenset[str]()}
    return sorted((a for a in found if not any(a < b for b in found)), key=sorted)


def capacity_rows(build: Build) -> list[str]:
    r"""Replicas and runs fit whole domains of the systems in hand; returns notes on what was rounded.

    By the chip: :math:`\sum_c g_c x_c \le y`. Else, for nested footprints and each size g of them,

    .. math:: \sum_{g_c \le D} \lfloor g_c / g \rfloor x_c + \sum_{g_c > D} \lceil g_c / D \rceil \lfloor D/g \rfloor x_c
       \le \lfloor D / g \rfloor \, N\, y

    and for others, over the maximal patterns of a domain,

    .. math:: \sum_{c: g_c = g} x_c \le \sum_P P_g m_P, \qquad
       \sum_P m_P + \sum_{g_c > D} \lceil g_c/D \rceil x_c \le N\, y

    | symbol | meaning | unit |
    |---|---|---|
    | x, m, y | replicas (runs going on), domains by pattern, systems in hand (variables) | 1 |
    | g, D, N | chips of a replica (a half, a quarter, ... where it shares one), chips of a domain, domains of a system | 1 |

    Runs that can never meet share a row only with those they can meet. Rows ``chips``, ``domain``, ``filled``,
    ``domains`` by (stock, site, runs, moment). Dual: the worth of one more domain (slot).
    """
    notes: list[str] = []
    sets = build.sets
    for s, stock in enumerate(sets.stocks):
        for i, site in enumerate(sets.sites):
            if not any(at_site(sets.offers[k], site) for k in stock.offers):
                continue
            for number, together in enumerate(_companies(build, s, i)):
                for h, l in sets.moments:
                    here = occupants(build, s, i, h, l, together)
                    if not here:
                        continue
                    if stock.by_chip:
                        left = total(Linear().plus(x, g) for g, x in here.items()).plus(
                            stock_units(build, s, i, h, l), -1.0
                        )
                        build.programme.row("chips", s, i, number, h, l, left=left, sense="<=")
                        continue
                    rule = packing_rule(tuple(sorted(here)), stock.domain)
                    if rule.rounded:
                        notes.append(
                            f"{stock.system}: replica sizes {sorted(here)} were rounded up to fill domains of {stock.domain}"
                        )
                    _domain_rows(build, rule, here, (s, i, number, h, l))
    return sorted(set(notes))


def _domain_rows(
    build: Build, rule: PackingRule, here: dict[float, Linear], at: tuple[int, int, int, int, int]
) -> None:
    """Record the rows of a packing rule for what stands on a stock at a moment."""
    s, i, number, h, l = at
    domains = Linear().plus(stock_units(build, s, i, h, l), build.sets.stocks[s].domains)
    for n, row in enumerate(rule.rows):
        left = total(Linear().plus(here[g], weight) for g, weight in row.weights.items()).plus(
            domains, -float(row.room)
        )
        build.programme.row("domain", *at, n, left=left, sense="<=")
    if not rule.patterns:
        return
    filled = {}
    for pattern in rule.patterns:
        filled[pattern] = build.programme.variable("pattern", *at, pattern, integer=True)
        if number == 0:
            build.variables.patterns[s, i, h, l, pattern] = filled[pattern]
    for g, replicas in here.items():
        if g not in rule.whole:
            left = Linear().plus(replicas)
            for pattern, index in filled.items():
                left.add(index, -float(dict(pattern).get(g, 0)))
            build.programme.row("filled", *at, g, left=left, sense="<=")
    left = Linear(dict.fromkeys(filled.values(), 1.0)).plus(domains, -1.0)
    for g, whole in rule.whole.items():
        left.plus(here[g], whole)
    build.programme.row("domains", *at, left=left, sense="<=")
