"""Shares of matrix units that relatives lend, against what was measured on the chips themselves; the tile that few rows take."""

from __future__ import annotations

import pytest
import sympy as sp

from tokenmill.catalog import load_catalog
from tokenmill.efficiency import chip_constant
from tokenmill.lending import FLOOR, UNLIMITED, draw, lent_share
from tokenmill_models.formula import Graph
from tokenmill_models.roofline import least_half, timed_product

CATALOG = load_catalog()


def tflops(chip: str) -> float:
    return (
        chip_constant(CATALOG, chip, "compute_share", "bf16", own=False).value * CATALOG.chip(chip).peak["bf16"] / 1e12
    )


def test_cards_of_less_power_reach_what_was_measured_on_them():
    """A100 PCIe, largest product (ml-engineering): 252.9. L4: 12,000 tokens of a layer of Llama 2 70B at the slope of Helix's prompts,
    855 M parameters x 2 FLOP over 32.4 us a token between 2,000 and 7,500 tokens: 54."""
    assert tflops("a100-pcie-80gb") == pytest.approx(252.9, rel=0.05)
    slope = (246e-3 - 72e-3) / (7500 - 2000)
    assert tflops("l4") == pytest.approx(2 * 855.6e6 / slope / 1e12, rel=0.05)


def test_cards_of_more_power_reach_no_more_than_products_give_anywhere():
    for chip in ("rtx-4090", "h20", "rtx-5090"):
        assert tflops(chip) == pytest.approx(UNLIMITED * CATALOG.chip(chip).peak["bf16"] / 1e12)


def test_a_twin_borrows_the_share_as_it_is_and_another_process_too():
    lender = CATALOG.chip("a100-sxm-80gb")
    assert lent_share(0.8, lender, CATALOG.chip("a100-sxm-40gb"), "bf16") == 0.8
    assert lent_share(0.8, lender, CATALOG.chip("t4"), "fp16") == 0.8


def test_power_grows_with_the_clock_and_faster_above_the_floor_of_voltage():
    assert draw(FLOOR) == pytest.approx(FLOOR)
    assert draw(1.0) == pytest.approx(1.96)  # 1.4 squared
    assert draw(FLOOR / 2) == pytest.approx(FLOOR / 2)


def test_own_memory_of_a_card_raises_the_share_that_its_relative_lends():
    """RTX 4090: the slope of llama.cpp and vLLM rows of the card itself lies above the L40S's products; half-way between counts."""
    own = chip_constant(CATALOG, "rtx-4090", "device_bandwidth_share", "").value
    lent = chip_constant(CATALOG, "l40s", "bandwidth_share", "").value
    assert lent < own
    assert chip_constant(CATALOG, "rtx-4090", "bandwidth_share", "").value == pytest.approx((lent * own) ** 0.5)


@pytest.mark.parametrize(("rows", "filled"), [(1, 10), (8, 24), (64, 136), (92, 192), (4096, 4196)])
def test_few_rows_take_a_small_tile(rows, filled):
    """Half a tile of 100 rows at most, but no more than the rows themselves and 8."""
    graph = Graph()
    timed = timed_product(graph, "one", sp.Integer(rows), sp.Integer(1), sp.Integer(1), sp.Integer(0))
    work = graph.formulas[timed.compute].expr
    values = {
        "half_rows": 100.0,
        "half_inner": 0.0,
        "half_columns": 0.0,
        "F": 2.0,
        "eta_F": 1.0,
        least_half.name: 8.0,
        "flop_per_mac": 2.0,
    }
    assert float(work.subs({s: values[s.name] for s in work.free_symbols})) == pytest.approx(filled)
