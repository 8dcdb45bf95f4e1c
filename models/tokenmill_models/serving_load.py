"""What a request asks of a replica, how long requests wait, and the tails: shared by the roles of serving."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.inference_memory import Memory
from tokenmill_models.operations_attention import cache_share
from tokenmill_models.queueing import ONE_PERCENTILE, RHO_STATED, define_wait
from tokenmill_models.roofline import W
from tokenmill_models.speculation import kept
from tokenmill_models.symbols import declare

INSPECTION = Source(
    "renewal theory: a request met at a random moment has, in the mean, made E[X²]/(2E[X]) = E[X](1+cv²)/2 of its X tokens"
)
TAILS = Source(
    "independent excesses add by squares, as standard deviations do; exact for normal parts",
    ("the median adds the signed differences",),
)
CROWD = Source(
    "birth and death with a pace that falls by what runs: n requests leave at n/(N(a + b n)) a second, so P(n)/P(n-1) = q (1 + a/(b n)), q = rate N b",
    (
        "that is a negative binomial distribution: its variance is 1/(1-q) of its mean, as if c(1-q) slots were had apart",
        "while all slots are held a request takes N(a + b c), and those who wait leave at c/(N(a + b c)): the wait of c(1-q) such servers",
    ),
)
YIELDS = {
    "cost_per_token": {
        "output": leaf.output_tokens,
        "input": leaf.input_tokens,
        "all": declare("all_tokens", "1", "prompt and answer tokens a request"),
        "cached": declare("cached_tokens", "1", "prompt tokens a request that the prefix cache holds"),
    }
}
"""What requests are made of, by the name under which a cost is counted [1]."""


@dataclass(frozen=True)
class Request:
    """Sizes of a mean request: prompt tokens to compute, answer tokens after the first, decode steps that write them, mean context while it runs, mean keys of its prompt [1]."""

    computed: sp.Symbol
    answer: sp.Symbol
    steps: sp.Symbol
    context: sp.Symbol
    prompt_keys: sp.Symbol
    all_tokens: sp.Symbol
    cached_tokens: sp.Symbol
    group_batch: sp.Symbol
    active_groups: sp.Symbol
    closed: sp.Symbol


def prompt_keys(graph: Graph) -> sp.Symbol:
    """Define the keys [1] that a computed prompt token sees in the mean: long prompts hold more of the tokens than of the prompts."""
    alone = (1 - leaf.prefix_hit) * (1 + leaf.input_cv**2) / 2
    return graph.let(
        "prompt_keys", "1", "mean keys a computed prompt token sees", leaf.input_tokens * (leaf.prefix_hit + alone),
        source=INSPECTION, assumes=("what is found in the cache and what is computed vary apart",),
    )  # fmt: skip


def define_request(graph: Graph, running: sp.Expr) -> Request:
    """Define what follows from the lengths of a request and from `running` sequences on a replica."""
    inside = graph.let(
        "group_batch",
        "1",
        "sequences of a group: one attention group at one pipeline stage",
        maximum(1, running / leaf.groups),
    )
    answer = graph.let(
        "answer_tokens",
        "1",
        "tokens written after the first, which comes with the prompt",
        maximum(1, leaf.output_tokens - 1),
    )
    return Request(
        computed=graph.let("prompt_computed", "1", "prompt tokens to compute", maximum(1, leaf.input_tokens * (1 - leaf.prefix_hit))),
        answer=answer,
        steps=graph.let("decode_steps", "1", "decode steps a request", answer / kept(graph)),
        context=running_context(graph),
        prompt_keys=prompt_keys(graph),
        all_tokens=graph.let("all_tokens", "1", "prompt and answer tokens a request", leaf.input_tokens + leaf.output_tokens),
        cached_tokens=graph.let("cached_tokens", "1", "prompt tokens a request that the prefix cache holds", leaf.input_tokens * leaf.prefix_hit),
        group_batch=inside,
        active_groups=graph.let("active_groups", "1", "groups that have a sequence", running / inside),
        closed=closed_loop(graph),
    )  # fmt: skip


def closed_loop(graph: Graph) -> sp.Symbol:
    """Define the flag of closed-loop clients: 1 where they keep a number of requests in flight, else 0."""
    return graph.let(
        "closed_loop", "1", "1 where clients keep a number of requests in flight", minimum(1, leaf.concurrency)
    )


def running_context(graph: Graph) -> sp.Symbol:
    """Define the tokens that a running sequence holds at a random moment."""
    return graph.let(
        "context", "1", "mean tokens cached of a running sequence",
        leaf.input_tokens + leaf.output_tokens * (1 + leaf.output_cv**2) / 2, source=INSPECTION,
    )  # fmt: skip


def combine(
    graph: Graph, name: str, title: str, parts: list[dict[str, sp.Expr]], extra: sp.Expr
) -> dict[str, sp.Symbol]:
    """Define mean and percentiles [s] of a sum of independent parts ({mean, p50, p95, p99: expression}) plus a constant."""
    mean = graph.let(f"{name}_mean", "s", f"mean {title}", sp.Add(*(part["mean"] for part in parts)) + extra)
    found = {"mean": mean}
    for word in ONE_PERCENTILE:
        differences = [part[word] - part["mean"] for part in parts]
        if word == "p50":
            spread = sp.Add(*differences)
        else:
            spread = sp.sqrt(sp.Add(*(maximum(0, difference) ** 2 for difference in differences)))
        found[word] = graph.let(f"{name}_{word}", "s", f"{word} {title}", mean + spread, source=TAILS)
    return found


def prefill_steps(tokens: sp.Expr, budget: sp.Expr) -> sp.Expr:
    """Steps [1] that a prompt of `tokens` takes with `budget` tokens a step; one at least, the last may be partly filled."""
    return maximum(1, tokens / budget)


def computed_percentile(word: str) -> sp.Expr:
    """Prompt tokens to compute at a percentile of the prompt lengths."""
    return maximum(1, leaf.input_percentiles[word] * (1 - leaf.prefix_hit))


def slot_wait(
    graph: Graph, request: Request, memory: Memory, hold: sp.Symbol, brought: sp.Expr | int = 0
) -> dict[str, sp.Expr]:
    """Define how long a request of open arrivals waits for a slot that each is held for `hold` [s] in the mean: mean and percentiles [s].

    Steps last longer by the cache that every sequence more reads, and by the time `brought` [s] that its prompt asks of each of its steps.
    """
    slots, running = maximum(1, memory.max_batch), leaf.batch
    read = memory.token * request.context / (W * cache_share * leaf.attention_dp)
    slope = graph.let(
        "slot_slope", "s", "time that a running sequence more adds to a step of a replica's groups",
        read + brought / leaf.groups,
    )  # fmt: skip
    crowd = graph.let(
        "slot_crowding", "1", "share by which a request's stay grows where twice as many run",
        minimum(RHO_STATED, running * request.steps * slope / hold), source=CROWD,
    )  # fmt: skip
    full = graph.let(
        "slot_time_full", "s", "time a request holds a slot while all are held",
        hold * (1 + crowd * maximum(0, slots / running - 1)), source=CROWD,
    )  # fmt: skip
    apart = graph.let(
        "slots_apart", "1", "slots that independent requests would wait as long for", slots * (1 - crowd), source=CROWD
    )
    wait = define_wait(graph, "slot", running / slots, apart, full, leaf.arrival_cv**2, leaf.output_cv**2)
    return {word: (1 - request.closed) * symbol for word, symbol in wait.items()}
