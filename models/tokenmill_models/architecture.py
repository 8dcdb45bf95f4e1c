"""The shape of an AI model: its matrices layer by layer, and what follows by counting them.

Counts are numbers of elements; bytes follow from a precision. Nothing here reads a file: `tokenmill.imports.architecture`
builds an `Architecture` from a configuration, and the stage models bind its numbers as ``arch.*``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil


@dataclass(frozen=True)
class Matrix:
    """One weight matrix that each token visiting the block is multiplied with.

    `split` says how tensor parallelism cuts it: ``column`` (outputs), ``row`` (inputs) or ``none`` (whole on every rank);
    `granules` in how many equal parts it can be cut (with more ranks than granules it is replicated).
    """

    name: str
    inputs: int
    outputs: int
    split: str = "none"
    granules: int = 1
    bias: int = 0

    @property
    def elements(self) -> int:
        """Elements that are multiplied (inputs x outputs)."""
        return self.inputs * self.outputs

    @property
    def parameters(self) -> int:
        """Elements with the bias."""
        return self.elements + self.bias


@dataclass(frozen=True)
class Indexer:
    """The small scorer of sparse attention: every past key is scored, the best `top_k` are attended to.

    `key_elements` are cached a token a layer beside the KV cache (after `compression`), usually in 8 bits.
    """

    heads: int
    head_dim: int
    top_k: int
    key_elements: int


@dataclass(frozen=True)
class Mixer:
    """The part of a layer that mixes tokens: attention, latent attention (MLA), a linear or state-space scan, or nothing.

    `kv_elements` are cached a token (before replication over tensor ranks; one entry a `compression` tokens), `state_elements` a sequence
    whatever its length, both a layer. `kv_granules` is in how many parts the cache splits over tensor ranks (1 for MLA: whole
    on each). `window` is the most keys a query sees (None: all). `scan_flops` a token of the recurrent form.
    `other_parameters` are norms inside, convolutions, sinks, decays: kept, not multiplied as a matrix. `bidirectional`: every
    query sees the whole text, as in encoders; nothing is cached for later tokens.
    """

    kind: str = "none"
    matrices: tuple[Matrix, ...] = ()
    heads: int = 0
    kv_heads: int = 0
    d_qk: int = 0
    d_v: int = 0
    window: int | None = None
    kv_elements: int = 0
    kv_granules: int = 1
    compression: int = 1
    state_elements: int = 0
    kv_lora_rank: int = 0
    d_rope: int = 0
    d_nope: int = 0
    other_parameters: int = 0
    scan_flops: int = 0
    indexer: Indexer | None = None
    bidirectional: bool = False

    def keys_seen(self, keys: float) -> float:
        """Keys that one query is multiplied with where `keys` precede it (decode)."""
        return self._seen(keys, min(keys, self.window) if self.window is not None else keys)

    def mean_keys(self, sequence: float) -> float:
        """Mean keys a query sees over a causal sequence: s/2, or w·(1-(w-1)/(2s)) for a window w ≤ s."""
        full = sequence / 2
        return self._seen(full, mean_causal_keys(sequence, self.window))

    def _seen(self, keys: float, windowed: float) -> float:
        if self.compression == 1:
            return min(windowed, self.indexer.top_k) if self.indexer else windowed
        compressed = keys / self.compression
        if self.indexer:
            compressed = min(compressed, self.indexer.top_k)
        return compressed + min(keys, self.state_elements / self.d_qk)


@dataclass(frozen=True)
class Mlp:
    """The part of a layer that acts on each token alone: dense, or a router with experts, or nothing.

    `matrices` are those of a dense MLP or of the shared experts (all tokens); `expert` those of one routed expert, of which
    there are `experts` and `active` serve a token. `groups`, `groups_used` bound the nodes a token visits.
    """

    kind: str = "none"
    matrices: tuple[Matrix, ...] = ()
    expert: tuple[Matrix, ...] = ()
    experts: int = 0
    active: int = 0
    router: Matrix | None = None
    other_parameters: int = 0
    groups: int = 1
    groups_used: int = 1


@dataclass(frozen=True)
class LayerKind:
    """All the layers of one make: `count` of them at `positions` (from 0).

    `parallel`: mixer and MLP read the same input and their outputs are summed at once, one all-reduce for both. `mixing_rounds`: rounds
    in which the matrix that mixes several residual streams around mixer and MLP is normalised; 0 with one stream.
    """

    name: str
    count: int
    positions: tuple[int, ...]
    mixer: Mixer
    mlp: Mlp
    norm_parameters: int = 0
    parallel: bool = False
    mixing_rounds: int = 0

    @property
    def tensor_reduces(self) -> int:
        """All-reduces over the tensor group that a forward pass of one such layer needs, routed experts apart."""
        parts = int(self.mixer.kind != "none") + int(bool(self.mlp.matrices))
        return min(parts, 1) if self.parallel else parts

    @property
    def expert_parameters(self) -> int:
        """Parameters of all routed experts of one such layer."""
        return self.mlp.experts * sum(m.parameters for m in self.mlp.expert)

    @property
    def parameters(self) -> int:
        """Parameters of one such layer."""
        return sum(m.parameters for m in self.always_multiplied) + self._unmultiplied + self.expert_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters of one such layer that serve one token."""
        idle = (self.mlp.experts - self.mlp.active) * sum(m.parameters for m in self.mlp.expert)
        return self.parameters - idle

    @property
    def always_multiplied(self) -> tuple[Matrix, ...]:
        """The matrices every token is multiplied with (routed experts left out)."""
        router = (self.mlp.router,) if self.mlp.router else ()
        return self.mixer.matrices + self.mlp.matrices + router

    @property
    def matmul_elements_active(self) -> int:
        """Matrix elements one token is multiplied with in one such layer."""
        expert = sum(m.elements for m in self.mlp.expert)
        return sum(m.elements for m in self.always_multiplied) + self.mlp.active * expert

    @property
    def _unmultiplied(self) -> int:
        return self.mixer.other_parameters + self.mlp.other_parameters + self.norm_parameters


