"""Evaluation as throughput work against hand calculations: bytes and FLOPs of a full batch, passes, the judge's pace."""

from functools import cache

import pytest

from tokenmill import api
from tokenmill.catalog import load_catalog
from tokenmill.reading import load_problem

# Llama 3.1 8B: 32 layers, width 4096, 8 key/value heads of 128, vocabulary 128256
PARAMETERS = 8_030_261_248
EMBEDDING = 128_256 * 4096
KV_BYTES = 2 * 32 * 8 * 128 * 2


@cache
def solved(more="", head="", layout="tp = 1\npp = 1", objective="cost"):
    return api.solve(
        load_problem(f"""
objective = {{ minimise = "{objective}" }}
{head}
[hardware]
systems = ["hgx-h100"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2/h"
[[workload]]
name = "suite"
stage = "evaluation"
model = "llama-3.1-8b"
prompts = 20000
input_tokens = 10
output_tokens = 500
{more}
[workload.layout]
{layout}
""")
    )


def pool(plan, role="mixed"):
    return next(p for p in plan.workloads["suite"].pools if p.role == role)


def test_an_ideal_run_takes_its_steps_at_bandwidth():
    plan = solved(
        head='[assume]\nefficiency = "ideal"',
        more="[workload.engine]\nbatch = 64",
        layout="tp = 1\npp = 1\nreplicas = 1",
    )
    found = pool(plan).predicted
    # a step reads all weights and the caches of 64 sequences that hold half of their answer on average
    read = 2 * (PARAMETERS - EMBEDDING) + 64 * (10 + 250) * KV_BYTES
    step = read / load_catalog().chip("h100-sxm").bandwidth
    assert found["step_time"] == pytest.approx(step, rel=0.05)
    assert found["tokens_per_second"] == pytest.approx(64 / step, rel=0.05)
    wall = 20000 / 64 * 500 * step
    assert found["wall_time"] == pytest.approx(wall, rel=0.06)
    (run,) = plan.runs
    assert run.end - run.start == pytest.approx(found["wall_time"])
    assert plan.cost.total == pytest.approx(found["wall_time"] / 3600 * 16)  # a whole server of eight is rented


def test_passes_multiply_the_work_but_not_the_last_answers():
    once = pool(solved(layout="tp = 1\npp = 1\nreplicas = 8")).predicted
    often = pool(solved(more="passes = 4", layout="tp = 1\npp = 1\nreplicas = 8")).predicted
    assert once["wall_time"] > 20000 / once["requests_per_second"]
    # four passes in the layout of one would take four times the work and its end once
    assert often["wall_time"] < 4 * once["wall_time"]
    assert often["wall_time"] > 4 * 20000 / often["requests_per_second"]
    assert often["requests_per_second"] >= once["requests_per_second"]


def test_on_held_chips_the_fastest_layout_is_taken():
    free = solved(layout="chips = 8", objective="time")
    walls = [
        pool(solved(layout=f"tp = {tp}\npp = 1\nreplicas = {8 // tp}", objective="time")).predicted["wall_time"]
        for tp in (1, 2, 4, 8)
    ]
    assert pool(free).chips == 8
    assert pool(free).predicted["wall_time"] <= min(walls) * (1 + 1e-9)
    assert pool(free).replicas * pool(free).layout["tp"] * pool(free).layout["pp"] == 8


def test_a_deadline_buys_more_replicas_and_an_impossible_one_is_said():
    slow = solved()
    wall = slow.runs[0].end
    fast = solved(more=f'deadline = "{wall / 4:.0f} s"')
    assert fast.runs[0].end <= wall / 4 * 1.001
    assert fast.runs[0].chips > slow.runs[0].chips or pool(fast).replicas > pool(slow).replicas
    never = solved(more='deadline = "10 s"')
    assert never.status == "infeasible"
    assert any("deadline" in (reason.key or "") or "deadline" in reason.limit for reason in never.infeasible)


def test_the_judge_has_its_own_model_and_keeps_up():
    more = 'judge = { model = "qwen3-8b", input_tokens = 600, output_tokens = 50 }'
    plan = solved(more=more, layout="tp = 1\npp = 1")
    answers, judge = pool(plan).predicted, pool(plan, "judge").predicted
    assert judge["wall_time"] <= answers["wall_time"] * (1 + 1e-9)
    assert judge["memory"]["weights"] == pytest.approx(2 * 8_190_735_360, rel=0.01)
    assert answers["memory"]["weights"] == pytest.approx(2 * PARAMETERS, rel=0.01)
    assert plan.runs[0].end == pytest.approx(answers["wall_time"])
    assert plan.runs[0].chips == pool(plan).chips + pool(plan, "judge").chips
    assert plan.cost.total > solved().cost.total


def test_no_more_run_at_once_than_there_are_answers():
    plan = solved(more="passes = 1\n[workload.engine]\nbatch = 4096", layout="tp = 1\npp = 1\nreplicas = 8")
    assert pool(plan).batch * 8 <= 20000


SPOT = """
[[hardware.supply]]
system = "hgx-h100"
preemptions_per_day = 6
[[workload]]
name = "suite"
stage = "evaluation"
model = "llama-3.1-8b"
prompts = 20000
input_tokens = 10
output_tokens = 500
"""


@pytest.mark.parametrize(("interruptible", "market"), [("true", "spot"), ("false", "on-demand")])
def test_work_that_may_be_stopped_stands_on_spot_and_takes_longer(interruptible, market):
    prices = "".join(
        f'[[hardware.price]]\nsystem = "hgx-h100"\nmarket = "{name}"\nper_chip_hour = "${price}/h"\n'
        for name, price in (("on-demand", 3), ("spot", 1.5))
    )
    head = '[hardware]\nsystems = ["hgx-h100"]\nmarkets = ["on-demand", "spot"]\n' + prices
    plan = api.solve(load_problem(head + SPOT + f"interruptible = {interruptible}\n"))
    (run,) = plan.runs
    assert run.market == market
    undisturbed = pool(plan).predicted["wall_time"]
    # six stops a day, each with ten minutes of work done again at most: a few percent
    assert undisturbed <= run.end <= undisturbed * (1.1 if market == "spot" else 1 + 1e-9)
    assert (run.end > undisturbed * 1.001) == (market == "spot")
