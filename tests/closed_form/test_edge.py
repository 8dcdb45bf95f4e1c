"""Devices of users against hand calculations: bytes a token, memory, power, battery, layers split or left to the host."""

import json
from functools import cache
from itertools import pairwise

import pytest

from tokenmill import api, data
from tokenmill.catalog import load_catalog
from tokenmill.efficiency import chip_constant
from tokenmill.reading import load_problem

# Llama 3.1 8B: 32 layers, width 4096, 8 key/value heads of 128, vocabulary 128256, head of its own
PARAMETERS = 8_030_261_248
EMBEDDING = 128_256 * 4096
KV_BYTES = 2 * 32 * 8 * 128 * 2
GIB = 2**30


@cache
def _solved(text):
    return api.solve(load_problem(text))


def plan_of(device, model="llama-3.1-8b", weights="fp16", more="", assume="", tables=""):
    text = f"""
[assume]
efficiency = "{assume or "calibrated"}"
[[workload]]
name = "w"
stage = "edge"
model = "{model}"
devices = "{device}"
{more}
[workload.precision]
weights = "{weights}"
{tables}
"""
    return _solved(text)


def predicted(*args, **named):
    return plan_of(*args, **named).workloads["w"].pools[0].predicted


def test_ideal_answers_come_at_bandwidth_over_bytes_a_token():
    found = predicted("apple-m2-ultra", more="input_tokens = 1000\noutput_tokens = 2", assume="ideal")
    bandwidth = load_catalog().chip("apple-m2-ultra").bandwidth
    read = 2 * (PARAMETERS - EMBEDDING) + 1001 * KV_BYTES
    assert found["tokens_per_second"] == pytest.approx(bandwidth / read, rel=0.005)
    assert found["mbu"] == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(("flash", "share"), [(True, "device_flash_share"), (False, "device_cache_share")])
def test_reads_of_the_cache_reach_what_their_kernels_reach(flash, share):
    # ten thousand cached tokens more are ten thousand tokens' keys and values more to read for each answer token
    times = []
    for past in (2000, 12000):
        more = f"past_tokens = {past}\ninput_tokens = 1\nkernels = {{ flash_attention = {str(flash).lower()} }}"
        times.append(1 / predicted("rtx-3090", weights="q4_k_m", more=more)["tokens_per_second"])
    reached = chip_constant(load_catalog(), "rtx-3090", share, "").value
    expected = 10000 * KV_BYTES / (reached * load_catalog().chip("rtx-3090").bandwidth)
    assert times[1] - times[0] == pytest.approx(expected, rel=1e-3)


def test_ideal_prompts_take_two_flop_a_parameter_at_peak():
    found = predicted("apple-m2-ultra", more="input_tokens = 2048\noutput_tokens = 1", assume="ideal")
    peak = load_catalog().chip("apple-m2-ultra").peak["fp16"]
    body = PARAMETERS - 2 * EMBEDDING
    attention = 32 * 2 * 32 * 2 * 128 * 2048 / 2
    assert found["ttft"]["mean"] == pytest.approx(2048 * (2 * body + attention) / peak, rel=0.03)


# sizes of published files
@pytest.mark.parametrize(
    ("model", "weights", "gib"),
    [
        ("llama-3.1-8b", "q4_k_m", 4.58),
        ("llama-3.1-8b", "fp16", 14.96),
        ("llama-3.1-70b", "q4_k_m", 39.59),
        ("llama-3.1-70b", "fp16", 131.42),
        ("llama-3.2-3b", "q4_k_m", 1.88),
        ("llama-3.2-1b", "q4_k_m", 0.752),
        ("llama-2-7b", "q4_0", 3.56),
        ("llama-2-7b", "q8_0", 6.67),
    ],
)
def test_weights_take_the_size_of_the_published_file(model, weights, gib):
    found = predicted("apple-m3-ultra", model=model, weights=weights)
    assert found["memory"]["weights"] / GIB == pytest.approx(gib, rel=0.015)


def test_the_cache_has_room_for_the_context_that_is_asked():
    found = predicted("apple-m4-max", more="context = 8192")
    assert found["memory"]["kv"] == pytest.approx(8192 * KV_BYTES)
    assert found["memory"]["total"] < found["memory"]["usable"] <= found["memory"]["capacity"]


