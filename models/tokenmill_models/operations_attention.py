"""The operations of a mixer that are no products with weights: attention core, recurrent scan, sparse-attention scores."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.architecture import Mixer
from tokenmill_models.formula import Graph, Source, minimum
from tokenmill_models.operations_parts import ONE, ZERO, Operation, Shape, arch_leaf
from tokenmill_models.roofline import FLOP_PER_MAC, Timed, W, eta_W, timed, timed_product
from tokenmill_models.symbols import declare

FLASH = Source("Dao 2023, FlashAttention-2, arXiv:2307.08691: the score matrix stays on the chip")

NO_FLASH = Source(
    "definition",
    (
        "without flash attention one product writes the score matrix and another reads it, over the whole square",
        "between them a softmax reads and writes it; dropout reads the probabilities and writes them anew",
    ),
)
PASSES_OF_PRODUCTS, PASSES_OF_SOFTMAX, PASSES_OF_DROPOUT = 2, 2, 2
"""How often the two products, and kernels between them, pass over a score matrix in memory."""

peak_16bit = declare("F_16", "FLOP/s", "peak dense compute of a device at 16 bits", origin="chip.peak_bf16")
attention_share = declare(
    "eta_A", "1", "share of 16-bit peak that long attention reaches", origin="chip.attention_share", latex=r"\eta_A"
)
softmax_width = declare(
    "d_softmax", "1", "width of a head whose products take as long as the softmax of its scores",
    origin="chip.attention_width",
)  # fmt: skip
cache_share = declare(
    "eta_K", "1", "share of memory bandwidth that long reads of keys and values reach", origin="chip.cache_share",
    latex=r"\eta_K",
)  # fmt: skip
prefill_launch, decode_launch = (
    declare(f"{name}_launch", "s", f"time of the smallest attention of a {name} step", origin=f"chip.{name}_launch")
    for name in ("prefill", "decode")
)
prefill_row, decode_row = (
    declare(f"{name}_row", "s", f"time of attention in {name} for one element of a query and its result, which no part of the cache shares",
            origin=f"chip.{name}_row")
    for name in ("prefill", "decode")
)  # fmt: skip


def mean_causal(sequence: sp.Expr, window: sp.Expr) -> sp.Expr:
    """Mean keys a query sees over a causal sequence with a window: w·(1-(w-1)/(2s)) for w ≤ s, at most s/2."""
    w = minimum(window, sequence)
    return minimum(sequence / 2, w * (1 - (w - 1) / (2 * sequence)))


def keys_seen(mixer: Mixer, at: str, load: Shape) -> sp.Expr:
    """Mean keys that a query of this mixer is multiplied with: limited by window, compression and top-k."""
    keys = load.keys
    if mixer.window is not None:
        window = arch_leaf(f"{at}.window")
        keys = mean_causal(2 * keys, window) if load.causal else minimum(keys, window)
    if mixer.compression == 1:
        return minimum(keys, arch_leaf(f"{at}.indexer.top_k")) if mixer.indexer else keys
    compressed = load.keys / arch_leaf(f"{at}.compression")
    if mixer.indexer:
        compressed = minimum(compressed, arch_leaf(f"{at}.indexer.top_k"))
    if mixer.state_elements:
        compressed += minimum(load.keys, arch_leaf(f"{at}.state_elements") / arch_leaf(f"{at}.d_qk"))
    return compressed


def head_widths(mixer: Mixer, at: str, load: Shape) -> tuple[sp.Expr, sp.Expr]:
    """Widths a head multiplies queries and values with: in the latent space where MLA is absorbed."""
    if mixer.kind == "mla" and load.absorbed:
        rank = arch_leaf(f"{at}.kv_lora_rank")
        return rank + (arch_leaf(f"{at}.d_rope") if mixer.d_rope else ZERO), rank
    return (arch_leaf(f"{at}.d_qk"), arch_leaf(f"{at}.d_v"))


def kv_shard(mixer: Mixer, at: str, t: sp.Expr) -> sp.Expr:
    """Cached elements a token a layer on one of `t` tensor ranks: key/value heads are replicated where t exceeds them."""
    if not mixer.kv_elements:
        return ZERO
    granules = arch_leaf(f"{at}.kv_granules")
    return arch_leaf(f"{at}.kv_elements") / granules * sp.ceiling(granules / t)


def attention_core(graph: Graph, label: str, mixer: Mixer, at: str, load: Shape) -> Operation:
    """Define the attention core of one layer on one rank: queries by keys, softmax, by values.

    Causal kernels skip the masked half; encoders have none, so that their `keys` are the whole text. Where there is no flash attention `score_operations` take its place, or, for engines of
    one kernel, the whole square is computed and passes through memory.
    """
    heads = sp.ceiling(arch_leaf(f"{at}.heads") / load.t)
    width_k, width_v = head_widths(mixer, at, load)
    seen = graph.let(f"keys_{label}", "1", f"keys a query sees in {label}", keys_seen(mixer, at, load))
    runs, executed = (load.flash, seen) if load.scores_apart else (ONE, seen)
    if load.causal and not load.scores_apart:
        executed = load.flash * seen + (1 - load.flash) * 2 * load.keys
    flops = graph.let(
        f"flop_{label}", "FLOP", f"work of {label} on a rank",
        runs * FLOP_PER_MAC * load.tokens * heads * (width_k + width_v) * executed, source=FLASH,
    )  # fmt: skip
    cached = 2 * load.keys if load.causal and not mixer.bidirectional else seen
    cache = load.sequences * cached * kv_shard(mixer, at, load.t) * load.kv_bytes
    rows = load.tokens * heads * (width_k + width_v) * load.activation_bytes
    moved = runs * (cache + rows)
    if not load.scores_apart and load.flash != ONE:
        passes = PASSES_OF_PRODUCTS + PASSES_OF_SOFTMAX
        moved += (1 - load.flash) * passes * load.tokens * heads * executed * load.activation_bytes
    traffic = graph.let(f"moved_{label}", "B", f"traffic of {label}", moved, source=FLASH)
    elements = load.tokens * heads * (width_k + width_v) / 2
    if load.causal:
        elements += cache / load.kv_bytes / 2
    time = timed_attention(graph, label, flops, traffic, elements, (width_k + width_v) / 2, load.causal, runs)
    return Operation(label, "attention", flops, traffic, ZERO, time.compute, time.time)


def score_operations(graph: Graph, label: str, at: str, load: Shape) -> list[Operation]:
    """Define what stands for a causal attention core without flash attention: two products over the whole square of scores,
    and the sweeps between them (all 0 with flash attention).
    """
    heads = sp.ceiling(arch_leaf(f"{at}.heads") / load.t)
    rows, keys = load.tokens * heads, 2 * load.keys
    scores = rows * keys * load.activation_bytes
    found = []
    for part, width, inner, columns in (
        ("scores", arch_leaf(f"{at}.d_qk"), arch_leaf(f"{at}.d_qk"), keys),
        ("mixed", arch_leaf(f"{at}.d_v"), keys, arch_leaf(f"{at}.d_v")),
    ):
        name = f"{label}_{part}"
        flops = graph.let(f"flop_{name}", "FLOP", f"work of {name} on a rank",
                          (1 - load.flash) * FLOP_PER_MAC * rows * width * keys, source=NO_FLASH)  # fmt: skip
        moved = graph.let(f"moved_{name}", "B", f"traffic of {name}",
                          scores + 2 * rows * width * load.activation_bytes, source=NO_FLASH)  # fmt: skip
        one = timed_product(graph, f"{name}_square", rows, inner, columns, moved, load.sequences * heads)
        time = graph.let(f"T_{name}", "s", f"time of {name}", (1 - load.flash) * one.time, source=NO_FLASH)
        found.append(
            Operation(name, "scores", flops, (1 - load.flash) * moved, ZERO, (1 - load.flash) * one.compute, time)
        )
    name = f"{label}_softmax"
    passes = PASSES_OF_SOFTMAX + PASSES_OF_DROPOUT * load.dropout
    swept = graph.let(f"moved_{name}", "B", f"traffic of {name}", (1 - load.flash) * passes * scores, source=NO_FLASH)
    time = graph.let(f"T_{name}", "s", f"time of {name}", swept / (W * eta_W), source=NO_FLASH)
    return [*found, Operation(name, "softmax", ZERO, swept, ZERO, ZERO, time)]


def timed_attention(
    graph: Graph, label: str, flops: sp.Expr, moved: sp.Expr, elements: sp.Expr, width: sp.Expr, causal: bool,
    runs: sp.Expr = ONE,
) -> Timed:  # fmt: skip
    """Define the time of attention with heads of `width` (mean of keys and values) that prepares `elements`: of queries, in prefill of keys too.

    `runs`: 1 where the kernel runs, 0 where others stand for it.
    """
    start, row = (prefill_launch, prefill_row) if causal else (decode_launch, decode_row)
    work = flops * (1 + softmax_width / width)
    return timed(
        graph, label, work, moved, peak=peak_16bit, share=attention_share, bandwidth_share=cache_share,
        fixed=runs * (start + elements * row),
    )  # fmt: skip


def scan(graph: Graph, label: str, mixer: Mixer, at: str, load: Shape) -> Operation:
    """Define the recurrent scan of a linear or state-space mixer: its state is read and written once a sequence."""
    work = arch_leaf(f"{at}.scan_flops", "FLOP") if mixer.scan_flops else ZERO
    flops = graph.let(f"flop_{label}", "FLOP", f"work of {label} on a rank", load.tokens * work / load.t)
    state = arch_leaf(f"{at}.state_elements") if mixer.state_elements else ZERO
    widths = sum((arch_leaf(f"{at}.matrices.{m.name}.outputs") for m in mixer.matrices if m.split == "column"), ZERO)
    elements = (2 * load.sequences * state + load.tokens * widths) / load.t
    traffic = graph.let(f"moved_{label}", "B", f"traffic of {label}", elements * load.activation_bytes)
    time = timed(graph, label, flops, traffic, peak=peak_16bit, share=attention_share)
    return Operation(label, "attention", flops, traffic, ZERO, time.compute, time.time)


def indexer_scores(graph: Graph, label: str, at: str, load: Shape) -> Operation:
    """Define the scoring of every past key by a sparse-attention indexer, whole on every tensor rank."""
    field = f"{at}.indexer"
    seen = load.keys / arch_leaf(f"{at}.compression")
    size = arch_leaf(f"{field}.head_dim")
    flops = graph.let(
        f"flop_{label}", "FLOP", f"work of {label} on a rank",
        FLOP_PER_MAC * load.tokens * arch_leaf(f"{field}.heads") * size * seen,
    )  # fmt: skip
    cached = 2 * seen if load.causal else seen
    moved = load.sequences * cached * arch_leaf(f"{field}.key_elements") * load.kv_bytes
    traffic = graph.let(f"moved_{label}", "B", f"traffic of {label}", moved)
    time = timed(graph, label, flops, traffic, peak=peak_16bit, share=attention_share)
    return Operation(label, "attention", flops, traffic, ZERO, time.compute, time.time)
