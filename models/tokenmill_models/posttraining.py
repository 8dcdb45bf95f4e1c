"""Supervised tuning and preference tuning: runs over examples, packed or padded, with or without a reference model."""

from __future__ import annotations

from functools import lru_cache

import sympy as sp

from tokenmill_models import training_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.formula import Graph, Source, minimum
from tokenmill_models.stage import Input, Role, StageModel, register_stage
from tokenmill_models.symbols import declare
from tokenmill_models.training import Passes, full_passes
from tokenmill_models.training_layout import AXES
from tokenmill_models.training_memory import Recipe
from tokenmill_models.training_run import RUN_INPUTS, Job, trained, training_role

DPO = Source("Rafailov et al. 2023, Direct Preference Optimization, arXiv:2305.18290, section 4")
PACKING = Source("Krell et al. 2021, Efficient Sequence Packing without Cross-contamination, arXiv:2107.02027")

examples = declare("examples", "1", "examples of a pass over the data", origin="input.examples", sign="positive")
pairs = declare("pairs", "1", "pairs of answers of a pass over the data", origin="input.pairs", sign="positive")
example_tokens = declare(
    "tokens_per_example",
    "1",
    "tokens of an example, prompt and answer",
    origin="input.tokens_per_example",
    sign="positive",
)
epochs = declare("epochs", "1", "passes over the data", origin="input.epochs", sign="positive")
packing = declare("packing", "1", "1 where examples share a sequence, each seeing itself alone", origin="input.packing")
reference = declare(
    "reference", "1", "1 where a frozen reference model reads every answer too", origin="input.reference_model"
)

_EXAMPLES = (
    Input("model", "architecture", "the model to tune", required=True),
    Input("tokens_per_example", "number", "tokens of an example, prompt and answer", example_tokens, required=True, minimum=1),
    Input("epochs", "number", "passes over the data", epochs, default=1),
    Input("packing", "flag", "examples share a sequence, each seeing itself alone; false: each is padded to a whole one", packing, default=True),
    Input("sequence_length", "number", "tokens of a sequence", leaf.sequence, default=4096, minimum=1),
    Input("global_batch", "number", "sequences of a step", leaf.global_batch, default=128, minimum=1),
)  # fmt: skip


def _tokens(graph: Graph, count: sp.Expr) -> tuple[sp.Symbol, sp.Symbol, sp.Expr]:
    """Define the tokens of `count` examples an epoch, as given and with padding; return them and the mean keys before a token."""
    length = minimum(example_tokens, leaf.sequence)
    useful = graph.let("given_tokens", "1", "tokens of the examples, cut to a sequence", count * epochs * length)
    padded = graph.let(
        "padded_tokens", "1", "tokens that the run passes over",
        packing * useful + (1 - packing) * count * epochs * leaf.sequence, source=PACKING,
    )  # fmt: skip
    return useful, padded, (packing * length + (1 - packing) * leaf.sequence) / 2


def _sft(graph: Graph, rows: sp.Expr) -> Job:
    useful, padded, keys = _tokens(graph, examples)
    passes = full_passes()
    return Job(padded, useful, Passes(passes.matmul, passes.attention, passes.vector, keys=keys))


def _preference(graph: Graph, rows: sp.Expr) -> Job:
    """Policy forward and backward on both answers of a pair, the reference forward on both: a pass more, and its weights."""
    useful, padded, keys = _tokens(graph, 2 * pairs)
    passes = full_passes()
    more = Passes(
        passes.matmul + reference, passes.attention + reference, passes.vector + reference, passes.counted + reference,
        keys, reference,
    )  # fmt: skip
    return Job(padded, useful, more, Recipe(frozen_copies=reference))


@lru_cache(maxsize=16)
def sft_role(arch: Architecture) -> Role:
    """Return the run that tunes every parameter of `arch` on examples."""
    return training_role(arch, _sft)


@lru_cache(maxsize=16)
def preference_role(arch: Architecture) -> Role:
    """Return the run that tunes every parameter of `arch` on pairs of answers (source: DPO, arXiv:2305.18290)."""
    return training_role(arch, _preference)


_YIELDS = {"cost_per_token": {"output": trained, "all": trained}}

SFT = register_stage(
    StageModel(
        name="sft",
        doc="Supervised tuning of all parameters on examples.",
        inputs=(Input("examples", "number", "examples of a pass over the data", examples, required=True), *_EXAMPLES, *RUN_INPUTS),
        roles=lambda architecture: (sft_role(architecture),),
        yields=_YIELDS,
        axes=AXES,
    )
)  # fmt: skip
PREFERENCE = register_stage(
    StageModel(
        name="preference",
        doc="Preference tuning of all parameters on pairs of answers, against a frozen reference model (DPO).",
        inputs=(
            Input("pairs", "number", "pairs of answers of a pass over the data", pairs, required=True),
            Input(
                "reference_model", "flag", "a frozen copy of the model reads every answer too", reference, default=True
            ),
            *_EXAMPLES,
            *RUN_INPUTS,
        ),
        roles=lambda architecture: (preference_role(architecture),),
        yields=_YIELDS,
        axes=AXES,
    )
)
