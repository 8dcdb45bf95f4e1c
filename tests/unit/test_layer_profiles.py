"""Times of whole layers: what the requests of the profile were, and the constants of cards that they tell."""

from __future__ import annotations

import pytest

from tokenmill import data
from tokenmill.catalog import load_catalog
from tokenmill.efficiency import chip_constant
from tokenmill.imports.traces import read_trace
from tokenmill.validate_serving_profiles import HELIX_ANSWER, HELIX_PROMPT
from tokenmill.validate_serving_rows import measured

CATALOG = load_catalog()


def test_requests_of_the_profile_are_the_cut_of_the_public_trace():
    """Helix keeps prompts up to 2048 and answers up to 1024 tokens of Azure's hour of chats."""
    trace = read_trace(data.path("measured") / "traces" / "azure-2023-conv.csv.gz")
    kept = (trace.input_tokens <= 2048) & (trace.output_tokens <= 1024)
    assert trace.input_tokens[kept].mean() == pytest.approx(HELIX_PROMPT, abs=0.5)
    assert trace.output_tokens[kept].mean() == pytest.approx(HELIX_ANSWER, abs=0.5)


def test_cards_read_memory_as_fast_as_microbenchmarks_found():
    """T4 220 of 320 GB/s (Jia et al. 2019, arXiv:1903.07486), V100 750 of 900 (Jia et al. 2018, arXiv:1804.06826): fitted apart from them."""
    for chip, measured_share in (("t4", 220 / 320), ("v100-sxm2-16gb", 750 / 900)):
        assert chip_constant(CATALOG, chip, "bandwidth_share", "").value == pytest.approx(measured_share, rel=0.06)


def test_a_card_keeps_what_its_layers_told_to_itself_and_to_its_width():
    assert chip_constant(CATALOG, "l4", "compute_share", "fp16").evidence == "calibrated"
    assert chip_constant(CATALOG, "l4", "compute_share", "fp8").evidence == "guess"
    lent = chip_constant(CATALOG, "rtx-6000-ada", "ring_share", "")
    assert lent.value == chip_constant(CATALOG, "l40s", "ring_share", "").value


def test_prompts_at_a_slope_that_sums_over_the_host_explain():
    """Two L4 and four T4 exchange through the host: by hand, the time that a token takes beyond its products, over its bytes, is 3.5 to 5 GB/s."""
    for chip, link in (("l4", 31.5), ("t4", 15.75)):
        assert 3.0 < chip_constant(CATALOG, chip, "ring_share", "").value * link < 5.0
    rows = {row.case.row: row for row in measured("helix_layer_profiles")[0]}
    assert len(rows) == 149
