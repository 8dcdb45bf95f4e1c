"""Memory of the fullest rank in training, tensor by tensor."""

from __future__ import annotations

from dataclasses import dataclass, fields

import sympy as sp

from tokenmill_models import training_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.memory import (
    ends_elements,
    expert_elements,
    first_mean,
    layer_elements,
    matrix_elements,
    one_expert,
    stage_mean,
)
from tokenmill_models.operations_parts import ONE, ZERO, Part, arch_leaf, shard_outputs
from tokenmill_models.roofline import M
from tokenmill_models.training_activations import ALL_TRAINED, KORTHIKANTI, Inputs, layer_activations

GATE = Source(
    "definition",
    (
        "the backward kernel of a gated activation reads gate and up and can write their product anew at no cost that shows",
    ),
)
ZERO_PAPER = Source("Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054, section 5")
IN_FLIGHT = Source("Narayanan et al. 2021, arXiv:2104.04473, section 2.2, warm-up micro-batches of a rank")
DUALPIPE = Source("DeepSeek-AI 2024, DeepSeek-V3 Technical Report, arXiv:2412.19437, table 2")
FRESH = Source(
    "Transformer Engine, linear layers whose weight gradients are added to kept ones; PyTorch, fully sharded data parallel",
    (
        "where products add to kept gradients a 16-bit gradient of every shape of weight stays beside them",
        "sharded frameworks hold the whole gradients of a layer until they are reduced",
    ),
)


@dataclass(frozen=True)
class StateElements:
    """Parameters of the fullest rank [1]: outside routed experts, of routed experts; those of each that are trained, and those
    whose optimiser states it keeps; `saved_activations` of one micro-batch [B]; those of a mean `layer` with one routed expert.
    """

    dense: sp.Symbol
    expert: sp.Expr
    dense_trained: sp.Expr
    expert_trained: sp.Expr
    dense_optimizer: sp.Symbol
    expert_optimizer: sp.Expr
    saved_activations: sp.Expr
    layer: sp.Expr


@dataclass(frozen=True)
class Memory:
    """Bytes of the fullest rank [B]; `rebuilt`: products of gated activations that it lacks the room for and writes anew."""

    weights: sp.Symbol
    gradients: sp.Symbol
    optimizer: sp.Symbol
    activations: sp.Symbol
    reserve: sp.Symbol
    allocated: sp.Symbol
    reserved: sp.Symbol
    total: sp.Symbol
    rebuilt: sp.Symbol


@dataclass(frozen=True)
class Stage:
    """What one pipeline rank holds: parameters of its layers outside and inside experts, of the ends of the model, of adapters [1];
    activations in flight and gated products among them [B].
    """

    dense: sp.Expr
    expert: sp.Expr
    ends: sp.Expr
    adapters: sp.Expr
    activations: sp.Expr
    gate: sp.Expr


def in_flight(graph: Graph, label: str, stage: sp.Expr, m: sp.Expr) -> sp.Symbol:
    """Define the micro-batches whose activations rank `stage` (from 0) holds, in units of all its layers.

    min(m, p-i) at v = 1; min(m·v, 2(p-i-1) + (v-1)p + 1)/v at v > 1; DualPipe p + 1.
    """
    p, v = leaf.pp, leaf.virtual
    warm = 2 * (p - stage - 1) + (v - 1) * p + 1
    more = minimum(v - 1, 1)
    usual = (1 - more) * minimum(m, p - stage) + more * minimum(m * v, warm) / v
    both = minimum(m, p + 1)
    held = leaf.dualpipe * both + (1 - leaf.dualpipe) * usual
    return graph.let(f"in_flight_{label}", "1", f"micro-batches in flight on the {label} rank", held, source=IN_FLIGHT)


