"""What is left out of a programme on the way: ways that others replace, limits on power, all but a few layouts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from cross_check.toys import DAY, YEAR, buy, pool, pool_column, problem, rent, run, solve
from tokenmill.candidates.columns import Column, OperatingPoint, WorkloadColumns
from tokenmill.milp import eased
from tokenmill.milp.few import answer_of_few
from tokenmill.milp.formulation import formulate
from tokenmill.milp.sets import build_sets
from tokenmill.milp.solution import Solution, Termination
from tokenmill.milp.solve import Wish
from tokenmill.problem import Ownership, Site, Workload

HOURS = 8760
DEAR = 0.10 / 3.6e6  # USD a joule


def of_runs(offers, *columns, **more):
    """Return the columns whose ways stay, of a run of (chips, days, W a chip)."""
    made = [run("train", (chips, days), watts=watts).columns["train"][0] for chips, days, watts in columns]
    made = [replace(column, key=f"train-{n}") for n, column in enumerate(made)]
    work = replace(run("train", (8, 1.0)), columns={"train": tuple(made)})
    sets = build_sets(problem(Workload("train", "toy"), **more), [work], offers, (), {}, {})
    return [int(sets.columns[way.column].key[6:]) for way in sets.ways]


def test_a_way_goes_where_another_is_as_small_as_quick_and_as_sparing():
    two = (
        (8, 10.0, 700.0),
        (8, 20.0, 200.0),
    )  # over idle 4.8 kW x 10 days and 0.8 kW x 20; with the host 6.6 x 10 and 2.6 x 20
    assert of_runs([rent()], *two) == [0]  # the time is paid, the energy is not
    assert of_runs([buy()], *two) == [0, 1]
    assert of_runs([buy()], two[0], (8, 20.0, 400.0)) == [0]  # 2.4 kW x 20 days: no less
    assert of_runs([rent()], *two, objectives=("energy",)) == [0, 1]
    assert of_runs([rent()], (16, 10.0, 700.0), (8, 20.0, 700.0)) == [0, 1]
    assert of_runs([rent()], (16, 10.0, 700.0), (8, 10.0, 700.0)) == [1]
    assert of_runs([rent()], *two, limits={"power": 1e6}) == [0, 1]


@pytest.mark.parametrize("seed", range(8))
def test_the_best_of_many_runs_is_the_best_of_each_alone(seed):
    """Brute force: every layout by itself, the cheapest plan of all."""
    rng = Random(seed)
    columns = [
        replace(
            run("train", (chips, rng.uniform(20, 60) * 8 / chips ** rng.uniform(0.7, 1.0)), watts=rng.uniform(300, 700))
            .columns["train"][0],
            key=f"train-{n}",
        )
        for n, chips in enumerate(rng.choices([2, 4, 8, 16], k=12))
    ]  # fmt: skip
    asked = problem(
        Workload("chat", "toy"), Workload("train", "toy", deadline=rng.uniform(20, 60) * DAY),
        hardware={"sites": (Site(electricity={"all": DEAR}),), "ownership": Ownership(life=YEAR)},
    )  # fmt: skip
    offers = [rent(16.0), buy(rng.uniform(50_000, 150_000))]
    chat = pool(pool_column())

    def best(*chosen: Column) -> float:
        work = replace(run("train", (8, 1.0)), columns={"train": chosen})
        found = solve(asked, [chat, work], offers, value_of_next=False)
        return np.inf if found.cost_total is None else found.cost_total

    assert best(*columns) == pytest.approx(min(best(column) for column in columns), rel=1e-9)


def hungry(seed: int) -> WorkloadColumns:
    """Return pools of two sizes with points of more rate at more power."""
    rng = Random(seed)
    made = []
    for chips in (4, 8):
        rates = sorted(rng.uniform(1, 10) for _ in range(3))
        points = tuple(
            OperatingPoint({"batch": n}, (rate * chips / 8,), chips * (200.0 + 150.0 * n + rng.uniform(0, 100)))
            for n, rate in enumerate(rates)
        )
        made.append(replace(pool_column(chips=chips, name=f"node-{chips}"), points=points))
    return pool(*made)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kilowatts", [14.0, 20.0, 1000.0])
def test_limits_on_power_left_out_at_first_change_nothing(seed, kilowatts, monkeypatch):
    """The whole programme, and the same where the limits are left out at first, from limits that bind to those that do not."""
    site = Site(power=kilowatts * 1e3, electricity={"all": DEAR})
    asked = problem(hardware={"sites": (site,), "ownership": Ownership(life=YEAR)})
    found = []
    for many in (np.inf, 0):
        monkeypatch.setattr(eased, "MANY", many)
        found.append(solve(asked, [hungry(seed)], [buy(50_000.0), rent(16.0)], demand=15.0, value_of_next=False))
    whole, first = found
    assert whole.termination.status == first.termination.status
    assert first.cost_total == (None if whole.cost_total is None else pytest.approx(whole.cost_total, rel=1e-9))
    if kilowatts == 1000.0:
        assert (whole.termination.status, first.residual) == ("optimal", pytest.approx(0.0, abs=1e-6))


def test_spot_is_a_share_of_what_stays_when_a_run_has_ended():
    """Hand calculation: three systems for the pool, of which half may be spot; a run's own systems are gone after ten days."""
    asked = problem(Workload("chat", "toy"), Workload("train", "toy"), limits={"spot_share": 0.5})
    columns = [pool(pool_column(reliability="any")), run("train", (16, 10.0))]
    plan = solve(asked, columns, [rent(16.0), rent(6.0, market="spot")])
    # one of three on spot costs 38 an hour; two of four 44; two of three, with the run's, is not allowed
    assert plan.cost_total == pytest.approx((6 + 2 * 16) * HOURS + 2 * 16 * 240)


def test_a_plan_of_few_layouts_comes_where_time_is_short():
    """An even fleet of ten sizes: three systems at 10/s; the plan of few is one, and its gap is that to the bound."""
    columns = pool(*(pool_column(chips=c, rate=10.0 * c / 8, name=f"node-{c}") for c in range(1, 9)))
    asked = problem()
    sets = build_sets(asked, [columns], [rent()], (), {"chat": np.array([[25.0]])}, {"chat": np.array([[25.0]])})
    wish = Wish(0.01, 5.0, 1, "highs", value_of_next=True, alternatives=2)
    stopped = Solution(Termination("unknown", bound=2.5 * 16 * HOURS, limit="time"))
    plan = answer_of_few(sets, formulate, stopped, wish)
    assert plan.termination.status == "feasible"
    assert plan.cost_total == pytest.approx(3 * 16 * HOURS)
    assert plan.termination.gap == pytest.approx(0.5 / 3)
    assert any("few layouts" in note for note in plan.notes)
    assert answer_of_few(sets, formulate, stopped, replace(wish, time_limit=0.0)) is stopped
