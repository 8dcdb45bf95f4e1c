"""The problem files of reinforcement learning, their answers held to reasons of their own; and what must hold of every such run."""

from math import exp, log, sqrt
from pathlib import Path
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill import api
from tokenmill.candidates.search import Ask, search
from tokenmill.catalog import load_catalog
from tokenmill.imports.architecture import load_architecture
from tokenmill.reading import load_problem
from tokenmill.validate_runs import figures_of
from tokenmill_models.compile import compile_graph
from tokenmill_models.rl import rl_role
from tokenmill_models.stage import stages

PROBLEMS = Path(__file__).parents[2] / "problems"
ANSWERS, PROMPT, ANSWER, STEPS = 512 * 16, 600, 6000, 1000
DAY, HOUR = 86400.0, 3600.0
SMALL = {
    "objective": {"minimise": "time"},
    "hardware": {"systems": ["hgx-h100"]},
    "workload": [
        {
            "name": "learn",
            "stage": "rl",
            "model": "llama-3.1-8b",
            "steps": 100,
            "prompts_per_step": 128,
            "samples_per_prompt": 8,
            "input_tokens": 200,
            "output_tokens": {"mean": 1000, "p95": 2500},
            "colocated": True,
            "layout": {"chips": 16},
            "trainer": {"tp": 1, "pp": 1, "cp": 1, "zero": 3, "recompute": "full", "micro_batch": 4},
            "rollout": {"tp": 1, "pp": 1},
        }
    ],
}


def small(**changes):
    """The figures of the quickest small run held on sixteen chips, with changes to its workload."""
    problem = load_problem({**SMALL, "workload": [{**SMALL["workload"][0], **changes}]})
    workload, catalog = problem.workloads[0], load_catalog()
    models = (
        {"reward_model": load_architecture(workload.values["reward_model"])}
        if workload.values.get("reward_model")
        else {}
    )
    ask = Ask(
        workload,
        stages()["rl"],
        problem,
        catalog,
        load_architecture(workload.model),
        (catalog.system("hgx-h100"),),
        models=models,
    )
    found = search(ask)
    columns = [column for role in found.columns.columns.values() for column in role]
    return figures_of(min(columns, key=lambda column: column.duration), found)


@pytest.fixture(scope="module")
def plans():
    return {
        name: api.solve(load_problem(PROBLEMS / f"{name}.toml"))
        for name in ("rl-reasoning-32b", "rl-reasoning-32b-async")
    }


def test_rl_01_writing_long_answers_takes_most_of_the_chip_time(plans):
    plan = plans["rl-reasoning-32b"]
    assert plan.status == "optimal"
    assert plan.runs[0].end <= 30 * DAY
    made = plan.workloads["reason"]
    totals, pools = made.totals, {pool.role: pool for pool in made.pools}
    assert set(pools) == {"trainer", "rollout", "environment"}
    assert totals["generation_share"] > 0.5  # rl-01
    # pools that take turns stand on the same chips, which are paid once
    assert totals["colocated"] is True
    assert pools["trainer"].chips == pools["rollout"].chips
    bought = {p.system: p for p in plan.purchases}
    assert bought[pools["trainer"].system].chips == pools["trainer"].chips
    price = load_catalog().price(pools["trainer"].system, "on-demand").per_chip_hour
    assert plan.cost.by_kind["rent"] == pytest.approx(
        pools["trainer"].chips * price * totals["wall_time"] / HOUR, rel=0.02
    )
    # the floor: bandwidth of all chips reads weights and caches of the answers; the longest answer alone writes 32768 tokens
    assert totals["generation_time"] > 32768 * 0.010
    # 96 cores of a socket check 8192 answers of 4 core-seconds in 341 s, while answers are written
    assert pools["environment"].predicted["checking_time"] == pytest.approx(
        ANSWERS * 4.0 / (96 * pools["environment"].chips)
    )
    assert totals["checking_time"] == pytest.approx(3.0)
    # counted work of the updates: 6 FLOP a parameter and token, 2 more for the old policy; no chip works above its peak
    work = ANSWERS * (PROMPT + ANSWER) * 8 * 31.2e9
    peak = load_catalog().chip("h100-sxm").peak["bf16"] * pools["trainer"].chips
    assert 0.2 < work / (peak * totals["training_time"]) < 0.7
    assert made.totals["tokens_output"] == pytest.approx(STEPS * ANSWERS * ANSWER)


def test_answers_written_beside_training_use_both_kinds_of_server(plans):
    before, plan = plans["rl-reasoning-32b"], plans["rl-reasoning-32b-async"]
    assert plan.status == "optimal"
    pools = {pool.role: pool for pool in plan.workloads["reason"].pools}
    assert (pools["rollout"].system, pools["trainer"].system) == ("hgx-h200", "hgx-h100")
    assert pools["rollout"].chips <= 4 * 8
    assert plan.cost.total < before.cost.total
    totals = plan.workloads["reason"].totals
    assert totals["step_time"] >= max(totals["generation_time"], totals["training_time"])
    assert totals["step_time"] < totals["generation_time"] + totals["training_time"]


def test_rl_01_turns_with_short_answers():
    totals = small(output_tokens=200)
    assert totals["generation_share"] < 0.5