@dataclass(frozen=True)
class Tower:
    """An encoder beside the language model (vision, audio), with its projector.

    `matmul_parameters` multiply each patch; `tokens` is what one full-size image becomes, None where the size is free.
    `merge` patches become one token (None: not known, or its output is no token); `attention`: width of attention times the
    layers that attend to all patches, of which there are `span` at most (None: all of the image).
    """

    name: str
    parameters: int
    matmul_parameters: int = 0
    tokens: int | None = None
    merge: int | None = None
    attention: int = 0
    span: int | None = None


@dataclass(frozen=True)
class Parameters:
    """Parameter counts. `computed` is N_a of the formulas: active for one token, without the looked-up input embedding."""

    total: int
    active: int
    computed: int
    embedding: int
    output_head: int
    experts: int
    towers: int


@dataclass(frozen=True)
class Architecture:
    """The shape of one AI model.

    `embedding_parameters`: the input embedding; `lookup_parameters`: other tables that are looked up (learned positions,
    per-layer embeddings); `other_parameters`: the last norm and what else stands outside the layers. `repeated_parameters`
    are counted in several layers but held once (layers that share a block). Multi-token-prediction modules (`mtp`: name,
    parameters) stand outside every total.
    """

    name: str
    family: str
    hidden: int
    vocabulary: int
    layers: tuple[LayerKind, ...]
    embedding_parameters: int
    head: Matrix | None
    tied: bool
    other_parameters: int = 0
    lookup_parameters: int = 0
    repeated_parameters: int = 0
    mtp: tuple[tuple[str, int], ...] = ()
    towers: tuple[Tower, ...] = ()
    max_positions: int | None = None
    base_precision: str = "bf16"
    weights_precision: str = "bf16"
    experts_precision: str | None = None
    aliases: tuple[str, ...] = ()
    source: str = ""
    evidence: str = "datasheet"
    checked: bool = False
    notes: tuple[str, ...] = ()

    @cached_property
    def layer_count(self) -> int:
        """Number of layers."""
        return sum(kind.count for kind in self.layers)

    @property
    def encoder(self) -> bool:
        """Whether the model only reads: its layers see a whole text at once, and write no tokens."""
        return any(kind.mixer.bidirectional for kind in self.layers)

    @property
    def untied(self) -> int:
        """1 where the head has weights of its own, 0 where it is the embedding or absent."""
        return int(self.head is not None and not self.tied)

    @cached_property
    def layer_sequence(self) -> tuple[LayerKind, ...]:
        """The kind of each layer, in order."""
        by_position = {position: kind for kind in self.layers for position in kind.positions}
        return tuple(by_position[index] for index in range(self.layer_count))

    @cached_property
    def parameters(self) -> Parameters:
        """Exact parameter counts (elements)."""
        head = self.head.parameters if self.head is not None and self.untied else 0
        towers = sum(tower.parameters for tower in self.towers)
        outside = self.embedding_parameters + self.lookup_parameters + head + self.other_parameters + towers
        stored = outside - self.repeated_parameters
        serving = sum(kind.count * kind.active_parameters for kind in self.layers)
        looked_up = self.lookup_parameters + (0 if self.tied else self.embedding_parameters)
        return Parameters(
            total=stored + sum(kind.count * kind.parameters for kind in self.layers),
            active=stored + serving,
            computed=outside + serving - looked_up - towers,
            embedding=self.embedding_parameters,
            output_head=head,
            experts=sum(kind.count * kind.expert_parameters for kind in self.layers),
            towers=towers,
        )

    @cached_property
    def matmul_parameters_active(self) -> int:
        """Matrix elements one token of the language model is multiplied with: head counted, embeddings not."""
        head = self.head.elements if self.head is not None else 0
        return head + sum(kind.count * kind.matmul_elements_active for kind in self.layers)


