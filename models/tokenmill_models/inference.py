"""One pass of an engine over all layers: decode step, prefill chunk, or both at once.

A replica of t·p·d_a ranks holds p·d_a groups of sequences: each attention group of t ranks has its own sequences, and each pipeline
stage works on one group at a time. A pass carries one group through all stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture, LayerKind
from tokenmill_models.collectives import all_to_all, crossing_share, engine_all_reduce, gather, group_leaves, send
from tokenmill_models.energy import DRAW
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.inference_experts import fullest, spare_share
from tokenmill_models.operations import LayerWork, Operation, Shape, head, layer
from tokenmill_models.operations_attention import keys_seen
from tokenmill_models.operations_parts import arch_leaf
from tokenmill_models.roofline import FLOP_PER_MAC, F, W, memory_time
from tokenmill_models.stage import Group
from tokenmill_models.symbols import constant

TENSOR, PIPELINE, EXPERT = (group_leaves(name) for name in ("tensor", "pipeline", "expert"))
GROUPS = (
    Group("tensor", leaf.tp, sp.Integer(1)),
    Group("expert", leaf.tp * leaf.attention_dp, sp.Integer(1)),
    Group("pipeline", leaf.pp, leaf.tp * leaf.attention_dp),
)

ENGINE = Source(
    "definition",
    (
        "gaps between kernels scale with the layers; scheduling and sampling are paid once a step, and for every sequence",
    ),
)
HALVES = Source(
    "DeepSeek-AI 2024, DeepSeek-V3 Technical Report, arXiv:2412.19437, section 3.4: two micro-batches overlap work and exchange"
)
# keeps a division by zero out of the branch that is not taken
LEAST_MFU = sp.Float("1e-9")
# keeps a division by zero out of a model without an output head
LEAST_SECONDS = constant("least_seconds", 1e-12, "s", "a time that is none")
KERNELS = Source(
    "count of kernels in vLLM 0.2, modules llama and bloom",
    (
        "norm, query-key-value, rotary, cache, attention, output, its sum over ranks; norm, gate and up, activation, down, its sum over ranks: 12",
        "with biases on the two joined products four more: each is added, and the residual apart",
    ),
)
PLAIN_KERNELS = 12
RESOURCES = ("compute", "memory", "tensor", "expert", "pipeline", "launch")


@dataclass(frozen=True)
class Pass:
    """One pass: `time` [s] of a group through all stages; `flops` executed, `model_flops` counted [FLOP] and `bytes` [B] of the
    fullest rank, of which the mean rank does without `spare`; `shares`: resource to seconds, which sum to the time; `pipes` [s]:
    time in which matrix units are fed.
    """

    time: sp.Symbol
    flops: sp.Symbol
    model_flops: sp.Symbol
    bytes: sp.Symbol
    shares: dict[str, sp.Symbol]
    spare: sp.Expr
    pipes: sp.Symbol


def decode_shape(tokens: sp.Expr, keys: sp.Expr, sequences: sp.Expr | None = None) -> Shape:
    """Return the load of `tokens` decode tokens of sequences (one token each unless given) that have `keys` tokens cached."""
    return Shape(
        tokens=tokens, sequences=tokens if sequences is None else sequences, keys=keys, weight_bytes=leaf.bytes_weights, expert_bytes=leaf.bytes_experts,
        activation_bytes=leaf.bytes_16, kv_bytes=leaf.bytes_kv, t=leaf.tp, e=leaf.ep, t_e=leaf.expert_tp,
        absorbed=True, expert_load=leaf.expert_load, grouped=True,
    )  # fmt: skip


def prefill_shape(tokens: sp.Expr, sequences: sp.Expr, keys: sp.Expr) -> Shape:
    """Return the load of `tokens` prompt tokens of `sequences` prompts whose queries see `keys` keys on average."""
    return replace(decode_shape(tokens, keys), sequences=sequences, causal=True, absorbed=False)


def run_pass(
    graph: Graph, label: str, arch: Architecture, shape: Shape, logits: sp.Expr, halved: sp.Symbol | None = None
) -> Pass:
    """Define one pass of a load through the model, with `logits` rows through the output head.

    Layers that do not divide evenly over the stages lengthen it, as does the output head on the last: every stage waits for the fullest.
    `halved`: 1 where the load goes as two halves, one computing while the other's tokens are exchanged between experts.
    """
    exchanges = _exchanges(graph, label, arch, shape)
    layers = [_layer(graph, f"{label}_{i}", kind, f"layers.{i}", shape) for i, kind in enumerate(arch.layers)]
    last = head(graph, f"{label}_head", arch, replace(shape, tokens=logits, beside=None))
    counts = [arch_leaf(f"layers.{i}.count") for i in range(len(layers))]
    total = arch_leaf("layer_count")
    uneven = graph.let(
        "uneven", "1", "time of the fullest stage over the mean", leaf.pp * sp.ceiling(total / leaf.pp) / total
    )
    shares = _work_shares(graph, label, layers, counts, last, uneven)
    shares |= _exchange_shares(graph, label, arch, counts, exchanges, uneven)
    _one_layer(graph, label, layers, counts, shares, uneven)
    if halved is not None and exchanges.experts:
        shares |= _in_halves(graph, label, halved, shares, layers, counts)
    shares["launch"] = graph.let(
        f"launch_{label}",
        "s",
        f"launch and scheduling of {label}",
        _launch(total, _starts(graph, arch, counts), sp.Add(*shares.values())) + logits * _of_sequence(),
        source=ENGINE,
    )
    counted = _model_flops(graph, label, arch, shape, logits)
    shares = _laid_down(graph, label, shares, counted)
    every = [*zip((count * uneven for count in counts), layers, strict=True), (sp.Integer(1), last)]
    return Pass(
        time=graph.let(f"T_{label}", "s", f"time of {label}", sp.Add(*shares.values())),
        flops=_sum(graph, f"flop_{label}", "FLOP", f"work a rank executes in {label}", layers, counts, last, "flops"),
        model_flops=counted,
        bytes=_sum(graph, f"moved_{label}", "B", f"memory traffic of a rank in {label}", layers, counts, last, "bytes"),
        shares=shares,
        spare=_spare(graph, label, arch, counts, layers, shape),
        pipes=_pipes(graph, label, every),
    )


def _pipes(graph: Graph, label: str, every: Sequence[tuple[sp.Expr, LayerWork]]) -> sp.Symbol:
    """Define the time [s] of a pass in which matrix units are fed: of the fullest stage's layers, each so many times, and the head."""
    return graph.let(
        f"pipes_{label}", "s", f"time of {label} in which matrix units are fed",
        sp.Add(*(count * sp.Add(*map(_fed, work.operations.values())) for count, work in every)), source=DRAW,
    )  # fmt: skip


