"""A prefix cache that stands outside the chips, in host memory or on SSDs: what is found there is read back before a prompt begins."""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.inference_memory import sequence_bytes
from tokenmill_models.queueing import ONE_PERCENTILE, PERCENTILES, RHO_STATED
from tokenmill_models.speculation import draft_cache
from tokenmill_models.stage import Input, Role, Rule
from tokenmill_models.symbols import declare

RELOAD = Source(
    "Qin et al. 2024, Mooncake, arXiv:2407.00079, section 4: a prefix pays where it is read faster than it is computed; a link shared by turns (processor sharing, Kleinrock 1976) takes x/(1-rho)",
    ("every chip reads its own part of the cache, all of them at once", "reading goes on beside the steps of other requests"),
)  # fmt: skip
KEY = "engine.cache_store.bandwidth"
bandwidth = declare("stored_cache_bandwidth", "B/s", "rate at which a chip reads back what is kept of the prefix cache", origin=f"input.{KEY}", sign="positive")  # fmt: skip
kept = declare("kept_tokens", "1", "tokens whose cache is kept outside the chips", origin="input.engine.cache_store.tokens")  # fmt: skip
price = declare("stored_cache_price", "USD/B/s", "price of keeping a byte of it for a second", origin="input.engine.cache_store.price")  # fmt: skip
INPUTS = (
    Input(KEY, "number", "rate at which a chip reads back the prefix cache from host memory or SSDs, one direction; left out: what is found is in the chips' own memory",
          bandwidth, dimension="B/s"),
    Input("engine.cache_store.tokens", "number", "tokens whose cache is kept there", kept, default=0.0),
    Input("engine.cache_store.price", "number", "price of keeping it, such as \"$0.21/GB/month\"; shown beside the plan, no part of its cost", price,
          dimension="USD/B/s", default=0.0),
)  # fmt: skip


def with_store(role: Role, arch: Architecture) -> Role:
    """Return a serving role that reads back what the prefix cache finds; one that computes no prompts stays as it is.

    The time to first token grows by the reading; the steps do not, but a link can carry no more than its time.
    """
    graph = Graph(dict(role.graph.formulas))
    named = {symbol.name: symbol for symbol in graph.formulas}
    again = _again(named)
    if again is None:
        return role
    share = sequence_bytes(arch, named["cached_tokens"], leaf.tp, leaf.pp) + draft_cache(named["cached_tokens"])
    alone = graph.let("reload_alone", "s", "time to read back what is found of a mean prompt's cache, alone on the link", leaf.ranks_a_chip * share / bandwidth, source=RELOAD)  # fmt: skip
    busy = graph.let("reload_share", "1", "share of time that a chip's link reads back", named["rate"] * alone / leaf.attention_dp, source=RELOAD)  # fmt: skip
    reload = graph.let("reload_time", "s", "time to read back what is found of a mean prompt's cache", alone / (1 - minimum(busy, RHO_STATED)), source=RELOAD)  # fmt: skip
    for word in PERCENTILES:
        longer = leaf.input_percentiles[word] / leaf.input_tokens if word in ONE_PERCENTILE else sp.Integer(1)
        formula = graph.formulas[named[f"ttft_{word}"]]
        told = int(
            named["ttft_mean"] in formula.expr.free_symbols
        )  # a percentile made of the mean has its reading by it
        graph.formulas[formula.symbol] = replace(formula, expr=formula.expr + (longer - told) * reload)
    rule = Rule("cache_store", busy, sp.Integer(1), "at_most", "the link to the kept cache carries what is read back", cure=KEY)  # fmt: skip
    figures = {**role.figures, **_figures(graph, arch, reload, again)}
    remark = {"cache_store.longer": "longer to read the cache back than to compute it anew"}
    return replace(role, graph=graph, rules=(*role.rules, rule), figures=figures, remarks={**role.remarks, **remark})


def _again(named: dict[str, sp.Symbol]) -> sp.Expr | None:
    """Return the time [s] that computing what is found would take; None where the role computes no prompts."""
    if "chunk_token_time" in named:
        return named["cached_tokens"] * (named["chunk_token_time"] + named["T_plain"] / named["prefill_budget"])
    return named["cached_tokens"] * named["prompt_token_time"] if "prompt_token_time" in named else None


def _figures(graph: Graph, arch: Architecture, reload: sp.Symbol, again: sp.Expr) -> dict[str, sp.Symbol]:
    """Define what a plan shows of the kept cache."""
    anew = graph.let("recompute_time", "s", "time that computing what is found would take", again)
    size = graph.let(
        "cache_kept", "B", "size of the cache that is kept, each token once",
        kept * sequence_bytes(arch, leaf.input_tokens, sp.Integer(1), sp.Integer(1)) / leaf.input_tokens,
    )  # fmt: skip
    return {
        "cache_store.reload": reload,
        "cache_store.recompute": anew,
        "cache_store.longer": graph.let(
            "reload_longer", "s", "what reading back takes beyond computing anew", maximum(0, reload - anew)
        ),
        "cache_store.bytes": size,
        "cache_store.cost": graph.let("cache_cost", "USD/s", "cost of keeping the cache", size * price),
    }
