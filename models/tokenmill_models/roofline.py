"""Time of one operation on one chip: the roofline, its upper bound, and the ridge."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tokenmill_models.formula import Formula, Graph, Source, maximum, minimum, register
from tokenmill_models.symbols import constant, declare

ROOFLINE = Source("Williams, Waterman and Patterson 2009, Roofline, CACM 52(4)")

NONE = sp.Integer(0)
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
        f"{side} that a product computes beyond its own: at so many it reaches half the share of peak",
        origin=f"chip.half_{side}",
    )
    for side in ("rows", "inner", "columns")
)
least_half = constant(
    "least_half", 8.0, "1", "half the rows of the smallest tile of matrix units: 16 (PTX, instruction mma.m16n8k16)"
)
launch = declare("launch", "s", "time of the smallest kernel", origin="chip.launch")
inner_time = declare(
    "inner_time", "s", "time of a product for each of its inner elements, which no parallel unit shares",
    origin="chip.inner_time",
)  # fmt: skip
convert_launch = declare(
    "convert_launch", "s", "time to start converting the input of a product (0 where none is needed)",
    origin="chip.convert_launch",
)  # fmt: skip
convert_time = declare(
    "convert_time", "s", "time to convert one element of the input of a product (0 where none is needed)",
    origin="chip.convert_time",
)  # fmt: skip
convert_rows, convert_inner = (
    declare(
        f"convert_{side}", "1", f"{side} that converting the input of a product takes beyond its own",
        origin=f"chip.convert_{side}",
    )
    for side in ("rows", "inner")
)  # fmt: skip


expert_share, expert_bandwidth, expert_rows = (
    declare(name, "1", doc, origin=f"chip.{name}[experts]")
    for name, doc in (
        ("expert_share", "share of peak compute that grouped products of experts reach"),
        ("expert_bandwidth", "share of memory bandwidth at which grouped products read the experts' weights"),
        ("expert_rows", "rows that a grouped product computes for an expert beyond its own: half a tile"),
    )
)


@dataclass(frozen=True)
class Timed:
    """An operation on the roofline: its compute time, memory time, time, and the part of it that converts its input [s each]."""

    compute: sp.Symbol
    memory: sp.Symbol
    time: sp.Symbol
    convert: sp.Expr = NONE


def memory_time(label: str) -> sp.Symbol:
    """Return the symbol of the memory time [s] that `timed` defines for an operation."""
    return declare(f"R_{label}", "s", f"memory time of {label}")


def timed(
    graph: Graph,
    label: str,
    flops: sp.Expr,
    moved: sp.Expr,
    *,
    peak: sp.Expr | None = None,
    share: sp.Expr | None = None,
    bandwidth_share: sp.Expr | None = None,
    fixed: sp.Expr | None = None,
) -> Timed:
    """Define the roofline of an operation that occupies the device with `flops` [FLOP] and moves `moved` [B].

    `peak` [FLOP/s], `share` and `bandwidth_share` [1] replace those of products; `fixed` [s] is added for what neither bound
    covers (`launch` unless given).
    """
    speed = (F if peak is None else peak) * (eta_F if share is None else share)
    C = graph.let(f"C_{label}", "s", f"compute time of {label}", flops / speed, source=ROOFLINE)
    wire = W * (eta_W if bandwidth_share is None else bandwidth_share)
    R = graph.let(memory_time(label).name, "s", f"memory time of {label}", moved / wire, source=ROOFLINE)
    least = maximum(C, R) + (launch if fixed is None else fixed)
    T = graph.let(f"T_{label}", "s", f"time of {label}", least, source=ROOFLINE)
    return Timed(C, R, T)


def timed_product(
    graph: Graph, label: str, rows: sp.Expr, inner: sp.Expr, columns: sp.Expr, moved: sp.Expr, copies: sp.Expr | int = 1
) -> Timed:
    """Define the time of a product of `rows` x `inner` by `inner` x `columns` [1 each] that moves `moved` [B].

    Each side is filled up to whole tiles: half a tile more on average (half_*). Few rows take a small tile: those added are at most
    as many, and half the smallest tile. Launch, the serial pass over the inner
    elements, and the conversion of the input come on top. `copies` such products share the rows.
    """
    filled = rows + minimum(copies * half_rows, rows + copies * least_half)
    work = FLOP_PER_MAC * filled * (inner + half_inner) * (columns + half_columns)
    convert = graph.let(f"K_{label}", "s", f"time to convert the input of {label}", converted(rows, inner))
    plain = timed(graph, label, work, moved, fixed=launch + inner * inner_time + convert)
    return Timed(plain.compute, plain.memory, plain.time, convert)


def converted(rows: sp.Expr, inner: sp.Expr) -> sp.Expr:
    """Return the time [s] to convert an input of `rows` x `inner` [1 each] to the format of a product."""
    return convert_launch + convert_time * (rows + convert_rows) * (inner + convert_inner)


def timed_experts(
    graph: Graph, label: str, rows: sp.Expr, inner: sp.Expr, columns: sp.Expr, moved: sp.Expr, copies: sp.Expr
) -> Timed:
    """Define the time of a grouped product of `copies` experts that share `rows`; its start is that of the layer's sorting."""
    work = FLOP_PER_MAC * (rows + copies * expert_rows) * inner * columns
    return timed(graph, label, work, moved, share=expert_share, bandwidth_share=expert_bandwidth, fixed=NONE)


def operation(graph: Graph, label: str, flops: sp.Expr, moved: sp.Expr) -> sp.Symbol:
    """Define the roofline time [s] of an operation of `flops` [FLOP] that moves `moved` [B]; return ``T_<label>``."""
    return timed(graph, label, flops, moved).time


TIME_LOWER = register(
    Formula(
        "roofline.time",
        "Least time of an operation: compute and memory traffic overlap fully",
        declare("T_roofline", "s", "roofline time of an operation"),
        maximum(_flops / (F * eta_F), _bytes / (W * eta_W)),
        ROOFLINE.by(
            "compute takes work/(F·eta_F), memory traffic bytes/(W·eta_W)", "with full overlap the longer counts"
        ),
        assumes=("shares of peak of large operations",),
    )
)
TIME_UPPER = register(
    Formula(
        "roofline.time_upper",
        "Greatest time of an operation: compute and memory traffic do not overlap",
        declare("T_roofline_upper", "s", "time of an operation without overlap"),
        _flops / (F * eta_F) + _bytes / (W * eta_W),
        ROOFLINE.by("without overlap both add up"),
        assumes=("shares of peak of large operations",),
    )
)
RIDGE = register(
    Formula(
        "roofline.ridge",
        "Arithmetic intensity at which compute and bandwidth take equal time",
        declare("ridge", "FLOP/B", "ridge of a device"),
        F / W,
        ROOFLINE.by("compute takes work over F, memory traffic bytes over W", "set both equal: work over bytes is F/W"),
        assumes=("peaks of the data sheet",),
    )
)
