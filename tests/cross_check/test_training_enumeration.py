"""A mixture of experts over every layout of a small grid, expert and context axes on: one by one with exact numbers, and by solve.

One by one means: leaves looked up for a single layout, every definition worked out by `walk` in exact arithmetic, every rule
compared by hand, the cheapest kept. Nothing of the array search, its pruning or the programme takes part.
"""

from itertools import product
from math import ceil
from types import SimpleNamespace
from typing import Any

import pytest

from tokenmill import api
from tokenmill.candidates.search import Context
from tokenmill.candidates.unfold import leaf_values
from tokenmill.catalog import load_catalog
from tokenmill.imports.architecture import load_architecture
from tokenmill.reading import load_problem
from tokenmill_models.compile import exact, walk
from tokenmill_models.pretraining import train_role
from tokenmill_models.stage import Rule

MODEL, SYSTEM, BATCH, MOST = "olmoe-1b-7b-0924", "hgx-h100", 16, 32
GRID = {
    "layout.tp": (1, 2), "layout.pp": (1, 2), "layout.cp": (1, 2), "layout.ep": (1, 4, 16), "layout.micro_batch": (1, 2),
    "layout.zero": (1, 3), "layout.dp": (2, 4, 8, 16),
}  # fmt: skip
HELD = {"layout.virtual": 1, "layout.expert_tp": 1, "layout.shard": 0}


def problem(deadline: str) -> dict[str, Any]:
    layout = {key.partition(".")[2]: list(values) for key, values in GRID.items()}
    words = {
        "recompute": "none",
        "schedule": "1f1b",
        "sequence_parallel": True,
        "order": "tp-cp-ep-pp-dp",
        "offload": "none",
    }
    workload = {
        "name": "run", "stage": "pretraining", "model": MODEL, "tokens": 1e11, "sequence_length": 8192, "global_batch": BATCH,
        "deadline": deadline, "layout": {**layout, **words, "virtual": 1, "expert_tp": 1, "shard": 0, "system": SYSTEM},
        "precision": {"compute": "bf16", "weights": "bf16", "experts": "bf16"},
    }  # fmt: skip
    return {
        "objective": {"minimise": "cost_per_run", "workload": "run"}, "gap": 1e-9, "limits": {"chips": MOST},
        "hardware": {"systems": [SYSTEM], "markets": ["on-demand"],
                     "price": [{"system": SYSTEM, "market": "on-demand", "per_chip_hour": "$2/h"}]},
        "workload": [workload],
    }  # fmt: skip


def holds(rule: Rule, found: dict[Any, Any]) -> bool:
    left, right = (exact(side, {s: found[s.name] for s in side.free_symbols}) for side in (rule.left, rule.right))
    if rule.kind == "divides":
        return bool(abs(right / left - round(float(right / left))) < 1e-9)
    if rule.kind == "equal":
        return bool(left == right)
    return bool(left <= right * (1 + 1e-9))


def every_layout(context: Context) -> dict[tuple[float, ...], tuple[int, float]]:
    """Chips and length of the run [s] of every layout that meets every rule."""
    role = train_role(load_architecture(MODEL))
    duration = role.ports["duration"]
    known = {}
    for values in product(*GRID.values()):
        layout = dict(zip(GRID, values, strict=True)) | HELD
        chips = int(layout["layout.tp"] * layout["layout.pp"] * layout["layout.cp"] * layout["layout.dp"])
        if chips > MOST:
            continue
        leaves = leaf_values(context, SimpleNamespace(layout=layout), {}, 0)  # type: ignore[arg-type]
        kept = True
        for rule in role.rules:
            sides = [s for side in (rule.left, rule.right) for s in side.free_symbols]
            if any(s.name not in leaves and s not in role.graph.formulas for s in sides):
                continue  # a key that the file leaves out
            if not all(
                leaf.name in leaves for leaf in role.graph.needs([s for s in sides if s in role.graph.formulas])[1]
            ):
                continue
            found = {**leaves, **walk(role.graph, [s for s in sides if s in role.graph.formulas], leaves)}
            kept = holds(rule, found)
            if not kept:
                break
        if kept:
            known[values] = (chips, float(walk(role.graph, [duration], leaves)[duration.name]))
    return known


@pytest.fixture(scope="module")
def one_by_one() -> dict[tuple[float, ...], tuple[int, float]]:
    prepared = api.prepare(load_problem(problem("30 days")), load_catalog())
    return every_layout(next(iter(prepared.searched[0].contexts.values())))


def test_the_grid_has_layouts_of_every_kind(one_by_one: dict[tuple[float, ...], tuple[int, float]]) -> None:
    for place, values in enumerate(GRID.values()):
        assert {layout[place] for layout in one_by_one} == set(values)


@pytest.mark.parametrize("deadline", [30, 4, 3, 2, 1])
def test_solve_finds_what_trying_every_layout_finds(
    deadline: int, one_by_one: dict[tuple[float, ...], tuple[int, float]]
) -> None:
    plan = api.solve(load_problem(problem(f"{deadline} days")))
    prices = [ceil(chips / 8) * 16 * time / 3600 for chips, time in one_by_one.values() if time <= deadline * 86400]
    if not prices:
        assert plan.status == "infeasible"
        return
    assert plan.status == "optimal"
    assert plan.cost.total == pytest.approx(min(prices), rel=1e-6)
