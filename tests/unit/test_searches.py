"""Layouts searched once for several solves: which problems share them, and that shared ones give the same plans."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tokenmill import load_problem
from tokenmill.answers import answers
from tokenmill.api import prepare, solve_found
from tokenmill.catalog import load_catalog
from tokenmill.problem import Objective
from tokenmill.searches import Searches
from tokenmill_models.stage import stages

TEXT = """
objective = { minimise = "cost" }
[hardware]
systems = ["hgx-h100"]
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
[workload.demand]
requests_per_second = 20
input_tokens = 1000
output_tokens = 250
[workload.slo]
tpot = { p95 = "60 ms" }
[workload.engine]
disaggregated = false
chunk = 2048
[workload.layout]
tp = [1, 2]
pp = 1
"""


class Counted(Searches):
    """Searches that count those asked for and those made."""

    def __init__(self):
        super().__init__()
        self.asked = 0

    @property
    def made(self):
        return sum(len(entries) for entries in self._made.values())

    def search(self, ask):
        self.asked += 1
        return super().search(ask)


@pytest.mark.parametrize(
    ("change", "made"),
    [
        (("workload.chat.demand.requests_per_second", "80"), 1),
        (("hardware.price", '[{ system = "hgx-h100", market = "on-demand", per_chip_hour = "$9/h" }]'), 1),
        (("objective", '{ minimise = "chips" }'), 1),
        (("limits.budget", '"$90M"'), 1),
        (("workload.chat.slo.tpot.p95", '"20 ms"'), 2),
        (("workload.chat.demand.output_tokens", "500"), 2),
        (("workload.chat.layout.tp", "4"), 2),
        (("objective", '{ minimise = "energy" }'), 2),
        (("limits.chips", "4"), 2),
        (("assume.efficiency", '"ideal"'), 2),
        (("hardware.systems", '["hgx-h100", "hgx-h200"]'), 2),
    ],
)
def test_what_the_search_reads_is_searched_anew(change, made):
    searches, catalog = Counted(), load_catalog()
    prepare(load_problem(TEXT), catalog, searches)
    prepare(load_problem(TEXT, [change]), catalog, searches)
    assert (searches.asked, searches.made) == (2, made)


def test_a_shared_search_gives_the_plan_of_ones_own():
    searches, catalog = Counted(), load_catalog()
    solve_found(load_problem(TEXT), catalog=catalog, searches=searches)
    second = load_problem(TEXT, [("workload.chat.demand.requests_per_second", "80"), ("limits.budget", '"$90M"')])
    apart = solve_found(second, catalog=catalog)[0]
    together = solve_found(second, catalog=catalog, searches=searches)[0]
    assert searches.made == 1
    assert (together.status, together.objective, together.cost) == (apart.status, apart.objective, apart.cost)
    assert together.workloads == apart.workloads


def test_a_found_search_is_left_as_it_was():
    """Limits at longer times and spot markets change the columns of a solve, not those that others share."""
    searches, catalog = Searches(), load_catalog()
    asked = load_problem(TEXT, [("hardware.markets", '["on-demand", "spot"]')])
    first = prepare(asked, catalog, searches).searched[0].columns
    solve_found(asked, catalog=catalog, searches=searches)
    assert prepare(asked, catalog, searches).searched[0].columns == first


def test_answers_search_once(monkeypatch):
    from tokenmill import searches

    made = []
    monkeypatch.setattr(searches, "Searches", lambda: made.append(Counted()) or made[-1])
    found = {answer.name: answer.plan for answer in answers(load_problem(TEXT))}
    assert [(each.asked, each.made) for each in made] == [(3, 1)]
    assert [plan.objective.name for plan in found.values()] == [Objective("chips").minimise, "cost"]


class Seen(Mapping):
    """A workload's values that remember which were read."""

    def __init__(self, values):
        self.values_, self.read = values, set()

    def __getitem__(self, key):
        self.read.add(key)
        return self.values_[key]

    def __iter__(self):
        raise AssertionError("read one by one")

    def __len__(self):
        return len(self.values_)


@pytest.mark.parametrize("name", sorted(stages()))
def test_roles_of_a_stage_do_not_depend_on_the_rate_that_is_asked(name):
    from tokenmill.imports.architecture import load_architecture

    stage = stages()[name]
    if stage.demand is None or stage.staffed is None:
        return
    seen = Seen({})
    stage.staffed(load_architecture("llama-3.1-8b"), {}, seen)
    assert seen.read.isdisjoint({stage.demand.rate, *(stage.demand.elastic or ())})
