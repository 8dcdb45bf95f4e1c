"""The training step against replayed schedules, hand counts and the architecture's own FLOPs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sample_leaves import dense, expert, latent
from schedule_replay import replay
from tokenmill_models.architecture import causal_flops_per_token
from tokenmill_models.checks import dimension_failures, route_failures
from training_samples import definitions, figures, role_of, training_values

LLAMA = dense(4096, 32, 8, 128, 14336, 32, 128256)
MOE = expert(1024, 16, 4, 64, 512, 32, 4, 1024, 9, 1, 1000)
LATENT = latent(2048, 16, 512, 1024, 128, 64, 128, 8192, 8, 1000)
SAMPLES = {"dense": LLAMA, "moe": MOE, "mla": LATENT}


@pytest.mark.parametrize("name", SAMPLES)
def test_model_flops_are_three_forward_passes(name: str) -> None:
    arch = SAMPLES[name]
    found = definitions(arch)
    expected = 3 * 1024 * 4096 * causal_flops_per_token(arch, 4096)
    assert found["step_model_flops"] == pytest.approx(expected, rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 24))
def test_the_pipeline_is_that_of_the_replayed_schedule(p: int, m: int) -> None:
    """Every rank holds 32/p layers, the last the head as well: uneven stages."""
    found = definitions(LLAMA, {"input.global_batch": m}, p=p)
    over = found["stage_exchange"]
    times = [32 / p * found["layer_time"] + over for _ in range(p)]
    times[-1] += found["whole_train_head"]
    expected = replay(p, m, [t / 3 for t in times], [2 * t / 3 for t in times]).time
    assert found["pipeline_time"] == pytest.approx(expected, rel=1e-9)


def test_interleaving_divides_the_bubble() -> None:
    # equal stages: m·T·(1 + (p-1)/(v·m)), Narayanan et al. 2021, section 2.2; the head is left out by a tiny vocabulary
    arch = dense(4096, 32, 8, 128, 14336, 32, 8)
    origins = {"input.global_batch": 16}
    found = definitions(arch, origins, p=4, v=4, q_i=1.0)
    stage = found["stage_time"]
    assert found["pipeline_time"] == pytest.approx(16 * stage * (1 + 3 / (4 * 16)), rel=1e-3)


def test_uneven_layers_leave_the_ends_short() -> None:
    # 126 layers over 16 x 8 virtual stages: eight layers a rank, seven on the first and the last
    arch = dense(1024, 8, 8, 128, 4096, 126, 1000)
    found = definitions(arch, p=16, v=8, q_i=1.0)
    assert (found["layers_inner"], found["layers_outer"]) == (8, 7)


def test_tensor_exchange_is_four_all_reduces_a_layer() -> None:
    # without sequence parallelism: 4 ring all-reduces of s·b·h 16-bit elements, 2 of them in each direction; latency apart
    found = definitions(LLAMA, t=8, sp=0.0)
    volume = 4096 * 4096 * 2
    ring = 2 * 7 / 8 * volume / (450e9 * 0.75) + 2 * 7 * 3e-6
    assert found["tensor_train_0"] == pytest.approx(4 * ring)
    again = definitions(LLAMA, t=8, sp=0.0, r_f=1.0)
    assert again["tensor_train_0"] == pytest.approx(6 * ring)


def test_sequence_parallelism_moves_the_same_bytes() -> None:
    apart, together = (definitions(LLAMA, t=8, sp=flag)["tensor_train_0"] for flag in (1.0, 0.0))
    assert apart == pytest.approx(together)


@pytest.mark.parametrize(("stage", "expected"), [(0, 8), (1, 6), (2, 4 * 16 + 2), (3, 16 * (2 + 2 + 4))])
def test_zero_volumes(stage: int, expected: float) -> None:
    """Bytes a parameter over the wire of 8 ranks (7/8 of each buffer), 16 micro-batches, 32-bit gradients."""
    found = definitions(LLAMA, {"input.global_batch": 128}, d=8, z=stage)
    bandwidth = expected * LLAMA.parameters.total * 7 / 8 / (450e9 * 0.75)
    assert found["data_exchange"] == pytest.approx(bandwidth, rel=1e-3)


def test_exposed_exchange_is_never_negative() -> None:
    assert figures(LLAMA, {"engine.overlap_data": 1.0}, d=8)["share.data"] == 0


@pytest.mark.parametrize("name", SAMPLES)
def test_time_shares_sum_to_the_step(name: str) -> None:
    found = figures(SAMPLES[name], t=2, p=2, d=8, c=2, z=3, r_f=1.0)
    total = sum(value for key, value in found.items() if key.startswith("share."))
    assert total == pytest.approx(found["step_time"])


def test_full_recomputation_executes_a_third_more() -> None:
    arch = dense(4096, 32, 32, 128, 16384, 32, 8)
    plain, full = figures(arch)["hfu"], figures(arch, r_f=1.0)
    assert full["hfu"] * full["step_time"] / (plain * figures(arch)["step_time"]) == pytest.approx(4 / 3, rel=0.02)
    assert full["mfu"] < figures(arch)["mfu"]


def test_an_mfu_laid_down_replaces_the_prediction() -> None:
    found = figures(LLAMA, {"assume.mfu": 0.4}, d=8)
    assert found["mfu"] == pytest.approx(0.4)


def test_zero_bubble_and_dualpipe_shorten_the_pipeline() -> None:
    origins = {"input.global_batch": 64}
    plain, zb, dual = (
        definitions(LLAMA, origins, p=8, q_z=z, q_d=d)["bubble"] for z, d in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
    )
    assert zb < plain
    assert dual < plain


def test_the_fullest_expert_rank_sets_the_pace() -> None:
    even, skewed = (figures(MOE, {"input.expert_load": load}, e=8, d=16)["step_time"] for load in (1.0, 1.5))
    assert skewed > even


@pytest.mark.parametrize("name", SAMPLES)
def test_definitions_pass_rescaling_and_two_routes(name: str) -> None:
    arch = SAMPLES[name]
    values = training_values(arch, t=2, p=2, v=2, q_i=1.0, d=8, c=2, z=2, r_s=1.0, o_o=1.0, k_a=1.0, e=1)
    graph = role_of(arch).graph
    outputs = list(graph.formulas)
    assert dimension_failures(graph, values, outputs) == []
    assert route_failures(graph, values, outputs) == []
