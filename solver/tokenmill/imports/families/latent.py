"""Models with multi-head latent attention: the DeepSeek line and its kin."""

from __future__ import annotations

from tokenmill.imports.families.config import Config
from tokenmill.imports.families.experts import expert_count, experts_used, from_layer, mixed, prediction
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
from tokenmill_models.architecture import Indexer, Matrix, Mixer, Mlp


def _experts(c: Config, correction: bool) -> Mlp:
    width = c.count("moe_intermediate_size")
    return moe(
        c.hidden,
        width,
        expert_count(c),
        experts_used(c),
        shared=width * (c.optional("n_shared_experts", "num_shared_experts") or 0),
        correction=correction,
        groups=(c.count("n_group", default=1), c.count("topk_group", default=1)),
    )


def deepseek_v1(c: Config) -> Text:
    """DeepSeek-MoE 16B: ordinary attention, fine experts, shared experts."""
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    mixer = attention(s, qkv_bias=bias, out_bias=bias)
    return text_model(c, mixed(c, mixer, _experts(c, False), from_layer(c), 2 * s.hidden), tie=False)


def deepseek(c: Config) -> Text:
    """DeepSeek-V2, V3, V3.2, Kimi-K2, GLM-5: latent attention, a load-balance bias an expert from V3 on."""
    two = c.text("model_type") == "deepseek_v2"
    indexer = None
    if c.get("index_topk") is not None:
        size = c.count("index_head_dim", default=128)
        indexer = Indexer(c.count("index_n_heads", default=64), size, c.count("index_topk"), size)
    mixer = latent_attention(c, bias=c.flag("attention_bias", default=False), indexer=indexer)
    if c.get("n_routed_experts", "num_experts", "num_local_experts") is None:
        block = Block(mixer, dense(c.hidden, c.count("intermediate_size")), 2 * c.hidden)
        return text_model(c, [block] * c.layers, tie=False)
    mlp = _experts(c, correction=not two)
    blocks = mixed(c, mixer, mlp, from_layer(c), 2 * c.hidden)
    return text_model(c, blocks, tie=False, mtp=prediction(c, mixer, mlp))


def minicpm3(c: Config) -> Text:
    """MiniCPM3: latent attention with dense MLPs, tied head."""
    block = Block(latent_attention(c), dense(c.hidden, c.count("intermediate_size")), 2 * c.hidden)
    return text_model(c, [block] * c.layers, tie=True)


def longcat(c: Config) -> Text:
    """LongCat-Flash: two attentions and two dense MLPs around one set of experts, some of which do nothing.

    Each published layer stands here as two: the first carries the experts beside its dense MLP.
    """
    h, width = c.hidden, c.count("ffn_hidden_size", "intermediate_size")
    mixer = latent_attention(c, bias=c.flag("attention_bias", default=False))
    idle = c.count("zero_expert_num", default=0, least=0)
    routed = c.count("n_routed_experts", "num_experts")
    chosen = c.count("moe_topk", "num_experts_per_tok")
    expert = mlp_matrices(h, c.count("expert_ffn_hidden_size", "moe_intermediate_size"))
    router = Matrix("router", h, routed + idle, bias=routed + idle if c.flag("router_bias", default=False) else 0)
    sparse = Mlp("moe", mlp_matrices(h, width), expert, routed, chosen, router, routed + idle)
    pair = [Block(mixer, sparse, 2 * h), Block(mixer, dense(h, width), 2 * h)]
    note = f"{idle} of the {routed + idle} experts do nothing: active counts suppose that none of those is drawn"
    return text_model(c, pair * c.layers, tie=False, notes=(note,) if idle else ())


def _compressor(hidden: int, size: int, ratio: int) -> tuple[int, int]:
    """Return (width of value and gate projections, other parameters): entries overlap twice at ratio 4."""
    overlap = 2 if ratio == 4 else 1
    return overlap * size, ratio * overlap * size + size


def _v4_extras(c: Config, ratio: int) -> tuple[list[Matrix], int, Indexer | None]:
    """Return matrices, other parameters and scorer that a compressed layer has beside plain attention."""
    h, size = c.hidden, c.count("head_dim")
    if not ratio:
        return [], 0, None
    width, other = _compressor(h, size, ratio)
    matrices = [Matrix("compress", h, 2 * width)]
    if ratio != 4:
        return matrices, other, None
    heads, index_size = c.count("index_n_heads"), c.count("index_head_dim")
    width, rest = _compressor(h, index_size, ratio)
    matrices += [
        Matrix("index_q", c.count("q_lora_rank"), heads * index_size),
        Matrix("index_weights", h, heads),
        Matrix("index_compress", h, 2 * width),
    ]
    return matrices, other + rest, Indexer(heads, index_size, c.count("index_topk"), index_size)


