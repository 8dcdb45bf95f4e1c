"""Exchanges of a training step: tensor, context and expert parallel inside a layer, hand-over between stages, gradients."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tokenmill_models import training_leaves as leaf
from tokenmill_models.architecture import LayerKind
from tokenmill_models.collectives import GroupLeaves, all_reduce, all_to_all, crossing_share, gather, group_leaves, send
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.operations import LayerWork
from tokenmill_models.operations_attention import kv_shard, prefill_launch
from tokenmill_models.operations_parts import ONE, ZERO, arch_leaf
from tokenmill_models.roofline import W, eta_W, launch
from tokenmill_models.stage import Group

KORTHIKANTI = Source(
    "Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models, arXiv:2205.05198"
)
RING = Source("Liu, Zaharia and Abbeel 2023, Ring Attention, arXiv:2310.01889")
ZERO_PAPER = Source("Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054, section 7")
BREADTH = Source("Lamy-Poirier 2022, Breadth-First Pipeline Parallelism, arXiv:2211.05953, section 4")
BACKWARD_CORE = sp.Rational(5, 2)
"""Work of a flash-attention backward pass over that of its forward pass (Dao 2023, arXiv:2307.08691, section 4.1)."""
ACCUMULATION = Source("definition", ("a gradient is read as computed, the kept one is read and written",))
DISPATCH = Source("DeepSeek-AI 2024, DeepSeek-V3 Technical Report, arXiv:2412.19437, sections 2.1.2 and 3.2")
PIPES = Source("Narayanan et al. 2021, Efficient Large-Scale Language Model Training, arXiv:2104.04473, section 2.2")

TENSOR, CONTEXT, PIPELINE = (group_leaves(name) for name in ("tensor", "context", "pipeline"))
EXPERT, EXPERT_TENSOR, EXPERT_NEAR = (group_leaves(name) for name in ("expert", "expert_tensor", "expert_near"))
NEAR, FAR, REPLICAS = (group_leaves(name) for name in ("near", "far", "replicas"))


@dataclass(frozen=True)
class Places:
    """How ranks are numbered: tensor innermost, then context, experts, and data and pipeline outside.

    `block`: ranks of one contiguous block of tensor, context and expert ranks. `near`: data-like ranks in a block, `far`
    blocks over which states are sharded, `replicas` copies of the sharded states.
    """

    block: sp.Symbol
    near: sp.Expr
    far: sp.Symbol
    replicas: sp.Symbol
    shared: sp.Symbol
    groups: tuple[Group, ...]


def places(graph: Graph, moe: bool) -> Places:
    """Define the numbering of ranks and return it with the groups that talk."""
    inside = leaf.tp * leaf.cp
    block = graph.let(
        "block", "1", "ranks of a block of tensor, context and expert ranks",
        maximum(inside, leaf.expert_tp * leaf.ep) if moe else inside,
    )  # fmt: skip
    all_data = leaf.cp * leaf.dp
    blocks = graph.let("blocks", "1", "blocks of one pipeline stage", leaf.tp * all_data / block)
    near = block / leaf.tp
    shared = graph.let(
        "shared", "1", "ranks that share one copy of the states",
        leaf.shard + (1 - minimum(leaf.shard, 1)) * all_data,
    )  # fmt: skip
    far = graph.let("far", "1", "blocks that share one copy of the states", shared / near)
    replicas = graph.let("replicas", "1", "copies of the sharded states", blocks / far)
    inner = block * (1 + (1 - leaf.pipeline_outermost) * (leaf.pp - 1))
    groups = [
        Group("tensor", leaf.tp, ONE),
        Group("context", leaf.cp, leaf.tp),
        Group("pipeline", leaf.pp, block * (1 + leaf.pipeline_outermost * (blocks - 1))),
        Group("near", near, leaf.tp),
        Group("far", maximum(1, far), inner),
        Group("replicas", maximum(1, replicas), inner * maximum(1, far)),
    ]
    if moe:
        width = leaf.expert_tp * leaf.ep
        groups += [
            Group("expert_tensor", leaf.expert_tp, ONE),
            Group("expert", leaf.ep, leaf.expert_tp),
            Group("expert_near", block / width, width),
        ]
    return Places(block, near, far, replicas, shared, tuple(groups))


@dataclass(frozen=True)
class LayerExchange:
    """Exposed exchange of one layer for one micro-batch, forward, backward and recompute [s]."""

    tensor: sp.Expr
    context: sp.Expr
    expert: sp.Expr


def layer_exchange(
    graph: Graph, label: str, kind: LayerKind, path: str, rows: sp.Expr, work: LayerWork, beside: sp.Expr = ZERO
) -> LayerExchange:
    """Define the exchanges of one layer whose micro-batch has `rows` tokens on a tensor group.

    `beside`: forward passes beside the one that is trained on.
    """
    again = leaf.recompute_full + beside
    tensor = _tensor(graph, label, kind, rows, again)
    context = _context(graph, label, kind, path, rows, work, again) if kind.mixer.kv_elements else ZERO
    expert = _expert(graph, label, kind, path, rows, work, again) if kind.mlp.expert else ZERO
    return LayerExchange(tensor, context, expert)


def _tensor(graph: Graph, label: str, kind: LayerKind, rows: sp.Expr, again: sp.Expr) -> sp.Symbol:
    """An exchange a part of the layer in each pass over it.

    With sequence parallelism each all-reduce is a gather and a scatter; the second gathers of the backward pass overlap. Backward,
    products of weight gradients can hide the exchange of input gradients: the all-reduce, or the scatter.
    """
    parts = kind.tensor_reduces
    volume = rows * arch_leaf("hidden") * leaf.bytes_residual
    reduce = all_reduce(graph, "tensor_reduce", TENSOR, volume)
    half = gather(graph, "tensor_gather", TENSOR, volume)
    one = leaf.sequence_parallel * 2 * half + (1 - leaf.sequence_parallel) * reduce
    hidden = leaf.sequence_parallel * half + (1 - leaf.sequence_parallel) * reduce
    exposed = parts * ((2 + again) * one - leaf.overlap_tensor * hidden)
    return graph.let(f"tensor_{label}", "s", f"exposed tensor exchange of layer {label}", exposed, source=KORTHIKANTI)


def _context(
    graph: Graph, label: str, kind: LayerKind, path: str, rows: sp.Expr, work: LayerWork, again: sp.Expr
) -> sp.Symbol:
    """Keys and values go round the ring forward; backward they go round again with their gradients.

    A hop hides behind the attention of the present part, which flash runs 2.5 times as long backward. Every part after the
    first is a kernel of its own and is merged into 32-bit sums: outputs forward, gradients of queries, keys and values
    backward. Zigzag order shares the causal mask evenly.
    """
    latent = kind.mixer.kind == "mla"  # keys and values travel projected up
    heads = [_merged(kind, path, width) for width in ("d_qk", "d_v")]
    cached = sp.Add(*heads) if latent else kv_shard(kind.mixer, f"{path}.mixer", leaf.tp)
    hop = send(graph, f"ring_{label}", CONTEXT, rows * cached * leaf.bytes_residual)
    hidden = leaf.overlap_context * work.attention_time / (leaf.attention_share * leaf.attention_speed) / leaf.cp
    runs = 1 + again
    waits = runs * maximum(0, hop - hidden) + maximum(0, 2 * hop - BACKWARD_CORE * hidden)
    wide = heads[1] * runs + heads[0] + cached
    merge = graph.let(
        f"merge_{label}", "s", f"merging one more part of the sequence into the sums of layer {label}",
        rows * wide * (2 * leaf.BYTES_32 + leaf.bytes_residual) / (W * eta_W), source=RING,
    )  # fmt: skip
    exposed = (leaf.cp - 1) * (waits + merge + (runs + 1) * (prefill_launch + launch))
    return graph.let(f"context_{label}", "s", f"exposed key/value ring of layer {label}", exposed, source=RING)


def _merged(kind: LayerKind, path: str, width: str) -> sp.Expr:
    """Elements a token of the fullest tensor rank's heads."""
    if not kind.mixer.heads:
        return ZERO
    return sp.ceiling(arch_leaf(f"{path}.mixer.heads") / leaf.tp) * arch_leaf(f"{path}.mixer.{width}")


