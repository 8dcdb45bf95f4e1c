"""Mixers with a fixed state: Mamba 1 and 2, gated delta rule, Kimi delta attention, lightning attention, short convolutions.

Scan FLOPs are those of the recurrent form, a token: the state is decayed, added to and read. A chunked prefill kernel does more.
States hold the convolution's last kernel - 1 inputs too.
"""

from __future__ import annotations

from tokenmill_models.architecture import Matrix, Mixer


def mamba1(
    hidden: int,
    inner: int,
    state: int,
    conv: int,
    rank: int,
    *,
    conv_bias: bool = True,
    bias: bool = False,
    inner_norms: int = 0,
) -> Mixer:
    """Selective scan (Mamba, arXiv:2312.00752): `inner` channels of `state` numbers each, step sizes of low `rank`."""
    matrices = (
        Matrix("in_proj", hidden, 2 * inner, "column", inner, 2 * inner * bias),
        Matrix("x_proj", inner, rank + 2 * state, "row", inner),
        Matrix("dt_proj", rank, inner, "column", inner, inner),
        Matrix("out_proj", inner, hidden, "row", inner, hidden * bias),
    )
    other = inner * conv + inner * conv_bias + inner * state + inner + inner_norms
    return Mixer(
        "linear",
        matrices,
        state_elements=inner * (state + conv - 1),
        other_parameters=other,
        scan_flops=6 * inner * state + 2 * inner * conv,
    )


def mamba2(
    hidden: int,
    heads: int,
    head_dim: int,
    groups: int,
    state: int,
    conv: int,
    *,
    conv_bias: bool = True,
    bias: bool = False,
    norm: bool = True,
) -> Mixer:
    """State-space duality (Mamba-2, arXiv:2405.21060): one decay a head, B and C shared by `groups`."""
    inner = heads * head_dim
    channels = inner + 2 * groups * state
    wide = 2 * inner + 2 * groups * state + heads
    matrices = (
        Matrix("in_proj", hidden, wide, "column", heads, wide * bias),
        Matrix("out_proj", inner, hidden, "row", heads, hidden * bias),
    )
    return Mixer(
        "linear",
        matrices,
        heads=heads,
        state_elements=inner * state + channels * (conv - 1),
        other_parameters=channels * conv + channels * conv_bias + 3 * heads + inner * norm,
        scan_flops=6 * inner * state + 2 * channels * conv,
    )


def gated_delta(hidden: int, key_heads: int, value_heads: int, d_key: int, d_value: int, conv: int) -> Mixer:
    """Gated delta rule (arXiv:2412.06464) as in Qwen3-Next: convolved q, k, v; an output gate; a decay and a rate a head."""
    keys, values = key_heads * d_key, value_heads * d_value
    channels = 2 * keys + values
    matrices = (
        Matrix("in_qkv", hidden, channels, "column", key_heads),
        Matrix("in_z", hidden, values, "column", value_heads),
        Matrix("in_ba", hidden, 2 * value_heads, "column", value_heads),
        Matrix("out_proj", values, hidden, "row", value_heads),
    )
    return Mixer(
        "linear",
        matrices,
        heads=value_heads,
        state_elements=value_heads * d_key * d_value + channels * (conv - 1),
        other_parameters=channels * conv + 2 * value_heads + d_value,
        scan_flops=8 * value_heads * d_key * d_value + 2 * channels * conv,
    )


def kimi_delta(hidden: int, heads: int, size: int, conv: int, *, full_gate: bool = False) -> Mixer:
    """Kimi delta attention (arXiv:2510.26692): a decay a channel and an output gate, both through a low rank of `size`."""
    wide = heads * size
    gate = (
        (Matrix("gate", hidden, wide, "column", heads),)
        if full_gate
        else (Matrix("g_down", hidden, size), Matrix("g_up", size, wide, "column", heads))
    )
    matrices = (
        *(Matrix(name, hidden, wide, "column", heads) for name in "qkv"),
        Matrix("f_down", hidden, size),
        Matrix("f_up", size, wide, "column", heads),
        Matrix("beta", hidden, heads, "column", heads),
        *gate,
        Matrix("o", wide, hidden, "row", heads),
    )
    return Mixer(
        "linear",
        matrices,
        heads=heads,
        state_elements=wide * size + 3 * wide * (conv - 1),
        other_parameters=3 * wide * conv + heads + wide + size,
        scan_flops=8 * wide * size + 6 * wide * conv,
    )


def lightning(hidden: int, heads: int, size: int) -> Mixer:
    """Lightning attention (MiniMax-01, arXiv:2501.08313): a decayed outer-product state, an output gate and a norm."""
    wide = heads * size
    matrices = (
        Matrix("qkv", hidden, 3 * wide, "column", heads),
        Matrix("gate", hidden, wide, "column", heads),
        Matrix("o", wide, hidden, "row", heads),
    )
    return Mixer(
        "linear",
        matrices,
        heads=heads,
        state_elements=wide * size,
        other_parameters=wide,
        scan_flops=5 * wide * size,
    )


def rwkv_mixing(hidden: int, inner: int, *, state: int, other: int, matrices: tuple[Matrix, ...] = ()) -> Mixer:
    """Time mixing of RWKV (arXiv:2305.13048, 2404.05892): receptance, key, value, output; `matrices` are a version's own."""
    mixing = tuple(Matrix(name, hidden, inner, "column", inner) for name in ("k", "v", "r"))
    return Mixer(
        "linear",
        (*mixing, *matrices, Matrix("o", inner, hidden, "row", inner)),
        state_elements=state,
        other_parameters=other,
        scan_flops=6 * state,
    )


def short_convolution(hidden: int, kernel: int, *, bias: bool = False) -> Mixer:
    """Gated short convolution (LFM2): project to three, convolve, gate, project back."""
    matrices = (
        Matrix("in_proj", hidden, 3 * hidden, "column", hidden, 3 * hidden * bias),
        Matrix("out_proj", hidden, hidden, "row", hidden, hidden * bias),
    )
    return Mixer(
        "linear",
        matrices,
        state_elements=hidden * (kernel - 1),
        other_parameters=hidden * kernel + hidden * bias,
        scan_flops=2 * hidden * kernel,
    )
