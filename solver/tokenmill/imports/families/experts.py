"""Mixture-of-experts decoders with ordinary attention."""

from __future__ import annotations

from collections.abc import Callable

from tokenmill.imports.families.config import Config
from tokenmill.imports.families.decoders import width_of, windows
from tokenmill.imports.families.parts import Block, Text, attention, dense, heads_of, mlp_matrices, moe, text_model
from tokenmill_models.architecture import Matrix, Mixer, Mlp


def expert_count(c: Config, default: int | None = None) -> int:
    """Return the number of routed experts, whatever the family calls it."""
    return c.count(
        "num_local_experts",
        "num_experts",
        "n_routed_experts",
        "moe_num_experts",
        "moe_num_primary_experts",
        default=default,
    )


def experts_used(c: Config, default: int | None = None) -> int:
    """Return how many routed experts serve a token."""
    return c.count(
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "moe_k",
        "moe_top_k",
        "moe_topk",
        default=default,
    )


def mixed(c: Config, mixer: Mixer, sparse: Mlp, is_sparse: Callable[[int], bool], norms: int) -> list[Block]:
    """Blocks with one mixer, and experts where `is_sparse` says so."""
    with_experts = Block(mixer, sparse, norms)
    if all(is_sparse(i) for i in range(c.layers)):
        return [with_experts] * c.layers
    plain = Block(mixer, dense(c.hidden, width_of(c)), norms)
    return [with_experts if is_sparse(i) else plain for i in range(c.layers)]


def from_layer(c: Config) -> Callable[[int], bool]:
    """Experts from layer ``first_k_dense_replace`` on, every ``moe_layer_freq``-th (a number or a list of 0 and 1)."""
    if isinstance(c.get("moe_layer_freq"), list):
        flags = c.numbers("moe_layer_freq", c.layers) or []
        return lambda i: bool(flags[i])
    first, every = c.count("first_k_dense_replace", default=0, least=0), c.count("moe_layer_freq", default=1)
    return lambda i: i >= first and i % every == 0


def mixtral(c: Config) -> Text:
    """Mixtral: eight gated experts, two a token."""
    s = heads_of(c, 8)
    mlp = moe(s.hidden, width_of(c), expert_count(c, 8), experts_used(c, 2))
    layer_windows = windows(c, lambda _: True)
    made = {w: Block(attention(s, window=w), mlp, 2 * s.hidden) for w in set(layer_windows)}
    return text_model(c, [made[w] for w in layer_windows], tie=False)


def _qwen_sparse(c: Config) -> Callable[[int], bool]:
    every = c.count("decoder_sparse_step", default=1)
    plain = set(c.numbers("mlp_only_layers") or [])
    return lambda i: i not in plain and (i + 1) % every == 0


def qwen2_moe(c: Config) -> Text:
    """Qwen1.5/2 MoE: biases on q, k, v; one gated shared expert."""
    s = heads_of(c)
    mlp = moe(
        s.hidden,
        c.count("moe_intermediate_size", default=1408),
        expert_count(c, 60),
        experts_used(c, 4),
        shared=c.count("shared_expert_intermediate_size", default=5632),
        shared_gate=True,
    )
    mixer = attention(s, qkv_bias=c.flag("qkv_bias", default=True))
    return text_model(c, mixed(c, mixer, mlp, _qwen_sparse(c), 2 * s.hidden), tie=False)


def qwen3_moe(c: Config) -> Text:
    """Qwen3 MoE: norms over q and k heads, no shared expert."""
    s, bias = heads_of(c, 4), c.flag("attention_bias", default=False)
    width = c.count("moe_intermediate_size", default=768)
    mlp = moe(s.hidden, width, expert_count(c, 128), experts_used(c, 8))
    mixer = attention(s, qkv_bias=bias, out_bias=bias, qk_norm="head")
    return text_model(c, mixed(c, mixer, mlp, _qwen_sparse(c), 2 * s.hidden), tie=False)


def olmoe(c: Config) -> Text:
    """OLMoE: norms over all of q and of k."""
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    mlp = moe(s.hidden, width_of(c), expert_count(c, 64), experts_used(c, 8))
    mixer = attention(s, qkv_bias=bias, out_bias=bias, qk_norm="flat")
    return text_model(c, [Block(mixer, mlp, 2 * s.hidden)] * c.layers, tie=False)