def _expert(
    graph: Graph, label: str, kind: LayerKind, path: str, rows: sp.Expr, work: LayerWork, again: sp.Expr
) -> sp.Symbol:
    """Dispatch and combine, forward and backward (and again where recomputed), at the load of the fullest rank.

    A token is sent once to each node that holds experts of it (of uniform draws, or as few as the routing allows) and is spread
    inside. DualPipe hides the exchange of one micro-batch behind the work of another.
    """
    active = arch_leaf(f"{path}.mlp.active")
    domains = EXPERT.size / EXPERT.inside(1)
    nodes = domains * (1 - (1 - 1 / domains) ** active)
    if kind.mlp.groups > 1:
        nodes = minimum(nodes, arch_leaf(f"{path}.mlp.groups_used"))
    crossing = crossing_share(active, nodes)
    width = arch_leaf(f"{path}.mlp.expert.{kind.mlp.expert[0].name}.inputs")
    mean_bytes = (leaf.bytes_activations + leaf.bytes_residual) / 2  # dispatched as kept, combined in 16 bits at least
    held = rows / leaf.tp * active * leaf.expert_load * width * mean_bytes
    exchange = all_to_all(graph, f"dispatch_{label}", EXPERT, held, crossing)
    inside = gather(graph, f"expert_gather_{label}", EXPERT_TENSOR, held * leaf.expert_tp)
    shown = 2 * (2 + again) * (exchange + inside) * (1 - leaf.overlap_expert)
    hidden = leaf.dualpipe * (3 + again) * work.time
    return graph.let(
        f"expert_exchange_{label}", "s", f"exposed expert exchange of layer {label}", maximum(0, shown - hidden),
        source=DISPATCH,
    )  # fmt: skip


