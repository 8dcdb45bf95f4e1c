"""Time of one operation on one chip: the roofline, its upper bound, and the ridge (formulas.md section 3)."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.formula import Formula, Graph, Source, maximum, register
from tokenmill_models.symbols import constant, declare

ROOFLINE = Source("Williams, Waterman and Patterson 2009, Roofline, CACM 52(4)")

FLOP_PER_MAC = constant("flop_per_mac", 2.0, "FLOP", "FLOP of one multiply-add")

F = declare(
    "F", "FLOP/s", "peak dense compute of a device at the precision of the product", origin="chip.peak[compute]"
)
W = declare("W", "B/s", "memory bandwidth of a device", origin="chip.bandwidth")
M = declare("M", "B", "memory of a device that a program can use", origin="chip.capacity")
eta_F = declare(
    "eta_F",
    "1",
    "share of peak compute that large products reach",
    origin="chip.compute_share[compute]",
    latex=r"\eta_F",
)
eta_W = declare(
    "eta_W", "1", "share of memory bandwidth that large reads reach", origin="chip.bandwidth_share", latex=r"\eta_W"
)

_flops = declare("flops", "FLOP", "work of an operation", origin="input.flops")
_bytes = declare("bytes_moved", "B", "bytes an operation moves to and from memory", origin="input.bytes")


def operation(graph: Graph, label: str, flops: sp.Expr, moved: sp.Expr) -> sp.Symbol:
    """Define the roofline time [s] of an operation of `flops` [FLOP] that moves `moved` [B]; return ``T_<label>``."""
    C = graph.let(f"C_{label}", "s", f"compute time of {label}", flops / (F * eta_F), source=ROOFLINE)
    B = graph.let(f"R_{label}", "s", f"memory time of {label}", moved / (W * eta_W), source=ROOFLINE)
    return graph.let(f"T_{label}", "s", f"time of {label}", maximum(C, B), source=ROOFLINE)


TIME_LOWER = register(
    Formula(
        "roofline.time",
        "Least time of an operation: compute and memory traffic overlap fully",
        declare("T_roofline", "s", "roofline time of an operation"),
        maximum(_flops / (F * eta_F), _bytes / (W * eta_W)),
        ROOFLINE,
    )
)
TIME_UPPER = register(
    Formula(
        "roofline.time_upper",
        "Greatest time of an operation: compute and memory traffic do not overlap",
        declare("T_roofline_upper", "s", "time of an operation without overlap"),
        _flops / (F * eta_F) + _bytes / (W * eta_W),
        ROOFLINE,
    )
)
RIDGE = register(
    Formula(
        "roofline.ridge",
        "Arithmetic intensity at which compute and bandwidth take equal time",
        declare("ridge", "FLOP/B", "ridge of a device"),
        F / W,
        ROOFLINE,
    )
)
