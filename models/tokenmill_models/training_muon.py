"""Work of the Muon optimiser beside its sweep of memory."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.architecture import Architecture
from tokenmill_models.formula import Graph, Source, minimum
from tokenmill_models.operations_parts import ONE, ZERO, Part, arch_leaf
from tokenmill_models.roofline import FLOP_PER_MAC

MUON = Source(
    "Liu et al. 2025, Muon is Scalable for LLM Training, arXiv:2502.16982, section 2.3",
    ("matrices are shared out whole; what gathers them hides",),
)
NEWTON_STEPS = 5


def orthogonal_flops(graph: Graph, arch: Architecture) -> sp.Symbol:
    """Define Muon's work a parameter [FLOP]: five Newton-Schulz steps on every matrix of n x m (n ≤ m), each
    2·n²·m + n³ multiply-adds, over its n·m elements; the mean over the matrices of all layers.
    """
    work, elements = ZERO, ZERO
    for i, kind in enumerate(arch.layers):
        count, path = arch_leaf(f"layers.{i}.count"), f"layers.{i}"
        parts = [(ONE, Part(m, f"{path}.mixer.matrices.{m.name}")) for m in kind.mixer.matrices]
        parts += [(ONE, Part(m, f"{path}.mlp.matrices.{m.name}")) for m in kind.mlp.matrices]
        experts = arch_leaf(f"{path}.mlp.experts") if kind.mlp.expert else ZERO
        parts += [(experts, Part(m, f"{path}.mlp.expert.{m.name}")) for m in kind.mlp.expert]
        for copies, part in parts:
            a, b = part.leaf("inputs"), part.leaf("outputs")
            n = minimum(a, b)
            work += count * copies * FLOP_PER_MAC * NEWTON_STEPS * n * (2 * a * b + n * n)
            elements += count * copies * a * b
    return graph.let("orthogonal_flops", "FLOP", "Muon's work a parameter", work / elements, source=MUON)
