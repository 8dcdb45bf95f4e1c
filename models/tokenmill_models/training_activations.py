"""What one layer keeps for its backward pass, tensor by tensor, and what of it can be rebuilt (formulas.md section 5)."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tokenmill_models import training_leaves as leaf
from tokenmill_models.architecture import LayerKind, Matrix
from tokenmill_models.formula import Graph, Source
from tokenmill_models.operations_parts import ZERO, Part, arch_leaf, shard_inputs, shard_outputs

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


def _norms(kind: LayerKind) -> Saved:
    """A part of a layer (mixer, MLP) keeps the input of its norm, the normed input, a mask of dropout."""
    parts = int(kind.mixer.kind != "none") + int(kind.mlp.kind != "none")
    width = parts * arch_leaf("hidden") / leaf.vector_split
    normed = width * leaf.bytes_operand
    return Saved(width * (leaf.bytes_residual + leaf.dropout * leaf.BYTES_MASK) + normed, normed)


def _mixer(kind: LayerKind, path: str) -> Saved:
    """Outputs of the products before the attention core, and the core's own output; latents are projected up again."""
    saved = Saved(ZERO)
    for matrix in kind.mixer.matrices:
        part = Part(matrix, f"{path}.mixer.matrices.{matrix.name}")
        width = shard_inputs(part, leaf.tp) if matrix.split == "row" else shard_outputs(part, leaf.tp)
        size = width * leaf.bytes_residual
        saved += Saved(size, size if matrix.name.endswith("_up") else ZERO)
    return saved


def _mlp(matrices: tuple[Matrix, ...], path: str, t: sp.Expr) -> Saved:
    """Outputs of the products before the activation function, and what it hands on: a gate rebuilds that from the former."""
    gated = any(m.name == "gate" for m in matrices)
    saved = Saved(ZERO)
    for matrix in matrices:
        part = Part(matrix, f"{path}.{matrix.name}")
        if matrix.split != "row":
            saved += Saved(shard_outputs(part, t) * leaf.bytes_activations)
            continue
        size = shard_inputs(part, t) * leaf.bytes_operand
        saved += Saved(size, size, size) if gated else Saved(size)
    return saved


def layer_activations(
    graph: Graph, label: str, kind: LayerKind, path: str, rows: sp.Expr
) -> tuple[sp.Symbol, sp.Symbol, sp.Expr]:
    """Define the bytes of one layer that wait for the backward pass of one micro-batch [B]: all, what selective rebuilds, and
    the products of gated activations, which their own backward kernel can rebuild from what it reads.

    `rows`: tokens on a tensor group. Kept are the inputs of norms, products and activation functions, dropout masks, and a
    score matrix where there is no flash attention.
    """
    saved = _norms(kind) + _mixer(kind, path) + _mlp(kind.mlp.matrices, f"{path}.mlp.matrices", leaf.tp)
    if kind.mlp.expert:
        load = arch_leaf(f"{path}.mlp.active") * leaf.expert_tp / leaf.tp * leaf.expert_load
        sent = Saved(arch_leaf(f"{path}.mlp.expert.{kind.mlp.expert[0].name}.inputs") * leaf.bytes_operand)
        saved += (sent + _mlp(kind.mlp.expert, f"{path}.mlp.expert", leaf.expert_tp)).times(load)
    core = _core(kind, path)
    light = saved.light if rebuilds(kind) else ZERO
    return (
        graph.let(
            f"saved_{label}", "B", f"activations of layer {label} kept for a micro-batch", rows * (saved.kept + core),
            source=KORTHIKANTI,
        ),
        graph.let(
            f"rebuilt_{label}", "B", f"activations of layer {label} that selective recomputation rebuilds",
            rows * ((1 - leaf.flash) * core + light), source=KORTHIKANTI,
        ),
        rows * saved.gate,
    )  # fmt: skip


def _core(kind: LayerKind, path: str) -> sp.Expr:
    """Bytes a token that the attention core keeps: softmax output, mask and dropped output a key; a log-sum with flash."""
    if not kind.mixer.heads:
        return ZERO
    heads = sp.ceiling(arch_leaf(f"{path}.mixer.heads") / leaf.tp)
    scores = leaf.bytes_activations + leaf.dropout * (leaf.BYTES_MASK + leaf.bytes_activations)
    return heads * ((1 - leaf.flash) * leaf.sequence * scores + leaf.flash * leaf.BYTES_32)
