"""Layers found by architecture search (DeciLM, Llama-Nemotron): each layer has its own attention and MLP."""

from __future__ import annotations

from tokenmill.imports.families.config import Config
from tokenmill.imports.families.parts import Block, Heads, attention, dense
from tokenmill_models.architecture import Matrix, Mixer, Mlp


def _linear(h: int) -> Matrix:
    return Matrix("linear", h, h)


def _attention(c: Config, part: Config, bias: bool) -> Mixer:
    h, heads = c.hidden, c.count("num_attention_heads")
    if part.flag("no_op", default=False):
        return Mixer()
    if part.flag("replace_with_linear", default=False):
        return Mixer("none", (_linear(h),))
    group = part.count("n_heads_in_group")
    if heads % group:
        raise part.fail("n_heads_in_group", group, f"a divisor of the {heads} attention heads")
    size = c.count("head_dim", default=h // heads)
    return attention(
        Heads(h, heads, heads // group, size, size),
        qkv_bias=bias,
        out_bias=bias,
        window=part.optional("window_length"),
    )


def _mlp(c: Config, part: Config, bias: bool) -> Mlp:
    h = c.hidden
    if part.flag("no_op", default=False):
        return Mlp()
    if part.flag("replace_with_linear", default=False):
        return Mlp("dense", (_linear(h),))
    width = part.optional("intermediate_size")
    if width is None:
        # the width is two thirds of the multiple, rounded up to a whole 256
        width = -(-int(2 * part.number("ffn_mult", 4.0) * h / 3) // 256) * 256
    return dense(h, width, bias=bias)


def searched_blocks(c: Config) -> list[Block]:
    """Read ``block_configs``."""
    items = c.items("block_configs", c.layers)
    if items is None:
        raise c.fail("block_configs", "nothing", "one entry a layer")
    bias, mlp_bias = c.flag("attention_bias", default=False), c.flag("mlp_bias", default=False)
    blocks = []
    for index, item in enumerate(items):
        entry = Config(item if isinstance(item, dict) else {}, c.source, f"{c.place}block_configs[{index}].")
        part, ffn = entry.sub("attention"), entry.sub("ffn")
        if part is None or ffn is None:
            raise entry.fail("attention and ffn", "nothing", "a table each")
        mixer, mlp = _attention(c, part, bias), _mlp(c, ffn, mlp_bias)
        # a part that is absent has no norm before it
        norms = sum(not skipped for skipped in (part.flag("no_op", default=False), ffn.flag("no_op", default=False)))
        blocks.append(Block(mixer, mlp, norms * c.hidden))
    return blocks
