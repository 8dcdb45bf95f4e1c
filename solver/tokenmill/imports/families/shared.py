"""Zamba 2: Mamba-2 layers, some of which run a transformer block that they share, each with adapters of its own."""

from __future__ import annotations

from dataclasses import replace

from tokenmill.imports.families.config import Config
from tokenmill.imports.families.parts import Block, Heads, Text, attention, dense, text_model
from tokenmill.imports.families.scans import mamba2
from tokenmill_models.architecture import Matrix, Mixer, Mlp


def _scan(c: Config) -> Mixer:
    inner = c.count("mamba_expand", default=2) * c.hidden
    heads = c.count("n_mamba_heads", default=8)
    if inner % heads:
        raise c.fail("n_mamba_heads", heads, f"a divisor of the inner size {inner}")
    return mamba2(
        c.hidden,
        heads,
        inner // heads,
        c.count("mamba_ngroups", default=1),
        c.count("mamba_d_state", default=64),
        c.count("mamba_d_conv", default=4),
    )


def _block(c: Config) -> tuple[Mixer, Mlp, int]:
    """Return attention and MLP of a shared block, which sees the hidden state beside the embedding, and its parameters."""
    h, heads = c.hidden, c.count("num_attention_heads", default=32)
    size = c.count("attention_head_dim", default=2 * h // heads)
    soft = attention(Heads(2 * h, heads, c.count("num_key_value_heads", default=heads), size, size))
    soft = replace(soft, matrices=(*soft.matrices[:-1], Matrix("o", heads * size, h, "row", heads)))
    mlp = dense(h, c.count("intermediate_size", default=4 * h))
    return soft, mlp, sum(m.parameters for m in soft.matrices + mlp.matrices) + 3 * h


def _adapters(c: Config, soft: Mixer, width: int) -> tuple[Matrix, ...]:
    h, rank = c.hidden, c.count("adapter_rank", default=128)
    made = [Matrix("adapter_down", h, rank), Matrix("adapter_up", rank, 2 * width, "column", width)]
    if c.flag("use_shared_attention_adapter", default=False):
        for m in soft.matrices[:-1]:
            made += [Matrix(f"{m.name}_adapter_down", m.inputs, rank)]
            made += [Matrix(f"{m.name}_adapter_up", rank, m.outputs, "column", m.granules)]
    return tuple(made)


def zamba2(c: Config) -> Text:
    """Zamba 2: the shared blocks are held once, run in every hybrid layer, and cache for each."""
    h = c.hidden
    kinds = c.items("layers_block_type", c.layers)
    if kinds is None:
        at = set(c.numbers("hybrid_layer_ids") or [])
        kinds = ["hybrid" if i in at else "mamba" for i in range(c.layers)]
    scan, (soft, mlp, size) = _scan(c), _block(c)
    width = mlp.matrices[-1].inputs
    both = replace(
        soft,
        matrices=(*soft.matrices, *scan.matrices, Matrix("linear", h, h)),
        state_elements=scan.state_elements,
        other_parameters=scan.other_parameters,
        scan_flops=scan.scan_flops,
    )
    hybrid = Block(both, replace(mlp, matrices=mlp.matrices + _adapters(c, soft, width)), 4 * h)
    plain = Block(scan, Mlp(), h)
    text = text_model(c, [hybrid if kind == "hybrid" else plain for kind in kinds], tie=True)
    uses, held = kinds.count("hybrid"), c.count("num_mem_blocks", default=1)
    return replace(text, repeated=max(0, uses - held) * size)
