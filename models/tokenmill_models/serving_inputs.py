"""The keys of a serving workload in a problem file."""

from __future__ import annotations

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.serving_figures import SLO
from tokenmill_models.speculation import acceptance, gamma
from tokenmill_models.stage import Input

_CLASS = "demand.classes[]."


def _lengths(prefix: str, required: bool = False) -> tuple[Input, ...]:
    prompt = {**leaf.input_percentiles, "cv": leaf.input_cv}
    answer = {**leaf.output_percentiles, "cv": leaf.output_cv}
    return (
        Input(f"{prefix}input_tokens", "lengths", "prompt tokens of a request: a number, or {mean, p95}",
              leaf.input_tokens, parts=prompt, required=required, minimum=1),
        Input(f"{prefix}output_tokens", "lengths", "answer tokens of a request: a number, or {mean, p95}",
              leaf.output_tokens, parts=answer, required=required, minimum=1),
    )  # fmt: skip


INPUTS = (
    Input("model", "architecture", "the model that is served", required=True),
    Input("demand.requests_per_second", "slices", "mean arrivals within a slice of the day, requests a second"),
    Input("demand.growth_per_period", "number", "growth of demand a period; compounds", default=0.0, minimum=-1.0),
    Input("demand.headroom", "number", "share above the demand that the pools must still carry", default=0.0),
    Input("demand.at_least", "number", "share of the demand that must be served; the rest may be, where that lowers the objective", default=1.0),
    Input("demand.at_most", "number", "share of the demand that can be served at most", default=1.0),
    Input("demand.list_price.input", "number", "what a prompt token brings", dimension="USD", default=0.0),
    Input("demand.list_price.cached", "number", "what a prompt token that the prefix cache holds brings; left out: as any prompt token", dimension="USD"),
    Input("demand.list_price.output", "number", "what an answer token brings", dimension="USD", default=0.0),
    Input("demand.arrivals.cv", "number", "variation of the gaps between arrivals; 1 is Poisson", leaf.arrival_cv, default=1.0),
    Input("demand.arrivals.concurrency", "number", "requests that closed-loop clients keep in flight over the workload; 0: open arrivals",
          leaf.concurrency, default=0.0),
    Input("demand.arrivals.rounds", "number", "requests that a closed-loop client sends in turn; all clients start at once",
          leaf.rounds, default=10.0, minimum=1),
    Input("demand.classes", "records", "request classes with their shares and lengths"),
    Input(f"{_CLASS}share", "number", "share of the requests", leaf.request_share, required=True, maximum=1.0),
    *_lengths(_CLASS, required=True),
    *_lengths("demand."),
    Input("demand.trace", "trace", "file of measured requests that states classes, rate, gaps and prefix hits",
          fills={"classes": "demand.classes", "rate": "demand.requests_per_second", "gap_cv": "demand.arrivals.cv",
                 "prefix_hit": "demand.prefix_cache_hit", "shared_head": "demand.prefix.tokens", "surge": "demand.headroom"}),
    Input("demand.prefix_cache_hit", "number", "share of prompt tokens found in the prefix cache", leaf.prefix_hit, default=0.0, maximum=1.0),
    *(
        Input(f"slo.{name}", "percentiles", f"most time: {title}", dimension="s", parts=SLO[name])
        for name, title in (("ttft", "to first token"), ("tpot", "per output token"), ("e2e", "of a whole request"))
    ),
    Input("engine.name", "name", "serving engine; an unknown one takes the generic class", default="generic"),
    Input("engine.version", "name", "version of the engine, free text: a release, or the day of a build (2026-04-17)"),
    Input("engine.graph", "flag", "whether steps are launched as a captured graph", leaf.graph_launch, default=True),
    Input("engine.two_batches", "flag", "pools apart: whether a pass goes in two halves, one computing while the other is exchanged between experts",
          leaf.two_batches, default=False),
    Input("engine.context_limit", "number", "longest sequence the engine must hold, tokens", leaf.context_limit, minimum=1),
    Input("engine.kv_memory", "number", "KV bytes a chip, held", leaf.held_kv, dimension="B", default=0.0),
    Input("engine.reserved_tokens", "number", "contiguous cache: tokens that every sequence reserves from its start; 0: pages as it grows",
          leaf.reserved_tokens, default=0.0),
    Input("engine.speculative.draft", "name", "model that drafts; mtp or eagle: a layer of the served model; ngram: costs nothing", default="ngram",
          of="model", among=("mtp", "eagle", "ngram")),
    Input("engine.speculative.gamma", "number", "tokens drafted a step", gamma, default=4.0, minimum=1),
    Input("engine.speculative.acceptance", "number", "probability that a drafted token is accepted", acceptance, default=0.7, maximum=0.999),
    Input("memory_fraction", "number", "share of a device's memory that the engine takes", leaf.memory_fraction, default=0.9, maximum=1.0),
    Input("mfu", "number", "model FLOPs utilisation laid down; 0: predicted", leaf.mfu_assumed, default=0.0, maximum=1.0),
    Input("mfu_peak", "name", "precision whose dense peak MFU is counted against", default="bf16", of="precision"),
    Input("expert_load", "number", "tokens of the fullest expert rank over the mean", leaf.expert_load, default=1.0, minimum=1.0),
    Input("layout.chips", "number", "chips of a replica", leaf.held_chips, minimum=1),
)  # fmt: skip
