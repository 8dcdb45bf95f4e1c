"""Closed forms of training that people ask for by hand: work, chip-hours, bubbles, bytes a parameter, activation memory."""

from __future__ import annotations

import sympy as sp

from tokenmill_models import training_leaves as leaf
from tokenmill_models.formula import Formula, Source, register
from tokenmill_models.roofline import FLOP_PER_MAC, F, M
from tokenmill_models.symbols import constant, declare, uncapitalised

KAPLAN = Source("Kaplan et al. 2020, Scaling Laws for Neural Language Models, arXiv:2001.08361, section 2.1")
MEGATRON = Source("Narayanan et al. 2021, Efficient Large-Scale Language Model Training, arXiv:2104.04473, section 2.2")
KORTHIKANTI = Source("Korthikanti et al. 2022, Reducing Activation Recomputation, arXiv:2205.05198, table 2")
ZERO_PAPER = Source("Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054, section 5 and 7")
MCCANDLISH = Source("McCandlish et al. 2018, An Empirical Model of Large-Batch Training, arXiv:1812.06162")

HOUR = constant("seconds_an_hour", 3600.0, "s", "seconds of an hour")
N = declare(
    "N_train",
    "1",
    "parameters active for a token of the trained model",
    origin="input.N_train",
    latex="N",
    sign="positive",
)
mfu = declare(
    "mfu_given", "1", "model FLOPs utilisation", origin="input.mfu_given", latex=r"\mathrm{MFU}", sign="positive"
)
hours = declare("chip_hours_given", "1", "chip-hours spent", origin="input.chip_hours", sign="positive")
heads = declare("a_heads", "1", "attention heads", origin="arch.layers.0.mixer.heads", latex="a", sign="positive")
hidden = declare("h_hidden", "1", "hidden size", origin="arch.hidden", latex="h", sign="positive")
m = declare("m_given", "1", "micro-batches of a step", origin="input.micro_batches", latex="m", sign="positive")
inside = declare(
    "beta_inside",
    "B/s",
    "bandwidth of a chip inside its domain, one direction",
    origin="chip.scale_up",
    sign="positive",
)
outside = declare(
    "beta_outside",
    "B/s",
    "bandwidth of a chip to the network, one direction",
    origin="system.scale_out",
    sign="positive",
)

_ACTIVATIONS = ("16-bit activations, dropout, multi-head attention, an MLP of 4h without gate",)
_work = 3 * FLOP_PER_MAC * N * leaf.tokens


def _form(
    name: str,
    title: str,
    symbol: tuple[str, str],
    expr: sp.Expr,
    source: Source,
    *assumes: str,
    rounding: str | None = None,
) -> Formula:
    return register(
        Formula(name, title, declare(symbol[0], symbol[1], uncapitalised(title)), expr, source, rounding, assumes)
    )


