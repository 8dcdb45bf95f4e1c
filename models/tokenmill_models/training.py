"""One training step: pipeline part, exposed data-parallel part, optimiser part.

Pretraining, fine-tuning, and the trainer of reinforcement learning compose this graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sympy as sp

from tokenmill_models import training_leaves as leaf
from tokenmill_models.architecture import Architecture, LayerKind
from tokenmill_models.formula import Graph, Source, maximum
from tokenmill_models.memory import stage_mean
from tokenmill_models.operations import LayerWork, Operation, Shape, head, layer
from tokenmill_models.operations_attention import keys_seen, peak_16bit
from tokenmill_models.operations_parts import ONE, ZERO, arch_leaf
from tokenmill_models.roofline import FLOP_PER_MAC, W, eta_F, eta_W
from tokenmill_models.training_activations import rebuilds
from tokenmill_models.training_exchange import (
    PIPES,
    LayerExchange,
    Shared,
    accumulation,
    data_exchange,
    hand_over,
    layer_exchange,
)
from tokenmill_models.training_memory import EVERYTHING, Recipe, StateElements, weight_bytes
from tokenmill_models.training_muon import orthogonal_flops
from tokenmill_models.training_products import EARLY, products_of, redone

BACKWARD = Source(
    "Kaplan et al. 2020, Scaling Laws for Neural Language Models, arXiv:2001.08361, section 2.1",
    ("the gradients of inputs and of weights cost as much as the forward product each",),
)
SUSTAINED = Source(
    "definition",
    ("backward kernels, clocks under lasting load and unfused operations are slower than single forward kernels",),
)
LAUNCHES = Source(
    "definition",
    ("kernels of a layer are of many lengths: fourth-power mean of launching and running, exact at either end",),
)
ZERO_BUBBLE = Source("Qi et al. 2023, Zero Bubble Pipeline Parallelism, arXiv:2401.10241, table 1")
DUALPIPE = Source("DeepSeek-AI 2024, DeepSeek-V3 Technical Report, arXiv:2412.19437, table 2")


@dataclass(frozen=True)
class Step:
    """A training step: `time` [s]; `model_flops` counted over the whole job, `flops` executed and `bytes` moved a rank; `shares`."""

    time: sp.Symbol
    model_flops: sp.Symbol
    flops: sp.Symbol
    bytes: sp.Symbol
    micro_batches: sp.Symbol
    shares: dict[str, sp.Symbol]


THREE = sp.Integer(3)


@dataclass(frozen=True)
class Passes:
    """How often a part runs in a step for one micro-batch, over its forward pass: products, attention, memory sweeps [1].

    `counted`: forward passes that the counted work of the job is worth; `keys`: mean keys before a token; `beside`: forward
    passes among them beside the one that is trained on; `updates`: backward passes [1], `trained`: share of them that compute
    gradients of weights.
    """

    matmul: sp.Expr
    attention: sp.Expr
    vector: sp.Expr
    counted: sp.Expr = THREE
    keys: sp.Expr = leaf.sequence / 2
    beside: sp.Expr = ZERO
    updates: sp.Expr = ONE
    trained: sp.Expr = ONE


def full_passes() -> Passes:
    """Passes where every parameter is trained: forward once, backward twice (attention 2.5 with flash), and what is recomputed."""
    again = leaf.recompute_full
    core = 1 + 2 + leaf.flash / 2 + again + leaf.recompute_selective * (1 - leaf.flash)
    return Passes(3 + again, core, 3 + again)


def rows_of_rank(graph: Graph) -> sp.Symbol:
    """Define the tokens of a micro-batch on one tensor group."""
    return graph.let(
        "rows", "1", "tokens of a micro-batch on a tensor group", leaf.micro_batch * leaf.sequence / leaf.cp
    )


def shape_of(rows: sp.Expr, keys: sp.Expr = leaf.sequence / 2) -> Shape:
    """Return the load of a micro-batch with `keys` before a token; causal, context ranks share it evenly."""
    return Shape(
        tokens=rows, sequences=leaf.micro_batch, keys=keys, weight_bytes=leaf.bytes_weights,
        expert_bytes=leaf.bytes_experts, activation_bytes=leaf.bytes_residual, kv_bytes=leaf.bytes_residual,
        t=leaf.tp, e=leaf.ep, t_e=leaf.expert_tp, flash=leaf.flash, dropout=leaf.dropout, causal=True, vector_split=leaf.vector_split,
        expert_load=leaf.expert_load,
    )  # fmt: skip


@dataclass(frozen=True)
class Parts:
    """Time of one layer (or the head) for one micro-batch [s]: whole, forward, weight gradients; and by resource."""

    whole: sp.Symbol
    weight_gradient: sp.Expr
    by_resource: dict[str, sp.Expr]
    flops: sp.Expr
    bytes: sp.Expr


def define_step(
    graph: Graph, arch: Architecture, states: StateElements, passes: Passes, recipe: Recipe = EVERYTHING,
    more: sp.Expr = ZERO,
) -> Step:  # fmt: skip
    """Define the time of a step with the parameters `states` on a rank (`places` has defined who talks to whom).

    `more`: work of a micro-batch on a mean layer beside that of the model itself [s].
    """
    rows = rows_of_rank(graph)
    shape = shape_of(rows, passes.keys)
    each = [_layer_parts(graph, i, kind, shape, passes, more) for i, kind in enumerate(arch.layers)]
    last = _head_parts(graph, arch, shape, passes)
    m = graph.let("m", "1", "micro-batches of a step", leaf.micro_batches)
    between = hand_over(graph, rows, passes.beside) + accumulation(graph, states.dense_trained, states.expert_trained)
    stage, total = _stages(graph, arch, each, last, between)
    pipeline = _pipeline(graph, each, stage, total, m)
    counts = [arch_leaf(f"layers.{i}.count") for i in range(len(each))]
    data, optimizer, host = _states_part(graph, arch, states, stage, m, recipe)
    predicted = pipeline + data + optimizer + host
    model = _model_flops(graph, arch, passes.keys)
    step_flops = graph.let(
        "step_model_flops", "FLOP", "counted work of a step over all devices", passes.counted * model
    )
    assumed = step_flops / (maximum(leaf.mfu_assumed, sp.Float("1e-9")) * leaf.mfu_peak * leaf.ranks)
    time = graph.let(
        "step_time", "s", "time of a step, predicted or from the MFU laid down",
        sp.Piecewise((assumed, sp.Gt(leaf.mfu_assumed, 0)), (predicted, True)),
    )  # fmt: skip
    a_rank = [(count, one) for count, one in zip(counts, each, strict=True)] + [(ONE, last)]
    per_rank = m / leaf.pp
    flops = sp.Add(*(k * one.flops for k, one in a_rank)) * per_rank
    moved = sp.Add(*(k * one.bytes for k, one in a_rank)) * per_rank
    shares = _shares(graph, a_rank, per_rank, pipeline)
    shares |= {"data": data, "optimizer": optimizer, "host": host}
    return Step(
        time, step_flops,
        graph.let("step_flops", "FLOP", "work a rank executes in a step", flops, source=BACKWARD),
        graph.let("step_bytes", "B", "memory traffic of a rank in a step", moved),
        m, shares,
    )  # fmt: skip


def _layer_parts(graph: Graph, index: int, kind: LayerKind, shape: Shape, passes: Passes, more: sp.Expr) -> Parts:
    label, path = f"train_{index}", f"layers.{index}"
    work = layer(graph, label, kind, path, shape)
    exchange = layer_exchange(graph, label, kind, path, shape.tokens, work, passes.beside)
    if rebuilds(kind):  # norms and activations are the sweeps of memory: a second forward sweep, at most
        passes = replace(passes, vector=passes.vector + leaf.recompute_selective)
    ups = [work.operations[f"{label}_{m.name}"] for m in kind.mixer.matrices if latent_up(kind, m.name)]
    last = [one for name, one in work.operations.items() if name.endswith("_mlp_down")]
    return _parts(graph, label, work, passes, exchange, leaf.layer_seconds * passes.vector, ups, more, last)


def latent_up(kind: LayerKind, name: str) -> bool:
    """Return whether a matrix of a latent mixer projects a latent up, which selective recomputation does again."""
    return rebuilds(kind) and name.endswith("_up")


def _head_parts(graph: Graph, arch: Architecture, shape: Shape, passes: Passes) -> Parts:
    work = head(graph, "train_head", arch, shape)
    # the head is never recomputed
    kept = replace(passes, matmul=passes.matmul - leaf.recompute_full, vector=passes.vector - leaf.recompute_full)
    return _parts(graph, "train_head", work, kept, LayerExchange(ZERO, ZERO, ZERO), ZERO)


def _parts(
    graph: Graph, label: str, work: LayerWork, passes: Passes, exchange: LayerExchange, launch: sp.Expr,
    ups: Sequence[Operation] = (), more: sp.Expr = ZERO, last: Sequence[Operation] = (),
) -> Parts:  # fmt: skip
    def all_passes(kind: str, dimension: str, title: str, single: tuple[sp.Expr, sp.Expr, sp.Expr]) -> sp.Symbol:
        terms = [n * one for n, one in zip((passes.matmul, passes.attention, passes.vector), single, strict=True)]
        return graph.let(f"{kind}_{label}_step", dimension, f"{title} of {label} for a micro-batch", sp.Add(*terms),
                         source=BACKWARD)  # fmt: skip

    speed = graph.let(
        "product_speed", "1", "speed of products in training over that of single forward kernels",
        leaf.product_share * leaf.product_speed * (1 - leaf.dualpipe * (1 - leaf.units_left)), source=SUSTAINED,
    )  # fmt: skip
    back = products_of(
        graph, label, list(work.operations.values()), passes.matmul, passes.updates, passes.trained, speed
    )
    products = back.forward
    core = work.attention_time / (leaf.attention_share * leaf.attention_speed)
    core += work.scores_time / speed + work.softmax_time / leaf.vector_share
    sorting = work.sorted_bytes / (W * eta_W)
    vector = (work.vector_time - sorting) / leaf.vector_share + sorting / leaf.sort_share
    same = all_passes(
        "even", "s", "time of operations, were backward products as long as forward ones,", (products, core, vector)
    )
    busy = graph.let(
        f"work_{label}_step", "s", f"time of operations of {label} for a micro-batch", same + back.over + back.convert
    )
    rest = work.flops - work.matmul_flops - work.attention_flops
    flops = all_passes("flop", "FLOP", "executed work", (work.matmul_flops, work.attention_flops, rest))
    again = redone(speed, ups, last)
    busy = graph.let(
        f"busy_{label}_step", "s", f"time of operations of {label}, with what is done again and beside",
        busy + again.seconds + more, source=EARLY,
    )  # fmt: skip
    flops = flops + again.flops
    bound = graph.let(
        f"compute_{label}_step",
        "s",
        f"part of the time of {label} at the compute rate",
        busy * work.compute_time / work.time,
    )
    by_resource = {
        "compute": bound,
        "memory": busy - bound,
        "tensor": exchange.tensor,
        "context": exchange.context,
        "expert": exchange.expert,
        "launch": _launch_wait(graph, label, launch, busy),
    }
    whole = graph.let(
        f"whole_{label}", "s", f"time of {label} for a micro-batch", sp.Add(busy, *list(by_resource.values())[2:])
    )
    return Parts(whole, products + back.weights, by_resource, flops, passes.matmul * work.bytes)


def _launch_wait(graph: Graph, label: str, launch: sp.Expr, busy: sp.Expr) -> sp.Symbol:
    """Define the time [s] that a part waits for launches that take `launch` while its kernels run for `busy`.

    Long kernels hide the launch of the next, short ones do not: between the larger of the two and their sum.
    """
    both = sp.sqrt(sp.sqrt(launch**4 + busy**4))
    return graph.let(f"launch_{label}", "s", f"time that {label} waits for launches", both - busy, source=LAUNCHES)


def _stages(
    graph: Graph, arch: Architecture, each: list[Parts], last: Parts, exchange: sp.Expr
) -> tuple[sp.Symbol, sp.Symbol]:
    """Define the time of the slowest stage and of all stages for one micro-batch [s], with the hand-over `exchange`.

    Inner stages hold the most layers; first and last share what is left, and the last computes the head.
    """
    inner, outer = stage_layers(graph)
    mean = graph.let(
        "layer_time", "s", "mean time of a layer of a stage for a micro-batch",
        stage_mean(arch, leaf.pp, [one.whole for one in each]),
    )  # fmt: skip
    slowest = graph.let(
        "stage_time", "s", "time of the slowest stage for a micro-batch",
        maximum(inner * mean, outer * mean + last.whole) + exchange, source=PIPES,
    )  # fmt: skip
    counts = [arch_leaf(f"layers.{i}.count") for i in range(len(each))]
    everything = sp.Add(*(count * one.whole for count, one in zip(counts, each, strict=True)), last.whole)
    total = graph.let("stages_time", "s", "time of all stages for a micro-batch", everything + leaf.pp * exchange)
    return slowest, total


def stage_layers(graph: Graph) -> tuple[sp.Symbol, sp.Symbol]:
    """Define the layers of an inner pipeline rank and of each of the two outer ones (mean); return both."""
    places = leaf.pp * leaf.virtual
    inner = graph.let(
        "layers_inner", "1", "layers of an inner pipeline rank", leaf.virtual * sp.ceiling(leaf.layers / places)
    )
    outer = graph.let(
        "layers_outer", "1", "layers of the first and of the last pipeline rank",
        maximum(0, (leaf.layers - (leaf.pp - 2) * inner) / 2),
    )  # fmt: skip
    return inner, outer


def _pipeline(graph: Graph, each: list[Parts], stage: sp.Symbol, total: sp.Symbol, m: sp.Expr) -> sp.Symbol:
    """Define the pipeline part of a step: the slowest stage works on every micro-batch; filling and draining are the bubble."""
    inner, _ = stage_layers(graph)
    counts = [arch_leaf(f"layers.{i}.count") for i in range(len(each))]
    gradient = inner * sp.Add(*(k * one.weight_gradient for k, one in zip(counts, each, strict=True))) / leaf.layers
    W_ = graph.let("weight_gradient_time", "s", "time of weight gradients of a stage for a micro-batch", gradient)
    plain = graph.let(
        "bubble_1f1b",
        "s",
        "idle time of 1F1B, divided by the virtual stages",
        (total - stage) / leaf.virtual,
        source=PIPES,
    )
    zb = graph.let(
        "bubble_zero", "s", "idle time of the zero-bubble schedule (p-1)(F+B-2W), B without W",
        (leaf.pp - 1) * maximum(0, stage - 3 * W_), source=ZERO_BUBBLE,
    )  # fmt: skip
    # F&B is a whole micro-batch; B with W is what is left of it after the forward pass, about a third
    dual = graph.let(
        "bubble_dual", "s", "idle time of DualPipe (p/2-1)(F&B+B-3W), B with W",
        maximum(0, leaf.pp / 2 - 1) * maximum(0, stage + 2 * stage / 3 - 3 * W_), source=DUALPIPE,
        assumes=("the forward pass is a third of a micro-batch",),
    )  # fmt: skip
    usual = (1 - leaf.zero_bubble - leaf.dualpipe) * plain
    bubble = graph.let(
        "bubble", "s", "idle time of the pipeline in a step", usual + leaf.zero_bubble * zb + leaf.dualpipe * dual
    )
    return graph.let("pipeline_time", "s", "pipeline part of a step", m * stage + bubble, source=PIPES)


def _states_part(
    graph: Graph, arch: Architecture, states: StateElements, stage: sp.Symbol, m: sp.Expr, recipe: Recipe
) -> tuple[sp.Symbol, sp.Symbol, sp.Symbol]:
    """Define exposed data-parallel exchange, optimiser sweep and traffic to the host of a step [s]."""
    dense = Shared(states.dense_trained, states.dense_trained * leaf.bytes_weights, states.dense * recipe.layer_bytes)
    expert = None
    if states.expert != ZERO:
        routed = states.expert * recipe.expert_bytes
        expert = Shared(states.expert_trained, recipe.full * routed, routed)
    _, exposed = data_exchange(graph, dense, expert, stage, m)
    kept = states.dense_optimizer + states.expert_optimizer
    written = states.dense_optimizer * leaf.bytes_weights
    streamed = weight_bytes(states, recipe)
    if states.expert != ZERO:
        written += states.expert_optimizer * leaf.bytes_experts
    swept = kept * (2 * leaf.bytes_optimizer + leaf.bytes_gradients) + written
    on_device = (1 - leaf.offload_optimizer) * swept / (W * eta_W)
    optimizer = graph.let(
        "optimizer_time", "s", "sweep of the optimiser over its states, and Muon's products",
        on_device + leaf.muon * kept * orthogonal_flops(graph, arch) / (peak_16bit * eta_F),
        assumes=("memory-bound but for Muon: arithmetic of the optimiser itself is hidden",),
    )  # fmt: skip
    on_host = leaf.offload_optimizer * swept / leaf.host_sweep
    updated = leaf.offload_optimizer * (kept * leaf.bytes_gradients + written)
    streamed = leaf.offload_parameters * 2 * m * streamed
    saved = leaf.offload_activations * 2 * m * states.saved_activations
    hidden = (
        leaf.overlap_offload
        * m
        * stage
        * (leaf.offload_parameters + leaf.offload_activations - leaf.offload_parameters * leaf.offload_activations)
    )
    host = graph.let(
        "host_time", "s", "exposed traffic to host memory in a step, and the optimiser's sweep there",
        on_host + updated / leaf.host_link + maximum(0, (streamed + saved) / leaf.host_link - hidden),
    )  # fmt: skip
    return exposed, optimizer, host


def _shares(
    graph: Graph, parts: list[tuple[sp.Expr, Parts]], per_rank: sp.Expr, pipeline: sp.Symbol
) -> dict[str, sp.Symbol]:
    """Split the pipeline part by resource, as the mean over ranks; what is left is idle time and hand-over: pipeline."""
    shares = {}
    for resource in parts[0][1].by_resource:
        terms = [k * one.by_resource[resource] for k, one in parts]
        shares[resource] = graph.let(
            f"share_{resource}", "s", f"{resource} part of a step, mean over ranks", sp.Add(*terms) * per_rank
        )
    rest = maximum(0, pipeline - sp.Add(*shares.values()))
    shares["pipeline"] = graph.let("share_pipeline", "s", "idle time, uneven stages and hand-over of a step", rest)
    return shares


def _model_flops(graph: Graph, arch: Architecture, keys: sp.Expr) -> sp.Symbol:
    """Define the counted forward work of a step: 2·(matrix elements, active) a token and causal attention, no recompute."""
    terms = [FLOP_PER_MAC * arch_leaf("matmul_parameters_active")]
    shape = shape_of(ONE, keys)
    for i, kind in enumerate(arch.layers):
        mixer, at, count = kind.mixer, f"layers.{i}.mixer", arch_leaf(f"layers.{i}.count")
        if mixer.heads * (mixer.d_qk + mixer.d_v):
            width = arch_leaf(f"{at}.heads") * (arch_leaf(f"{at}.d_qk") + arch_leaf(f"{at}.d_v"))
            terms.append(FLOP_PER_MAC * count * width * keys_seen(mixer, at, shape))
        if mixer.scan_flops:
            terms.append(count * arch_leaf(f"{at}.scan_flops", "FLOP"))
        if mixer.indexer:
            width = arch_leaf(f"{at}.indexer.heads") * arch_leaf(f"{at}.indexer.head_dim")
            terms.append(FLOP_PER_MAC * count * width * shape.keys / arch_leaf(f"{at}.compression"))
    a_token = graph.let("token_flops", "FLOP", "counted forward work a token", sp.Add(*terms))
    return graph.let(
        "step_forward_flops", "FLOP", "counted forward work of a step", a_token * leaf.global_batch * leaf.sequence
    )
