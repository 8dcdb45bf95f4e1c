"""Measured collectives: errors on halves left out of the fits, what is left out, and that a fit finds what made its rows."""

from dataclasses import replace

import numpy as np
import pytest

from tokenmill.calibration_links import fit_links
from tokenmill.catalog import load_catalog
from tokenmill.validate import validate
from tokenmill.validate_links import FILES, NO_PEERS, predict, read


@pytest.fixture(scope="module")
def scores():
    return {file: validate([file]) for file in FILES}


def test_left_out_rows_are_met_and_beat_the_plain_formula(scores):
    every = [score for found in scores.values() for score in found]
    assert len(every) > 40
    for score in every:
        assert score.median_error < 0.2, score
        assert score.median_error < 0.4 * score.baseline_median_error, score
    medians = [score.median_error for score in every]
    assert np.median(medians) < 0.08
    assert np.median([abs(score.bias) for score in every]) < 0.02


def test_intervals_hold_four_rows_in_five(scores):
    found = [score for one in scores.values() for score in one]
    held = sum(score.coverage_80 * score.count for score in found) / sum(score.count for score in found)
    assert 0.75 < held < 0.85


@pytest.mark.parametrize("kernel", ["eager", "exchange", "gather", "own", "reduce"])
def test_intervals_hold_of_each_collective(scores, kernel):
    found = [score for one in scores.values() for score in one if score.metric == kernel]
    held = sum(score.coverage_80 * score.count for score in found) / sum(score.count for score in found)
    assert 0.75 <= held <= 0.85


def test_few_rows_are_left_out_and_each_for_a_reason(scores):
    library, own = scores["nccl"][0], scores["allreduce"][0]
    assert sum(library.left_out.values()) < 0.1 * library.rows_in_file
    assert sum(own.left_out.values()) < 0.1 * own.rows_in_file
    assert NO_PEERS in library.left_out


def test_a_fit_finds_the_constants_that_made_its_rows(monkeypatch):
    """Rows of an H100 remade from constants of round numbers, with no noise, give these back."""
    catalog = load_catalog()
    made = {
        "ring_start": 6e-6, "ring_hops": 1.5, "ring_share": 0.7, "ring_ramp": 2e-5, "switch_start": 2e-5, "switch_share": 0.5,
        "exchange_start": 8e-6, "exchange_hops": 0.4, "exchange_share": 0.7, "exchange_ramp": 1e-5, "exchange_self": 0.3,
        "own_start": 5e-6, "own_hops": 0.2, "own_share": 0.7, "own_pair_share": 0.4, "own_host": 3e-5,
    }  # fmt: skip
    remade = {}
    for file in FILES:
        rows = read(file, catalog)[0]["h100-sxm"]
        remade[file] = replace(rows, seconds=predict(catalog, "h100-sxm", rows, made))
    monkeypatch.setattr(
        "tokenmill.calibration_links.read", lambda file, _: ({"h100-sxm": remade[file]}, remade[file].seconds.size, {})
    )
    found = {one.constant: one.value for one in fit_links(catalog)}
    assert found == {name: pytest.approx(value, rel=0.02) for name, value in made.items()}
