"""The roles of serving: dimensions, two routes, and what hand calculation says of simple cases."""

import math
from functools import cache

import numpy as np
import pytest

from sample_leaves import IDEAL, arch_value, dense, expert, latent
from serving_samples import ENGINE, evaluate, serving_values
from tokenmill_models.checks import dimension_failures, route_failures
from tokenmill_models.serving import STAGE, roles
from tokenmill_models.symbols import quantity

SMALL = dense(2048, 16, 4, 128, 8192, 24, 32000)
MOE = expert(1024, 8, 4, 128, 512, 32, 4, 512, 12, 1, 32000)
LATENT = latent(1024, 8, 256, 384, 64, 32, 64, 4096, 12, 32000)
SHAPES = {"dense": SMALL, "experts": MOE, "latent": LATENT}
PLAIN = {origin.replace(".", "__"): value for origin, value in {**IDEAL}.items() if "[" not in origin}
SKEWED = {"request__input_tokens__p95": 3000.0, "request__input_tokens__cv": 0.9, "request__output_tokens__cv": 0.8,
          "request__output_tokens__p95": 600.0, "axis__tp": 4.0, "axis__pp": 3.0, "axis__ep": 2.0, "axis__batch": 37.0,
          "axis__attention_dp": 2.0, "input__demand__prefix_cache_hit": 0.25}  # fmt: skip


@cache
def built(shape):
    return {role.name: role for role in roles(SHAPES[shape])}


def role_of(arch, name):
    return built(next(shape for shape in SHAPES if SHAPES[shape] is arch))[name]


