"""Simulating a plan: step times against the formulas, limits and cost by hand, options, and the command line."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tokenmill.api import solve
from tokenmill.cli import main
from tokenmill.errors import ProblemError
from tokenmill.imports.architecture import load_architecture
from tokenmill.imports.traces import Trace
from tokenmill.plan_json import dump
from tokenmill.reading import load_problem
from tokenmill.simulate import Options, at_rate, simulate
from tokenmill.simulate_load import gaps, generated, lengths, planned_rate
from tokenmill.simulate_steps import StepTimes, plan_leaves
from tokenmill.simulate_verify import marks_of, verify
from tokenmill_models.stage import stages

TEXT = """
objective = {{ minimise = "cost" }}
[hardware]
systems = ["hgx-h100"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2/h"
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
[workload.demand]
requests_per_second = {rate}
input_tokens = {{ mean = 600, p95 = 1500 }}
output_tokens = {{ mean = 150, p95 = 400 }}
[workload.slo]
ttft = {{ p95 = "{ttft}" }}
tpot = {{ p95 = "80 ms" }}
[workload.engine]
disaggregated = {split}
chunk = 2048
[workload.layout]
tp = 1
pp = 1
"""


def solved(rate=10, ttft="5 s", split="false"):
    return solve(load_problem(TEXT.format(rate=rate, ttft=ttft, split=split)))


@pytest.fixture(scope="module")
def plan():
    return solved()


@pytest.fixture(scope="module")
def split_plan():
    return solved(split="true")


def requests(arrivals, prompt=500.0, answer=50.0) -> Trace:
    count = len(arrivals)
    return Trace("made", "plain", np.array(arrivals, float), np.full(count, prompt), np.full(count, answer))


@pytest.fixture(scope="module")
def times(plan):
    role = next(r for r in stages()["serving"].roles(load_architecture("llama-3.1-8b")) if r.name == "mixed")
    leaves = plan_leaves(plan.trace, "chat.mixed")
    return StepTimes(role, leaves, counts=512, context=8192, budget=2048)


def test_steps_at_the_plan_s_own_load_take_the_plan_s_own_times(plan, times):
    leaves = times.leaves
    inputs = {name: leaves[name] for name in ("group_batch", "context")}
    assert float(times.exact("T_plain", **inputs)) == pytest.approx(leaves["T_plain"], rel=1e-9)
    inputs |= {name: leaves[name] for name in ("prefill_carried", "prompt_keys", "prompt_computed")}
    assert float(times.exact("T_full", **inputs)) == pytest.approx(leaves["T_full"], rel=1e-9)


def test_interpolated_steps_stay_near_the_formula(times):
    random = np.random.default_rng(0)
    counts, contexts = random.integers(1, 512, 300).astype(float), random.uniform(64, 8000, 300)
    prompts, keys = random.uniform(1, 2048, 300), random.uniform(64, 8000, 300)
    plain = times.exact("T_plain", group_batch=counts, context=contexts)
    full = times.exact(
        "T_full", group_batch=counts, context=contexts, prefill_carried=prompts, prompt_keys=keys, prompt_computed=prompts
    )  # fmt: skip
    for at, (count, context, prompt, key) in enumerate(zip(counts, contexts, prompts, keys, strict=True)):
        assert times.plain(int(count), context) == pytest.approx(plain[at], rel=0.005)
        assert times.full(int(count), context, prompt, key) == pytest.approx(full[at], rel=0.01)


def test_a_request_alone_takes_its_prompt_and_its_steps(plan, times):
    report = simulate(plan, requests([0.0]))
    prompt = times.full(0, 0.0, 500, 250)
    decode = sum(times.plain(1, 500 + step) for step in range(49))
    front = times.leaves["engine_request"]
    held = decode / 49 * times.leaves.get("engine_stream", 0.0)  # until the first token is sent
    # the tables of the two differ a little with the longest request
    assert report.ttft["p50"] == pytest.approx(prompt + front + held, rel=2e-3)
    assert report.e2e["p50"] == pytest.approx(prompt + front + decode, rel=1e-3)
    assert report.tpot["p50"] == pytest.approx((decode - held) / 49, rel=1e-3)


def test_cost_is_the_rent_of_the_time_served(plan):
    report = simulate(plan, requests(np.arange(200) / 10.0))
    chips = sum(pool.chips for pool in plan.workloads["chat"].pools)
    systems = np.ceil(chips / 8) * 8
    assert report.cost["per_hour"] == pytest.approx(2.0 * systems, rel=1e-6)
    spent = report.cost["per_hour"] * report.seconds / 3600
    assert report.cost["per_million_output"] == pytest.approx(spent / (200 * 50) * 1e6, rel=1e-9)
    assert report.output_tokens_per_second == pytest.approx(200 * 50 / report.seconds)


def test_limits_are_held_against_what_was_simulated(plan):
    light = simulate(plan, requests(np.arange(100) / 5.0))
    assert light.holds
    assert light.attained == 1
    burst = simulate(plan, requests(np.zeros(20_000)))
    assert not burst.holds
    assert not burst.slo["ttft.p95"].holds
    assert burst.slo["ttft.p95"].within == pytest.approx(np.mean(burst.requests["first"] <= 5.0))


def test_requests_that_no_room_holds_are_refused_and_said(plan):
    trace = replace(requests([0.0, 1.0]), input_tokens=np.array([100.0, 5e7]))
    report = simulate(plan, trace)
    assert (report.count, report.refused) == (1, 1)
    assert not report.holds


def test_rate_stretches_the_trace():
    trace = at_rate(requests([0.0, 1.0, 3.0]), 2.0)
    assert trace.seconds.tolist() == [0.0, 1 / 3, 1.0]
    assert trace.rate == pytest.approx(2.0)


def test_prefix_blocks_shorten_prompts_that_share_them(plan):
    blocks = np.array([1, 2, 3, 1, 2, 4])
    trace = replace(
        requests([0.0, 100.0], prompt=1536.0), blocks=blocks, block_starts=np.array([0, 3, 6]), block_tokens=512
    )
    cold, warm = simulate(plan, trace), simulate(plan, trace, options=Options(prefix=True))
    assert warm.pools["mixed"].prefix_hit == pytest.approx(1024 / 3072)
    first = warm.requests["first"] - warm.requests["arrival"]
    assert first[1] < first[0]
    assert cold.pools["mixed"].prefix_hit == 0
    with pytest.raises(ProblemError, match="hash_ids"):
        simulate(plan, requests([0.0]), options=Options(prefix=True))


def test_split_pools_pass_requests_from_prompt_to_answer(split_plan):
    trace = generated(split_plan, "chat", 2000, seed=1)
    report = simulate(split_plan, trace)
    assert set(report.pools) >= {"prefill", "decode"}
    assert report.count == 2000
    taken = report.requests
    assert (taken["first"] > taken["arrival"]).all()
    assert (taken["last"] >= taken["first"]).all()
    # prompts alone on an idle pool take what the formula says
    alone = simulate(split_plan, requests([0.0]))
    leaves = plan_leaves(split_plan.trace, "chat.prefill")
    assert alone.ttft["p50"] < leaves["prompt_time"] + leaves["engine_request"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(router="fastest"), "router"),
        (Options(rate=0.0), "rate"),
        (Options(warm=1.0), "warm"),
        (Options(workload="talk"), "chat"),
    ],
)
def test_wrong_options_are_said(plan, options, said):
    with pytest.raises(ProblemError, match=said):
        simulate(plan, requests([0.0]), options=options)


def test_generated_load_has_the_demand_s_moments(plan):
    trace = generated(plan, "chat", 40_000, seed=2)
    assert planned_rate(plan, "chat") == pytest.approx(10)
    assert trace.rate == pytest.approx(10, rel=0.02)
    assert trace.input_tokens.mean() == pytest.approx(600, rel=0.02)
    assert np.percentile(trace.input_tokens, 95) == pytest.approx(1500, rel=0.04)
    again = generated(plan, "chat", 40_000, seed=2)
    assert (again.seconds == trace.seconds).all()


def test_gaps_and_lengths():
    random = np.random.default_rng(0)
    drawn = gaps(random, 4.0, 2.5, 200_000)
    assert drawn.mean() == pytest.approx(0.25, rel=0.03)
    assert drawn.std() / drawn.mean() == pytest.approx(2.5, rel=0.03)
    assert gaps(random, 4.0, 0.0, 3).tolist() == [0.25] * 3
    assert lengths(random, 7.0, 2).tolist() == [7, 7]


def test_verification_adds_replicas_until_the_limit_holds():
    """A limit that the closed formulas pass with two replicas and simulation does not."""
    problem = load_problem(TEXT.format(rate=60, ttft="100 ms", split="false"))
    asked = []

    def solved_and_kept(problem):
        asked.append(problem.workloads[0].values["demand.headroom"])
        return solve(problem)

    found = verify(problem, solved_and_kept)
    report = found.reports["chat"]
    assert found.holds == report.holds
    assert report.rate == pytest.approx(60, rel=0.05)
    assert asked == pytest.approx([0.1 * n for n in range(len(asked))])
    assert bool(found.added) == (len(asked) > 1 and found.holds)
    assert all(f"simulation, {line}" in found.plan.notes for line in (*found.added, *found.marks))


def test_verification_says_where_no_head_room_helps(monkeypatch):
    monkeypatch.setattr("tokenmill.simulate_verify.ROUNDS", 2)
    problem = load_problem(TEXT.format(rate=10, ttft="75 ms", split="false"))
    plans = []

    def slow(problem):
        plans.append(solve(replace_limit(problem, 10.0)))
        return replace(plans[-1], problem={**plans[-1].problem, "workloads": [with_limit(plans[-1], 1e-3)]})

    found = verify(problem, slow)
    assert not found.holds
    assert found.added == ()
    assert len(plans) == 3
    assert found.plan.objective == plans[0].objective
    assert "NOT held" in found.text()


def replace_limit(problem, limit):
    (chat,) = problem.workloads
    return replace(problem, workloads=(replace(chat, values={**chat.values, "slo.ttft": {"p95": limit}}),))


def with_limit(plan, limit):
    (chat,) = plan.problem["workloads"]
    return {**chat, "values": {**chat["values"], "slo.ttft": {"p95": limit}}}


def test_marks_name_what_the_formulas_miss(plan):
    report = simulate(plan, generated(plan, "chat", 3000), options=Options(warm=0.2))
    pool = plan.workloads["chat"].pools[0]
    exact = {**pool.predicted, "ttft": report.ttft, "tpot": report.tpot, "itl": report.gap, "e2e": report.e2e}
    double = {**exact, "ttft": {**report.ttft, "p95": 2 * report.ttft["p95"]}}
    for predicted, count in ((exact, 0), (double, 1)):
        chat = replace(plan.workloads["chat"], pools=(replace(pool, predicted=predicted),))
        marks = marks_of(replace(plan, workloads={"chat": chat}), report)
        assert len(marks) == count
    assert "chat.mixed.ttft.p95" in marks[0]
    assert "+100%" in marks[0]


def test_closed_loop_keeps_its_number_in_flight(plan):
    count = 400
    report = simulate(plan, requests(np.zeros(count)), options=Options(concurrency=16))
    taken = report.requests
    front = plan_leaves(plan.trace, "chat.mixed")["engine_request"]
    flight = (taken["last"] - taken["arrival"] - front).sum() / (report.seconds - front)
    assert flight == pytest.approx(16, rel=0.05)


def test_command_line_replays_and_prints_one_object(plan, tmp_path, capsys):
    path = tmp_path / "plan.json"
    path.write_text(dump(plan.to_dict()))
    log = tmp_path / "trace.csv"
    log.write_text("time,input_tokens,output_tokens\n0,100,10\n1,200,20\n")
    assert main(["simulate", str(path), "--trace", str(log), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["count"] == 2
    assert found["slo"]["ttft.p95"]["holds"] is True
    assert main(["simulate", str(path), "--requests", "200"]) == 0
    assert "time to first token" in capsys.readouterr().out
    assert main(["simulate", str(path), "--trace", str(tmp_path / "none.csv")]) == 2