def test_energy_and_battery_follow_from_power_and_rate():
    more = 'tokens_per_day = 20000\nbattery = "19 Wh"\npower = "5 W"\nunits = 1000'
    plan = plan_of("snapdragon-8-elite", model="llama-3.2-3b", weights="q4_k_m", more=more)
    found = plan.workloads["w"].pools[0].predicted
    assert found["power"] <= 5.0
    assert found["energy_per_token"] == pytest.approx(found["power"] / found["tokens_per_second"])
    assert found["tokens_per_charge"] == pytest.approx(19 * 3600 / found["energy_per_token"])
    assert found["battery_share_per_day"] == pytest.approx(20000 / found["tokens_per_charge"])
    # the energy of the tokens is all that users' own devices cost: at 8 cents a kilowatt-hour, without a building around them
    year = 1000 * 365 * 20000 * found["energy_per_token"] / 3.6e6 * 0.08
    assert plan.cost.total == pytest.approx(year, rel=1e-6)
    assert plan.cost.per["device"] == pytest.approx(year / 1000, rel=1e-6)
    assert plan.workloads["w"].pools[0].replicas == 1000


def test_less_power_slows_prompts_and_answers_and_never_draws_more():
    slower = [predicted("apple-m4", weights="q4_k_m", more=f'power = "{watts} W"') for watts in (22, 16, 10, 6)]
    for more, less in pairwise(slower):
        assert less["tokens_per_second"] <= more["tokens_per_second"]
        assert less["ttft"]["mean"] > more["ttft"]["mean"]
        assert less["clock"] < more["clock"]
    assert [one["power"] <= cap for one, cap in zip(slower, (22, 16, 10, 6), strict=True)] == [True] * 4


def test_two_cards_hold_half_each_and_answer_no_faster():
    one = predicted("rtx-4090", more="context = 2048")
    two = predicted("rtx-4090", more="context = 2048", tables="[workload.layout]\npp = 2")
    assert two["memory"]["weights"] == pytest.approx(one["memory"]["weights"] / 2, rel=0.05)
    assert 0.9 * one["tokens_per_second"] < two["tokens_per_second"] < one["tokens_per_second"]
    long = "input_tokens = 4096\ncontext = 8192"
    pair = predicted("rtx-4090", more=long, tables="[workload.layout]\npp = 2")["ttft"]["mean"]
    assert pair < 0.6 * predicted("rtx-4090", more=long)["ttft"]["mean"]


def test_more_cards_than_chunks_in_flight_read_a_prompt_no_faster():
    # sixteen chunks over n cards of which four work: (16 + 4 - 1) / (16 x 4) of one card's time, and a hand-over more a card
    long = "input_tokens = 8192\ncontext = 8400"
    four, eight = (
        predicted("rtx-4090", more=long, tables=f"[workload.layout]\npp = {n}")["ttft"]["mean"] for n in (4, 8)
    )
    one = predicted("rtx-4090", more=long)["ttft"]["mean"]
    assert four == pytest.approx(one * 19 / 64, rel=0.01)
    assert eight == pytest.approx(four, abs=4 * 0.2e-3 + 1e-9)


def test_mixing_of_residual_streams_starts_kernels_of_its_own(tmp_path):
    # 43 layers x 20 rounds x (sum and division, along rows and columns, around attention and MLP) over 25 kernels of a plain layer
    shipped = json.loads((data.path("catalog") / "architectures" / "deepseek-ai__DeepSeek-V4-Flash.json").read_text())
    times = []
    for rounds in (shipped["hc_sinkhorn_iters"], 0):
        path = tmp_path / f"rounds-{rounds}.json"
        path.write_text(json.dumps({**shipped, "hc_sinkhorn_iters": rounds}))
        times.append(1 / predicted("apple-m3-ultra", model=str(path), weights="iq2_xxs")["tokens_per_second"])
    layer = chip_constant(load_catalog(), "apple-m3-ultra", "device_layer", "").value
    assert shipped["hc_sinkhorn_iters"] == 20
    assert times[0] - times[1] == pytest.approx(43 * 20 * 8 / 25 * layer, rel=1e-6)


