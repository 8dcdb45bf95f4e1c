"""A chosen column evaluated definition by definition: every figure with its formula, inputs and sources."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tokenmill.candidates.bind import ABSENT, IDEAL, Leaf, engine_name
from tokenmill.candidates.columns import Column
from tokenmill.candidates.evaluate import group_values
from tokenmill.candidates.program import Program, group_leaves
from tokenmill.candidates.search import Context
from tokenmill.efficiency import RUN_OF_PARTS, intervals, quantiles_of, scaled
from tokenmill.errors import CatalogError
from tokenmill.trace import ClassFigures, Evaluated, Node, trace_of
from tokenmill.units import format_quantity
from tokenmill_models.compile import walk

MEMORY = "memory.total"
STRENGTH = ("guess", "claim", "datasheet", "calibrated", "measured")
"""Evidence from the weakest to the strongest; a figure is as good as the weakest leaf it needs."""


def unfold(
    column: Column,
    operating: Mapping[str, Any],
    contexts: Mapping[str, Context],
    classes: Sequence[str],
    points: Mapping[int, Mapping[str, Any]] | None = None,
) -> Evaluated:
    """Return the figures of a column at an operating point, for every request class, each with its trace.

    `points`: the operating point of each class by its index, where they differ.
    """
    context = contexts[column.key]
    at = points or {}
    by_class = {name: _figures(column, at.get(index, operating), contexts, index) for index, name in enumerate(classes)}
    return Evaluated(
        workload=column.workload,
        role=column.role,
        column=column.key,
        classes=by_class,
        operating=operating,
        resources=_resources(context, leaf_values(context, column, operating, 0)),
        remarks=_remarks(context, by_class.values()),
    )


def _remarks(context: Context, classes: Collection[ClassFigures]) -> tuple[str, ...]:
    """Return what the role says of figures above zero, with the most of any class."""
    role, said = context.program.role, []
    for name, words in role.remarks.items():
        most = max((one for one in classes if name in one.figures), key=lambda one: one.figures[name], default=None)
        if most is not None and most.figures[name] > 0:
            said.append(f"{role.name}: {format_quantity(most.figures[name], most.trace[name]['unit'])} {words}")
    return tuple(said)


def leaf_values(context: Context, column: Column, operating: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return the values of all leaves but those of parts, by symbol name, for request class `index`."""
    layout = dict(column.layout) | dict(operating)
    leaves, classes = _leaves(context)
    values: dict[str, Any] = {n: leaf.value for n, leaf in leaves.items() if leaf.value is not None}
    values |= {n: of_class[index].value for n, of_class in classes.items() if of_class[index].value is not None}
    for axis in context.program.role.axes:
        if axis.symbol is not None and axis.codes is None:
            values[axis.symbol.name] = layout[axis.key]
    values |= group_values(context.program, sorted(context.program.sizes), values, context.setting)
    return values


def _leaves(context: Context) -> tuple[dict[str, Leaf], dict[str, tuple[Leaf, ...]]]:
    """Return all leaves of a role's figures: those the search read, and those that only figures need."""
    role = context.program.role
    needs = context.program.needs([*role.ports.values(), *role.figures.values(), *role.shares.values()])
    leaves, classes = dict(context.leaves), dict(context.classes)
    for quantity in needs.scalars:
        name = quantity.symbol.name
        if name not in leaves and not (quantity.origin or "").startswith("axis."):
            try:
                leaves[name] = context.binder.leaf(quantity)
            except CatalogError:  # the figure does not apply to this chip: it is left out of the plan
                leaves[name] = ABSENT
    for quantity in needs.classes:
        if quantity.symbol.name not in classes:
            classes[quantity.symbol.name] = tuple(context.binder.classes(quantity))
    return leaves, classes


def _figures(column: Column, operating: Mapping[str, Any], contexts: Mapping[str, Context], index: int) -> ClassFigures:
    context = contexts[column.key]
    role = context.program.role
    values = leaf_values(context, column, operating, index)
    nested: dict[str, Node] = {}
    renamed: dict[str, str] = {}
    for part, inner in zip(role.parts, column.parts, strict=True):
        found = _figures(inner, {}, contexts, index)
        nested |= {f"{part}.{name}": _moved(node, part) for name, node in found.trace.items()}
        read = [*role.ports.values(), *role.figures.values(), *role.shares.values()]
        for quantity in context.program.needs(read).parts:
            _, of, port = (quantity.origin or "").split(".")
            if of == part:
                values[quantity.symbol.name] = found.trace[f"port.{port}"]["value"]
                renamed[quantity.symbol.name] = f"{part}.port.{port}"
                nested[quantity.symbol.name] = _named(quantity.symbol.name, renamed[quantity.symbol.name], nested)
    wanted = {
        **role.figures,
        **{f"port.{n}": s for n, s in role.ports.items()},
        **{f"share.{n}": s for n, s in role.shares.items()},
    }
    wanted = {name: symbol for name, symbol in wanted.items() if _given(context.program, symbol, values)}
    walked = walk(context.program.graph, wanted.values(), values)
    scalars, of_classes = _leaves(context)
    leaves = scalars | {name: found[index] for name, found in of_classes.items()} | _exchange_leaves(context, values)
    nodes = trace_of(context.program.graph, wanted, walked, leaves)
    for node in nodes.values():
        node["inputs"] = [_linked(item, renamed) for item in node["inputs"]]
    nodes |= {name: nodes[f"port.{name}"] for name in role.ports if f"port.{name}" in nodes and name not in nodes}
    figures = {name: float(walked[symbol.name]) for name, symbol in role.figures.items() if name in wanted}
    return ClassFigures(
        figures=figures,
        intervals=_intervals(context, figures),
        shares={name: float(walked[symbol.name]) for name, symbol in role.shares.items() if f"share.{name}" in wanted},
        evidence={name: _evidence(context, symbol, scalars) for name, symbol in role.figures.items() if name in wanted},
        trace=nodes | nested,
    )