@dataclass(frozen=True)
class Recipe:
    """What a stage trains, and what it holds beside.

    `full`: 1 where the model's own parameters are trained, 0 where they are frozen; `adapters`: parameters of adapters of a mean layer
    on a rank and of those at the ends of the model [1]; `layer_bytes`, `expert_bytes`: bytes a weight of a layer's matrices and of
    routed experts; `frozen_copies`: further copies of the weights that are only read (a reference model); `inputs`: what products
    keep of their inputs.
    """

    full: sp.Expr = ONE
    adapters: tuple[sp.Expr, sp.Expr] = (ZERO, ZERO)
    layer_bytes: sp.Expr = leaf.bytes_weights
    expert_bytes: sp.Expr = leaf.bytes_experts
    frozen_copies: sp.Expr = ZERO
    inputs: Inputs = ALL_TRAINED


EVERYTHING = Recipe()


def define_states(graph: Graph, arch: Architecture, rows: sp.Expr, m: sp.Expr, inner: sp.Expr, outer: sp.Expr,
                  shared: sp.Expr, expert_shared: sp.Expr, recipe: Recipe = EVERYTHING,
                  ) -> tuple[StateElements, list[Stage], sp.Expr]:  # fmt: skip
    """Define parameters and activations of the first, an inner and the last rank; return the fullest states, ranks, one layer."""
    dense = [layer_elements(graph, str(i), kind, f"layers.{i}", leaf.tp) for i, kind in enumerate(arch.layers)]
    expert = [
        expert_elements(graph, str(i), k, f"layers.{i}", leaf.ep, leaf.expert_tp) for i, k in enumerate(arch.layers)
    ]
    layer_dense = graph.let(
        "elements_layer", "1", "mean parameters of a layer of a stage, experts apart", stage_mean(arch, leaf.pp, dense)
    )
    layer_expert = stage_mean(arch, leaf.pp, expert)
    kept = _kept(graph, arch, rows, recipe.inputs)
    inside = Layer(layer_dense, layer_expert, kept.body, kept.gate)
    means = [first_mean(arch, leaf.pp, outer, values) for values in (dense, expert, kept.each, kept.gates)]
    first = inside if means[0] is None else Layer(
        graph.let("elements_layer_first", "1", "mean parameters of a layer of the first stage, experts apart", means[0]),
        *(ZERO if one is None else one for one in means[1:]),
    )  # fmt: skip
    ends = ends_elements(graph, arch, leaf.tp)
    stages = _ranks(graph, (first, inside), ends, rows, m, (inner, outer), arch, recipe)
    fullest = graph.let("elements_rank", "1", "parameters of the fullest rank, experts apart",
                        maximum(*(stage.dense + stage.ends for stage in stages)))  # fmt: skip
    routed = ZERO
    if layer_expert != ZERO:
        routed = graph.let("expert_elements_rank", "1", "parameters of routed experts of the fullest rank",
                           maximum(*(stage.expert for stage in stages)))  # fmt: skip
    trained = recipe.full * fullest + maximum(*(stage.adapters for stage in stages))
    states = StateElements(
        fullest, routed, trained, recipe.full * routed,
        graph.let("elements_optimizer", "1", "parameters whose optimiser states a rank keeps, experts apart",
                  trained / (1 + leaf.zero1 * (shared - 1)), source=ZERO_PAPER),
        recipe.full * routed / (1 + leaf.zero1 * (expert_shared - 1)),
        inner * kept.body,
        layer_dense + stage_mean(arch, leaf.pp, one_expert(arch, expert, leaf.ep)),
    )  # fmt: skip
    return states, stages, kept.again


def fresh_bytes(recipe: Recipe) -> sp.Expr:
    """Bytes a weight of a gradient in 16 bits that stands beside those kept [B]; none where a kernel of its own adds it to them."""
    return (1 - leaf.accumulates) * recipe.full * leaf.BYTES_16


@dataclass(frozen=True)
class Layer:
    """A mean layer of a stage: parameters outside and inside experts on a rank [1]; activations that wait, and products of gated
    activations among them, for a micro-batch [B].
    """

    dense: sp.Expr
    expert: sp.Expr
    kept: sp.Expr
    gate: sp.Expr


