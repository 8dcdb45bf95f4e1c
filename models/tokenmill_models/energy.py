"""Electric draw of a device between idle and its limit, by the use of its compute and of its memory."""

from __future__ import annotations

from typing import Any

import sympy as sp

from tokenmill_models.formula import Graph, Source, minimum
from tokenmill_models.symbols import declare

DRAW = Source(
    "linear in the use of compute and of memory, as in Guerreiro et al. 2018, GPGPU Power Modeling for Multi-Domain DVFS, "
    "capped at the limit of the board",
    (
        "matrix units draw while they are fed, however few of their results count: products bound by compute, and the tiles of attention",
        "block-scaled products in 8 bits add up on the vector units: DeepSeek-AI 2024, DeepSeek-V3 Technical Report, section 3.3.2",
    ),
)

tdp = declare("P_tdp", "W", "power limit of a device", origin="chip.tdp")
idle = declare("P_idle", "W", "draw of a device that holds a model and does nothing", origin="chip.idle_power")
compute_weight = declare(
    "w_compute", "1", "share of the range from idle to limit drawn by full use of compute", origin="chip.power_compute"
)
memory_weight = declare(
    "w_memory", "1", "share of the range from idle to limit drawn by full use of memory bandwidth", origin="chip.power_memory"
)  # fmt: skip
pipes_weight = declare(
    "w_pipes", "1", "share of the range from idle to limit drawn while matrix units are fed, beside what their work draws",
    origin="chip.power_pipes",
)  # fmt: skip
base_weight = declare(
    "w_base", "1", "share of the range from idle to limit drawn by a device at work, whatever it uses: raised clocks, waiting kernels",
    origin="chip.power_base",
)  # fmt: skip
WEIGHTS = {
    "power_base": base_weight, "power_compute": compute_weight, "power_memory": memory_weight, "power_pipes": pipes_weight,
}  # fmt: skip
"""The fitted constants of a chip's draw by the name of their field."""


def draw(compute_use: Any, memory_use: Any, busy: Any = 1, pipes: Any = 0) -> sp.Expr:
    """Mean draw [W] of a device whose compute and memory are used to these shares of their peaks, at work a share `busy` of the time,
    its matrix units fed a share `pipes` of it [1].

    The limit holds while it works: idle time stays at idle draw.
    """
    used = compute_weight * compute_use + memory_weight * memory_use + pipes_weight * minimum(busy, pipes)
    return idle + (tdp - idle) * minimum(busy, base_weight * busy + used)


def define_power(
    graph: Graph, compute_use: Any, memory_use: Any, ranks: Any, busy: Any = 1, pipes: Any = 0
) -> tuple[sp.Symbol, sp.Symbol, sp.Symbol]:
    """Define draw [W] of one device under load, of a replica under load, and of a replica at idle; return the three symbols."""
    one = graph.let(
        "power_rank", "W", "mean draw of a device under load", draw(compute_use, memory_use, busy, pipes), source=DRAW
    )
    loaded = graph.let("power_loaded", "W", "mean draw of a replica's devices under load", one * ranks)
    rest = graph.let("power_idle", "W", "draw of a replica's devices at idle", idle * ranks)
    return one, loaded, rest
