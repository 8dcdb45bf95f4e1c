"""Processors and stores as hardware: what is offered, what counts as chips, and parts compared by what they cost."""

from dataclasses import replace

import numpy as np
import pytest

from tokenmill import api
from tokenmill.catalog import load_catalog
from tokenmill.devices import every_offer
from tokenmill.reading import load_problem
from tokenmill_models.stage import stages

CATALOG = load_catalog()
CORPUS = """
{head}
[[workload]]
name = "text"
stage = "data"
input = "10 TB"
documents = 2e9
deadline = "{deadline}"
operators = [ {{ do = "filter" }}, {{ do = "tokenise" }}, {{ do = "write" }} ]
{more}
"""


def problem(head="", more="", deadline="10 days"):
    return load_problem(CORPUS.format(head=head, more=more, deadline=deadline))


def offered(asked):
    return {offer.system for offer in every_offer(asked, CATALOG, stages())[0]}


def test_a_store_is_a_system_of_terabytes_at_its_list_price():
    system, unit = CATALOG.system("lustre-1000"), CATALOG.chip("lustre-1000")
    assert (system.hardware, system.chips, system.rent_by_chip) == ("store", 1, True)
    assert unit.capacity == pytest.approx(0.8e12)  # 80% of a provisioned terabyte can be used
    per_month = CATALOG.price("lustre-1000", "on-demand").per_chip_hour * 730
    assert per_month == pytest.approx(600, rel=0.01)  # $0.60 a gigabyte and month
    assert CATALOG.price("lustre-1000", "buy") is None
    # 1 GB/s a TiB: a terabyte brings a little less
    assert CATALOG.store("lustre-1000").unit_rate == pytest.approx(1e12 / 2**40 * 1e9)


def test_kinds_that_a_stage_needs_are_offered_where_none_is_listed():
    without = offered(problem(head='[hardware]\nsystems = ["hgx-h100"]'))
    assert {"cpu-epyc-9654", "object-store", "hgx-h100"} <= without
    assert "archive" not in without  # half a day to the first byte
    listed = offered(problem(head='[hardware]\nsystems = ["cpu-epyc-9755", "parallel-fs"]'))
    assert listed == {"cpu-epyc-9755", "parallel-fs"}
    named = offered(
        problem(more='[workload.storage]\nsystem = "lustre-1000"', head='[hardware]\nsystems = ["cpu-epyc-9755"]')
    )
    assert named == {"cpu-epyc-9755", "lustre-1000"}
    serving = load_problem("""
[hardware]
systems = ["hgx-h100"]
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
[workload.demand]
requests_per_second = 1
input_tokens = 100
output_tokens = 100
""")
    assert offered(serving) == {"hgx-h100"}


def test_stores_are_rented_whatever_else_is_asked():
    markets = {
        o.market
        for o in every_offer(problem(head='[hardware]\nmarkets = ["buy"]'), CATALOG, stages())[0]
        if o.system == "object-store"
    }
    assert markets == {"on-demand"}


def test_terabytes_are_no_chips():
    plan = api.solve(problem(head='[limits]\nchips = 20\n[hardware]\nsystems = ["cpu-epyc-9654", "object-store"]'))
    assert plan.status == "optimal"
    pools = {pool.role: pool for pool in plan.workloads["text"].pools}
    assert pools["storage"].chips > 20 >= pools["cpu"].chips
    assert plan.runs[0].chips == pools["cpu"].chips


def test_parts_compared_by_price_give_the_plan_that_all_of_them_give(monkeypatch):
    """Without the comparison every pair of a server and a store goes to the programme: the same cost comes out."""
    from tokenmill.candidates import search

    asked = problem(deadline="2 days", head='[hardware]\nsystems = ["cpu-epyc-9654", "cpu-epyc-9755", "cpu-xeon-6980p", "object-store", "parallel-fs", "lustre-1000"]')  # fmt: skip
    compared = api.solve(asked)
    counted = len(api.prepare(asked).searched[0].columns.columns["corpus"])
    monkeypatch.setattr(search, "cheapest", lambda rows, *_: list(rows))
    every = len(api.prepare(asked).searched[0].columns.columns["corpus"])
    assert counted < every / 3
    assert api.solve(asked).cost.total == pytest.approx(compared.cost.total, rel=2e-3)


def test_a_scarce_system_is_not_compared_away():
    """The cheapest server is limited to one: the others must still be there."""
    head = """
[hardware]
systems = ["cpu-epyc-9654", "cpu-epyc-9755", "object-store"]
[[hardware.price]]
system = "cpu-epyc-9654"
market = "on-demand"
per_chip_hour = "$0.1/h"
[[hardware.supply]]
system = "cpu-epyc-9654"
at_most = 1
"""
    plan = api.solve(problem(head=head, deadline="6 hours"))
    pools = {pool.role: pool for pool in plan.workloads["text"].pools}
    assert pools["cpu"].system == "cpu-epyc-9755"
    more = api.solve(problem(head=head.replace("at_most = 1", "at_most = 100"), deadline="6 hours"))
    assert {pool.role: pool for pool in more.workloads["text"].pools}["cpu"].system == "cpu-epyc-9654"


def test_lists_of_tables_are_read_by_place():
    from tokenmill.candidates.bind import _part

    values = {"steps": ({"share": 0.25}, {"share": 0.75})}
    assert _part(None, values, "steps.1.share", {}).value == 0.75
    assert _part(None, values, "steps.0.weight", {"weight": 2.0}).value == 2.0


def test_offers_of_stores_are_not_interrupted():
    asked = problem(head='[hardware]\nmarkets = ["spot"]')
    stores = [o for o in every_offer(asked, CATALOG, stages())[0] if o.system == "object-store"]
    assert {o.market for o in stores} == {"on-demand", "spot"}
    assert all(o.preemptions_per_day == 0.0 and not o.counted and o.counted_chips == 0 for o in stores)
    assert replace(stores[0], counted=True).counted_chips == 1
    assert np.isfinite(stores[0].price)
