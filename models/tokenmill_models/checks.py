"""What every definition must pass before use: the rescaling test and the two-routes test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import sympy as sp

from tokenmill_models.compile import compile_graph, walk
from tokenmill_models.formula import Graph
from tokenmill_models.symbols import parse_dimension, quantity

# Powers of two keep float comparisons of branches and roundings untouched.
SCALES = {"s": 2.0**3, "B": 2.0**-2, "FLOP": 2.0**5, "J": 2.0**-4, "USD": 2.0**7, "kg": 2.0**-6}


@dataclass(frozen=True)
class Failure:
    """A definition that failed: its symbol, the value expected and the value found (same unit)."""

    symbol: str
    check: str
    expected: float
    found: float


def scale_of(dimension: str) -> float:
    """Return the factor by which a value of this dimension grows under SCALES."""
    return float(prod(SCALES[unit] ** float(power) for unit, power in parse_dimension(dimension).items()))


def dimension_failures(
    graph: Graph, values: Mapping[str, float], outputs: list[sp.Symbol] | None = None
) -> list[Failure]:
    """Rescale every base unit and return the definitions whose value does not scale by their dimension.

    `values`: all leaves by symbol name (SI).
    """
    wanted = outputs or list(graph.formulas)
    order, leaves = graph.needs(wanted)
    before = walk(graph, wanted, values)
    scaled = {s.name: values[s.name] * scale_of(quantity(s).dimension) for s in leaves}
    after = walk(graph, wanted, scaled)
    failures = []
    for symbol in order:
        expected = before[symbol.name] * scale_of(quantity(symbol).dimension)
        found = after[symbol.name]
        if abs(found - expected) > 1e-9 * max(abs(expected), abs(found)):
            failures.append(Failure(symbol.name, "dimension", float(expected), float(found)))
    return failures


def route_failures(graph: Graph, values: Mapping[str, float], outputs: list[sp.Symbol] | None = None) -> list[Failure]:
    """Return the definitions whose compiled numpy value differs from the walk in exact numbers by over 1e-9."""
    wanted = outputs or list(graph.formulas)
    order, _ = graph.needs(wanted)
    exact = walk(graph, wanted, values)
    compiled = compile_graph(graph, order)(values)
    return [
        Failure(symbol.name, "routes", float(exact[symbol.name]), float(compiled[symbol.name]))
        for symbol in order
        if abs(float(compiled[symbol.name]) - exact[symbol.name]) > 1e-9 * max(1e-300, abs(exact[symbol.name]))
    ]
