"""Memory of a serving rank against what engines printed when they started (public issue trackers), and a model card."""

import math

import pytest

from serving_samples import evaluate
from tokenmill.catalog import load_catalog
from tokenmill.imports.architecture import load_architecture
from tokenmill_models.serving import roles
from tokenmill_models.serving_split import decode_role

GIB = 2**30
INT4 = (4 + 20 / 128) / 8  # 16-bit scale and 4-bit zero a group of 128
MXFP4 = 4.25 / 8
WEIGHTS = [
    # model, ranks, bytes a weight, bytes of the experts', GiB a device printed, where
    ("qwen2.5-7b", 1, INT4, INT4, 5.29, "public engine log, Qwen2.5-7B-Instruct-AWQ"),
    ("qwen3-30b-a3b", 4, 2.0, 2.0, 14.27, "public engine log, vLLM 0.8.5 on four 22 GB cards"),
    ("qwen3-30b-a3b", 1, 2.0, 2.0, 56.98, "sgl-project/sglang#18263"),
    ("gpt-oss-120b", 1, 2.0, MXFP4, 60.8, "gpt-oss model card (2025), table 1: size of the checkpoint"),
    ("deepseek-v3", 16, INT4, INT4, 21.21, "vllm-project/vllm#14447, sixteen RTX 3090, AWQ class"),
]
PADDED = [
    # GiB that vLLM prints for gpt-oss-120b on one device: its kernels pad the width of 2880 to 3072 (and 2944)
    (64.38, "vllm-project/vllm#33155"),
    (65.97, "vllm-project/vllm#23278"),
]
TOKENS = [
    # model, GiB of the device, fraction, ranks, token budget, bytes a weight, KV tokens printed, where
    ("llama-2-7b", 79.15, 0.9, 1, 4096, 2.0, 117616, "vllm-project/vllm#2031, A100-80GB"),
    ("qwen2.5-7b", 15.99, 0.9, 1, 2048, INT4, 149712, "public engine log, 16 GB class"),
    ("qwen3-30b-a3b", 21.66, 0.92, 4, 2048, 2.0, round(4.07 * GIB / 24576), "public engine log, vLLM 0.8.5: 4.07 GiB"),
]


def mixed(model):
    arch = load_architecture(model)
    return next(role for role in roles(arch) if role.name == "mixed"), arch


@pytest.mark.parametrize(("model", "ranks", "width", "experts", "printed", "where"), WEIGHTS)
def test_weights_of_a_rank(model, ranks, width, experts, printed, where):
    """Within 4%: engines keep a few more matrices in 16 bits than the format says, or pad the vocabulary."""
    role, arch = mixed(model)
    found = evaluate(role, arch, axis__tp=float(ranks), precision__weights=width, precision__experts=experts)
    assert found["memory_weights"] / GIB == pytest.approx(printed, rel=0.04)


@pytest.mark.parametrize(("printed", "where"), PADDED)
def test_experts_in_mxfp4_are_padded(printed, where):
    role, arch = mixed("gpt-oss-120b")
    tile = {"precision__experts": MXFP4, "precision.tile[experts]": load_catalog().precision("mxfp4").tile}
    found = evaluate(role, arch, precision__weights=2.0, **tile)
    assert found["memory_weights"] / GIB == pytest.approx(printed, rel=0.025)


def test_a_profiling_run_lays_out_every_pair_of_the_gathered_tokens():
    """Qwen3-Coder 480B, 8 ranks that attend apart, 8192 tokens each: 65536 tokens are gathered, 32768 a turn to 8 experts of 2560."""
    role, arch = mixed("qwen3-coder-480b-a35b")
    ranks = {"axis__attention_dp": 8.0, "axis__ep": 8.0, "axis__chunk": 8192.0}
    found = evaluate(role, arch, engine__logit_rows=0.0, **ranks)
    pairs = 32768 * 8 * (6144 + 2560)  # output of the second product (the wider), input of it
    expected = 2 * (pairs + 2 * 65536 * 6144 + 2 * 8192 * 6144)
    assert found["memory_activations"] == pytest.approx(expected)


@pytest.mark.parametrize(("model", "memory", "fraction", "ranks", "chunk", "width", "printed", "where"), TOKENS)
def test_kv_tokens_that_the_engine_prints(model, memory, fraction, ranks, chunk, width, printed, where):
    """Within 8%: what remains is the activation peak, a gigabyte of which the log and the formula may differ by a third."""
    role, arch = mixed(model)
    given = {"engine.reserve": 0.25 * GIB, "engine.logit_rows": 256.0, "chip.capacity": memory * GIB}
    found = evaluate(
        role, arch, axis__tp=float(ranks), axis__chunk=float(chunk), assume__memory_fraction=fraction,
        precision__weights=width, precision__experts=width, **{k.replace(".", "__"): v for k, v in given.items()},
    )  # fmt: skip
    assert found["kv_tokens"] == pytest.approx(printed, rel=0.08)


@pytest.mark.parametrize(
    "model", ["mamba-2.8b", "jamba-v0.1", "gemma-3n-e4b-it", "deepseek-v4-flash", "gpt2", "falcon-7b"]
)
def test_one_rank_of_any_make_holds_the_published_parameters(model):
    arch = load_architecture(model)
    found = evaluate(decode_role(arch), arch, chip__capacity=1e12)
    assert found["memory_weights"] == pytest.approx(2 * arch.parameters.total, rel=1e-9)
    assert all(math.isfinite(value) for value in found.values())
