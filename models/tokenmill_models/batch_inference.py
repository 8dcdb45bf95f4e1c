"""Serving's replica put to other work: its leaves replaced, and replicas that are always full because the work is there from the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models import serving_inputs
from tokenmill_models.architecture import Architecture
from tokenmill_models.formula import Graph
from tokenmill_models.serving_axes import AXES
from tokenmill_models.serving_mixed import mixed_role
from tokenmill_models.stage import Role

LENGTHS = {
    "input_tokens": (leaf.input_tokens, {**leaf.input_percentiles, "cv": leaf.input_cv}),
    "output_tokens": (leaf.output_tokens, {**leaf.output_percentiles, "cv": leaf.output_cv}),
}
"""Leaves of serving that hold the lengths of a request: mean, and {statistic: leaf}."""
DROPPED = ("ttft.", "e2e.", "in_flight")
ENGINE_INPUTS = tuple(
    item for item in serving_inputs.INPUTS if item.name != "model" and not item.name.startswith(("demand.", "slo."))
)
"""Keys of an engine that hold for any work that it does."""
ENGINE_AXES = {
    name: axis for name, axis in AXES.items() if axis.key not in ("engine.disaggregated", "engine.utilisation")
}


def arrival_defaults() -> dict[sp.Symbol, sp.Expr]:
    """Return what stands for the leaves of serving that say how requests arrive: their defaults."""
    return {
        item.symbol: sp.Float(item.default) if item.default % 1 else sp.Integer(int(item.default))
        for item in serving_inputs.INPUTS
        if item.name.startswith("demand.") and item.symbol is not None and isinstance(item.default, int | float)
    }


def of_one_length(prompt: sp.Expr, answer: sp.Expr) -> dict[sp.Symbol, sp.Expr]:
    """Return what stands for the lengths of serving where every request has the same: `prompt` and `answer` tokens [1]."""
    found: dict[sp.Symbol, sp.Expr] = {}
    for value, (mean, parts) in zip((prompt, answer), LENGTHS.values(), strict=True):
        found |= {mean: value} | {symbol: sp.Integer(0) if name == "cv" else value for name, symbol in parts.items()}
    return found


def rewritten(role: Role, stands: Mapping[sp.Symbol, sp.Expr]) -> Role:
    """Return a role whose definitions and rules read `stands` in place of leaves."""
    graph = Graph({s: replace(f, expr=f.expr.xreplace(stands), valid=()) for s, f in role.graph.formulas.items()})
    rules = tuple(
        replace(rule, left=rule.left.xreplace(stands), right=rule.right.xreplace(stands)) for rule in role.rules
    )
    return replace(role, graph=graph, rules=rules)


def always_full(arch: Architecture, stands: Mapping[sp.Symbol, sp.Expr]) -> Role:
    """Return serving's mixed role as a part that keeps no latency: port ``rate`` is what one full replica does a second."""
    role = rewritten(mixed_role(arch), stands)
    figures = {key: symbol for key, symbol in role.figures.items() if not key.startswith(DROPPED)}
    rules = tuple(rule for rule in role.rules if rule.kind != "limit" and rule.name not in ("chips", "in_flight"))
    return replace(role, kind="part", rules=rules, figures=figures)
