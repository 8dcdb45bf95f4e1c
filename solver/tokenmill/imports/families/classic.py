"""Decoders with layer norms and plain MLPs: GPT-2 and its line, OPT, BLOOM, MPT, Falcon, Phi, StarCoder2, StableLM, Nemotron-4."""

from __future__ import annotations

from tokenmill.imports.families.config import Config
from tokenmill.imports.families.decoders import width_of, windows
from tokenmill.imports.families.parts import Block, Heads, Text, attention, dense, heads_of, text_model


def _inner(c: Config) -> int:
    return c.count("n_inner", "intermediate_size", "ffn_dim", default=4 * c.hidden)


def gpt2(c: Config) -> Text:
    """GPT-2: learned positions, biases everywhere, tied head."""
    s = heads_of(c)
    if c.flag("add_cross_attention", default=False):
        raise c.fail("add_cross_attention", "true", "false: cross-attention is not covered")
    block = Block(
        attention(s, qkv_bias=True, out_bias=True), dense(s.hidden, _inner(c), gated=False, bias=True), 4 * s.hidden
    )
    positions = c.count("n_positions", "max_position_embeddings", default=1024)
    return text_model(c, [block] * c.layers, tie=True, other=2 * s.hidden, lookup=positions * s.hidden)


def gpt1(c: Config) -> Text:
    """GPT-1: GPT-2 with norms after the parts and none at the end."""
    s = heads_of(c)
    mlp = dense(s.hidden, _inner(c), gated=False, bias=True)
    block = Block(attention(s, qkv_bias=True, out_bias=True), mlp, 4 * s.hidden)
    positions = c.count("n_positions", default=512)
    return text_model(c, [block] * c.layers, tie=True, other=0, lookup=positions * s.hidden)


def gpt_bigcode(c: Config) -> Text:
    """StarCoder 1: GPT-2 with one key/value head."""
    s = heads_of(c, 1 if c.flag("multi_query", default=True) else None)
    block = Block(
        attention(s, qkv_bias=True, out_bias=True), dense(s.hidden, _inner(c), gated=False, bias=True), 4 * s.hidden
    )
    positions = c.count("n_positions", default=1024)
    return text_model(c, [block] * c.layers, tie=True, other=2 * s.hidden, lookup=positions * s.hidden)


def gptj(c: Config) -> Text:
    """GPT-J and CodeGen: attention without biases beside an MLP with them, one norm, an untied head with a bias."""
    s = heads_of(c)
    block = Block(attention(s), dense(s.hidden, _inner(c), gated=False, bias=True), 2 * s.hidden, parallel=True)
    return text_model(c, [block] * c.layers, tie=False, other=2 * s.hidden, head_bias=True)


