"""What one layer keeps for its backward pass, tensor by tensor, and what of it can be rebuilt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp

from tokenmill_models import training_leaves as leaf
from tokenmill_models.architecture import LayerKind, Matrix
from tokenmill_models.formula import Graph, Source, maximum
from tokenmill_models.operations_parts import ONE, ZERO, Part, arch_leaf, shard_inputs, shard_outputs

KORTHIKANTI = Source(
    "Korthikanti et al. 2022, arXiv:2205.05198, section 4, tensor by tensor",
    ("kept for the backward pass: the input of every norm, product and activation function, and dropout masks",),
)


def rebuilds(kind: LayerKind) -> bool:
    """Return whether selective recomputation rebuilds more of a layer than its attention core.

    Gated MLPs, mixtures of experts and latent attention: normed inputs, products of gated activations, up-projections of
    latents. Layers of the first make, without a gate, keep to the attention core alone (Korthikanti et al. 2022).
    """
    return kind.mixer.kind == "mla" or bool(kind.mlp.expert) or any(m.name == "gate" for m in kind.mlp.matrices)


@dataclass(frozen=True)
class Saved:
    """Bytes a token of a layer [B]: `kept` until the backward pass; of it `light`, cheap to rebuild, and `gate`, free to rebuild."""

    kept: sp.Expr
    light: sp.Expr = ZERO
    gate: sp.Expr = ZERO

    def __add__(self, other: Saved) -> Saved:
        return Saved(self.kept + other.kept, self.light + other.light, self.gate + other.gate)

    def times(self, factor: sp.Expr) -> Saved:
        """Return as many of it."""
        return Saved(self.kept * factor, self.light * factor, self.gate * factor)


Needed = Callable[[Matrix], sp.Expr]
"""1 where a product keeps its input for the gradient of its weights or of an adapter, 0 where nothing of it is trained."""


def trained(matrix: Matrix) -> sp.Expr:
    """Every product keeps its input: all weights are trained."""
    return ONE


@dataclass(frozen=True)
class Inputs:
    """Which products keep their input (`needed`), and 16-bit `copies` that every product keeps of it besides [1]."""

    needed: Needed = trained
    copies: sp.Expr = ZERO


ALL_TRAINED = Inputs()


def _norms(kind: LayerKind, needed: Needed) -> Saved:
    """A part of a layer (mixer, MLP) keeps the input of its norm, the normed input where a product needs it, a mask of dropout; parts
    that stand side by side have one input.
    """
    width = arch_leaf("hidden") / leaf.vector_split
    saved = Saved(ZERO)
    for part in (kind.mixer, kind.mlp):
        if part.kind == "none":
            continue
        readers = [m for m in (*part.matrices, *getattr(part, "expert", ())) if m.split != "row"]
        normed = width * leaf.bytes_operand * maximum(*(needed(m) for m in readers))
        entry = ZERO if kind.parallel and part is kind.mlp else leaf.bytes_residual
        saved += Saved(width * (entry + leaf.dropout * leaf.BYTES_MASK) + normed, normed)
    return saved


def _mixer(kind: LayerKind, path: str) -> Saved:
    """Outputs of the products before the attention core, and the core's own output; latents are projected up again."""
    saved = Saved(ZERO)
    for matrix in kind.mixer.matrices:
        part = Part(matrix, f"{path}.mixer.matrices.{matrix.name}")
        width = shard_inputs(part, leaf.tp) if matrix.split == "row" else shard_outputs(part, leaf.tp)
        size = width * leaf.bytes_residual
        saved += Saved(size, size if matrix.name.endswith("_up") else ZERO)
    return saved


