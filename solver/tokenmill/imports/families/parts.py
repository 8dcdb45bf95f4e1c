"""The parts that layers are put together from: attention, latent attention, MLPs, experts; and the whole text model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tokenmill.imports.families.config import Config
from tokenmill_models.architecture import Indexer, LayerKind, Matrix, Mixer, Mlp


@dataclass(frozen=True)
class Block:
    """One layer: its mixer, its MLP, the parameters of its norms; `parallel`: both read the same input, and their outputs are summed;
    `mixing_rounds`: of the matrix that mixes residual streams.
    """

    mixer: Mixer
    mlp: Mlp
    norms: int
    parallel: bool = False
    mixing_rounds: int = 0


@dataclass(frozen=True)
class Text:
    """A language model as its family reads it."""

    hidden: int
    vocabulary: int
    blocks: Sequence[Block]
    embedding: int
    head: Matrix | None
    tied: bool
    other: int = 0
    lookup: int = 0
    repeated: int = 0
    mtp: tuple[tuple[str, int], ...] = ()
    max_positions: int | None = None
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Heads:
    """Sizes of an attention layer."""

    hidden: int
    heads: int
    kv_heads: int
    d_qk: int
    d_v: int


def heads_of(c: Config, kv_default: int | None = None, head_dim: int | None = None, *, d_v: int | None = None) -> Heads:
    """Read the heads: absent key/value heads mean as many as query heads (or `kv_default`), absent head size h/heads."""
    hidden = c.hidden
    heads = c.count("num_attention_heads", "n_head", "n_heads", "num_heads")
    kv_heads = c.count("num_key_value_heads", "num_kv_heads", default=kv_default or heads)
    given = c.optional("head_dim", "kv_channels", "attention_head_dim")
    if not given and head_dim is None and hidden % heads:
        raise c.fail("num_attention_heads", heads, f"a divisor of the hidden size {hidden}, or a head_dim")
    if heads % kv_heads:
        raise c.fail("num_key_value_heads", kv_heads, f"a divisor of the {heads} attention heads")
    size = given or head_dim or hidden // heads
    return Heads(hidden, heads, kv_heads, size, d_v or size)


def attention(
    s: Heads,
    *,
    qkv_bias: bool = False,
    out_bias: bool = False,
    window: int | None = None,
    qk_norm: str = "",
    gate: bool = False,
    other: int = 0,
    kv_shared: bool = False,
    value_from_key: bool = False,
) -> Mixer:
    """Multi-head or grouped-query attention.

    `qk_norm`: ``head`` one weight a head dimension, ``flat`` one for every channel of q and k. `gate`: the query
    projection also makes an output gate of equal size. `kv_shared`: keys and values come from an earlier layer.
    """
    q, k, v = s.heads * s.d_qk, s.kv_heads * s.d_qk, s.kv_heads * s.d_v
    matrices = [Matrix("q", s.hidden, q * (2 if gate else 1), "column", s.heads, q * (1 + gate) if qkv_bias else 0)]
    if not kv_shared:
        matrices.append(Matrix("k", s.hidden, k, "column", s.kv_heads, k if qkv_bias else 0))
        if not value_from_key:
            matrices.append(Matrix("v", s.hidden, v, "column", s.kv_heads, v if qkv_bias else 0))
    matrices.append(Matrix("o", s.heads * s.d_v, s.hidden, "row", s.heads, s.hidden if out_bias else 0))
    norm = {"": 0, "head": s.d_qk * (1 if kv_shared else 2), "flat": q + (0 if kv_shared else k)}[qk_norm]
    return Mixer(
        "attention",
        tuple(matrices),
        heads=s.heads,
        kv_heads=s.kv_heads,
        d_qk=s.d_qk,
        d_v=s.d_v,
        window=window,
        kv_elements=0 if kv_shared else k + v,
        kv_granules=s.kv_heads,
        other_parameters=norm + other,
    )


def _latent_matrices(c: Config, bias: bool, gate: bool) -> list[Matrix]:
    h, heads = c.hidden, c.count("num_attention_heads")
    rank, rope = c.count("kv_lora_rank"), c.count("qk_rope_head_dim", least=0)
    nope, d_v = c.count("qk_nope_head_dim"), c.count("v_head_dim")
    q_rank, q = c.optional("q_lora_rank"), heads * (nope + rope)
    if q_rank:
        matrices = [Matrix("q_down", h, q_rank, bias=q_rank * bias), Matrix("q_up", q_rank, q, "column", heads)]
    else:
        matrices = [Matrix("q", h, q, "column", heads)]
    matrices += [
        Matrix("kv_down", h, rank + rope, bias=(rank + rope) * bias),
        Matrix("kv_up", rank, heads * (nope + d_v), "column", heads),
        Matrix("o", heads * d_v, h, "row", heads, h * bias),
    ]
    return [*matrices, Matrix("gate", h, heads * d_v, "column", heads)] if gate else matrices


def latent_attention(c: Config, *, bias: bool = False, indexer: Indexer | None = None, gate: bool = False) -> Mixer:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): q and kv through low ranks, the cache holds the latent."""
    rank, rope = c.count("kv_lora_rank"), c.count("qk_rope_head_dim", least=0)
    nope, q_rank = c.count("qk_nope_head_dim"), c.optional("q_lora_rank") or 0
    matrices, other = _latent_matrices(c, bias, gate), q_rank + rank
    if indexer:
        matrices += [
            Matrix("index_q", q_rank or c.hidden, indexer.heads * indexer.head_dim),
            Matrix("index_k", c.hidden, indexer.head_dim),
            Matrix("index_weights", c.hidden, indexer.heads),
        ]
        other += 2 * indexer.head_dim
    return Mixer(
        "mla",
        tuple(matrices),
        heads=c.count("num_attention_heads"),
        kv_heads=1,
        d_qk=nope + rope,
        d_v=c.count("v_head_dim"),
        kv_elements=rank + rope,
        kv_lora_rank=rank,
        d_rope=rope,
        d_nope=nope,
        other_parameters=other,
        indexer=indexer,
    )