def hand_over(graph: Graph, rows: sp.Expr, beside: sp.Expr = ZERO) -> sp.Symbol:
    """Define the exposed time [s] to pass one micro-batch on and its gradient back, over all virtual stages of a rank.

    Each tensor rank sends its part; without sequence parallelism the parts are gathered behind the wire, or all send the whole.
    """
    volume = rows * arch_leaf("hidden") * leaf.bytes_residual
    part = send(graph, "hand_over", PIPELINE, volume / leaf.tp)
    whole = send(graph, "hand_over_whole", PIPELINE, volume)
    collected = part + gather(graph, "hand_over_gather", TENSOR, volume)
    one = leaf.sequence_parallel * part + (1 - leaf.sequence_parallel) * minimum(whole, collected)
    return graph.let(
        "stage_exchange", "s", "exposed stage hand-over of a micro-batch",
        (2 + beside) * leaf.virtual * one * (1 - leaf.overlap_pipeline), source=PIPES,
    )  # fmt: skip


def accumulation(graph: Graph, dense: sp.Expr, expert: sp.Expr) -> sp.Symbol:
    """Define the time [s] to add the gradients of a micro-batch to those kept, where a kernel of its own does and they are kept whole
    (below ZeRO 2); `dense`, `expert`: trained parameters of a rank outside and inside routed experts [1].
    """
    moved = dense * (leaf.bytes_weights + 2 * leaf.bytes_gradients)
    if expert != ZERO:
        moved += expert * (leaf.bytes_experts + 2 * leaf.bytes_gradients)
    return graph.let(
        "accumulation_time", "s", "adding the gradients of a micro-batch to those kept",
        leaf.accumulates * (1 - leaf.zero2) * moved / (W * eta_W), source=ACCUMULATION,
    )  # fmt: skip


@dataclass(frozen=True)
class Shared:
    """What the data ranks of a rank exchange: `trained` parameters [1], and the bytes of `updated` weights and of `all` weights [B]."""

    trained: sp.Expr
    updated: sp.Expr
    all: sp.Expr


def data_exchange(
    graph: Graph, dense: Shared, expert: Shared | None, window: sp.Expr, micro_batches: sp.Expr
) -> tuple[sp.Symbol, sp.Symbol]:
    """Define the data-parallel exchange of a step, whole and exposed [s], for what a rank holds outside and inside experts.

    `window`: compute of one micro-batch that can hide it. ZeRO 2 and 3 exchange with every micro-batch; interleaved, once for
    the p micro-batches that pass a virtual stage in a row.
    """
    one_by_one = 1 + leaf.interleaved * (leaf.pp - 1)
    rounds = graph.let(
        "exchange_rounds", "1", "how often sharded gradients are exchanged in a step", micro_batches / one_by_one,
        source=BREADTH,
    )  # fmt: skip
    terms = [_states_exchange(graph, "dense", (NEAR, FAR), dense, rounds)]
    if expert is not None:
        terms.append(_states_exchange(graph, "experts", (EXPERT_NEAR, FAR), expert, rounds))
    whole = graph.let("data_exchange", "s", "data-parallel exchange of a step", sp.Add(*terms), source=ZERO_PAPER)
    hidden = leaf.overlap_data * window * (1 + leaf.zero2 * (micro_batches - 1))
    exposed = graph.let(
        "data_exposed",
        "s",
        "exposed data-parallel exchange of a step",
        maximum((1 - leaf.hidden_data) * whole, whole - hidden),
    )
    return whole, exposed


def _states_exchange(
    graph: Graph, label: str, levels: tuple[GroupLeaves, GroupLeaves], shared: Shared, rounds: sp.Expr
) -> sp.Symbol:
    near, far = levels
    sent = shared.trained * minimum(leaf.bytes_gradients, leaf.bytes_communication)
    passes = 1 + leaf.zero2 * (rounds - 1)
    scatter = _sweep(graph, f"scatter_{label}", near, far, sent)
    collect = _sweep(graph, f"collect_{label}", near, far, shared.updated)
    everything = collect if shared.all == shared.updated else _sweep(graph, f"gather_{label}", near, far, shared.all)
    copies = all_reduce(graph, f"replicas_{label}", REPLICAS, sent / members(near, far))
    replicated = (1 - leaf.zero1) * scatter  # plain replication gathers gradients in place of parameters
    gathers = (leaf.zero1 - leaf.zero3) * collect + leaf.zero3 * 2 * rounds * everything
    return graph.let(
        f"exchange_{label}", "s", f"data-parallel exchange of {label} states in a step",
        passes * scatter + replicated + gathers + copies, source=ZERO_PAPER,
    )  # fmt: skip


def members(near: GroupLeaves, far: GroupLeaves) -> sp.Expr:
    """Members of two nested groups."""
    return near.size * far.size


def _sweep(graph: Graph, label: str, near: GroupLeaves, far: GroupLeaves, volume: sp.Expr) -> sp.Expr:
    inner = gather(graph, f"{label}_near", near, volume)
    return inner + gather(graph, f"{label}_far", far, volume / near.size)
