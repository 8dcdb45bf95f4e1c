"""The leaves, keys and choices of an evaluation: prompts answered several times, and perhaps judged, with no latency to keep."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.batch_inference import ENGINE_AXES, ENGINE_INPUTS, LENGTHS, arrival_defaults
from tokenmill_models.stage import Axis, Input
from tokenmill_models.symbols import declare

prompts = declare("eval_prompts", "1", "prompts of the suite", origin="input.prompts", sign="positive")
passes = declare(
    "eval_passes",
    "1",
    "answers to each prompt: repeated passes, or votes of a majority",
    origin="input.passes",
    sign="positive",
)
replicas = declare("eval_replicas", "1", "replicas that share the prompts", origin="axis.replicas", sign="positive")
judged = "judge.model"

REPLICAS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
DOUBLED = (1, 2, 4, 8, 16, 32, 64)
"""Replicas of a pool that is paired with another: every pair of sizes is looked at."""
AXES = {
    **ENGINE_AXES,
    "replicas": Axis("replicas", "layout.replicas", REPLICAS, "replicas that share the prompts", replicas),
}


def _own(prefix: str) -> dict[str, tuple[sp.Symbol, dict[str, sp.Symbol]]]:
    """Declare the lengths of one kind of request as inputs of the workload: key to mean and parts."""
    word = prefix.rstrip(".").replace(".", "_") or "eval"
    found = {}
    for key, (mean, parts) in LENGTHS.items():
        title = f"tokens of the {'judge' if prefix else 'model'}: {key}"
        own = declare(f"{word}_{mean.name}", "1", f"mean {title}", origin=f"input.{prefix}{key}", sign="positive")
        inner = {
            name: declare(f"{word}_{symbol.name}", "1", f"{name} of {title}", origin=f"input.{prefix}{key}.{name}",
                          sign="positive" if symbol.is_positive else "nonnegative")
            for name, symbol in parts.items()
        }  # fmt: skip
        found[prefix + key] = (own, inner)
    return found


ANSWERS, JUDGEMENTS = _own(""), _own("judge.")


def substitution(own: dict[str, tuple[sp.Symbol, dict[str, sp.Symbol]]]) -> dict[sp.Symbol, sp.Expr]:
    """Return what stands for the leaves of serving: the lengths of this workload, and the defaults of what arrives by itself."""
    found = arrival_defaults()
    for key, (mean, parts) in own.items():
        serving_mean, serving_parts = LENGTHS[key.rpartition(".")[2]]
        found[serving_mean] = mean
        found |= {serving_parts[name]: symbol for name, symbol in parts.items()}
    return found


def _lengths(
    own: dict[str, tuple[sp.Symbol, dict[str, sp.Symbol]]], whose: str, default: dict[str, float]
) -> tuple[Input, ...]:
    return tuple(
        Input(key, "lengths", f"{whose}: a number, or {{mean, p95}}", mean, parts=parts, minimum=1,
              required=not default, default=default.get(key.rpartition(".")[2]))
        for key, (mean, parts) in own.items()
    )  # fmt: skip


INPUTS = (
    Input("model", "architecture", "the model that is evaluated", required=True),
    Input("prompts", "number", "prompts of the suite", prompts, required=True, minimum=1),
    Input("passes", "number", "answers to each prompt: repeated passes, or votes of a majority", passes, default=1.0, minimum=1),
    *_lengths(ANSWERS, "tokens of a prompt or of its answer", {}),
    Input(judged, "architecture", "a model that judges every answer"),
    *_lengths(JUDGEMENTS, "tokens that the judge reads or writes for an answer", {"input_tokens": 2000.0, "output_tokens": 200.0}),
    Input("interruptible", "flag", "whether work may be stopped and done again elsewhere: it may stand on spot systems", default=True),
    *ENGINE_INPUTS,
)  # fmt: skip
