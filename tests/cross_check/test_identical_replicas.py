"""Free pool sizes against n identical replicas on the same speeds: never more chips, and fewer at some loads."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "identical_replicas.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = spec_from_file_location("identical_replicas", FILE)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_units_by_hand(benchmark):
    """A prefill replica of 1 chip does 3/s, a decode replica of 2 chips 2/s: 2 + 3 of them do 6/s on 8 chips."""
    columns = {"mixed": [(4, 2.5)], "prefill": [(1, 3.0)], "decode": [(2, 2.0)]}
    assert benchmark.identical(columns, 6.0) == 8
    assert benchmark.identical(columns, 12.0) == 16
    assert benchmark.identical({"mixed": [(4, 2.5)], "prefill": [], "decode": []}, 6.0) == 12


def test_free_pools_never_take_more_chips(benchmark):
    rows = benchmark.compare((13, 33, 44, 72))
    assert all(row.free <= row.identical <= row.one_layout for row in rows)
    assert sum(row.free for row in rows) < sum(row.identical for row in rows)
