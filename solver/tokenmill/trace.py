"""Where every figure comes from: formulas with their values, down to leaves with their sources.

A trace maps a key ``"<workload>.<pool>.<figure or symbol>"`` to a node {symbol, title, formula, value, unit, inputs,
source}. An input is the key of another node, or a leaf {symbol, value, unit, origin, source, evidence}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tokenmill_models.formula import Formula, Graph

Node = dict[str, Any]
SUM = "sum"
CLOSE = 1e-9
"""Share of a sum by which its parts may miss it: rounding."""


class Sourced(Protocol):
    """A leaf's value in words: where it comes from, and its evidence."""

    @property
    def source(self) -> str: ...  # noqa: D102

    @property
    def evidence(self) -> str: ...  # noqa: D102


# source and evidence of leaves that the search itself sets, by the first word of their origin
_USUAL = {
    "constant": ("definition", "definition"),
    "axis": ("chosen", "input"),
    "input": ("problem file", "input"),
    "request": ("problem file", "input"),
    "group": ("topology of the system", "datasheet"),
}


@dataclass(frozen=True)
class ClassFigures:
    """Predictions of a column for one request class, SI, by figure name (dotted for tables).

    `shares`: name to seconds of the step. `intervals`: [low, high]. `evidence`: a word of the contract. `trace`:
    nodes by figure or symbol name without a prefix; their inputs name other nodes likewise.
    """

    figures: Mapping[str, float]
    shares: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    evidence: Mapping[str, str] = field(default_factory=dict)
    trace: Mapping[str, Node] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluated:
    """A column of the plan evaluated in full: by request class (one named "all" where there are none).

    `column`: its key. `operating`: values of the operating axes by key. `resources`: time share to the resource that
    it uses where that is not the usual one (tensor traffic that leaves the scale-up domain uses scale_out).
    `remarks`: what a reader must know of it, in words.
    """

    workload: str
    role: str
    column: str
    classes: Mapping[str, ClassFigures]
    operating: Mapping[str, Any] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def adds_up(parts: Iterable[float], value: float) -> bool:
    """Return whether there are parts, and `value` is their sum."""
    found = list(parts)
    return bool(found) and abs(sum(found) - value) <= CLOSE * max(1.0, abs(value))


def trace_of(
    graph: Graph, figures: Mapping[str, Any], values: Mapping[str, Any], leaves: Mapping[str, Sourced]
) -> dict[str, Node]:
    """Return the nodes, by figure and symbol name, that the figures of one column need.

    `figures`: name to symbol. `values`: of every defined and leaf symbol by name, SI (as `compile.walk` gives them).
    `leaves`: provenance by symbol name; constants and choices need none.
    """
    order, _ = graph.needs(figures.values())
    nodes = {symbol.name: _definition(graph, graph.formulas[symbol], values, leaves) for symbol in order}
    for name, symbol in figures.items():
        if name in nodes:
            continue
        if symbol in graph.formulas:
            nodes[name] = nodes[symbol.name]
        else:
            leaf = _leaf(symbol, values, leaves)
            nodes[name] = {
                "symbol": name.replace(".", "_"), "title": leaf["title"], "formula": symbol.name,
                "value": leaf["value"], "unit": leaf["unit"], "inputs": [leaf], "source": "definition",
            }  # fmt: skip
    return nodes


def _definition(graph: Graph, formula: Formula, values: Mapping[str, Any], leaves: Mapping[str, Sourced]) -> Node:
    from tokenmill_models.printing import text

    inputs = sorted(formula.expr.free_symbols, key=lambda symbol: str(symbol))
    return {
        "symbol": formula.symbol.name,
        "title": formula.title,
        "formula": text(formula.rounded),
        "value": float(values[formula.symbol.name]),
        "unit": formula.quantity.dimension,
        "inputs": [s.name if s in graph.formulas else _leaf(s, values, leaves) for s in inputs],
        "source": formula.source.text,
    }


def _leaf(symbol: Any, values: Mapping[str, Any], leaves: Mapping[str, Sourced]) -> Node:
    from tokenmill_models.symbols import quantity

    about = quantity(symbol)
    origin = about.origin or ""
    source, evidence = _USUAL.get(origin.partition(".")[0], ("", "guess"))
    if known := leaves.get(symbol.name):
        source, evidence = known.source, known.evidence
    return {
        "symbol": symbol.name,
        "title": about.doc,
        "value": float(values[symbol.name]),
        "unit": about.dimension,
        "origin": origin,
        "source": source,
        "evidence": evidence,
    }


def prefixed(nodes: Mapping[str, Node], prefix: str) -> dict[str, Node]:
    """Return the nodes under ``prefix + "." + name``, their inputs renamed likewise."""
    return {
        f"{prefix}.{name}": {
            **node,
            "inputs": [f"{prefix}.{item}" if isinstance(item, str) else item for item in node["inputs"]],
        }
        for name, node in nodes.items()
    }


def total(name: str, title: str, unit: str, inputs: Iterable[str | Node], value: float) -> Node:
    """Return a node that is the sum of named rows or other nodes."""
    return {
        "symbol": name, "title": title, "formula": SUM, "value": value, "unit": unit,
        "inputs": list(inputs), "source": "definition",
    }  # fmt: skip


def row(label: str, value: float, unit: str, origin: str, source: str = "", evidence: str = "definition") -> Node:
    """Return a leaf that stands for a named row of the plan (``purchases[0].cost``)."""
    return {
        "symbol": label, "title": label, "value": value, "unit": unit,
        "origin": origin, "source": source, "evidence": evidence,
    }  # fmt: skip
