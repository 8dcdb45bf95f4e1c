"""The choices of a serving replica; the last one named by a role is its operating axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.speculation import CODES
from tokenmill_models.stage import Axis

PRECISIONS = ("bf16", "fp16", "fp8", "fp8-row", "fp8-block", "mxfp8", "int8", "int4", "nvfp4", "mxfp4", "fp32", "tf32")
MIXED = ("fp8-mlp",)
GGUF = (
    "q2_k", "q3_k_m", "q3_k_xl", "q4_0", "q4_k_m", "q4_k_xl", "q5_k_m", "q6_k", "q6_k_xl", "q8_0", "q8_k_xl",
    "iq2_xxs", "iq3_xxs",
)  # fmt: skip
PUBLISHED = ("published",)
BATCHES = tuple(sorted({2**k for k in range(13)} | {3 * 2**k for k in range(11)}))


def _batches(known: Mapping[str, float]) -> tuple[float, ...]:
    """The grid of running sequences; in a closed loop the requests in flight alone."""
    clients = known.get(leaf.concurrency.name, 0.0)
    return (clients,) if clients > 0 else BATCHES


AXES = {
    axis.name: axis
    for axis in (
        Axis("tp", "layout.tp", (1, 2, 4, 8, 16, 32, 64), "tensor parallel degree", leaf.tp),
        Axis("pp", "layout.pp", (1, 2, 4, 8, 16), "pipeline parallel degree", leaf.pp),
        Axis("ep", "layout.ep", (1, 2, 4, 8, 16, 32, 64, 72, 128, 256), "expert parallel degree", leaf.ep),
        Axis(
            "attention_dp", "engine.attention_dp", (1, 2, 4, 8, 16, 32, 64, 72, 128, 256),
            "groups of ranks that each attend to their own sequences", leaf.attention_dp, default=(1,),
        ),
        Axis("weights", "precision.weights", (*PRECISIONS, *MIXED, *GGUF), "format of the weights", default=PUBLISHED),
        Axis("experts", "precision.experts", (*PRECISIONS, *GGUF), "format of the routed experts' weights", default=PUBLISHED),
        Axis("compute", "precision.compute", PRECISIONS, "format in which products are computed", default=PUBLISHED),
        Axis("kv", "precision.kv", ("bf16", "fp16", "fp8", "int8", "nvfp4", "int4"), "format of the KV cache", default=("bf16",)),
        Axis(
            "disaggregated", "engine.disaggregated", (False, True),
            "whether prompts and answers are computed in pools of their own",
        ),
        Axis(
            "speculative", "engine.speculative", tuple(CODES), "whether tokens are drafted and checked: none, or a table of the draft",
            codes=CODES, default=("none",),
        ),
        Axis("chunk", "engine.chunk", (512, 2048, 8192), "most tokens of a step", leaf.chunk),
        Axis("batch", "engine.batch", BATCHES, "mean running sequences of a replica", leaf.batch, operate=True, grid=_batches),
        Axis(
            "utilisation", "engine.utilisation", (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95),
            "share of time that a prefill replica works", leaf.utilisation, operate=True, maximum=1.0,
        ),
    )
}  # fmt: skip


def pool_axes(arch: Architecture, *last: str) -> tuple[Axis, ...]:
    """Return the axes of a pool for an architecture, with `last` at the end; a dense model has no experts to spread or store."""
    routed = any(kind.mlp.expert for kind in arch.layers)
    names = ["weights", *(["experts"] if routed else []), "compute", "kv", "tp", "pp", "attention_dp", "ep", *last]
    axes = {**AXES} if routed else {**AXES, "ep": replace(AXES["ep"], values=(1,))}
    return tuple(axes[name] for name in names)
