"""Adapters, 4-bit bases, reference models and packing against counts by hand and published counts."""

from collections.abc import Callable
from functools import cache

import pytest

from sample_leaves import dense, expert, leaf_values
from tokenmill_models import finetuning, posttraining
from tokenmill_models.architecture import Architecture
from tokenmill_models.compile import Compiled, compile_graph
from tokenmill_models.stage import Role
from training_samples import LAYOUT, ORIGINS, WORDS, figures, group_values

LLAMA_8B = dense(4096, 32, 8, 128, 14336, 32, 128256)
LLAMA2_7B = dense(4096, 32, 32, 128, 11008, 32, 32000)
LLAMA2_13B = dense(5120, 40, 40, 128, 13824, 40, 32000)
MOE = expert(1024, 16, 4, 64, 512, 32, 4, 0, 8, 0, 1000)

TARGETS = {f"input.targets.{word}": 0.0 for word in ("all-linear", *finetuning.TARGETS)}
OWN = {"input.epochs": 1, "input.rank": 16, "input.examples": 1e5, "input.pairs": 1e5, "input.tokens_per_example": 500,
       "input.packing": 1, "input.reference_model": 1, **TARGETS}  # fmt: skip
ALL, QV = {"input.targets.all-linear": 1.0}, {"input.targets.q": 1.0, "input.targets.v": 1.0}


@cache
def compiled(make: Callable[[Architecture], Role], arch: Architecture) -> Compiled:
    graph = make(arch).graph
    return compile_graph(graph, list(graph.formulas))


def values_of(
    make: Callable[[Architecture], Role], arch: Architecture, origins: dict[str, float], **symbols: float
) -> dict[str, float]:
    """Every definition of a run by symbol name, on the machine of round numbers."""
    role = make(arch)
    words = {**WORDS, "k_l": 0.0, "k_q": 0.0}
    layout = {name: float(symbols.get(name, value)) for name, value in LAYOUT.items()}
    free = [leaf for leaf in compiled(make, arch).inputs if leaf.name not in words and leaf.name not in layout]
    leaves = leaf_values(free, arch, {**ORIGINS, **group_values(layout), **OWN, **origins})
    found = compiled(make, arch)({**words, **layout, **leaves, **symbols})
    named = {**role.figures, **role.ports, **{f"share.{key}": value for key, value in role.shares.items()}}
    return {n: float(v) for n, v in found.items()} | {key: float(found[symbol.name]) for key, symbol in named.items()}


def tuned(arch: Architecture, origins: dict[str, float] | None = None, **symbols: float) -> dict[str, float]:
    return values_of(finetuning.finetuning_role, arch, origins or ALL, **symbols)


@pytest.mark.parametrize(
    ("arch", "targets", "rank", "published"),
    [
        (LLAMA_8B, ALL, 16, 41_943_040),  # as PEFT prints it for Llama 3 8B
        (LLAMA2_7B, QV, 8, 4_194_304),  # LitGPT's resource tables
        (LLAMA2_13B, QV, 8, 6_553_600),
    ],
    ids=["8b", "7b", "13b"],
)
def test_adapters_are_counted_as_published(
    arch: Architecture, targets: dict[str, float], rank: int, published: int
) -> None:
    found = tuned(arch, {**targets, "input.rank": rank}, k_l=1.0)
    assert found["adapters_model"] == published
    assert found["memory.gradients"] == pytest.approx(4 * published)
    assert found["memory.optimizer"] == pytest.approx(12 * published)
    assert found["memory.weights"] == pytest.approx(2 * (arch.parameters.total + published))


def test_all_parameters_are_those_of_the_training_run() -> None:
    plain, full = figures(LLAMA_8B, d=8, z=2), tuned(LLAMA_8B, d=8, z=2)
    for name in ("memory.weights", "memory.gradients", "memory.optimizer", "memory.total", "step_time", "mfu"):
        assert full[name] == pytest.approx(plain[name], rel=1e-12)


def test_a_frozen_base_takes_two_passes_of_three() -> None:
    """4·N·D in place of 6·N·D, and what the adapters do themselves: three of their forward passes."""
    full, lora = tuned(LLAMA_8B), tuned(LLAMA_8B, k_l=1.0)
    assert lora["step_model_flops"] / full["step_model_flops"] == pytest.approx(2 / 3)
    assert lora["flop_train_0_step"] < full["flop_train_0_step"]
    assert lora["adapters_flops"] == pytest.approx(2 * 41_943_040 / 32)
    assert lora["share.optimizer"] < full["share.optimizer"] / 100


def test_four_bits_hold_the_layers_and_not_the_ends() -> None:
    """Blocks of 64 with an 8-bit scale, 256 of them with a 32-bit one: 4.127 bits; embedding and head stay in 16 bits."""
    found = tuned(LLAMA_8B, k_l=1.0, k_q=1.0)
    ends = 2 * 128256 * 4096 + 4096
    layers = LLAMA_8B.parameters.total - ends
    assert found["memory.weights"] == pytest.approx(layers * 4.127 / 8 + 2 * (ends + 41_943_040), rel=1e-4)
    assert found["step_time"] > tuned(LLAMA_8B, k_l=1.0)["step_time"]


def test_65b_with_a_4_bit_base_fits_48_gb() -> None:
    """Dettmers et al. 2023, abstract: a 65B model on a single 48 GB GPU (rank 64 on all linear layers, short sequences)."""
    arch = dense(8192, 64, 64, 128, 22016, 80, 32000)
    origins = {
        **ALL,
        "input.rank": 64,
        "input.sequence_length": 512,
        "input.global_batch": 16,
        "chip.capacity": 48 * 2**30,
    }
    paged = tuned(arch, origins, k_l=1.0, k_q=1.0, r_f=1.0, b_opt=6.0)  # its 8-bit paged Adam
    assert 41e9 < paged["memory.allocated"] < 48 * 2**30
    assert tuned(arch, origins, k_l=1.0, r_f=1.0)["memory.total"] > 130e9


