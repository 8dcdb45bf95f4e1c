"""A stage from outside is solved from a problem file as it stands, and the solver's code knows no stage by name."""

import ast
import itertools
from math import ceil
from pathlib import Path

import pytest

import tokenmill
from outside_stage import SHOP, SURVEY
from tokenmill import api
from tokenmill.catalog import load_catalog
from tokenmill.reading import load_problem
from tokenmill_models.stage import PLANNED, register_stage, stages

PRICES = {"hgx-h100": 3.0, "mi300x-8": 2.0}
HARDWARE = """
[hardware]
systems = ["hgx-h100", "mi300x-8"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$3/h"
[[hardware.price]]
system = "mi300x-8"
market = "on-demand"
per_chip_hour = "$2/h"
"""

SHOP_FILE = (
    """
objective = { minimise = "cost" }
gap = 0.0
"""
    + HARDWARE
    + """
[[workload]]
name = "shop"
stage = "printshop"
pages_per_second = 9000
patience = 0.8
kinds = [ { share = 0.5, page_bytes = "1 GB", page_work = "1 TFLOP" },
          { share = 0.5, page_bytes = "2 GB", page_work = "3 TFLOP" } ]
"""
)

SURVEY_FILE = (
    """
objective = { minimise = "cost" }
gap = 0.0
"""
    + HARDWARE
    + """
[[workload]]
name = "count"
stage = "housesurvey"
houses = 1e6
visit = "1000 TFLOP"
deadline = "4 days"
"""
)


@pytest.fixture(scope="module", autouse=True)
def registered():
    register_stage(SHOP)
    register_stage(SURVEY)


def test_a_shop_of_two_coupled_roles_is_solved(tmp_path):
    file = tmp_path / "shop.toml"
    file.write_text(SHOP_FILE)
    plan = api.solve(load_problem(file))
    assert plan.status == "optimal"
    assert plan.audit.passed
    # by hand: with plain paper the dearest step is setting, (1 + 3)/2 TFLOP a page; queue 8 uses 8/9 of a press
    catalog = load_catalog()
    costs = []
    for setters, binders in itertools.product(PRICES, PRICES):
        set_chip, bind_chip = (catalog.chip(catalog.system(name).chip) for name in (setters, binders))
        presses = ceil(9000 * 2e12 / set_chip.peak["bf16"] / (8 / 9) - 1e-9)
        binding = ceil(9000 * 1.5e9 / bind_chip.bandwidth / (8 / 9) - 1e-9)
        if setters == binders:
            systems = {setters: ceil((presses + binding) / 8)}
        else:
            systems = {setters: ceil(presses / 8), binders: ceil(binding / 8)}
        costs.append(sum(count * 8 * PRICES[name] * 8760 for name, count in systems.items()))
    assert plan.cost.total == pytest.approx(min(costs), rel=1e-9)
    pools = plan.workloads["shop"].pools
    assert {pool.role for pool in pools} == {"setter", "binder"}


def test_patience_binds_across_the_coupling(tmp_path):
    file = tmp_path / "shop.toml"
    file.write_text(SHOP_FILE.replace("patience = 0.8", "patience = 0.4"))
    plan = api.solve(load_problem(file))  # the least two shares sum to 0.5: no pair of lines is quick enough
    assert plan.status == "infeasible"


def test_a_run_of_two_parts_is_solved(tmp_path):
    file = tmp_path / "survey.toml"
    file.write_text(SURVEY_FILE)
    plan = api.solve(load_problem(file))
    assert plan.status == "optimal"
    catalog = load_catalog()
    peaks = {name: catalog.chip(catalog.system(name).chip).peak["bf16"] for name in PRICES}
    best = None
    for walk, clerk, crew, desk in itertools.product(PRICES, PRICES, (1, 2, 4, 8), (1, 2, 4, 8)):
        seconds = 1e6 * max(1e15 / (peaks[walk] * crew), 1e15 / (4 * peaks[clerk] * desk))
        if seconds > 4 * 86400:
            continue
        systems = {walk: crew}
        systems[clerk] = systems.get(clerk, 0) + desk
        cost = sum(ceil(chips / 8) * 8 * PRICES[name] for name, chips in systems.items()) * seconds / 3600
        best = cost if best is None else min(best, cost)
    assert plan.cost.total == pytest.approx(best, rel=1e-9)


# words that are names of roles or inputs of a stage and mean something else where the solver uses them
OTHER_MEANINGS = {
    "data": "the folder module of shipped data, and a kind of flow",
    "edge": "an edge of a graph",
    "layout.chips": "a key of the contract that holds the chips of any run or replica",
}

# columns and values of files under measured/, which name what was measured in the words of the field
MEASURED_WORDS = {
    "decode": "a test in rows",
    "prefill": "a test in rows",
    "device": "a column",
    "serving": "a folder",
    "embedding": "a column of families: where their tools keep the input embedding",
}


def _literals(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.lineno, node.value


def test_the_solver_names_no_stage_role_or_input():
    from tokenmill.imports.architecture import load_architecture

    dense, routed = load_architecture("llama-3.1-8b"), load_architecture("mixtral-8x7b-v0.1")
    forbidden = set(PLANNED)
    for stage in stages().values():
        if stage in (SHOP, SURVEY):
            continue
        forbidden |= {stage.name, *(item.name for item in stage.inputs if "." in item.name)}
        for model in (dense, routed):
            forbidden |= {role.name for role in stage.roles(model)}
    forbidden -= set(OTHER_MEANINGS)
    root = Path(tokenmill.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if inside.parts[0] in ("exports", "imports") or inside.name.startswith("simulate"):
            continue
        measured = inside.name in ("validate_devices.py", "calibration_devices.py", "validate_serving_rows.py")
        words = forbidden - set(MEASURED_WORDS) if measured else forbidden
        found += [f"{inside}:{line}: {text!r}" for line, text in _literals(path) if text in words]
    assert not found
