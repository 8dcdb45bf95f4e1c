"""Systems that stand by for a run: against the binomial and its Poisson limit, and the re-check of a plan."""

from dataclasses import replace
from math import comb, exp, factorial

import pytest

from cross_check.toys import DAY, problem, rent, run, solve
from tokenmill.audit import check
from tokenmill.candidates.search import Searched
from tokenmill.errors import AuditError
from tokenmill.fleet_spares import spare_chips, spare_systems, with_spares
from tokenmill.problem import Workload


@pytest.mark.parametrize(("needed", "share", "wanted"), [(1, 0.9, 0.99), (7, 0.95, 0.999), (40, 0.99, 0.9)])
def test_as_many_stand_by_as_the_binomial_asks(needed, share, wanted):
    def stands(spare):
        n = needed + spare
        return sum(comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(needed, n + 1))

    spare = spare_systems(needed, share, wanted)
    assert stands(spare) >= wanted
    assert spare == 0 or stands(spare - 1) < wanted


def test_at_a_hundred_thousand_chips_failures_are_a_poisson_process():
    """12 288 servers of 8 chips at 0.1728 failures a chip and year, repaired in 4 h: 7.8 down at once; P(more than 15) < 1% < P(more than 14)."""
    outage = 0.1728 * 4 / 8760
    down = 12_288 * 8 * outage

    def more_than(k):
        return 1.0 - sum(exp(-down) * down**n / factorial(n) for n in range(k + 1))

    least = next(k for k in range(100) if more_than(k) <= 0.01)
    assert spare_chips(rent(chip_outage=outage), 98_304, 0.99) == 8 * least


def _case(availability):
    asked = problem(Workload("train", "toy"), limits={"availability": availability})
    offers = [rent(16.0, chip_outage=0.01)]
    found = with_spares(asked, Searched(run("train", (16, 10.0)), {}, {}), offers)
    return asked, found.columns, offers


def test_a_run_pays_for_what_stands_by():
    """Of systems that work 1/1.08 of the time, two of three stand with P = 0.984, two of four with P = 0.998: two stand by."""
    asked, columns, offers = _case(0.99)
    plan = solve(asked, [columns], offers)
    assert plan.cost_total == pytest.approx((2 + 2) * 16.0 * 240)
    bare = solve(replace(asked, limits=replace(asked.limits, availability=None)), [run("train", (16, 10.0))], offers)
    assert bare.cost_total == pytest.approx(2 * 16.0 * 240)


def test_the_re_check_misses_spares_that_are_not_there():
    asked, _, offers = _case(0.99)
    without = [run("train", (16, 10.0))]
    plan = solve(replace(asked, limits=replace(asked.limits, availability=None)), without, offers)
    assert plan.runs[0].end == pytest.approx(10 * DAY)
    with pytest.raises(AuditError, match="availability of train"):
        check(asked, without, offers, (), plan, {})
