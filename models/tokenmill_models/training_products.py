"""Products of a training pass: forward, gradients of inputs and of weights, each with its own sides, traffic and conversions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sympy as sp

from tokenmill_models import training_leaves as leaf
from tokenmill_models.formula import Graph, Source, maximum
from tokenmill_models.operations_parts import ONE, ZERO, Operation, Sides
from tokenmill_models.roofline import W, eta_W, inner_time, launch
from tokenmill_models.tiles import ROUNDS, tiled

BACKWARD_PRODUCTS = Source(
    "definition",
    (
        "of Y = X·V (rows x inner by inner x columns): dX = dY·Vᵀ sums over columns, dV = Xᵀ·dY sums over rows",
        "dV is added to the gradients kept as it is computed, which reads and writes those, or is written for another kernel to add",
    ),
)
CONVERSION = Source(
    "Micikevicius et al. 2022, FP8 Formats for Deep Learning, arXiv:2209.05433",
    (
        "inputs of products are converted forward, gradients of outputs backward",
        "a conversion reads 16 bits and writes the narrow format twice: as it stands, and turned for the gradient of weights",
    ),
)
EARLY = Source(
    "PyTorch documentation, torch.utils.checkpoint",
    ("without reentrance recomputation stops at the last tensor needed: the output of a layer's last product is not",),
)


@dataclass(frozen=True)
class Redone:
    """What recomputation adds to whole passes, or spares of them: time [s] and work [FLOP] for one micro-batch."""

    seconds: sp.Expr
    flops: sp.Expr


@dataclass(frozen=True)
class Products:
    """Times of a part's products for one micro-batch [s]: `forward` once; `over`: what backward products take over as many forward
    ones; `weights`: over a forward one, for those of weight gradients alone; `convert`: converting inputs to a narrow format.
    """

    forward: sp.Symbol
    over: sp.Expr
    weights: sp.Expr
    convert: sp.Expr


def products_of(
    graph: Graph, label: str, operations: Sequence[Operation], passes: sp.Expr, updates: sp.Expr, trained: sp.Expr, speed: sp.Expr
) -> Products:  # fmt: skip
    """Define the products of a part that run `passes` times over all, `updates` of them backward, weights `trained` in as many.

    `speed`: of products in training over that of single forward kernels [1]; grouped products of experts differ once more.
    """
    alone = [one for one in operations if one.sides is not None]
    paces = [leaf.expert_speed if one.kind == "expert" else ONE for one in alone]
    sorting = sp.Add(*(one.time for one in operations if one.kind == "expert" and one.sides is None))

    def total(times: Iterable[sp.Expr]) -> sp.Expr:
        return sp.Add(*(time / (speed * pace) for time, pace in zip(times, paces, strict=True)))

    sides = [one.sides for one in alone if one.sides is not None]
    forward = graph.let(f"products_{label}", "s", f"forward products of {label} at the speed of training",
                        total(_alone(one, side) for one, side in zip(alone, sides, strict=True)) + sorting,
                        source=ROUNDS)  # fmt: skip
    same = [_busy(one, side) for one, side in zip(alone, sides, strict=True)]
    of_inputs = graph.let(f"inputs_over_{label}", "s", f"gradients of inputs of {label} over its forward products",
                          total(_inputs(one) - time for one, time in zip(sides, same, strict=True)),
                          source=BACKWARD_PRODUCTS)  # fmt: skip
    of_weights = graph.let(f"weights_over_{label}", "s", f"gradients of weights of {label} over its forward products",
                           total(_weights(one) - time for one, time in zip(sides, same, strict=True)),
                           source=BACKWARD_PRODUCTS)  # fmt: skip
    ahead = passes - updates * (1 + trained)
    elements = sp.Add(*(one.rows * (ahead * one.inner + updates * one.columns) for one in sides))
    narrow = sp.Piecewise((ONE, leaf.bytes_compute < leaf.BYTES_16), (ZERO, True))
    convert = graph.let(
        f"convert_{label}_step", "s", f"converting inputs and gradients of {label} to the format of products",
        narrow * elements * (leaf.BYTES_16 + 2 * leaf.bytes_compute) / (W * eta_W * leaf.convert_share), source=CONVERSION,
    )  # fmt: skip
    return Products(forward, updates * (of_inputs + trained * of_weights), of_weights, convert)


def redone(speed: sp.Expr, selective: Iterable[Operation], last: Iterable[Operation]) -> Redone:
    """Return what is recomputed beside whole layers (`selective`), less the `last` product of a layer where recomputing stops early."""
    spared = leaf.recompute_full * leaf.stops_early
    terms = [*((leaf.recompute_selective, one) for one in selective), *((-spared, one) for one in last)]
    return Redone(
        sp.Add(*(n * _alone(one, one.sides) / speed for n, one in terms if one.sides is not None)),
        sp.Add(*(n * one.flops for n, one in terms)),
    )


def _busy(one: Operation, sides: Sides) -> sp.Expr:
    """A forward product without its start."""
    return maximum(tiled(sides.rows, sides.inner, sides.columns, sides.copies), one.bytes / (W * eta_W))


def _alone(one: Operation, sides: Sides) -> sp.Expr:
    """A forward product as a kernel of its own."""
    return _busy(one, sides) + launch + sides.inner * inner_time


def _inputs(sides: Sides) -> sp.Expr:
    n = sides.copies
    moved = n * sides.inner * sides.columns * sides.weight_bytes + _ends(sides)
    return maximum(tiled(sides.rows, sides.columns, sides.inner, n), moved / (W * eta_W))


def _weights(sides: Sides) -> sp.Expr:
    n = sides.copies
    a_weight = leaf.accumulates * sides.weight_bytes + (1 - leaf.accumulates) * 2 * leaf.bytes_gradients
    moved = n * sides.inner * sides.columns * a_weight + _ends(sides)
    return maximum(n * tiled(sides.inner, sides.rows / n, sides.columns), moved / (W * eta_W))


def _ends(sides: Sides) -> sp.Expr:
    return sides.rows * (sides.inner + sides.columns) * sides.activation_bytes