def _spare(
    graph: Graph, label: str, arch: Architecture, counts: list[sp.Symbol], layers: list[LayerWork], shape: Shape
) -> sp.Expr:
    """Define the weights of experts [B] that the fullest rank reads in a pass beyond those of the mean rank."""
    terms = []
    for i, kind in enumerate(arch.layers):
        if kind.mlp.expert:
            full = fullest(graph, f"{label}_{i}", kind, f"layers.{i}", shape)
            read = sp.Add(*(one.weights for one in layers[i].operations.values() if one.kind == "expert"))
            terms.append(counts[i] * read * spare_share(graph, f"{label}_{i}", f"layers.{i}", full))
    if not terms:
        return sp.Integer(0)
    return graph.let(
        f"spare_{label}",
        "B",
        f"weights of experts that the fullest rank of {label} reads beyond the mean",
        sp.Add(*terms),
    )


def _laid_down(graph: Graph, label: str, shares: dict[str, sp.Symbol], counted: sp.Symbol) -> dict[str, sp.Symbol]:
    """Define the shares of a pass whose utilisation the file lays down: compute takes the counted work at it, the rest nothing."""
    flag = graph.let("mfu_laid_down", "1", "1 where the file lays the MFU down", sp.ceiling(leaf.mfu_assumed))
    asked = counted / (leaf.mfu_peak * maximum(leaf.mfu_assumed, LEAST_MFU))
    return {
        name: graph.let(
            f"{name}_time_{label}", "s", f"time of {label} by {name}",
            (1 - flag) * predicted + (flag * asked if name == "compute" else 0),
        )
        for name, predicted in shares.items()
    }  # fmt: skip


def _layer(graph: Graph, label: str, kind: LayerKind, path: str, shape: Shape) -> LayerWork:
    return layer(graph, label, kind, path, fullest(graph, label, kind, path, shape))


