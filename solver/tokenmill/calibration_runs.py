"""Fits what a run of several pools adds to the work of each: its overheads, the pace of its pools, the exchange between them.

Constants are fitted in log time on both halves of the groups and on all of them, with every run's layout held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokenmill import data
from tokenmill.calibration_fit import (
    RESIDUAL_COLUMNS,
    Array,
    Constant,
    Fitted,
    fit_logs,
    median_and_p90,
    write_constants,
    write_table,
)
from tokenmill.efficiency import ENGINE, RUN_OF_PARTS, read_constants
from tokenmill.validate import fitted_half, log_quantiles
from tokenmill.validate_cases import stage_of
from tokenmill.validate_runs import LEAST_ROWS, Held, runs

FILE = "rl_posttraining"
SOURCE = f"fitted on measured/training/{FILE}.csv"
FIGURES = ("step_time", "weight_sync_time")
"""Figures of a run that the constants are fitted on."""
CONSTANTS = (
    Constant("step_overhead", "s", 10.0, 0.1, 100.0),
    Constant("write_share", "share", 0.8, 0.2, 1.0),
    Constant("train_share_experts", "share", 0.5, 0.1, 1.0),
    Constant("sync_start", "s", 1.0, 0.01, 30.0),
    Constant("sync_share", "share", 0.2, 0.01, 1.0),
    Constant("sync_tensor", "s", 1e-4, 1e-6, 1e-2),
    Constant("sync_root_share", "share", 0.2, 0.01, 1.0),
    Constant("sync_root_tensor", "s", 1e-4, 1e-6, 1e-2),
)
PRIOR = 0.1
"""What a constant that lies e times off its start costs, in log time: as a row that misses by a tenth."""


@dataclass(frozen=True)
class Observed:
    """Measured figures of runs: each with the run that predicts it, its name and value, and its half."""

    held: tuple[Held, ...]
    figures: tuple[str, ...]
    values: Array
    groups: NDArray[np.str_]
    even: NDArray[np.bool_]

    def weights(self, part: NDArray[np.bool_]) -> Array:
        """Return the weight of every figure of `part`: those of one group count as one."""
        of_part = self.groups[part]
        return np.array([1 / np.sqrt((of_part == group).sum()) for group in of_part])

    def predict(self, leaves: Mapping[str, float], part: NDArray[np.bool_]) -> Array:
        """Return the figures of `part` with constants by symbol (nan elsewhere)."""
        return np.array(
            [
                one.figures(leaves)[name] if at else np.nan
                for one, name, at in zip(self.held, self.figures, part, strict=True)
            ]
        )


@cache
def observed() -> Observed:
    """Return what was measured of runs that state all that shapes them."""
    found = [
        (run, figure, value)
        for run in runs(FILE)[0]
        if run.held is not None and not run.row["scaled"]
        for figure, value in run.measured()
        if figure in FIGURES
    ]
    return Observed(
        tuple(run.held for run, _, _ in found if run.held), tuple(figure for _, figure, _ in found),
        np.array([value for _, _, value in found]), np.array([f"{run.row['group']} {figure}" for run, figure, _ in found]),
        np.array([fitted_half(run.row["group"]) for run, _, _ in found]),
    )  # fmt: skip


def leaves_of(values: Mapping[str, float]) -> dict[str, float]:
    """Return constants by the symbol of their leaf."""
    return {f"engine_{name}": value for name, value in values.items()}


def fit_runs(found: Observed, part: NDArray[np.bool_]) -> dict[str, float]:
    """Return the constants that fit the figures of `part` best in log time; what they do not tell stays near its start."""
    weights = found.weights(part)

    def misses(values: dict[str, float]) -> Array:
        return np.asarray(np.log(found.predict(leaves_of(values), part)[part] / found.values[part]) * weights)

    return fit_logs(misses, CONSTANTS, prior=PRIOR, diff_step=1e-3)


def calibrate_runs(folder: Path) -> dict[str, int]:
    """Fit the constants on both halves and on all runs, write them and the residuals; return lines by table."""
    found = observed()
    everything = np.ones(found.even.size, bool)
    fits = {"even": fit_runs(found, found.even), "odd": fit_runs(found, ~found.even)}
    by_odd, by_even = (found.predict(leaves_of(fits[fold]), everything) for fold in ("odd", "even"))
    other = np.where(found.even, by_odd, by_even)
    for name, values in (("runs", fit_runs(found, everything)), *((f"runs_{fold}", one) for fold, one in fits.items())):
        write_constants(_records(values, found, other), folder / f"{name}.csv")
    lines = _residuals(found, other)
    write_table(RESIDUAL_COLUMNS, lines, folder / "runs_residuals.csv")
    return {"runs.csv": len(CONSTANTS), "runs_residuals.csv": len(lines)}


def _records(values: Mapping[str, float], found: Observed, other: Array) -> list[Fitted]:
    """Return constants with the errors of the figures that they bear on, on halves left out."""
    named = np.array(found.figures)
    records = []
    for one in CONSTANTS:
        at = named == FIGURES[one.name.startswith("sync_")]
        errors = np.abs(other[at] / found.values[at] - 1)
        middle, high = median_and_p90(errors)
        records.append(Fitted(ENGINE, one.name, "", values[one.name], one.unit, int(at.sum()), middle, high, SOURCE))
    return records


def _residuals(found: Observed, other: Array) -> list[Sequence[str]]:
    lines: list[Sequence[str]] = []
    for figure in FIGURES:
        logs = np.log(found.values / other)[np.array(found.figures) == figure]
        if logs.size >= LEAST_ROWS:
            low, high = log_quantiles(logs)
            lines.append(
                (stage_of(FILE), figure, RUN_OF_PARTS, "", f"{low:.4f}", f"{high:.4f}", str(logs.size), SOURCE)
            )
    return lines


@cache
def fold_leaves(fold: str) -> Mapping[str, float]:
    """Return the constants that were fitted on one half of the groups (``even`` or ``odd``), by the symbol of their leaf."""
    table = read_constants(data.path("catalog") / "efficiency" / f"runs_{fold}.csv")
    return leaves_of({constant: float(row["value"]) for (_, constant, _), row in table.items()})
