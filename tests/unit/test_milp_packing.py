"""Whole domains: the rows and patterns against laying replicas out, and money terms by hand."""

from __future__ import annotations

from functools import cache
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.errors import SolverError
from tokenmill.milp.fill import fill
from tokenmill.milp.money import commitment, discount
from tokenmill.milp.packing import maximal_patterns, packing_rule
from tokenmill.offers import YEAR, Offer
from tokenmill.problem import Horizon, Ownership


@cache
def fits(items: tuple[int, ...], rooms: tuple[int, ...]) -> bool:
    """Tell by trying every place whether items fit."""
    if not items:
        return True
    size, rest = items[0], items[1:]
    return any(
        room >= size and fits(rest, tuple(sorted((*rooms[:n], room - size, *rooms[n + 1 :]))))
        for n, room in enumerate(rooms)
    )


def allowed(counts: dict[int, int], domain: int, domains: int) -> bool:
    """Tell by the rule's rows or patterns whether replicas fit."""
    rule = packing_rule(sorted(counts), domain)
    if not rule.patterns:
        return all(sum(w * counts[g] for g, w in row.weights.items()) <= row.room * domains for row in rule.rows)
    free = domains - sum(n * counts[g] for g, n in rule.whole.items())
    small = [g for g in counts if g not in rule.whole]
    return free >= 0 and any(
        sum(times) <= free
        and all(
            sum(dict(p).get(g, 0) * n for p, n in zip(rule.patterns, times, strict=True)) >= counts[g] for g in small
        )
        for times in product(range(free + 1), repeat=len(rule.patterns))
    )


