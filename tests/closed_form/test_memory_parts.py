"""The parts of a chip's memory that a plan names sum to what it says is taken."""

import pytest

from sample_leaves import dense
from serving_samples import ENGINE, evaluate
from tokenmill_models.serving import STAGE

SMALL = dense(2048, 16, 4, 128, 8192, 24, 32000)
HOST = {name.replace(".", "__"): value for name, value in ENGINE.items()}
GRAPHS = "engine__outside"
WHOLES = ("total", "capacity", "allocated", "reserved", "usable")


@pytest.mark.parametrize("name", ["mixed", "prefill", "decode"])
def test_parts_of_memory_sum_to_the_whole(name):
    role = next(role for role in STAGE.staffed(SMALL, {}, {}) if role.name == name)
    found = evaluate(role, SMALL, **HOST, **{GRAPHS: 1.5e9}) | {"engine_outside": 1.5e9}
    parts = [
        found[symbol.name]
        for key, symbol in role.figures.items()
        if key.startswith("memory.") and key.removeprefix("memory.") not in WHOLES
    ]
    assert len(parts) == 5
    assert sum(parts) == pytest.approx(found[role.figures["memory.total"].name])
