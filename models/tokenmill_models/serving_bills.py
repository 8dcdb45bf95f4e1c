"""What computed prompt tokens, cached ones and answer tokens each take of a pool's time: their three bills sum to its cost."""

from __future__ import annotations

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.operations_parts import arch_leaf
from tokenmill_models.roofline import memory_time
from tokenmill_models.serving_load import Request
from tokenmill_models.symbols import constant

BILLS = Source(
    "attribution by time: a cached token costs what the computed ones take to attend to it, an answer token a step of its own",
    (
        "attention's roofline time grows with the keys that a computed token sees; those found in the cache are their share of it",
        "products, exchanges and launches of a prompt are its computed tokens' alone",
        "decode reads the cache of every prompt, found or computed, for the answer that it writes",
    ),
)
# keeps a division by zero out of a step without a chunk
LEAST = constant("least_prompt_seconds", 1e-12, "s", "a time of prompts that is none")


def token_shares(
    graph: Graph, arch: Architecture, request: Request, added: sp.Expr, label: str, prompts: sp.Expr
) -> dict[str, sp.Symbol]:
    """Return the shares of a pool's time by kind of token: prompts (computed and cached), the cached among them, answers.

    `added` [s]: time that a chunk of prompts adds to the pass `label`; `prompts`: share of the pool's time that chunks take. A step
    without prompts is the answers'.
    """
    found = _cached_time(graph, arch, request, label)
    cached = minimum(1, found / maximum(added, LEAST))
    share = graph.let("prompt_share", "1", "share of the time that prompts take", prompts)
    rest = graph.let("answer_share", "1", "share of the time that answers take", 1 - share)
    within = graph.let(
        "cached_share", "1", "share of the time that cached prompt tokens take: attention to them", share * cached, source=BILLS
    )  # fmt: skip
    return {"token_shares.input": share, "token_shares.cached": within, "token_shares.output": rest}


def answers_alone(graph: Graph) -> dict[str, sp.Symbol]:
    """Return the shares of a pool that writes answers alone."""
    names = {"input": ("prompt_share", 0), "cached": ("cached_share", 0), "output": ("answer_share", 1)}
    return {
        f"token_shares.{kind}": graph.let(name, "1", f"share of the time that {kind} tokens take", sp.Integer(value))
        for kind, (name, value) in names.items()
    }


def _cached_time(graph: Graph, arch: Architecture, request: Request, label: str) -> sp.Symbol:
    """Define the time [s] that the prompt tokens of a pass attend to what the prefix cache held."""
    named = {symbol.name for symbol in graph.formulas}
    total = arch_leaf("layer_count")
    uneven = leaf.pp * sp.ceiling(total / leaf.pp) / total
    terms = []
    for i in range(len(arch.layers)):
        for part in ("attention", "indexer"):
            name = next((n for n in (f"{label}_{i}_{part}_beside", f"{label}_{i}_{part}") if f"T_{n}" in named), None)
            if name is not None:
                busy = maximum(graph.named(f"C_{name}"), memory_time(name))
                terms.append(arch_leaf(f"layers.{i}.count") * busy)
    return graph.let(
        f"cached_time_{label}", "s", f"time of {label} that computed prompt tokens attend to cached ones",
        sp.Add(*terms) * uneven * request.cached_tokens / request.prompt_keys, source=BILLS,
        assumes=("windows and top-k selections see cached and computed keys alike",),
    )  # fmt: skip