def phimoe(c: Config) -> Text:
    """Phi-3.5 MoE: layer norms with biases, biases in attention, a head with a bias."""
    s = heads_of(c, 8)
    bias = c.flag("attention_bias", default=False)
    mlp = moe(s.hidden, width_of(c), expert_count(c, 16), experts_used(c, 2))
    mixer = attention(s, qkv_bias=bias, out_bias=bias, window=c.optional("sliding_window") or None)
    blocks = [Block(mixer, mlp, 4 * s.hidden)] * c.layers
    return text_model(c, blocks, tie=False, other=2 * s.hidden, head_bias=c.flag("lm_head_bias", default=False))


def gpt_oss(c: Config) -> Text:
    """gpt-oss: sinks in attention, biases everywhere, every other layer windowed."""
    s = heads_of(c, 8, head_dim=64)
    bias = c.flag("attention_bias", default=True)
    mlp = moe(s.hidden, width_of(c), expert_count(c), experts_used(c, 4), bias=True, router_bias=True)
    layer_windows = windows(c, lambda i: i % 2 == 0, 128)
    made = {
        w: Block(attention(s, qkv_bias=bias, out_bias=bias, window=w, other=s.heads), mlp, 2 * s.hidden)
        for w in set(layer_windows)
    }
    return text_model(c, [made[w] for w in layer_windows], tie=False)


def glm4_moe(c: Config) -> Text:
    """GLM-4.5 to 4.7, dots.llm1: biases on q, k, v where asked, a load-balance bias an expert, leading dense layers."""
    dots = c.text("model_type") == "dots1"
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    width = c.count("moe_intermediate_size")
    shared = width * (c.optional("n_shared_experts") or 0)
    mlp = moe(
        s.hidden,
        width,
        expert_count(c),
        experts_used(c),
        shared=shared,
        correction=True,
        groups=(c.count("n_group", default=1), c.count("topk_group", default=1)),
    )
    norm = "head" if dots or c.flag("use_qk_norm", default=False) else ""
    mixer = attention(s, qkv_bias=bias, out_bias=bias and dots, qk_norm=norm)
    return text_model(c, mixed(c, mixer, mlp, from_layer(c), 2 * s.hidden), tie=False, mtp=prediction(c, mixer, mlp))


def prediction(c: Config, mixer: Mixer, mlp: Mlp) -> tuple[tuple[str, int], ...]:
    """Multi-token-prediction modules of DeepSeek-V3's make: a layer, a 2h x h projection, three norms; embeddings shared."""
    modules = c.count("num_nextn_predict_layers", default=0, least=0)
    if not modules:
        return ()
    router = mlp.router.parameters if mlp.router else 0
    layer = sum(m.parameters for m in mixer.matrices + mlp.matrices) + router
    layer += mlp.experts * sum(m.parameters for m in mlp.expert) + mixer.other_parameters + mlp.other_parameters
    return (("mtp", modules * (layer + 2 * c.hidden**2 + 5 * c.hidden)),)


def minimax_m2(c: Config) -> Text:
    """MiniMax-M2: norms over all of q and of k, a load-balance bias an expert."""
    s = heads_of(c, 8, head_dim=128)
    mlp = moe(s.hidden, width_of(c), expert_count(c, 256), experts_used(c, 8), correction=True)
    mixer = attention(s, qk_norm="flat" if c.flag("use_qk_norm", default=True) else "")
    return text_model(c, [Block(mixer, mlp, 2 * s.hidden)] * c.layers, tie=False)


def dbrx(c: Config) -> Text:
    """DBRX: sizes in nested tables, norms without biases."""
    attn, ffn = c.sub("attn_config"), c.sub("ffn_config")
    if attn is None or ffn is None:
        raise c.fail("attn_config and ffn_config", "nothing", "a table each")
    h, heads = c.hidden, c.count("n_heads")
    s = heads_of(Config({**c.fields, "num_key_value_heads": attn.count("kv_n_heads", default=1)}, c.source, c.place))
    width = ffn.count("ffn_hidden_size", default=3584)
    mlp = moe(h, width, ffn.count("moe_num_experts", default=4), ffn.count("moe_top_k", default=1))
    if s.heads != heads:
        raise c.fail("n_heads", heads, "the same number under each of its names")
    return text_model(c, [Block(attention(s), mlp, 2 * h)] * c.layers, tie=False)