def mean_causal_keys(sequence: float, window: int | None = None) -> float:
    """Mean number of keys a query sees in causal attention over `sequence` tokens.

    s/2 without a window; w·(1-(w-1)/(2s)) with a window of w ≤ s keys, the query's own among them.
    """
    if window is None or window > sequence:
        return sequence / 2
    return window * (1 - (window - 1) / (2 * sequence))


def _attention_flops(mixer: Mixer, seen: float, keys: float) -> float:
    flops = 2.0 * mixer.heads * (mixer.d_qk + mixer.d_v) * seen + mixer.scan_flops
    if mixer.indexer:
        flops += 2.0 * mixer.indexer.heads * mixer.indexer.head_dim * keys / mixer.compression
    return flops


def forward_flops_per_token(arch: Architecture, keys: float) -> float:
    """FLOPs to pass one token forward with `keys` keys before it (decode; for plain causal prefill give s/2).

    2·(matrix elements, active) + per layer 2·heads·(d_qk + d_v)·(keys seen) + scans. MLA is counted unabsorbed.
    """
    mixing = sum(kind.count * _attention_flops(kind.mixer, kind.mixer.keys_seen(keys), keys) for kind in arch.layers)
    return 2.0 * arch.matmul_parameters_active + mixing


def causal_flops_per_token(arch: Architecture, sequence: float) -> float:
    """Mean FLOPs to pass one token of a causal sequence of `sequence` tokens forward (training, prefill)."""
    mixing = sum(
        kind.count * _attention_flops(kind.mixer, kind.mixer.mean_keys(sequence), sequence / 2) for kind in arch.layers
    )
    return 2.0 * arch.matmul_parameters_active + mixing


def kv_share(granules: int, t: int) -> float:
    """Share of a layer's KV cache on one of `t` tensor ranks: ceil(granules / t) / granules."""
    return ceil(granules / t) / granules


def kv_bytes_per_token(
    arch: Architecture, bytes_per_element: float = 2.0, context: float | None = None, t: int = 1
) -> float:
    """KV-cache bytes a token on one of `t` tensor ranks.

    Without `context` every caching layer counts (no window is full yet); with it, the mean over a sequence of that many
    tokens, windowed layers holding min(context, window). The keys of a sparse-attention indexer are apart
    (`indexer_bytes_per_token`), and so is the fixed state (`state_bytes`).
    """
    total = 0.0
    for kind in arch.layers:
        mixer = kind.mixer
        held = 1.0 if context is None or mixer.window is None else min(1.0, mixer.window / context)
        total += kind.count * mixer.kv_elements / mixer.compression * held * kv_share(mixer.kv_granules, t)
    return total * bytes_per_element


def kv_bytes(arch: Architecture, context: float, bytes_per_element: float = 2.0, t: int = 1) -> float:
    """KV-cache bytes of one sequence of `context` tokens on one of `t` tensor ranks."""
    return context * kv_bytes_per_token(arch, bytes_per_element, context, t) if context else 0.0


def indexer_bytes_per_token(arch: Architecture, bytes_per_element: float = 1.0) -> float:
    """Bytes a token of the indexer's own keys, whole on every tensor rank."""
    return bytes_per_element * sum(
        kind.count * kind.mixer.indexer.key_elements / kind.mixer.compression
        for kind in arch.layers
        if kind.mixer.indexer
    )


def state_bytes(arch: Architecture, bytes_per_element: float = 2.0, t: int = 1) -> float:
    """Fixed bytes a sequence (scan and convolution states, window buffers of compressed caches) on one of `t` ranks.

    Scans split over ranks with their heads; the window of a latent cache (kind ``attention`` with compression) is whole.
    """
    total = 0.0
    for kind in arch.layers:
        ranks = 1 if kind.mixer.compression > 1 else t
        total += kind.count * kind.mixer.state_elements / ranks
    return total * bytes_per_element


def weight_bytes(
    arch: Architecture, bits: Mapping[str, float], weights: str | None = None, experts: str | None = None
) -> float:
    """Bytes of all weights: as published, or with the matrices of the layers in `weights` (routed experts in `experts`).

    `bits` gives bits an element with its scales, by precision. Embeddings, head, router, norms and towers stay in the
    precision of the unquantised model, or take that of `weights` where it is wider.

    Raises
    ------
    KeyError
        For a precision that `bits` does not hold.
    """
    layers = weights or arch.weights_precision
    routed = experts or weights or arch.experts_precision or arch.weights_precision
    rest = max(bits[arch.base_precision], bits[layers]) if weights else bits[arch.base_precision]
    counts = arch.parameters
    linear = sum(kind.count * m.parameters for kind in arch.layers for m in kind.mixer.matrices + kind.mlp.matrices)
    linear -= arch.repeated_parameters
    outside = counts.total - counts.experts - linear
    return (counts.experts * bits[routed] + linear * bits[layers] + outside * rest) / 8
