"""Dense decoders with RMS norms and gated MLPs: the Llama line and what differs from it by a bias, a norm or a window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tokenmill.imports.families.config import Config
from tokenmill.imports.families.parts import Block, Heads, Text, attention, dense, heads_of, text_model
from tokenmill.imports.families.searched import searched_blocks
from tokenmill_models.architecture import Mixer


def width_of(c: Config) -> int:
    """Return the width of the dense MLP."""
    return c.count("intermediate_size", "ffn_hidden_size", "ffn_dim")


def windows(c: Config, pattern: Callable[[int], bool], default: int | None = None) -> list[int | None]:
    """Window of each layer: by ``layer_types`` where given, else by `pattern` (is layer i windowed?).

    A runtime's own ``sliding_window_size`` is no property of the model and is not read.
    """
    window = c.optional("sliding_window") or default
    types = c.items("layer_types", c.layers)
    if window is None:
        return [None] * c.layers
    if types is not None:
        return [window if kind in ("sliding_attention", "chunked_attention") else None for kind in types]
    return [window if pattern(i) else None for i in range(c.layers)]


def stack(
    c: Config, mixer: Callable[[int | None], Mixer], layer_windows: list[int | None], norms: int, mlp_bias: bool = False
) -> list[Block]:
    """Blocks with one gated MLP and a mixer by window."""
    mlp = dense(c.hidden, width_of(c), bias=mlp_bias)
    made = {window: Block(mixer(window), mlp, norms) for window in set(layer_windows)}
    return [made[window] for window in layer_windows]


def llama(c: Config) -> Text:
    """Llama and its kin: optional attention and MLP biases, untied head by default."""
    s, bias = heads_of(c), c.flag("attention_bias", "bias", default=False)
    mixer = attention(s, qkv_bias=bias, out_bias=bias)
    mlp = dense(s.hidden, width_of(c), bias=c.flag("mlp_bias", default=False))
    return text_model(c, [Block(mixer, mlp, 2 * s.hidden)] * c.layers, tie=False)


def smollm3(c: Config) -> Text:
    """SmolLM3: Llama with a tied head and no positions in every fourth layer."""
    s, bias = heads_of(c, 4), c.flag("attention_bias", default=False)
    blocks = stack(
        c,
        lambda w: attention(s, qkv_bias=bias, out_bias=bias, window=w),
        windows(c, lambda _: False) if c.flag("use_sliding_window", default=False) else [None] * c.layers,
        2 * s.hidden,
        c.flag("mlp_bias", default=False),
    )
    return text_model(c, blocks, tie=True)


def mistral(c: Config) -> Text:
    """Mistral: Llama with 8 key/value heads by default and a window in every layer where one is given."""
    s = heads_of(c, 8)
    blocks = stack(c, lambda w: attention(s, window=w), windows(c, lambda _: True), 2 * s.hidden)
    return text_model(c, blocks, tie=False)


def _qwen_windows(c: Config) -> list[int | None]:
    if not c.flag("use_sliding_window", default=False):
        return [None] * c.layers
    first = c.count("max_window_layers", default=28, least=0)
    return windows(c, lambda i: i >= first)


def qwen(c: Config) -> Text:
    """Qwen 1: full heads with biases on q, k, v; the MLP is half the stated intermediate size wide."""
    s = heads_of(c)
    out = not c.flag("no_bias", default=True)
    mlp = dense(s.hidden, width_of(c) // 2, bias=out)
    return text_model(c, [Block(attention(s, qkv_bias=True, out_bias=out), mlp, 2 * s.hidden)] * c.layers, tie=False)


def qwen2(c: Config) -> Text:
    """Qwen2 and 2.5: biases on q, k and v only."""
    s, bias = heads_of(c), c.flag("qkv_bias", "attention_bias", default=True)
    blocks = stack(c, lambda w: attention(s, qkv_bias=bias, window=w), _qwen_windows(c), 2 * s.hidden)
    return text_model(c, blocks, tie=False)


def mimo(c: Config) -> Text:
    """MiMo 7B: Qwen2 with multi-token-prediction layers beside it."""
    text = qwen2(c)
    modules = c.count("num_nextn_predict_layers", default=0, least=0)
    block = text.blocks[0]
    own = sum(m.parameters for m in block.mixer.matrices + block.mlp.matrices) + block.norms
    extra = modules * (own + 2 * c.hidden**2 + 3 * c.hidden)
    mtp = (("mtp", extra),) if modules else ()
    return text_model(c, text.blocks, tie=False, mtp=mtp)


def qwen3(c: Config) -> Text:
    """Qwen3: norms over the heads of q and k, head size 128 unless given."""
    s, bias = heads_of(c, head_dim=128), c.flag("attention_bias", default=False)
    blocks = stack(
        c,
        lambda w: attention(s, qkv_bias=bias, out_bias=bias, qk_norm="head", window=w),
        _qwen_windows(c),
        2 * s.hidden,
    )
    return text_model(c, blocks, tie=False)


def phi3(c: Config) -> Text:
    """Phi-3 and Phi-4: Llama with fused projections."""
    s = heads_of(c)
    blocks = stack(c, lambda w: attention(s, window=w), windows(c, lambda _: True), 2 * s.hidden)
    return text_model(c, blocks, tie=False, head_bias=c.flag("lm_head_bias", default=False))


def gemma(c: Config) -> Text:
    """Gemma 1: head size 256, tied head."""
    s, bias = heads_of(c, head_dim=256), c.flag("attention_bias", default=False)
    mixer = attention(s, qkv_bias=bias, out_bias=bias)
    return text_model(c, [Block(mixer, dense(s.hidden, width_of(c)), 2 * s.hidden)] * c.layers, tie=True)


def gemma2(c: Config) -> Text:
    """Gemma 2: four norms a layer, every other layer windowed (4096 unless given); VaultGemma has two norms."""
    norms = 2 if c.text("model_type") == "vaultgemma" else 4
    s, bias = heads_of(c, head_dim=256), c.flag("attention_bias", default=False)
    layer_windows = windows(c, lambda i: i % 2 == 0, 4096)
    blocks = stack(c, lambda w: attention(s, qkv_bias=bias, out_bias=bias, window=w), layer_windows, norms * s.hidden)
    return text_model(c, blocks, tie=True)


def gemma3(c: Config) -> Text:
    """Gemma 3 text: Gemma 2 with norms over q and k heads; one layer in six sees everything."""
    s = heads_of(c, head_dim=256)
    period = c.count("sliding_window_pattern", "_sliding_window_pattern", default=6)
    layer_windows = windows(c, lambda i: (i + 1) % period != 0, 4096)
    bias = c.flag("attention_bias", default=False)
    blocks = stack(
        c, lambda w: attention(s, qkv_bias=bias, out_bias=bias, qk_norm="head", window=w), layer_windows, 4 * s.hidden
    )
    return text_model(c, blocks, tie=True)


def olmo(c: Config) -> Text:
    """OLMo 1: norms without weights."""
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    mixer = attention(s, qkv_bias=bias, out_bias=bias)
    return text_model(c, [Block(mixer, dense(s.hidden, width_of(c)), 0)] * c.layers, tie=False, other=0)


def olmo2(c: Config) -> Text:
    """OLMo 2 and 3: norms after the parts, and over all of q and of k; OLMo 3 windows three layers in four."""
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    three = c.text("model_type") == "olmo3"
    unbounded: list[int | None] = [None] * c.layers
    layer_windows = windows(c, lambda i: (i + 1) % 4 != 0, 4096) if three else unbounded
    blocks = stack(
        c, lambda w: attention(s, qkv_bias=bias, out_bias=bias, qk_norm="flat", window=w), layer_windows, 2 * s.hidden
    )
    return text_model(c, blocks, tie=False)


def cohere(c: Config) -> Text:
    """Command R: attention and MLP in parallel after one norm, tied head."""
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    norms = (s.heads + s.kv_heads) * s.d_qk if c.flag("use_qk_norm", default=False) else 0
    mixer = attention(s, qkv_bias=bias, out_bias=bias, other=norms)
    return text_model(c, [Block(mixer, dense(s.hidden, width_of(c)), s.hidden, parallel=True)] * c.layers, tie=True)


def cohere2(c: Config) -> Text:
    """Command R7B and A: Command R with three windowed layers in four."""
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    period = c.count("sliding_window_pattern", "_sliding_window_pattern", default=4)
    layer_windows = windows(c, lambda i: (i + 1) % period != 0, 4096)
    blocks = stack(c, lambda w: attention(s, qkv_bias=bias, out_bias=bias, window=w), layer_windows, s.hidden)
    return text_model(c, [replace(block, parallel=True) for block in blocks], tie=True)


def granite(c: Config) -> Text:
    """Granite 3 dense: Llama with scaling constants."""
    return llama(c)


def glm(c: Config) -> Text:
    """GLM-4 (9B): biases on q, k and v where asked; GLM-4-0414 has four norms a layer."""
    s = heads_of(c, 2, head_dim=128)
    norms = 4 if c.text("model_type").startswith("glm4") else 2
    mixer = attention(s, qkv_bias=c.flag("attention_bias", default=norms == 2))
    return text_model(c, [Block(mixer, dense(s.hidden, width_of(c)), norms * s.hidden)] * c.layers, tie=False)


def chatglm(c: Config) -> Text:
    """ChatGLM2 and 3, and GLM-4 under that name: grouped queries, biases on q, k and v, untied output layer."""
    h, heads = c.hidden, c.count("num_attention_heads")
    grouped = c.flag("multi_query_attention", default=False)
    kv = c.count("multi_query_group_num", default=1) if grouped else heads
    size = c.count("kv_channels", default=h // heads)
    linear = c.flag("add_bias_linear", default=False)
    mixer = attention(
        Heads(h, heads, kv, size, size), qkv_bias=linear or c.flag("add_qkv_bias", default=False), out_bias=linear
    )
    norm = h if c.flag("rmsnorm", default=True) else 2 * h
    block = Block(mixer, dense(h, c.count("ffn_hidden_size"), bias=linear), 2 * norm)
    other = norm if c.flag("post_layer_norm", default=True) else 0
    return text_model(c, [block] * c.layers, tie=False, other=other)


def internlm3(c: Config) -> Text:
    """InternLM3: separate switches for the bias of q, k, v and of the rest."""
    s, bias = heads_of(c, 2), c.flag("bias", default=False)
    mixer = attention(s, qkv_bias=c.flag("qkv_bias", default=False), out_bias=bias)
    return text_model(c, [Block(mixer, dense(s.hidden, width_of(c), bias=bias), 2 * s.hidden)] * c.layers, tie=False)


def internlm2(c: Config) -> Text:
    """InternLM 2: one switch for all biases of attention."""
    s, bias = heads_of(c), c.flag("bias", default=False)
    mixer = attention(s, qkv_bias=bias, out_bias=bias)
    return text_model(c, [Block(mixer, dense(s.hidden, width_of(c)), 2 * s.hidden)] * c.layers, tie=False)


def internlm(c: Config) -> Text:
    """InternLM 1: biases in attention by default."""
    s, bias = heads_of(c), c.flag("bias", default=True)
    mixer = attention(s, qkv_bias=bias, out_bias=bias)
    return text_model(c, [Block(mixer, dense(s.hidden, width_of(c)), 2 * s.hidden)] * c.layers, tie=False)


def exaone4(c: Config) -> Text:
    """EXAONE 4: norms after the parts and over q and k heads; windows by pattern."""
    s = heads_of(c)
    pattern = c.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:
        layer_windows = windows(c, lambda i: pattern[i % len(pattern)] == "L" and i + 1 < c.layers)
    else:
        period = c.count("sliding_window_pattern", default=4, least=0) or c.layers + 1
        layer_windows = windows(c, lambda i: (i + 1) % period != 0)
    blocks = stack(c, lambda w: attention(s, qk_norm="head", window=w), layer_windows, 2 * s.hidden)
    return text_model(c, blocks, tie=False)


def seed_oss(c: Config) -> Text:
    """Seed-OSS: biases on q, k, v; on the output where asked."""
    s = heads_of(c, 8, head_dim=128)
    mixer = attention(
        s,
        qkv_bias=c.flag("attention_bias", default=True),
        out_bias=c.flag("attention_out_bias", default=False),
    )
    mlp = dense(s.hidden, width_of(c), bias=c.flag("mlp_bias", default=False))
    return text_model(c, [Block(mixer, mlp, 2 * s.hidden)] * c.layers, tie=False)


def hunyuan_dense(c: Config) -> Text:
    """Hunyuan dense: Llama with norms over q and k heads."""
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    qk_norm = "head" if c.flag("use_qk_norm", default=True) else ""
    mixer = attention(s, qkv_bias=bias, out_bias=bias, qk_norm=qk_norm)
    return text_model(c, [Block(mixer, dense(s.hidden, width_of(c)), 2 * s.hidden)] * c.layers, tie=False)


def ernie(c: Config) -> Text:
    """ERNIE 4.5 dense: one switch for all biases, tied head."""
    s, bias = heads_of(c), c.flag("use_bias", default=False)
    mixer = attention(s, qkv_bias=bias, out_bias=bias)
    mlp = dense(s.hidden, width_of(c), bias=bias)
    return text_model(c, [Block(mixer, mlp, 2 * s.hidden)] * c.layers, tie=True)


def apertus(c: Config) -> Text:
    """Apertus: ungated MLP whose activation has two learned numbers, norms over q and k heads."""
    s, bias = heads_of(c), c.flag("attention_bias", default=False)
    mixer = attention(s, qkv_bias=bias, out_bias=bias, qk_norm="head")
    learned = 2 if c.text("hidden_act", "xielu") == "xielu" else 0
    mlp = dense(s.hidden, width_of(c), gated=False, bias=c.flag("mlp_bias", default=False), other=learned)
    return text_model(c, [Block(mixer, mlp, 2 * s.hidden)] * c.layers, tie=False)


def nemotron_nas(c: Config) -> Text:
    """Llama-Nemotron Super and Ultra: layers found by search."""
    return text_model(c, searched_blocks(c), tie=False)
