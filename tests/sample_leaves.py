"""Values for the leaves of a graph in tests: from an architecture, from round numbers of a device, from a table."""

from collections.abc import Iterable, Mapping
from typing import Any

import sympy as sp

from tokenmill_models.architecture import Architecture, LayerKind, Matrix, Mixer, Mlp
from tokenmill_models.compile import constants
from tokenmill_models.symbols import quantity

DEVICE = {
    # an accelerator of round numbers: 1e15 FLOP/s, 3e12 B/s, 80e9 B
    "chip.peak[compute]": 1e15,
    "chip.peak_bf16": 1e15,
    "chip.compute_share[compute]": 0.7,
    "chip.attention_share": 0.6,
    "chip.bandwidth_share": 0.9,
    "chip.bandwidth": 3e12,
    "chip.capacity": 80e9,
    "chip.half_rows": 64.0,
    "chip.half_inner": 128.0,
    "chip.half_columns": 256.0,
    "chip.units": 100.0,
    "chip.small_tile_share": 0.9,
    "chip.split_cost": 0.3,
    "chip.launch": 2e-6,
    "chip.inner_time": 3e-10,
    "chip.convert_launch": 0.0,
    "chip.convert_time": 0.0,
    "chip.convert_rows": 0.0,
    "chip.convert_inner": 0.0,
    "chip.expert_launch": 2e-5,
    "chip.expert_share[experts]": 0.5,
    "chip.expert_rows[experts]": 32.0,
    "chip.expert_bandwidth[experts]": 0.9,
    "chip.expert_start[experts]": 2e-5,
    "chip.attention_width": 32.0,
    "chip.cache_share": 0.8,
    "chip.prefill_launch": 1e-5,
    "chip.decode_launch": 1e-5,
    "chip.prefill_row": 3e-12,
    "chip.decode_row": 2e-11,
    "chip.ring_start": 0.0,
    "chip.ring_hops": 1.0,
    "chip.ring_share": 0.75,
    "chip.ring_ramp": 0.0,
    "chip.switch_start": 1e-5,
    "chip.switch_share": 0.6,
    "chip.exchange_start": 0.0,
    "chip.exchange_hops": 1.0,
    "chip.exchange_share": 0.75,
    "chip.exchange_ramp": 0.0,
    "chip.exchange_self": 0.0,
    "chip.own_start": 5e-6,
    "chip.own_hops": 0.1,
    "chip.own_share": 0.6,
    "chip.own_pair_share": 0.3,
    "chip.own_host": 2e-5,
    "system.fabric_share": 0.8,
}
IDEAL = {
    "chip.compute_share[compute]": 1.0,
    "chip.attention_share": 1.0,
    "chip.bandwidth_share": 1.0,
    "chip.half_rows": 0.0,
    "chip.half_inner": 0.0,
    "chip.half_columns": 0.0,
    "chip.small_tile_share": 1.0,
    "chip.split_cost": 0.0,
    "chip.launch": 0.0,
    "chip.inner_time": 0.0,
    "chip.expert_launch": 0.0,
    "chip.expert_share[experts]": 1.0,
    "chip.expert_rows[experts]": 0.0,
    "chip.expert_bandwidth[experts]": 1.0,
    "chip.expert_start[experts]": 0.0,
    "chip.attention_width": 0.0,
    "chip.cache_share": 1.0,
    "chip.prefill_launch": 0.0,
    "chip.decode_launch": 0.0,
    "chip.prefill_row": 0.0,
    "chip.decode_row": 0.0,
    "chip.ring_start": 0.0,
    "chip.ring_hops": 0.0,
    "chip.ring_share": 1.0,
    "chip.ring_ramp": 0.0,
    "chip.switch_start": 0.0,
    "chip.switch_share": 1.0,
    "chip.exchange_start": 0.0,
    "chip.exchange_hops": 0.0,
    "chip.exchange_share": 1.0,
    "chip.exchange_ramp": 0.0,
    "chip.exchange_self": 0.0,
    "chip.own_start": 0.0,
    "chip.own_hops": 0.0,
    "chip.own_share": 1.0,
    "chip.own_pair_share": 1.0,
    "chip.own_host": 0.0,
    "system.fabric_share": 1.0,
}


def matrix(name: str, inputs: int, outputs: int, split: str, granules: int | None = None) -> Matrix:
    """A matrix that is cut into single columns or rows unless `granules` says otherwise."""
    return Matrix(name, inputs, outputs, split, granules or (outputs if split == "column" else inputs))


