"""Time of one operation on one chip: the roofline, its upper bound, and the ridge (formulas.md section 3)."""

from __future__ import annotations

from dataclasses import dataclass

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


half_rows, half_inner, half_columns = (
    declare(
        f"half_{side}",
        "1",
        f"{side} of a product at which it reaches half the share of peak",
        origin=f"chip.half_{side}",
    )
    for side in ("rows", "inner", "columns")
)
half_read = declare(
    "half_read", "B", "bytes that a read must have to reach half the bandwidth", origin="chip.half_read"
)


@dataclass(frozen=True)
class Timed:
    """An operation on the roofline: its compute time, memory time, and time [s each]."""

    compute: sp.Symbol
    memory: sp.Symbol
    time: sp.Symbol


def saturation(rows: sp.Expr, inner: sp.Expr, columns: sp.Expr) -> sp.Expr:
    """Return by how much a product of rows x inner by inner x columns falls below the share of large ones (1 or more)."""
    return 1 + half_rows / rows + half_inner / inner + half_columns / columns


def timed(
    graph: Graph,
    label: str,
    flops: sp.Expr,
    moved: sp.Expr,
    *,
    peak: sp.Expr | None = None,
    share: sp.Expr | None = None,
    small: sp.Expr | int = 1,
    ramp: sp.Expr | None = None,
) -> Timed:
    """Define the roofline of an operation of `flops` [FLOP] that moves `moved` [B].

    `peak` [FLOP/s] and `share` [1] replace those of large products; `small` (1 or more) lengthens the compute time of small ones
    (see `saturation`); `ramp` [B] is added to the traffic for what a short read loses (half_read unless given).
    """
    speed = (F if peak is None else peak) * (eta_F if share is None else share)
    lost = half_read if ramp is None else ramp
    C = graph.let(f"C_{label}", "s", f"compute time of {label}", flops * small / speed, source=ROOFLINE)
    R = graph.let(f"R_{label}", "s", f"memory time of {label}", (moved + lost) / (W * eta_W), source=ROOFLINE)
    T = graph.let(f"T_{label}", "s", f"time of {label}", maximum(C, R), source=ROOFLINE)
    return Timed(C, R, T)


def operation(graph: Graph, label: str, flops: sp.Expr, moved: sp.Expr) -> sp.Symbol:
    """Define the roofline time [s] of an operation of `flops` [FLOP] that moves `moved` [B]; return ``T_<label>``."""
    return timed(graph, label, flops, moved).time


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