def _launch(total: sp.Expr, starts: sp.Expr, busy: sp.Expr) -> sp.Expr:
    """Time [s] of launches that the device waits for: in a graph the gaps between kernels; else the host runs ahead while the device is `busy`."""
    captured, eager = leaf.graph_launch, 1 - leaf.graph_launch
    once = captured * leaf.step_seconds_graph + eager * leaf.host_pace * leaf.step_seconds_eager
    ahead = maximum(0, leaf.host_pace * starts * leaf.layer_seconds_eager - busy)
    return once + captured * total * leaf.layer_seconds_graph + eager * ahead


def _starts(graph: Graph, arch: Architecture, counts: list[sp.Symbol]) -> sp.Symbol:
    """Define the launches of all layers [1], in layers of PLAIN_KERNELS: a bias after a joined product, and the sum that a norm then
    does not take in, are kernels of their own.
    """
    kernels = [
        PLAIN_KERNELS + 2 * sum(m.split == "row" and bool(m.bias) for m in (*kind.mixer.matrices, *kind.mlp.matrices))
        for kind in arch.layers
    ]
    summed = sp.Add(*(count * k for count, k in zip(counts, kernels, strict=True)))
    return graph.let(
        "eager_layers", "1", "launches of all layers over those of a plain one", summed / PLAIN_KERNELS, source=KERNELS
    )


def _of_sequence() -> sp.Expr:
    """Time [s] of the host for a sequence a step; constants of captured steps are of each engine's own hosts."""
    return leaf.sequence_seconds * (leaf.graph_launch + (1 - leaf.graph_launch) * leaf.host_pace)


def _sum(
    graph: Graph, name: str, dimension: str, title: str,
    layers: list[LayerWork], counts: list[sp.Symbol], last: LayerWork, what: str,
) -> sp.Symbol:  # fmt: skip
    terms = [count * getattr(work, what) for count, work in zip(counts, layers, strict=True)]
    return graph.let(name, dimension, title, sp.Add(*terms, getattr(last, what)))


def _work_shares(
    graph: Graph, label: str, layers: list[LayerWork], counts: list[sp.Symbol], last: LayerWork, uneven: sp.Expr
) -> dict[str, sp.Symbol]:
    """Split the time of operations by what bounds each: compute where its compute time is the greater, else memory."""
    weighted = [(count * uneven, work) for count, work in zip(counts, layers, strict=True)]
    weighted.append((_head_weight(graph, label, layers, counts, last), last))
    time = graph.let(
        f"work_{label}", "s", f"time of all operations of {label}",
        sp.Add(*(k * sp.Add(*map(_in_engine, w.operations.values())) for k, w in weighted)), source=ENGINE,
    )  # fmt: skip
    bound = [k * sp.Add(*map(_compute_bound, work.operations.values())) for k, work in weighted]
    compute = graph.let(f"compute_bound_{label}", "s", f"time of compute-bound operations of {label}", sp.Add(*bound))
    memory = graph.let(f"memory_bound_{label}", "s", f"time of memory-bound operations of {label}", time - compute)
    return {"compute": compute, "memory": memory}


def _one_layer(
    graph: Graph, label: str, layers: list[LayerWork], counts: list[sp.Symbol], shares: dict[str, sp.Symbol], uneven: sp.Expr
) -> None:  # fmt: skip
    """Define the mean time [s] of a layer with its exchanges as profiles of single layers measure it, and that without attention."""
    total = arch_leaf("layer_count")
    weighted = list(zip(counts, layers, strict=True))
    body = sp.Add(*(count * sp.Add(*map(_in_engine, work.operations.values())) for count, work in weighted))
    attention = [one for _, work in weighted for one in work.operations.values() if one.kind == "attention"]
    share = graph.let(
        f"layer_{label}", "s", f"mean time of a layer of {label}, its exchanges included",
        (body + (shares["tensor"] + shares["expert"]) / uneven) / total,
    )  # fmt: skip
    core = sp.Add(*(count * work.attention_time for count, work in weighted)) / total if attention else sp.Integer(0)
    graph.let(
        f"bare_layer_{label}", "s", f"mean time of a layer of {label} without attention", maximum(0, share - core)
    )