def _v4_mixer(c: Config, ratio: int) -> Mixer:
    """DeepSeek-V4 attention: one shared key/value head of `head_dim`, a window, and a cache compressed by `ratio`."""
    h, heads, size = c.hidden, c.count("num_attention_heads"), c.count("head_dim")
    q_rank, groups, o_rank = c.count("q_lora_rank"), c.count("o_groups"), c.count("o_lora_rank")
    window = c.count("sliding_window", default=128)
    extra, other, indexer = _v4_extras(c, ratio)
    matrices = [
        Matrix("q_down", h, q_rank),
        Matrix("q_up", q_rank, heads * size, "column", heads),
        Matrix("kv_down", h, size),
        Matrix("o_down", heads * size // groups, groups * o_rank, "column", groups),
        Matrix("o", groups * o_rank, h, "row", groups),
        *extra,
    ]
    return Mixer(
        "attention",
        tuple(matrices),
        heads=heads,
        kv_heads=1,
        d_qk=size,
        d_v=size,
        window=None if ratio else window,
        kv_elements=size,
        kv_granules=1,
        compression=ratio or 1,
        state_elements=window * size if ratio else 0,
        d_rope=c.count("qk_rope_head_dim", default=0, least=0),
        other_parameters=q_rank + size + heads + other,
        indexer=indexer,
    )


def deepseek_v4(c: Config) -> Text:
    """DeepSeek-V4: compressed caches by layer, several residual streams mixed around each part, hash-routed first layers."""
    h, streams = c.hidden, c.count("hc_mult", default=4)
    ratios = c.numbers("compress_ratios", c.layers)
    if ratios is None:
        raise c.fail("compress_ratios", "nothing", "one number a layer: 0, 4 or 128")
    # a mixing matrix, its bias and three scales around attention and around the MLP
    mix = (2 + streams) * streams
    streams_cost = 2 * (mix * streams * h + mix + 3)
    hashed = c.count("num_hash_layers", default=0, least=0)
    mixers = {ratio: _v4_mixer(c, ratio) for ratio in set(ratios)}
    learned, by_hash = _experts(c, True), _experts(c, False)
    rounds = c.count("hc_sinkhorn_iters", default=20, least=0)
    blocks = [
        Block(mixers[ratio], by_hash if i < hashed else learned, 2 * h + streams_cost, mixing_rounds=rounds)
        for i, ratio in enumerate(ratios)
    ]
    other = h + streams * streams * h + streams + 1
    note = "multi-token-prediction modules are not counted" if c.get("num_nextn_predict_layers") else ""
    return text_model(c, blocks, tie=False, other=other, notes=(note,) if note else ())


def mimo_v2(c: Config) -> Text:
    """MiMo-V2-Flash: full and windowed layers with head counts of their own, sinks in the windowed ones."""
    full = heads_of(c, d_v=c.count("v_head_dim"))
    inner = {name.removeprefix("swa_"): value for name, value in c.fields.items() if name.startswith("swa_")}
    windowed = heads_of(Config({**c.fields, **inner}, c.source, c.place), d_v=c.count("swa_v_head_dim", "v_head_dim"))
    pattern = c.numbers("hybrid_layer_pattern", c.layers)
    if pattern is None:
        raise c.fail("hybrid_layer_pattern", "nothing", "one 0 or 1 a layer")
    sink = [c.flag(f"add_{kind}_attention_sink_bias", default=kind == "swa") for kind in ("full", "swa")]
    mixers = [
        attention(full, other=full.heads * sink[0]),
        attention(windowed, other=windowed.heads * sink[1], window=c.count("sliding_window")),
    ]
    mlps = [dense(c.hidden, c.count("intermediate_size")), _experts(c, True)]
    sparse = from_layer(c)
    blocks = [Block(mixers[pattern[i]], mlps[sparse(i)], 2 * c.hidden) for i in range(c.layers)]
    return text_model(c, blocks, tie=False)