@given(
    sizes=st.sampled_from([(3,), (1, 2, 4), (2, 4), (3, 6), (2, 3), (3, 4), (2, 5), (1, 5), (2, 12), (3, 4, 9)]),
    numbers=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    domain=st.sampled_from([7, 8]),
    domains=st.integers(0, 3),
)
def test_rules_are_exact(sizes, numbers, domain, domains):
    counts = dict(zip(sizes, numbers, strict=False))
    whole = sum(-(-g // domain) * n for g, n in counts.items() if g > domain)
    small = tuple(sorted((g for g, n in counts.items() if g <= domain for _ in range(n)), reverse=True))
    expected = whole <= domains and fits(small, (domain,) * max(0, domains - whole))
    assert allowed(counts, domain, domains) == expected


@given(
    numbers=st.dictionaries(st.sampled_from([1, 2, 3, 4, 5, 8, 11]), st.integers(0, 4), max_size=4),
    domain=st.sampled_from([5, 8]),
)
def test_filling_holds_everything_or_says_so(numbers, domain):
    items = tuple(sorted((g for g, n in numbers.items() if g <= domain for _ in range(n)), reverse=True))
    whole = sum(-(-g // domain) * n for g, n in numbers.items() if g > domain)
    for domains in range(whole, whole + 5):
        if fits(items, (domain,) * (domains - whole)):
            laid = fill(numbers, domain, domains)
            assert sum(spans * times for _, spans, times in laid) <= domains
            assert all(sum(g * n for g, n in pattern) <= spans * domain for pattern, spans, _ in laid)
            assert {g: sum(dict(p).get(g, 0) * t for p, _, t in laid) for g, n in numbers.items() if n} == {
                g: n for g, n in numbers.items() if n
            }
        else:
            with pytest.raises(SolverError, match="do not fit"):
                fill(numbers, domain, domains)


def test_patterns_by_hand():
    assert maximal_patterns([3, 4], 8) == (((3, 1), (4, 1)), ((3, 2),), ((4, 2),))


def test_many_sizes_are_rounded_up_and_stay_safe():
    rule = packing_rule(list(range(1, 40)), 72)
    assert rule.rounded
    assert not rule.patterns
    for row in rule.rows:  # each replica takes at least its own share of a domain
        size = 72 // row.room
        assert all(weight * size >= g or g < size for g, weight in row.weights.items())


def bought(**own: float) -> Ownership:
    return Ownership(**{"life": 4 * YEAR, **own})


def test_purchase_terms():
    offer = Offer("node", "buy", "buy", 1000.0, 8, 8, 1)
    horizon = Horizon(duration=2 * YEAR, periods=4, discount_rate=0.1)
    terms = commitment(offer, 3, horizon, bought(residual=0.2, operations=0.06))
    assert terms.active == 2
    assert dict(terms.payments) == pytest.approx({3: 1030.0, 4: 30.0})
    assert terms.residual == pytest.approx((1000 - 800 / 4) / 1.1**2)  # a year old at the end of two
    short = commitment(offer, 1, horizon, bought(life=YEAR, residual=0.2))
    assert short.active == 2
    assert short.residual == pytest.approx(200 / 1.1)


def test_reservation_terms():
    offer = Offer("node", "reserved-1y", "reserve", 2.0, 8, 8, 1, commitment=YEAR)
    half = Horizon(duration=YEAR, periods=4)
    assert dict(commitment(offer, 3, half, bought()).payments) == pytest.approx({3: 4380.0, 4: 4380.0 + 8760.0})
    prorated = Horizon(duration=YEAR, periods=4, commitments="prorate")
    assert dict(commitment(offer, 3, prorated, bought()).payments) == pytest.approx({3: 4380.0, 4: 4380.0})
    long = Horizon(duration=4.5 * YEAR, periods=3)  # a period of 18 months takes two terms of a year
    assert commitment(offer, 1, long, bought()).active == 1
    assert sum(commitment(offer, 1, long, bought()).payments.values()) == pytest.approx(2 * 17520.0)


def test_discounting():
    horizon = Horizon(duration=YEAR, periods=2, discount_rate=0.21)
    assert [discount(horizon, h) for h in (1, 2, 3)] == pytest.approx([1.0, 1 / 1.1, 1 / 1.21])


@pytest.mark.parametrize("sizes", [(0.5, 1), (0.25, 0.5, 2), (0.5, 3), (0.25, 1, 3)])
def test_shares_of_chips_pack_as_whole_numbers_of_their_smallest_part(sizes):
    """Told in quarters of a chip the same replicas have whole sizes: one rule must admit what the other does."""
    shared, whole = packing_rule(sizes, 4), packing_rule(tuple(4 * g for g in sizes), 16)
    scaled = {tuple(sorted((4 * g, n) for g, n in pattern)) for pattern in shared.patterns}
    assert scaled == set(whole.patterns)
    assert [({4 * g: n for g, n in row.weights.items()}, row.room) for row in shared.rows] == [
        (dict(row.weights), row.room) for row in whole.rows
    ]


@pytest.mark.parametrize("replicas", [{0.5: 3, 1: 2}, {0.25: 5, 0.5: 1, 2: 1}, {0.5: 2, 3: 1}])
def test_shares_of_chips_are_laid_beside_whole_ones(replicas):
    laid = fill(replicas, 4, 1)
    assert {g: sum(dict(pattern).get(g, 0) * times for pattern, _, times in laid) for g in replicas} == replicas
    with pytest.raises(SolverError):
        fill({**replicas, 1: 5}, 4, 1)


@pytest.mark.parametrize("seed", range(4))
def test_thousands_of_replicas_are_laid_where_they_fit(seed):
    """What so many domains hold by construction is laid in as many; by the chip, and by what is over half a slot, in no fewer."""
    rng = Random(seed)
    fillings = [{8: 1}, {4: 2}, {4: 1, 2: 2}, {2: 4}, {3: 2, 2: 1}, {4: 1, 3: 1}]
    times = [rng.randrange(0, 1500) for _ in fillings]
    numbers = {g: sum(each.get(g, 0) * n for each, n in zip(fillings, times, strict=True)) for g in (2, 3, 4, 8)}
    laid = fill(numbers, 8, sum(times))
    assert sum(n for _, _, n in laid) <= sum(times)
    assert all(sum(g * n for g, n in pattern) <= 8 for pattern, _, _ in laid)
    assert {g: sum(dict(pattern).get(g, 0) * n for pattern, _, n in laid) for g in numbers} == numbers
    least = max(sum(g * n for g, n in numbers.items()) / 8, numbers[8] + (numbers[4] + numbers[3]) / 2)
    with pytest.raises(SolverError, match="do not fit"):
        fill(numbers, 8, int(least) - 1)
