"""Memory of the fullest rank of a serving replica: weights, activations of the profiling run, reserve, KV."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture, LayerKind, Matrix, Mixer
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.operations_attention import kv_shard
from tokenmill_models.operations_parts import Part, arch_leaf, shard_inputs, shard_outputs
from tokenmill_models.roofline import M
from tokenmill_models.speculation import draft_cache, draft_weights
from tokenmill_models.symbols import constant

PAGED = Source("Kwon et al. 2023, PagedAttention, arXiv:2309.06180, section 3 and 4.5")
PROFILE = Source(
    "vLLM, memory profiling: a forward pass of the largest token budget before the KV cache is laid out",
    ("the widest moment holds the residual, the normed input, and the widest pair of products",),
)
ZERO = sp.Integer(0)
EXPERT_TOKENS = constant(
    "expert_tokens",
    32768.0,
    "1",
    "most tokens that grouped products of experts take at once: VLLM_FUSED_MOE_CHUNK_SIZE (recalled)",
)


@dataclass(frozen=True)
class Memory:
    """Bytes of the fullest rank [B] and what follows: `room` for KV, that of a sequence and of a `token`, `kv_tokens`, `max_batch` of a replica [1]."""

    weights: sp.Symbol
    activations: sp.Symbol
    reserve: sp.Symbol
    room: sp.Symbol
    total: sp.Symbol
    allocated: sp.Symbol
    sequence: sp.Symbol
    token: sp.Symbol
    kv_tokens: sp.Symbol
    max_batch: sp.Symbol


def define_memory(graph: Graph, arch: Architecture, tokens: sp.Expr, context: sp.Expr) -> Memory:
    """Define the memory of a replica whose steps carry up to `tokens` tokens and whose sequences hold `context` tokens."""
    weights = _weights(graph, arch)
    activations = _activations(graph, arch, tokens)
    reserve = graph.let(
        "memory_reserve",
        "B",
        "memory inside the engine's fraction that is no tensor: context, communicators",
        leaf.reserve,
    )
    left = maximum(0, M * leaf.memory_fraction - weights - activations - reserve)
    asked = leaf.held_kv / leaf.ranks_a_chip
    room = graph.let(
        "kv_room", "B", "memory left for KV on the fullest rank, or what the file holds",
        sp.Piecewise((asked, asked > 0), (left, True)), source=PAGED,
    )  # fmt: skip
    cached = graph.let(
        "kv_cached", "1", "tokens that the cache of a running sequence takes: pages it has begun, or what it reserves",
        sp.Piecewise((leaf.reserved_tokens, leaf.reserved_tokens > 0), (context + leaf.block / 2, True)), source=PAGED,
    )  # fmt: skip
    sequence = graph.let(
        "kv_sequence", "B", "cache of a mean running sequence on a rank",
        sequence_bytes(arch, cached, leaf.tp, leaf.pp) + draft_cache(cached), source=PAGED,
    )  # fmt: skip
    token = graph.let("kv_token", "B", "KV bytes a token of a sequence on a rank", sequence / cached)
    return Memory(
        weights=weights, activations=activations, reserve=reserve, room=room, sequence=sequence, token=token,
        total=graph.let("memory_total", "B", "memory of the fullest rank", weights + activations + reserve + room + leaf.outside),
        allocated=graph.let("memory_allocated", "B", "memory of tensors", weights + activations + room),
        kv_tokens=graph.let(
            "kv_tokens", "1", "tokens whose KV a replica holds", leaf.attention_dp * room / token, rounding="floor", source=PAGED
        ),
        max_batch=graph.let(
            "max_batch", "1", "most sequences whose KV a replica holds at the mean context",
            leaf.attention_dp * sp.floor(room / sequence), source=PAGED,
            assumes=("all sequences hold the mean context", "half a block a sequence is unused"),
        ),
    )  # fmt: skip


def sequence_bytes(arch: Architecture, context: sp.Expr, t: sp.Expr, p: sp.Expr) -> sp.Expr:
    """KV and state bytes [B] of one sequence of `context` tokens on one of `t` tensor ranks of one of `p` stages."""
    terms = [
        arch_leaf(f"layers.{i}.count") * _layer_cache(kind.mixer, f"layers.{i}.mixer", context, t)
        for i, kind in enumerate(arch.layers)
    ]
    total = arch_leaf("layer_count")
    return sp.Add(*terms) * sp.ceiling(total / p) / total


def _layer_cache(mixer: Mixer, at: str, context: sp.Expr, t: sp.Expr) -> sp.Expr:
    held = minimum(context, arch_leaf(f"{at}.window")) if mixer.window is not None else context
    compressed = held / arch_leaf(f"{at}.compression") if mixer.compression > 1 else held
    total = compressed * kv_shard(mixer, at, t) * leaf.bytes_kv
    if mixer.state_elements:
        # The window of a compressed cache is a latent, whole on every rank; scan states split with their heads.
        ranks = sp.Integer(1) if mixer.compression > 1 else t
        total += arch_leaf(f"{at}.state_elements") * leaf.bytes_16 / ranks
    if mixer.indexer:
        keys = arch_leaf(f"{at}.indexer.key_elements") * leaf.bytes_8
        total += context / arch_leaf(f"{at}.compression") * keys
    return total


def _weights(graph: Graph, arch: Architecture) -> sp.Symbol:
    """Define the weights of the fullest rank: its stage's layers, and the embedding or the head where a stage holds both apart."""
    total = arch_leaf("layer_count")
    layers = sp.Add(
        *(arch_leaf(f"layers.{i}.count") * _layer_weights(k, f"layers.{i}") for i, k in enumerate(arch.layers))
    )
    ends = maximum(leaf.bytes_16, leaf.bytes_weights) / leaf.tp
    embedding = arch_leaf("embedding_parameters") * ends
    projection = arch_leaf("head.parameters") * ends if arch.head is not None else ZERO
    together = embedding if arch.tied else embedding + projection
    apart = maximum(embedding, projection) if arch.head is not None else embedding
    outside = sp.Piecewise((together, leaf.pp <= 1), (apart, True))
    rest = arch_leaf("other_parameters") + arch_leaf("lookup_parameters") + arch_leaf("parameters.towers")
    return graph.let(
        "memory_weights", "B", "weights on the fullest rank",
        layers * sp.ceiling(total / leaf.pp) / total + outside + rest * leaf.bytes_16 + draft_weights(),
        assumes=("every stage holds the mean layer", "embedding, head, norms and routers stay in 16 bits or wider"),
    )  # fmt: skip