@dataclass(frozen=True)
class Kept:
    """Activation bytes of a layer for one micro-batch [B] until its backward pass: of a mean inner layer (`body`), of `each` kind;
    `gate`, `gates`: the products of gated activations among them; `again`: while that pass runs.
    """

    body: sp.Symbol
    each: list[sp.Expr]
    gate: sp.Expr
    gates: list[sp.Expr]
    again: sp.Expr


def _kept(graph: Graph, arch: Architecture, rows: sp.Expr, inputs: Inputs) -> Kept:
    saved = [layer_activations(graph, str(i), kind, f"layers.{i}", rows, inputs) for i, kind in enumerate(arch.layers)]
    entry = rows * arch_leaf("hidden") * leaf.bytes_residual / leaf.vector_split

    def waiting(all_of: sp.Expr, rebuilt: sp.Expr) -> sp.Expr:
        partial = all_of - leaf.recompute_selective * rebuilt
        return leaf.recompute_full * entry + (1 - leaf.recompute_full) * partial

    whole = graph.let(
        "saved_layer",
        "B",
        "activations of a mean layer for a micro-batch",
        stage_mean(arch, leaf.pp, [s[0] for s in saved]),
    )
    body = graph.let(
        "kept_layer", "B", "activations of a mean layer kept for a micro-batch",
        waiting(whole, stage_mean(arch, leaf.pp, [s[1] for s in saved])), source=KORTHIKANTI,
    )  # fmt: skip
    gone = leaf.recompute_full + leaf.offload_activations - leaf.recompute_full * leaf.offload_activations
    free = 1 - leaf.recompute_full - leaf.recompute_selective
    gates = [free * s[2] for s in saved]
    gate = graph.let(
        "gate_layer", "B", "products of gated activations that a mean layer keeps for a micro-batch",
        stage_mean(arch, leaf.pp, gates),
    )  # fmt: skip
    return Kept(body, [waiting(all_of, rebuilt) for all_of, rebuilt, _ in saved], gate, gates, gone * whole)


def _ranks(graph: Graph, layers: tuple[Layer, Layer], ends: tuple[sp.Expr, sp.Expr], rows: sp.Expr, m: sp.Expr,
           held_layers: tuple[sp.Expr, sp.Expr], arch: Architecture, recipe: Recipe) -> list[Stage]:  # fmt: skip
    """Hold the first rank (most in flight, embedding, the kinds of layer that lead), the second (most layers), the last (head,
    logits); DualPipe puts the first and the last stage on one rank.

    `layers`: a mean layer of the first stage and of the others; `held_layers`: layers of an inner and of an outer rank.
    """
    (first, inside), (inner, outer) = layers, held_layers
    lone = 1 - (leaf.pp - 1) / maximum(leaf.pp - 1, 1)  # 1 where one rank is first and last
    tied = ends[1] - (arch_leaf("embedding_parameters") / leaf.tp if arch.tied else 0)
    logits = _logits(arch, rows, recipe)
    second = minimum(1, leaf.pp - 1)
    more = 1 - minimum(1, maximum(0, 3 - leaf.pp))  # 1 where there are inner ranks
    here = 1 - leaf.offload_activations
    flights = [
        outer * in_flight(graph, "first", ZERO, m) * here,
        more * inner * in_flight(graph, "second", second, m) * here,
        outer * in_flight(graph, "last", leaf.pp - 1, m) * here,
    ]
    within, at_ends = recipe.adapters
    sizes = [
        (first, outer, ends[0] + lone * tied, lone * at_ends, lone * logits),
        (inside, more * inner, ZERO, ZERO, ZERO),
        (inside, outer, ends[1], at_ends, logits),
    ]
    begin, middle, end = [
        Stage(count * one.dense, count * one.expert, beside, count * within + adapted,
              held * one.kept + more_bytes, held * one.gate)
        for (one, count, beside, adapted, more_bytes), held in zip(sizes, flights, strict=True)
    ]  # fmt: skip
    return [_paired(begin, end), middle, _paired(end, begin)]


