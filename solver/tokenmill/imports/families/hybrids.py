"""Models with scans between attention layers: Jamba, Bamba, Granite 4, Nemotron-H, Qwen3-Next, Kimi Linear, Falcon-H1, LFM2."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from tokenmill.imports.families.config import Config
from tokenmill.imports.families.decoders import width_of
from tokenmill.imports.families.experts import expert_count, experts_used, from_layer, prediction
from tokenmill.imports.families.parts import (
    Block,
    Text,
    attention,
    dense,
    heads_of,
    latent_attention,
    mlp_matrices,
    moe,
    text_model,
)
from tokenmill.imports.families.scans import gated_delta, kimi_delta, lightning, mamba1, mamba2, short_convolution
from tokenmill_models.architecture import Matrix, Mixer, Mlp


def jamba(c: Config) -> Text:
    """Jamba: attention every `attn_layer_period` layers, experts every `expert_layer_period`, Mamba-1 with inner norms."""
    h, width = c.hidden, width_of(c)
    state, rank = c.count("mamba_d_state", default=16), c.get("mamba_dt_rank")
    rank = ceil(h / 16) if rank in (None, "auto") else c.count("mamba_dt_rank")
    scan = mamba1(
        h,
        c.count("mamba_expand", default=2) * h,
        state,
        c.count("mamba_d_conv", default=4),
        rank,
        conv_bias=c.flag("mamba_conv_bias", default=True),
        bias=c.flag("mamba_proj_bias", default=False),
        inner_norms=rank + 2 * state,
    )
    full, plain = attention(heads_of(c, 8)), dense(h, width)
    experts = c.count("num_experts", default=16)
    sparse = moe(h, width, experts, c.count("num_experts_per_tok", default=2)) if experts > 1 else plain
    period, offset = c.count("attn_layer_period", default=8), c.count("attn_layer_offset", default=4, least=0)
    every, start = c.count("expert_layer_period", default=2), c.count("expert_layer_offset", default=1, least=0)
    blocks = [
        Block(full if i % period == offset else scan, sparse if i % every == start else plain, 2 * h)
        for i in range(c.layers)
    ]
    return text_model(c, blocks, tie=False)


def _mamba2_fields(c: Config) -> Mixer:
    """Mamba-2 under the field names of Bamba and Granite 4."""
    inner = c.count("mamba_expand", default=2) * c.hidden
    heads = c.count("mamba_n_heads", default=128)
    size = c.get("mamba_d_head")
    return mamba2(
        c.hidden,
        heads,
        inner // heads if size in (None, "auto") else c.count("mamba_d_head"),
        c.count("mamba_n_groups", default=1),
        c.count("mamba_d_state", default=256),
        c.count("mamba_d_conv", default=4),
        conv_bias=c.flag("mamba_conv_bias", default=True),
        bias=c.flag("mamba_proj_bias", default=False),
    )


def bamba(c: Config) -> Text:
    """Bamba: Mamba-2 with attention in the listed layers, an MLP in each."""
    bias = c.flag("attention_bias", default=False)
    full = attention(heads_of(c, 8), qkv_bias=bias, out_bias=bias)
    scan, mlp = _mamba2_fields(c), dense(c.hidden, width_of(c), bias=c.flag("mlp_bias", default=False))
    at = set(c.numbers("attn_layer_indices") or [])
    blocks = [Block(full if i in at else scan, mlp, 2 * c.hidden) for i in range(c.layers)]
    return text_model(c, blocks, tie=False)


def granite_hybrid(c: Config) -> Text:
    """Granite 4: Mamba-2 or attention by layer; a shared MLP, with experts beside it where there are any."""
    h, bias = c.hidden, c.flag("attention_bias", default=False)
    shared = c.count("shared_intermediate_size", default=1024)
    experts = c.count("num_local_experts", default=8, least=0)
    sparse = moe(h, width_of(c), experts, experts_used(c, 2), shared=shared) if experts else dense(h, shared)
    mixers = {"attention": attention(heads_of(c), qkv_bias=bias, out_bias=bias)}
    kinds = c.items("layer_types", c.layers) or c.items("layers_block_type", c.layers)
    kinds = kinds or ["mamba"] * c.layers
    if "mamba" in kinds:
        mixers["mamba"] = _mamba2_fields(c)
    unknown = [kind for kind in kinds if kind not in mixers]
    if unknown:
        raise c.fail("layer_types", repr(unknown[0])[:40], "mamba or attention")
    return text_model(c, [Block(mixers[kind], sparse, 2 * h) for kind in kinds], tie=False)


def _latent_experts(c: Config) -> Mlp:
    """Experts of Nemotron-H: ungated; they may work in a narrower space that two matrices lead into and out of."""
    h, width = c.hidden, c.count("moe_intermediate_size", "intermediate_size")
    narrow = c.optional("moe_latent_size")
    shared = c.count("moe_shared_expert_intermediate_size", default=width) * (c.optional("n_shared_experts") or 0)
    plain = moe(
        h,
        width,
        c.count("n_routed_experts"),
        experts_used(c),
        shared=shared,
        gated=False,
        correction=True,
        groups=(c.count("n_group", default=1), c.count("topk_group", default=1)),
    )
    if not narrow:
        return plain
    ways = (Matrix("latent_down", h, narrow), Matrix("latent_up", narrow, h))
    return replace(plain, matrices=plain.matrices + ways, expert=mlp_matrices(narrow, width, gated=False))


def nemotron_h(c: Config) -> Text:
    """Nemotron-H, Nemotron Nano 2 and 3: each layer is one part (M: Mamba-2, ``*`` attention, ``-`` MLP, E: experts), one norm."""
    h, bias = c.hidden, c.flag("attention_bias", default=False)
    names = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
    listed = c.items("layers_block_type", None) or []
    pattern = c.text("hybrid_override_pattern") or "".join(names.get(str(kind), "?") for kind in listed)
    pattern = pattern.replace("|", "")
    layers = c.count("num_hidden_layers", default=len(pattern))
    if len(pattern) != layers or set(pattern) - set("M*-E"):
        raise c.fail("hybrid_override_pattern", repr(pattern)[:60], f"{layers} signs out of M * - E")
    made: dict[str, Block] = {}
    if "M" in pattern:
        scan = mamba2(
            h,
            c.count("mamba_num_heads", default=128),
            c.count("mamba_head_dim", default=64),
            c.count("n_groups", default=8),
            c.count("ssm_state_size", default=128),
            c.count("conv_kernel", default=4),
            conv_bias=c.flag("use_conv_bias", default=True),
            bias=c.flag("mamba_proj_bias", "use_bias", default=False),
        )
        made["M"] = Block(scan, Mlp(), h)
    if "*" in pattern:
        s = heads_of(c, 8, head_dim=128)
        made["*"] = Block(attention(s, qkv_bias=bias, out_bias=bias), Mlp(), h)
    if "-" in pattern:
        mlp = dense(h, width_of(c), gated=False, bias=c.flag("mlp_bias", default=False))
        made["-"] = Block(Mixer(), mlp, h)
    if "E" in pattern:
        made["E"] = Block(Mixer(), _latent_experts(c), h)
    return text_model(c, [made[sign] for sign in pattern], tie=False)


def _attention_or_linear(c: Config, full: Mixer, linear: Mixer) -> list[Mixer]:
    types = c.items("layer_types", c.layers)
    every = c.count("full_attention_interval", default=4)
    is_full = [kind == "full_attention" for kind in types] if types else [(i + 1) % every == 0 for i in range(c.layers)]
    return [full if yes else linear for yes in is_full]


def qwen3_next(c: Config) -> Text:
    """Qwen3-Next and Qwen3.5: three gated-delta layers to one of gated attention; dense, or experts with a gated shared one."""
    h, bias = c.hidden, c.flag("attention_bias", default=False)
    s = heads_of(c, head_dim=256)
    full = attention(s, qkv_bias=bias, out_bias=bias, qk_norm="head", gate=c.flag("attn_output_gate", default=True))
    linear = gated_delta(
        h,
        c.count("linear_num_key_heads", default=16),
        c.count("linear_num_value_heads", default=32),
        c.count("linear_key_head_dim", default=128),
        c.count("linear_value_head_dim", default=128),
        c.count("linear_conv_kernel_dim", default=4),
    )
    mixers = _attention_or_linear(c, full, linear)
    if c.get("num_experts", "num_local_experts"):
        shared = c.count("shared_expert_intermediate_size", default=512)
        width = c.count("moe_intermediate_size", default=512)
        sparse = moe(h, width, expert_count(c), experts_used(c), shared=shared, shared_gate=True)
    else:
        sparse = dense(h, width_of(c))
    plain_at = set(c.numbers("mlp_only_layers") or [])
    plain = dense(h, width_of(c)) if plain_at else sparse
    blocks = [Block(mixer, plain if i in plain_at else sparse, 2 * h) for i, mixer in enumerate(mixers)]
    modules = c.count("mtp_num_hidden_layers", "num_nextn_predict_layers", default=0, least=0)
    counted = Config({"num_nextn_predict_layers": modules, "hidden_size": h}, c.source, c.place)
    return text_model(c, blocks, tie=False, mtp=prediction(counted, full, sparse))


def kimi_linear(c: Config) -> Text:
    """Kimi Linear and K3: three Kimi-delta layers to one of latent attention without positions, experts after the first layer."""
    h, linear = c.hidden, c.sub("linear_attn_config")
    if linear is None:
        raise c.fail("linear_attn_config", "nothing", "a table with kda_layers, full_attn_layers, head_dim, num_heads")
    full_at = set(linear.numbers("full_attn_layers") or [])
    scan = kimi_delta(
        h,
        linear.count("num_heads"),
        linear.count("head_dim"),
        linear.count("short_conv_kernel_size", default=4),
        full_gate=linear.flag("use_full_rank_gate", default=False),
    )
    full = latent_attention(c, gate=c.flag("mla_use_output_gate", default=False))
    width, shared = c.count("moe_intermediate_size"), c.optional("num_shared_experts") or 0
    sparse = moe(h, width, expert_count(c), experts_used(c), shared=width * shared, correction=True)
    narrow = c.optional("routed_expert_hidden_size")
    if narrow:
        ways = (Matrix("latent_down", h, narrow), Matrix("latent_up", narrow, h))
        norm = narrow if c.flag("latent_moe_use_norm", default=False) else 0
        sparse = replace(
            sparse,
            matrices=sparse.matrices + ways,
            expert=mlp_matrices(narrow, width),
            other_parameters=sparse.other_parameters + norm,
        )
    plain, is_sparse = dense(h, c.count("intermediate_size")), from_layer(c)
    blocks = [
        Block(full if i + 1 in full_at else scan, sparse if is_sparse(i) else plain, 2 * h) for i in range(c.layers)
    ]
    return text_model(c, blocks, tie=False)


def minimax(c: Config) -> Text:
    """MiniMax-01 and M1: seven layers of lightning attention to one of softmax, experts in each."""
    h, s = c.hidden, heads_of(c, 8)
    mlp = moe(
        h,
        width_of(c),
        expert_count(c, 8),
        experts_used(c, 2),
        shared=max(c.numbers("shared_intermediate_size") or [0])
        if isinstance(c.get("shared_intermediate_size"), list)
        else c.count("shared_intermediate_size", default=0, least=0),
    )
    softmax, linear = attention(s), lightning(h, s.heads, s.d_qk)
    flags = c.numbers("attn_type_list", c.layers)
    types = c.items("layer_types", c.layers)
    if flags is None:
        flags = [int(kind == "full_attention") for kind in types] if types else [(i + 1) % 2 for i in range(c.layers)]
    return text_model(c, [Block(softmax if flag else linear, mlp, 2 * h) for flag in flags], tie=False)


def falcon_h1(c: Config) -> Text:
    """Falcon-H1: attention and Mamba-2 side by side in each layer."""
    h = c.hidden
    bias = c.flag("attention_bias", default=False)
    s = heads_of(c, 8)
    soft = attention(s, qkv_bias=bias, out_bias=bias)
    heads = c.count("mamba_n_heads", default=128)
    inner = c.count("mamba_d_ssm", default=c.count("mamba_expand", default=2) * h)
    size = c.get("mamba_d_head")
    scan = mamba2(
        h,
        heads,
        inner // heads if size in (None, "auto") else c.count("mamba_d_head"),
        c.count("mamba_n_groups", default=1),
        c.count("mamba_d_state", default=256),
        c.count("mamba_d_conv", default=4),
        conv_bias=c.flag("mamba_conv_bias", default=True),
        bias=c.flag("mamba_proj_bias", default=False),
        norm=c.flag("mamba_rms_norm", default=False),
    )
    both = replace(
        soft,
        matrices=soft.matrices + scan.matrices,
        state_elements=scan.state_elements,
        other_parameters=soft.other_parameters + scan.other_parameters,
        scan_flops=scan.scan_flops,
    )
    mlp = dense(h, width_of(c), bias=c.flag("mlp_bias", default=False))
    return text_model(c, [Block(both, mlp, 2 * h)] * c.layers, tie=False)


def lfm2(c: Config) -> Text:
    """LFM2: gated short convolutions between attention layers; dense, or experts after the leading layers."""
    h = c.hidden
    width = c.count("block_ff_dim", "intermediate_size")
    if c.flag("block_auto_adjust_ff_dim", default=True) and c.text("model_type") == "lfm2":
        width = int(c.number("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
        step = c.count("block_multiple_of", default=256)
        width = step * -(-width // step)
    full = attention(heads_of(c, 8), qk_norm="head")
    scan = short_convolution(h, c.count("conv_L_cache", default=3), bias=c.flag("conv_bias", default=False))
    types = c.items("layer_types", c.layers)
    at = set(c.numbers("full_attn_idxs") or [])
    is_full = [kind == "full_attention" for kind in types] if types else [i in at for i in range(c.layers)]
    mlp = plain = dense(h, width)
    leading = 0
    if c.text("model_type") == "lfm2_moe":
        leading = c.count("num_dense_layers", default=2, least=0)
        mlp = moe(
            h,
            c.count("moe_intermediate_size"),
            expert_count(c),
            experts_used(c),
            correction=c.flag("use_expert_bias", default=True),
        )
    blocks = [Block(full if yes else scan, plain if i < leading else mlp, 2 * h) for i, yes in enumerate(is_full)]
    return text_model(c, blocks, tie=True)
