"""Values of a serving role's leaves in tests: one domain of fast links, fixed request lengths, no overhead unless asked."""

from typing import Any

from sample_leaves import leaf_values
from tokenmill_models.architecture import Architecture
from tokenmill_models.compile import Compiled, compile_graph
from tokenmill_models.formula import Graph
from tokenmill_models.stage import Role

ORIGINS = {
    "axis.tp": 1.0, "axis.pp": 1.0, "axis.ep": 1.0, "axis.attention_dp": 1.0, "axis.chunk": 2048.0, "axis.batch": 16.0,
    "axis.utilisation": 0.7, "precision.bytes[weights]": 2.0, "precision.bytes[experts]": 2.0, "precision.bytes[kv]": 2.0, "precision.tile[experts]": 1.0,
    "request.input_tokens": 1000.0, "request.output_tokens": 201.0, "input.demand.prefix_cache_hit": 0.0,
    "input.demand.arrivals.cv": 1.0, "input.demand.arrivals.concurrency": 0.0, "input.demand.arrivals.rounds": 10.0, "input.expert_load": 1.0,
    "assume.memory_fraction": 0.9, "input.layout.chips": 1.0, "input.engine.context_limit": 4096.0,
    "input.engine.kv_memory": 0.0, "input.engine.reserved_tokens": 0.0, "input.engine.graph": 1.0, "input.engine.two_batches": 0.0, "input.engine.transfer_by_layer": 0.0, "system.chips": 8.0, "chip.ranks": 1.0, "assume.mfu": 0.0, "chip.peak[mfu_peak]": 1e15, "chip.tdp": 700.0, "chip.idle_power": 100.0,
    "axis.speculative": 0.0, "input.engine.speculative.gamma": 4.0, "input.engine.speculative.acceptance": 0.75, "draft.parameters": 1.2e9, "draft.layers": 16.0, "draft.kv_elements": 16384.0,
    "system.host_pace": 1.0, "engine.step_graph": 0.0, "engine.step_eager": 2e-3, "engine.layer_graph": 0.0, "engine.layer_eager": 2e-4,
    "engine.request": 0.0, "engine.stream": 0.0, "engine.sequence": 0.0, "engine.kernel_share": 1.0, "engine.expert_pace": 1.0, "chip.power_base": 0.0, "chip.power_pipes": 0.0, "engine.reserve": 1e9, "engine.outside": 1e9, "engine.block": 16.0, "engine.logit_rows": 16.0, "engine.logit_width": 32.0,
    "chip.power_compute": 1.2, "chip.power_memory": 0.9,
}  # fmt: skip
_COMPILED: dict[int, Compiled] = {}
_KEPT: list[Graph] = []
ENGINE = {"engine.step_graph": 1e-3, "engine.layer_graph": 3e-5}


def origins(**given: float) -> dict[str, float]:
    """Leaf values by origin; keys of `given`: dots as ``__``, brackets left out (``axis__tp``, ``precision__kv``)."""
    values = dict(ORIGINS)
    for name, value in given.items():
        origin = name.replace("__", ".")
        size = origin.startswith("precision.") and "[" not in origin
        values[f"precision.bytes[{origin[10:]}]" if size else origin] = value
    for side in ("input", "output"):
        mean = values[f"request.{side}_tokens"]
        values.setdefault(f"request.{side}_tokens.cv", 0.0)
        for word in ("p50", "p95", "p99"):
            values.setdefault(f"request.{side}_tokens.{word}", mean)
    t, p, a = (values[f"axis.{name}"] for name in ("tp", "pp", "attention_dp"))
    for name, size in (("tensor", t), ("expert", t * a), ("pipeline", p)):
        values[f"group.{name}.n0"] = size
    for word in ("ttft", "tpot", "e2e"):
        for part in ("mean", "p50", "p95", "p99"):
            values.setdefault(f"input.slo.{word}.{part}", 1.0)
    return values


def serving_values(role: Role, arch: Architecture, outputs: Any = None, **given: float) -> dict[str, float]:
    """Return all leaves that the outputs (every definition unless given) need, by symbol name."""
    _, leaves = role.graph.needs(list(role.graph.formulas) if outputs is None else outputs)
    return leaf_values(leaves, arch, origins(**given))


def evaluate(role: Role, arch: Architecture, **given: float) -> dict[str, float]:
    """Return every definition of a role by symbol name."""
    compiled = _COMPILED.get(id(role.graph))
    if compiled is None:
        compiled = _COMPILED.setdefault(id(role.graph), compile_graph(role.graph, list(role.graph.formulas)))
        _KEPT.append(role.graph)  # keeps the identity from being taken by another graph
    found = compiled(leaf_values(compiled.inputs, arch, origins(**given)))
    return {name: float(value) for name, value in found.items()}
