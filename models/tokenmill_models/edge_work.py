"""One pass of one conversation on a device: every operation on the roofline of the device, layers one after another.

Engines of devices run one kernel at a time; what kernels cost beside their traffic is one time a layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import sympy as sp

from tokenmill_models import edge_leaves as own
from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.operations import LayerWork, Operation, Shape, arch_leaf, head, layer
from tokenmill_models.roofline import ROOFLINE, F, W
from tokenmill_models.symbols import constant

CACHE = Source(
    "llama.cpp: layers are split whole over devices, prompts pass them in chunks, each device on another chunk",
    ("inputs of four chunks are kept at once (GGML_SCHED_MAX_COPIES): more devices than that wait for one another",),
)
STARTS = Source(
    "llama.cpp starts the operations of a layer one after another, a kernel each",
    (
        "a plain layer: two norms, two residuals, four products of attention and their inputs rounded, rotations, writes of the cache, "
        "attention, a gated MLP",
        "a round over a mixing matrix (Xie et al. 2025, arXiv:2512.24880): sums and divisions along its rows, then along its columns, "
        "around attention and around the MLP",
    ),
)
HEAD_BYTES = constant(
    "b_head_file",
    6.5625 / 8,
    "B",
    "least bytes a weight of an output head in a quantised GGUF file: q6_k, 210 B for 256 values",
)
COPIES = constant("chunks_in_flight", 4.0, "1", "chunks of a prompt whose inputs are kept at once")
PLAIN_KERNELS = constant("kernels_plain", 25.0, "1", "kernels that a plain layer starts")
ROUND_KERNELS = constant("kernels_round", 8.0, "1", "kernels that a round over the mixing matrices of a layer starts")
OFFLOAD = Source(
    "llama.cpp: layers that the card has no room for stay with the host, whose processor computes a single token there",
    ("the chunks of a prompt go to the card instead, with the weights streamed over its link each time",),
)


@dataclass(frozen=True)
class Speed:
    """What the power that a device can shed leaves: share of the clock of compute, share of the power above idle [1]."""

    compute: sp.Symbol
    power: sp.Symbol


@dataclass(frozen=True)
class Work:
    """A pass: `time` [s], `compute`, `memory`, `launch` [s] that sum to it, `flops` [FLOP] and `bytes` [B] over all devices."""

    time: sp.Symbol
    compute: sp.Symbol
    memory: sp.Symbol
    launch: sp.Symbol
    flops: sp.Symbol
    bytes: sp.Symbol


def expert_bytes() -> sp.Expr:
    """Bytes a weight of the routed experts: the mean of a file that counts them, else their own."""
    return own.experts_counted * leaf.bytes_weights + (1 - own.experts_counted) * leaf.bytes_experts


def head_bytes() -> sp.Expr:
    """Bytes a weight of the output head, or of an embedding that serves as it: at least q6_k in a GGUF file, else 16 bits or wider."""
    least = own.whole_file * HEAD_BYTES + (1 - own.whole_file) * leaf.bytes_16
    return maximum(least, leaf.bytes_weights)


def embedding_bytes() -> sp.Expr:
    """Bytes a weight of an input embedding beside a head: as the file's mean where it counts them, else 16 bits or wider."""
    return own.whole_file * leaf.bytes_weights + (1 - own.whole_file) * maximum(leaf.bytes_16, leaf.bytes_weights)


def shape(tokens: sp.Expr, keys: sp.Expr, causal: bool) -> Shape:
    """Return the load of `tokens` tokens of one sequence whose queries see `keys` keys on average."""
    return Shape(
        tokens=tokens, sequences=sp.Integer(1), keys=keys, weight_bytes=leaf.bytes_weights, expert_bytes=expert_bytes(),
        activation_bytes=leaf.bytes_16, kv_bytes=leaf.bytes_kv, causal=causal, absorbed=not causal,
        flash=own.flash if causal else sp.Integer(1), scores_apart=False,
    )  # fmt: skip


def define_decode(graph: Graph, arch: Architecture, keys: sp.Expr, speed: Speed) -> Work:
    """Define the step that writes one token after `keys` cached ones."""
    found = _works(graph, "token", arch, shape(sp.Integer(1), keys, causal=False))
    hosted = own.host_layers / arch_leaf("layer_count")
    weights = sp.Add(*(count * _weights(work) for count, work in found[:-1]))
    host = graph.let("host_token", "s", "time of a token in the layers that the host holds",
                     hosted * weights / own.host_bandwidth, source=OFFLOAD)  # fmt: skip
    hops = (leaf.pp - 1) * own.hop_seconds
    return _timed(graph, "token", arch, found, sp.Integer(1), hosted, host, hops, speed)