def grok(c: Config) -> Text:
    """Grok-1: four norms a layer, tied embedding, gated experts."""
    if c.flag("residual_moe", default=False):
        raise c.fail("residual_moe", "true", "false: Grok-2's dense path beside the experts is not covered")
    s = heads_of(c)
    mlp = moe(s.hidden, width_of(c), expert_count(c), experts_used(c))
    return text_model(c, [Block(attention(s), mlp, 4 * s.hidden)] * c.layers, tie=True)


def llama4(c: Config) -> Text:
    """Llama 4: a shared expert beside the routed one; three layers in four attend within chunks."""
    s, bias = heads_of(c, 8), c.flag("attention_bias", default=False)
    width = width_of(c)
    sparse = moe(s.hidden, width, expert_count(c, 16), experts_used(c, 1), shared=width)
    plain = dense(s.hidden, c.count("intermediate_size_mlp"))
    step = c.count("interleave_moe_layer_step", default=1)
    listed = c.numbers("moe_layers")
    chosen = set(range(step - 1, c.layers, step) if listed is None else listed)
    rotary = c.numbers("no_rope_layers") or [int((i + 1) % 4 != 0) for i in range(c.layers)]
    chunk = c.count("attention_chunk_size", default=8192)
    mixers = {
        1: attention(s, qkv_bias=bias, out_bias=bias, window=chunk),
        0: attention(s, qkv_bias=bias, out_bias=bias),
    }
    blocks = [
        Block(mixers[1 if rotary[i] else 0], sparse if i in chosen else plain, 2 * s.hidden) for i in range(c.layers)
    ]
    return text_model(c, blocks, tie=False)


def granite_moe(c: Config) -> Text:
    """Granite MoE: gated experts, optionally a shared one."""
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    shared = c.count("shared_intermediate_size", default=0, least=0)
    mlp = moe(s.hidden, width_of(c), expert_count(c, 8), experts_used(c, 2), shared=shared)
    mixer = attention(s, qkv_bias=bias, out_bias=bias)
    return text_model(c, [Block(mixer, mlp, 2 * s.hidden)] * c.layers, tie=False)


def _one(c: Config, *names: str, default: int | None = None) -> int:
    """Return a number that some files give as a list with one entry a layer (all equal)."""
    value = c.get(*names)
    if isinstance(value, list):
        if len(set(value)) != 1:
            raise c.fail(names[0], "different numbers by layer", "one number, or the same for each layer")
        return Config({names[0]: value[0]}, c.source, c.place).count(names[0])
    return c.count(*names, default=default)


def hunyuan_moe(c: Config) -> Text:
    """Hunyuan MoE (Large, A13B): shared experts as wide as routed ones, norms over q and k heads.

    In Large, neighbouring layers share keys and values (``use_cla``): only the first of a group projects and caches them.
    """
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    width = _one(c, "moe_intermediate_size", "intermediate_size")
    shared = _one(c, "num_shared_expert", default=1) if c.flag("use_mixed_mlp_moe", default=True) else 0
    sparse = moe(
        s.hidden, width, _one(c, "num_experts"), _one(c, "moe_topk", "num_experts_per_tok"), shared=shared * width
    )
    qk_norm = "head" if c.flag("use_qk_norm", default=True) else ""
    group = c.count("cla_share_factor", default=2) if c.flag("use_cla", default=False) else 1
    mixers = [attention(s, qkv_bias=bias, out_bias=bias, qk_norm=qk_norm, kv_shared=kept) for kept in (False, True)]
    skipped = c.count("moe_layer_num_skipped", default=0, least=0)
    plain = dense(s.hidden, _one(c, "intermediate_size")) if skipped else sparse
    blocks = [Block(mixers[i % group != 0], plain if i < skipped else sparse, 2 * s.hidden) for i in range(c.layers)]
    return text_model(c, blocks, tie=False)


def ernie_moe(c: Config) -> Text:
    """ERNIE 4.5 MoE: experts between two layers at an interval, with a load-balance bias; tied head."""
    s, bias = heads_of(c), c.flag("use_bias", default=False)
    width = c.count("moe_intermediate_size")
    shared = width * (c.optional("moe_num_shared_experts") or 0)
    mlp = moe(s.hidden, width, expert_count(c), experts_used(c), shared=shared, correction=True, bias=bias)
    first = c.count("moe_layer_start_index", default=1, least=0)
    end = c.get("moe_layer_end_index")
    last = c.layers - 1 if end in (None, -1) else c.count("moe_layer_end_index")
    every = c.count("moe_layer_interval", default=1)
    mixer = attention(s, qkv_bias=bias, out_bias=bias)
    blocks = mixed(c, mixer, mlp, lambda i: (i + 1) % every == 0 and first <= i <= last, 2 * s.hidden)
    return text_model(c, blocks, tie=True)


