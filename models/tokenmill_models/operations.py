"""The forward work of one layer, and of the output head, on one rank: operations as engines fuse them, each on the roofline.

Serving and training build on the same operations; training derives its backward pass from the parts of `LayerWork`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import sympy as sp

from tokenmill_models.architecture import Architecture, LayerKind, Matrix
from tokenmill_models.formula import Graph, Source
from tokenmill_models.operations_attention import attention_core, indexer_scores, scan, score_operations
from tokenmill_models.operations_parts import (
    LOGIT_BYTES,
    ONE,
    ZERO,
    Operation,
    Part,
    Shape,
    arch_leaf,
    joined,
    product,
    shard_outputs,
    vector_operation,
)
from tokenmill_models.symbols import declare

expert_launch = declare(
    "expert_launch", "s", "time of the kernels that sort the tokens of a layer by expert and back",
    origin="chip.expert_launch",
)  # fmt: skip

expert_start = declare(
    "expert_start", "s", "time that a layer's grouped products take to start, sorting of tokens included",
    origin="chip.expert_start[experts]",
)  # fmt: skip

__all__ = ["LayerWork", "Operation", "Shape", "arch_leaf", "head", "layer", "touched_experts"]

EXPERTS = Source("expected distinct experts among independent uniform draws: E·(1-(1-K/E)^tokens)")


@dataclass(frozen=True)
class LayerWork:
    """Forward work of one layer on one rank.

    `time`, `compute_time` (sum of the compute times), `matmul_time`, `attention_time`, `scores_time` and `softmax_time` (products and
    sweeps where scores pass through memory), `vector_time`, `expert_time` [s]
    (`expert_time` is the part of `matmul_time` that routed experts take, `convert_time` that of converting inputs); `flops` executed, `matmul_flops`,
    `attention_flops` [FLOP]; `bytes`, `weight_bytes_read` [B]. `operations`: the single operations by name.
    """

    time: sp.Symbol
    flops: sp.Symbol
    bytes: sp.Symbol
    compute_time: sp.Symbol
    matmul_time: sp.Symbol
    attention_time: sp.Symbol
    scores_time: sp.Symbol
    softmax_time: sp.Symbol
    vector_time: sp.Symbol
    sorted_bytes: sp.Expr
    expert_time: sp.Symbol
    convert_time: sp.Symbol
    matmul_flops: sp.Symbol
    attention_flops: sp.Symbol
    weight_bytes_read: sp.Symbol
    operations: dict[str, Operation] = field(default_factory=dict)


def layer(graph: Graph, label: str, kind: LayerKind, path: str, shape: Shape) -> LayerWork:
    """Define the forward pass of one layer of `kind` (its leaves are ``arch.<path>.*``, path like ``layers.0``).

    Errors: ValueError where the label was used for another layer. Source: formulas 2 and 3 (exact operation list).
    """
    operations = [*_mixer(graph, label, kind, path, shape), *_mlp(graph, label, kind, path, shape)]
    operations.append(_vector(graph, label, kind, path, shape))
    return _total(graph, label, operations, _sorted(kind, path, shape))


def head(graph: Graph, label: str, arch: Architecture, shape: Shape) -> LayerWork:
    """Define the output head on `shape.tokens` (in serving the last token of a sequence alone): product, then softmax."""
    operations = []
    if arch.head is not None:
        part = Part(arch.head, "head")
        rows = shape.all_tokens
        operations.append(product(graph, f"{label}_product", "head", [part], rows, shape))
        logits = rows * shard_outputs(part, shape.t) * LOGIT_BYTES
        operations.append(vector_operation(graph, f"{label}_softmax", 2 * logits))
    return _total(graph, label, operations)


def _mixer(graph: Graph, label: str, kind: LayerKind, path: str, shape: Shape) -> list[Operation]:
    mixer, at = kind.mixer, f"{path}.mixer"
    parts = [Part(m, f"{at}.matrices.{m.name}") for m in mixer.matrices]
    operations = [
        product(graph, f"{label}_{joined(group)}", "matmul", group, shape.all_tokens, shape) for group in fused(parts)
    ]
    for suffix, load in (("", shape), ("_beside", shape.beside)):
        if load is None:
            continue
        if mixer.heads * (mixer.d_qk + mixer.d_v):
            operations.append(attention_core(graph, f"{label}_attention{suffix}", mixer, at, load))
            if load.flash != ONE and load.scores_apart:
                operations += score_operations(graph, f"{label}_attention{suffix}", at, load)
        if mixer.scan_flops or mixer.kind == "linear":
            operations.append(scan(graph, f"{label}_scan{suffix}", mixer, at, load))
        if mixer.indexer:
            operations.append(indexer_scores(graph, f"{label}_indexer{suffix}", at, load))
    return operations


def fused(parts: Iterable[Part]) -> list[list[Part]]:
    """Group matrices into the products that run as one: those that read the same input and are cut the same way.

    Row-cut matrices stand alone, and so does what reads a latent (``*_up``, ``index_q``, ``o_down``).
    """
    groups: dict[tuple[str, int, str], list[Part]] = {}
    for part in parts:
        m = part.matrix
        alone = m.split == "row" or m.name.endswith("_up") or m.name in ("index_q", "o_down")
        groups.setdefault((m.split, m.inputs, m.name if alone else ""), []).append(part)
    return list(groups.values())


def _mlp(graph: Graph, label: str, kind: LayerKind, path: str, shape: Shape) -> list[Operation]:
    mlp, at = kind.mlp, f"{path}.mlp"
    parts = [Part(m, f"{at}.matrices.{m.name}") for m in mlp.matrices]
    operations = [
        product(graph, f"{label}_mlp_{joined(group)}", "matmul", group, shape.all_tokens, shape)
        for group in fused(parts)
    ]
    if mlp.router:
        part = Part(mlp.router, f"{at}.router")
        operations.append(product(graph, f"{label}_router", "matmul", [part], shape.all_tokens, shape))
    if mlp.expert:
        operations += _experts(graph, label, mlp.expert, at, shape)
    return operations


def touched_experts(graph: Graph, label: str, at: str, shape: Shape) -> sp.Expr:
    """Define the routed experts of a rank whose weights a pass reads (`shape.touched` where it is given).

    The expert group holds the tokens of e·t_e/t tensor groups.
    """
    if shape.touched is not None:
        return shape.touched
    E, K = arch_leaf(f"{at}.experts"), arch_leaf(f"{at}.active")
    tokens = shape.all_tokens * shape.e * shape.t_e / shape.t
    return graph.let(
        f"touched_{label}", "1", f"experts of a rank that {label} reads", E / shape.e * (1 - (1 - K / E) ** tokens),
        source=EXPERTS, assumes=("tokens draw their experts uniformly and independently",),
    )  # fmt: skip


def _experts(graph: Graph, label: str, expert: tuple[Matrix, ...], at: str, shape: Shape) -> list[Operation]:
    """Two grouped products over the routed experts of the fullest rank, and the kernels that sort tokens by expert."""
    active = arch_leaf(f"{at}.active")
    pairs = graph.let(
        f"pairs_{label}", "1", f"token-expert pairs that the fullest rank group of {label} computes",
        shape.all_tokens * active * shape.t_e / shape.t * shape.expert_load,
    )  # fmt: skip
    read = touched_experts(graph, label, at, shape)
    inside = replace(shape, t=shape.t_e, weight_bytes=shape.expert_bytes)
    parts = [Part(m, f"{at}.expert.{m.name}") for m in expert]
    products = [
        product(graph, f"{label}_experts_{joined(group)}", "expert", group, pairs, inside, copies=read)
        for group in fused(parts)
    ]
    name = f"{label}_sorting"
    sorting = graph.let(
        f"T_{name}", "s", f"time of {name}: tokens by expert and back", expert_start if shape.grouped else expert_launch
    )
    return [*products, Operation(name, "expert", ZERO, ZERO, ZERO, ZERO, sorting)]


def _vector(graph: Graph, label: str, kind: LayerKind, path: str, shape: Shape) -> Operation:
    """Norms, residuals, rotary positions, activation function, permutation to the experts: one sweep of memory.

    A norm fused with its residual reads two rows and writes two, twice a layer. Dropout stands between them: its kernel writes the
    row that the norm reads, and a mask of half its size.
    """
    h, tokens = arch_leaf("hidden"), shape.all_tokens
    elements = (8 + 5 * shape.dropout) * h / shape.vector_split
    if kind.mixer.heads and kind.mixer.d_qk:
        at = f"{path}.mixer"
        elements += 2 * sp.ceiling(arch_leaf(f"{at}.heads") / shape.t) * arch_leaf(f"{at}.d_qk")
    at = f"{path}.mlp"
    elements += sum((_activated(Part(m, f"{at}.matrices.{m.name}"), shape.t) for m in kind.mlp.matrices), ZERO)
    if kind.mlp.expert:
        active = arch_leaf(f"{at}.active")
        inside = sum((_activated(Part(m, f"{at}.expert.{m.name}"), shape.t_e) for m in kind.mlp.expert), ZERO)
        elements += active * shape.t_e / shape.t * shape.expert_load * inside
    moved = tokens * elements * shape.activation_bytes + _sorted(kind, path, shape)
    return vector_operation(graph, f"{label}_vector", moved)


def _sorted(kind: LayerKind, path: str, shape: Shape) -> sp.Expr:
    """Traffic of bringing the tokens of a layer to their experts and back [B]: a row is read and written each way."""
    if not kind.mlp.expert:
        return ZERO
    pairs = shape.all_tokens * arch_leaf(f"{path}.mlp.active") * shape.t_e / shape.t * shape.expert_load
    return 4 * pairs * arch_leaf("hidden") * shape.activation_bytes


def _activated(part: Part, t: sp.Expr) -> sp.Expr:
    """Elements of an MLP matrix that the activation function reads or writes: its outputs (column) or inputs (row)."""
    if part.matrix.split == "row":
        return part.leaf("inputs") / part.leaf("granules") * sp.ceiling(part.leaf("granules") / t)
    return shard_outputs(part, t)


def _total(graph: Graph, label: str, operations: list[Operation], sorted_bytes: sp.Expr = ZERO) -> LayerWork:
    def total(what: str, dimension: str, title: str, terms: list[sp.Expr]) -> sp.Symbol:
        return graph.let(f"{what}_{label}", dimension, f"{title} of {label}", sp.Add(*terms))

    def pick(attribute: str, *kinds: str) -> list[sp.Expr]:
        return [getattr(o, attribute) for o in operations if not kinds or o.kind in kinds]

    return LayerWork(
        time=total("time", "s", "forward time", pick("time")),
        flops=total("flop", "FLOP", "executed forward work", pick("flops")),
        bytes=total("moved", "B", "forward memory traffic", pick("bytes")),
        compute_time=total("compute", "s", "forward time at the compute rate", pick("compute")),
        matmul_time=total("matmul", "s", "forward time of products", pick("time", "matmul", "expert", "head")),
        attention_time=total("core", "s", "forward time of attention and scans", pick("time", "attention")),
        scores_time=total("scores", "s", "forward time of products with scores in memory", pick("time", "scores")),
        softmax_time=total("softmax", "s", "forward time of sweeps over scores in memory", pick("time", "softmax")),
        vector_time=total("vector", "s", "forward time of vector operations", pick("time", "vector")),
        sorted_bytes=sorted_bytes,
        expert_time=total("expert", "s", "forward time of routed experts", pick("time", "expert")),
        convert_time=total("convert", "s", "forward time of converting inputs", pick("convert")),
        matmul_flops=total(
            "matmul_flop", "FLOP", "forward work of products", pick("flops", "matmul", "expert", "head")
        ),
        attention_flops=total(
            "core_flop", "FLOP", "forward work of attention and scans", pick("flops", "attention", "scores")
        ),
        weight_bytes_read=total("weights_read", "B", "weights read forward", pick("weights")),
        operations={o.name: o for o in operations},
    )
