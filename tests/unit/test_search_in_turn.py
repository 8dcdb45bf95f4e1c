"""A large search works out figures for the cells that pass alone: the same cells, values and reasons as all at once."""

import numpy as np
import pytest

from tokenmill import api
from tokenmill.candidates import evaluate
from tokenmill.candidates.program import prepare
from tokenmill.candidates.search import Ask, settings_of
from tokenmill.catalog import load_catalog
from tokenmill.imports.architecture import load_architecture
from tokenmill.reading import load_problem
from tokenmill_models.stage import stages

FILE = """
[hardware]
systems = ["hgx-h100"]
[[workload]]
name = "train"
stage = "pretraining"
model = "{model}"
tokens = 3e11
sequence_length = 4096
global_batch = 96
[workload.precision]
compute = "bf16"
[workload.layout]
zero = [0, 1, 3]
micro_batch = [1, 2, 3]
dp = [1, 2, 3, 4, 8, 12, 96]
recompute = "none"
schedule = "1f1b"
"""


def searched(model, many, monkeypatch):
    """Passing cells (sorted rows of axes and outputs) and tallies, with `many` cells as the border of a large search."""
    monkeypatch.setattr(evaluate, "LARGE", many)
    problem = load_problem(FILE.format(model=model))
    data = api.catalog_for(problem, load_catalog())
    workload = problem.workloads[0]
    stage = stages()[workload.stage]
    ask = Ask(workload, stage, problem, data, load_architecture(model), (data.system("hgx-h100"),))
    (role,) = ask.roles.values()
    program = prepare(role)
    found = []
    for context, grids in settings_of(ask, role, program, ask.systems[0]):
        tally, rows = evaluate.Tally(), []
        absent = frozenset(name for name, leaf in context.leaves.items() if leaf.value is None)
        for block in evaluate.blocks(program, grids, context.setting, role.ports, absent, tally):
            keep = block.keep[:, :, 0]
            columns = [*block.axes.values(), *block.outputs.values()]
            names = [*block.axes, *block.outputs]
            rows.append(np.column_stack([np.broadcast_to(c, block.keep.shape)[:, :, 0][keep] for c in columns]))
            order = np.argsort(names)
            rows[-1] = rows[-1][:, order]
        found.append((np.unique(np.concatenate(rows), axis=0) if rows else np.empty(0), tally))
    return found


@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b-v0.1"])
def test_large_searches_find_what_small_ones_find(model, monkeypatch):
    at_once, in_turn = (searched(model, many, monkeypatch) for many in (10**12, 0))
    assert sum(rows.shape[0] for rows, _ in at_once) > 500
    assert sum(sum(tally.count.values()) for _, tally in at_once) > 500
    for (rows, tally), (others, other) in zip(at_once, in_turn, strict=True):
        assert rows.shape == others.shape
        assert rows == pytest.approx(others, rel=1e-12)
        assert other.evaluated == tally.evaluated
        assert other.count == tally.count
        assert {name: miss[0] for name, miss in other.nearest.items()} == pytest.approx(
            {name: miss[0] for name, miss in tally.nearest.items()}
        )