def _head_weight(
    graph: Graph, label: str, layers: list[LayerWork], counts: list[sp.Symbol], last: LayerWork
) -> sp.Symbol:
    """Define how many times the output head counts in a pass: every stage waits for the last, but for a layer it has less."""
    total = arch_leaf("layer_count")
    body = sp.Add(*(count * work.time for count, work in zip(counts, layers, strict=True)))
    spare = (sp.ceiling(total / leaf.pp) - sp.floor(total / leaf.pp)) * body / total
    return graph.let(
        f"head_weight_{label}", "1", f"times of the output head in {label}",
        maximum(1, leaf.pp - leaf.pp * spare / maximum(last.time, LEAST_SECONDS)),
        assumes=("groups follow one another through the stages without a gap", "the last stage has the fewest layers"),
    )  # fmt: skip


def _in_engine(one: Operation) -> sp.Expr:
    """Time [s] of an operation in a step of an engine: its roofline, what is left of its start, and the engine's own kernels of experts."""
    if one.bytes == 0:
        roof = sp.Integer(0)
    else:
        roof = maximum(one.compute, memory_time(one.name)) if one.compute != 0 else memory_time(one.name)
    return _pace(one) * (roof + leaf.kernel_share * (one.time - roof))


def _pace(one: Operation) -> sp.Expr:
    return leaf.expert_pace if one.kind == "expert" else sp.Integer(1)


def _compute_bound(one: Operation) -> sp.Expr:
    if one.compute == 0:
        return sp.Integer(0)
    bound = sp.Ge(one.compute, memory_time(one.name), evaluate=False)
    return sp.Piecewise((_pace(one) * one.compute, bound), (0, True), evaluate=False)


def _fed(one: Operation) -> sp.Expr:
    """Time [s] in which an operation feeds the matrix units: bound by compute; of attention all, since its tiles are padded, and of
    experts in 8 bits, whose sums of every block of scales go through the vector units.
    """
    if one.kind == "attention":
        return _in_engine(one)
    if one.kind == "expert":
        return sp.Piecewise(
            (_compute_bound(one), leaf.bytes_experts > 1.1),
            (_in_engine(one), leaf.bytes_experts > 0.9),
            (_compute_bound(one), True),
        )
    return _compute_bound(one)


@dataclass(frozen=True)
class _Exchanges:
    reduce: sp.Symbol
    handover: sp.Symbol
    experts: dict[int, sp.Symbol]


def _exchanges(graph: Graph, label: str, arch: Architecture, shape: Shape) -> _Exchanges:
    """Define the time of each exchange of a pass: one all-reduce, one hand-over, and the expert exchange of MoE layers."""
    width = arch_leaf("hidden") * leaf.bytes_16
    rows = graph.let(f"rows_{label}", "B", f"activations of a group in {label}", shape.all_tokens * width)
    reduce = engine_all_reduce(graph, f"reduce_{label}", TENSOR, rows, leaf.graph_launch)
    handover = send(graph, f"handover_{label}", PIPELINE, rows / leaf.tp)
    routed = {i: kind for i, kind in enumerate(arch.layers) if kind.mlp.expert}
    experts = {
        i: _expert_exchange(graph, f"{label}_{i}", kind, f"layers.{i}", rows, reduce) for i, kind in routed.items()
    }
    return _Exchanges(reduce, handover, experts)


def _expert_exchange(
    graph: Graph, label: str, kind: LayerKind, path: str, rows: sp.Expr, reduce: sp.Symbol
) -> sp.Symbol:
    """Define the time that an MoE layer spends between its ranks.

    One attention group: its ranks hold the same tokens, so an all-reduce joins what they computed. Several: experts
    spread over them, tokens are dispatched and combined by all-to-all (once a node where the model limits a token to few); experts
    cut over them, tokens are gathered and scattered.
    """
    copies = minimum(arch_leaf(f"{path}.mlp.active"), leaf.ep)
    crossing = crossing_share(copies, arch_leaf(f"{path}.mlp.groups_used")) if kind.mlp.groups > 1 else 1
    dispatch = all_to_all(graph, f"dispatch_{label}", EXPERT, rows / leaf.tp * copies * leaf.expert_load, crossing)
    collect = gather(graph, f"collect_{label}", EXPERT, rows * leaf.attention_dp)
    chosen = sp.Piecewise((reduce, leaf.attention_dp <= 1), (2 * collect, leaf.ep <= 1), (2 * dispatch, True))
    return graph.let(f"T_exchange_{label}", "s", f"expert exchange of {label}", chosen)