@pytest.mark.parametrize("name", ["mixed", "prefill", "decode"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("given", [{}, SKEWED, {"axis__chunk": 64.0, "input__demand__arrivals__concurrency": 16.0}])
def test_every_definition_has_its_dimension_and_two_routes_agree(name, shape, given):
    arch = SHAPES[shape]
    role = role_of(arch, name)
    values = serving_values(role, arch, **given, **{k.replace(".", "__"): v for k, v in ENGINE.items()})
    assert dimension_failures(role.graph, values) == []
    assert route_failures(role.graph, values) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_leaves_and_names_are_those_of_the_contract(shape):
    prefixes = {
        "axis",
        "draft",
        "input",
        "request",
        "arch",
        "chip",
        "precision",
        "group",
        "system",
        "engine",
        "assume",
        "constant",
    }
    inputs = {item.name for item in STAGE.inputs}
    for role in built(shape).values():
        axes = {axis.name for axis in role.axes}
        _, leaves = role.graph.needs(list(role.graph.formulas))
        for symbol in leaves:
            prefix, _, path = quantity(symbol).origin.partition(".")
            assert prefix in prefixes
            if prefix == "axis":
                assert path in axes
            if prefix == "input":
                assert path in inputs
        assert {"ranks", "rate", "power_idle", "power_loaded"} <= set(role.ports)
        assert role.axes[-1].operate
        assert {axis.name for axis in role.axes} <= {axis.name for axis in STAGE.axes}


def test_decode_reads_weights_and_cache_once():
    """At ideal shares the step is what must be read over the bandwidth; activations and norms add under 3%."""
    step = evaluate(role_of(SMALL, "decode"), SMALL, **PLAIN, axis__batch=8.0)["step_time"]
    context = 1000 + 201 / 2
    must = 2 * SMALL.matmul_parameters_active + 8 * context * 2 * 24 * 4 * 128 * 2
    assert 1.0 <= step / (must / 3e12) < 1.03


def test_rate_follows_from_the_step():
    found = evaluate(role_of(SMALL, "decode"), SMALL, axis__batch=8.0)
    assert found["rate"] == pytest.approx(8 / (200 * found["step_time"]))
    assert found["tokens_per_second"] == pytest.approx(found["rate"] * 201)


@pytest.mark.parametrize("given", [{}, {"request__input_tokens": 200.0, "request__output_tokens": 2001.0},
                                   {"axis__batch": 64.0, "axis__chunk": 512.0, "request__output_tokens": 2001.0}])  # fmt: skip
def test_slots_and_tokens_balance(given):
    """Little's law holds on the slots, and chunks carry exactly the prompts of the requests that pass."""
    found = evaluate(role_of(SMALL, "mixed"), SMALL, **given)
    slots = given.get("axis__batch", 16.0)
    assert found["decoding"] < found["prefill_budget"] * found["decode_steps"] / found["prompt_computed"]
    assert found["decoding"] + found["rate"] * found["prompt_time"] == pytest.approx(slots)
    chunks_a_second = found["full_share"] / found["step_time"]
    assert chunks_a_second * found["prefill_carried"] == pytest.approx(found["rate"] * found["prompt_computed"])


def test_prompts_saturate_a_replica():
    """With long prompts and short answers the token budget rules: a step never carries more than the chunk."""
    found = evaluate(
        role_of(SMALL, "mixed"), SMALL, request__input_tokens=8000.0, request__output_tokens=5.0, axis__batch=64.0
    )
    carried = found["rate"] * found["prompt_computed"] * found["step_time"]
    assert carried <= 2048 - 64 + 1e-6
    assert carried == pytest.approx(2048 - 64)


def test_a_closed_loop_keeps_its_number_in_flight():
    """In a closed loop rate times the time of a request is the number of clients, but for the step that runs at arrival."""
    found = evaluate(
        role_of(SMALL, "mixed"), SMALL, input__demand__arrivals__concurrency=16.0, request__output_tokens=2001.0
    )
    assert found["in_flight"] == pytest.approx(16.0, rel=0.01)


def test_first_token_of_an_idle_replica_is_the_prompt_alone():
    found = evaluate(role_of(SMALL, "mixed"), SMALL, axis__batch=1.0)
    own = found["T_full"]
    assert own <= found["ttft_mean"] < own + 2 * found["T_plain"] + found["W_prompt_before_mean"] + found["W_slot_mean"]


def test_gaps_between_tokens_follow_the_share_of_chunks():
    often = evaluate(role_of(SMALL, "mixed"), SMALL)
    assert often["full_share"] > 0.05
    assert often["itl_p95"] == pytest.approx(often["T_full"])
    rare = evaluate(role_of(SMALL, "mixed"), SMALL, request__output_tokens=20001.0, axis__batch=1.0)
    assert rare["full_share"] < 0.01
    assert rare["itl_p99"] == pytest.approx(rare["T_plain"])
    assert rare["T_plain"] <= rare["tpot_mean"] <= rare["T_full"]


def test_percentiles_of_a_request_s_mean_token_time_are_those_of_random_runs():
    """Draw the runs of full steps that requests meet, and compare their mean token times with the closed form."""
    found = evaluate(role_of(SMALL, "mixed"), SMALL)
    steps, share = found["decode_steps"], found["full_share"]
    run = max(1.0, found["prompt_computed"] / found["prefill_carried"])
    generator = np.random.default_rng(1)
    runs = generator.poisson(steps * share / run, size=200_000)
    drawn = found["T_plain"] + (found["T_full"] - found["T_plain"]) * runs * run / steps
    for word, level in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert found[f"tpot_{word}"] == pytest.approx(np.quantile(drawn, level), rel=0.1)


def test_prefill_waits_as_a_single_server():
    """Fixed prompts, Poisson arrivals: M/D/1 at 0.7 waits 0.7/0.3/2 services, and passes 0.7 of a prompt a service."""
    found = evaluate(role_of(SMALL, "prefill"), SMALL)
    service = found["prompt_service"]
    assert service == pytest.approx(found["T_prompt"])
    assert found["W_prompt_mean"] == pytest.approx(0.7 / 0.3 / 2 * service)
    assert found["rate"] == pytest.approx(0.7 / service)
    assert found["ttft_mean"] == pytest.approx(found["W_prompt_mean"] + service)


def test_prompt_cache_travels_whole():
    found = evaluate(role_of(SMALL, "prefill"), SMALL, axis__tp=4.0)
    assert found["kv_request"] == 1000 * 2 * 24 * 4 * 128 * 2


@pytest.mark.parametrize("shape", SHAPES)
def test_one_rank_holds_every_parameter(shape):
    arch = SHAPES[shape]
    found = evaluate(role_of(arch, "decode"), arch)
    assert found["memory_weights"] == pytest.approx(2 * arch.parameters.total, rel=1e-12)


def test_ranks_share_the_parameters():
    """Eight ranks hold all experts once and the tensor-cut matrices once; norms and routers eight times."""
    found = evaluate(role_of(MOE, "decode"), MOE, axis__tp=8.0, axis__ep=8.0)
    total = 2 * MOE.parameters.total
    whole = 2 * sum(
        k.count * (k.norm_parameters + (k.mlp.router.parameters if k.mlp.router else 0)) for k in MOE.layers
    )
    replicated = 2 * MOE.other_parameters + whole
    kv = sum(2 * k.count * arch_value(MOE, f"layers.{i}.mixer.matrices.{m}.parameters")
             for i, k in enumerate(MOE.layers) for m in ("k", "v"))  # fmt: skip
    # four KV heads on eight ranks: each twice
    assert 8 * found["memory_weights"] == pytest.approx(total + 7 * replicated + kv, rel=1e-12)


def test_largest_batch_by_counting():
    found = evaluate(role_of(SMALL, "mixed"), SMALL)
    room = 80e9 * 0.9 - found["memory_weights"] - found["memory_activations"] - 1e9
    sequence = (1000 + 201 / 2 + 8) * 2 * 24 * 4 * 128 * 2
    count = 0
    while (count + 1) * sequence <= room:
        count += 1
    assert found["max_batch"] == count
    assert found["kv_tokens"] == math.floor(room / (2 * 24 * 4 * 128 * 2))


def test_held_kv_memory_rules():
    found = evaluate(role_of(SMALL, "mixed"), SMALL, input__engine__kv_memory=4e9)
    assert found["kv_room"] == 4e9
    assert found["kv_tokens"] == math.floor(4e9 / (2 * 24 * 4 * 128 * 2))


def test_kv_heads_are_replicated_beyond_their_number():
    four, eight = (evaluate(role_of(SMALL, "decode"), SMALL, axis__tp=t)["kv_sequence"] for t in (4.0, 8.0))
    assert four == eight


def test_stages_split_layers_and_wait_for_the_one_with_the_output_head():
    """Two stages of half the layers each: both take the time of the one that also has the head, so the head counts twice."""
    one, two = (evaluate(role_of(SMALL, "decode"), SMALL, axis__pp=p, axis__batch=8.0 * p) for p in (1.0, 2.0))
    assert two["kv_sequence"] == one["kv_sequence"] / 2
    slowest = one["step_time"] + one["time_plain_head"]
    assert slowest <= two["step_time"] < 1.01 * slowest
    assert two["rate"] == pytest.approx(2 * one["rate"] * one["step_time"] / two["step_time"], rel=0.01)


def test_a_last_stage_with_a_layer_less_hides_the_output_head():
    """24 layers on 5 stages: four of five and one of four; the head takes less time than the layer that the last stage lacks."""
    one, five = (evaluate(role_of(SMALL, "decode"), SMALL, axis__pp=p, axis__batch=8.0 * p) for p in (1.0, 5.0))
    layers = one["step_time"] - one["time_plain_head"]
    head = max(one["time_plain_head"], 5 * (one["time_plain_head"] - layers / 24))
    assert five["step_time"] == pytest.approx(layers * 25 / 24 + head, rel=0.01)


def test_graph_launch_is_faster_than_eager():
    engine = {k.replace(".", "__"): v for k, v in ENGINE.items()}
    captured, eager = (
        evaluate(role_of(SMALL, "decode"), SMALL, **engine, input__engine__graph=g)["step_time"] for g in (1.0, 0.0)
    )
    work = captured - 1e-3 - 24 * 3e-5
    # the host runs ahead of the device: a step takes the longer of the two, and what is paid once
    assert eager == pytest.approx(2e-3 + max(work, 24 * 2e-4))


def test_halves_of_a_batch_hide_each_other_s_exchange():
    """Work and exchange take the longer of the two; the weights, which bound this small batch, are read by both halves."""
    role = built("experts")["decode"]
    laid = {"axis__attention_dp": 2.0, "axis__ep": 2.0, "axis__batch": 16.0}
    plain, halved = (evaluate(role, MOE, **laid, input__engine__two_batches=on) for on in (0.0, 1.0))
    work = plain["compute_bound_plain"] + plain["memory_bound_plain"]
    weights = sum(
        arch_value(MOE, f"layers.{i}.count") * plain[f"weights_read_plain_{i}"] for i in range(len(MOE.layers))
    )
    twice = work + min(weights / 3e12, plain["memory_bound_plain"])
    assert plain["experts_plain"] > 0
    assert halved["step_time"] == pytest.approx(
        plain["step_time"] - work - plain["experts_plain"] + max(twice, plain["experts_plain"])
    )


def test_shares_sum_to_the_step():
    for role in built("experts").values():
        found = evaluate(role, MOE, **{k.replace(".", "__"): v for k, v in ENGINE.items()}, axis__tp=2.0, axis__ep=2.0)
        parts = sum(found[symbol.name] for symbol in role.shares.values())
        # a prefill replica works 0.7 of the time: the rest of it is the wait between passes
        assert parts == pytest.approx(found["step_time"] / (0.7 if role.name == "prefill" else 1.0))


def test_a_laid_down_utilisation_rules():
    """At an MFU of 0.08 a step takes its counted work over 0.08 of the peak, whatever else is predicted."""
    found = evaluate(role_of(SMALL, "decode"), SMALL, assume__mfu=0.08)
    assert found["mfu"] == pytest.approx(0.08)
    attention = 2 * 24 * 16 * 256 * (1000 + 201 / 2)
    assert found["step_time"] == pytest.approx(16 * (2 * SMALL.matmul_parameters_active + attention) / (0.08 * 1e15))


@pytest.mark.parametrize("cached", [0.0, 0.4])
def test_long_prompts_hold_more_of_the_tokens_than_of_the_prompts(cached):
    # two prompts, computed to 400 and to 2800 tokens: each token sees those before it, half of itself, and what is cached
    computed = (400, 2800)
    mean = sum(computed) / 2
    held = mean * cached / (1 - cached)
    seen = sum(held + place + 0.5 for length in computed for place in range(length)) / sum(computed)
    found = evaluate(
        role_of(SMALL, "prefill"), SMALL, **PLAIN, request__input_tokens=mean + held, request__input_tokens__cv=1200 / mean,
        input__demand__prefix_cache_hit=cached,
    )  # fmt: skip
    assert found["prompt_keys"] == pytest.approx(seen, rel=1e-9)
