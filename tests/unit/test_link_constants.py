"""Constants of exchanges: whose they are, what stands in where nothing was measured, and that plans show them."""

import pytest

import tokenmill as tm
from tokenmill.catalog import load_catalog
from tokenmill.efficiency import chip_constant

CATALOG = load_catalog()


def constant(chip, name):
    return chip_constant(CATALOG, chip, name, "")


def test_a_measured_chip_has_its_own_and_a_relative_borrows_them():
    own, borrowed = constant("h100-sxm", "ring_start"), constant("h20", "ring_start")
    assert own.evidence == "calibrated"
    assert (borrowed.value, borrowed.evidence) == (own.value, "guess")
    assert "nccl.csv" in own.source


def test_a_chip_with_an_achieved_bandwidth_keeps_it_where_nothing_was_fitted():
    # catalog/links/achieved.csv: all-reduce over eight MI300X at 312.9 of 448 GB/s, links to all peers
    assert constant("mi300x", "ring_share").value == pytest.approx(312.9 / 448, rel=0.01)


def test_cards_on_a_hosts_link_borrow_from_their_own_kind():
    """Engines' own all-reduce needs peers that read one another: over PCIe eight cards take tens of microseconds to start it."""
    card, linked = (
        constant(chip, "own_start").value + 7 * 1e-6 * constant(chip, "own_hops").value
        for chip in ("rtx-4090", "tpu-v5p")
    )
    assert card > 2 * linked
    assert constant("rtx-3090", "ring_share").value > 0.6  # bridged in pairs: a link of its own


def test_a_plan_unfolds_to_the_constants_of_its_links():
    plan = tm.solve(
        tm.load_problem(
            {
                "hardware": {"systems": ["hgx-h100"]},
                "workload": [
                    {
                        "name": "chat", "stage": "serving", "model": "llama-3.1-70b",
                        "demand": {"input_tokens": 1000, "output_tokens": 300, "arrivals": {"concurrency": 32}},
                        "engine": {"disaggregated": False}, "layout": {"tp": 8, "pp": 1}, "precision": {"weights": "bf16"},
                    }
                ],
            }
        )
    )  # fmt: skip
    leaves = {node["symbol"]: node for node in _nodes(plan) if "symbol" in node}
    assert leaves["ring_start"]["evidence"] == leaves["own_start"]["evidence"] == "calibrated"
    assert "nccl.csv" in leaves["ring_start"]["source"]
    assert "allreduce.csv" in leaves["own_start"]["source"]


def _nodes(plan):
    for node in plan.trace.values():
        yield from (item for item in node["inputs"] if isinstance(item, dict))
