"""Memory with its interval, and the word of caution where that passes what a chip has."""

from dataclasses import replace
from math import exp, log
from statistics import NormalDist

import pytest

from samples_plan import sample_plan
from tokenmill.plan import Pool
from tokenmill.report.summary import summary
from tokenmill.report.text_pools import chance_to_fit, delivers, may_not_fit


def pool(total: float, high: float, capacity: float) -> Pool:
    memory = {"total": total, "capacity": capacity, "weights": total / 2}
    return Pool(
        name="train", role="train", system="rtx-4090", site="one", chips=1, replicas=1, layout={}, precision={}, batch=None,
        predicted={"memory": memory}, intervals={"memory": {"total": [0.9 * total, high]}},
    )  # fmt: skip


def test_the_chance_to_fit_is_that_of_lognormal_errors() -> None:
    # at the prediction half of the cases fit, at the 90% quantile nine of ten
    assert chance_to_fit(20e9, 30e9, 20e9) == pytest.approx(0.5)
    assert chance_to_fit(20e9, 30e9, 30e9) == pytest.approx(0.9)
    # a standard deviation above it: 84.13%
    sigma = log(1.5) / 1.2815515655446004
    assert chance_to_fit(20e9, 30e9, 20e9 * exp(sigma)) == pytest.approx(0.8413447, abs=1e-6)
    assert chance_to_fit(20e9, 20e9, 24e9) == 1.0


def test_a_pool_near_its_limit_is_cautioned() -> None:
    lines = list(delivers(pool(20e9, 30e9, 24e9), {}))
    assert lines[0] == "memory of a chip 20.0 GB (8 cases of 10: 18.0 GB to 30.0 GB) of 24.0 GB: weights 10.0 GB"
    chance = NormalDist().cdf(log(1.2) / (log(1.5) / NormalDist().inv_cdf(0.9)))
    assert round(10 * chance) == 7
    assert lines[1] == "memory may run short: by the errors on measured runs it fits in some 7 cases of 10"


def test_a_pool_with_room_or_without_an_interval_is_not() -> None:
    assert may_not_fit(pool(20e9, 22e9, 24e9)) == ""
    bare = Pool(name="train", role="train", system="rtx-4090", site="one", chips=1, replicas=1, layout={}, precision={}, batch=None,
                predicted={"memory": {"total": 23e9, "capacity": 24e9}})  # fmt: skip
    assert may_not_fit(bare) == ""
    assert list(delivers(bare, {})) == ["memory of a chip 23.0 GB of 24.0 GB"]


def test_the_summary_says_so_where_the_layout_stands() -> None:
    plan = sample_plan()
    name, made = next(iter(plan.workloads.items()))
    near = pool(20e9, 30e9, 24e9)
    short = replace(
        plan,
        workloads={
            name: replace(made, pools=(replace(made.pools[0], predicted=near.predicted, intervals=near.intervals),))
        },
    )
    lines = [line for line in summary(short) if "memory may run short" in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"{name}: ")
    assert "it fits in some 7 cases of 10" in lines[0]
    assert not any("memory may run short" in line for line in summary(plan))
