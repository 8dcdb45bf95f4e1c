"""Fits the draw of chips between idle and limit, on measured/serving: four constants a chip, on all rows and on each half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokenmill.calibration_fit import Array, Constant, Fitted, fit_logs, median_and_p90, write_constants
from tokenmill.validate import fitted_half
from tokenmill.validate_cases import Predictor
from tokenmill.validate_serving import HALVES, METRICS, POWER_HALVES, half_table, leaves_of
from tokenmill.validate_serving_rows import Row, measured
from tokenmill_models.energy import WEIGHTS

TABLE = "power.csv"
FILE, METRIC, SPEED = "energy_serving", "power", "rate"
SMALL = 1e-3
"""A constant so small that the draw of no row is capped."""
CONSTANTS = (
    Constant("power_base", "1", 0.4, 0.01, 1.0),
    Constant("power_compute", "1", 1.5, 0.01, 5.0),
    Constant("power_memory", "1", 0.3, 0.01, 2.0),
    Constant("power_pipes", "1", 0.3, 0.01, 1.0),
)
TWICE = 2.0
"""Runs whose speed is missed by more than this say nothing of the draw of what they use: their time goes to something else."""
PRIOR = 0.5
"""Weight of a constant's start beside one group: what chips do alike holds where few models tell a constant."""


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
        told = np.abs(np.log(_slower(draws))) < np.log(TWICE)
        errors = np.full(draws.half.size, np.nan)
        for name, engines, part in zip(POWER_HALVES, HALVES, (draws.half, ~draws.half), strict=True):
            if part.any():
                values = _fit(draws, part & told)
                found[name] += _records(draws.chip, values, int((part & told).sum()), np.empty(0))
                errors[~part] = np.abs(_predict(draws, values, engines) / draws.watts - 1)[~part]
        values = _fit(draws, told)
        found[TABLE] += _records(draws.chip, values, int(told.sum()), errors[np.isfinite(errors)])
    for name, constants in found.items():
        write_constants(constants, folder / name)
    half_table.cache_clear()
    return {name: len(constants) for name, constants in found.items()}


@cache
def _rows() -> tuple[Row, ...]:
    return measured(FILE)[0]


@cache
def _predictor() -> Predictor:
    return Predictor([row.case for row in _rows()], [METRICS[name].figure for name in (METRIC, SPEED)])


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


def _fit(draws: Draws, part: NDArray[np.bool_]) -> dict[str, float]:
    """Return the constants fitted on the rows of `part`, groups alike, at the speeds that were measured."""
    idle, limit, uses = _uses(draws)

    def misses(values: dict[str, float]) -> Array:
        watts = idle + (limit - idle) * np.minimum(1.0, uses @ np.array(list(values.values())))
        return np.asarray((np.log(watts / draws.watts) * draws.weight)[part])

    return fit_logs(misses, CONSTANTS, prior=PRIOR)


def _slower(draws: Draws) -> Array:
    """Return the measured speed of every row over the predicted one [1]."""
    rates = np.array([_rows()[i].values[SPEED] for i in draws.at])
    return np.asarray(rates / _predict(draws, {}, figure=METRICS[SPEED].figure))


def _uses(draws: Draws) -> tuple[Array, Array, Array]:
    """Return idle draw and limit [W], and of every row what each constant multiplies [1], at the measured speed.

    The formula of draw is linear below its cap, so that it tells its factors itself.
    """
    names = [constant.name for constant in CONSTANTS]
    idle = _predict(draws, dict.fromkeys(names, 0.0))
    limit = _predict(draws, {**dict.fromkeys(names, 0.0), names[0]: 1.0})
    slower = _slower(draws)
    columns = []
    for name in names:
        watts = _predict(draws, {**dict.fromkeys(names, 0.0), name: SMALL})
        columns.append((watts - idle) / (limit - idle) / SMALL * (1.0 if name == names[0] else slower))
    return idle, limit, np.stack(columns, 1)


def _predict(
    draws: Draws, values: Mapping[str, float], engines: str | None = None, figure: str = METRICS[METRIC].figure
) -> Array:
    """Return a figure of the rows of a chip, at the speeds that the table `engines` predicts (None: the catalogue's)."""
    found = np.full(len(_rows()), np.nan)
    weights = {WEIGHTS[name].name: value for name, value in values.items()}
    for batch in _predictor().batches:
        if batch.chip == draws.chip:
            speeds = leaves_of(_rows(), batch, half_table(engines)) if engines else {}
            found[batch.cases] = batch.figures({**speeds, **weights})[figure]
    return found[draws.at]


def _records(chip: str, values: Mapping[str, float], count: int, errors: Array) -> list[Fitted]:
    median, worse = median_and_p90(errors)
    source = f"fitted on measured/serving/{FILE}.csv"
    return [Fitted(chip, name, "", value, "1", count, median, worse, source) for name, value in values.items()]