FLOPS = _form(
    "training.flops",
    "Work of training by 6ND",
    ("training_flops", "FLOP"),
    _work,
    KAPLAN.by("2 FLOP a parameter and token forward", "twice that backward"),
    "attention over the sequence is left out",
    "a backward pass costs two forward passes",
)
CHIP_HOURS = _form(
    "training.chip_hours",
    "Chip-hours of training at an MFU",
    ("chip_hours", "1"),
    _work / (F * mfu * HOUR),
    KAPLAN.by("6·N·D of work over peak times MFU times an hour"),
    "no lost time: divide by the goodput for a whole run",
)
IMPLIED_MFU = _form(
    "training.implied_mfu",
    "MFU that chip-hours of a whole run imply",
    ("mfu_implied", "1"),
    _work / (F * hours * HOUR),
    KAPLAN.by("6·N·D of work over peak times chip time"),
    "lost time counts as low MFU",
)
BYTES_PER_PARAMETER = _form(
    "training.bytes_per_parameter",
    "Bytes a parameter of weights, gradient and optimiser before activations",
    ("bytes_per_parameter", "B"),
    leaf.bytes_weights + leaf.bytes_gradients + leaf.bytes_optimizer,
    ZERO_PAPER.by("weights, gradient, and 32-bit master copy with two moments add up"),
    "one copy of each",
)
CHIPS_FOR_STATES = _form(
    "training.chips_for_states",
    "Fewest chips that hold weights, gradients and optimiser states",
    ("chips_for_states", "1"),
    N * (leaf.bytes_weights + leaf.bytes_gradients + leaf.bytes_optimizer) / M,
    ZERO_PAPER.by("bytes of all states over the memory of a chip, rounded up"),
    "states are spread evenly and nothing else needs memory",
    rounding="ceil",
)
ZERO_MEMORY = _form(
    "training.zero_bytes",
    "Bytes of states on a rank under ZeRO",
    ("zero_bytes", "B"),
    N
    * (
        leaf.bytes_weights / (1 + leaf.zero3 * (leaf.dp - 1))
        + leaf.bytes_gradients / (1 + leaf.zero2 * (leaf.dp - 1))
        + leaf.bytes_optimizer / (1 + leaf.zero1 * (leaf.dp - 1))
    ),
    ZERO_PAPER.by("stage 1 cuts optimiser states over the data ranks, stage 2 gradients too, stage 3 weights too"),
    "no other parallelism",
)
ZERO_VOLUME = _form(
    "training.zero_volume",
    "Bytes a rank exchanges in a step under ZeRO, in units of whole buffers",
    ("zero_volume", "B"),
    N
    * (
        leaf.bytes_gradients * (1 + leaf.zero2 * (m - 1) + 1 - leaf.zero1)
        + leaf.bytes_weights * leaf.zero1 * (1 + leaf.zero3 * (2 * m - 1))
    ),
    ZERO_PAPER.by(
        "without sharding gradients are all-reduced: twice their bytes",
        "ZeRO 1 and 2 scatter gradients and gather weights",
        "ZeRO 3 gathers weights twice in every micro-batch; ZeRO 2 scatters gradients in every one",
    ),
    "gathered parameters are dropped after every micro-batch of ZeRO 3",
)
BUBBLE = _form(
    "training.bubble",
    "Idle time of a pipeline over its working time",
    ("bubble_share", "1"),
    (leaf.pp - 1) / (leaf.virtual * m),
    MEGATRON.by(
        "the first micro-batch passes p - 1 stages before the last works, and the last drains likewise",
        "v virtual stages a rank make each of these waits v times shorter",
        "divide by m micro-batches of work",
    ),
    "equal stages",
)
MICRO_BATCHES = _form(
    "training.micro_batches",
    "Micro-batches of a step",
    ("micro_batches_form", "1"),
    leaf.micro_batches,
    MEGATRON.by("a data-parallel rank has B/d sequences of a step", "each micro-batch takes b of them"),
    "the batch divides evenly",
)
CRITICAL_CHIPS = _form(
    "training.critical_batch_chips",
    "Most chips that a critical batch keeps at work",
    ("critical_chips", "1"),
    leaf.tp * leaf.pp * leaf.cp * leaf.critical_batch / (leaf.micro_batch * m),
    MCCANDLISH.by("a critical batch holds B/(b·m) data-parallel ranks", "each has t·p·c chips"),
    "each data-parallel rank works on m micro-batches of a step",
)

_sbh = (
    leaf.sequence
    * leaf.micro_batch
    * hidden
    * declare("b_byte", "B", "one byte", origin="constant.1.0", sign="positive")
)
ACTIVATIONS_NONE = _form(
    "training.activations_none",
    "Activation bytes of a layer without recomputation",
    ("activations_none", "B"),
    _sbh * (10 + 24 / leaf.tp + 5 * heads * leaf.sequence / (hidden * leaf.tp)),
    KORTHIKANTI.by(
        "attention keeps 11·s·b·h + 5·a·s²·b, the MLP 19·s·b·h, the norms 4·s·b·h",
        "tensor ranks cut all but 10·s·b·h of inputs and dropout masks",
    ),
    *_ACTIVATIONS,
)
ACTIVATIONS_SELECTIVE = _form(
    "training.activations_selective",
    "Activation bytes of a layer with selective recomputation and sequence parallelism",
    ("activations_selective", "B"),
    _sbh * 34 / leaf.tp,
    KORTHIKANTI.by(
        "the scores, 5·a·s²·b, are recomputed", "sequence parallelism cuts the other 34·s·b·h over the ranks"
    ),
    *_ACTIVATIONS,
)
ACTIVATIONS_FULL = _form(
    "training.activations_full",
    "Activation bytes of a layer with full recomputation",
    ("activations_full", "B"),
    2 * _sbh,
    KORTHIKANTI.by("only the 16-bit input of a layer is kept: 2·s·b·h"),
    *_ACTIVATIONS,
)
LEVELS = _form(
    "training.level_ratio",
    "Bandwidth of a chip inside its domain over that outside, like for like",
    ("level_ratio", "1"),
    inside / outside,
    Source("definition").by("bandwidth inside over bandwidth outside"),
    "both in one direction",
)
