"""Counts that are no whole numbers and shares of a chip beyond it are refused where they stand in the file."""

from __future__ import annotations

import pytest

import tokenmill as tm
from tokenmill.errors import ProblemError

TEXT = """
objective = { minimise = "cost" }
[hardware]
systems = ["hgx-h100"]
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
[workload.demand]
requests_per_second = 2
input_tokens = 500
output_tokens = 100
prefix = { tokens = 200, count = 2 }
"""


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("demand.prefix.count", "1.5", "a whole number at least 1"),
        ("demand.prefix.count", "0", "a whole number at least 1"),
        ("layout.chip_share", "0", "above 0 and at most 1"),
        ("layout.chip_share", "1.5", "above 0 and at most 1"),
        ("layout.chip_share", "[1, 1.5]", "above 0 and at most 1"),
        ("engine.utilisation", "1.2", "above 0 and at most 1"),
    ],
)
def test_refused_where_it_stands(key, value, allowed):
    with pytest.raises(ProblemError) as caught:
        tm.load_problem(TEXT, [(f"workload.chat.{key}", value)])
    assert allowed in str(caught.value)
    assert key.rsplit(".", 1)[-1] in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"), [("demand.prefix.count", "3"), ("layout.chip_share", "[1, 0.5]"), ("engine.utilisation", "1")]
)
def test_what_is_allowed_is_read(key, value):
    assert tm.load_problem(TEXT, [(f"workload.chat.{key}", value)]).workloads
