"""What a pass works on, the leaves of an architecture, and the kinds of operation: product, vector sweep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import sympy as sp

from tokenmill_models.architecture import Matrix
from tokenmill_models.formula import Graph
from tokenmill_models.roofline import FLOP_PER_MAC, timed, timed_experts, timed_product
from tokenmill_models.symbols import constant, declare

ZERO, ONE = sp.Integer(0), sp.Integer(1)
LOGIT_BYTES = constant("logit_bytes", 4.0, "B", "bytes of a logit: 32-bit, whatever the precision of the model")


def arch_leaf(path: str, dimension: str = "1") -> sp.Symbol:
    """Return the leaf ``arch.<path>`` of the architecture, named by its path (``layers_0_mixer_heads``)."""
    name = path.replace(".", "_").replace("-", "_")
    return declare(name, dimension, f"{path} of the architecture", origin=f"arch.{path}", sign="positive")


@dataclass(frozen=True)
class Shape:
    """What a pass works on; every field is an expression.

    `tokens`: tokens that one tensor-parallel group handles (already divided over context and attention-data ranks), of
    `sequences` sequences. `keys`: mean keys a query would see with full attention (decode: the context; `causal`: s/2).
    `weight_bytes`, `expert_bytes`, `activation_bytes`, `kv_bytes`: bytes an element. `t`, `e`, `t_e`: tensor degree, expert degree,
    tensor degree of experts. `touched`: routed experts a rank reads (None: expected distinct ones). `absorbed`: MLA
    decodes in the latent space. `flash`: 1 where the score matrix never reaches memory, else 0;
    `dropout`: 1 where probabilities are dropped. `vector_split`: ranks that share
    norms and residuals (sequence parallelism). `expert_load`: fullest expert rank over the mean. `beside`: a second
    load whose tokens share the products (the prefill chunk of a mixed step); only its tokens, sequences, keys,
    causal and absorbed count. `scores_apart`: without flash attention the core is two products and sweeps (frameworks of training), not
    one kernel whose scores pass through memory (engines of devices). `grouped`: experts run in kernels that serving engines tune for few rows an expert.
    """

    tokens: sp.Expr
    sequences: sp.Expr
    keys: sp.Expr
    weight_bytes: sp.Expr
    expert_bytes: sp.Expr
    activation_bytes: sp.Expr
    kv_bytes: sp.Expr
    t: sp.Expr = ONE
    e: sp.Expr = ONE
    t_e: sp.Expr = ONE
    touched: sp.Expr | None = None
    absorbed: bool = False
    flash: sp.Expr = ONE
    dropout: sp.Expr = ZERO
    causal: bool = False
    vector_split: sp.Expr = ONE
    expert_load: sp.Expr = ONE
    beside: Shape | None = None
    grouped: bool = False
    scores_apart: bool = True

    @property
    def all_tokens(self) -> sp.Expr:
        """Tokens that the products see: those of this load and of the one beside it."""
        return self.tokens + self.beside.tokens if self.beside else self.tokens


@dataclass(frozen=True)
class Sides:
    """Sides of a product on a rank: `rows` x `inner` by `inner` x `columns` [1 each], `copies` of it that share the rows; bytes an element."""

    rows: sp.Expr
    inner: sp.Expr
    columns: sp.Expr
    copies: sp.Expr
    weight_bytes: sp.Expr
    activation_bytes: sp.Expr


@dataclass(frozen=True)
class Operation:
    """One operation: its kind (matmul, expert, head, attention, vector), work [FLOP], traffic and weights read [B], times [s].

    `convert`: the part of `time` that converts the input to a narrower format; `sides`: of a product with weights.
    """

    name: str
    kind: str
    flops: sp.Expr
    bytes: sp.Expr
    weights: sp.Expr
    compute: sp.Expr
    time: sp.Symbol
    convert: sp.Expr = ZERO
    sides: Sides | None = None


@dataclass(frozen=True)
class Part:
    """A matrix with the path of its leaves below ``arch.``."""

    matrix: Matrix
    path: str

    def leaf(self, field: str) -> sp.Symbol:
        """Return the leaf of one of its sizes."""
        return arch_leaf(f"{self.path}.{field}")


def joined(parts: Iterable[Part]) -> str:
    """Name of a fused product: the names of its matrices (``q_k_v``)."""
    return "_".join(part.matrix.name for part in parts)


def _share(part: Part, t: sp.Expr) -> sp.Expr:
    """Share of a split matrix on the fullest tensor rank: ceil(granules/t)/granules."""
    granules = part.leaf("granules")
    return sp.ceiling(granules / t) / granules


def shard_outputs(part: Part, t: sp.Expr) -> sp.Expr:
    """Outputs of a matrix on one of `t` tensor ranks."""
    outputs = part.leaf("outputs")
    return outputs * _share(part, t) if part.matrix.split == "column" else outputs


def shard_inputs(part: Part, t: sp.Expr) -> sp.Expr:
    """Inputs of a matrix on one of `t` tensor ranks."""
    inputs = part.leaf("inputs")
    return inputs * _share(part, t) if part.matrix.split == "row" else inputs


def product(
    graph: Graph, label: str, kind: str, parts: list[Part], rows: sp.Expr, shape: Shape, copies: sp.Expr = ONE
) -> Operation:
    """Define the product of `rows` rows with matrices that read the same input, as one kernel on one rank.

    `copies`: such products of equal size in the kernel (experts read); `rows` are shared among them.
    """
    inner = shard_inputs(parts[0], shape.t)
    columns = graph.let(
        f"columns_{label}", "1", f"columns of {label} on a rank", sp.Add(*(shard_outputs(p, shape.t) for p in parts))
    )
    flops = graph.let(f"flop_{label}", "FLOP", f"work of {label} on a rank", FLOP_PER_MAC * rows * inner * columns)
    weights = graph.let(
        f"weights_{label}", "B", f"weights that {label} reads", copies * inner * columns * shape.weight_bytes
    )
    moved = graph.let(
        f"moved_{label}", "B", f"traffic of {label}", weights + rows * (inner + columns) * shape.activation_bytes
    )
    if kind == "expert" and shape.grouped:
        time = timed_experts(graph, label, rows, inner, columns, moved, copies)
    else:
        time = timed_product(graph, label, rows, inner, columns, moved, copies)
    sides = Sides(rows, inner, columns, copies, shape.weight_bytes, shape.activation_bytes)
    return Operation(label, kind, flops, moved, weights, time.compute, time.time, time.convert, sides)


def vector_operation(graph: Graph, label: str, moved: sp.Expr) -> Operation:
    """Define a sweep of memory without counted work."""
    traffic = graph.let(f"moved_{label}", "B", f"traffic of {label}", moved)
    time = timed(graph, label, ZERO, traffic)
    return Operation(label, "vector", ZERO, traffic, ZERO, time.compute, time.time)
