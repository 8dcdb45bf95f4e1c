"""The shape of an AI model: what is counted, cached and multiplied, by hand calculation."""

import pytest

from tokenmill.imports.architecture import load_architecture, published_bits, read_architecture
from tokenmill_models.architecture import (
    causal_flops_per_token,
    forward_flops_per_token,
    indexer_bytes_per_token,
    kv_bytes,
    kv_bytes_per_token,
    mean_causal_keys,
    state_bytes,
    weight_bytes,
)

TINY = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 10,
}  # fmt: skip


def test_tiny_llama_by_hand():
    counts = read_architecture(TINY).parameters
    # a layer: q 64, k 32, v 32, o 64, three MLP matrices of 128, two norms of 8
    assert counts.total == 2 * (192 + 384 + 16) + 2 * 80 + 8
    assert (counts.embedding, counts.output_head, counts.experts) == (80, 80, 0)
    assert counts.computed == counts.total - 80


def test_tied_head_counts_once_and_multiplies():
    tied = read_architecture({**TINY, "tie_word_embeddings": True})
    plain = read_architecture(TINY)
    assert tied.parameters.total == plain.parameters.total - 80
    assert tied.matmul_parameters_active == plain.matmul_parameters_active == 2 * (192 + 384) + 80


def test_moe_idles_all_but_the_chosen_experts():
    fields = {**TINY, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 1}
    counts = read_architecture(fields).parameters
    assert counts.experts == 2 * 4 * 384
    assert counts.total - counts.active == 2 * 3 * 384


@pytest.mark.parametrize(("sequence", "window"), [(7, 3), (5, 5), (40, 1), (64, 63)])
def test_mean_keys_of_a_window_by_enumeration(sequence, window):
    seen = [min(position, window) for position in range(1, sequence + 1)]
    assert mean_causal_keys(sequence, window) == pytest.approx(sum(seen) / sequence, rel=1e-12)


def test_forward_flops_by_hand():
    arch = read_architecture(TINY)
    # matrices 2 x (2 x 576 + 80); attention 2 layers x 2 x 4 heads x (2 + 2) x 10 keys
    assert forward_flops_per_token(arch, 10) == 2 * 1232 + 2 * 2 * 4 * 4 * 10
    assert causal_flops_per_token(arch, 20) == forward_flops_per_token(arch, 10)


def test_llama_70b_cache_by_hand_and_over_tensor_ranks():
    arch = load_architecture("llama-3.1-70b")
    whole = 2 * 80 * 8 * 128 * 2
    assert kv_bytes_per_token(arch) == whole == 327_680
    assert kv_bytes_per_token(arch, t=8) == whole / 8
    assert kv_bytes_per_token(arch, t=16) == whole / 8, "each rank keeps a whole head"
    assert kv_bytes_per_token(arch, t=3) == whole * 3 / 8, "eight heads over three ranks: one has three"


def test_latent_cache_is_whole_on_every_rank():
    arch = load_architecture("deepseek-v3")
    assert kv_bytes_per_token(arch) == (512 + 64) * 61 * 2 == 70_272
    assert kv_bytes_per_token(arch, t=8) == 70_272
    assert indexer_bytes_per_token(load_architecture("deepseek-v3.2")) == 61 * 128


def test_windowed_layers_stop_growing():
    arch = load_architecture("gpt-oss-20b")
    layer = 2 * 8 * 64 * 2
    assert kv_bytes(arch, 100) == 24 * layer * 100
    assert kv_bytes(arch, 1000) == 12 * layer * 1000 + 12 * layer * 128
    assert kv_bytes_per_token(arch, context=1000) == kv_bytes(arch, 1000) / 1000


def test_mamba_holds_a_fixed_state():
    arch = load_architecture("mamba-2.8b")
    assert kv_bytes_per_token(arch) == 0
    assert state_bytes(arch) == 64 * 5120 * (16 + 3) * 2
    assert state_bytes(arch, t=4) == state_bytes(arch) / 4


def test_hybrid_caches_only_in_attention_layers():
    arch = load_architecture("qwen3.5-27b")
    assert kv_bytes_per_token(arch) == 2 * 16 * 4 * 256 * 2
    assert {kind.mixer.kind for kind in arch.layers} == {"attention", "linear"}


def test_shared_caches_are_not_kept_twice():
    arch = load_architecture("gemma-3n-e4b-it")
    assert kv_bytes_per_token(arch) == 2 * 20 * 2 * 256 * 2, "the last 15 of 35 layers reuse what earlier ones keep"


def test_compressed_cache_of_deepseek_v4():
    arch = load_architecture("deepseek-v4-flash")
    # two windowed layers, 21 layers with an entry every 4 tokens, 20 with one every 128, each of 512
    assert kv_bytes_per_token(arch, 1.0) == pytest.approx(512 * (2 + 21 / 4 + 20 / 128))
    assert state_bytes(arch, 1.0) == 41 * 128 * 512


def test_sparse_attention_limits_the_keys():
    arch = load_architecture("deepseek-v3.2")
    mixer = arch.layers[0].mixer
    assert mixer.keys_seen(1000) == 1000
    assert mixer.keys_seen(100_000) == 2048


def test_weight_bytes_as_published_and_quantised():
    bits = published_bits()
    llama = load_architecture("llama-2-7b")
    assert weight_bytes(llama, bits) == 2 * 6_738_415_616
    linear = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    rest = 6_738_415_616 - linear
    assert weight_bytes(llama, bits, "int8") == linear + 2 * rest
    assert weight_bytes(llama, bits, "fp32") == 4 * 6_738_415_616


def test_weight_bytes_of_gpt_oss():
    # gpt-oss model card, table 1: checkpoints of 60.8 GiB and 12.8 GiB
    bits = published_bits()
    assert weight_bytes(load_architecture("gpt-oss-120b"), bits) / 2**30 == pytest.approx(60.8, rel=3e-3)
    assert weight_bytes(load_architecture("gpt-oss-20b"), bits) / 2**30 == pytest.approx(12.8, rel=5e-3)


def test_weight_bytes_of_deepseek_v3():
    # 671.03e9 elements in 8 bits with block scales, embedding and head in 16
    found = weight_bytes(load_architecture("deepseek-v3"), published_bits())
    assert found == pytest.approx(671.03e9 + 2 * 926_679_040, rel=1e-3)


def test_layers_stand_in_order():
    arch = load_architecture("deepseek-v3")
    assert [kind.mlp.kind for kind in arch.layer_sequence[:5]] == ["dense", "dense", "dense", "moe", "moe"]
    assert arch.layer_count == 61 == len(arch.layer_sequence)


def test_matrix_names_are_unique_within_a_part():
    from tokenmill.imports.architecture import architecture_names

    for name in architecture_names():
        for kind in load_architecture(name).layers:
            for part in (kind.mixer.matrices, kind.mlp.matrices, kind.mlp.expert):
                names = [matrix.name for matrix in part]
                assert len(set(names)) == len(names), name
                assert all(matrix.outputs >= matrix.granules >= 1 or matrix.split == "row" for matrix in part), name
