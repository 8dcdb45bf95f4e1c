"""Least squares in log time with whole groups left out, and the record of a fitted constant."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenmill.plan_json import write_text

Array = NDArray[np.float64]

SPREAD = 0.1
"""Relative error from which a row counts linearly: kernels choose among tilings that no smooth formula follows."""


@dataclass(frozen=True)
class Constant:
    """A constant to fit: its name, where the fit starts, and the range it may take (in its own unit).

    `hold`: weight of its start beside one group of rows; it holds what the rows leave open.
    """

    name: str
    unit: str
    start: float
    low: float
    high: float
    hold: float = 0.1


@dataclass(frozen=True)
class Fitted:
    """A constant of a chip with what it was fitted on, and the errors of times on the groups left out of the fit."""

    chip: str
    constant: str
    precision: str
    value: float
    unit: str
    rows: int
    median_error: float
    p90_error: float
    source: str


@dataclass(frozen=True)
class Result:
    """Values by name, fitted on all rows; median and 90th percentile error of the same fit on half of the groups, on the other half."""

    values: dict[str, float]
    median_error: float
    p90_error: float
    rows: int


def halves(groups: Sequence[Any], seed: int = 0) -> NDArray[np.bool_]:
    """Return which rows belong to the half to fit on, whole groups together (drawn from a fixed seed)."""
    known = sorted(set(groups))
    order = np.random.default_rng(seed).permutation(len(known))
    side = {group: bool(place % 2 == 0) for group, place in zip(known, order, strict=True)}
    return np.array([side[group] for group in groups])


def fit_logs(
    misses: Callable[[dict[str, float]], Array],
    constants: Sequence[Constant],
    *,
    prior: float = 0.0,
    diff_step: float | None = None,
) -> dict[str, float]:
    """Return the constants by name whose `misses` (soft absolute error) are least, searched by their logarithms.

    `prior`: what a constant that lies e times off its start adds to the misses. `diff_step`: relative step of derivatives.
    """
    from scipy.optimize import least_squares

    names = [constant.name for constant in constants]
    start, low, high = (np.log([getattr(c, field) for c in constants]) for field in ("start", "low", "high"))

    def named(logs: Array) -> dict[str, float]:
        return dict(zip(names, np.exp(logs).tolist(), strict=True))

    def held(logs: Array) -> Array:
        found = misses(named(logs))
        return np.concatenate([found, prior * (logs - start)]) if prior else found

    return named(least_squares(held, start, bounds=(low, high), loss="soft_l1", f_scale=SPREAD, diff_step=diff_step).x)


def fit(
    predicted: Callable[[dict[str, float]], Array], seconds: Array, constants: Sequence[Constant], groups: Sequence[Any]
) -> Result:
    """Fit constants so that `predicted(values)` [s] meets measured `seconds` in log time (soft absolute error)."""

    def misses(values: dict[str, float], part: NDArray[np.bool_]) -> Array:
        return np.asarray(np.log(predicted(values)[part] / seconds[part]))

    def fitted(part: NDArray[np.bool_]) -> dict[str, float]:
        return fit_logs(lambda values: misses(values, part), constants)

    half = halves(groups)
    error = np.abs(np.expm1(misses(fitted(half), ~half)))
    values = fitted(np.ones(seconds.size, bool))
    return Result(values, float(np.median(error)), float(np.quantile(error, 0.9)), int(seconds.size))


class Halved(Protocol):
    """Rows in two halves, and what constants of each class predict of every row."""

    @property
    def even(self) -> NDArray[np.bool_]:
        """Whether a row is in the even half."""

    def predict(self, constants: Mapping[str, Array], /) -> Array:
        """Return the figure of every row."""


def left_out(found: Halved, fits: Mapping[str, Mapping[str, Array]]) -> Array:
    """Return the figure of every row by the fit on the other half (``even``, ``odd``)."""
    return np.where(found.even, found.predict(fits["odd"]), found.predict(fits["even"]))


def median_and_p90(errors: Array) -> tuple[float, float]:
    """Return the median and the 90th percentile of errors, 0 where there are none."""
    return (float(np.quantile(errors, 0.5)), float(np.quantile(errors, 0.9))) if errors.size else (0.0, 0.0)


def records(chip: str, precision: str, result: Result, constants: Iterable[Constant], source: str) -> list[Fitted]:
    """Return the constants of one fit as records."""
    return [
        Fitted(chip, c.name, precision, result.values[c.name], c.unit, result.rows, result.median_error, result.p90_error,
               source)
        for c in constants
    ]  # fmt: skip


RESIDUAL_COLUMNS = ("stage", "figure", "evidence", "fold", "low", "high", "rows", "source")
"""Columns of a table of residuals: quantiles of log(measured/predicted) by what they hold for."""


def write_table(heads: Sequence[str], rows: Iterable[Sequence[Any]], path: Path) -> None:
    """Write rows as CSV, whole or not at all."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heads, *rows])
    write_text(text.getvalue(), path)


def write_constants(constants: Iterable[Fitted], path: Path) -> None:
    """Write constants as CSV, whole or not at all."""
    heads = ("chip", "constant", "precision", "value", "unit", "rows", "median_error", "p90_error", "source")
    rows = [
        (
            c.chip,
            c.constant,
            c.precision,
            f"{c.value:.5g}",
            c.unit,
            c.rows,
            f"{c.median_error:.3f}",
            f"{c.p90_error:.3f}",
            c.source,
        )
        for c in constants
    ]
    write_table(heads, rows, path)
