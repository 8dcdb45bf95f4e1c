"""Fits what frameworks hold of memory beside counted tensors: activations over the count, bytes a logit, inputs of 4-bit products, a reserve.

The memory of a run is linear in all of them but where one moment of a step overtakes another: each fit is a least-squares problem
without start or bounds but zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.calibration_fit import (
    RESIDUAL_COLUMNS,
    Array,
    Fitted,
    left_out,
    median_and_p90,
    write_constants,
    write_table,
)
from tokenmill.calibration_reserved import constants_shown, counted, residuals_shown, shown
from tokenmill.efficiency import ENGINE, Table, engine_fields, engine_like, fitted_field, read_constants
from tokenmill.validate import fitted_half, log_quantiles
from tokenmill.validate_cases import Batch, Case, engine_of
from tokenmill_models import training_leaves as leaf

FIGURE = "memory.total"
ALLOCATED, RESERVED = "memory.allocated", "memory.reserved"
FIGURES = (FIGURE, ALLOCATED, RESERVED, "memory.weights", "memory.gradients", "memory.optimizer")
SOURCE = "fitted on measured/training/finetune_memory.csv"
SYMBOLS = {
    "saved_share": leaf.saved_share.name, "loss_bytes": leaf.loss_bytes.name, "kept_inputs": leaf.kept_inputs.name,
    "score_copies": leaf.score_copies.name, "reserve_train": leaf.reserve.name,
}  # fmt: skip
UNITS = {"saved_share": "1", "loss_bytes": "B", "kept_inputs": "1", "score_copies": "1", "reserve_train": "B"}  # fmt: skip
USUAL = {
    "saved_share": (1.2, 0.8), "loss_bytes": (14.0, 12.0), "kept_inputs": (1.0, 1.0), "score_copies": (9.0, 6.0),
    "reserve_train": (1e9, 2e9),
}  # fmt: skip
"""What a constant is without rows that tell it, and how far it may lie from that before the fit pays as for one row that misses by
SPREAD: the weight of prior knowledge."""
ANY = "fine-tuning"
"""The class of frameworks that stands for any tool."""
SPREAD = 0.05
"""Relative error from which a row counts linearly."""
LEAST_ROWS = 8
"""Rows that a class of residuals has at least."""
ROUNDS = 30


@dataclass(frozen=True)
class Measured:
    """A row as a problem: its peak [B] (None: it did not run), whether it fitted, the memory of its device [B]."""

    case: Case
    bytes: float | None
    fits: bool
    capacity: float


def residual_class(case: Case) -> str:
    """Return the class of residuals of a case: what is trained and how the base is kept, whatever the tool (``method qlora``)."""
    return f"method {case.workload['method']}"


def fold_table(fold: str, folder: Path) -> Table:
    """Return the constants that were fitted on one half of the groups (``even`` or ``odd``)."""
    return read_constants(folder / f"memory_{fold}.csv")


def given(table: Table) -> Callable[[Batch], dict[str, float]]:
    """Return the leaves that `table` sets for a batch: those of its engine, else of the generic class."""

    def leaves(batch: Batch) -> dict[str, float]:
        stated = engine_fields(batch.engine)
        rows = {name: fitted_field(batch.engine, name, table) for name in SYMBOLS if name not in stated}
        return {SYMBOLS[name]: float(row["value"]) for name, row in rows.items() if row}

    return leaves


@dataclass(frozen=True)
class Memories:
    """Rows that ran with their memory as base + terms @ constants [B] (terms in the order of SYMBOLS)."""

    measured: Array
    base: Array
    terms: Array
    engines: NDArray[np.str_]
    classes: NDArray[np.str_]
    even: NDArray[np.bool_]

    def predict(self, constants: Mapping[str, Array]) -> Array:
        """Return the memory of every row with the constants of its engine, or of the generic class."""
        chosen = np.array(
            [
                next((constants[one] for one in (engine, engine_like(engine)) if one in constants), constants[ENGINE])
                for engine in self.engines
            ]
        )
        return np.asarray(self.base + (self.terms * chosen).sum(axis=1))


@cache
def memories() -> Memories:
    """Return the measured rows with what each constant adds to them, from its usual value on."""
    from tokenmill.validate_memory import measured, predictor

    rows, _ = measured()

    def totals(values: Mapping[str, float]) -> list[float]:
        def leaves(batch: Batch) -> dict[str, float]:
            stated = engine_fields(batch.engine)
            return {SYMBOLS[name]: values.get(name, 0.0) for name in SYMBOLS if name not in stated}

        found = predictor().predict(leaves)
        return [one.figures[FIGURE] if one else np.nan for one in found]

    usual = {name: USUAL[name][0] for name in SYMBOLS}
    middle = np.array(totals(usual))
    more = [(np.array(totals(usual | {name: 2 * usual[name]})) - middle) / usual[name] for name in SYMBOLS]
    terms = np.array(more).T
    base = middle - terms @ np.array(list(usual.values()))
    keep = [i for i, row in enumerate(rows) if row.bytes is not None and np.isfinite(base[i])]
    groups = [rows[i].case.group for i in keep]
    return Memories(
        np.array([rows[i].bytes for i in keep], float), base[keep], terms[keep],
        np.array([engine_of(rows[i].case) for i in keep]), np.array([residual_class(rows[i].case) for i in keep]),
        np.array([fitted_half(group) for group in groups]),
    )  # fmt: skip


def fit_half(found: Memories, part: NDArray[np.bool_]) -> dict[str, Array]:
    """Return the constants by engine that fit the rows of `part` best, those of all its rows for the generic class."""
    constants = {ENGINE: _solve(found, part)}
    for engine in sorted(set(found.engines[part])):
        constants[str(engine)] = _solve(found, part & (found.engines == engine))
    return constants


def _solve(found: Memories, part: NDArray[np.bool_]) -> Array:
    """Return constants of zero or more with the least absolute relative error, by reweighted least squares."""
    from scipy.optimize import nnls

    usual, width = (np.array([USUAL[name][i] for name in SYMBOLS]) for i in (0, 1))
    rows, wanted = found.terms[part], found.measured[part] - found.base[part]
    weights = 1 / found.measured[part]
    prior = np.diag(SPREAD / width)
    solved = usual
    for _ in range(ROUNDS):
        left = np.abs(rows @ solved - wanted) / found.measured[part]
        robust = weights / np.sqrt(np.maximum(left, SPREAD) / SPREAD)
        system = np.vstack([rows * robust[:, None], prior])
        scale = np.abs(system).max(axis=0)
        solved = nnls(system / scale, np.concatenate([wanted * robust, prior @ usual]))[0] / scale
    return np.asarray(solved)


def calibrate_memory(folder: Path) -> dict[str, int]:
    """Fit the constants on both halves and on all rows, write them and the residuals; return lines by table."""
    found = memories()
    halves = {"even": fit_half(found, found.even), "odd": fit_half(found, ~found.even)}
    other, of_pretraining = left_out(found, halves), shown()
    held = constants_shown(of_pretraining)
    whole = fit_half(found, np.ones(found.even.size, bool))
    pooled = left_out(found, {fold: {ENGINE: one[ENGINE]} for fold, one in halves.items()})
    any_tool, own_tool = np.log(found.measured / pooled), np.log(found.measured / other)
    logs = {ANY: any_tool}
    for one in sorted(set(found.classes)):
        at = found.classes == one
        logs |= {f"{ANY} {one}": any_tool[at], str(one): own_tool[at]}
    counts = {}
    for name, constants in (("memory", whole), *((f"memory_{fold}", one) for fold, one in halves.items())):
        lines = [one for engine, values in constants.items() for one in _records(engine, values, found, other)]
        if name == "memory":  # other stages keep the generic class as the data state it
            lines = [replace(one, chip=one.chip or ANY) for one in lines]
        lines += held[name]
        write_constants(lines, folder / f"{name}.csv")
        counts[f"{name}.csv"] = len(lines)
    lines_of = [*_residuals(logs), *residuals_shown(of_pretraining, counted())]
    write_table(RESIDUAL_COLUMNS, lines_of, folder / "memory_residuals.csv")
    return counts | {"memory_residuals.csv": len(lines_of)}


def _records(engine: str, values: Array, found: Memories, other: Array) -> list[Fitted]:
    at = np.ones(other.size, bool) if engine == ENGINE else found.engines == engine
    errors = np.abs(other[at] / found.measured[at] - 1)
    middle, high = median_and_p90(errors)
    return [
        Fitted(engine, name, "", float(value), UNITS[name], int(at.sum()), middle, high, SOURCE)
        for name, value in zip(SYMBOLS, values, strict=True)
    ]


def _residuals(logs: Mapping[str, Array]) -> list[list[Any]]:
    """Return the quantiles of log(measured/predicted) on halves left out, by class of residuals."""
    from tokenmill.validate_cases import stage_of
    from tokenmill.validate_memory import FILE

    lines: list[list[Any]] = []
    for engine, own in logs.items():
        if own.size >= LEAST_ROWS:
            low, high = log_quantiles(own)
            lines.append([stage_of(FILE), FIGURE, engine, "", f"{low:.4f}", f"{high:.4f}", own.size, SOURCE])
    return lines