def _exchange_shares(
    graph: Graph, label: str, arch: Architecture, counts: list[sp.Symbol], exchanges: _Exchanges, uneven: sp.Expr
) -> dict[str, sp.Symbol]:
    reduces = sp.Add(*(count * _reduces(kind) for count, kind in zip(counts, arch.layers, strict=True)))
    tensor = graph.let(
        f"tensor_{label}", "s", f"all-reduces of {label}: one after each mixer and each MLP, or after both at once",
        reduces * exchanges.reduce * uneven,
    )  # fmt: skip
    expert = sp.Add(*(counts[i] * time for i, time in exchanges.experts.items())) * uneven
    return {
        "tensor": tensor,
        "expert": graph.let(f"experts_{label}", "s", f"expert exchange of {label}", expert),
        "pipeline": graph.let(f"pipeline_{label}", "s", f"hand-overs of {label}", leaf.pp * exchanges.handover),
    }


def _in_halves(
    graph: Graph, label: str, halved: sp.Symbol, shares: dict[str, sp.Symbol], layers: list[LayerWork], counts: list[sp.Symbol]
) -> dict[str, sp.Symbol]:  # fmt: skip
    """Define memory and exchange shares of a load in two halves: weights are read by both, the work of one hides the other's exchange."""
    weights = sp.Add(*(count * work.weight_bytes_read for count, work in zip(counts, layers, strict=True))) / W
    memory = graph.let(
        f"memory_halved_{label}", "s", f"time of memory-bound operations of {label}, in halves where asked",
        shares["memory"] + halved * minimum(weights, shares["memory"]), source=HALVES,
        assumes=("operations bound by compute take as long in halves",),
    )  # fmt: skip
    exchanged = graph.let(
        f"experts_shown_{label}", "s", f"expert exchange of {label} that no work hides",
        maximum(0, shares["expert"] - halved * (shares["compute"] + memory)), source=HALVES,
    )  # fmt: skip
    return {"memory": memory, "expert": exchanged}


def _reduces(kind: LayerKind) -> int:
    """All-reduces of a layer over the tensor group; the experts' own exchange is apart."""
    return kind.tensor_reduces if kind.mlp.kind == "dense" else int(kind.mixer.kind != "none")


def _model_flops(graph: Graph, label: str, arch: Architecture, shape: Shape, logits: sp.Expr) -> sp.Symbol:
    """Define the counted work of a pass, a rank: 2·(matrix elements a token is multiplied with) + causal attention."""
    body = arch_leaf("matmul_parameters_active")
    rows = logits - shape.all_tokens
    terms = [shape.all_tokens * body + (rows * arch_leaf("head.elements") if arch.head is not None else 0)]
    for i, kind in enumerate(arch.layers):
        mixer, at = kind.mixer, f"layers.{i}.mixer"
        if not mixer.heads * (mixer.d_qk + mixer.d_v):
            continue
        width = arch_leaf(f"{at}.heads") * (arch_leaf(f"{at}.d_qk") + arch_leaf(f"{at}.d_v"))
        loads = [shape] if shape.beside is None else [shape, shape.beside]
        seen = sp.Add(*(load.tokens * keys_seen(mixer, at, load) for load in loads))
        terms.append(arch_leaf(f"layers.{i}.count") * width * seen)
    return graph.let(
        f"model_flop_{label}",
        "FLOP",
        f"counted work of {label}, a tensor rank",
        FLOP_PER_MAC * sp.Add(*terms) / leaf.tp,
    )


def uses(graph: Graph, time: sp.Expr, flops: sp.Expr, moved: sp.Expr) -> tuple[sp.Symbol, sp.Symbol]:
    """Define the shares of peak compute and of peak bandwidth used over `time` [s]; return (compute, memory) [1].

    In the time of a pass a rank of p stages serves p groups, each with 1/p of the layers: the whole pass's work.
    """
    compute = graph.let(
        "compute_use", "1", "executed work over peak at the precision of the products", flops / (time * F)
    )
    return compute, graph.let("mbu", "1", "memory traffic over time times bandwidth", moved / (time * W))
