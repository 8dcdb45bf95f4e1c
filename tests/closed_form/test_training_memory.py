"""Memory of training against the published closed forms."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sample_leaves import dense, expert
from schedule_replay import replay
from tokenmill_models.architecture import Architecture
from training_samples import definition, definitions, figures, role_of


def classic(h: int, heads: int, layers: int = 4, vocabulary: int = 1024) -> Architecture:
    """Multi-head attention and an MLP of 4h without gate."""
    return dense(h, heads, heads, h // heads, 4 * h, layers, vocabulary, gated=False)


OLD = {"input.kernels.flash_attention": 0, "input.kernels.dropout": 1}
SHAPES = (st.sampled_from([1, 2, 4, 8]), st.sampled_from([8, 16, 32]), st.sampled_from([64, 128]), st.integers(1, 8),
          st.sampled_from([512, 1024, 2048]))  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(*SHAPES)
def test_activations_reduce_to_korthikanti(t: int, a: int, d: int, b: int, s: int) -> None:
    # arXiv:2205.05198, table 2; heads keep a log-sum only with flash attention
    h = a * d
    arch, old = classic(h, a), {**OLD, "input.sequence_length": s}
    plain = definition(arch, "kept_layer", old, t=t, b=b, sp=0.0)
    assert plain == pytest.approx(s * b * h * (10 + 24 / t + 5 * a * s / (h * t)), rel=1e-12)
    selective = definition(arch, "kept_layer", old, t=t, b=b, sp=1.0, r_s=1.0)
    assert selective == pytest.approx(s * b * h * 34 / t, rel=1e-12)
    full = definition(arch, "kept_layer", old, t=t, b=b, sp=0.0, r_f=1.0)
    assert full == pytest.approx(2 * s * b * h, rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([1, 2, 3, 4, 8]), st.integers(1, 20))
def test_micro_batches_in_flight_are_those_of_the_replayed_schedule(p: int, m: int) -> None:
    arch, origins = classic(512, 8, layers=32), {"input.global_batch": m}
    found = definitions(arch, origins, p=p)
    # a forward chunk of 1 and a backward of 2 time units on each rank
    most = replay(p, m, [1.0] * p, [2.0] * p).in_flight
    assert found["in_flight_first"] == most[0]
    assert found["in_flight_last"] == most[-1]


def test_interleaving_holds_more_in_flight() -> None:
    # Megatron-LM's warm-up: 2(p-i-1) + (v-1)p chunks, and the one that runs: 4 ranks of 2 chunks hold 11 halves
    found = definitions(classic(512, 8, layers=32), {"input.global_batch": 16}, p=4, v=2, q_i=1.0)
    assert found["in_flight_first"] == (2 * 3 + 4 + 1) / 2
    assert found["in_flight_last"] == (0 + 4 + 1) / 2


LLAMA = dense(4096, 32, 8, 128, 14336, 32, 128256)


def test_states_take_eighteen_bytes_a_parameter() -> None:
    # bf16 weights 2, 32-bit gradients 4, Adam 12 (ZeRO, section 3.1, with gradients accumulated in 32 bits)
    found = figures(LLAMA, {"input.global_batch": 4})
    count = LLAMA.parameters.total
    assert found["memory.weights"] == pytest.approx(2 * count)
    assert found["memory.gradients"] == pytest.approx(4 * count)
    assert found["memory.optimizer"] == pytest.approx(12 * count)


@pytest.mark.parametrize(("stage", "expected"), [(0, 18.0), (1, 6 + 12 / 64), (2, 2 + 16 / 64), (3, 18 / 64)])
def test_zero_shards_states_over_data_ranks(stage: int, expected: float) -> None:
    found = figures(LLAMA, d=64, z=stage)
    states = found["memory.weights"] + found["memory.gradients"] + found["memory.optimizer"]
    assert states == pytest.approx(expected * LLAMA.parameters.total)


def test_hybrid_sharding_shards_over_its_group_alone() -> None:
    found = figures(LLAMA, d=64, z=3, shard=8)
    assert found["memory.optimizer"] == pytest.approx(12 * LLAMA.parameters.total / 8)


def test_tensor_and_pipeline_ranks_share_the_parameters() -> None:
    found = figures(LLAMA, t=8, p=4, z=0)
    layer_elements = (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) / 8 + 2 * 4096
    # the fullest rank is the first: 8 layers, the embedding, and the most micro-batches in flight
    assert found["memory.weights"] == pytest.approx(2 * (8 * layer_elements + 128256 * 4096 / 8), rel=1e-12)


MOE = expert(1024, 16, 4, 64, 512, 32, 4, 1024, 8, 0, 1000)


def test_expert_states_are_divided_once() -> None:
    """Over t_e·p·e ranks, then over n/(t_e·p·e) under ZeRO: over all ranks of a stage in the end."""
    one = 3 * 1024 * 512 * 32 * 8
    whole = figures(MOE, z=0)["memory.optimizer"] / 12
    assert whole == pytest.approx(MOE.parameters.total)
    spread = definition(MOE, "expert_elements_rank", e=8, d=16)
    assert spread == pytest.approx(one / 8)
    zero = figures(MOE, e=8, d=16, z=1)["memory.optimizer"] / 12
    assert zero == pytest.approx(one / 16 + (MOE.parameters.total - one) / 16)


def test_latent_and_gated_layers_keep_every_product() -> None:
    # gated MLP of 14336 with 8 key/value heads, flash: inputs and outputs of products, a 32-bit log-sum a head
    tokens = 4096
    elements = 4 * 4096 + (4096 + 2 * 1024) + 4096 + 2 * 14336 + 14336
    assert definition(LLAMA, "kept_layer") == pytest.approx(tokens * (2 * elements + 32 * 4))


def test_offload_leaves_the_states_on_the_host() -> None:
    kept, moved = figures(LLAMA), figures(LLAMA, o_o=1.0)
    assert moved["memory.optimizer"] == 0
    assert moved["memory.total"] < kept["memory.total"]
    # gradients out and weights back over the host link: (4 + 2) B a parameter at 50e9 B/s; then the host reads and writes
    # its states (24), reads the gradient and writes the weight: 30 B a parameter at 40e9 B/s
    assert moved["share.host"] == pytest.approx((6 / 5e10 + 30 / 4e10) * LLAMA.parameters.total)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([1, 2, 4]), st.sampled_from([8, 16, 32]), st.sampled_from([1, 2, 4]), st.integers(1, 4),
       st.sampled_from([512, 2048]), *[st.booleans()] * 3)  # fmt: skip
def test_activations_of_any_layer_are_the_published_tensors(
    t: int, a: int, shared: int, b: int, s: int, split: bool, flash: bool, dropout: bool
) -> None:
    """arXiv:2205.05198, section 4.1, with fewer key/value heads: of each norm input and output (2 + 2 B), a mask (1); queries and
    attention output 2 + 2, keys and values 2 + 2 a group, the MLP 16; scores, or a 32-bit log-sum a head with flash attention."""
    h, groups = 64 * a, max(a // shared, t)  # every rank has a key/value head of its own
    arch = dense(h, a, groups, 64, 4 * h, 4, 1024, gated=False)
    origins = {"input.kernels.flash_attention": flash, "input.kernels.dropout": dropout, "input.sequence_length": s}
    outside = 2 * h * (2 + 2 + dropout) / (t if split else 1)
    inside = h * (4 + 4 * groups / a + 16) / t
    core = a / t * (4 if flash else s * (2 + 3 * dropout))
    found = definition(arch, "kept_layer", origins, t=t, b=b, sp=float(split))
    assert found == pytest.approx(s * b * (outside + inside + core), rel=1e-12)


def test_mixed_precision_takes_sixteen_bytes_a_parameter() -> None:
    # Rajbhandari et al. 2020, ZeRO, section 3.1: weights 2, gradients 2, Adam 12; nothing else grows with the parameters alone
    found = figures(LLAMA, {"precision.bytes[gradients]": 2.0, "input.global_batch": 4})
    states = found["memory.weights"] + found["memory.gradients"] + found["memory.optimizer"]
    assert states == pytest.approx(16 * LLAMA.parameters.total)


@pytest.mark.parametrize(
    ("word", "by_hand"),
    [
        ("adam", 4 + 4 + 4),  # master copy and two moments in 32 bits
        ("adam-bf16", 4 + 2 + 2),  # master copy, two moments in 16 bits
        ("adam-8bit", 4 + 1 + 1),  # master copy, two moments in 8 bits
        ("adam-16bit", 2 + 2),  # two moments in 16 bits, no master copy
        ("adafactor", 4),  # master copy; moments of rows and columns vanish beside it
        ("muon", 4 + 4),  # master copy and one momentum
    ],
)
def test_an_optimiser_keeps_its_states(word: str, by_hand: float) -> None:
    codes = next(axis for axis in role_of(LLAMA).axes if axis.name == "optimizer").codes[word]
    chosen = {symbol.name: value for symbol, value in codes.items()}
    assert figures(LLAMA, **chosen)["memory.optimizer"] == pytest.approx(by_hand * LLAMA.parameters.total)


@pytest.mark.parametrize(("weights", "states"), [(1.0, 12.0), (2.0, 12.0), (4.0, 8.0)])
def test_weights_of_any_format_have_one_master_copy(weights: float, states: float) -> None:
    # FP8 and 16-bit weights stand beside a 32-bit master copy; 32-bit weights are it
    found = figures(LLAMA, {"precision.bytes[weights]": weights})
    assert found["memory.weights"] == pytest.approx(weights * LLAMA.parameters.total)
    assert found["memory.optimizer"] == pytest.approx(states * LLAMA.parameters.total)


def test_parameters_and_activations_may_wait_on_the_host() -> None:
    roomy = {"chip.capacity": 1e13}  # nothing is rebuilt for want of room
    kept, moved = figures(LLAMA, roomy), figures(LLAMA, roomy, o_w=1.0, o_o=1.0)
    assert moved["memory.weights"] == moved["memory.optimizer"] == 0
    layers = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096)
    ends = 2 * 128256 * 4096 + 4096
    # two layers of weights are there at a time, the ends among them by their mean
    assert moved["memory.activations"] - kept["memory.activations"] == pytest.approx(2 * 2 * (layers + ends) / 32)
    away = figures(LLAMA, roomy, o_a=1.0)
    layer = definition(LLAMA, "kept_layer")
    assert kept["memory.activations"] - away["memory.activations"] == pytest.approx(31 * layer)


def test_evaluations_lengthen_the_run_by_their_forward_passes() -> None:
    # 1e12 tokens in steps of 1024 sequences of 4096; every 1000 steps 1e9 tokens, a third of a step each batch's worth
    plain = figures(LLAMA, d=8)
    held = figures(LLAMA, {"input.evaluate.every": 1000.0, "input.evaluate.tokens": 1e9}, d=8)
    steps = -(-(10**12) // (1024 * 4096))
    expected = steps // 1000 * plain["step_time"] * 1e9 / (1024 * 4096) / 3
    assert held["evaluation_time"] == pytest.approx(expected)
    assert plain["evaluation_time"] == 0
    assert held["wall_time"] - plain["wall_time"] == pytest.approx(expected / plain["goodput"])


def test_the_step_of_the_optimiser_takes_the_place_of_activations() -> None:
    # copies of 2 B a parameter, 16 GB, hold more than the activations of a micro-batch, and do not stand beside them
    roomy = {"chip.capacity": 1e13}
    fused, looped = (figures(LLAMA, {**roomy, "engine.step_bytes": each}, r_f=1.0) for each in (0.0, 2.0))
    assert fused["memory.activations"] < 2 * LLAMA.parameters.total
    assert looped["memory.activations"] == pytest.approx(2 * LLAMA.parameters.total)
    many = {**roomy, "engine.step_bytes": 2.0}
    assert figures(LLAMA, many, b=8)["memory.activations"] == figures(LLAMA, roomy, b=8)["memory.activations"]


def test_gradients_in_the_format_of_weights_may_stay_beside_wider_sums() -> None:
    # 16-bit gradients (2 B) beside 32-bit sums (4 B); where sums have 16 bits there is no second copy
    count = LLAMA.parameters.total
    both = figures(LLAMA, {"engine.low_gradients": 1.0})
    assert both["memory.gradients"] == pytest.approx(6 * count)
    once = figures(LLAMA, {"engine.low_gradients": 1.0, "precision.bytes[gradients]": 2.0})
    assert once["memory.gradients"] == pytest.approx(2 * count)


def test_products_that_add_to_kept_gradients_hold_a_fresh_one_of_every_shape() -> None:
    # 16 bits of every matrix of one layer, and of the head when its turn comes, after the loss has let go of its copies
    roomy = {"chip.capacity": 1e13, "engine.loss_bytes": 2.0}
    fused, own = (figures(LLAMA, {**roomy, "engine.accumulates": each}) for each in (0.0, 1.0))
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    expected = 2 * (layer + 128256 * 4096)
    assert fused["memory.activations"] - own["memory.activations"] == pytest.approx(expected)
    # a loss of 20 B a logit, of 4096 tokens, outlasts the head's gradient (2 B a logit and 2 B a weight): it alone counts
    roomy |= {"engine.loss_bytes": 20.0}
    fused, own = (figures(LLAMA, {**roomy, "engine.accumulates": each}) for each in (0.0, 1.0))
    assert fused["memory.activations"] - own["memory.activations"] == pytest.approx(2 * layer)


def test_of_routed_experts_one_fresh_gradient_stays() -> None:
    roomy = {"chip.capacity": 1e13, "engine.loss_bytes": 1e3}
    fused, own = (figures(MOE, {**roomy, "engine.accumulates": each}) for each in (0.0, 1.0))
    expert_weights = 3 * 1024 * 512
    outside = (MOE.parameters.total - 8 * 32 * expert_weights - 2 * 1000 * 1024 - 1024) / 8
    assert fused["memory.activations"] - own["memory.activations"] == pytest.approx(2 * (outside + expert_weights))


def test_peak_of_a_truncated_llama_405b_is_the_sum_of_its_tensors() -> None:
    """Four layers on one rank of two: 2 + 4 B a parameter and Adam over four data ranks; by hand 75.6e9 B of states."""
    arch = dense(16384, 128, 8, 128, 53248, 4, 128256)
    found = figures(arch, {"input.sequence_length": 4096, "input.global_batch": 4, "chip.capacity": 1e13,
                           "engine.accumulates": 0.0, "engine.loss_bytes": 6.0, "engine.bucket": 0.0}, t=2, d=4, z=1, sp=1.0)  # fmt: skip
    layer = (2 * 16384 * 16384 + 2 * 16384 * 1024 + 3 * 16384 * 53248) / 2 + 2 * 16384
    ends = 128256 * 16384 + 16384
    tokens = 4096
    kept = tokens * (2 * (4 * 16384 + 2 * 16384 + 2 * 1024 + 3 * 53248) / 2 + 64 * 4)
    head = tokens * 128256 / 2 * 2 + 2 * 128256 * 16384 / 2 + tokens * 16384 * 2 / 2
    by_hand = (4 * layer + ends) * (6 + 12 / 4) + 4 * kept + 2 * layer + head
    assert found["memory.allocated"] == pytest.approx(by_hand, rel=2e-4)
    assert found["memory.allocated"] / 2**30 == pytest.approx(81.59, rel=0.02)  # measured: simumax_b200.csv, SM0026