def test_what_does_not_fit_names_memory_and_the_hosts_memory_cures_it():
    plan = plan_of("rtx-3080", more="context = 4096")
    assert plan.status == "infeasible"
    (short,) = plan.infeasible
    assert "memory" in short.limit
    needed = 2 * (PARAMETERS - EMBEDDING) + 4096 * KV_BYTES
    assert short.shortfall == pytest.approx(needed - 0.975 * 10 * GIB, rel=0.12)
    host = predicted("rtx-3080", more="context = 4096", tables="[workload.layout]\nhost_layers = 16")
    body = 2 * (PARAMETERS - 2 * EMBEDDING)
    assert host["memory"]["host"] == pytest.approx(body / 2, rel=0.001)
    # half of the layers at the host's 60 GB/s leave no more than this
    assert host["tokens_per_second"] < 60e9 / (body / 2)
    assert host["tokens_per_second"] == pytest.approx(1 / (body / 2 / 60e9 + 8.0e9 / 700e9), rel=0.1)


def test_the_least_rate_and_the_days_length_are_limits():
    slow = plan_of("apple-a18-pro", model="llama-3.2-3b", weights="q4_k_m", more="min_tokens_per_second = 200")
    assert slow.status == "infeasible"
    assert any("rate" in reason.limit for reason in slow.infeasible)
    busy = plan_of("apple-a18-pro", model="llama-3.2-3b", weights="q4_k_m", more="tokens_per_day = 5e6")
    assert busy.status == "infeasible"
    crowded = plan_of("apple-m4", weights="q4_k_m", more="context = 1000\ninput_tokens = 900\noutput_tokens = 200")
    assert crowded.status == "infeasible"


@pytest.mark.parametrize(
    ("device", "model", "watts"),
    [
        ("snapdragon-8-elite", "llama-3.2-3b", "5 W"),
        ("apple-m4", "llama-3.1-8b", "20 W"),
        ("jetson-agx-orin-64gb", "llama-3.1-8b", "50 W"),
        ("drive-thor", "llama-3.1-8b", "130 W"),
    ],
)
def test_from_phone_to_car_bandwidth_decides_speed_and_capacity_the_model(device, model, watts):
    """Reference figure ed-01: devices at 5 to 130 W; decode is bound by bandwidth, the size of the model by capacity."""
    plan = plan_of(device, model=model, weights="q4_k_m", more=f'power = "{watts}"')
    assert plan.workloads["w"].bottleneck.resource == "memory_bandwidth"
    too_large = plan_of(device, model="llama-3.1-405b", weights="q4_k_m", more=f'power = "{watts}"')
    assert too_large.status == "infeasible"
    assert "memory" in too_large.infeasible[0].limit


def test_priced_devices_are_bought_and_written_off():
    text = """
[hardware]
markets = ["buy"]
[[hardware.price]]
system = "apple-m4-pro"
market = "buy"
purchase = "$2000"
[[workload]]
name = "w"
stage = "edge"
model = "llama-3.1-8b"
devices = "apple-m4-pro"
tokens_per_day = 1000
units = 50
[workload.precision]
weights = "q4_k_m"
"""
    plan = _solved(text)
    # $2000 written off over five years, without interest, one year of it planned
    assert plan.cost.by_kind["capital"] == pytest.approx(50 * 2000 / 5)
    assert plan.purchases[0].count == 50


def test_users_devices_do_nobody_elses_work():
    text = """
[hardware]
systems = ["hgx-h100"]
[[workload]]
name = "phones"
stage = "edge"
model = "llama-3.2-1b"
devices = "apple-a18-pro"
tokens_per_day = 1000
units = 10
[workload.precision]
weights = "q4_k_m"
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
[workload.demand]
requests_per_second = 1
input_tokens = 100
output_tokens = 100
"""
    plan = _solved(text)
    assert {pool.system for pool in plan.workloads["chat"].pools} == {"hgx-h100"}
    assert {pool.system for pool in plan.workloads["phones"].pools} == {"apple-a18-pro"}
    assert {p.system: p.count for p in plan.purchases}["apple-a18-pro"] == 10