def test_without_a_limit_the_trainer_holds_the_longest_answer_expected():
    def activations(**changes):
        plan = api.solve(load_problem({**SMALL, "workload": [{**SMALL["workload"][0], **changes}]}))
        pools = plan.workloads["learn"].pools
        return next(pool for pool in pools if pool.name == "trainer").predicted["memory"]["activations"]

    # lognormal of mean 1000 whose 95th percentile is 2500; the longest of 128 x 8 lies at the quantile 2^(-1/1024) in the median
    z = NormalDist().inv_cdf(0.95)
    sigma = z - sqrt(z**2 - 2 * log(2.5))
    longest = 1000 * exp(sigma * NormalDist().inv_cdf(2 ** (-1 / 1024)) - sigma**2 / 2)
    free = activations()
    assert free == pytest.approx(activations(output_limit=longest), rel=2e-3)
    assert free > 1.2 * activations(output_limit=1000)


@pytest.mark.slow
def test_longer_answers_raise_the_share_of_writing():
    shares = [small(output_tokens={"mean": n, "p95": 2.3 * n})["generation_share"] for n in (200, 1000, 4000)]
    assert shares == sorted(shares)
    assert shares[-1] > shares[0] + 0.1


@pytest.mark.slow
def test_a_critic_a_reference_and_a_reward_model_cost_what_they_add():
    plain = small(reference_model=False, old_log_probs=False)
    with_reference = small(reference_model=True, old_log_probs=False)
    # forward and backward are three passes and full recomputation a fourth: a reference adds one more, and no exchange of gradients
    assert 1.1 < with_reference["training_time"] / plain["training_time"] <= 5 / 4 + 0.01
    critic = small(reference_model=False, old_log_probs=False, algorithm="ppo")
    assert 1.8 < critic["training_time"] / plain["training_time"] < 2.4  # as much again, and a pass that reads
    scored = small(
        colocated=False,
        layout={},
        rollout={"chips": 8, "tp": 1},
        trainer={"chips": 8, "zero": 3},
        reward_model="llama-3.1-8b",
        reward={"chips": 8},
    )
    assert scored["scoring_time"] > 0


@pytest.mark.slow
def test_answers_that_go_on_in_the_next_step_leave_no_tail():
    whole, partial = small(), small(partial_rollouts=True)
    assert partial["generation_time"] < whole["generation_time"]
    early = small(early_stop=0.9)
    assert early["generation_time"] < whole["generation_time"]


PORTS = st.floats(0.1, 1e4)


@pytest.fixture(scope="module")
def run():
    role = rl_role(load_architecture("llama-3.1-8b"))
    wanted = [role.figures[name] for name in ("step_time", "generation_share", "wall_time")]
    function = compile_graph(role.graph, wanted)
    leaves = {
        "rl_steps": 10.0, "rl_prompts": 64.0, "rl_samples": 8.0, "rl_answer": 1000.0, "rl_latency": 0.0, "rl_changed": 0.3, "rl_staleness": 1.0,
        "rl_sharded": 1.0, "rl_delta": 0.0, "layers_0_count": 32.0, "trainer_slowdown": 1.02, "trainer_ranks": 8.0, "rollout_ranks": 8.0,
        "engine_sync_start": 2.0, "engine_sync_share": 0.05, "engine_sync_tensor": 2e-4, "engine_sync_root_share": 0.1,
        "engine_sync_root_tensor": 3e-4, "engine_step_overhead": 20.0, "engine_write_share": 0.7,
    }  # fmt: skip

    def evaluate(**given):
        values = (
            leaves
            | {"rollout_through": given["rollout_latency"] / 2, "trainer_turn": given["trainer_time"] + 1.0}
            | given
        )
        found = function(values)
        return [float(found[symbol.name]) for symbol in wanted]

    return evaluate


@settings(max_examples=60, deadline=None)
@given(
    write=PORTS,
    train=PORTS,
    part=st.floats(0.01, 100),
    faster=st.floats(0.0, 1.0),
    k=st.integers(1, 8),
    sharded=st.sampled_from([0.0, 1.0]),
)
def test_what_holds_of_every_run(run, write, train, part, faster, k, sharded):
    """Faster weight transfer never lengthens a run; asynchronous steps are no longer than synchronous ones; more staleness is no slower."""
    ports = {"rollout_latency": write, "trainer_time": train, "rl_colocated": 0.0, "rl_sharded": sharded}
    wires = {"trainer_part": part, "trainer_whole": 8 * part, "rollout_part": part, "rollout_whole": 8 * part}
    quick = {name: value * faster for name, value in wires.items()}
    step = run(**ports, **wires, rl_asynchronous=0.0)[0]
    assert run(**ports, **quick, rl_asynchronous=0.0)[0] <= step
    beside = run(**ports, **wires, rl_asynchronous=1.0, rl_staleness=float(k))[0]
    assert beside <= step
    assert run(**ports, **wires, rl_asynchronous=1.0, rl_staleness=float(k + 1))[0] <= beside
    longer = {**ports, "rollout_latency": 2 * write}
    assert run(**longer, **wires, rl_asynchronous=0.0)[1] >= run(**ports, **wires, rl_asynchronous=0.0)[1]
