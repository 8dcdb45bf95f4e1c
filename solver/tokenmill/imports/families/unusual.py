"""Dense and mixed decoders that share no line: MiniCPM, Orion, Arcee, OpenELM, RecurrentGemma, AFMoE, FlexOlmo, EXAONE MoE."""

from __future__ import annotations

from dataclasses import replace

from tokenmill.imports.families.config import Config
from tokenmill.imports.families.decoders import width_of, windows
from tokenmill.imports.families.experts import expert_count, experts_used, from_layer, mixed
from tokenmill.imports.families.parts import (
    Block,
    Heads,
    Text,
    attention,
    dense,
    heads_of,
    moe,
    text_model,
)
from tokenmill_models.architecture import Matrix, Mixer


def minicpm(c: Config) -> Text:
    """MiniCPM 1 and 2: Llama with scaling constants and a tied head; some have experts."""
    s = heads_of(c)
    experts = c.count("num_experts", default=0, least=0)
    width = width_of(c)
    mlp = moe(s.hidden, width, experts, experts_used(c)) if experts else dense(s.hidden, width)
    return text_model(c, [Block(attention(s), mlp, 2 * s.hidden)] * c.layers, tie=True)


def orion(c: Config) -> Text:
    """Orion: Llama with layer norms that have biases."""
    s = heads_of(c)
    block = Block(attention(s), dense(s.hidden, width_of(c)), 4 * s.hidden)
    return text_model(c, [block] * c.layers, tie=False, other=2 * s.hidden)


def arcee(c: Config) -> Text:
    """Arcee AFM: Llama with an ungated squared-ReLU MLP."""
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    mlp = dense(s.hidden, width_of(c), gated=False, bias=c.flag("mlp_bias", default=False))
    block = Block(attention(s, qkv_bias=bias, out_bias=bias), mlp, 2 * s.hidden)
    return text_model(c, [block] * c.layers, tie=False)


def openelm(c: Config) -> Text:
    """OpenELM: heads and MLP widths grow from layer to layer; the input and output embedding are one."""
    layers = c.count("num_transformer_layers")
    h, size = c.count("model_dim"), c.count("head_dim")
    heads, kv = c.numbers("num_query_heads", layers), c.numbers("num_kv_heads", layers)
    multiples, step = c.items("ffn_multipliers", layers), c.count("ffn_dim_divisor", default=256)
    if heads is None or kv is None or multiples is None:
        raise c.fail("num_query_heads, num_kv_heads, ffn_multipliers", "nothing", "one number a layer each")
    qk_norm = "head" if c.flag("normalize_qk_projections", default=True) else ""
    gated = c.flag("ffn_with_glu", default=True)
    blocks = []
    for n, groups, multiple in zip(heads, kv, multiples, strict=True):
        width = max(step, int(float(multiple) * h + step / 2) // step * step)
        mixer = attention(Heads(h, n, groups, size, size), qk_norm=qk_norm)
        blocks.append(Block(mixer, dense(h, width, gated=gated), 2 * h))
    shared = c.flag("share_input_output_layers", default=True)
    inner = Config({**c.fields, "hidden_size": h, "tie_word_embeddings": shared}, c.source, c.place)
    return text_model(inner, blocks, tie=True)


def _recurrence(c: Config) -> Mixer:
    """Real-gated linear recurrent unit (Griffin, arXiv:2402.19427): two branches, a short convolution, two gates by head."""
    h, heads = c.hidden, c.count("num_attention_heads")
    width, conv = c.count("lru_width", default=h), c.count("conv1d_width", default=4)
    gates = tuple(Matrix(name, width // heads, width, "column", heads, width) for name in ("input_gate", "decay_gate"))
    matrices = (
        Matrix("y", h, width, "column", heads, width),
        Matrix("x", h, width, "column", heads, width),
        *gates,
        Matrix("o", width, h, "row", heads, h),
    )
    return Mixer(
        "linear",
        matrices,
        heads=heads,
        state_elements=width * conv,
        other_parameters=width * conv + width + width,
        scan_flops=4 * width + 2 * width * conv,
    )


def recurrent_gemma(c: Config) -> Text:
    """RecurrentGemma: two recurrent layers to one of windowed attention with one key/value head."""
    h, width = c.hidden, c.count("intermediate_size") // 2
    window, bias = c.count("attention_window_size", default=2048), c.flag("attention_bias", default=False)
    local = attention(heads_of(c), qkv_bias=bias, out_bias=True, window=window)
    scan, mlp = _recurrence(c), dense(h, width, bias=True)
    kinds = c.items("block_types") or c.items("_block_types") or ["recurrent", "recurrent", "attention"]
    blocks = [Block(local if kinds[i % len(kinds)] == "attention" else scan, mlp, 2 * h) for i in range(c.layers)]
    return text_model(c, blocks, tie=True)


def afmoe(c: Config) -> Text:
    """Arcee Trinity: gated attention, four norms a layer, experts with a load-balance bias after the leading layers."""
    h = c.hidden
    s = heads_of(c)
    width = c.count("moe_intermediate_size")
    shared = width * c.count("num_shared_experts", default=1, least=0)
    sparse = moe(h, width, expert_count(c), experts_used(c), shared=shared, correction=True)
    plain, leading = dense(h, width_of(c)), c.count("num_dense_layers", default=1, least=0)
    period = c.count("global_attn_every_n_layers", default=4)
    layer_windows = windows(c, lambda i: (i + 1) % period != 0)
    gate = Matrix("gate", h, s.heads * s.d_qk, "column", s.heads)
    mixers = {}
    for window in set(layer_windows):
        mixer = attention(s, qk_norm="head", window=window)
        mixers[window] = replace(mixer, matrices=(*mixer.matrices, gate))
    blocks = [Block(mixers[w], plain if i < leading else sparse, 4 * h) for i, w in enumerate(layer_windows)]
    return text_model(c, blocks, tie=False)


def flex_olmo(c: Config) -> Text:
    """FlexOlmo: OLMo 2 with experts."""
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    mlp = moe(s.hidden, width_of(c), expert_count(c, 7), experts_used(c, 5))
    mixer = attention(s, qkv_bias=bias, out_bias=bias, qk_norm="flat")
    return text_model(c, [Block(mixer, mlp, 2 * s.hidden)] * c.layers, tie=False)


def exaone_moe(c: Config) -> Text:
    """K-EXAONE: EXAONE 4 attention, experts in DeepSeek-V3's manner."""
    s = heads_of(c)
    width = c.count("moe_intermediate_size")
    shared = width * c.count("num_shared_experts", "n_shared_experts", default=1, least=0)
    sparse = moe(s.hidden, width, expert_count(c), experts_used(c), shared=shared, correction=True)
    flags = c.items("is_moe_layer", c.layers)
    choose = from_layer(c) if flags is None else lambda i: bool(flags[i])
    return text_model(c, mixed(c, attention(s, qk_norm="head"), sparse, choose, 2 * s.hidden), tie=False)
