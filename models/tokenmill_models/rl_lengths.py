"""Lengths of answers as a distribution: how many are still being written after so many tokens, and how long the longest is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import sympy as sp

from tokenmill_models.formula import Graph, Source, minimum
from tokenmill_models.symbols import constant

LOGNORMAL = Source("lognormal lengths: sigma² = ln(1 + cv²), quantile = mean·exp(z·sigma - sigma²/2)")
LONGEST = Source(
    "median of the largest of n: the quantile 2^(-1/n); normal quantile by Abramowitz and Stegun 1964, 26.2.23",
    ("its error is below 4.5e-4",),
)
SHARES = (0.0, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Shares of answers that have ended where a slice of token indices begins; the last slice ends with the longest answer."""
_SERIES = tuple(
    constant(f"normal_{name}", value, "1", "coefficient of the normal quantile, Abramowitz and Stegun 26.2.23")
    for name, value in (
        ("c0", 2.515517), ("c1", 0.802853), ("c2", 0.010328), ("d1", 1.432788), ("d2", 0.189269), ("d3", 0.001308),
    )
)  # fmt: skip
_Z = {share: sp.Float(NormalDist().inv_cdf(share)) for share in SHARES[1:]}


@dataclass(frozen=True)
class Lengths:
    """Tokens of a prompt or an answer: `mean` and variation `cv` (standard deviation over mean) [1]."""

    mean: sp.Symbol
    cv: sp.Symbol

    @property
    def variance(self) -> sp.Expr:
        """Variance of the length [1]."""
        return (self.mean * self.cv) ** 2

    @property
    def sigma(self) -> sp.Expr:
        """Standard deviation of the logarithm of the length [1]."""
        return sp.sqrt(sp.log(1 + self.cv**2))

    def quantile(self, z: sp.Expr) -> sp.Expr:
        """Length [1] at the standard normal quantile `z`."""
        return self.mean * sp.exp(z * self.sigma - self.sigma**2 / 2)


def normal_quantile(tail: sp.Expr) -> sp.Expr:
    """Standard normal quantile that a share `tail` of at most a half exceeds; source: LONGEST."""
    t = sp.sqrt(-2 * sp.log(tail))
    c0, c1, c2, d1, d2, d3 = _SERIES
    return t - (c0 + c1 * t + c2 * t**2) / (1 + d1 * t + d2 * t**2 + d3 * t**3)


def longest_of(count: sp.Expr) -> sp.Expr:
    """Standard normal quantile of the median of the largest of `count` draws [1]."""
    return normal_quantile(1 - sp.exp(-sp.log(2) / count))


@dataclass(frozen=True)
class Slice:
    """Token indices between two quantiles of the lengths: how many, the share of answers still being written, its middle [1]."""

    tokens: sp.Symbol
    alive: sp.Symbol
    middle: sp.Expr


def define_slices(
    graph: Graph, lengths: Lengths, cut: sp.Expr, count: sp.Expr, waited: sp.Expr
) -> tuple[list[Slice], sp.Symbol]:
    """Define the slices of `count` answers cut at `cut` tokens of which a share `waited` is waited for; return them and the longest.

    Shares are scaled so that all slices hold the mean tokens of an answer.
    """
    tail = sp.Max(1 - waited, 1 - sp.exp(-sp.log(2) / count), evaluate=False)
    longest = graph.let(
        "answer_longest", "1", "tokens of the longest answer that is waited for",
        minimum(cut, lengths.quantile(normal_quantile(tail))), source=LONGEST,
    )  # fmt: skip
    bounds = [sp.Integer(0)] + [
        graph.let(f"answer_q{round(100 * share)}", "1", f"tokens within which {share:.0%} of the answers end",
                  minimum(longest, lengths.quantile(_Z[share])), source=LOGNORMAL)
        for share in SHARES[1:]
    ] + [longest]  # fmt: skip
    shares = [1 - (a + b) / 2 for a, b in zip(SHARES, (*SHARES[1:], 1.0), strict=True)]
    steps = [
        graph.let(f"slice_tokens_{k}", "1", f"token indices of slice {k}", after - before)
        for k, (before, after) in enumerate(pairwise(bounds))
    ]
    held = sp.Add(*(sp.Float(share) * step for share, step in zip(shares, steps, strict=True)))
    scale = graph.let(
        "slice_scale", "1", "mean tokens of an answer over those that the slices hold", lengths.mean / held
    )
    return [
        Slice(step, graph.let(f"slice_alive_{k}", "1", f"share of answers still being written in slice {k}",
                              minimum(1, sp.Float(share) * scale)), (before + after) / 2)
        for k, (step, share, before, after) in enumerate(zip(steps, shares, bounds, bounds[1:], strict=False))
    ], longest  # fmt: skip
