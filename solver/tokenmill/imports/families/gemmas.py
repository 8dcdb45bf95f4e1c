"""Gemma 3n and Gemma 4: per-layer embeddings, shared caches, experts beside a dense MLP."""

from __future__ import annotations

from dataclasses import replace

from tokenmill.imports.families.config import Config
from tokenmill.imports.families.parts import Block, Heads, Text, attention, dense, heads_of, moe, text_model
from tokenmill_models.architecture import Matrix, Mixer, Mlp


def _types(c: Config, period: int) -> list[bool]:
    """Return for each layer whether it sees everything."""
    types = c.items("layer_types", c.layers)
    if types:
        return [kind == "full_attention" for kind in types]
    return [(i + 1) % period == 0 for i in range(c.layers)]


def _with_layer_input(mlp: Mlp, h: int, width: int) -> Mlp:
    """Add the gate and projection of a layer's own embedding of `width`."""
    ways = (Matrix("layer_gate", h, width), Matrix("layer_up", width, h))
    return replace(mlp, matrices=mlp.matrices + ways, other_parameters=mlp.other_parameters + h)


def _layer_embeddings(c: Config, width: int) -> tuple[int, int]:
    """Return (looked up, other) parameters of the per-layer embeddings."""
    wide = c.layers * width
    table = c.count("vocab_size_per_layer_input", default=262144) * wide
    return table, c.hidden * wide + width


def gemma3n(c: Config) -> Text:
    """Gemma 3n text: four parallel residual streams, a low-rank path beside attention, the last layers share caches."""
    h, s = c.hidden, heads_of(c, 2, head_dim=256)
    width, streams = c.count("hidden_size_per_layer_input", default=256), c.count("altup_num_inputs", default=4)
    rank, window = c.count("laurel_rank", default=64), c.count("sliding_window", default=512)
    widths = c.numbers("intermediate_size", c.layers) if isinstance(c.get("intermediate_size"), list) else None
    shared_from = c.layers - c.count("num_kv_shared_layers", default=15, least=0)
    full = _types(c, 5)
    # predicting and correcting the streams, and the low-rank path with its norm
    streams_cost = Matrix("streams", h, streams)
    low_rank = (Matrix("laurel_down", h, rank), Matrix("laurel_up", rank, h))
    fixed = h + streams**2 + streams**3 + h + h
    blocks = []
    for i in range(c.layers):
        mixer = attention(s, qk_norm="head", window=None if full[i] else window, kv_shared=i >= shared_from)
        mixer = replace(mixer, matrices=(*mixer.matrices, *low_rank, streams_cost))
        mlp = dense(h, widths[i] if widths else c.count("intermediate_size", default=16384))
        blocks.append(Block(mixer, _with_layer_input(mlp, h, width), 4 * h + fixed))
    table, other = _layer_embeddings(c, width)
    other += 2 * (streams - 1) * h * h + h
    return text_model(c, blocks, tie=True, other=other, lookup=table)


def _gemma4_mixers(c: Config) -> dict[tuple[bool, bool], Mixer]:
    """Return mixers by (sees everything, shares a cache): full layers may have heads of their own and values equal to keys."""
    s, h = heads_of(c, 4, head_dim=256), c.hidden
    wide = c.count("global_head_dim", default=s.d_qk)
    same = c.flag("attention_k_eq_v", default=False)
    kv = c.count("num_global_key_value_heads", default=s.kv_heads) if same else s.kv_heads
    everything = Heads(h, s.heads, kv, wide, wide)
    window, bias = c.count("sliding_window", default=512), c.flag("attention_bias", default=False)
    made = {}
    for shared in (False, True):
        made[True, shared] = attention(
            everything, qkv_bias=bias, out_bias=bias, qk_norm="head", kv_shared=shared, value_from_key=same
        )
        made[False, shared] = attention(
            s, qkv_bias=bias, out_bias=bias, qk_norm="head", kv_shared=shared, window=window
        )
    return made


def gemma4(c: Config) -> Text:
    """Gemma 4 text: experts beside the dense MLP with norms and scales of their own, or per-layer embeddings, by size."""
    h, width = c.hidden, c.count("hidden_size_per_layer_input", default=0, least=0)
    mixers, full = _gemma4_mixers(c), _types(c, 6)
    shared_from = c.layers - c.count("num_kv_shared_layers", default=0, least=0)
    plain = dense(h, c.count("intermediate_size"))
    doubled = dense(h, 2 * c.count("intermediate_size")) if c.flag("use_double_wide_mlp", default=False) else plain
    norms = 4 * h
    if c.flag("enable_moe_block", default=False):
        experts = c.count("num_experts")
        routed = moe(h, c.count("moe_intermediate_size"), experts, c.count("top_k_experts"))
        plain = doubled = replace(routed, matrices=plain.matrices, other_parameters=h + experts)
        norms = 7 * h
    if width:
        plain, doubled = _with_layer_input(plain, h, width), _with_layer_input(doubled, h, width)
    blocks = [
        Block(mixers[full[i], i >= shared_from], doubled if i >= shared_from else plain, norms) for i in range(c.layers)
    ]
    table, other = _layer_embeddings(c, width) if width else (0, 0)
    return text_model(c, blocks, tie=True, other=other + h, lookup=table)


def mllama(c: Config) -> Text:
    """Llama 3.2 Vision text: Llama 3.1 with layers between that attend to the image."""
    h, s = c.hidden, heads_of(c, 8)
    mlp = dense(h, c.count("intermediate_size"))
    at = set(c.numbers("cross_attention_layers") or [3, 8, 13, 18, 23, 28, 33, 38])
    own = attention(s)
    # keys and values come once from the image: nothing is cached for a text token; two learned gates
    cross = replace(attention(s, qk_norm="head", other=2), kv_elements=0)
    blocks = [Block(cross if i in at else own, mlp, 2 * h) for i in range(c.layers)]
    text = text_model(c, blocks, tie=False)
    note = "layers that attend to the image cache its keys and values once a request; these are not in the KV figures"
    return replace(text, embedding=text.embedding + 8 * h, notes=(note,))
