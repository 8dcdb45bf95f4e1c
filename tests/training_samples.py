"""Values of a training role's leaves in tests: a machine of two levels, and every choice at its plain word."""

from collections.abc import Mapping
from functools import cache

from sample_leaves import leaf_values
from tokenmill_models.architecture import Architecture
from tokenmill_models.compile import Compiled, compile_graph
from tokenmill_models.pretraining import train_role
from tokenmill_models.stage import Role

INSIDE = 8  # chips of a domain
WIRES = ((450e9, 3e-6), (50e9, 8e-6), (50e9, 8e-6))  # B/s a chip and s a step, by level

WORDS = {
    # symbol: value of the plain word of its axis
    "r_s": 0.0, "r_f": 0.0, "sp": 1.0, "q_i": 0.0, "q_z": 0.0, "q_d": 0.0, "o_p": 0.0, "o_o": 0.0, "o_w": 0.0, "o_a": 0.0,
    "k_a": 0.0, "k_m": 0.0, "b_opt": 12.0,
}  # fmt: skip
LAYOUT = {"t": 1, "p": 1, "v": 1, "c": 1, "e": 1, "t_e": 1, "d": 1, "b": 1, "z": 1, "shard": 0}
ORIGINS = {
    "precision.bytes[weights]": 2.0, "precision.bytes[gradients]": 4.0, "precision.bytes[communication]": 4.0,
    "precision.bytes[activations]": 2.0, "precision.bytes[compute]": 2.0, "precision.bytes[experts]": 2.0,
    "engine.host_sweep": 4e10, "input.tokens": 1e12, "input.sequence_length": 4096, "input.global_batch": 1024,
    "input.critical_batch": 4096, "input.kernels.flash_attention": 1, "input.kernels.dropout": 0, "input.expert_load": 1.0,
    "input.layout.chips": 1, "assume.memory_fraction": 0.94, "assume.mfu": 0.0, "chip.peak[mfu_peak]": 1e15, "chip.ranks": 1,
    "chip.host_link": 5e10, "chip.idle_power": 100.0, "chip.tdp": 700.0, "engine.overlap_tensor": 0.0,
    "engine.overlap_expert": 0.0, "engine.overlap_context": 1.0, "engine.overlap_pipeline": 0.0, "engine.overlap_data": 0.5, "engine.hidden_data": 1.0, "engine.units_left": 0.85,
    "engine.overlap_offload": 0.8, "engine.layer_train": 2e-5, "chip.train_product_share": 0.8, "chip.train_convert_share": 1.0, "chip.train_attention_share": 0.6, "engine.vector_share": 0.5, "engine.attention_speed": 1.0, "engine.accumulates": 0.0, "engine.sort_share": 0.5, "engine.expert_speed": 1.0, "engine.product_speed": 1.0, "engine.stops_early": 0.0, "engine.reserve_train": 2e9, "engine.fragmentation": 0.03,
    "engine.bucket": 5e8, "engine.saved_share": 1.0, "engine.loss_bytes": 8.0, "engine.step_bytes": 0.0, "input.evaluate.every": 0.0, "input.evaluate.tokens": 0.0, "engine.score_copies": 1.0, "engine.kept_inputs": 1.0, "engine.low_gradients": 0.0, "engine.checkpoint_stall": 5.0, "chip.power_base": 0.0, "chip.power_pipes": 0.0, "chip.power_compute": 1.2, "chip.power_memory": 0.9,
    "input.checkpoint.interval": 0.0, "input.restart": 600.0, "store.write": 5e9, "store.total": 1e11,
    "system.chips_per_node": 8, "chip.failure_rate": 5e-9,
}  # fmt: skip


def group_values(x: Mapping[str, float]) -> dict[str, float]:
    """Members and wires of every group by origin: as many members inside a domain as the stride leaves room for."""
    inside = x["t"] * x["c"]
    width = x["t_e"] * x["e"]
    block = max(inside, width)
    blocks = x["t"] * x["c"] * x["d"] / block
    shared = x["shard"] or x["c"] * x["d"]
    far = shared / (block / x["t"])
    sizes = {
        "tensor": (x["t"], 1), "context": (x["c"], x["t"]), "pipeline": (x["p"], block), "near": (block / x["t"], x["t"]),
        "far": (max(1.0, far), block * x["p"]), "replicas": (blocks / far, block * x["p"] * far), "expert_tensor": (x["t_e"], 1),
        "expert": (x["e"], x["t_e"]), "expert_near": (block / width, width),
    }  # fmt: skip
    values: dict[str, float] = {}
    for name, (size, stride) in sizes.items():
        near = max(1.0, min(size, INSIDE / stride))
        for level, members in enumerate((near, size / near, 1.0)):
            wire, latency = WIRES[level]
            values |= {f"group.{name}.{key}{level}": wire for key in ("beta", "pair", "exchange")}
            values |= {f"group.{name}.n{level}": members, f"group.{name}.alpha{level}": latency,
                       f"group.{name}.reduces{level}": 0.0}  # fmt: skip
    return values


@cache
def role_of(arch: Architecture) -> Role:
    """The training run of an architecture, built once."""
    return train_role(arch)


@cache
def compiled_role(arch: Architecture) -> Compiled:
    """Every definition of the run, compiled once."""
    role = role_of(arch)
    return compile_graph(role.graph, list(role.graph.formulas))


def training_values(
    arch: Architecture, origins: Mapping[str, float] | None = None, **symbols: float
) -> dict[str, float]:
    """Values of all leaves of the run by symbol name; `symbols` lays down axes, codes or any other leaf."""
    layout = {name: float(symbols.get(name, value)) for name, value in LAYOUT.items()}
    free = [leaf for leaf in compiled_role(arch).inputs if leaf.name not in WORDS and leaf.name not in layout]
    table = {**ORIGINS, **group_values(layout), **(origins or {})}
    values = {**WORDS, **layout, **leaf_values(free, arch, table)}
    return {**values, **symbols}


def definitions(arch: Architecture, origins: Mapping[str, float] | None = None, **symbols: float) -> dict[str, float]:
    """The value of every definition of the run by symbol name."""
    found = compiled_role(arch)(training_values(arch, origins, **symbols))
    return {name: float(value) for name, value in found.items()}


def figures(arch: Architecture, origins: Mapping[str, float] | None = None, **symbols: float) -> dict[str, float]:
    """Every figure, port and time share of the run, by its name (shares with ``share.`` before)."""
    role, found = role_of(arch), definitions(arch, origins, **symbols)
    named = {**role.figures, **role.ports, **{f"share.{key}": value for key, value in role.shares.items()}}
    return {name: found[symbol.name] for name, symbol in named.items()}


def definition(arch: Architecture, name: str, origins: Mapping[str, float] | None = None, **symbols: float) -> float:
    """The value of one definition of the run's graph by its symbol name."""
    return definitions(arch, origins, **symbols)[name]
