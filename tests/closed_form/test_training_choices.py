"""Mechanisms of training against counts by hand: what is rebuilt, fp8, Muon, experts' own format, the ring of context ranks."""

import pytest

from sample_leaves import DEVICE, dense, expert, latent
from training_samples import definition, definitions, figures

TOKENS = 4096
LLAMA = dense(4096, 32, 8, 128, 14336, 32, 128256)
CLASSIC = dense(4096, 32, 32, 128, 16384, 32, 50000, gated=False)
MOE = expert(1024, 16, 4, 64, 512, 32, 4, 0, 8, 0, 1000)
LATENT = latent(2048, 16, 512, 1024, 128, 64, 128, 8192, 8, 1000)
LOG_SUMS = 4


def test_selective_rebuilds_norms_and_the_gated_product() -> None:
    """Left of a gated layer: inputs of two norms, queries, keys, values, the core's output, gate and up."""
    kept = definition(LLAMA, "kept_layer", r_s=1.0)
    elements = 2 * 4096 + (4096 + 2 * 1024) + 4096 + 2 * 14336
    assert kept == pytest.approx(TOKENS * (2 * elements + LOG_SUMS * 32))


def test_selective_rebuilds_nothing_of_a_plain_layer_with_flash() -> None:
    # Korthikanti et al. 2022 rebuild the attention core alone, and flash attention never keeps it
    assert definition(CLASSIC, "kept_layer", r_s=1.0) == definition(CLASSIC, "kept_layer")


def test_selective_projects_latents_up_again() -> None:
    """An MLA layer drops 16 heads of (128 + 64) query and (128 + 128) key/value elements, its normed inputs and its product."""
    plain, light = definition(LATENT, "kept_layer"), definition(LATENT, "kept_layer", r_s=1.0)
    assert plain - light == pytest.approx(TOKENS * 2 * (16 * (192 + 256) + 2 * 2048 + 8192))
    assert definitions(LATENT, r_s=1.0)["step_time"] > definitions(LATENT)["step_time"]
    again = 2 * TOKENS * (1024 * 16 * 192 + 512 * 16 * 256)  # both up-projections of one micro-batch
    extra = definition(LATENT, "flop_train_0_step", r_s=0.0)
    found = figures(LATENT, r_s=1.0)["hfu"] * figures(LATENT, r_s=1.0)["step_time"]
    before = figures(LATENT)["hfu"] * figures(LATENT)["step_time"]
    assert extra > 0
    assert (found - before) * 1e15 == pytest.approx(8 * 1024 * again, rel=1e-6)  # eight layers, 1024 micro-batches


def test_experts_keep_what_was_sent_to_them_and_their_products() -> None:
    """Four of 32 experts a token: 4 x (1024 sent + 2 x 512 gate and up + 512 product), beside the mixer and both norms."""
    elements = 4 * 1024 + (1024 + 2 * 256) + 1024 + 4 * (1024 + 3 * 512)
    assert definition(MOE, "kept_layer", e=8) == pytest.approx(TOKENS * (2 * elements + LOG_SUMS * 16))


def test_products_in_8_bits_keep_their_operands_in_8_bits() -> None:
    """Operands are the normed inputs and the gated product; 8-bit activations also the outputs before it; the stream stays."""
    narrow = {"precision.bytes[compute]": 1.0}
    operands = 2 * 4096 + 14336
    plain = definition(LLAMA, "kept_layer")
    assert plain - definition(LLAMA, "kept_layer", narrow) == pytest.approx(TOKENS * operands)
    both = narrow | {"precision.bytes[activations]": 1.0}
    assert plain - definition(LLAMA, "kept_layer", both) == pytest.approx(TOKENS * (operands + 2 * 14336))


