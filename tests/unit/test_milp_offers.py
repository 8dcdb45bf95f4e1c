"""What can be had: markets, prices, owned systems, supply."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tokenmill.errors import CatalogError
from tokenmill.offers import lead_time_of, most_of, offers
from tokenmill.problem import Hardware, Horizon, Owned, PriceOverride, Problem, Site, Supply

YEAR = 365 * 86400.0


class Shelf:
    """A catalogue of two systems: node (8 chips, a price on demand) and rack (16 chips in domains of 4, liquid)."""

    def system(self, id):
        known = {
            "node": SimpleNamespace(id="node", chip="chip", chips=8, scale_up_domain=8, rent_by_chip=False, power=10_000.0,
                                    host_power=4400.0, cooling="air"),
            "rack": SimpleNamespace(id="rack", chip="chip", chips=16, scale_up_domain=4, rent_by_chip=True, power=20_000.0,
                                    host_power=None, cooling="liquid"),
        }  # fmt: skip
        return known[id]

    def chip(self, id):
        return SimpleNamespace(tdp=700.0, idle_power=90.0)

    def find_systems(self, maturity="production"):
        return [self.system("node"), self.system("rack")]

    def price(self, system_id, market, provider=None, region=None, price_date=None):
        if provider == "nobody":
            raise CatalogError("no provider nobody")
        if (system_id, market) == ("node", "on-demand"):
            return SimpleNamespace(per_chip_hour=2.0, purchase=None, providers=("x", "y"), date="2026-10", stale=True)
        return None


def problem(**hardware):
    return Problem((), hardware=Hardware(**hardware), horizon=Horizon(duration=YEAR, periods=12))


def test_priced_systems_are_offered_and_others_named():
    found, notes = offers(problem(markets=("on-demand", "buy")), Shelf())
    (node,) = found
    assert (node.system, node.kind, node.price, node.chips, node.domain, node.domains) == (
        "node",
        "rent",
        16.0,
        8,
        8,
        1,
    )
    assert (node.host_power, node.chip_idle, node.stale, node.price_source) == (4400.0, 90.0, True, "x, y, 2026-10")
    assert node.unit_power == pytest.approx(4400 + 8 * 90)
    assert {note.key for note in notes} == {"hardware.systems"}
    assert [note.found.rpartition(" of ")[2] for note in notes] == ["node", "rack"]
    assert "buy" in notes[0].found
    assert "on-demand" not in notes[0].found
    _, refused = offers(problem(provider="nobody", systems=("node",)), Shelf())
    assert "no provider nobody" in refused[0].found


def test_own_prices_win_with_tiers_and_later_ones():
    prices = (
        PriceOverride("rack", "on-demand", per_chip_hour=3.0, tiers=((4, 0.5),)),
        PriceOverride("rack", "on-demand", per_system_hour=40.0, from_period=6),
        PriceOverride("rack", "buy", purchase=1e6),
    )
    found, _ = offers(problem(systems=("rack",), markets=("on-demand", "buy"), prices=prices), Shelf())
    by_key = {(o.market, o.minimum): o for o in found}
    rent, tier, bought = by_key["on-demand", 0], by_key["on-demand", 4], by_key["buy", 0]
    assert rent.by_chip
    assert not bought.by_chip
    assert [rent.unit_price(h) for h in (1, 6)] == pytest.approx([3.0, 2.5])
    assert [tier.unit_price(h) for h in (1, 6)] == pytest.approx([1.5, 1.25])
    assert (bought.price, bought.domain, bought.domains) == (1e6, 4, 4)
    assert bought.host_power == pytest.approx(20_000 - 16 * 700)  # what the whole draws beyond its chips


def test_owned_systems_and_where_they_fit():
    sites = (Site("dry", cooling="air"), Site("wet", cooling="liquid"))
    owned = (Owned("node", 3, "dry", retires=6), Owned("node", 2, "dry", retires=6), Owned("rack", 1))
    found, _ = offers(problem(systems=("node",), sites=sites, owned=owned, markets=()), Shelf())
    by_system = {o.system: o for o in found}
    assert (by_system["node"].at_most, by_system["node"].sites, by_system["node"].until) == (5, ("dry",), 6)
    assert by_system["node"].price == 0.0
    assert by_system["rack"].sites == ("wet",)


def test_supply_by_period():
    asked = problem(
        supply=(Supply("node", at_most=4, from_period=3), Supply("node", at_most=9, from_period=6, lead_time=YEAR / 2))
    )
    assert [most_of(asked, "node", h) for h in (1, 2, 3, 6, 7)] == [0, 0, 4, 4, 9]
    assert most_of(asked, "rack", 1) == float("inf")
    assert lead_time_of(asked, "node") == YEAR / 2
