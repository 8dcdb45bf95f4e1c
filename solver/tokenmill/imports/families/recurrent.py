"""Models of scans alone: Mamba 1 and 2, RWKV 4 to 6."""

from __future__ import annotations

from math import ceil

from tokenmill.imports.families.config import Config
from tokenmill.imports.families.parts import Block, Text, text_model
from tokenmill.imports.families.scans import mamba1, mamba2, rwkv_mixing
from tokenmill_models.architecture import Matrix, Mixer, Mlp


def mamba(c: Config) -> Text:
    """Mamba and Falcon-Mamba."""
    h = c.hidden
    inner = c.count("intermediate_size", default=c.count("expand", default=2) * h)
    rank = c.get("time_step_rank")
    mixer = mamba1(
        h,
        inner,
        c.count("state_size", default=16),
        c.count("conv_kernel", default=4),
        ceil(h / 16) if rank in (None, "auto") else c.count("time_step_rank"),
        conv_bias=c.flag("use_conv_bias", default=True),
        bias=c.flag("use_bias", default=False),
    )
    return text_model(c, [Block(mixer, Mlp(), h)] * c.layers, tie=True)


def mamba_two(c: Config) -> Text:
    """Mamba-2 and Codestral Mamba."""
    mixer = mamba2(
        c.hidden,
        c.count("num_heads", default=128),
        c.count("head_dim", default=64),
        c.count("n_groups", default=8),
        c.count("state_size", default=128),
        c.count("conv_kernel", default=4),
        conv_bias=c.flag("use_conv_bias", default=True),
        bias=c.flag("use_bias", default=False),
    )
    return text_model(c, [Block(mixer, Mlp(), c.hidden)] * c.layers, tie=False)


def _channel_mixing(h: int, width: int) -> Mlp:
    matrices = (
        Matrix("k", h, width, "column", width),
        Matrix("r", h, h, "column", h),
        Matrix("v", width, h, "row", width),
    )
    return Mlp("dense", matrices, other_parameters=2 * h)


def _rwkv(c: Config, mixer: Mixer, width: int) -> Text:
    """Blocks of two norms each, with one more norm after the embedding."""
    h, mlp = c.hidden, _channel_mixing(c.hidden, width)
    blocks = [Block(mixer, mlp, 6 * h), *[Block(mixer, mlp, 4 * h)] * (c.layers - 1)]
    return text_model(c, blocks, tie=False, other=2 * h)


def rwkv4(c: Config) -> Text:
    """RWKV-4: five numbers a channel as state."""
    h = c.hidden
    inner = c.count("attention_hidden_size", default=h)
    mixer = rwkv_mixing(h, inner, state=5 * h, other=2 * inner + 3 * h)
    return _rwkv(c, mixer, c.count("intermediate_size", default=4 * h))


def rwkv5(c: Config) -> Text:
    """RWKV-5 and 6: a matrix a head as state, an output gate; version 6 makes its mixing and decay from the token."""
    h, size = c.hidden, c.count("head_size", default=64)
    width = c.count("intermediate_size", default=int(h * 3.5) // 32 * 32)
    gate = (Matrix("gate", h, h, "column", h),)
    state = h * size + 2 * h
    if c.text("model_type") == "rwkv5":
        return _rwkv(c, rwkv_mixing(h, h, state=state, other=8 * h, matrices=gate), width)
    mix, decay = (64, 128) if h >= 4096 else (32, 64)
    low = (
        Matrix("mix_down", h, 5 * mix),
        Matrix("mix_up", mix, 5 * h),
        Matrix("decay_down", h, decay),
        Matrix("decay_up", decay, h),
    )
    return _rwkv(c, rwkv_mixing(h, h, state=state, other=10 * h, matrices=gate + low), width)
