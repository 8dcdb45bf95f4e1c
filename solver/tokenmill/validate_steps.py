"""Scores the files of measured training steps: predicted step time, peak memory and fit beside a constant MFU a chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import exp, log
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tokenmill import data
from tokenmill.calibration_memory import fold_table as memory_table
from tokenmill.calibration_reserved import reserved_leaves
from tokenmill.calibration_training import LEAST_GROUPS, LEAST_ROWS, SYMBOLS, fold_table, leaves
from tokenmill.catalog import Catalog, load_catalog
from tokenmill.efficiency import residual_classes
from tokenmill.validate import FOLDS, Evaluation, Outcome, fitted_half, fold_of, group_quantiles, log_quantiles
from tokenmill.validate_cases import Case, Constants, Prediction, Predictor, engine_of
from tokenmill.validate_training import KERNELS_ALONE, READERS, Measured, measured, read_rows, sparse
from tokenmill_models import training_leaves as leaf

FIGURES = ("step_time", "mfu", "memory.allocated", "memory.total")
FIGURE_OF = {
    "step_time": "step_time",
    "peak_memory": "memory.allocated",
    "reserved_memory": "memory.total",
    KERNELS_ALONE: "mfu",
}
MEMORY = ("memory.allocated", "memory.total")
UNFITTED = {name: float(name != leaf.layer_seconds.name) for name in SYMBOLS.values()}
"""Training at the speed of single kernels, without launches, with every exchange of gradients hidden: what kernel times alone say."""


@dataclass(frozen=True)
class Pair:
    """A measured row with its prediction (None: refused, with why), and that of kernel times alone where it is asked for."""

    row: Measured
    predicted: Prediction | None
    reason: str = ""
    unfitted: Prediction | None = None

    @property
    def fold(self) -> str:
        """The half of the groups that the row is in (its prediction comes from a fit on the other half)."""
        return fold_of(self.row.case.group)


@cache
def pairs(name: str) -> tuple[list[Pair], Mapping[str, int]]:
    """Return the rows of a file with their predictions, and how many rows have none by reason."""
    rows, left = measured(name)
    catalog = load_catalog()
    predictor = Predictor([row.case for row in rows], FIGURES, catalog)
    folder = data.path("catalog") / "efficiency"
    by_fit = {fold: predictor.predict(_constants(predictor, catalog, fold, folder)) for fold in FOLDS}
    alone: list[Prediction | None] = [None] * len(rows)
    if any(KERNELS_ALONE in row.values for row in rows):
        alone = predictor.predict({(b.chip, b.precision, b.engine): UNFITTED for b in predictor.batches})
    found = []
    for i, row in enumerate(rows):
        fit = FOLDS[1] if fitted_half(row.case.group) else FOLDS[0]
        found.append(Pair(row, by_fit[fit][i], predictor.refused.get(i, ""), alone[i]))
    return found, left


def _constants(predictor: Predictor, catalog: Catalog, fold: str, folder: Path) -> Constants:
    """Return the leaves of times and of memory that a half of the groups was fitted on sets, by chip, format and engine."""
    held = memory_table(fold, folder)
    found = leaves(predictor, catalog, fold_table(fold, folder))
    return {place: {**times, **reserved_leaves(place[2], held)} for place, times in found.items()}


def evaluate(name: str) -> Evaluation:
    """Return the scored outcomes of a file of measured/training."""
    found, left = pairs(name)
    left_out = dict(left)
    outcomes: list[Outcome] = []
    for pair in found:
        if pair.predicted is None:
            reason = f"refused: {pair.reason}"
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            outcomes += outcomes_of(pair)
    return Evaluation(outcomes, len(read_rows(name)), left_out)


def outcomes_of(pair: Pair) -> list[Outcome]:
    """Return the outcomes of a row: one a metric, and whether it fits with the first (or alone)."""
    row, predicted = pair.row, pair.predicted
    if predicted is None:
        return []
    fits = None if row.fits is None else (row.fits, predicted.fits)
    found = [
        Outcome(
            row.case.accelerator, metric, row.case.group, source.figures[FIGURE_OF[metric]], value,
            baseline_time(pair) if metric == "step_time" else None, None, row.setting if metric == "step_time" else None,
            interval(pair, FIGURE_OF[metric], source.figures[FIGURE_OF[metric]]) if source is predicted else None,
        )
        for metric, value in row.values.items()
        if (source := pair.unfitted if metric == KERNELS_ALONE else predicted)
    ]  # fmt: skip
    if fits is not None:
        found.append(Outcome(row.case.accelerator, "fits", row.case.group, 0.0, None, fits=fits))
    return found


def baseline_time(pair: Pair) -> float | None:
    """Return the step time at the constant MFU of the accelerator (of all, where the other half has none of it)."""
    if pair.predicted is None:
        return None
    table = baseline_mfu()[pair.fold]
    constant = table.get(pair.row.case.accelerator, table[""])
    return pair.predicted.figures["step_time"] * pair.predicted.figures["mfu"] / constant


@cache
def baseline_mfu() -> Mapping[str, Mapping[str, float]]:
    """Return, by half, the median measured MFU by accelerator ("": of all) over the rows of the other half."""
    found: dict[str, dict[str, list[float]]] = {fold: {"": []} for fold in FOLDS}
    for pair in (pair for name in READERS for pair in pairs(name)[0]):
        time = pair.row.values.get("step_time")
        if pair.predicted is None or time is None:
            continue
        mfu = pair.predicted.figures["mfu"] * pair.predicted.figures["step_time"] / time
        other = FOLDS[1 - FOLDS.index(pair.fold)]
        for key in ("", pair.row.case.accelerator):
            found[other].setdefault(key, []).append(mfu)
    return {fold: {key: median(values) for key, values in table.items()} for fold, table in found.items()}


def classes_of(case: Case, catalog: Catalog) -> tuple[str, ...]:
    """Return the classes of residuals of a case, the narrowest first."""
    return residual_classes(catalog, catalog.system(case.system).chip, sparse(case.model), engine_of(case))


@cache
def left_out_residuals() -> Mapping[tuple[str, str], tuple[NDArray[np.str_], NDArray[np.float64]]]:
    """Return groups and log(measured/predicted) of all measured rows by figure and class of residuals, each predicted without its half;
    of memory, all rows are of one class more ("").
    """
    found: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for pair in (pair for name in READERS for pair in pairs(name)[0]):
        if pair.predicted is None:
            continue
        classes = classes_of(pair.row.case, load_catalog())
        for metric, value in pair.row.values.items():
            figure = FIGURE_OF[metric]
            timed = figure not in MEMORY
            if timed and not (metric == "step_time" and (pair.row.fit or sparse(pair.row.case.model))):
                continue
            one = (pair.row.case.group, log(value / pair.predicted.figures[figure]))
            for name in classes if timed else (*classes, ""):
                found.setdefault((figure, name), []).append(one)
    return {name: (np.array([g for g, _ in one]), np.array([x for _, x in one])) for name, one in found.items()}


def interval(pair: Pair, figure: str, predicted: float) -> tuple[float, float] | None:
    """Return the 80% interval of a step time or a memory from the residuals of other groups, None where none are known.

    They are of the narrowest class that has `LEAST_ROWS` of them, of step times of `LEAST_GROUPS` too.
    """
    if figure != "step_time" and figure not in MEMORY:
        return None
    for name in (*classes_of(pair.row.case, load_catalog()), ""):
        groups, logs = left_out_residuals().get((figure, name), (np.array([], str), np.array([])))
        apart = groups != pair.row.case.group
        others = logs[apart]
        if others.size < LEAST_ROWS or (figure not in MEMORY and np.unique(groups[apart]).size < LEAST_GROUPS):
            continue
        low, high = log_quantiles(others) if figure in MEMORY else group_quantiles(others, groups[apart])
        return predicted * exp(low), predicted * exp(high)
    return None
