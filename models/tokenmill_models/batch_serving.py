"""The batch-serving stage: answers that may be given at any time of the day, as throughput work that keeps no latency.

It stands beside work that keeps the day's hours: hardware that is there for their peak is idle in their troughs, and costs nothing more.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tokenmill_models import inference_leaves as leaf
from tokenmill_models import serving_inputs
from tokenmill_models.architecture import Architecture
from tokenmill_models.batch_inference import ENGINE_AXES, ENGINE_INPUTS, always_full, arrival_defaults
from tokenmill_models.serving_load import YIELDS
from tokenmill_models.stage import Demand, Input, Role, Route, StageModel, register_stage

_KEPT = (
    "demand.growth_per_period", "demand.headroom", "demand.list_price.input", "demand.list_price.cached",
    "demand.list_price.output", "demand.prefix_cache_hit", "demand.classes", "demand.classes[].share",
    "demand.classes[].input_tokens", "demand.classes[].output_tokens", "demand.input_tokens", "demand.output_tokens",
)  # fmt: skip
INPUTS = (
    Input("model", "architecture", "the model that answers", required=True),
    Input("demand.requests_per_second", "number", "mean arrivals over the day, requests a second; each is answered within its day, at any time"),
    *(item for item in serving_inputs.INPUTS if item.name in _KEPT),
    *ENGINE_INPUTS,
)  # fmt: skip


@lru_cache(maxsize=16)
def bulk_role(arch: Architecture) -> Role:
    """Return the pool of replicas that are always full while they stand."""
    stands = {symbol: value for symbol, value in arrival_defaults().items() if symbol is not leaf.prefix_hit}
    return replace(always_full(arch, stands), name="bulk", kind="pool")


STAGE = register_stage(
    StageModel(
        name="batch_serving",
        doc="Answer requests within their day, at any time of it, as throughput work in the troughs of other work.",
        inputs=INPUTS,
        roles=lambda architecture: (bulk_role(architecture),),
        routes=(Route("bulk", ("bulk",)),),
        demand=Demand("request", "demand.requests_per_second", "demand.classes", anytime=True),
        yields=YIELDS,
        axes=tuple(ENGINE_AXES.values()),
    )
)
