"""Parts of a run compared by what they cost: the best plan stays what it is with every row of every part."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tokenmill
from tokenmill.candidates import search
from tokenmill.candidates.gather import Gathered
from tokenmill_models.formula import Graph
from tokenmill_models.symbols import declare

PROBLEM = """
[hardware]
systems = ["hgx-h100", "hgx-h200"]
[[workload]]
name = "learn"
stage = "rl"
model = "qwen3-8b"
algorithm = "rlvr"
steps = 10
prompts_per_step = 32
samples_per_prompt = 8
input_tokens = 600
output_tokens = 2000
mode = "synchronous"
reference_model = false
colocated = COLOCATED
[workload.trainer]
layout.chips = [8]
[workload.rollout]
layout.chips = [8]
"""


@pytest.mark.slow
@pytest.mark.parametrize("colocated", ["false", "true"])
@pytest.mark.parametrize("objective", ["cost", "time"])
def test_the_best_plan_is_that_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colocated: str, objective: str
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(f'objective = {{ minimise = "{objective}" }}\n' + PROBLEM.replace("COLOCATED", colocated))
    problem = tokenmill.load_problem(file)
    thrifty = tokenmill.solve(problem)
    kept: list[int] = []

    def every(rows: Sequence[Gathered], *_: Any) -> list[Gathered]:
        kept.append(sum(item.rows for item in rows))
        return list(rows)

    monkeypatch.setattr(search, "cheapest", every)
    full = tokenmill.solve(problem)
    assert kept
    assert thrifty.objective.value == pytest.approx(full.objective.value, rel=2e-3)


def test_what_a_fixed_leaf_cancels_is_not_read() -> None:
    a, b, c = (declare(f"read_test_{name}", "1", f"{name} of a test") for name in "abc")
    graph = Graph({})
    total = graph.let("read_test_total", "1", "total", a * b + (1 - a) * c)
    assert graph.read([total], {}) == {a, b, c}
    assert graph.read([total], {a.name: 0.0}) == {c}
    assert graph.read([total], {a.name: 1.0}) == {b}
