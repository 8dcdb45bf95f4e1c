"""Memory of the fullest rank in training, tensor by tensor (formulas.md section 5)."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tokenmill_models import training_leaves as leaf
from tokenmill_models.architecture import Architecture, LayerKind, Matrix
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.memory import ends_elements, expert_elements, layer_elements, stage_mean
from tokenmill_models.operations_parts import LOGIT_BYTES, ONE, ZERO, Part, arch_leaf, shard_inputs, shard_outputs
from tokenmill_models.roofline import M

KORTHIKANTI = Source(
    "Korthikanti et al. 2022, arXiv:2205.05198, section 4, tensor by tensor",
    ("kept for the backward pass: the input of every norm, product and activation function, and dropout masks",),
)
ZERO_PAPER = Source("Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054, section 5")
IN_FLIGHT = Source("Narayanan et al. 2021, arXiv:2104.04473, section 2.2, warm-up micro-batches of a rank")
DUALPIPE = Source("DeepSeek-AI 2024, DeepSeek-V3 Technical Report, arXiv:2412.19437, table 2")


@dataclass(frozen=True)
class StateElements:
    """Parameters of the fullest rank [1]: outside routed experts, of routed experts, those whose optimiser states it keeps;
    `saved_activations` of one micro-batch [B].
    """

    dense: sp.Symbol
    expert: sp.Expr
    dense_optimizer: sp.Symbol
    expert_optimizer: sp.Expr
    saved_activations: sp.Expr


@dataclass(frozen=True)
class Memory:
    """Bytes of the fullest rank [B]."""

    weights: sp.Symbol
    gradients: sp.Symbol
    optimizer: sp.Symbol
    activations: sp.Symbol
    reserve: sp.Symbol
    allocated: sp.Symbol
    reserved: sp.Symbol
    total: sp.Symbol


def _stored(part: Part, t: sp.Expr) -> sp.Expr:
    """Elements a token that a product leaves for the backward pass: its outputs, or for a row-cut one its inputs."""
    return shard_inputs(part, t) if part.matrix.split == "row" else shard_outputs(part, t)


def _stored_by(matrices: tuple[Matrix, ...], path: str, t: sp.Expr) -> sp.Expr:
    return sum((_stored(Part(m, f"{path}.{m.name}"), t) for m in matrices), ZERO)


def layer_activations(
    graph: Graph, label: str, kind: LayerKind, path: str, rows: sp.Expr
) -> tuple[sp.Symbol, sp.Symbol]:
    """Define the bytes of one layer that wait for the backward pass of one micro-batch: (all, attention core alone) [B].

    `rows`: tokens on a tensor group. A part of a layer (mixer, MLP) keeps the input of its norm and the normed input, its
    products' outputs and last input; masks of dropout a byte an element; a score matrix where there is no flash attention.
    """
    a, h = leaf.bytes_activations, arch_leaf("hidden")
    parts = int(kind.mixer.kind != "none") + int(kind.mlp.kind != "none")
    whole = parts * h * (2 * a + leaf.dropout * leaf.BYTES_MASK) / leaf.vector_split
    split = _stored_by(kind.mixer.matrices, f"{path}.mixer.matrices", leaf.tp) * a
    split += _stored_by(kind.mlp.matrices, f"{path}.mlp.matrices", leaf.tp) * a
    if kind.mlp.expert:
        inside = _stored_by(kind.mlp.expert, f"{path}.mlp.expert", leaf.expert_tp)
        load = arch_leaf(f"{path}.mlp.active") * leaf.expert_tp / leaf.tp * leaf.expert_load
        split += load * (h + inside) * a
    core = _core(kind, path)
    saved = rows * (whole + split + core)
    return (
        graph.let(
            f"saved_{label}", "B", f"activations of layer {label} kept for a micro-batch", saved, source=KORTHIKANTI
        ),
        graph.let(
            f"saved_core_{label}",
            "B",
            f"scores of layer {label} kept for a micro-batch",
            rows * core,
            source=KORTHIKANTI,
        ),
    )


def _core(kind: LayerKind, path: str) -> sp.Expr:
    """Bytes a token that the attention core keeps: softmax output, mask and dropped output a key; a log-sum with flash."""
    if not kind.mixer.heads:
        return ZERO
    heads = sp.ceiling(arch_leaf(f"{path}.mixer.heads") / leaf.tp)
    scores = leaf.bytes_activations + leaf.dropout * (leaf.BYTES_MASK + leaf.bytes_activations)
    return heads * ((1 - leaf.flash) * leaf.sequence * scores + leaf.flash * leaf.BYTES_32)


@dataclass(frozen=True)
class Stage:
    """What one pipeline rank holds: parameters outside and inside experts [1], activations in flight [B]."""

    dense: sp.Expr
    expert: sp.Expr
    activations: sp.Expr


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


def define_states(graph: Graph, arch: Architecture, rows: sp.Expr, m: sp.Expr, inner: sp.Expr, outer: sp.Expr,
                  shared: sp.Expr, expert_shared: sp.Expr) -> tuple[StateElements, list[Stage], sp.Expr]:  # fmt: skip
    """Define parameters and activations of the first, an inner and the last rank; return the fullest states, ranks, one layer."""
    dense = [layer_elements(graph, str(i), kind, f"layers.{i}", leaf.tp) for i, kind in enumerate(arch.layers)]
    expert = [
        expert_elements(graph, str(i), k, f"layers.{i}", leaf.ep, leaf.expert_tp) for i, k in enumerate(arch.layers)
    ]
    layer_dense = graph.let(
        "elements_layer", "1", "mean parameters of a layer of a stage, experts apart", stage_mean(arch, leaf.pp, dense)
    )
    layer_expert = stage_mean(arch, leaf.pp, expert)
    first, last = ends_elements(graph, arch, leaf.tp)
    working = _activations(graph, arch, rows)
    stages = _ranks(graph, layer_dense, layer_expert, (first, last), working, rows, m, inner, outer, arch)
    fullest = graph.let("elements_rank", "1", "parameters of the fullest rank, experts apart",
                        maximum(*(stage.dense for stage in stages)))  # fmt: skip
    routed = ZERO
    if layer_expert != ZERO:
        routed = graph.let("expert_elements_rank", "1", "parameters of routed experts of the fullest rank",
                           maximum(*(stage.expert for stage in stages)))  # fmt: skip
    states = StateElements(
        fullest, routed,
        graph.let("elements_optimizer", "1", "parameters whose optimiser states a rank keeps, experts apart",
                  fullest / (1 + leaf.zero1 * (shared - 1)), source=ZERO_PAPER),
        routed / (1 + leaf.zero1 * (expert_shared - 1)),
        inner * working.kept,
    )  # fmt: skip
    return states, stages, working.whole


@dataclass(frozen=True)
class Working:
    """Activation bytes of a mean layer for one micro-batch [B]: `kept` until its backward pass, `whole` while it runs."""

    kept: sp.Symbol
    whole: sp.Symbol


def _activations(graph: Graph, arch: Architecture, rows: sp.Expr) -> Working:
    pairs = [layer_activations(graph, str(i), kind, f"layers.{i}", rows) for i, kind in enumerate(arch.layers)]
    whole = graph.let(
        "saved_layer",
        "B",
        "activations of a mean layer for a micro-batch",
        stage_mean(arch, leaf.pp, [p[0] for p in pairs]),
    )
    core = stage_mean(arch, leaf.pp, [p[1] for p in pairs])
    entry = rows * arch_leaf("hidden") * leaf.bytes_activations / leaf.vector_split
    partial = whole - leaf.recompute_selective * (1 - leaf.flash) * core
    kept = graph.let(
        "kept_layer", "B", "activations of a mean layer kept for a micro-batch",
        leaf.recompute_full * entry + (1 - leaf.recompute_full) * partial, source=KORTHIKANTI,
    )  # fmt: skip
    return Working(kept, whole)


def _ranks(graph: Graph, dense: sp.Expr, expert: sp.Expr, ends: tuple[sp.Expr, sp.Expr], working: Working,
           rows: sp.Expr, m: sp.Expr, inner: sp.Expr, outer: sp.Expr, arch: Architecture) -> list[Stage]:  # fmt: skip
    """Hold the first rank (most in flight, embedding), the second (most layers), the last (head, logits)."""
    lone = 1 - (leaf.pp - 1) / maximum(leaf.pp - 1, 1)  # 1 where one rank is first and last
    tied = ends[1] - (arch_leaf("embedding_parameters") / leaf.tp if arch.tied else 0)
    logits = rows * _logits(arch)
    second = minimum(1, leaf.pp - 1)
    saved = working.kept * (1 - leaf.offload_activations)
    more = 1 - minimum(1, maximum(0, 3 - leaf.pp))  # 1 where there are inner ranks
    return [
        Stage(outer * dense + ends[0] + lone * tied, outer * expert,
              outer * saved * in_flight(graph, "first", ZERO, m) + lone * logits),
        Stage(more * inner * dense, more * inner * expert, more * inner * saved * in_flight(graph, "second", second, m)),
        Stage(outer * dense + ends[1], outer * expert,
              outer * saved * in_flight(graph, "last", leaf.pp - 1, m) + logits),
    ]  # fmt: skip


def _logits(arch: Architecture) -> sp.Expr:
    """Bytes a token of the head: its normed input, and logits with their gradient in 32 bits."""
    if arch.head is None:
        return ZERO
    width = shard_outputs(Part(arch.head, "head"), leaf.tp)
    return 2 * width * LOGIT_BYTES + arch_leaf("hidden") * leaf.bytes_activations / leaf.vector_split


def define_memory(graph: Graph, states: StateElements, stages: list[Stage], layer_bytes: sp.Expr, inner: sp.Expr,
                  shared: sp.Expr, expert_shared: sp.Expr) -> Memory:  # fmt: skip
    """Define the memory of the fullest rank: over first, inner and last rank, that with the most bytes in all."""
    copies = 1 + leaf.dualpipe
    names = ("first", "inner", "last")
    totals = []
    for name, stage in zip(names, stages, strict=True):
        state = stage.dense * _state_bytes(shared, copies) + stage.expert * _state_bytes(expert_shared, copies)
        totals.append(
            graph.let(f"memory_{name}", "B", f"states and activations of the {name} rank", state + stage.activations)
        )
    most = graph.let("memory_most", "B", "states and activations of the fullest rank", maximum(*totals))

    def split(name: str, what: int) -> sp.Symbol:
        factor = copies if what < 2 else ONE
        held = states.dense * _parts(shared)[what] + states.expert * _parts(expert_shared)[what]
        return graph.let(f"memory_{name}", "B", f"{name} of the fullest rank", factor * held, source=ZERO_PAPER)

    weights, gradients, optimizer = split("weights", 0), split("gradients", 1), split("optimizer", 2)
    gathered = 2 * (states.dense + states.expert) / inner * leaf.bytes_weights
    buffers = (leaf.zero3 + leaf.offload_parameters - leaf.zero3 * leaf.offload_parameters) * gathered
    again = (
        leaf.recompute_full + leaf.offload_activations - leaf.recompute_full * leaf.offload_activations
    ) * layer_bytes
    activations = graph.let(
        "memory_activations", "B", "activations, gathered parameters and one layer's working set of the fullest rank",
        maximum(0, most - weights - gradients - optimizer) + again + buffers + leaf.bucket, source=KORTHIKANTI,
    )  # fmt: skip
    allocated = graph.let("memory_allocated", "B", "peak of tensors", weights + gradients + optimizer + activations)
    reserved = graph.let(
        "memory_reserved", "B", "memory that the framework holds", allocated * (1 + leaf.fragmentation)
    )
    outside = graph.let("memory_reserve", "B", "memory outside tensors: context, communicators, cache of the framework",
                        leaf.reserve + reserved - allocated)  # fmt: skip
    total = graph.let("memory_total", "B", "memory of the fullest rank as the driver shows it", reserved + leaf.reserve)
    return Memory(weights, gradients, optimizer, activations, outside, allocated, reserved, total)


def _parts(shared: sp.Expr) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Bytes a parameter of weights, gradients, optimiser states on a rank, `shared` ranks holding one copy."""

    def cut(flag: sp.Expr) -> sp.Expr:
        return 1 / (1 + flag * (shared - 1))

    weights = leaf.bytes_weights * cut(leaf.zero3) * (1 - leaf.offload_parameters)
    # interleaved, the gradients of one virtual stage are whole until they are exchanged
    open_share = leaf.zero2 * leaf.interleaved / leaf.virtual
    gradients = leaf.bytes_gradients * (open_share + (1 - open_share) * cut(leaf.zero2))
    return weights, gradients, leaf.bytes_optimizer * cut(leaf.zero1) * (1 - leaf.offload_optimizer)


def _state_bytes(shared: sp.Expr, copies: sp.Expr) -> sp.Expr:
    weights, gradients, optimizer = _parts(shared)
    return copies * (weights + gradients) + optimizer


def capacity_rule_sides(memory: Memory) -> tuple[sp.Expr, sp.Expr]:
    """Return what must fit and what there is [B]."""
    return memory.total, M * leaf.memory_fraction