def test_frozen_products_keep_no_input() -> None:
    """Hand count for adapters on queries and values, flash attention: norm inputs, the attention's normed input, q, k, v, output, gate, up
    and their product, a 32-bit log-sum a head; without a gate what reads the activation function's output is frozen."""
    tokens = 4096
    elements = 2 * 4096 + 4096 + 4 * 4096 + 3 * 11008
    assert tuned(LLAMA2_7B, QV, k_l=1.0)["kept_layer"] == pytest.approx(tokens * (2 * elements + 32 * 4))
    plain = dense(2048, 16, 16, 128, 8192, 24, 50000, gated=False)
    elements = 2 * 2048 + 2048 + 4 * 2048 + 8192
    assert tuned(plain, QV, k_l=1.0)["kept_layer"] == pytest.approx(tokens * (2 * elements + 16 * 4))
    everywhere = tuned(LLAMA2_7B, ALL, k_l=1.0)["kept_layer"]
    assert everywhere == pytest.approx(tuned(LLAMA2_7B, ALL)["kept_layer"])


@pytest.mark.parametrize(
    ("arch", "length", "ends", "wide", "narrow"),
    [
        # LitGPT resource tables, October 2023, micro-batch 1: GB with a 16-bit base, with a 4-bit one of doubly quantised scales
        (dense(2048, 32, 32, 64, 8192, 24, 51200, gated=False), 1044, 2 * 51200 * 2048, 4.82, 3.72),  # phi-1.5
        (LLAMA2_7B, 1304, 2 * 32000 * 4096, 21.30, 13.84),
        (LLAMA2_13B, 1304, 2 * 32000 * 5120, 38.12, 22.55),
    ],
    ids=["1.3b", "7b", "13b"],
)
def test_a_4_bit_base_saves_its_weights_less_the_inputs_it_keeps(
    arch: Architecture, length: int, ends: int, wide: float, narrow: float
) -> None:
    origins = {**QV, "input.rank": 8, "input.sequence_length": length, "input.global_batch": 1}
    saved = [tuned(arch, origins, k_l=1.0, k_q=bits)["memory.allocated"] / 1e9 for bits in (0.0, 1.0)]
    assert saved[0] - saved[1] == pytest.approx(wide - narrow, rel=0.05)
    unkept = (2 - 4.127 / 8) * (arch.parameters.total - ends) / 1e9
    assert unkept > 1.2 * (wide - narrow)  # weights alone would save more


def test_adapters_of_experts_stand_on_every_expert() -> None:
    found = tuned(MOE, k_l=1.0, e=8, d=8)
    attention = 16 * (2 * (1024 + 1024) + 2 * (1024 + 256))
    experts = 16 * 32 * 3 * (1024 + 512)
    assert found["adapters_layer"] == pytest.approx(attention + experts / 8)
    assert found["adapters_model"] == pytest.approx(8 * (attention + experts))


def test_data_ranks_exchange_adapters_alone() -> None:
    full, lora = (tuned(LLAMA_8B, d=8, k_l=flag) for flag in (0.0, 1.0))
    assert lora["data_exchange"] / full["data_exchange"] == pytest.approx(
        41_943_040 / LLAMA_8B.parameters.total, rel=0.1
    )
    sharded = tuned(LLAMA_8B, d=8, z=3, k_l=1.0)
    gathered = 2 * LLAMA_8B.parameters.total * 7 / 8 / (450e9 * 0.75)
    assert (
        sharded["data_exchange"] > 2 * 128 * gathered
    )  # 128 micro-batches gather the frozen base forward and backward


def post(make: Callable[[Architecture], Role], **origins: float) -> dict[str, float]:
    return values_of(make, LLAMA_8B, {key.replace("__", "."): value for key, value in origins.items()}, d=8)


def test_packing_passes_over_no_padding() -> None:
    role = posttraining.sft_role
    packed, padded = (post(role, input__packing=flag) for flag in (1.0, 0.0))
    assert packed["padded_tokens"] == 5e7
    assert padded["padded_tokens"] == 1e5 * 4096
    assert packed["trained_tokens"] == padded["trained_tokens"] == 5e7
    assert packed["tokens_per_second"] / padded["tokens_per_second"] > 4096 / 500  # and each sees itself alone
    assert packed["keys_train_0_attention"] == 250


def test_a_reference_model_reads_every_answer() -> None:
    role = posttraining.preference_role
    with_, without = (post(role, input__reference_model=flag) for flag in (1.0, 0.0))
    assert with_["trained_tokens"] == 2 * 1e5 * 500
    assert with_["memory.weights"] == pytest.approx(2 * without["memory.weights"])
    assert with_["memory.gradients"] == without["memory.gradients"]
    assert with_["step_model_flops"] / without["step_model_flops"] == pytest.approx(4 / 3)


@pytest.mark.parametrize(("stage", "published"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_example_of_the_zero_paper(stage: int, published: float) -> None:
    """7.5B parameters on 64 ranks, 16-bit weights and gradients, Adam: GB a rank (Rajbhandari et al. 2020, figure 1)."""
    found = figures(LLAMA_8B, {"precision.bytes[gradients]": 2.0}, d=64, z=stage)
    states = found["memory.weights"] + found["memory.gradients"] + found["memory.optimizer"]
    assert states / LLAMA_8B.parameters.total * 7.5 == pytest.approx(published, abs=0.06)