def _paired(own: Stage, other: Stage) -> Stage:
    """Return a stage, or under DualPipe the mean of the two on its rank (define_memory counts it twice)."""
    half = leaf.dualpipe / 2
    return Stage(*((1 - half) * getattr(own, f.name) + half * getattr(other, f.name) for f in fields(Stage)))


def _logits(arch: Architecture, rows: sp.Expr, recipe: Recipe) -> sp.Expr:
    """Bytes of the head [B]: its normed input, and the more of what the loss holds of the logits and what its own gradient holds."""
    if arch.head is None:
        return ZERO
    head = Part(arch.head, "head")
    logits = rows * shard_outputs(head, leaf.tp)
    behind = logits * minimum(leaf.loss_bytes, leaf.BYTES_16) + fresh_bytes(recipe) * matrix_elements(head, leaf.tp)
    return maximum(logits * leaf.loss_bytes, behind) + rows * (
        arch_leaf("hidden") * leaf.bytes_activations / leaf.vector_split
    )


def limit() -> sp.Expr:
    """Memory of a device that the framework may take: its share, and what context and communicators leave [B]."""
    return minimum(M * leaf.memory_fraction, M - leaf.reserve)


def define_memory(graph: Graph, states: StateElements, stages: list[Stage], again: sp.Expr, inner: sp.Expr,
                  shared: sp.Expr, expert_shared: sp.Expr, recipe: Recipe = EVERYTHING) -> Memory:  # fmt: skip
    """Define the memory of the fullest rank: over first, inner and last rank, that with the most bytes in all."""
    gathered = 2 * weight_bytes(states, recipe) / inner
    buffers = (leaf.zero3 + leaf.offload_parameters - leaf.zero3 * leaf.offload_parameters) * gathered + leaf.bucket
    buffers += graph.let("fresh_gradients", "B", "gradients of a mean layer in 16 bits beside those kept",
                         fresh_bytes(recipe) * states.layer, source=FRESH)  # fmt: skip
    room = graph.let(
        "memory_room", "B", "what states and waiting activations may take",
        limit() / (1 + leaf.fragmentation) - again - buffers,
    )  # fmt: skip
    ranks = [
        _rank(graph, name, stage, room, (shared, expert_shared), recipe, again + buffers)
        for name, stage in zip(("first", "inner", "last"), stages, strict=True)
    ]
    most = graph.let(
        "memory_most", "B", "states and activations of the fullest rank", maximum(*(rank.total for rank in ranks))
    )

    def of_fullest(values: list[sp.Expr]) -> sp.Expr:
        cases = [(value, sp.Ge(rank.total, most)) for value, rank in zip(values[:-1], ranks, strict=False)]
        return sp.Piecewise(*cases, (values[-1], True))

    weights, gradients, optimizer = (
        graph.let(f"memory_{name}", "B", f"{name} of the fullest rank",
                  of_fullest([rank.states[i] for rank in ranks]), source=ZERO_PAPER)
        for i, name in enumerate(("weights", "gradients", "optimizer"))
    )  # fmt: skip
    rebuilt = graph.let(
        "memory_rebuilt", "B", "products of gated activations that the fullest rank does not keep, since memory asks",
        of_fullest([rank.whole - rank.total for rank in ranks]), source=GATE,
    )  # fmt: skip
    activations = graph.let(
        "memory_activations", "B", "activations, gathered parameters and one layer's working set of the fullest rank",
        most - weights - gradients - optimizer + again + buffers, source=KORTHIKANTI,
    )  # fmt: skip
    allocated = graph.let("memory_allocated", "B", "peak of tensors", weights + gradients + optimizer + activations)
    reserved = graph.let(
        "memory_reserved", "B", "memory that the framework holds", allocated * (1 + leaf.fragmentation)
    )
    outside = graph.let("memory_reserve", "B", "memory outside tensors: context, communicators, cache of the framework",
                        leaf.reserve + reserved - allocated)  # fmt: skip
    total = graph.let("memory_total", "B", "memory of the fullest rank as the driver shows it", reserved + leaf.reserve)
    return Memory(weights, gradients, optimizer, activations, outside, allocated, reserved, total, rebuilt)


