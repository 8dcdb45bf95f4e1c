"""Pretraining: one run that passes over a corpus of tokens and trains every parameter."""

from __future__ import annotations

from functools import lru_cache

from tokenmill_models import training_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.stage import Input, Role, StageModel, register_stage
from tokenmill_models.training import full_passes
from tokenmill_models.training_layout import AXES
from tokenmill_models.training_run import RUN_INPUTS, Job, trained, training_role

INPUTS = (
    Input("model", "architecture", "the model to train", required=True),
    Input("tokens", "number", "training tokens", leaf.tokens, required=True),
    Input("sequence_length", "number", "tokens of a sequence", leaf.sequence, required=True, minimum=1),
    Input("global_batch", "number", "sequences of a step", leaf.global_batch, required=True, minimum=1),
    *RUN_INPUTS,
)


@lru_cache(maxsize=16)
def train_role(arch: Architecture) -> Role:
    """Return the run that trains every parameter of `arch`."""
    return training_role(arch, lambda graph, rows: Job(leaf.tokens, leaf.tokens, full_passes()))


PRETRAINING = register_stage(
    StageModel(
        name="pretraining",
        doc="Training of all parameters from the start on a corpus of tokens.",
        inputs=INPUTS,
        roles=lambda architecture: (train_role(architecture),),
        yields={"cost_per_token": {"output": trained, "all": trained}},
        axes=AXES,
    )
)
