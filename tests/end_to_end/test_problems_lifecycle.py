"""The problem files of a model's whole life: bills of training and of serving, and the days at which they cross."""

from itertools import pairwise
from pathlib import Path

import pytest

from tokenmill import api
from tokenmill.reading import load_problem

PROBLEMS = Path(__file__).parents[2] / "problems"
DAY, HOUR = 86400.0, 3600.0
PEAK = 989.4e12  # FLOP/s of an H100, dense bf16
BODY_70B, BODY_8B = 69.5e9, 7.5e9  # parameters that a token is multiplied with: all but the input embeddings
RATE = "workload.chat.demand.requests_per_second"


def solved(name, **changes):
    overrides = [(key.replace("__", "."), value) for key, value in changes.items()]
    plan = api.solve(load_problem(PROBLEMS / f"{name}.toml", overrides=overrides))
    assert plan.status in ("optimal", "feasible")
    return plan


def at_rate(name, rate):
    return api.solve(load_problem(PROBLEMS / f"{name}.toml", overrides=[(RATE, str(rate))]))


@pytest.fixture(scope="module")
def volume():
    return solved("lifecycle-served-volume")


def test_the_flops_of_serving_overtake_those_of_training_after_three_times_the_corpus(volume):
    chat, pretrain = (volume.workloads[name].totals for name in ("chat", "pretrain"))
    crossing, trained = chat["crossover"], pretrain["bill"]
    # lc-01: 6ND, and causal attention over 8192 tokens: 12·L·h·s/2 over 6N, 6% more at 80 layers of 8192
    assert trained["flops"] == pytest.approx(6 * BODY_70B * 15e12 * 1.077, rel=0.01)
    assert crossing["needed"]["flops"] == trained["flops"]
    # ec-04: three times the corpus at 1e11 tokens a day is 450 days; training's attention makes it more, serving's contexts are short
    assert crossing["flops_days"] == pytest.approx(450, rel=0.1)
    # 926 requests of 1250 tokens a second in the six quarters that begin once training is due
    assert chat["tokens_all"] == pytest.approx(926 * 1250 * 547.5 * DAY)
    assert volume.runs[0].end <= 182.5 * DAY
    work = 2 * BODY_70B * chat["tokens_all"]
    assert chat["bill"]["flops"] == pytest.approx(work, rel=0.12)


def test_chip_hours_cross_earlier_by_the_ratio_of_the_mfus(volume):
    """lc-08: chip-hours are FLOPs over peak times MFU on each side."""
    chat, pretrain = (volume.workloads[name].totals for name in ("chat", "pretrain"))
    mfu = {
        name: t["bill"]["flops"] / (t["bill"]["accelerator_hours"] * HOUR * PEAK)
        for name, t in (("chat", chat), ("pretrain", pretrain))
    }
    assert 0.1 < mfu["chat"] < mfu["pretrain"] < 0.6
    crossing = chat["crossover"]
    assert crossing["accelerator_hours_days"] / crossing["flops_days"] == pytest.approx(
        mfu["chat"] / mfu["pretrain"], rel=1e-3
    )


def test_money_crosses_last_where_servers_are_bought(volume):
    chat, pretrain = (volume.workloads[name].totals for name in ("chat", "pretrain"))
    assert pretrain["bill"]["cost"] == pytest.approx(
        2.5 * pretrain["bill"]["accelerator_hours"], rel=1e-3
    )  # rented at $2.50
    assert chat["bill"]["cost"] < 2.5 * chat["bill"]["accelerator_hours"]
    assert chat["bill"]["cost"] + pretrain["bill"]["cost"] == pytest.approx(volume.cost.total)
    crossing = chat["crossover"]
    assert crossing["accelerator_hours_days"] < crossing["cost_days"]
    # by hand: what a day of serving costs at an even rate
    served = chat["tokens_all"] / (926 * 1250 * DAY)
    assert crossing["cost_days"] == pytest.approx(pretrain["bill"]["cost"] / (chat["bill"]["cost"] / served), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.01, 0.1, 10])
def test_lc_05_days_scale_with_the_tokens_served(volume, factor):
    plan = at_rate("lifecycle-served-volume", 926 * factor)
    days = plan.workloads["chat"].totals["crossover"]["flops_days"]
    before = volume.workloads["chat"].totals["crossover"]["flops_days"]
    assert days == pytest.approx(before / factor, rel=0.05)