def _mlp(matrices: tuple[Matrix, ...], path: str, t: sp.Expr, needed: Needed) -> Saved:
    """Outputs of the products before the activation function, and what it hands on: a gate rebuilds that from the former, and keeps
    one of its factors where nothing behind it is trained.
    """
    gated = any(m.name == "gate" for m in matrices)
    saved = Saved(ZERO)
    for matrix in matrices:
        part = Part(matrix, f"{path}.{matrix.name}")
        if matrix.split != "row":
            saved += Saved(shard_outputs(part, t) * leaf.bytes_activations)
            continue
        size = shard_inputs(part, t) * leaf.bytes_operand
        saved += Saved(size, size, size) if gated else Saved(size * needed(matrix))
    return saved


def layer_activations(
    graph: Graph, label: str, kind: LayerKind, path: str, rows: sp.Expr, inputs: Inputs = ALL_TRAINED
) -> tuple[sp.Symbol, sp.Symbol, sp.Expr]:
    """Define the bytes of one layer that wait for the backward pass of one micro-batch [B]: all, what selective rebuilds, and
    the products of gated activations, which their own backward kernel can rebuild from what it reads.

    `rows`: tokens on a tensor group. Kept are the inputs of norms, products and activation functions, dropout masks, and a
    score matrix where there is no flash attention.
    """
    saved = _norms(kind, inputs.needed) + _mixer(kind, path)
    saved += _mlp(kind.mlp.matrices, f"{path}.mlp.matrices", leaf.tp, inputs.needed)
    if kind.mlp.expert:
        load = arch_leaf(f"{path}.mlp.active") * leaf.expert_tp / leaf.tp * leaf.expert_load
        sent = Saved(arch_leaf(f"{path}.mlp.expert.{kind.mlp.expert[0].name}.inputs") * leaf.bytes_operand)
        saved += (sent + _mlp(kind.mlp.expert, f"{path}.mlp.expert", leaf.expert_tp, inputs.needed)).times(load)
    core = _core(kind, path)
    copies = ZERO if inputs.copies == ZERO else inputs.copies * _inputs(kind, path) * leaf.BYTES_16
    light = saved.light if rebuilds(kind) else ZERO
    return (
        graph.let(
            f"saved_{label}", "B", f"activations of layer {label} kept for a micro-batch", rows * (leaf.saved_share * saved.kept + core + copies),
            source=KORTHIKANTI,
        ),
        graph.let(
            f"rebuilt_{label}", "B", f"activations of layer {label} that selective recomputation rebuilds",
            rows * ((1 - leaf.flash) * core + leaf.saved_share * light), source=KORTHIKANTI,
        ),
        rows * leaf.saved_share * saved.gate,
    )  # fmt: skip


def _inputs(kind: LayerKind, path: str) -> sp.Expr:
    """Elements a token that the products of a layer read: each its own, but queries, keys and values one; those of the routed experts
    that a token visits too.
    """
    parts = [Part(m, f"{path}.mixer.matrices.{m.name}") for m in kind.mixer.matrices if m.name not in ("k", "v")]
    parts += [Part(m, f"{path}.mlp.matrices.{m.name}") for m in kind.mlp.matrices]
    read = sp.Add(*(shard_inputs(part, leaf.tp) for part in parts))
    if kind.mlp.expert:
        load = arch_leaf(f"{path}.mlp.active") * leaf.expert_tp / leaf.tp * leaf.expert_load
        one = [Part(m, f"{path}.mlp.expert.{m.name}") for m in kind.mlp.expert]
        read += load * sp.Add(*(shard_inputs(part, leaf.expert_tp) for part in one))
    return read


def _core(kind: LayerKind, path: str) -> sp.Expr:
    """Bytes a token that the attention core keeps: softmax output, mask and dropped output a key; a log-sum with flash."""
    if not kind.mixer.heads:
        return ZERO
    heads = sp.ceiling(arch_leaf(f"{path}.mixer.heads") / leaf.tp)
    scores = leaf.score_copies * leaf.bytes_activations + leaf.dropout * (leaf.BYTES_MASK + leaf.bytes_activations)
    return heads * ((1 - leaf.flash) * leaf.sequence * scores + leaf.flash * leaf.BYTES_32)