@dataclass(frozen=True)
class Rank:
    """Bytes of one pipeline rank [B]: `states` (weights, gradients, optimiser states); with all its activations (`whole`); `total`
    without the products of gated activations that do not fit.
    """

    states: tuple[sp.Symbol, ...]
    whole: sp.Symbol
    total: sp.Symbol


def _rank(
    graph: Graph,
    name: str,
    stage: Stage,
    room: sp.Expr,
    shared: tuple[sp.Expr, sp.Expr],
    recipe: Recipe,
    working: sp.Expr,
) -> Rank:
    """Define what a rank holds; where it is more than the `room`, products of gated activations go first.

    What the optimiser's step holds takes the place of activations and of the `working` set of a layer [B].
    """
    cuts, expert_cuts = _cuts(shared[0]), _cuts(shared[1])
    copies = 1 + leaf.dualpipe
    own, routed = stage.dense + stage.ends, stage.expert != ZERO
    base = stage.dense * recipe.layer_bytes + stage.ends * leaf.bytes_weights
    weights = cuts[0] * ((1 + recipe.frozen_copies) * base + stage.adapters * leaf.bytes_weights)
    trained = recipe.full * own + stage.adapters
    stepped = leaf.step_bytes * cuts[2] * trained
    kept = leaf.bytes_gradients + leaf.low_gradients * minimum(
        leaf.bytes_weights, maximum(leaf.bytes_gradients - leaf.bytes_weights, 0)
    )
    gradients, optimizer = cuts[1] * trained * kept, cuts[2] * trained * leaf.bytes_states
    if routed:
        weights += expert_cuts[0] * (1 + recipe.frozen_copies) * stage.expert * recipe.expert_bytes
        stepped += leaf.step_bytes * expert_cuts[2] * recipe.full * stage.expert
        gradients += expert_cuts[1] * recipe.full * stage.expert * kept
        optimizer += expert_cuts[2] * recipe.full * stage.expert * leaf.bytes_states
    parts = {"weights": copies * weights, "gradients": copies * gradients, "optimizer": optimizer}
    states = tuple(
        graph.let(f"{what}_{name}", "B", f"{what} of the {name} rank", held, source=ZERO_PAPER)
        for what, held in parts.items()
    )
    full = graph.let(
        f"memory_{name}",
        "B",
        f"states and activations of the {name} rank",
        sp.Add(*states, maximum(stage.activations, stepped - working)),
    )
    least = graph.let(
        f"memory_least_{name}", "B", "the same, as far as memory asks without products of gated activations",
        maximum(full - stage.gate, minimum(full, room)), source=GATE,
    )  # fmt: skip
    return Rank(states, full, least)


def weight_bytes(states: StateElements, recipe: Recipe = EVERYTHING) -> sp.Expr:
    """Bytes of the whole weights of the fullest rank, routed experts in their own format [B]."""
    routed = states.expert * recipe.expert_bytes if states.expert != ZERO else ZERO
    return states.dense * recipe.layer_bytes + routed


def _cuts(shared: sp.Expr) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Share of weights, gradients, optimiser states that a rank holds, `shared` ranks holding one copy."""

    def cut(flag: sp.Expr) -> sp.Expr:
        return 1 / (1 + flag * (shared - 1))

    weights = cut(leaf.zero3) * (1 - leaf.offload_parameters)
    # interleaved, the gradients of one virtual stage are whole until they are exchanged
    open_share = leaf.zero2 * leaf.interleaved / leaf.virtual
    gradients = open_share + (1 - open_share) * cut(leaf.zero2)
    return weights, gradients, cut(leaf.zero1) * (1 - leaf.offload_optimizer)
