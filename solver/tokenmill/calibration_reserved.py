"""Fits what a framework of pretraining takes of a device beyond its peak of tensors, on runs whose memory was read from the device.

Memory of a run = peak of tensors · (1 + fragmentation) + reserve: linear in both constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tokenmill.calibration_fit import Array, Fitted, left_out, median_and_p90
from tokenmill.efficiency import GENERIC, Table, engine_figure, engine_like
from tokenmill.validate import fitted_half, log_quantiles
from tokenmill.validate_cases import Predictor, engine_of, stages_alike
from tokenmill.validate_training import READERS, Measured, measured
from tokenmill_models import training_leaves as leaf

METRIC = "reserved_memory"
PEAK, SHOWN = "memory.allocated", "memory.total"
SOURCE = "fitted on measured/training, memory that devices showed"
CONSTANTS = {"fragmentation": (leaf.fragmentation.name, "1"), "reserve_train": (leaf.reserve.name, "B")}
"""Constants of a framework: their leaves and units, in the order of the terms of the fit."""
LEAST_ROWS = 8
"""Rows that a framework has at least on a half of the groups, and that residuals are of."""
SPREAD = 0.05
"""Relative error from which a row counts linearly."""
ROUNDS = 30


@dataclass(frozen=True)
class Shown:
    """Runs by row: the peak of their tensors as predicted [B], what the device showed [B], their framework, and their half."""

    peak: Array
    bytes: Array
    engines: NDArray[np.str_]
    even: NDArray[np.bool_]

    def predict(self, constants: Mapping[str, Array]) -> Array:
        """Return the memory of every run [B], nan where its framework has no constants."""
        none = np.full(len(CONSTANTS), np.nan)
        chosen = np.array([constants.get(str(engine), none) for engine in self.engines])
        return np.asarray(self.peak * (1 + chosen[:, 0]) + chosen[:, 1])


@cache
def shown() -> Shown:
    """Return the runs whose memory was read from the device."""
    return _runs(METRIC)


@cache
def counted() -> Shown:
    """Return the runs whose peak of tensors was read from the framework."""
    return _runs("peak_memory")


def _runs(metric: str) -> Shown:
    rows: list[Measured] = [row for name in READERS for row in measured(name)[0] if metric in row.values]
    found = Predictor([row.case for row in rows], (PEAK,)).predict()
    kept = [(row, one.figures[PEAK]) for row, one in zip(rows, found, strict=True) if one is not None]
    groups = [row.case.group for row, _ in kept]
    return Shown(
        np.array([peak for _, peak in kept]), np.array([row.values[metric] for row, _ in kept]),
        np.array([engine_of(row.case) for row, _ in kept]), np.array([fitted_half(group) for group in groups], bool),
    )  # fmt: skip


def fit_shown(found: Shown, part: NDArray[np.bool_]) -> dict[str, Array]:
    """Return fragmentation and reserve by framework that fit the runs of `part` best."""
    return {
        str(engine): _solve(found, at)
        for engine in sorted(set(found.engines[part]))
        if (at := part & (found.engines == engine)).sum() >= LEAST_ROWS
    }


def _solve(found: Shown, at: NDArray[np.bool_]) -> Array:
    """Return constants of zero or more with the least absolute relative error, by reweighted least squares."""
    from scipy.optimize import nnls

    terms = np.array([found.peak[at], np.ones(at.sum())]).T / found.bytes[at, None]
    wanted = 1 - found.peak[at] / found.bytes[at]
    scale = terms.max(axis=0)
    solved = np.zeros(len(CONSTANTS))
    for _ in range(ROUNDS):
        robust = 1 / np.sqrt(np.maximum(np.abs(terms @ solved - wanted), SPREAD) / SPREAD)
        solved = nnls(terms / scale * robust[:, None], wanted * robust)[0] / scale
    return np.asarray(solved)


def constants_shown(found: Shown) -> dict[str, list[Fitted]]:
    """Return the constants of all runs ("memory") and of both halves as records, by table."""
    halves = {"even": fit_shown(found, found.even), "odd": fit_shown(found, ~found.even)}
    other = left_out(found, halves)
    whole = fit_shown(found, np.ones(found.even.size, bool))
    tables = {"memory": whole, **{f"memory_{fold}": one for fold, one in halves.items()}}
    return {name: [one for engine, values in by.items() for one in _records(engine, values, found, other)] for name, by in tables.items()}  # fmt: skip


def _records(engine: str, values: Array, found: Shown, other: Array) -> list[Fitted]:
    at = (found.engines == engine) & np.isfinite(other)
    errors = np.abs(other[at] / found.bytes[at] - 1)
    middle, high = median_and_p90(errors)
    return [
        Fitted(engine, name, "", float(value), unit, int(at.sum()), middle, high, SOURCE)
        for (name, (_, unit)), value in zip(CONSTANTS.items(), values, strict=True)
    ]


def residuals_shown(found: Shown, peaks: Shown) -> list[Sequence[str]]:
    """Return the quantiles of log(measured/predicted) as rows of RESIDUAL_COLUMNS: by framework on halves left out; of the generic
    class over all runs, those of other frameworks predicted with its constants, and peaks of tensors (`peaks`) as they are.
    """
    halves = {"even": fit_shown(found, found.even), "odd": fit_shown(found, ~found.even)}
    logs = np.log(found.bytes / left_out(found, halves))
    usual = {
        engine: np.array([engine_figure(GENERIC, name).value for name in CONSTANTS]) for engine in set(found.engines)
    }
    known = {str(engine): logs[found.engines == engine] for engine in sorted(set(found.engines))}
    known[GENERIC] = np.log(np.concatenate([found.bytes / found.predict(usual), peaks.bytes / peaks.peak]))
    lines: list[Sequence[str]] = []
    for engine, own in known.items():
        sure = own[np.isfinite(own)]
        if sure.size >= LEAST_ROWS:
            low, high = log_quantiles(sure)
            lines += [
                (stage, SHOWN, engine, "", f"{low:.4f}", f"{high:.4f}", str(sure.size), SOURCE)
                for stage in stages_alike("training")
            ]
    return lines


def reserved_leaves(engine: str, table: Table) -> dict[str, float]:
    """Return the leaves that `table` sets for a framework, or for the one that it is like."""
    rows = {
        symbol: row
        for name, (symbol, _) in CONSTANTS.items()
        if (row := table.get((engine, name, "")) or table.get((engine_like(engine), name, "")))
    }
    return {symbol: float(row["value"]) for symbol, row in rows.items()}
