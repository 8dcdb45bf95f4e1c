"""The candidate search against plain loops, exact walks and brute force."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outside_stage import SHOP, SURVEY
from tokenmill.candidates.prune import pareto, thin
from tokenmill.candidates.search import Ask, search
from tokenmill.candidates.unfold import balanced, unfold
from tokenmill.catalog import load_catalog
from tokenmill.problem import Problem, RequestClass, Workload

KINDS = (
    RequestClass("thin", 0.5, {"page_bytes": 1e9, "page_work": 1e12}),
    RequestClass("thick", 0.5, {"page_bytes": 2e9, "page_work": 3e12}),
)


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


def shop(catalog, systems=("hgx-h100", "mi300x-8"), power=False, **values):
    held = values.pop("held", {})
    given = {"pages_per_second": 100.0, **values}
    workload = Workload("shop", "printshop", values=given, held=held, classes=KINDS)
    problem = Problem(workloads=(workload,))
    return search(Ask(workload, SHOP, problem, catalog, None, tuple(map(catalog.system, systems)), power))


def setter_by_hand(chip, width, queue, paper, work):
    seconds = work * {"plain": 1.0, "glossy": 1.5}[paper] / chip.peak["bf16"]
    return seconds, width * queue / (queue + 1) / seconds


def test_columns_are_what_plain_loops_find(catalog):
    found = shop(catalog).columns.columns["setter"]
    for column in found:
        chip = catalog.chip(catalog.system(column.system).chip)
        for point in column.points:
            for rate, kind in zip(point.rate, KINDS, strict=True):
                layout = column.layout
                _, expected = setter_by_hand(
                    chip,
                    layout["press.width"],
                    point.values["press.queue"],
                    layout["press.paper"],
                    kind.values["page_work"],
                )
                assert rate == pytest.approx(expected, rel=1e-12)
    # a line of twice the width is twice the speed for twice the presses: no width dominates another,
    # and of the shares of patience only the smallest is worth keeping
    kept = {(c.system, c.layout["press.paper"], c.layout["press.width"], c.layout["press.hold"]) for c in found}
    assert kept == set(product(("hgx-h100", "mi300x-8"), ("plain", "glossy"), (1, 2, 4), (0.25,)))


def test_a_limit_cuts_and_says_by_how_much(catalog):
    chip = catalog.chip("h100-sxm")
    thick_glossy, _ = setter_by_hand(chip, 1, 1, "glossy", 3e12)
    limit = thick_glossy * 0.9
    searched = shop(catalog, systems=("hgx-h100",), longest=limit)
    glossy = [c for c in searched.columns.columns["setter"] if c.layout["press.paper"] == "glossy"]
    assert all(point.rate[1] == 0 < point.rate[0] for column in glossy for point in column.points)
    (dropped,) = [d for d in searched.columns.dropped if d.rule == "setter.longest"]
    assert dropped.shortfall == pytest.approx(thick_glossy - limit)
    assert (dropped.unit, dropped.cure) == ("s", "longest")


def test_an_absent_limit_does_not_apply(catalog):
    assert not [d for d in shop(catalog).columns.dropped if d.rule == "setter.longest"]


def test_held_values_need_not_be_on_the_grid(catalog):
    searched = shop(catalog, held={"press.width": (3,), "press.paper": ("plain",)})
    assert {c.layout["press.width"] for c in searched.columns.columns["setter"]} == {3}


def test_a_held_operating_axis_is_the_most(catalog):
    searched = shop(catalog, power=True, held={"press.queue": (3,)})
    queues = {p.values["press.queue"] for c in searched.columns.columns["setter"] for p in c.points}
    assert queues == {1, 2, 3}


def test_power_keeps_the_whole_front_of_operating_points(catalog):
    (column, *_) = shop(catalog, power=True).columns.columns["setter"]
    assert [point.values["press.queue"] for point in column.points] == [1, 2, 4, 8]
    draws = [point.power_loaded for point in column.points]
    assert draws == sorted(draws)


def test_every_column_unfolds_to_its_ports(catalog):
    searched = shop(catalog, power=True)
    for role in ("setter", "binder"):
        for column in searched.columns.columns[role]:
            for point in column.points:
                record = unfold(column, point.values, searched.contexts, searched.columns.classes)
                for index, name in enumerate(searched.columns.classes):
                    trace = record.classes[name].trace
                    assert trace["port.rate"]["value"] == pytest.approx(point.rate[index], rel=1e-9)
                    assert trace["port.power_loaded"]["value"] == pytest.approx(point.power_loaded, rel=1e-9)


def test_balanced_point_carries_exactly_the_load(catalog):
    searched = shop(catalog, power=True)
    column = searched.columns.columns["setter"][0]
    context = searched.contexts[column.key]
    rates = {0: column.points[1].rate[0] * 0.4, 1: column.points[1].rate[1] * 0.6}
    points = balanced(context, column, rates, 1.0, dict.fromkeys((0, 1), column.points[-1].values))
    for point in points.values():
        assert point["press.queue"] == pytest.approx(column.points[1].values["press.queue"], rel=1e-6)


def test_a_class_runs_at_most_at_the_point_that_it_was_given(catalog):
    searched = shop(catalog, power=True)
    column = searched.columns.columns["setter"][0]
    context = searched.contexts[column.key]
    low, high = column.points[0], column.points[-1]
    rates = {0: low.rate[0] * 0.5, 1: high.rate[1] * 0.5}
    points = balanced(context, column, rates, 1.0, {0: low.values, 1: high.values})
    assert points[0]["press.queue"] == pytest.approx(low.values["press.queue"], rel=1e-6)
    assert points[1]["press.queue"] == pytest.approx(high.values["press.queue"], rel=1e-6)


def test_a_run_of_parts_multiplies_its_parts(catalog):
    workload = Workload("count", "housesurvey", values={"houses": 1e6, "visit": 1e15})
    systems = tuple(map(catalog.system, ("hgx-h100", "mi300x-8")))
    searched = search(Ask(workload, SURVEY, Problem(workloads=(workload,)), catalog, None, systems))
    peaks = {name: catalog.chip(catalog.system(name).chip).peak["bf16"] for name in ("hgx-h100", "mi300x-8")}
    every = {}
    for walk, clerk, crew, desk in product(peaks, peaks, (1, 2, 4, 8), (1, 2, 4, 8)):
        seconds = 1e6 * max(1e15 / (peaks[walk] * crew), 1e15 / (4 * peaks[clerk] * desk))
        every[(walk, crew), (clerk, desk)] = seconds
    found = {column.footprint: column.duration for column in searched.columns.columns["survey"]}
    for footprint, duration in found.items():
        assert duration == pytest.approx(every[footprint], rel=1e-12)
    for footprint, duration in every.items():
        (walk, crew), (clerk, desk) = footprint
        assert any(
            (f[0][0], f[1][0]) == (walk, clerk) and f[0][1] <= crew and f[1][1] <= desk and d <= duration * (1 + 1e-12)
            for f, d in found.items()
        )


points = st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=40)


@given(points)
def test_pareto_keeps_just_what_nothing_else_dominates(rows):
    costs = np.array(rows, float)
    kept = costs[pareto(costs)]
    for row in costs:
        assert (kept <= row).all(axis=1).any()
    for i, row in enumerate(kept):
        others = np.delete(kept, i, axis=0)
        assert not (others <= row).all(axis=1).any()


@given(points)
def test_thin_is_pareto_of_two_criteria(rows):
    costs = np.array(rows, float)[:, :2]
    kept = costs[thin(costs[:, 0], costs[:, 1], np.empty((len(costs), 0)))]
    expected = costs[pareto(costs)]
    assert sorted(map(tuple, kept)) == sorted(map(tuple, expected))
