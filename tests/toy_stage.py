"""A stage of no use but to read problem files with: a pool with classes, and a run."""

import sympy as sp

from tokenmill_models.stage import Axis, Demand, Input, Route, StageModel

RATE = sp.Symbol("toy_rate", nonnegative=True)
TOKENS = sp.Symbol("toy_tokens", positive=True)
TPOT = sp.Symbol("toy_tpot", nonnegative=True)

POOL = StageModel(
    name="toy",
    doc="Answers requests",
    inputs=(
        Input("model", "architecture", "model served", required=True),
        Input("demand.requests_per_second", "slices", "rate of requests", RATE, "1/s", required=True),
        Input("demand.growth_per_period", "number", "growth", default=0.0, minimum=-1.0),
        Input("demand.classes", "records", "classes of requests"),
        Input("demand.classes[].share", "number", "share", maximum=1.0),
        Input("demand.classes[].input_tokens", "lengths", "prompt", TOKENS, required=True),
        Input("demand.classes[].output_tokens", "lengths", "answer", TOKENS, required=True),
        Input("demand.list_price.output", "number", "price asked", dimension="USD"),
        Input("slo.tpot", "percentiles", "time a token", dimension="s", parts={"p95": TPOT}),
        Input("engine.name", "name", "engine", default="generic"),
        Input("engine.graph", "flag", "graph launch", default=True),
        Input("engine.kv_memory", "number", "bytes a chip", dimension="B"),
        Input("tool.core_seconds", "number", "processor time", dimension="s", default=1.0),
        Input("quality", "table", "quality by precision", maximum=1.0),
        Input("tools", "records", "tools"),
        Input("tools[].latency", "number", "latency", dimension="s", required=True),
    ),
    roles=lambda architecture: (),
    routes=(
        Route("whole", ("mixed",), {"engine.disaggregated": (False,)}),
        Route("split", ("prefill", "decode"), {"engine.disaggregated": (True,)}),
    ),
    demand=Demand("request", "demand.requests_per_second", "demand.classes"),
    yields={"cost_per_token": {"output": TOKENS, "all": TOKENS}},
    axes=(
        Axis("tp", "layout.tp", (1, 2, 4, 8), "tensor degree"),
        Axis("weights", "precision.weights", ("bf16", "fp8"), "weights", default=("published",)),
        Axis("chunk", "engine.chunk", (512, 2048, 8192), "tokens a step"),
        Axis("batch", "engine.batch", (1, 2, 4), "running sequences", operate=True),
        Axis("disaggregated", "engine.disaggregated", (True, False), "separate pools"),
        Axis("schedule", "layout.schedule", ("1f1b", "interleaved"), "pipeline", codes={"1f1b": {}, "interleaved": {}}),
    ),
)
RUN = StageModel(
    name="toyrun",
    doc="Runs to an end",
    inputs=(
        Input("model", "architecture", "model trained", required=True),
        Input("tokens", "number", "tokens trained on", TOKENS, required=True),
        Input("optimizer", "choice", "optimiser", among=("adam", "muon"), default="adam"),
        Input("checkpoint.store", "name", "store", default="parallel-fs"),
    ),
    roles=lambda architecture: (),
    axes=(Axis("tp", "layout.tp", (1, 2, 4, 8), "tensor degree"),),
)
STAGES = {"toy": POOL, "toyrun": RUN}