def attention(h: int, heads: int, kv_heads: int, d: int, window: int | None = None) -> Mixer:
    """Grouped-query attention of plain shape."""
    matrices = (
        matrix("q", h, heads * d, "column", heads),
        matrix("k", h, kv_heads * d, "column", kv_heads),
        matrix("v", h, kv_heads * d, "column", kv_heads),
        matrix("o", heads * d, h, "row", heads),
    )
    return Mixer("attention", matrices, heads, kv_heads, d, d, window, 2 * kv_heads * d, kv_heads)


def mlp(h: int, width: int, gated: bool = True) -> tuple[Matrix, ...]:
    """The matrices of an MLP."""
    gate = (matrix("gate", h, width, "column"),) if gated else ()
    return (*gate, matrix("up", h, width, "column"), matrix("down", width, h, "row"))


def dense(
    h: int, heads: int, kv_heads: int, d: int, width: int, layers: int, vocabulary: int, gated: bool = True
) -> Architecture:
    """A dense decoder."""
    kind = LayerKind("dense", layers, tuple(range(layers)), attention(h, heads, kv_heads, d),
                     Mlp("dense", mlp(h, width, gated)), 2 * h)  # fmt: skip
    head = matrix("head", h, vocabulary, "column")
    return Architecture("test", "test", h, vocabulary, (kind,), vocabulary * h, head, False, h)


def expert(h: int, heads: int, kv_heads: int, d: int, width: int, experts: int, active: int, shared: int,
           layers: int, first: int, vocabulary: int) -> Architecture:  # fmt: skip
    """A mixture of experts with `first` dense layers before it."""
    router = Matrix("router", h, experts)
    sparse = Mlp("moe", mlp(h, shared) if shared else (), mlp(h, width), experts, active, router)
    mixer = attention(h, heads, kv_heads, d)
    kinds = []
    if first:
        kinds.append(LayerKind("first", first, tuple(range(first)), mixer, Mlp("dense", mlp(h, 4 * h)), 2 * h))
    kinds.append(LayerKind("moe", layers - first, tuple(range(first, layers)), mixer, sparse, 2 * h))
    head = matrix("head", h, vocabulary, "column")
    return Architecture("test-moe", "test", h, vocabulary, tuple(kinds), vocabulary * h, head, False, h)


def latent(h: int, heads: int, rank: int, q_rank: int, nope: int, rope: int, d_v: int, width: int, layers: int,
           vocabulary: int) -> Architecture:  # fmt: skip
    """A decoder with multi-head latent attention and dense MLPs."""
    matrices = (
        Matrix("q_down", h, q_rank),
        Matrix("q_up", q_rank, heads * (nope + rope), "column", heads),
        Matrix("kv_down", h, rank + rope),
        Matrix("kv_up", rank, heads * (nope + d_v), "column", heads),
        Matrix("o", heads * d_v, h, "row", heads),
    )
    mixer = Mixer("mla", matrices, heads, 1, nope + rope, d_v, None, rank + rope, 1, 1, 0, rank, rope, nope)
    kind = LayerKind("mla", layers, tuple(range(layers)), mixer, Mlp("dense", mlp(h, width)), 2 * h)
    head = matrix("head", h, vocabulary, "column")
    return Architecture("test-mla", "test", h, vocabulary, (kind,), vocabulary * h, head, False, h)


def arch_value(arch: Architecture, path: str) -> float:
    """The number at ``arch.<path>``: attributes, places of a tuple, matrices by name."""
    found: Any = arch
    for step in path.split("."):
        if isinstance(found, tuple):
            found = found[int(step)] if step.isdigit() else next(item for item in found if item.name == step)
        else:
            found = getattr(found, step)
    return float(found)


def leaf_values(leaves: Iterable[sp.Symbol], arch: Architecture, table: Mapping[str, float]) -> dict[str, float]:
    """Values of leaves by symbol name; `table` by origin goes before the device of round numbers.

    Groups have one level of 8 wires unless the table says otherwise: members are 1.
    """
    leaves = list(leaves)
    values = constants(leaves)
    group = {"n": 1.0, "beta": 1e11, "alpha": 1e-6, "reduces": 0.0, "send": 1e11, "all_to_all": 1e11}
    for symbol in leaves:
        origin = quantity(symbol).origin or ""
        if symbol.name in values:
            continue
        known = {**DEVICE, **table}
        if origin in known:
            values[symbol.name] = known[origin]
        elif origin.startswith("arch."):
            values[symbol.name] = arch_value(arch, origin.removeprefix("arch."))
        elif origin.startswith("group."):
            field = origin.rsplit(".", 1)[1].rstrip("0123456789")
            values[symbol.name] = group.get(field, 1e11)
        else:
            raise KeyError(f"{symbol}: no value for origin {origin!r}")
    return values
