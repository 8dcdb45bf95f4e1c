"""Products in rounds of output tiles: counts by hand, and which chips run in rounds."""

from math import ceil

import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.catalog import load_catalog
from tokenmill.efficiency import chip_constant
from tokenmill_models.compile import compile_graph
from tokenmill_models.formula import Graph
from tokenmill_models.symbols import declare
from tokenmill_models.tiles import tiled

ROWS, COLUMNS, COPIES = (
    declare(f"tiles_{n}", "1", n, origin=f"test.tiles_{n}", sign="positive") for n in ("rows", "columns", "copies")
)
GRAPH = Graph()
ONE_SIZE = compile_graph(GRAPH, [GRAPH.let("tiles_one", "s", "a product", tiled(ROWS, sp.Integer(1000), COLUMNS))])
GROUPED = Graph()
MANY = compile_graph(
    GROUPED, [GROUPED.let("tiles_many", "s", "products", tiled(ROWS, sp.Integer(1000), COLUMNS, COPIES))]
)
VALUES = {"flop_per_mac": 2.0, "F": 1e12, "eta_F": 0.5, "half_inner": 24.0, "least_half": 8.0, "tile_long": 256.0,
          "tile_side": 128.0}  # fmt: skip
LARGE = 2 * 256 * 128 * 1024 / 0.5e12
"""Seconds of a large tile at the speed of the whole chip."""


def time(
    rows: float, columns: float, units: float = 100.0, share: float = 0.9, cost: float = 0.3, **more: float
) -> float:
    given = VALUES | {
        "tiles_rows": rows,
        "tiles_columns": columns,
        "chip_units": units,
        "small_tile_share": share,
        "split_cost": cost,
    }
    compiled = MANY if more else ONE_SIZE
    return float(next(iter(compiled({**given, **more}).values())))


def test_whole_rounds_cost_what_their_tiles_do():
    """2560 x 2560: 10 x 20 large tiles are two rounds of 100 units, of 100 tiles' time each."""
    assert time(2560, 2560) == pytest.approx(200 * LARGE)


def test_a_round_begun_is_a_round_paid_or_cut_up():
    """One column of tiles more: 210 large tiles are 2.1 rounds, three paid. Cut up, 210 tiles and 30%: 273. Small tiles: 4.2
    rounds, five of 100 halves over 0.9 are 278. Where cutting costs 60%, small tiles are the quickest.
    """
    assert time(2560, 2561) == pytest.approx(273 * LARGE)
    assert time(2560, 2561, cost=0.6) == pytest.approx(250 / 0.9 * LARGE)
    assert time(2560, 2561, cost=0.0) == pytest.approx(210 * LARGE)


def test_one_unit_works_through_all_tiles():
    assert time(2560, 2561, units=1.0) == pytest.approx(210 * LARGE)


def test_few_rows_take_small_tiles():
    """4 rows: twice as many and 8 of the smallest tile, 16, not 128."""
    assert time(4, 25600, cost=0.0, share=1.0) == pytest.approx(16 * 25600 * 2 * 1024 / 0.5e12)


def test_copies_of_unknown_rows_fill_half_a_tile_each():
    """40 experts share 40 x 300 rows: 12 000 and half a tile of 128 each, at 0.9; large tiles add 128 each at full speed."""
    small, large = (12_000 + 40 * 64) / 0.9, 12_000 + 40 * 128
    expected = min(small, large) * 2560 * 2 * 1024 / 0.5e12
    assert time(12_000, 2560, cost=0.0, tiles_copies=40.0) == pytest.approx(expected)


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.integers(1, 200), st.floats(0, 2))
def test_no_product_is_quicker_than_its_work_nor_slower_than_large_rounds(rows, columns, units, cost):
    found = time(rows, columns, float(units), 1.0, cost)
    work = rows * columns * 2 * 1024 / 0.5e12
    rounds = ceil(ceil(rows / 256) * ceil(columns / 128) / units)
    assert work * (1 - 1e-9) <= found <= rounds * units * LARGE * (1 + 1e-9)


def test_measured_kernels_of_ampere_show_rounds_and_persistent_ones_do_not():
    """A100: large products take whole rounds or pay for cutting; kernels of Hopper and Blackwell stay on their units (H100: 132)."""
    catalog = load_catalog()
    cost = {
        name: chip_constant(catalog, name, "split_cost", "bf16").value
        for name in ("a100-sxm-80gb", "h100-sxm", "b200-sxm")
    }
    assert cost["a100-sxm-80gb"] > 0.2
    assert max(cost["h100-sxm"], cost["b200-sxm"]) < 0.1
    assert catalog.chip("a100-sxm-80gb").units == 108
    assert catalog.chip("h100-sxm").units == 132