def test_gated_products_go_before_a_layout_is_refused() -> None:
    room = figures(LLAMA, {"input.global_batch": 1024, "chip.capacity": 1e12}, p=8, d=16)
    gate = TOKENS * 2 * 14336 * 4 * 8  # four layers, eight micro-batches in flight on the first rank
    need = room["memory.reserved"]
    origins = {"chip.capacity": need - gate / 2, "assume.memory_fraction": 1.0, "engine.reserve_train": 0.0}
    tight = figures(LLAMA, origins, p=8, d=16)
    assert tight["memory.reserved"] == pytest.approx(need - gate / 2)
    tighter = figures(LLAMA, {**origins, "chip.capacity": need / 4}, p=8, d=16)
    assert tighter["memory.allocated"] == pytest.approx(room["memory.allocated"] - gate)
    nothing = figures(CLASSIC, {**origins, "chip.capacity": 1e9}, p=8, d=16)
    assert nothing["memory.allocated"] == pytest.approx(
        figures(CLASSIC, {"chip.capacity": 1e12}, p=8, d=16)["memory.allocated"]
    )


def test_experts_in_their_own_format() -> None:
    count = 3 * 1024 * 512 * 32 * 8
    plain, narrow = (figures(MOE, {"precision.bytes[experts]": size}, z=0) for size in (2.0, 1.0))
    assert plain["memory.weights"] - narrow["memory.weights"] == pytest.approx(count)


def test_muon_orthogonalises_every_matrix() -> None:
    """Five steps of 2·n²·m + n³ multiply-adds on each n x m matrix, over its elements: 4096 x 4096, 4096 x 1024, 4096 x 14336."""
    sizes = [(4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096), *[(4096, 14336)] * 3]
    work = sum(5 * 2 * (2 * n * n * m + n**3) for n, m in sizes) / sum(n * m for n, m in sizes)
    assert definition(LLAMA, "orthogonal_flops") == pytest.approx(work)
    adam, muon = (figures(LLAMA, k_m=flag)["share.optimizer"] for flag in (0.0, 1.0))
    assert muon - adam == pytest.approx(LLAMA.parameters.total * work / (1e15 * 0.7))


def test_each_part_of_the_ring_is_paid_for() -> None:
    """Four context ranks: three more parts, each merged into 32-bit sums (read and written, the new part read): outputs forward,
    gradients of queries, keys and values backward; and three more kernel starts each way."""
    found = definitions(LLAMA, c=4)
    rows = TOKENS / 4
    elements = 32 * 128 + 32 * 128 + 2 * 8 * 128
    merge = rows * elements * (2 * 4 + 2) / (3e12 * 0.9)
    assert found["merge_train_0"] == pytest.approx(merge)
    hidden = found["core_train_0"] / 0.6 / 4
    hop = rows * 2 * 8 * 128 * 2 / (450e9 * 0.75) + 3e-6
    waits = max(0, hop - hidden) + max(0, 2 * hop - 2.5 * hidden)
    assert found["context_train_0"] == pytest.approx(
        3 * (waits + merge + 2 * (DEVICE["chip.prefill_launch"] + DEVICE["chip.launch"]))
    )


def test_context_ranks_cost_more_the_shorter_their_parts() -> None:
    """The work of a step is the same; exchange, merging and starts grow with the ranks."""
    shares = [
        figures(LLAMA, {"input.sequence_length": 8192}, c=c, d=32 / c)["share.context"] for c in (1.0, 2.0, 4.0, 8.0)
    ]
    assert shares[0] == 0
    assert shares == sorted(shares)
    long = figures(LLAMA, {"input.sequence_length": 131072}, c=8, d=4)
    short = figures(LLAMA, {"input.sequence_length": 8192}, c=8, d=4)
    assert long["share.context"] / long["step_time"] < short["share.context"] / short["step_time"]


def test_latents_travel_projected_up() -> None:
    """Keys of 16 x 192 and values of 16 x 128, not the 576 cached elements."""
    found = definitions(LATENT, c=2)
    rows = TOKENS / 2
    assert found["T_ring_train_0"] == pytest.approx(rows * 16 * (192 + 128) * 2 / (450e9 * 0.75) + 3e-6)
