"""Scores files of measured runs of several pools: each row states its problem in the words of problem files, and what was measured.

The columns ``measured_<figure>`` hold what a run's figure of that name was; a row that cannot be asked says why in ``left_out``.
"""

from __future__ import annotations

import csv
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

import numpy as np

from tokenmill import data
from tokenmill.candidates.columns import Column
from tokenmill.candidates.search import Ask, Searched, search
from tokenmill.candidates.unfold import leaf_values
from tokenmill.catalog import Catalog, load_catalog
from tokenmill.errors import TokenmillError
from tokenmill.imports.architecture import load_architecture
from tokenmill.reading import load_problem
from tokenmill.validate import Evaluation, Outcome, fitted_half
from tokenmill.validate_cases import stage_of
from tokenmill_models.stage import stages

MEASURED, UNTIL = "measured_", "until_"
SCALES = 4.0
"""What a row leaves open is sought from 1/16 to 16 of what stands there."""
CLOSE = 0.1


@dataclass(frozen=True)
class Run:
    """A row with what its quickest plan is predicted to do: figures by name, empty where it was refused (`reason`)."""

    row: Mapping[str, str]
    figures: Mapping[str, float]
    reason: str = ""

    def measured(self) -> Iterator[tuple[str, float]]:
        """Yield the name and the value of every figure that was measured."""
        for key, text in self.row.items():
            if key.startswith(MEASURED) and text:
                yield key.removeprefix(MEASURED), float(text)


@cache
def read_rows(name: str) -> tuple[Mapping[str, str], ...]:
    """Return the rows of a file below measured/training."""
    with (data.path("measured") / "training" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def ask_of(row: Mapping[str, str], stage: str, catalog: Catalog) -> Ask:
    """Return the search that a row states."""
    problem = load_problem(
        {
            "objective": {"minimise": "time"},
            "hardware": {"systems": [row["system"]]},
            "workload": [{"name": "run", "stage": stage, "model": row["model"], **tomllib.loads(row["problem"])}],
        },
        catalog=catalog,
    )
    system = catalog.system(row["system"])
    return Ask(
        problem.workloads[0], stages()[stage], problem, catalog, load_architecture(row["model"]), (system,)
    )  # fmt: skip


def predict(row: Mapping[str, str], stage: str, catalog: Catalog) -> Run:
    """Return the figures of the quickest way to do what a row states; see `_scaled` for what it leaves open."""
    if not row["scaled"]:
        return _quickest(row, stage, catalog)
    target = next(key.removeprefix(UNTIL) for key in row if key.startswith(UNTIL))
    low, high = -SCALES, SCALES
    run = _quickest(_scaled(row, 1.0), stage, catalog)
    while high - low > CLOSE and run.figures:
        middle = (low + high) / 2
        run = _quickest(_scaled(row, 2.0**middle), stage, catalog)
        more = run.figures and run.figures[target] < float(row[UNTIL + target])
        low, high = (middle, high) if more else (low, middle)
    return run


def _scaled(row: Mapping[str, str], factor: float) -> dict[str, str]:
    """Return a row whose table or list named in ``scaled`` is multiplied by a factor: found by what ``until_<figure>`` was."""
    stated = tomllib.loads(row["problem"])[row["scaled"]]
    inner = ", ".join(f"{key} = {value * factor}" for key, value in stated.items())
    lines = [line for line in row["problem"].splitlines() if not line.startswith(f"{row['scaled']} ")]
    return {**row, "problem": "\n".join([f"{row['scaled']} = {{ {inner} }}", *lines])}


def _quickest(row: Mapping[str, str], stage: str, catalog: Catalog) -> Run:
    try:
        ask = ask_of(row, stage, catalog)
        found = search(ask)
    except TokenmillError as error:
        return Run(row, {}, f"refused: {error}")
    columns = [column for role in found.columns.columns.values() for column in role]
    if not columns:
        return Run(row, {}, "refused: no layout keeps the rules")
    best = min(columns, key=lambda column: (column.duration or 0.0, column.key))
    return Run(row, figures_of(best, found))


def figures_of(column: Column, found: Searched) -> Mapping[str, float]:
    """Return the figures of a run as a whole."""
    role = found.contexts[column.key].program.role
    return _evaluated(column, found, role.figures)


def _evaluated(column: Column, found: Searched, wanted: Mapping[str, Any]) -> Mapping[str, float]:
    """Return quantities of a column by name, from its leaves and the ports of its parts."""
    context = found.contexts[column.key]
    program = context.program
    values = leaf_values(context, column, {}, 0)
    for name, part in zip(program.role.parts, column.parts, strict=True):
        ports = _evaluated(part, found, program.role.parts[name].ports)
        for quantity in program.needs(wanted.values()).parts:
            _, of, port = (quantity.origin or "").split(".")
            values |= {quantity.symbol.name: ports[port]} if of == name else {}
    results = program.compile(wanted.values())(values)
    return {name: float(np.max(results[symbol.name])) for name, symbol in wanted.items()}


@cache
def runs(name: str) -> tuple[tuple[Run, ...], Mapping[str, int]]:
    """Return the predicted runs of a file, and how many rows were left out by reason."""
    left: Counter[str] = Counter()
    found = []
    catalog = load_catalog()
    for row in read_rows(name):
        if row["left_out"]:
            left[row["left_out"]] += 1
            continue
        run = predict(row, stage_of(name), catalog)
        found.append(run)
        left.update([run.reason] if run.reason else [])
    return tuple(found), dict(left)


def evaluate(name: str) -> Evaluation:
    """Return the outcomes of the rows that no constant was fitted on; the baseline of a figure is its median over the other half."""
    found, left = runs(name)
    fitted = [run for run in found if run.figures and fitted_half(run.row["group"]) and not run.row["scaled"]]
    left = {**left, "entered the fit": len(fitted)}
    outcomes = [
        Outcome(
            run.row["accelerator"], figure, run.row["group"], run.figures[figure], value, _baseline(name, run, figure)
        )
        for run in found
        if run.figures and run not in fitted
        for figure, value in run.measured()
    ]
    return Evaluation(outcomes, len(read_rows(name)), dict(left))


def _baseline(name: str, run: Run, figure: str) -> float | None:
    half = fitted_half(run.row["group"])
    others: list[Any] = [
        value
        for other in runs(name)[0]
        if fitted_half(other.row["group"]) is not half
        for key, value in other.measured()
        if key == figure
    ]
    return median(others) if others else None
