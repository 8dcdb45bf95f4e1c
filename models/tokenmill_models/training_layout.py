"""The choices of a training layout, and the rules that it must meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sympy as sp

from tokenmill_models import training_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.operations_parts import ONE, arch_leaf
from tokenmill_models.stage import Axis, Rule
from tokenmill_models.training_exchange import Places

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp8-row", "fp8-block", "mxfp8", "int8", "nvfp4", "mxfp4")
WORDS_32_16 = ("fp32", "bf16", "fp16")

OPTIMIZERS: Mapping[str, float] = {
    # bytes a parameter beside 16-bit weights and the gradient: a 32-bit master copy, and
    "adam": 12.0,  # two 32-bit moments (Rajbhandari et al. 2020, ZeRO, section 3.1)
    "adam-bf16": 8.0,  # two 16-bit moments (DeepSeek-AI 2024, DeepSeek-V3, section 3.3.2)
    "adam-8bit": 6.0,  # two 8-bit moments (Dettmers et al. 2021, arXiv:2110.02861)
    "adam-16bit": 4.0,  # two 16-bit moments and no master copy: all in bf16, as fine-tuning tools offer it
    "adafactor": 4.0,  # moments of rows and columns alone (Shazeer and Stern 2018, arXiv:1804.04235)
    "muon": 8.0,  # one 32-bit momentum (Liu et al. 2025, arXiv:2502.16982)
}


def divisors(leaves: Mapping[str, float]) -> list[float]:
    """Divisors of the global batch: the data-parallel degrees that are possible."""
    batch = int(leaves["B_global"])
    small = [k for k in range(1, int(batch**0.5) + 1) if batch % k == 0]
    return [float(k) for k in sorted({*small, *(batch // k for k in small)})]


LEAST_CONTEXT_SHARD = 2048
"""Tokens of a sequence that a context rank keeps at least on the free grid: below it exchange hides no longer."""
MOST_MICRO_BATCH = 65536
"""Tokens of a micro-batch at most on the free grid: products are saturated long before."""


def context_degrees(leaves: Mapping[str, float]) -> list[float]:
    """Context degrees of the free grid: powers of two that leave a rank LEAST_CONTEXT_SHARD tokens."""
    most = max(1.0, leaves["s"] / LEAST_CONTEXT_SHARD)
    return [degree for degree in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0) if degree <= most]


def micro_batches(leaves: Mapping[str, float]) -> list[float]:
    """Micro-batches of the free grid: powers of two of at most MOST_MICRO_BATCH tokens."""
    return [float(b) for b in (1, 2, 4, 8, 16, 32) if b == 1 or b * leaves["s"] <= MOST_MICRO_BATCH]


def _words(
    name: str, key: str, doc: str, codes: Mapping[object, Mapping[sp.Symbol, float]], default: tuple[object, ...]
) -> Axis:
    return Axis(name, key, tuple(codes), doc, codes=codes, default=default)  # type: ignore[arg-type]


def _flags(*symbols: sp.Symbol) -> dict[str, dict[sp.Symbol, float]]:
    """Codes of a word axis whose first word sets nothing and whose others set one flag each (in the order given)."""
    return {str(i): {s: float(i == j) for j, s in enumerate(symbols, 1)} for i in range(len(symbols) + 1)}


def _named(words: tuple[str, ...], *symbols: sp.Symbol) -> dict[object, Mapping[sp.Symbol, float]]:
    return dict(zip(words, _flags(*symbols).values(), strict=True))


_PRECISION_AXES = (
    Axis("compute", "precision.compute", PRECISIONS, "precision of products", default=("published",)),
    Axis("experts", "precision.experts", PRECISIONS, "precision of the routed experts' weights", default=("published",)),
    Axis("weights", "precision.weights", PRECISIONS, "precision of the weights that products read", default=("published",)),
    Axis("gradients", "precision.gradients", WORDS_32_16, "precision of kept gradients", default=("fp32",)),
    Axis("communication", "precision.communication", (*WORDS_32_16, "fp8"),
         "precision of exchanged gradients, where narrower than they are kept", default=("fp32",)),
    Axis("activations", "precision.activations", (*WORDS_32_16, "fp8"), "precision of kept activations", default=("bf16",)),
)  # fmt: skip

_WORD_AXES = (
    _words("recompute", "layout.recompute", "what is computed again backward: nothing; what is cheap (attention core without flash, and in gated, latent and "
           "expert layers norms, gated activations, latent up-projections); whole layers",
           _named(("none", "selective", "full"), leaf.recompute_selective, leaf.recompute_full), ("none", "selective", "full")),
    _words("schedule", "layout.schedule", "order of micro-batches in the pipeline",
           _named(("1f1b", "interleaved", "zero-bubble", "dualpipe"), leaf.interleaved, leaf.zero_bubble, leaf.dualpipe),
           ("1f1b", "interleaved")),
    _words("sequence_parallel", "layout.sequence_parallel", "norms and residuals shared by the tensor ranks",
           {True: {leaf.sequence_parallel: 1.0}, False: {leaf.sequence_parallel: 0.0}}, (True,)),
    _words("order", "layout.order", "numbering of ranks, innermost dimension first",
           _named(("tp-cp-ep-pp-dp", "tp-cp-ep-dp-pp"), leaf.pipeline_outermost), ("tp-cp-ep-pp-dp",)),
    _words("offload", "layout.offload", "what waits in host memory",
           {"none": {leaf.offload_optimizer: 0.0, leaf.offload_parameters: 0.0, leaf.offload_activations: 0.0},
            "optimizer": {leaf.offload_optimizer: 1.0, leaf.offload_parameters: 0.0, leaf.offload_activations: 0.0},
            "parameters": {leaf.offload_optimizer: 1.0, leaf.offload_parameters: 1.0, leaf.offload_activations: 0.0},
            "activations": {leaf.offload_optimizer: 0.0, leaf.offload_parameters: 0.0, leaf.offload_activations: 1.0}},
           ("none",)),
    _words("checkpoint_mode", "checkpoint.mode", "whether training stops while a checkpoint is written",
           {"sync": {leaf.checkpoint_async: 0.0}, "async": {leaf.checkpoint_async: 1.0}}, ("sync",)),
    _words("optimizer", "optimizer", "optimiser, by the bytes of its states",
           {word: {leaf.bytes_optimizer: size, leaf.muon: float(word == "muon")} for word, size in OPTIMIZERS.items()}, ("adam",)),
)  # fmt: skip

_DEGREES = (
    Axis("tp", "layout.tp", (1, 2, 4, 8, 16, 32, 64), "tensor parallel degree", leaf.tp),
    Axis("pp", "layout.pp", (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64), "pipeline parallel degree", leaf.pp),
    Axis("virtual", "layout.virtual", (1, 2, 3, 4, 5, 6, 8, 10), "virtual stages a pipeline rank", leaf.virtual),
    Axis("cp", "layout.cp", (1, 2, 4, 8, 16), "context parallel degree", leaf.cp, grid=context_degrees),
    Axis("ep", "layout.ep", (1, 2, 4, 8, 16, 32, 64), "expert parallel degree", leaf.ep),
    Axis("expert_tp", "layout.expert_tp", (1, 2, 4, 8), "tensor parallel degree of routed experts", leaf.expert_tp),
    Axis("micro_batch", "layout.micro_batch", (1, 2, 4, 8, 16), "sequences of a micro-batch", leaf.micro_batch,
         grid=micro_batches),
    Axis("zero", "layout.zero", (0, 1, 2, 3), "ZeRO stage", leaf.zero, default=(1, 2, 3)),
    Axis("shard", "layout.shard", (0, 8, 16, 32, 64), "ranks that share one copy of the states; 0: all data ranks", leaf.shard,
         default=(0,)),
    Axis("dp", "layout.dp", (), "data parallel degree", leaf.dp, grid=divisors),
)  # fmt: skip

AXES = (*_PRECISION_AXES, *_WORD_AXES, *_DEGREES)


LONE: Mapping[str, tuple[object, ...]] = {"ep": (1,), "expert_tp": (1,)}
"""Expert degrees of a model without experts."""
SPARSE: Mapping[str, tuple[object, ...]] = {
    # the free grid of a mixture of experts has two more degrees, and is coarser in the others
    "tp": (1, 2, 4, 8),
    "pp": (1, 2, 4, 8, 12, 16, 32),
    "virtual": (1, 2, 4),
    "expert_tp": (1,),
    "zero": (1, 3),
}


def axes_of(arch: Architecture) -> tuple[Axis, ...]:
    """Return the axes of an architecture, each with the grid that is searched where the file leaves it free."""
    sparse = any(kind.mlp.expert for kind in arch.layers)
    free = SPARSE if sparse else LONE
    axes = AXES if sparse else [axis for axis in AXES if axis.name != "experts"]
    return tuple(replace(axis, default=free[axis.name]) if axis.name in free else axis for axis in axes)


def rules_of(arch: Architecture, place: Places) -> tuple[Rule, ...]:
    """Return the rules that degrees must meet, in an order that cuts early."""
    return (*_tensor_rules(arch), *_expert_rules(arch), *_pipeline_rules(), *_batch_rules(place))


def _tensor_rules(arch: Architecture) -> list[Rule]:
    rules = []
    for i, kind in enumerate(arch.layers):
        if kind.mixer.heads:
            heads = arch_leaf(f"layers.{i}.mixer.heads")
            rules.append(Rule(f"tensor_heads_{i}", leaf.tp, heads, "divides",
                              f"the tensor degree divides the heads of {kind.name} layers", cure="layout.tp"))  # fmt: skip
    rules.append(Rule("context_sequence", leaf.cp, leaf.sequence, "divides",
                      "the context degree divides the sequence length", cure="layout.cp"))  # fmt: skip
    return rules


def _expert_rules(arch: Architecture) -> list[Rule]:
    rules = []
    for i, kind in enumerate(arch.layers):
        if kind.mlp.expert:
            experts = arch_leaf(f"layers.{i}.mlp.experts")
            rules.append(Rule(f"experts_{i}", leaf.ep, experts, "divides",
                              f"the expert degree divides the experts of {kind.name} layers", cure="layout.ep"))  # fmt: skip
    rules.append(Rule("expert_tensor", leaf.expert_tp, leaf.tp, "divides",
                      "the tensor degree of experts divides the tensor degree", cure="layout.expert_tp"))  # fmt: skip
    rules.append(Rule("expert_ranks", leaf.expert_tp * leaf.ep, leaf.tp * leaf.cp * leaf.dp, "divides",
                      "expert ranks divide the ranks of a pipeline stage", cure="layout.ep"))  # fmt: skip
    rules.append(Rule("expert_block", leaf.tp * leaf.cp, sp.Max(leaf.tp * leaf.cp, leaf.expert_tp * leaf.ep, evaluate=False),
                      "divides", "tensor and context ranks fill whole parts of an expert group", cure="layout.ep"))  # fmt: skip
    return rules


def _pipeline_rules() -> list[Rule]:
    p, v = leaf.pp, leaf.virtual
    single = leaf.zero_bubble + leaf.dualpipe
    return [
        Rule("virtual_stages", p * v, leaf.layers + 2, "at_most",
             "a virtual stage holds a layer, the embedding or the head at least", cure="layout.virtual"),
        Rule("interleaved_virtual", 2 * leaf.interleaved, v, "at_most",
             "the interleaved schedule has two virtual stages or more", cure="layout.virtual"),
        Rule("plain_virtual", (1 - leaf.interleaved) * (v - 1), sp.Integer(0), "at_most",
             "virtual stages need the interleaved schedule", cure="layout.schedule"),
        Rule("virtual_pipeline", 2 * (leaf.interleaved + single), p, "at_most",
             "the schedule needs two pipeline ranks or more", cure="layout.pp"),
        Rule("dualpipe_even", 1 + leaf.dualpipe, p, "divides", "DualPipe pairs the pipeline ranks", cure="layout.pp"),
    ]  # fmt: skip


def _batch_rules(place: Places) -> list[Rule]:
    m = leaf.micro_batches
    return [
        Rule("whole_micro_batches", leaf.micro_batch * leaf.dp, leaf.global_batch, "divides",
             "micro_batch x dp divides the global batch", cure="layout.micro_batch"),
        Rule("interleaved_micro_batches", ONE + leaf.interleaved * (leaf.pp - 1), m, "divides",
             "the interleaved schedule takes micro-batches by the pipeline degree", cure="layout.micro_batch"),
        Rule("shard_ranks", place.shared, leaf.cp * leaf.dp, "divides",
             "ranks that share the states divide the data ranks", cure="layout.shard"),
        Rule("shard_blocks", place.near, place.shared, "divides",
             "ranks that share the states fill whole blocks", cure="layout.shard"),
        Rule("held_chips", leaf.ranks, leaf.held_chips * leaf.ranks_a_chip, "equal",
             "tp x pp x cp x dp are the ranks of the chips", cure="layout.chips"),
        Rule("critical_batch", leaf.global_batch, leaf.critical_batch, "at_most",
             "the batch stays within the critical batch", cure="global_batch"),
    ]  # fmt: skip


def dualpipe_micro_batches() -> Rule:
    """DualPipe feeds both ends: two micro-batches a pipeline rank at least."""
    return Rule("dualpipe_micro_batches", 2 * leaf.dualpipe * leaf.pp, leaf.micro_batches, "at_most",
                "DualPipe needs two micro-batches a pipeline rank", cure="layout.micro_batch")  # fmt: skip
