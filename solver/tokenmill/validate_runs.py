"""Scores files of measured runs of several pools: each row states its problem in the words of problem files, and what was measured.

The columns ``measured_<figure>`` hold what a run's figure of that name was; a row that cannot be asked says why in ``left_out``.
"""

from __future__ import annotations

import csv
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import exp, log
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
from tokenmill.validate import FOLDS, Evaluation, Outcome, fitted_half, fold_of, log_quantiles
from tokenmill.validate_cases import stage_of
from tokenmill_models.stage import stages

MEASURED, UNTIL = "measured_", "until_"
SCALES = 4.0
"""What a row leaves open is sought from 1/16 to 16 of what stands there."""
CLOSE = 0.1
LEAST_ROWS = 8
"""Rows that residuals are of at least."""


@dataclass(frozen=True)
class Run:
    """A row with what its quickest plan is predicted to do: figures by name, empty where it was refused (`reason`); the plan `held`."""

    row: Mapping[str, str]
    figures: Mapping[str, float]
    reason: str = ""
    held: Held | None = None

    @property
    def fold(self) -> str:
        """The half of the groups that the row is in."""
        return fold_of(self.row["group"])

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
    held = hold(min(columns, key=lambda column: (column.duration or 0.0, column.key)), found)
    return Run(row, held.figures({}), held=held)


@dataclass(frozen=True)
class Held:
    """A run of one layout, to be evaluated with other constants: what its program computes of its leaves and of the ports of its parts.

    `links`: a leaf's symbol, the part and the port that give it.
    """

    compiled: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    wanted: Mapping[str, Any]
    values: Mapping[str, Any]
    links: tuple[tuple[str, str, str], ...]
    parts: Mapping[str, Held]

    def figures(self, constants: Mapping[str, float]) -> Mapping[str, float]:
        """Return the wanted figures with some leaves replaced by `constants` (by symbol name), here and in all parts."""
        values = {**self.values, **{name: value for name, value in constants.items() if name in self.values}}
        ports = {name: part.figures(constants) for name, part in self.parts.items()}
        values |= {symbol: ports[part][port] for symbol, part, port in self.links}
        results = self.compiled(values)
        return {name: float(np.max(results[symbol.name])) for name, symbol in self.wanted.items()}


def hold(column: Column, found: Searched) -> Held:
    """Return a run as a whole, ready to be evaluated."""
    return _held(column, found, found.contexts[column.key].program.role.figures)


def figures_of(column: Column, found: Searched) -> Mapping[str, float]:
    """Return the figures of a run as a whole."""
    return hold(column, found).figures({})


def _held(column: Column, found: Searched, wanted: Mapping[str, Any]) -> Held:
    context = found.contexts[column.key]
    program = context.program
    parts = {
        name: _held(part, found, program.role.parts[name].ports)
        for name, part in zip(program.role.parts, column.parts, strict=True)
    }
    origins = [(q.symbol.name, *(q.origin or "").split(".")[1:]) for q in program.needs(wanted.values()).parts]
    links = tuple((symbol, part, port) for symbol, part, port in origins)
    return Held(program.compile(wanted.values()), wanted, leaf_values(context, column, {}, 0), links, parts)


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
    """Return the outcomes of the rows, each predicted with the constants that were fitted on the other half of the groups; the
    baseline of a figure is its median over that half.
    """
    found, left = runs(name)
    outcomes = [
        Outcome(
            run.row["accelerator"], figure, run.row["group"], predicted, value, _baseline(name, run, figure),
            interval=_interval(name, run, figure, predicted),
        )
        for run in found
        if run.figures
        for figure, value in run.measured()
        if (predicted := left_out(run)[figure])
    ]  # fmt: skip
    return Evaluation(outcomes, len(read_rows(name)), dict(left))


def left_out(run: Run) -> Mapping[str, float]:
    """Return the figures of a run with the constants that were fitted on the other half of the groups."""
    from tokenmill.calibration_runs import fold_leaves

    return run.held.figures(fold_leaves(FOLDS[1 - FOLDS.index(run.fold)])) if run.held else {}


def _interval(name: str, run: Run, figure: str, predicted: float) -> tuple[float, float] | None:
    """Return the 80% interval of a figure from the residuals of other groups, None where too few are known."""
    logs = [
        log(value / left_out(other)[figure])
        for other in runs(name)[0]
        if other.figures and other.row["group"] != run.row["group"]
        for key, value in other.measured()
        if key == figure
    ]
    if len(logs) < LEAST_ROWS:
        return None
    low, high = log_quantiles(np.array(logs))
    return predicted * exp(low), predicted * exp(high)


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
