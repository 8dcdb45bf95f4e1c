"""The shipped problem files of devices, each answer held to a reason of its own; measured devices held to the targets."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tokenmill import api
from tokenmill.reading import load_problem
from tokenmill.templates import new
from tokenmill.validate_devices import evaluate

PROBLEMS = Path(__file__).parents[2] / "problems"


@cache
def solved(name, *overrides):
    return api.solve(load_problem(PROBLEMS / f"{name}.toml", overrides=list(overrides)))


def test_the_phone_answers_at_what_its_power_leaves_of_the_bandwidth():
    plan = solved("edge-phone")
    (pool,) = plan.workloads["phone"].pools
    assert (pool.role, pool.system, pool.replicas) == ("device", "snapdragon-8-elite", 100000)
    assert pool.precision["weights"] == "q4_k_m"
    assert 12 <= pool.predicted["tokens_per_second"] < 85e9 / 1.95e9
    assert pool.predicted["power"] <= 5.0
    assert pool.predicted["battery_share_per_day"] < 0.1
    assert set(plan.cost.by_kind) >= {"energy"}
    assert plan.cost.total == pytest.approx(plan.cost.by_kind["energy"])


def test_a_70b_model_goes_to_the_cheapest_machine_that_holds_it_until_speed_is_asked_for():
    slow = solved("edge-70b").workloads["home"].pools[0]
    assert slow.system == "ryzen-ai-max-395"
    assert 4 <= slow.predicted["tokens_per_second"] < 256e9 / 41.5e9
    fast = solved("edge-70b", ("workload.home.min_tokens_per_second", "10")).workloads["home"].pools[0]
    assert fast.system == "apple-m2-ultra"
    assert 10 <= fast.predicted["tokens_per_second"] < 819e9 / 41.5e9
    alone = solved("edge-70b", ("workload.home.devices", '"rtx-4090"'))
    assert alone.status == "infeasible"
    assert "memory" in alone.infeasible[0].limit


def test_in_the_car_the_smaller_computer_answers_faster_at_its_power():
    pool = solved("edge-car").workloads["car"].pools[0]
    assert (pool.system, pool.precision["weights"]) == ("drive-orin", "q4_k_m")
    free = solved("edge-car", ("workload.car.power", '"140 W"'), ("workload.car.devices", '"drive-thor"'))
    assert free.workloads["car"].pools[0].predicted["tokens_per_second"] > pool.predicted["tokens_per_second"]


def test_sixteen_bits_miss_a_card_and_layers_on_the_host_are_slow():
    plan = solved("edge-infeasible-8b-fp16")
    assert plan.status == "infeasible"
    assert plan.infeasible[0].unit == "B"
    eased = solved("edge-infeasible-8b-fp16", ("workload.card.layout.host_layers", "[0, 16]"))
    pool = eased.workloads["card"].pools[0]
    assert pool.layout["host_layers"] == 16
    assert pool.predicted["tokens_per_second"] < 10


def test_a_new_file_of_devices_is_complete():
    plan = api.solve(load_problem(new("edge")))
    assert plan.status == "optimal"
    assert plan.workloads["edge"].pools[0].role == "device"


@pytest.mark.slow
def test_measured_devices_are_predicted_from_the_other_half_of_the_devices():
    found = evaluate("edge")
    assert found.rows_in_file == 1220
    assert len(found.outcomes) + sum(found.left_out.values()) == found.rows_in_file

    def errors(*metrics):
        return np.array([abs(o.predicted / o.measured - 1) for o in found.outcomes if o.metric in metrics])

    assert np.median(errors("decode")) <= 0.10
    assert np.median(errors("prefill", "ttft")) <= 0.25  # rates and times of the same work: prompts
    fits = [o.fits for o in found.outcomes if o.fits is not None]
    assert np.mean([predicted for ran, predicted in fits if ran]) >= 0.98
    assert np.mean([not predicted for ran, predicted in fits if not ran]) >= 0.90
    based = [abs(o.baseline / o.measured - 1) for o in found.outcomes if o.metric == "decode"]
    assert np.median(errors("decode")) < np.median(based) / 2
