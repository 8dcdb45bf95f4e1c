"""A checkpoint of 32 bits whose format the file leaves open is planned so, and the plan says it."""

from __future__ import annotations

import tokenmill as tm

TEXT = """
objective = { minimise = "cost" }
[hardware]
systems = ["l40s-8"]
[[workload]]
name = "search"
stage = "embedding"
model = "bge-reranker-v2-m3"
texts_per_request = 50
[workload.demand]
requests_per_second = 2
input_tokens = 250
"""


def _said(*overrides):
    plan = tm.solve(tm.load_problem(TEXT, overrides))
    return [note for note in plan.notes if note.startswith("search.precision.weights")], plan


def test_said_where_it_was_not_asked_for():
    notes, plan = _said()
    assert plan.workloads["search"].pools[0].precision["weights"] == "fp32"
    (note,) = notes
    assert "fp32" in note
    assert 'weights = "fp16"' in note


def test_silent_where_a_format_is_asked_for():
    for word in ("fp32", "fp16"):
        notes, plan = _said(("workload.search.precision.weights", f'"{word}"'))
        assert plan.workloads["search"].pools[0].precision["weights"] == word
        assert not notes