def define_prompt(graph: Graph, arch: Architecture, keys: sp.Expr, speed: Speed) -> Work:
    """Define the passes of a whole prompt, chunk by chunk; several devices work on different chunks at once."""
    chunks = graph.let("chunks", "1", "passes of the prompt", sp.ceiling(own.prompt / own.chunk))
    found = _works(graph, "prompt", arch, shape(own.prompt, keys, causal=True))
    hosted = own.host_layers / arch_leaf("layer_count")
    streamed = sp.Add(*(count * _weights(work) for count, work in found[:-1]))
    # no layer on the host, no transfer: the link may be absent then
    link = sp.Piecewise((chunks * hosted * streamed / own.host_link, own.host_layers > 0), (0, True))
    host = graph.let(
        "host_prompt", "s", "time to bring the host's layers to the card for every chunk", link, source=OFFLOAD
    )
    one = _timed(graph, "prompt", arch, found, chunks, sp.Integer(0), host, sp.Integer(0), speed, ahead=True)
    depth = minimum(leaf.pp, COPIES)
    spread = graph.let("spread", "1", "share of the time of one device that several, each on another chunk, take",
                       (chunks + depth - 1) / (chunks * depth), source=CACHE)  # fmt: skip
    time = graph.let("T_prompt_all", "s", "time of the prompt", one.time * spread + (leaf.pp - 1) * own.hop_seconds)
    return replace(one, time=time)


def _works(graph: Graph, label: str, arch: Architecture, load: Shape) -> list[tuple[sp.Expr, LayerWork]]:
    """Return (count, work) of every kind of layer, the head with one row last."""
    found: list[tuple[sp.Expr, LayerWork]] = [
        (arch_leaf(f"layers.{i}.count"), layer(graph, f"{label}_{i}", kind, f"layers.{i}", load))
        for i, kind in enumerate(arch.layers)
    ]
    last = replace(load, tokens=sp.Integer(1), weight_bytes=head_bytes())
    return [*found, (sp.Integer(1), head(graph, f"{label}_head", arch, last))]


def _weights(work: LayerWork) -> sp.Expr:
    return sp.Add(*(one.weights for one in work.operations.values()))


def _plain_layers(arch: Architecture) -> sp.Expr:
    """Return the plain layers that would start as many kernels as the layers do."""
    mixed = [i for i, kind in enumerate(arch.layers) if kind.mixing_rounds]
    rounds = [arch_leaf(f"layers.{i}.count") * arch_leaf(f"layers.{i}.mixing_rounds") for i in mixed]
    return arch_leaf("layer_count") + sp.Add(*rounds) * ROUND_KERNELS / PLAIN_KERNELS


def _timed(
    graph: Graph, label: str, arch: Architecture, found: list[tuple[sp.Expr, LayerWork]], passes: sp.Expr, hosted: sp.Expr,
    host: sp.Expr, hops: sp.Expr, speed: Speed, ahead: bool = False,
) -> Work:  # fmt: skip
    """Define the time of a pass: operations on the roofline, a time a layer beside them, what the host does, hand-overs.

    `ahead`: kernels are long enough to be started while others run, so starts count only as far as they outlast the work.
    """
    operations = list(_operations(graph, label, found, passes, speed))
    here = 1 - hosted
    started = graph.let(
        f"layers_{label}", "1", f"plain layers that start the kernels of {label}", _plain_layers(arch), source=STARTS
    )
    work = here * sp.Add(*(count * time for count, _, time in operations))
    bound = here * sp.Add(
        *(
            count * sp.Piecewise((time, compute >= time), (0, True), evaluate=False)
            for count, compute, time in operations
        )
    )
    compute = graph.let(f"compute_{label}", "s", f"time of {label} in operations that compute holds up", bound)
    memory = graph.let(
        f"memory_{label}", "s", f"time of {label} in operations that memory holds up", work - compute + host
    )
    eager = leaf.graph_launch * leaf.layer_seconds_graph + (1 - leaf.graph_launch) * leaf.layer_seconds_eager
    step = leaf.graph_launch * leaf.step_seconds_graph + (1 - leaf.graph_launch) * leaf.step_seconds_eager
    starts = passes * (started * here * maximum(own.layer_seconds, eager) + step)
    launch = graph.let(f"launch_{label}", "s", f"time of {label} beside any work: a layer's starts, the engine's step",
                       (maximum(0, starts - work) if ahead else starts) + hops)  # fmt: skip
    return Work(
        graph.let(f"T_{label}", "s", f"time of {label}", compute + memory + launch), compute, memory, launch,
        graph.let(f"flop_{label}", "FLOP", f"work of {label}", sp.Add(*(n * w.flops for n, w in found))),
        graph.let(f"moved_{label}", "B", f"memory traffic of {label}",
                  sp.Add(*(n * (w.bytes + (passes - 1) * _weights(w)) for n, w in found))),
    )  # fmt: skip


def _operations(
    graph: Graph, label: str, found: list[tuple[sp.Expr, LayerWork]], passes: sp.Expr, speed: Speed
) -> Iterator[tuple[sp.Expr, sp.Symbol, sp.Symbol]]:
    """Yield (count, compute time, time) [s] of every operation; weights are read once a chunk."""
    for count, work in found:
        for one in work.operations.values():
            compute = graph.let(f"C_device_{one.name}", "s", f"compute time of {one.name} on the device",
                                one.flops / (F * own.compute_share * speed.compute), source=ROOFLINE)  # fmt: skip
            share = _share(one)
            wire = W * share * minimum(1, speed.power / minimum(1, own.memory_power * share))
            moved = one.bytes + (passes - 1) * one.weights
            time = graph.let(f"T_device_{one.name}", "s", f"time of {one.name} on the device",
                             maximum(compute, moved / wire), source=ROOFLINE)  # fmt: skip
            yield count, compute, time


def _share(one: Operation) -> sp.Expr:
    streamed = own.flash * own.flash_share + (1 - own.flash) * own.cache_share
    return streamed if one.kind == "attention" else own.bandwidth_share
