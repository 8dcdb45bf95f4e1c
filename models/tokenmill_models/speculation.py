"""Speculative decoding: a cheap draft proposes tokens, one pass of the model checks them all.

A decode step then checks gamma + 1 tokens of every sequence and keeps those before the first miss, and one more.
"""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.formula import Graph, Source, maximum
from tokenmill_models.inference import Pass
from tokenmill_models.roofline import FLOP_PER_MAC, F, W, eta_F, eta_W
from tokenmill_models.symbols import declare

LEVIATHAN = Source(
    "Leviathan, Kalman and Matias 2023, Fast Inference from Transformers via Speculative Decoding, arXiv:2211.17192, equation 1"
)

speculates = declare("speculates", "1", "1 where tokens are drafted and checked, else 0", origin="axis.speculative")
gamma = declare("gamma_drafted", "1", "tokens drafted a step", origin="input.engine.speculative.gamma")
acceptance = declare(
    "acceptance_rate", "1", "probability that a drafted token is accepted", origin="input.engine.speculative.acceptance"
)
draft_parameters = declare(
    "draft_parameters", "1", "matrix elements that a token of the draft is multiplied with", origin="draft.parameters"
)
draft_layers = declare("draft_layers", "1", "layers of the draft", origin="draft.layers")
draft_kv = declare("draft_kv_elements", "1", "elements that the draft caches a token", origin="draft.kv_elements")

CODES = {"none": {speculates: 0.0}, "draft": {speculates: 1.0}}


def checked(graph: Graph) -> sp.Symbol:
    """Define the tokens of a sequence that a decode step computes [1]: those drafted, and the one after them."""
    return graph.let("tokens_checked", "1", "tokens of a sequence that a decode step computes", 1 + speculates * gamma)


def kept(graph: Graph) -> sp.Symbol:
    """Define the tokens that a decode step adds to a sequence [1]: (1 - alpha^(gamma+1))/(1 - alpha)."""
    return graph.let(
        "tokens_kept", "1", "tokens that a decode step adds to a sequence",
        (1 - acceptance ** checked(graph)) / (1 - acceptance), source=LEVIATHAN,
        assumes=("every drafted token is accepted with the same probability, independently",),
    )  # fmt: skip


def draft_weights() -> sp.Expr:
    """Bytes [B] of the draft's weights on a tensor rank."""
    return speculates * draft_parameters * leaf.bytes_weights / leaf.tp


def draft_cache(context: sp.Expr) -> sp.Expr:
    """Bytes [B] that the draft caches of a sequence of `context` tokens on a tensor rank."""
    return speculates * draft_kv * context * leaf.bytes_kv / leaf.tp


def draft_time(graph: Graph, sequences: sp.Expr, context: sp.Expr) -> sp.Symbol:
    """Define the time [s] that drafting takes a decode step: gamma passes of the draft over `sequences`."""
    read = (
        (draft_parameters * leaf.bytes_weights + sequences * draft_kv * context * leaf.bytes_kv) / leaf.tp / (W * eta_W)
    )
    computed = FLOP_PER_MAC * draft_parameters * sequences / leaf.tp / (F * eta_F)
    return graph.let(
        "draft_time", "s", "time that drafting takes a decode step",
        speculates * gamma * (maximum(read, computed) + draft_layers * leaf.layer_seconds_graph), source=LEVIATHAN,
        assumes=("the draft is cut over the same tensor ranks", "its exchanges hide in the gaps between its kernels"),
    )  # fmt: skip


def with_draft(graph: Graph, one: Pass, label: str, drafting: sp.Symbol) -> Pass:
    """Return a pass with the time of drafting before it; its counted work is that of the tokens kept."""
    time = graph.let(f"step_{label}", "s", f"time of {label} with drafting", one.time + drafting)
    memory = graph.let(
        f"memory_step_{label}", "s", f"memory time of {label} with drafting", one.shares["memory"] + drafting
    )
    counted = graph.let(
        f"kept_flop_{label}", "FLOP", f"counted work of the tokens of {label} that are kept",
        one.model_flops * kept(graph) / checked(graph),
    )  # fmt: skip
    return replace(one, time=time, model_flops=counted, shares={**one.shares, "memory": memory})
