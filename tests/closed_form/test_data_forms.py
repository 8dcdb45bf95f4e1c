"""Closed forms of data preparation against drawn signatures, counting, and figures of the papers."""

from math import e

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill_models.closed_data  # noqa: F401
from tokenmill_models.compile import constants, exact
from tokenmill_models.formula import library


def value(name: str, **known: float) -> float:
    formula = library()[name]
    symbols = formula.expr.free_symbols
    known = {**constants(symbols), **known}
    return float(exact(formula.rounded, {symbol: known[symbol.name] for symbol in symbols}))


@pytest.mark.parametrize(("similarity", "bands", "rows"), [(0.75, 14, 8), (0.5, 20, 5), (0.3, 10, 2)])
def test_found_pairs_as_drawn_signatures_find_them(similarity, bands, rows):
    """A hash of two documents agrees with probability J: draw it, cut the signature in bands, count the pairs that share one."""
    drawn = np.random.default_rng(0).random((40_000, bands, rows)) < similarity
    met = drawn.all(axis=2).any(axis=1).mean()
    assert value("data.lsh_found", similarity=similarity, bands=bands, band_rows=rows) == pytest.approx(met, abs=0.008)


def test_found_pairs_as_the_textbook_tables_them():
    """Mining of Massive Datasets, figure 3.8 (20 bands of 5): 0.470 at s = 0.5, 0.9996 at s = 0.8."""
    found = {
        s: value("data.lsh_found", similarity=s, bands=20, band_rows=5) for s in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    }
    assert found[0.2] == pytest.approx(0.006, abs=5e-4)
    assert found[0.3] == pytest.approx(0.047, abs=1e-3)
    assert found[0.5] == pytest.approx(0.470, abs=1e-3)
    assert found[0.7] == pytest.approx(0.975, abs=1e-3)
    assert found[0.8] == pytest.approx(0.9996, abs=1e-4)


def test_the_threshold_is_where_the_curve_is_steep():
    """(1/b)^(1/r): with 16 bands of 4 rows one half (Mining of Massive Datasets, example 3.11 of section 3.4.2)."""
    assert value("data.lsh_threshold", bands=16, band_rows=4) == pytest.approx(0.5)
    at = np.linspace(0.01, 0.99, 981)
    slopes = [value("data.lsh_slope", similarity=s, bands=16, band_rows=4) for s in at]
    curve = [value("data.lsh_found", similarity=s, bands=16, band_rows=4) for s in at]
    assert np.allclose(np.gradient(curve, at)[5:-5], slopes[5:-5], rtol=1e-2)
    # the second derivative is zero at ((r-1)/(rb-1))^(1/r), a little below the threshold
    assert at[int(np.argmax(slopes))] == pytest.approx((3 / 63) ** 0.25, abs=2e-3)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.2, 0.95), st.integers(1, 12), st.floats(0.3, 0.99))
def test_bands_are_the_fewest_that_find_the_share(similarity, rows, share):
    bands = value("data.lsh_bands", similarity=similarity, band_rows=rows, found_share=share)
    assert value("data.lsh_found", similarity=similarity, bands=bands, band_rows=rows) >= share - 1e-9
    if bands > 1:
        assert value("data.lsh_found", similarity=similarity, bands=bands - 1, band_rows=rows) < share + 1e-9


def test_hashes_put_the_threshold_where_it_is_wanted():
    hashes = value("data.lsh_hashes", similarity=0.75, band_rows=8)
    assert value("data.lsh_threshold", bands=hashes / 8, band_rows=8) == pytest.approx(0.75)
    # of all ways to cut about as many hashes, that of 8 rows has its threshold nearest (by trying all)
    count = round(hashes)
    cuts = {r: value("data.lsh_threshold", bands=count / r, band_rows=r) for r in range(1, count + 1)}
    assert min(cuts, key=lambda r: abs(cuts[r] - 0.75)) == 8


def test_the_error_of_a_signature_as_drawn():
    shares = (np.random.default_rng(1).random((20_000, 112)) < 0.6).mean(axis=1)
    assert value("data.minhash_error", similarity=0.6, hashes=112) == pytest.approx(float(shares.std()), rel=0.02)


def test_memory_of_signatures_and_buckets():
    """A billion documents, 14 bands of 8: 112 hashes of 8 bytes and 14 entries of 16 bytes each: 1.12 TB."""
    found = value("data.lsh_memory", documents=1e9, bands=14, band_rows=8, hash_bytes=8, bucket_entry_bytes=16)
    assert found == pytest.approx(1.12e12)


def test_a_repeated_corpus_as_the_paper_has_it():
    """Muennighoff et al. 2023: up to four epochs are nearly as good as fresh data; in the limit R* epochs' worth is all that repeating adds."""
    four = value("data.repeat_value", unique_tokens=1.0, repeats=3)
    assert 3.6 < four < 4.0
    assert value("data.repeat_value", unique_tokens=1.0, repeats=1e6) == pytest.approx(1 + 15.39)
    assert value("data.repeat_value", unique_tokens=1.0, repeats=15.39) == pytest.approx(1 + 15.39 * (1 - 1 / e))


def test_epochs_and_balance():
    assert value("data.epochs", mixture_weight=0.5, mixture_tokens=5e12, domain_tokens=1.19e12) == pytest.approx(
        2.101, rel=1e-3
    )
    cores = value("data.balanced_cores", core_work=1e9, pipeline_bandwidth=10e9, store_bytes=1e15)
    assert cores == pytest.approx(10_000)  # 1e5 s on the store; 1e9 core-seconds in 1e5 s
    assert value("data.balanced_bandwidth", store_bytes=1e15, cores=cores, core_work=1e9) == pytest.approx(10e9)
    assert value("data.object_size", pipeline_bandwidth=10e9, store_request_rate=5500) == pytest.approx(
        1.818e6, rel=1e-3
    )
