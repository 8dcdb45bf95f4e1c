"""A prefix that all prompts share (a system prompt): its cache is held once, and no prompt computes it again."""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.batch_inference import rewritten
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.inference_memory import sequence_bytes
from tokenmill_models.speculation import draft_cache
from tokenmill_models.stage import Input, Role, Rule
from tokenmill_models.symbols import declare

SHARING = Source(
    "Kwon et al. 2023, PagedAttention, arXiv:2309.06180, section 4.4: blocks of a shared prefix are held once and counted by their readers",
    ("only whole blocks are shared", "a window that has passed the prefix holds none of it"),
)
TOKENS = "demand.prefix.tokens"
tokens = declare(
    "prefix_tokens", "1", "tokens at the head of every prompt that requests share", origin=f"input.{TOKENS}"
)
count = declare(
    "prefix_count", "1", "different prefixes, chosen evenly", origin="input.demand.prefix.count", sign="positive"
)
INPUTS = (
    Input(TOKENS, "number", "tokens at the head of every prompt that requests share (a system prompt): held once, and found in the prefix cache", tokens, default=0.0),
    Input("demand.prefix.count", "number", "different such prefixes, all of them held; requests choose among them evenly", count, default=1.0, minimum=1, whole=True),
)  # fmt: skip


def with_prefix(role: Role, arch: Architecture) -> Role:
    """Return a serving role whose running sequences share the cache of the prefix of their prompts.

    The share of prompts that is found in the cache is the prefix at least, whatever else is stated. A prefix longer than
    the prompts of a class leaves no layout.
    """
    held = minimum(leaf.block * sp.floor(tokens / leaf.block), leaf.input_tokens)
    role = rewritten(role, {leaf.prefix_hit: maximum(leaf.prefix_hit, held / leaf.input_tokens)})
    graph = Graph(dict(role.graph.formulas))
    named = {symbol.name: symbol for symbol in graph.formulas}
    cached, sequence, room = (named[name] for name in ("kv_cached", "kv_sequence", "kv_room"))
    alone = graph.let("kv_alone", "1", "tokens of a running sequence behind the shared prefix", maximum(0, cached - held), source=SHARING)  # fmt: skip
    apart = sequence_bytes(arch, cached, leaf.tp, leaf.pp) - sequence_bytes(arch, alone, leaf.tp, leaf.pp)
    shared = graph.let(
        "kv_shared", "B", "cache of a prefix that running sequences share, on a rank",
        sp.Piecewise((0 * apart, leaf.reserved_tokens > 0), (apart + draft_cache(cached - alone), True)), source=SHARING,
        assumes=("a contiguous cache shares nothing",),
    )  # fmt: skip
    fits = leaf.attention_dp * sp.floor(maximum(0, room - count * shared) / (sequence - shared))
    _defined(graph, named["max_batch"], fits)
    if "memory_cached" in named:
        running = graph.formulas[named["memory_cached"]].expr / (sequence / leaf.attention_dp)
        _defined(graph, named["memory_cached"], running / leaf.attention_dp * (sequence - shared) + count * shared)
    longest = Rule("prefix", tokens, leaf.input_tokens, "at_most", "the prefix that prompts share is no longer than they are", cure=TOKENS)  # fmt: skip
    return replace(role, graph=graph, rules=(*role.rules, longest), figures={**role.figures, "kv_shared": shared})


def _defined(graph: Graph, symbol: sp.Symbol, expr: sp.Expr) -> None:
    formula = graph.formulas[symbol]
    graph.formulas[symbol] = replace(formula, expr=expr, source=SHARING)
