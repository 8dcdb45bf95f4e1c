"""Low-rank adapters of many users on one pool: their memory, and what a step reads and computes of them."""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.formula import Graph, Source, maximum
from tokenmill_models.operations_attention import peak_16bit
from tokenmill_models.operations_parts import arch_leaf
from tokenmill_models.roofline import FLOP_PER_MAC, W, eta_F, eta_W, launch
from tokenmill_models.stage import Input, Role
from tokenmill_models.symbols import declare

S_LORA = Source(
    "Sheng et al. 2023, S-LoRA, arXiv:2311.03285, sections 4 and 5: a batch reads the adapters of its sequences, unmerged",
    ("an adapter on a product of i inputs and o outputs has rank·(i + o) elements, and two kernels of its own",),
)
COUNT = "adapters.count"
count = declare("adapter_count", "1", "adapters that every replica holds", origin=f"input.{COUNT}")
rank = declare("served_adapter_rank", "1", "rank of the adapters that are served", origin="input.adapters.rank")
INPUTS = (
    Input(COUNT, "number", "low-rank adapters that every replica holds in memory; requests choose among them evenly", count, default=0.0),
    Input("adapters.rank", "number", "rank of the adapters, which stand on all linear products but routed experts", rank, default=16.0, minimum=1),
)  # fmt: skip


def with_adapters(role: Role, arch: Architecture) -> Role:
    """Return a serving role whose replicas hold adapters beside the model and run them in every pass."""
    graph = Graph(dict(role.graph.formulas))
    size = graph.let("adapter_elements", "1", "elements of one adapter", rank * sp.Add(*_sides(arch)), source=S_LORA)
    named = {symbol.name: symbol for symbol in graph.formulas}
    total = arch_leaf("layer_count")
    stage = sp.ceiling(total / leaf.pp) / total
    _added(graph, named["memory_weights"], count * size * leaf.bytes_16 / leaf.tp * stage)
    batch, carried = named["group_batch"], named.get("prefill_carried", sp.Integer(0))
    decoded = batch * named.get("tokens_checked", sp.Integer(1))
    loads = {"plain": (batch, decoded), "full": (batch + 1, decoded + carried), "prompt": (sp.Integer(1), carried)}
    for label, (sequences, tokens) in loads.items():
        if f"memory_time_{label}" in named:
            _added(graph, named[f"memory_time_{label}"], _time(graph, arch, label, sequences, tokens, size))
    return replace(role, graph=graph)


def _sides(arch: Architecture) -> list[sp.Expr]:
    """Return inputs and outputs of every product that carries an adapter."""
    paths = [
        (i, f"layers.{i}.{part}.matrices.{matrix.name}")
        for i, kind in enumerate(arch.layers)
        for part, owner in (("mixer", kind.mixer), ("mlp", kind.mlp))
        for matrix in owner.matrices
    ]
    return [
        arch_leaf(f"layers.{i}.count") * (arch_leaf(f"{at}.inputs") + arch_leaf(f"{at}.outputs")) for i, at in paths
    ]


def _added(graph: Graph, symbol: sp.Symbol, term: sp.Expr) -> None:
    formula = graph.formulas[symbol]
    graph.formulas[symbol] = replace(formula, expr=formula.expr + term)


def _time(
    graph: Graph, arch: Architecture, label: str, sequences: sp.Expr, tokens: sp.Expr, size: sp.Symbol
) -> sp.Symbol:
    """Define the time [s] of the adapters in a pass of `tokens` of `sequences`: the distinct ones are read."""
    held = maximum(1, count)
    distinct = graph.let(
        f"adapters_{label}", "1", f"distinct adapters of {label}", held * (1 - (1 - 1 / held) ** sequences),
        source=S_LORA, assumes=("requests choose among the adapters evenly and independently",),
    )  # fmt: skip
    read = distinct * size * leaf.bytes_16 / leaf.tp / (W * eta_W)
    computed = FLOP_PER_MAC * tokens * size / leaf.tp / (peak_16bit * eta_F)
    kernels = 2 * leaf.kernel_share * launch * sp.Add(*_products(arch))
    return graph.let(
        f"adapters_time_{label}", "s", f"time of {label} by adapters", maximum(read, computed) + kernels, source=S_LORA
    )


def _products(arch: Architecture) -> list[sp.Expr]:
    """Return, by kind of layer, its count times the products in it that carry an adapter."""
    return [
        arch_leaf(f"layers.{i}.count") * (len(kind.mixer.matrices) + len(kind.mlp.matrices))
        for i, kind in enumerate(arch.layers)
    ]
