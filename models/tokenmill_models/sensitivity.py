"""How much a figure of a graph moves with one of its leaves: derivatives on the graph itself, in exact arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import mpmath
import sympy as sp

from tokenmill_models.compile import DIGITS, walk
from tokenmill_models.formula import Graph

STEP = "1e-12"
"""Relative step of the central difference: with 40 digits its error lies below 1e-20, far under that of the data."""


def elasticities(
    graph: Graph, outputs: Mapping[str, sp.Symbol], leaves: Iterable[str], values: Mapping[str, Any]
) -> dict[str, float]:
    """Return d ln(output) / d ln(leaves) of each output, by its name, all `leaves` (symbol names) moved by one factor.

    `values`: leaves by symbol name, SI. A step or a corner of the graph counts as it is left and right of the point (its mean).
    An output that is 0 has none.
    """
    moved = set(leaves)
    with mpmath.workdps(DIGITS):
        step = mpmath.mpf(STEP)

        def at(factor: mpmath.mpf) -> dict[str, mpmath.mpf]:
            there = {name: mpmath.mpf(value) * factor if name in moved else value for name, value in values.items()}
            return walk(graph, outputs.values(), there)

        up, down = at(1 + step), at(1 - step)
        found = {}
        for name, symbol in outputs.items():
            high, low = up[symbol.name], down[symbol.name]
            if high > 0 and low > 0:
                found[name] = float(mpmath.log(high / low) / mpmath.log((1 + step) / (1 - step)))
        return found
