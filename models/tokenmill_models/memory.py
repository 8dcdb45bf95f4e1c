"""Elements of a model on one rank, counted matrix by matrix under tensor and expert parallelism."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from tokenmill_models.architecture import Architecture, LayerKind
from tokenmill_models.formula import Graph, maximum, minimum
from tokenmill_models.operations_parts import ONE, ZERO, Part, arch_leaf, shard_inputs, shard_outputs


def matrix_elements(part: Part, t: sp.Expr) -> sp.Expr:
    """Elements of a matrix with its bias on one of `t` tensor ranks."""
    elements = shard_inputs(part, t) * shard_outputs(part, t)
    if not part.matrix.bias:
        return elements
    bias = part.leaf("bias")
    return elements + (bias * shard_outputs(part, t) / part.leaf("outputs") if part.matrix.split == "column" else bias)


def layer_elements(graph: Graph, label: str, kind: LayerKind, path: str, t: sp.Expr) -> sp.Symbol:
    """Define the elements of one layer outside its routed experts on one of `t` tensor ranks."""
    parts = [Part(m, f"{path}.mixer.matrices.{m.name}") for m in kind.mixer.matrices]
    parts += [Part(m, f"{path}.mlp.matrices.{m.name}") for m in kind.mlp.matrices]
    if kind.mlp.router:
        parts.append(Part(kind.mlp.router, f"{path}.mlp.router"))
    terms = [matrix_elements(part, t) for part in parts]
    others = {
        "norm_parameters": kind.norm_parameters,
        "mixer.other_parameters": kind.mixer.other_parameters,
        "mlp.other_parameters": kind.mlp.other_parameters,
    }
    terms += [arch_leaf(f"{path}.{name}") for name, count in others.items() if count]
    return graph.let(f"elements_{label}", "1", f"parameters of layer {label} on a rank, experts apart", sp.Add(*terms))


def expert_elements(
    graph: Graph, label: str, kind: LayerKind, path: str, e: sp.Expr, t_e: sp.Expr
) -> sp.Symbol | sp.Integer:
    """Define the elements of a layer's routed experts on one of e·t_e expert ranks; 0 for a layer without."""
    if not kind.mlp.expert:
        return ZERO
    one = sp.Add(*(matrix_elements(Part(m, f"{path}.mlp.expert.{m.name}"), t_e) for m in kind.mlp.expert))
    experts = arch_leaf(f"{path}.mlp.experts")
    return graph.let(
        f"expert_elements_{label}",
        "1",
        f"parameters of the routed experts of layer {label} on a rank",
        experts / e * one,
    )


def one_expert(arch: Architecture, experts: Sequence[sp.Expr], e: sp.Expr) -> list[sp.Expr]:
    """Return the elements of one routed expert on a rank by kind of layer; `experts`: of all that one of `e` expert ranks has."""
    return [
        held * e / arch_leaf(f"layers.{i}.mlp.experts") if kind.mlp.expert else ZERO
        for i, (kind, held) in enumerate(zip(arch.layers, experts, strict=True))
    ]


def ends_elements(graph: Graph, arch: Architecture, t: sp.Expr) -> tuple[sp.Symbol, sp.Symbol]:
    """Define the elements before the first layer and behind the last on one of `t` tensor ranks; return both.

    A tied head is a second copy where the ends are different ranks.
    """
    first = (arch_leaf("embedding_parameters") + (arch_leaf("lookup_parameters") if arch.lookup_parameters else 0)) / t
    last = arch_leaf("other_parameters") if arch.other_parameters else ZERO
    if arch.head is not None:
        last += matrix_elements(Part(arch.head, "head"), t)
    return (
        graph.let("elements_first", "1", "parameters of the embedding on a rank", first),
        graph.let("elements_last", "1", "parameters of head and final norm on a rank", last + ONE * 0),
    )


def body_kinds(arch: Architecture) -> list[int]:
    """Return which kinds of layer fill an inner pipeline stage: all but those that only lead the stack."""
    leading: set[int] = set()
    place = 0
    for index, kind in enumerate(arch.layers):
        if len(arch.layers) - len(leading) > 1 and kind.positions == tuple(range(place, place + kind.count)):
            leading.add(index)
            place += kind.count
    return [index for index in range(len(arch.layers)) if index not in leading]


def stage_mean(arch: Architecture, p: sp.Expr, values: Sequence[sp.Expr]) -> sp.Expr:
    """Mean of a value a kind of layer over the layers of an inner stage; with one stage (p = 1), over all layers."""
    counts = [arch_leaf(f"layers.{i}.count") for i in range(len(values))]
    body = body_kinds(arch)
    inner = sp.Add(*(counts[i] * values[i] for i in body)) / sp.Add(*(counts[i] for i in body))
    if len(body) == len(values):
        return inner
    everywhere = sp.Add(*(count * value for count, value in zip(counts, values, strict=True))) / sp.Add(*counts)
    several = (p - 1) / maximum(p - 1, 1)
    return everywhere + several * (inner - everywhere)


def first_mean(arch: Architecture, p: sp.Expr, held: sp.Expr, values: Sequence[sp.Expr]) -> sp.Expr | None:
    """Mean of a value a kind of layer over the `held` layers of the first of several stages, which takes the leading kinds
    before any other; with one stage, over all layers. None for a model without leading kinds: its stages are alike.
    """
    body = body_kinds(arch)
    leading = [i for i in range(len(values)) if i not in body]
    if not leading:
        return None
    counts = [arch_leaf(f"layers.{i}.count") for i in range(len(values))]
    lead = sp.Add(*(counts[i] for i in leading))
    of_lead = sp.Add(*(counts[i] * values[i] for i in leading)) / lead
    of_body = sp.Add(*(counts[i] * values[i] for i in body)) / sp.Add(*(counts[i] for i in body))
    share = minimum(1, lead / maximum(held, 1))
    first = share * of_lead + (1 - share) * of_body
    everywhere = sp.Add(*(count * value for count, value in zip(counts, values, strict=True))) / sp.Add(*counts)
    several = (p - 1) / maximum(p - 1, 1)
    return everywhere + several * (first - everywhere)
