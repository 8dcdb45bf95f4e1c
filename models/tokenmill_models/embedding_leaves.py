"""The leaves, keys and choices of embedding: texts that are read, none written; a text may be a pair that is scored."""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.serving_axes import AXES, pool_axes
from tokenmill_models.serving_inputs import INPUTS as SERVED
from tokenmill_models.speculation import speculates
from tokenmill_models.stage import ENCODER, Axis, Input
from tokenmill_models.symbols import declare

texts = declare(
    "texts_a_request", "1", "texts of a request: the passages that a query is scored with", origin="input.texts_per_request",
    sign="positive",
)  # fmt: skip
all_texts = declare("texts", "1", "texts of the run", origin="input.texts", sign="positive")
replicas = declare("text_replicas", "1", "replicas that share the texts", origin="axis.replicas", sign="positive")
LIMITS = {
    word: declare(f"text_limit_{word}", "s", f"most {word} time of a request", origin=f"input.slo.latency.{word}", sign="positive")
    for word in ("mean", "p50", "p95", "p99")
}  # fmt: skip
RUN_TOKENS = declare("run_input_tokens", "1", "mean tokens of a text", origin="input.input_tokens", sign="positive")
RUN_PARTS = {
    word: declare(f"run_input_{word}", "1", f"{word} of tokens of a text", origin=f"input.input_tokens.{word}",
                  sign="nonnegative" if word == "cv" else "positive")
    for word in ("p50", "p95", "p99", "cv")
}  # fmt: skip
UNUSED: dict[sp.Symbol, sp.Expr] = {
    speculates: sp.Integer(0),
    leaf.held_kv: sp.Integer(0),
    leaf.reserved_tokens: sp.Integer(0),
    leaf.bytes_kv: leaf.bytes_16,
}
"""What stands for leaves of engines that write: nothing is drafted, held or reserved; keys and values of a pass stay in 16 bits."""
IN_RUN: dict[sp.Symbol, sp.Expr] = {leaf.input_tokens: RUN_TOKENS, leaf.input_cv: RUN_PARTS["cv"]} | {
    symbol: RUN_PARTS[word] for word, symbol in leaf.input_percentiles.items()
}
"""What stands for the lengths of requests in a run, whose texts are of one class."""

CHUNK = replace(AXES["chunk"], values=(2048, 8192, 32768, 131072), doc="most tokens of a pass")
BATCH = replace(AXES["batch"], doc="mean texts that a replica reads at once")
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
REPLICAS = Axis("replicas", "layout.replicas", COUNTS, "replicas that share the texts", replicas)
_KEPT = ("weights", "experts", "compute", "tp", "pp", "attention_dp", "ep")
SHARED_AXES = (*(AXES[name] for name in _KEPT), CHUNK, BATCH)


def text_axes(arch: Architecture) -> tuple[Axis, ...]:
    """Return the axes of replicas that read texts."""
    return (*(axis for axis in pool_axes(arch) if axis.name in _KEPT), CHUNK, BATCH)


def _served(*names: str) -> tuple[Input, ...]:
    known = {item.name: item for item in SERVED}
    return tuple(known[name] for name in names)


_MODEL = Input(
    "model",
    "architecture",
    "the model that reads: an encoder, or a decoder without its output head",
    required=True,
    among=(ENCODER,),
)
_ENGINE = _served(
    "engine.name", "engine.version", "engine.graph", "memory_fraction", "mfu", "mfu_peak", "expert_load", "layout.chips"
)
POOL_INPUTS = (
    _MODEL,
    *_served(
        "demand.requests_per_second", "demand.growth_per_period", "demand.headroom", "demand.at_least", "demand.at_most",
        "demand.list_price.input", "demand.arrivals.cv", "demand.classes", "demand.classes[].share",
        "demand.classes[].input_tokens", "demand.input_tokens",
    ),
    Input("texts_per_request", "number", "texts of a request: 1, or the passages that a reranker scores for a query (input_tokens then count query and passage)",
          texts, default=1.0, minimum=1),
    Input("slo.latency", "percentiles", "most time of a request", dimension="s", parts=LIMITS),
    *_ENGINE,
)  # fmt: skip
RUN_INPUTS = (
    _MODEL,
    Input("texts", "number", "texts of the run", all_texts, required=True, minimum=1),
    Input("input_tokens", "lengths", "tokens of a text: a number, or {mean, p95}", RUN_TOKENS, parts=RUN_PARTS, required=True, minimum=1),
    Input("interruptible", "flag", "whether work may be stopped and done again elsewhere: it may stand on spot systems", default=True),
    *_ENGINE,
)  # fmt: skip
