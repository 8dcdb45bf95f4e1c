"""Closed forms of a dense decoder with grouped queries and gated MLPs: parameters, FLOPs, KV bytes.

They hold for the Llama make: RMS norms, no biases, one MLP width. Anything else is counted matrix by matrix
(`architecture`), with which these agree where both apply.
"""

from __future__ import annotations

import sympy as sp

from tokenmill_models.formula import Formula, Source, register
from tokenmill_models.roofline import FLOP_PER_MAC
from tokenmill_models.symbols import declare

COUNTED = Source(
    "definition",
    (
        "a layer holds q and o of h by a·d_h, k and v of h by k·d_h, three MLP matrices of h by f, two norms of h",
        "outside the layers stand the embedding and the head, V by h each (one where they are tied), and the last norm",
    ),
)
CAUSAL = Source(
    "Narayanan et al. 2021, arXiv:2104.04473, section 3 (FLOPs of a transformer layer), with causal attention counted half"
)
CACHE = Source("Shazeer 2019, arXiv:1911.02150 and Ainslie et al. 2023, arXiv:2305.13245 (keys and values of k heads)")


def _size(name: str, doc: str, path: str, latex: str | None = None) -> sp.Symbol:
    return declare(name, "1", doc, origin=f"arch.{path}", latex=latex, sign="positive")


_kind = "layers.0"
L = _size("n_layer", "layers", "layer_count", "L")
h = _size("d_model", "hidden size", "hidden", "h")
f = _size("d_ff", "width of the MLP", f"{_kind}.mlp.matrices.up.outputs", "f")
V = _size("n_vocab", "size of the vocabulary", "vocabulary", "V")
a = _size("n_head", "query heads", f"{_kind}.mixer.heads", "a")
k = _size("n_kv", "key/value heads", f"{_kind}.mixer.kv_heads", "k")
d_h = _size("d_head", "head size", f"{_kind}.mixer.d_qk", "d_h")
s = declare("n_sequence", "1", "tokens of a sequence", origin="input.sequence_length", latex="s", sign="positive")
w = declare("n_window", "1", "keys a windowed query sees at most", origin="input.window", latex="w", sign="positive")
untied = declare(
    "untied", "1", "1 where the head has weights of its own, 0 where it is the embedding", origin="arch.untied"
)
b_kv = declare("b_cache", "B", "bytes of a cached element", origin="input.kv_bytes", latex=r"b_{kv}", sign="positive")
n_tensor = declare("n_tensor", "1", "tensor-parallel ranks", origin="input.tp", latex="t", sign="positive")

_layer_matrices = 2 * h * d_h * (a + k) + 3 * h * f

PARAMETERS = register(
    Formula(
        "architecture.parameters",
        "Parameters of a dense decoder",
        declare("n_parameters", "1", "parameters", latex="N"),
        L * (_layer_matrices + 2 * h) + V * h * (1 + untied) + h,
        COUNTED,
        assumes=("no biases", "RMS norms", "one width in all layers"),
    )
)
MATRIX_ELEMENTS = register(
    Formula(
        "architecture.multiplied",
        "Matrix elements one token is multiplied with: all layers and the head; embeddings are looked up",
        declare("n_multiplied", "1", "matrix elements a token meets", latex="N_a"),
        L * _layer_matrices + V * h,
        COUNTED,
        assumes=("no biases", "embeddings are looked up"),
    )
)
FORWARD_FLOPS = register(
    Formula(
        "architecture.forward_flops",
        "Forward FLOPs per token, mean over a causal sequence",
        declare("flop_forward_token", "FLOP", "forward work a token", latex=r"C_{fwd}"),
        FLOP_PER_MAC * (L * _layer_matrices + V * h) + FLOP_PER_MAC * L * a * 2 * d_h * s / 2,
        CAUSAL.by(
            "a matrix element costs one multiply-add a token",
            "a head multiplies a query with its keys and weighs its values: 2·d_h multiply-adds a key",
            "a causal query sees s/2 keys on average",
        ),
        assumes=("a query sees s/2 keys on average",),
    )
)
TRAINING_FLOPS = register(
    Formula(
        "architecture.training_flops",
        "FLOPs per token of a training step without recomputation: backward is twice forward",
        declare("flop_train_token", "FLOP", "training work a token", latex=r"C_{train}"),
        3 * FORWARD_FLOPS.expr,
        CAUSAL.by("the backward pass multiplies once for inputs and once for weights: twice the forward pass"),
        assumes=("6·N a token is its limit for short sequences and a small vocabulary",),
    )
)
KV_BYTES = register(
    Formula(
        "architecture.kv_bytes_per_token",
        "KV-cache bytes per token",
        declare("kv_bytes_token", "B", "cache bytes a token", latex=r"KV"),
        2 * L * k * d_h * b_kv,
        CACHE.by("a token caches a key and a value of d_h for each of k heads in every layer"),
        assumes=("no window and no sharing between layers",),
    )
)
KV_BYTES_PER_RANK = register(
    Formula(
        "architecture.kv_bytes_per_rank",
        "KV-cache bytes per token on one tensor rank: heads are replicated where ranks exceed them",
        declare("kv_bytes_token_rank", "B", "cache bytes a token on a rank"),
        2 * L * sp.ceiling(k / n_tensor) * d_h * b_kv,
        CACHE.by(
            "a token caches a key and a value of d_h for each key/value head in every layer",
            "a rank holds its part of the heads, one at least",
        ),
        assumes=("heads are not cut",),
    )
)
MEAN_KEYS_WINDOW = register(
    Formula(
        "architecture.mean_keys_window",
        "Mean keys a query sees through a window over a causal sequence",
        declare("mean_keys_window", "1", "mean keys seen", latex=r"\bar{s}"),
        w * (1 - (w - 1) / (2 * s)),
        Source(
            "definition", ("the first w queries see 1..w keys, the other s-w see w", "their mean is w - w(w-1)/(2s)")
        ),
        valid=(sp.Le(w, s),),
        assumes=("causal attention",),
    )
)