def _intervals(context: Context, figures: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Return the intervals of predicted figures; what the file lays down (an MFU, ideal efficiency) has none.

    That of memory is of the narrowest class that is known: a word of the layout's choices on the engine, on any, the engine.
    """
    binder, model = context.binder, context.binder.architecture
    if binder.assume.mfu or binder.assume.efficiency == "ideal":
        return {}
    sparse = model is not None and any(kind.mlp.expert for kind in model.layers)
    stage, engine = binder.workload.stage, engine_name(binder)
    if context.program.role.parts:
        known = {name: quantiles_of(stage, name, [RUN_OF_PARTS]) for name in figures}
        return {k: v for name, one in known.items() if one is not None for k, v in scaled(figures, name, one).items()}
    words = [f"{axis} {word}" for axis, word in binder.words.items()]
    memory = quantiles_of(stage, MEMORY, [*(f"{engine} {one}" for one in words), *words])
    found = intervals(binder.catalog, stage, binder.chip.id, sparse, figures, engine)
    return found | (scaled(figures, MEMORY, memory) if memory is not None else {})


def _given(program: Program, symbol: Any, values: Mapping[str, Any]) -> bool:
    """Return whether every leaf of a figure is there (a figure of an absent input does not apply)."""
    _, leaves = program.graph.needs([symbol])
    return all(leaf.name in values for leaf in leaves)


def _moved(node: Node, part: str) -> Node:
    return {**node, "inputs": [f"{part}.{item}" if isinstance(item, str) else item for item in node["inputs"]]}


def _named(name: str, key: str, nodes: Mapping[str, Node]) -> Node:
    """Return a part's figure under the name that the whole knows it by."""
    return {**nodes[key], "symbol": name, "formula": nodes[key]["symbol"], "inputs": [key], "source": "definition"}


def _linked(item: Any, renamed: Mapping[str, str]) -> Any:
    return item["symbol"] if isinstance(item, dict) and item["symbol"] in renamed else item


def _exchange_leaves(context: Context, values: Mapping[str, Any]) -> dict[str, Leaf]:
    """Return where the latencies of groups come from: as the topology lays down."""
    found: dict[str, Leaf] = {}
    for group in context.program.sizes:
        for name, part, _ in group_leaves(group):
            if part == "alpha":
                ideal = context.setting.ideal
                source = IDEAL if ideal else "usual latency of such a link (topology_defaults.toml)"
                found[name] = Leaf(float(np.max(values[name])), source, "input" if ideal else "guess")
    return found


def _evidence(context: Context, symbol: Any, leaves: Mapping[str, Leaf]) -> str:
    needs = context.program.needs([symbol])
    words = [leaves[q.symbol.name].evidence for q in needs.scalars if q.symbol.name in leaves]
    known = [STRENGTH.index(word) for word in words if word in STRENGTH]
    return STRENGTH[min(known)] if known else "datasheet"


def _resources(context: Context, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the exchanges that leave the scale-up domain: they use scale_out."""
    return {
        name: "scale_out"
        for name in context.program.sizes
        if any(float(np.max(values[f"n_{name}{level}"])) > 1 for level in (1, 2))
    }


def balanced(
    context: Context, column: Column, rates: Mapping[int, float], replicas: float, most: Mapping[int, Mapping[str, Any]]
) -> dict[int, dict[str, Any]]:
    """Return by request class the operating point at which replicas just carry their load: the mean they run at, not the most they could.

    `rates`: units/s over all replicas by class index; `most`: by class, the operating point that the programme allows it. All
    classes run at one share of theirs.
    """
    axis = next((axis for axis in context.program.role.axes if axis.operate), None)
    given = {index: dict(values) for index, values in most.items()}
    if axis is None or not rates:
        return given
    port = context.program.role.ports["rate"]
    if axis.name not in context.program.needs([port]).axes:
        return given
    function = context.program.compile([port])
    least = float(min(axis.values or (1.0,)))
    highs = {index: float(values[axis.key]) for index, values in most.items()}

    def level(index: int, share: float) -> float:
        return max(min(least, highs[index]), share * highs[index])

    def load(share: float) -> float:
        total = 0.0
        for index, rate in rates.items():
            values = leaf_values(context, column, {axis.key: level(index, share)}, index)
            total += rate / float(next(iter(function({**values}).values())))
        return total / replicas

    low, high = 0.0, 1.0
    if load(high) <= 1.0:
        if load(low) <= 1.0:
            high = low
        else:
            for _ in range(40):
                middle = (low + high) / 2
                low, high = (middle, high) if load(middle) > 1.0 else (low, middle)
    return {index: {axis.key: level(index, high)} for index in most}
