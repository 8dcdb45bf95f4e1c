"""The serving stage: mixed pools, or prefill and decode pools apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenmill_models import (
    serving_adapters,
    serving_images,
    serving_prefix,
    serving_shared,
    serving_store,
    serving_transfer,
)
from tokenmill_models.architecture import Architecture
from tokenmill_models.batch_inference import rewritten
from tokenmill_models.serving_axes import AXES
from tokenmill_models.serving_inputs import INPUTS
from tokenmill_models.serving_load import YIELDS
from tokenmill_models.serving_mixed import mixed_role
from tokenmill_models.serving_split import decode_role, prefill_role
from tokenmill_models.stage import Coupling, Demand, Role, Route, StageModel, register_stage


def roles(arch: Architecture) -> tuple[Role, ...]:
    """Return the roles that can serve a model."""
    return (mixed_role(arch), prefill_role(arch), decode_role(arch))


def _staffed(arch: Architecture, _: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[Role, ...]:
    """Return the roles with what the workload's values call for: images to encode, a prefix that prompts share, a cache outside the chips, adapters, other models beside it."""
    made = roles(arch)
    if serving_images.asked(arch, values):
        stands = serving_images.longer_prompts(arch)
        seeing = (mixed_role(arch, images=True), prefill_role(arch, images=True), decode_role(arch))
        made = tuple(rewritten(role, stands) for role in seeing)
    if values.get(serving_prefix.TOKENS):
        made = tuple(serving_prefix.with_prefix(role, arch) for role in made)
    if values.get(serving_store.KEY):
        made = tuple(serving_store.with_store(role, arch) for role in made)
    if values.get(serving_adapters.COUNT):
        made = tuple(serving_adapters.with_adapters(role, arch) for role in made)
    if serving_shared.asked(values.get(serving_shared.KEY)):
        made = tuple(serving_shared.with_share(role) for role in made)
    return made


STAGE = register_stage(
    StageModel(
        name="serving",
        doc="Answer requests within limits on time to first token and time per output token.",
        inputs=(
            *INPUTS,
            *serving_prefix.INPUTS,
            *serving_store.INPUTS,
            *serving_adapters.INPUTS,
            *serving_images.INPUTS,
            *serving_transfer.INPUTS,
        ),
        roles=roles,
        staffed=_staffed,
        routes=(
            Route("mixed", ("mixed",), {"engine.disaggregated": (False,)}),
            Route("split", ("prefill", "decode"), {"engine.disaggregated": (True,)}),
        ),
        couplings=(Coupling("prefill", "decode", "kv", "kv_request", match=("kv",)),),
        demand=Demand(
            "request",
            "demand.requests_per_second",
            "demand.classes",
            "demand.arrivals.concurrency",
            elastic=("demand.at_least", "demand.at_most"),
            seen=("slo.ttft", "slo.e2e"),
        ),
        yields=YIELDS,
        axes=(*AXES.values(), serving_shared.AXIS),
    )
)
