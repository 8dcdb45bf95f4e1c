"""Fine-tuning on a few tokens: all parameters, or low-rank adapters on a frozen base in 16 or in 4 bits."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import sympy as sp

from tokenmill_models import training_leaves as leaf
from tokenmill_models.architecture import Architecture, LayerKind, Matrix
from tokenmill_models.formula import Graph, Source, maximum
from tokenmill_models.memory import expert_elements, layer_elements, stage_mean
from tokenmill_models.operations_attention import peak_16bit
from tokenmill_models.operations_parts import ZERO, Part, arch_leaf, shard_inputs, shard_outputs
from tokenmill_models.roofline import FLOP_PER_MAC, W, eta_F, eta_W
from tokenmill_models.stage import Axis, Input, Role, StageModel, register_stage
from tokenmill_models.symbols import constant, declare
from tokenmill_models.training import Passes, full_passes
from tokenmill_models.training_activations import Inputs
from tokenmill_models.training_layout import AXES
from tokenmill_models.training_memory import Recipe
from tokenmill_models.training_run import RUN_INPUTS, Job, trained, training_role

LORA = Source("Hu et al. 2021, LoRA: Low-Rank Adaptation of Large Language Models, arXiv:2106.09685, section 4")
QLORA = Source("Dettmers et al. 2023, QLoRA: Efficient Finetuning of Quantized LLMs, arXiv:2305.14314, section 3")

adapters = declare("k_l", "1", "1 where adapters alone are trained", origin="axis.method")
four_bit = declare("k_q", "1", "1 where the frozen base is kept in 4 bits", origin="axis.method")
rank = declare("rank", "1", "rank of the adapters", origin="input.rank", sign="positive")
epochs = declare("epochs", "1", "passes over the data", origin="input.epochs", sign="positive")
BYTES_NF4 = constant("b_nf4", (4 + 8 / 64 + 32 / (64 * 256)) / 8, "B",
                     "bytes a weight of 4 bits, blocks of 64 with an 8-bit scale, 256 of these with a 32-bit one")  # fmt: skip

TOOL = "fine-tuning"
"""The class of frameworks that stands for any tool of fine-tuning."""
ALL = "all-linear"
TARGETS = {
    # word of a file: matrices that it names, however a checkpoint fuses or factors them
    "q": ("q", "q_down", "q_up"), "k": ("k", "kv_down"), "v": ("v", "kv_up"), "o": ("o", "o_down"), "gate": ("gate",),
    "up": ("up",), "down": ("down",), "embed": (), "head": (),
}  # fmt: skip
_targets = {
    word: declare(
        f"target_{word.replace('-', '_')}", "1", f"1 where adapters stand on: {word}", origin=f"input.targets.{word}"
    )
    for word in (ALL, *TARGETS)
}

METHODS = Axis(
    "method", "method", ("full", "lora", "qlora"), "what is trained: all parameters, or adapters on a base in 16 or in 4 bits",
    codes={"full": {adapters: 0.0, four_bit: 0.0}, "lora": {adapters: 1.0, four_bit: 0.0}, "qlora": {adapters: 1.0, four_bit: 1.0}},
    default=("full", "lora"),
)  # fmt: skip


def _adapted(matrix: Matrix) -> sp.Expr:
    """1 where a matrix of a layer carries an adapter."""
    named = [_targets[word] for word, names in TARGETS.items() if matrix.name in names]
    return maximum(_targets[ALL], *named)


def _elements(matrices: tuple[Matrix, ...], path: str, t: sp.Expr) -> sp.Expr:
    """Adapter elements r·(inputs + outputs) of matrices on one of `t` tensor ranks."""
    parts = [(matrix, Part(matrix, f"{path}.{matrix.name}")) for matrix in matrices]
    return sp.Add(*(_adapted(m) * rank * (shard_inputs(p, t) + shard_outputs(p, t)) for m, p in parts))


def _dense(kind: LayerKind, path: str) -> sp.Expr:
    mixer = _elements(kind.mixer.matrices, f"{path}.mixer.matrices", leaf.tp)
    return mixer + _elements(kind.mlp.matrices, f"{path}.mlp.matrices", leaf.tp)


def _expert(kind: LayerKind, path: str) -> sp.Expr:
    return _elements(kind.mlp.expert, f"{path}.mlp.expert", leaf.expert_tp) if kind.mlp.expert else ZERO


def _define_adapters(graph: Graph, arch: Architecture) -> tuple[sp.Symbol, sp.Symbol, sp.Symbol, sp.Symbol]:
    """Define adapter elements: of a mean layer and of the ends on a rank, of the whole model; and their work a token a layer."""
    held, touched, whole = [], [], []
    for i, kind in enumerate(arch.layers):
        path = f"layers.{i}"
        dense, one = _dense(kind, path), _expert(kind, path)
        experts = arch_leaf(f"{path}.mlp.experts") if kind.mlp.expert else ZERO
        active = arch_leaf(f"{path}.mlp.active") if kind.mlp.expert else ZERO
        held.append(dense + experts / leaf.ep * one)
        touched.append(dense + active * leaf.expert_tp / leaf.tp * one)
        whole.append(arch_leaf(f"layers.{i}.count") * (dense * leaf.tp + experts * one * leaf.expert_tp))
    layer = graph.let("adapters_layer", "1", "adapter parameters of a mean layer on a rank",
                      adapters * stage_mean(arch, leaf.pp, held), source=LORA)  # fmt: skip
    width = arch_leaf("hidden") + arch_leaf("vocabulary") / leaf.tp
    ends = graph.let("adapters_ends", "1", "adapter parameters of embedding and head on a rank",
                     adapters * rank * width * (_targets["embed"] + _targets["head"]), source=LORA)  # fmt: skip
    total = graph.let("adapters_model", "1", "adapter parameters of the whole model, at most",
                      adapters * sp.Add(*whole) + ends * leaf.tp, source=LORA)  # fmt: skip
    work = graph.let("adapters_flops", "FLOP", "forward work of the adapters of a mean layer a token",
                     adapters * FLOP_PER_MAC * stage_mean(arch, leaf.pp, touched), source=LORA)  # fmt: skip
    return layer, ends, total, work


def _layer_weights(graph: Graph, arch: Architecture) -> sp.Expr:
    """Weights of a mean layer on a rank, routed experts included [1]."""
    held = []
    for i, kind in enumerate(arch.layers):
        path = f"layers.{i}"
        routed = expert_elements(graph, str(i), kind, path, leaf.ep, leaf.expert_tp)
        held.append(layer_elements(graph, str(i), kind, path, leaf.tp) + routed)
    return stage_mean(arch, leaf.pp, held)


def _base_bytes(width: sp.Expr) -> sp.Expr:
    return four_bit * BYTES_NF4 + (1 - four_bit) * width


def _job(arch: Architecture, graph: Graph, rows: sp.Expr) -> Job:
    layer, ends, total, work = _define_adapters(graph, arch)
    full = 1 - adapters
    usual = full_passes()
    # a frozen base has no gradients of weights
    passes = Passes(
        usual.matmul - adapters, usual.attention, usual.vector, counted=usual.counted - adapters, trained=full
    )
    again = leaf.recompute_full
    low_rank = (3 + again) * rows * work / (peak_16bit * eta_F)
    unpacked = graph.let(
        "unpack_time", "s", "turning a mean layer's 4-bit weights into 16 bits, forward, backward and again, for a micro-batch",
        four_bit * (2 + again) * _layer_weights(graph, arch) * (BYTES_NF4 + leaf.BYTES_16) / (W * eta_W), source=QLORA,
    )  # fmt: skip
    states = leaf.bytes_weights + leaf.bytes_states
    saved = (full * arch_leaf("parameters.total") + total) * states
    recipe = Recipe(full, (layer, ends), _base_bytes(leaf.bytes_weights), _base_bytes(leaf.bytes_experts),
                    inputs=Inputs(lambda matrix: full + adapters * _adapted(matrix), four_bit * leaf.kept_inputs))  # fmt: skip
    tokens = graph.let("passed_tokens", "1", "tokens that the run passes over", leaf.tokens * epochs)
    return Job(tokens, tokens, passes, recipe, low_rank + unpacked, saved)


@lru_cache(maxsize=16)
def finetuning_role(arch: Architecture) -> Role:
    """Return the run that adapts `arch` by one of the METHODS."""
    return training_role(arch, lambda graph, rows: _job(arch, graph, rows), (METHODS,))


FINETUNING = register_stage(
    StageModel(
        name="finetuning",
        doc="Fine-tuning: all parameters, or low-rank adapters on a frozen base in 16 or in 4 bits.",
        inputs=(
            Input("model", "architecture", "the model to adapt", required=True),
            Input("tokens", "number", "tokens of a pass over the data", leaf.tokens, required=True),
            Input("epochs", "number", "passes over the data", epochs, default=1),
            Input("sequence_length", "number", "tokens of a sequence", leaf.sequence, default=2048, minimum=1),
            Input("global_batch", "number", "sequences of a step", leaf.global_batch, default=16, minimum=1),
            Input("rank", "number", "rank of the adapters", rank, default=16, minimum=1),
            Input("targets", "members", "matrices that carry adapters", among=tuple(_targets), default={word: float(word == ALL) for word in _targets}),
            *(replace(one, default=TOOL) if one.name == "engine.name" else one for one in RUN_INPUTS),
        ),
        roles=lambda architecture: (finetuning_role(architecture),),
        yields={"cost_per_token": {"output": trained, "all": trained}},
        axes=(METHODS, *AXES),
    )
)  # fmt: skip
