"""Time of a large product: its output in tiles, handed to the units of a chip in rounds."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.formula import Source, minimum
from tokenmill_models.roofline import FLOP_PER_MAC, F, eta_F, half_inner, least_half
from tokenmill_models.symbols import constant, declare

ROUNDS = Source(
    "NVIDIA, Matrix Multiplication Background User's Guide, sections Tile Quantization and Wave Quantization",
    (
        "the output is cut into tiles of 256 x 128 or 128 x 128, a block of threads each; a tile at the edge is computed whole",
        "blocks run on the units of the chip in rounds; the last round takes as long as a full one",
    ),
)
LONG = constant(
    "tile_long", 256.0, "1", "longer side of the large output tile of a product (CUTLASS, cuBLAS: 256 x 128)"
)
SIDE = constant("tile_side", 128.0, "1", "side of the small output tile of a product (CUTLASS, cuBLAS: 128 x 128)")
ROUNDING = sp.Float("1e-9")
ONE = sp.Integer(1)

units = declare(
    "chip_units", "1", "units of a device that share out the output tiles of a product; 1: one works through all of them",
    origin="chip.units", sign="positive",
)  # fmt: skip
small_tile = declare(
    "small_tile_share", "1", "speed of products in small output tiles over that in large ones", origin="chip.small_tile_share",
    sign="positive",
)  # fmt: skip
split_cost = declare(
    "split_cost", "1", "what cutting output tiles up to fill every round adds to the time of a product", origin="chip.split_cost"
)  # fmt: skip


def tiled(rows: sp.Expr, inner: sp.Expr, columns: sp.Expr, copies: sp.Expr = ONE) -> sp.Expr:
    """Return the compute time [s] of a product of `rows` x `inner` by `inner` x `columns` [1 each]; `copies` such share the rows.

    The quicker of two sizes of tile is taken, in whole rounds or with tiles cut up. Few rows or columns take
    smaller tiles: at most as many are added, and half the smallest tile. Source: ROUNDS.
    """
    large = _time(rows, inner, columns, copies, LONG, ONE)
    return minimum(large, _time(rows, inner, columns, copies, SIDE, small_tile))


def _time(rows: sp.Expr, inner: sp.Expr, columns: sp.Expr, copies: sp.Expr, long: sp.Symbol, share: sp.Expr) -> sp.Expr:
    tiles = _along(rows, copies, long) * _along(columns, sp.Integer(1), SIDE)
    rounds = tiles / units
    each = FLOP_PER_MAC * long * SIDE * (inner + half_inner) * units / (F * eta_F * share)
    return minimum(sp.ceiling(rounds - ROUNDING), rounds * (1 + split_cost)) * each


def _along(length: sp.Expr, copies: sp.Expr, side: sp.Symbol) -> sp.Expr:
    """Tiles along a length; copies of unknown parts of it fill up half a tile each on average."""
    small = (2 * length + copies * least_half) / side
    if copies == 1:
        return minimum(sp.ceiling(length / side), small)
    return minimum(length / side + copies / 2, small)
