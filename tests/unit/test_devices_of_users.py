"""What devices of users cost: no building around them, and no price is not a price of nothing."""

import pytest

from tokenmill import api
from tokenmill.reading import load_problem

TWO = """
{objective}
{more}
[[workload]]
name = "w"
stage = "edge"
model = "llama-3.1-8b"
devices = ["apple-m2-ultra", "rtx-4090"]
tokens_per_day = 20000
[workload.precision]
weights = "q4_k_m"
"""
PRICE = '[[hardware.price]]\nsystem = "rtx-4090"\nmarket = "buy"\npurchase = "$1900"\n'


def problem(objective="", more=""):
    return load_problem(TWO.format(objective=objective, more=more))


@pytest.mark.parametrize(
    ("more", "pue"),
    [
        ("", 1.0),
        ('[[hardware.site]]\nname = "flat"\nelectricity = "0.3 USD/kWh"\n', 1.0),
        ('[[hardware.site]]\nname = "hall"\npue = 1.2\n', 1.2),
    ],
)
def test_a_device_has_no_building_around_it_unless_the_file_says_so(more, pue):
    (site,) = problem(more=more).hardware.sites
    assert site.pue == pue


def test_a_server_beside_the_device_keeps_its_building():
    more = '[[workload]]\nname = "s"\nstage = "serving"\nmodel = "llama-3.1-8b"\n[workload.demand]\nrequests_per_second = 1.0\ninput_tokens = 100\noutput_tokens = 100\n'
    beside = problem(more=more)
    (site,) = beside.hardware.sites
    assert site.pue == 1.3
    (told,) = [note for note in api.offered(beside).notes if note.key == "hardware.site.site.pue"]
    assert "rtx-4090" in told.found
    assert told.found.startswith("1.3, ")


def test_devices_alone_or_at_a_site_without_a_building_need_no_word_on_it():
    server = '[[workload]]\nname = "s"\nstage = "serving"\nmodel = "llama-3.1-8b"\n[workload.demand]\nrequests_per_second = 1.0\ninput_tokens = 100\noutput_tokens = 100\n'
    home = '[[hardware.site]]\nname = "flat"\npue = 1.0\n'
    apart = (
        home
        + '[[hardware.site]]\nname = "hall"\n'
        + server.replace("[workload.demand]", 'sites = ["hall"]\n[workload.demand]')
    )
    named = TWO.format(objective="", more=apart).replace('stage = "edge"', 'stage = "edge"\nsites = ["flat"]')
    for asked in (problem(), problem(more=home + server), load_problem(named)):
        assert not [note for note in api.offered(asked).notes if note.key.endswith(".pue")]


def test_a_device_without_a_price_is_not_held_against_one_that_has_one():
    found = api.offered(problem(more=PRICE))
    assert {offer.system for offer in found.offers} == {"rtx-4090"}
    assert any("apple-m2-ultra" in note.found and "not compared by cost" in note.found for note in found.notes)


@pytest.mark.parametrize(("objective", "more"), [("", ""), ('[objective]\nminimise = "energy"', PRICE)])
def test_devices_stay_where_none_has_a_price_or_cost_does_not_decide(objective, more):
    found = api.offered(problem(objective, more))
    assert {offer.system for offer in found.offers} == {"rtx-4090", "apple-m2-ultra"}
    assert any("user's own" in note.found for note in found.notes)