def bailing_moe(c: Config) -> Text:
    """Ling and Ring: shared experts, leading dense layers; version 2 has q/k norms and a load-balance bias."""
    two = "v2" in c.text("model_type").lower() or "_2" in c.text("model_type") or c.flag("use_qk_norm", default=False)
    s = heads_of(c)
    width = c.count("moe_intermediate_size")
    shared = c.count("moe_shared_expert_intermediate_size", default=width) * (c.optional("num_shared_experts") or 0)
    mlp = moe(
        s.hidden,
        width,
        expert_count(c),
        experts_used(c),
        shared=shared,
        correction=c.flag("moe_router_enable_expert_bias", default=two),
        groups=(c.count("n_group", default=1), c.count("topk_group", default=1)),
    )
    bias = c.flag("use_qkv_bias", default=False)
    qk_norm = "head" if c.flag("use_qk_norm", default=two) else ""
    mixer = attention(s, qkv_bias=bias, out_bias=c.flag("use_bias", default=False), qk_norm=qk_norm)
    return text_model(c, mixed(c, mixer, mlp, from_layer(c), 2 * s.hidden), tie=False)


def arctic(c: Config) -> Text:
    """Snowflake Arctic: a dense MLP as wide as the hidden size beside the experts, with a norm of its own."""
    s = heads_of(c)
    every = c.count("moe_layer_frequency", default=2)
    residual = c.flag("use_residual", "parallel_attn_mlp_res", default=True)
    width = width_of(c)
    routed = moe(s.hidden, width, expert_count(c, 8), experts_used(c, 1))
    beside = mlp_matrices(s.hidden, s.hidden) if residual else ()
    sparse = Mlp("moe", beside, routed.expert, routed.experts, routed.active, routed.router)
    blocks = [
        Block(attention(s), sparse, (3 if residual else 2) * s.hidden)
        if (i + 1) % every == 0
        else Block(attention(s), dense(s.hidden, width), 2 * s.hidden)
        for i in range(c.layers)
    ]
    return text_model(c, blocks, tie=False)


def aria(c: Config) -> Text:
    """Aria's language model: grouped gated experts and shared ones."""
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    width = width_of(c)
    mlp = moe(
        s.hidden,
        width,
        c.count("moe_num_experts", default=8),
        c.count("moe_topk", default=2),
        shared=width * c.count("moe_num_shared_experts", default=2),
    )
    return text_model(c, [Block(attention(s, qkv_bias=bias, out_bias=bias), mlp, 2 * s.hidden)] * c.layers, tie=False)


def step3(c: Config) -> Text:
    """Step-3: queries through a shared low rank, one key/value head, experts in the listed layers."""
    h, heads = c.hidden, c.count("num_attention_heads")
    size, rank = c.count("head_dim"), c.count("share_q_dim")
    groups = c.count("num_attention_groups", default=1)
    matrices = (
        Matrix("q_down", h, rank),
        Matrix("q_up", rank, heads * size, "column", heads),
        Matrix("k", h, groups * size, "column", groups),
        Matrix("v", h, groups * size, "column", groups),
        Matrix("o", heads * size, h, "row", heads),
    )
    mixer = Mixer(
        "attention",
        matrices,
        heads=heads,
        kv_heads=groups,
        d_qk=size,
        d_v=size,
        kv_elements=2 * groups * size,
        kv_granules=groups,
        other_parameters=rank,
    )
    mlp = moe(h, c.count("moe_intermediate_size"), expert_count(c), experts_used(c), shared=c.count("share_expert_dim"))
    listed = c.get("moe_layers_enum")
    if isinstance(listed, str):
        chosen = {int(part) for part in listed.split(",") if part.strip().isdigit()}
    else:
        chosen = set(c.numbers("moe_layers_enum") or range(1, c.layers))
    return text_model(c, mixed(c, mixer, mlp, lambda i: i in chosen, 2 * h), tie=False)
