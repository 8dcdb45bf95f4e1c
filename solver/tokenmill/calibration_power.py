"""Fits the draw of chips between idle and limit, on measured/serving: four constants a chip, on all rows and on each half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokenmill.calibration_fit import SPREAD, Array, Constant, Fitted, write_constants
from tokenmill.validate import fitted_half
from tokenmill.validate_cases import Predictor
from tokenmill.validate_serving import HALVES, METRICS, POWER_HALVES, half_table, leaves_of
from tokenmill.validate_serving_rows import Row, measured
from tokenmill_models.energy import WEIGHTS

TABLE = "power.csv"
FILE, METRIC = "energy_serving", "power"
CONSTANTS = (
    Constant("power_base", "1", 0.4, 0.01, 1.0),
    Constant("power_compute", "1", 1.5, 0.01, 5.0),
    Constant("power_memory", "1", 0.3, 0.01, 2.0),
    Constant("power_pipes", "1", 0.3, 0.01, 1.0),
)
PRIOR = 0.1
"""Weight of a constant's start beside one group: it holds what the rows leave open."""


@dataclass(frozen=True)
class Draws:
    """Rows of one chip: the measured watts, the half of each row (True: the first), and the weight of its group."""

    chip: str
    at: NDArray[np.int64]
    watts: Array
    half: NDArray[np.bool_]
    weight: Array


def calibrate_power(folder: Path) -> dict[str, int]:
    """Fit and write the constants of draw, on all rows and on each half of the groups; return rows by table."""
    found: dict[str, list[Fitted]] = {name: [] for name in (TABLE, *POWER_HALVES)}
    for draws in _draws():
        errors = np.full(draws.half.size, np.nan)
        for name, engines, part in zip(POWER_HALVES, HALVES, (draws.half, ~draws.half), strict=True):
            if part.any():
                values = _fit(draws, part, engines)
                found[name] += _records(draws.chip, values, int(part.sum()), np.empty(0))
                errors[~part] = np.abs(_predict(draws, values, engines) / draws.watts - 1)[~part]
        values = _fit(draws, np.ones(draws.half.size, bool), None)
        found[TABLE] += _records(draws.chip, values, draws.half.size, errors[np.isfinite(errors)])
    for name, constants in found.items():
        write_constants(constants, folder / name)
    half_table.cache_clear()
    return {name: len(constants) for name, constants in found.items()}


@cache
def _rows() -> tuple[Row, ...]:
    return measured(FILE)[0]


@cache
def _predictor() -> Predictor:
    return Predictor([row.case for row in _rows()], [METRICS[METRIC].figure])


def _draws() -> Sequence[Draws]:
    found = []
    for chip in sorted({row.case.accelerator for row in _rows()}):
        at = np.array([i for i, row in enumerate(_rows()) if row.case.accelerator == chip])
        rows = [_rows()[i] for i in at]
        groups = [row.case.group for row in rows]
        weight = np.array([3 / np.sqrt(groups.count(group)) for group in groups])
        watts = np.array([row.values[METRIC] for row in rows])
        found.append(Draws(chip, at, watts, np.array([fitted_half(group) for group in groups]), weight))
    return found


def _fit(draws: Draws, part: NDArray[np.bool_], engines: str | None) -> dict[str, float]:
    """Return the constants fitted on the rows of `part`, groups alike, at the speeds that the table `engines` predicts (None: of all rows)."""
    from scipy.optimize import least_squares

    start, low, high = (np.log([getattr(c, side) for c in CONSTANTS]) for side in ("start", "low", "high"))

    def named(logs: Array) -> dict[str, float]:
        return dict(zip((c.name for c in CONSTANTS), np.exp(logs).tolist(), strict=True))

    def misses(logs: Array) -> Array:
        error = np.log(_predict(draws, named(logs), engines) / draws.watts) * draws.weight
        return np.concatenate([error[part], PRIOR * (logs - start)])

    found = least_squares(misses, start, bounds=(low, high), loss="soft_l1", f_scale=SPREAD, diff_step=1e-2)
    return named(found.x)


def _predict(draws: Draws, values: Mapping[str, float], engines: str | None) -> Array:
    """Return the watts of a chip of every row."""
    figure = METRICS[METRIC].figure
    found = np.full(len(_rows()), np.nan)
    weights = {WEIGHTS[name].name: value for name, value in values.items()}
    for batch in _predictor().batches:
        if batch.chip == draws.chip:
            speeds = leaves_of(_rows(), batch, half_table(engines)) if engines else {}
            found[batch.cases] = batch.figures({**speeds, **weights})[figure]
    return found[draws.at]


def _records(chip: str, values: Mapping[str, float], count: int, errors: Array) -> list[Fitted]:
    median, worse = (float(np.quantile(errors, q)) if errors.size else 0.0 for q in (0.5, 0.9))
    source = f"fitted on measured/serving/{FILE}.csv"
    return [Fitted(chip, name, "", value, "1", count, median, worse, source) for name, value in values.items()]
