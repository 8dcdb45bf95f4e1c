"""Scores the files of measured training steps: predicted step time, peak memory and fit beside a constant MFU a chip."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp
from statistics import median

from tokenmill import data
from tokenmill.catalog import load_catalog
from tokenmill.efficiency import chip_constant
from tokenmill.validate import Evaluation, Outcome, fitted_half
from tokenmill.validate_cases import Prediction, Predictor
from tokenmill.validate_training import HELD_OUT, READERS, Measured, measured, read_rows

FIGURES = ("step_time", "mfu", "memory.allocated")
FIGURE_OF = {"step_time": "step_time", "peak_memory": "memory.allocated"}
USED_FOR_FIT = "its group is in the half that constants were fitted on"


@dataclass(frozen=True)
class Pair:
    """A measured row with its prediction (None: refused, with why)."""

    row: Measured
    predicted: Prediction | None
    reason: str = ""

    @property
    def fitted(self) -> bool:
        """Whether the row may enter a fit."""
        return fitted_half(self.row.case.group)


@cache
def pairs(name: str) -> tuple[list[Pair], Mapping[str, int]]:
    """Return the rows of a file with their predictions, and how many rows have none by reason."""
    rows, left = measured(name)
    predictor = Predictor([row.case for row in rows], FIGURES)
    found = predictor.predict()
    return [Pair(row, found[i], predictor.refused.get(i, "")) for i, row in enumerate(rows)], left


def evaluate(name: str) -> Evaluation:
    """Return the scored outcomes of a file of measured/training."""
    found, left = pairs(name)
    left_out = dict(left)
    outcomes: list[Outcome] = []
    for pair in found:
        reason = "" if pair.predicted else f"refused: {pair.reason}"
        if not reason and pair.fitted and name not in HELD_OUT:
            reason = USED_FOR_FIT
        if reason:
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
            row.case.accelerator, metric, row.case.group, predicted.figures[FIGURE_OF[metric]], value,
            baseline_time(pair) if metric == "step_time" else None, None, row.setting if metric == "step_time" else None,
            interval(row.case.system, row.case.stage, FIGURE_OF[metric], predicted.figures[FIGURE_OF[metric]]),
        )
        for metric, value in row.values.items()
    ]  # fmt: skip
    if fits is not None:
        found.append(Outcome(row.case.accelerator, "fits", row.case.group, 0.0, None, fits=fits))
    return found


def baseline_time(pair: Pair) -> float | None:
    """Return the step time at the constant MFU of the accelerator (of all, where none of its rows may enter a fit)."""
    if pair.predicted is None:
        return None
    table = baseline_mfu()
    constant = table.get(pair.row.case.accelerator, table[""])
    return pair.predicted.figures["step_time"] * pair.predicted.figures["mfu"] / constant


@cache
def baseline_mfu() -> Mapping[str, float]:
    """Return the median measured MFU by accelerator ("": of all) over the rows that may enter a fit."""
    found: dict[str, list[float]] = {"": []}
    for name in READERS:
        for pair in pairs(name)[0]:
            time = pair.row.values.get("step_time")
            if pair.predicted is None or time is None or not pair.fitted:
                continue
            mfu = pair.predicted.figures["mfu"] * pair.predicted.figures["step_time"] / time
            for key in ("", pair.row.case.accelerator):
                found.setdefault(key, []).append(mfu)
    return {key: median(values) for key, values in found.items()}


@cache
def _residuals() -> Mapping[tuple[str, str, str], tuple[float, float]]:
    file = data.path("catalog") / "efficiency" / "residuals.csv"
    if not file.exists():
        return {}
    with file.open(encoding="utf-8", newline="") as text:
        rows: Sequence[Mapping[str, str]] = list(csv.DictReader(text))
    return {(r["stage"], r["figure"], r["evidence"]): (float(r["low"]), float(r["high"])) for r in rows}


def evidence_class(system: str) -> str:
    """Return whether the constants of a system's chip in training are its own (calibrated) or a relative's (guess)."""
    catalog = load_catalog()
    return chip_constant(catalog, catalog.system(system).chip, "train_product_share", "").evidence


def interval(system: str, stage: str, figure: str, predicted: float) -> tuple[float, float] | None:
    """Return the 80% interval of a predicted figure from the residuals of its class, None where none are known."""
    quantiles = _residuals().get((stage, figure, evidence_class(system)))
    return None if quantiles is None else (predicted * exp(quantiles[0]), predicted * exp(quantiles[1]))