def _layer_weights(kind: LayerKind, path: str) -> sp.Expr:
    quantised = [(m, f"{path}.mixer.matrices.{m.name}") for m in kind.mixer.matrices]
    quantised += [(m, f"{path}.mlp.matrices.{m.name}") for m in kind.mlp.matrices]
    total = sp.Add(*(_shard(m, at, leaf.tp) for m, at in quantised)) * leaf.bytes_weights
    if kind.mlp.expert:
        one = sp.Add(*(_padded(Part(m, f"{path}.mlp.expert.{m.name}"), leaf.expert_tp) for m in kind.mlp.expert))
        total += sp.ceiling(arch_leaf(f"{path}.mlp.experts") / leaf.ep) * one * leaf.bytes_experts
    whole = [arch_leaf(f"{path}.{at}") for at, count in _whole(kind) if count]
    if kind.mlp.router:
        whole.append(arch_leaf(f"{path}.mlp.router.parameters"))
    return total + sp.Add(*whole) * leaf.bytes_16


def _whole(kind: LayerKind) -> tuple[tuple[str, int], ...]:
    return (
        ("norm_parameters", kind.norm_parameters),
        ("mixer.other_parameters", kind.mixer.other_parameters),
        ("mlp.other_parameters", kind.mlp.other_parameters),
    )


def _shard(matrix: Matrix, at: str, t: sp.Expr) -> sp.Expr:
    parameters = arch_leaf(f"{at}.parameters")
    if matrix.split == "none":
        return parameters
    granules = arch_leaf(f"{at}.granules")
    return parameters * sp.ceiling(granules / t) / granules


def _padded(part: Part, t: sp.Expr) -> sp.Expr:
    """Parameters [1] of a matrix on one of `t` ranks, its sides padded as kernels of the experts' format ask."""
    inner, columns, tile = shard_inputs(part, t), shard_outputs(part, t), leaf.expert_tile
    sides = sp.ceiling(inner / tile) * sp.ceiling(2 * columns / tile) * tile**2 / 2
    return _shard(part.matrix, part.path, t) * sides / (inner * columns)


def _activations(graph: Graph, arch: Architecture, tokens: sp.Expr) -> sp.Symbol:
    widths = [_widest(kind, f"layers.{i}", tokens) for i, kind in enumerate(arch.layers)]
    hidden = arch_leaf("hidden")
    pair = maximum(*widths) if len(widths) > 1 else widths[0]
    rows = (tokens * 2 * hidden + pair) * leaf.bytes_16
    logits = leaf.logit_rows * arch_leaf("vocabulary") * leaf.logit_width
    return graph.let(
        "memory_activations", "B", "activation peak of the profiling run", maximum(rows, logits) if arch.head else rows,
        source=PROFILE, assumes=("attention does not write its scores",),
    )  # fmt: skip


def _widest(kind: LayerKind, path: str, tokens: sp.Expr) -> sp.Expr:
    """Elements of the widest pair of tensors that a layer holds at once for `tokens`: products and what is made of them."""
    sides = []
    parts = [Part(m, f"{path}.mixer.matrices.{m.name}") for m in kind.mixer.matrices if m.split == "column"]
    if parts:
        sides.append(2 * tokens * sp.Add(*(shard_outputs(part, leaf.tp) for part in parts)))
    dense = [Part(m, f"{path}.mlp.matrices.{m.name}") for m in kind.mlp.matrices if m.split == "column"]
    if dense:
        sides.append(sp.Rational(3, 2) * tokens * sp.Add(*(shard_outputs(part, leaf.tp) for part in dense)))
    if any(m.split == "column" for m in kind.mlp.expert):
        sides.append(_routed(kind, path, tokens))
    if not sides:
        return ZERO
    return maximum(*sides) if len(sides) > 1 else sides[0]


def _routed(kind: LayerKind, path: str, tokens: sp.Expr) -> sp.Expr:
    """Elements that a routed layer holds at once: the grouped products of a share of the tokens, and the tokens of all attention groups.

    Every rank lays out all chosen pairs of the tokens that it is given, whichever of their experts it has.
    """
    routed = [Part(m, f"{path}.mlp.expert.{m.name}") for m in kind.mlp.expert if m.split == "column"]
    width = sp.Add(*(shard_outputs(part, leaf.expert_tp) for part in routed))
    given, hidden = tokens * leaf.attention_dp, arch_leaf("hidden")
    pairs = minimum(given, EXPERT_TOKENS) * arch_leaf(f"{path}.mlp.active")
    gathered = sp.Piecewise((2 * given * hidden, leaf.attention_dp > 1), (0, True))
    return pairs * (maximum(width, hidden) + width / 2) + gathered