def gpt_neo(c: Config) -> Text:
    """GPT-Neo: learned positions, no bias on q, k, v; every other layer sees a window."""
    h, layers = c.hidden, c.count("num_layers", "num_hidden_layers")
    heads = c.count("num_heads", "num_attention_heads")
    s = Heads(h, heads, heads, h // heads, h // heads)
    mlp = dense(h, c.count("intermediate_size", default=4 * h), gated=False, bias=True)
    window = c.count("window_size", default=256)
    kinds = c.items("attention_layers", layers) or [("global", "local")[i % 2] for i in range(layers)]
    made = {w: Block(attention(s, out_bias=True, window=w), mlp, 4 * h) for w in (None, window)}
    blocks = [made[window if kind == "local" else None] for kind in kinds]
    positions = c.count("max_position_embeddings", default=2048)
    return text_model(c, blocks, tie=True, other=2 * h, lookup=positions * h)


def gpt_neox(c: Config) -> Text:
    """GPT-NeoX and Pythia: biases everywhere, untied head."""
    s, bias = heads_of(c), c.flag("attention_bias", default=True)
    mixer = attention(s, qkv_bias=bias, out_bias=bias)
    parallel = c.flag("use_parallel_residual", default=True)
    block = Block(mixer, dense(s.hidden, width_of(c), gated=False, bias=True), 4 * s.hidden, parallel)
    return text_model(c, [block] * c.layers, tie=False, other=2 * s.hidden)


def bloom(c: Config) -> Text:
    """BLOOM: a norm after the embedding, biases everywhere, tied head."""
    s = heads_of(c)
    block = Block(
        attention(s, qkv_bias=True, out_bias=True), dense(s.hidden, 4 * s.hidden, gated=False, bias=True), 4 * s.hidden
    )
    return text_model(c, [block] * c.layers, tie=True, other=4 * s.hidden)


def opt(c: Config) -> Text:
    """OPT: learned positions (two more than stated), biases, and projections where embeddings are narrower."""
    s, bias = heads_of(c), c.flag("enable_bias", default=True)
    h, width = s.hidden, c.count("word_embed_proj_dim", default=s.hidden)
    norm = 2 * h if c.flag("layer_norm_elementwise_affine", default=True) else 0
    mlp = dense(h, c.count("ffn_dim", default=4 * h), gated=False, bias=bias)
    block = Block(attention(s, qkv_bias=bias, out_bias=bias), mlp, 2 * norm)
    last = c.flag("do_layer_norm_before", default=True) and not c.flag("_remove_final_layer_norm", default=False)
    other = (norm if last else 0) + (2 * width * h if width != h else 0)
    positions = c.count("max_position_embeddings", default=2048) + 2
    return text_model(c, [block] * c.layers, tie=True, other=other, lookup=positions * h, width=width)


def mpt(c: Config) -> Text:
    """MPT: no biases at all, tied head."""
    if not c.flag("no_bias", default=True):
        raise c.fail("no_bias", "false", "true: the published models have no biases")
    attn = c.sub("attn_config")
    grouped = attn.optional("kv_n_heads") if attn else None
    s = heads_of(c, grouped)
    width = c.count("ffn_hidden_size", default=c.count("expansion_ratio", default=4) * s.hidden)
    learned = c.flag("learned_pos_emb", default=False) and not (attn and attn.flag("alibi", default=True))
    positions = c.count("max_seq_len", default=2048) * s.hidden if learned else 0
    block = Block(attention(s), dense(s.hidden, width, gated=False), 2 * s.hidden)
    return text_model(c, [block] * c.layers, tie=True, lookup=positions)


def falcon(c: Config) -> Text:
    """Falcon: one key/value head or groups of them; norms by decoder version; tied head."""
    h, heads = c.hidden, c.count("num_attention_heads", "n_head")
    new = c.flag("new_decoder_architecture", default=False)
    if new:
        kv = c.count("num_kv_heads", "n_head_kv", default=heads)
    else:
        kv = 1 if c.flag("multi_query", default=True) else heads
    parallel, bias = c.flag("parallel_attn", default=True), c.flag("bias", default=False)
    norms = c.count("num_ln_in_parallel_attn", default=2 if new or not parallel else 1)
    mixer = attention(Heads(h, heads, kv, h // heads, h // heads), qkv_bias=bias, out_bias=bias)
    mlp = dense(h, c.count("ffn_hidden_size", default=4 * h), gated=False, bias=bias)
    return text_model(c, [Block(mixer, mlp, norms * 2 * h, new or parallel)] * c.layers, tie=True, other=2 * h)


def phi(c: Config) -> Text:
    """Phi-1 to 2: attention and MLP in parallel after one norm, biases everywhere and on the head."""
    s = heads_of(c)
    norms = 2 * s.d_qk * 2 if c.flag("qk_layernorm", default=False) else 0
    mixer = attention(s, qkv_bias=True, out_bias=True, other=norms)
    block = Block(mixer, dense(s.hidden, width_of(c), gated=False, bias=True), 2 * s.hidden, parallel=True)
    return text_model(c, [block] * c.layers, tie=False, other=2 * s.hidden, head_bias=True)


def starcoder2(c: Config) -> Text:
    """StarCoder2: biases everywhere, windowed, tied head."""
    s, bias = heads_of(c, 2), c.flag("use_bias", default=True)
    mlp = dense(s.hidden, width_of(c), gated=False, bias=bias)
    layer_windows = windows(c, lambda _: True)
    made = {
        w: Block(attention(s, qkv_bias=bias, out_bias=bias, window=w), mlp, 4 * s.hidden) for w in set(layer_windows)
    }
    return text_model(c, [made[w] for w in layer_windows], tie=True, other=2 * s.hidden)


def stablelm(c: Config) -> Text:
    """StableLM 2 and 3B: gated MLP, layer norms with biases, optional norms over each head."""
    s, bias = heads_of(c), c.flag("use_qkv_bias", default=False)
    parallel = c.flag("use_parallel_residual", default=False)
    norms = 1 if parallel else 2
    heads = (s.heads + s.kv_heads) * s.d_qk if c.flag("qk_layernorm", default=False) else 0
    block = Block(
        attention(s, qkv_bias=bias, other=heads), dense(s.hidden, width_of(c)), norms * 2 * s.hidden, parallel
    )
    return text_model(c, [block] * c.layers, tie=False, other=2 * s.hidden)


def nemotron(c: Config) -> Text:
    """Nemotron-4 and Minitron: squared-ReLU MLP, layer norms with biases."""
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    mlp = dense(s.hidden, width_of(c), gated=False, bias=c.flag("mlp_bias", default=False))
    block = Block(attention(s, qkv_bias=bias, out_bias=bias), mlp, 4 * s.hidden)
    return text_model(c, [block] * c.layers, tie=False, other=2 * s.hidden)


def persimmon(c: Config) -> Text:
    """Persimmon: biases in attention and MLP, norms with biases over q and k heads."""
    s = heads_of(c)
    norms = 4 * s.d_qk if c.flag("qk_layernorm", default=True) else 0
    mixer = attention(s, qkv_bias=True, out_bias=True, other=norms)
    block = Block(mixer, dense(s.hidden, width_of(c), gated=False, bias=True), 4 * s.hidden)
    return text_model(c, [block] * c.layers, tie=False, other=2 * s.hidden)


def xglm(c: Config) -> Text:
    """XGLM: OPT with computed positions and a scaled embedding."""
    h, layers = c.count("d_model"), c.count("num_layers")
    heads = c.count("attention_heads")
    mixer = attention(Heads(h, heads, heads, h // heads, h // heads), qkv_bias=True, out_bias=True)
    block = Block(mixer, dense(h, c.count("ffn_dim"), gated=False, bias=True), 4 * h)
    return text_model(c, [block] * layers, tie=True, other=2 * h)