def mlp_matrices(hidden: int, width: int, *, gated: bool = True, bias: bool = False) -> tuple[Matrix, ...]:
    """The matrices of an MLP of `width`: up and down, with a gate or not."""
    rise = Matrix("up", hidden, width, "column", width, width if bias else 0)
    gate = (Matrix("gate", hidden, width, "column", width, width if bias else 0),) if gated else ()
    return (*gate, rise, Matrix("down", width, hidden, "row", width, hidden if bias else 0))


def dense(hidden: int, width: int, *, gated: bool = True, bias: bool = False, other: int = 0) -> Mlp:
    """A dense MLP."""
    return Mlp("dense", mlp_matrices(hidden, width, gated=gated, bias=bias), other_parameters=other)


def moe(
    hidden: int,
    width: int,
    experts: int,
    active: int,
    *,
    shared: int = 0,
    shared_gate: bool = False,
    gated: bool = True,
    bias: bool = False,
    router_bias: bool = False,
    correction: bool = False,
    groups: tuple[int, int] = (1, 1),
    other: int = 0,
) -> Mlp:
    """Routed experts of `width` with shared ones of `shared` in all. `correction`: a load-balance bias an expert."""
    matrices = mlp_matrices(hidden, shared, gated=gated) if shared else ()
    if shared_gate:
        matrices += (Matrix("shared_gate", hidden, 1),)
    return Mlp(
        "moe",
        matrices,
        mlp_matrices(hidden, width, gated=gated, bias=bias),
        experts,
        active,
        Matrix("router", hidden, experts, bias=experts if router_bias else 0),
        other + (experts if correction else 0),
        *groups,
    )


def text_model(
    c: Config,
    blocks: Sequence[Block],
    *,
    tie: bool,
    other: int | None = None,
    head_bias: bool = False,
    lookup: int = 0,
    mtp: tuple[tuple[str, int], ...] = (),
    width: int | None = None,
    notes: tuple[str, ...] = (),
) -> Text:
    """Put embedding, head and what is outside the layers around the blocks.

    `tie` is the library's default for ``tie_word_embeddings``; `other` the final norm (one vector unless given); `width` the
    size of an embedding where it is not the hidden size.
    """
    hidden, vocabulary = c.hidden, c.count("vocab_size", "padded_vocab_size")
    inner = width or hidden
    return Text(
        hidden=hidden,
        vocabulary=vocabulary,
        blocks=blocks,
        embedding=vocabulary * inner,
        head=Matrix("head", inner, vocabulary, "column", vocabulary, vocabulary if head_bias else 0),
        tied=c.flag("tie_word_embeddings", default=tie),
        other=hidden if other is None else other,
        lookup=lookup,
        mtp=mtp,
        max_positions=c.optional("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx"),
        notes=notes,
    )


def layer_kinds(blocks: Iterable[Block]) -> tuple[LayerKind, ...]:
    """Group equal blocks, in order of first appearance."""
    places: dict[Block, list[int]] = {}
    for index, block in enumerate(blocks):
        places.setdefault(block, []).append(index)
    kinds, seen = [], dict[str, int]()
    for block, positions in places.items():
        window = "-window" if block.mixer.window else ""
        base = f"{block.mixer.kind}{window}-{block.mlp.kind}"
        seen[base] = seen.get(base, 0) + 1
        name = base if seen[base] == 1 else f"{base}-{seen[base]}"
        kinds.append(
            LayerKind(
                name,
                len(positions),
                tuple(positions),
                block.mixer,
                block.mlp,
                block.norms,
                block.parallel,
                block.mixing_rounds,
            )
        )
    return tuple(kinds)