def test_a_distilled_model_pays_at_a_hundred_billion_tokens_a_day(volume):
    plan = solved("lifecycle-distilled")
    assert plan.cost.total < volume.cost.total
    bills = {name: made.totals["bill"] for name, made in plan.workloads.items()}
    # 1e8 prompts of 500 tokens with answers of 1000 by the large model; 1e12 tokens learnt by the small one
    assert bills["label"]["flops"] == pytest.approx(2 * BODY_70B * 1e8 * 1500, rel=0.1)
    assert bills["distil"]["flops"] == pytest.approx(6 * BODY_8B * 1e12, rel=0.2)
    # a token of the smaller model is worth a ninth of the FLOPs
    large = volume.workloads["chat"].totals["bill"]
    assert bills["chat"]["flops"] / large["flops"] == pytest.approx(BODY_8B / BODY_70B, rel=0.1)
    ends = {run.workload: (run.start, run.end) for run in plan.runs}
    assert ends["pretrain"][1] <= ends["label"][0] + 1
    assert ends["label"][1] <= ends["distil"][0] + 1


@pytest.mark.slow
def test_a_distilled_model_does_not_pay_at_a_billion_tokens_a_day():
    large, small = (at_rate(f"lifecycle-{name}", 9.26) for name in ("served-volume", "distilled"))
    assert small.cost.total > large.cost.total


@pytest.mark.slow
def test_quarterly_runs_weigh_four_times_one():
    plan = solved("lifecycle-retrained")
    runs = {run.workload: run for run in plan.runs}
    for k in range(4):
        run = runs[f"train-{k + 1}"]
        assert run.start >= 91.25 * k * DAY - 1
        assert run.end <= (91.25 * k + 30) * DAY + 1
    one = plan.workloads["train-1"].totals["bill"]
    assert one["flops"] == pytest.approx(6 * BODY_8B * 300e9, rel=0.2)
    chat = plan.workloads["chat"].totals
    assert chat["crossover"]["needed"]["flops"] == pytest.approx(one["flops"])
    for k in range(1, 4):
        assert plan.workloads[f"train-{k + 1}"].totals["bill"]["cost"] == pytest.approx(one["cost"], rel=1e-6)
    # lifetime.training_share: four runs against the year's serving
    assert 4 * one["cost"] / (4 * one["cost"] + chat["bill"]["cost"]) == pytest.approx(
        4 * one["cost"] / plan.cost.total, rel=1e-6
    )
    assert 0.2 < 4 * one["cost"] / plan.cost.total < 0.6


def test_longer_answers_of_a_smaller_model_are_cheaper_up_to_a_point():
    small = solved("lifecycle-longer-answers").cost.total
    key = "workload.answers.demand.output_tokens"
    file = PROBLEMS / "lifecycle-longer-answers.toml"
    large = api.solve(
        load_problem(file, overrides=[("workload.answers.model", "'llama-3.1-70b'"), (key, "500")])
    ).cost.total
    longer = api.solve(load_problem(file, overrides=[(key, "4400")])).cost.total
    # equal FLOPs at 70/8 x 500 = 4375 tokens; long answers read more memory a FLOP, so money is even before that
    assert small < large < longer


@pytest.mark.slow
def test_seven_stages_follow_one_another():
    plan = solved("lifecycle-two-years")
    order = ["corpus", "pretrain", "tune", "prefer", "reason", "suite"]
    assert set(plan.workloads) == {*order, "chat"}
    runs = {run.workload: run for run in plan.runs}
    for before, after in pairwise(order):
        assert runs[before].end <= runs[after].start + 1.0
    assert plan.workloads["corpus"].bottleneck.resource == "cpu"
    bills = {name: made.totals["bill"] for name, made in plan.workloads.items()}
    assert bills["corpus"]["accelerator_hours"] == 0
    assert sum(bill["cost"] for bill in bills.values()) == pytest.approx(plan.cost.total, rel=1e-6)
    # 6ND of 2T tokens and attention; a pass more for the reference and two answers a pair in preference tuning
    assert bills["pretrain"]["flops"] == pytest.approx(6 * BODY_70B * 2e12 * 1.077, rel=0.01)
    assert bills["prefer"]["flops"] == pytest.approx(8 * BODY_70B * 2 * 3e5 * 1200, rel=0.05)
    # learning from 200 x 256 x 16 answers: written, read by old policy and reference, trained on; prompts are written once for 16
    tokens = 200 * 256 * 16 * 3600
    assert bills["reason"]["flops"] == pytest.approx(2 * BODY_70B * tokens * 6, rel=0.1)
    assert max(("tune", "prefer", "reason", "suite"), key=lambda name: bills[name]["accelerator_hours"]) == "reason"
    crossing = plan.workloads["chat"].totals["crossover"]
    assert crossing["needed"]["accelerator_hours"] == pytest.approx(
        sum(bills[name]["accelerator_hours"] for name in order)
    )
    assert 60 < crossing["accelerator_hours_days"] < 240
