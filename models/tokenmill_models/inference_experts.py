"""The fullest rank of an expert-parallel layer: chance makes it fuller than the mean, and every step waits for it."""

from __future__ import annotations

from dataclasses import replace
from math import log, pi

import sympy as sp

from tokenmill_models.architecture import LayerKind
from tokenmill_models.formula import Graph, Source, minimum
from tokenmill_models.operations import Shape
from tokenmill_models.operations_parts import arch_leaf

EXTREME = Source(
    "expected largest of n normal values: Fisher and Tippett 1928; Cramér 1946, Mathematical Methods of Statistics, section 28.6",
    ("sqrt(2 ln n) - (ln ln n + ln 4 pi)/(2 sqrt(2 ln n)) + gamma/sqrt(2 ln n)",),
)
DRAWS = Source(
    "independent uniform draws of K of E experts by each token",
    (
        "a token leaves an expert out with probability 1 - K/E, so n tokens read it with q = 1 - (1 - K/E)^n",
        "a rank reads the sum of E/e such events: mean E q/e, variance E q (1 - q)/e",
        "token-expert pairs of a rank: mean n K/e, variance n K (1 - 1/e)/e",
    ),
)


LN_4PI, EULER = sp.Float(log(4 * pi)), sp.Float(0.5772156649015329)


def largest_of(n: sp.Expr) -> sp.Expr:
    """Expected largest of `n` standard normal values [1]; 0 for one."""
    root = sp.sqrt(2 * sp.log(sp.Max(n, 2, evaluate=False)))
    value = root - (sp.log(root**2 / 2) + LN_4PI) / (2 * root) + EULER / root
    return sp.Piecewise((value, n > 1), (0, True))


def spare_share(graph: Graph, label: str, path: str, shape: Shape) -> sp.Symbol:
    """Define the share of the experts that the fullest rank of a layer reads, and the mean rank does not [1].

    `shape`: what `fullest` returned for the layer.
    """
    hit = graph.named(f"hit_{label}")
    mean = arch_leaf(f"{path}.mlp.experts") / shape.e * hit
    return graph.let(
        f"unread_{label}", "1", f"share of the experts that the fullest rank of {label} reads, and the mean rank does not",
        1 - mean / shape.touched, source=DRAWS,
    )  # fmt: skip


def fullest(graph: Graph, label: str, kind: LayerKind, path: str, shape: Shape) -> Shape:
    """Return the load of a layer with the experts that its fullest rank reads, and the pairs that it computes."""
    if not kind.mlp.expert:
        return shape
    E, K = arch_leaf(f"{path}.mlp.experts"), arch_leaf(f"{path}.mlp.active")
    e = shape.e
    tokens = graph.let(
        f"routed_{label}",
        "1",
        f"tokens that the expert ranks of {label} share",
        shape.all_tokens * e * shape.t_e / shape.t,
    )
    extreme = graph.let(
        "rank_extreme",
        "1",
        "standard deviations of the fullest expert rank over the mean",
        largest_of(e),
        source=EXTREME,
    )
    hit = graph.let(
        f"hit_{label}", "1", f"probability that {label} reads an expert", 1 - (1 - K / E) ** tokens, source=DRAWS
    )
    read = graph.let(
        f"touched_{label}", "1", f"experts that the fullest rank of {label} reads",
        minimum(sp.ceiling(E / e), E / e * hit + extreme * sp.sqrt(E / e * hit * (1 - hit))), source=DRAWS,
        assumes=("tokens draw their experts uniformly and independently",),
    )  # fmt: skip
    load = graph.let(
        f"expert_load_{label}", "1", f"pairs of the fullest rank of {label} over the mean",
        shape.expert_load * minimum(e, 1 + extreme * sp.sqrt((e - 1) / (tokens * K))), source=DRAWS,
    )  # fmt: skip
    return replace(shape, touched=read, expert_load=load)
