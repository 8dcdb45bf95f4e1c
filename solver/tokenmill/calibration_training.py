"""Fits the few constants of training (its speed over single kernels, launches, overlap) on the measured steps.

Three fits: on each half of the groups, to score the other half, and on all of them, for plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokenmill.calibration_fit import RESIDUAL_COLUMNS, Array, Fitted, median_and_p90, write_constants, write_table
from tokenmill.catalog import Catalog, load_catalog
from tokenmill.efficiency import (
    ENGINE,
    NEAREST,
    Table,
    engine_fields,
    engine_like,
    fitted_field,
    fitted_figure,
    read_constants,
    relatives,
)
from tokenmill.validate import fitted_half, group_quantiles
from tokenmill.validate_cases import Predictor, engine_of, stage_of
from tokenmill.validate_training import READERS, Measured, measured, sparse
from tokenmill_models import training_leaves as leaf

SOURCE = "fitted on measured/training"
SYMBOLS = {
    "train_product_share": leaf.product_share.name, "train_attention_share": leaf.attention_share.name,
    "train_convert_share": leaf.convert_share.name, "vector_share": leaf.vector_share.name,
    "layer_train": leaf.layer_seconds.name, "overlap_expert": leaf.overlap_expert.name, "expert_speed": leaf.expert_speed.name, "sort_share": leaf.sort_share.name, "product_speed": leaf.product_speed.name, "overlap_data": leaf.overlap_data.name, "hidden_data": leaf.hidden_data.name,
}  # fmt: skip
MOST_WEIGHT = 10
"""Rows of one file, accelerator and format that count in full: beyond, they share the weight of so many."""
LEAST_ROWS, LEAST_GROUPS = 10, 5
"""Rows and groups that a class of residuals has at least: below, those of the next wider class are taken."""
SPREAD = 0.05
"""Relative error from which a row counts linearly."""
OWN = "own"
"""What the rows of a user's file go under."""
MOST_KNOWN = 40
"""Predictions that are kept of a batch of held layouts."""
DRIFT = 0.3
"""How far a constant is expected from its start, in log: what rows hardly tell stays near it."""
MOST_OF_GROUP = 2
"""Rows of one group that count in full: runs of one model on one machine err together."""
ROUNDS = 2
"""How often layouts are chosen anew with the constants fitted last."""
EDGE = 1e-3
"""How far within its bounds a fit starts, in log."""


@dataclass(frozen=True)
class Free:
    """A constant to fit: of a chip (or of the framework, chip `ENGINE`) and a format ("" for any)."""

    constant: str
    chip: str
    precision: str
    unit: str
    start: float
    low: float
    high: float


FUSED = (ENGINE, "llm-foundry", "megatron-2021", "megatron-2023-node", "megatron-deepspeed", "simumax")
"""Classes of frameworks whose sweeps of memory are told apart: how far they are fused differs most."""
CLASSES = (*FUSED, "megatron-bridge nvl72")
"""Classes of frameworks with constants of their own."""
FREE = (
    *(Free("vector_share", name, "", "1", 0.8, 0.2, 1.2) for name in FUSED),
    Free("expert_speed", ENGINE, "", "1", 0.8, 0.25, 1.3),
    Free("overlap_expert", "megatron-bridge nvl72", "", "share", 0.5, 0.01, 1.0),
    Free("sort_share", ENGINE, "", "1", 0.5, 0.1, 1.5),
    Free("layer_train", ENGINE, "", "s", 1e-3, 1e-5, 3e-3),
    Free("overlap_data", ENGINE, "", "share", 0.6, 0.02, 1.0),
    Free("hidden_data", ENGINE, "", "share", 0.6, 0.02, 1.0),
    Free("product_speed", "simumax", "", "1", 0.9, 0.4, 1.2),
    *(Free("train_attention_share", chip, "", "1", 0.9, 0.25, 1.3) for chip in ("a100-sxm-80gb", "h100-sxm", "b200-sxm")),
    *(Free("train_convert_share", chip, "", "1", 1.0, 0.2, 3.0) for chip in ("h100-sxm", "b200-sxm")),
    *(
        Free("train_product_share", chip, precision, "1", 0.9, 0.5, 1.15)
        for chip, formats in (
            ("a100-sxm-80gb", ("bf16",)), ("h100-sxm", ("bf16", "fp8")), ("b200-sxm", ("bf16", "fp8", "fp4")),
            ("b300-sxm", ("fp8", "fp4")),
        )
        for precision in formats
    ),
)  # fmt: skip


OF_ENGINES = frozenset(one.constant for one in FREE if one.chip in CLASSES)
"""Constants of classes of frameworks, whatever the chip."""


class Steps:
    """Measured step times, the shipped ones and a user's `own`, with a predictor of all of them."""

    def __init__(self, catalog: Catalog, own: Sequence[Measured] = ()) -> None:
        self.catalog = catalog
        found = [(name, row) for name in READERS for row in measured(name)[0] if "step_time" in row.values]
        found += [(OWN, row) for row in own]
        self.files = np.array([name for name, _ in found])
        self.rows: list[Measured] = [row for _, row in found]
        self.seconds = np.array([row.values["step_time"] for row in self.rows])
        self.predictor = Predictor([row.case for row in self.rows], catalog=catalog)
        self.even = np.array([fitted_half(row.case.group) for row in self.rows])
        self.usable = np.array([row.fit for row in self.rows])

    def predict(self, table: Table, among: NDArray[np.bool_] | None = None) -> Array:
        """Return the step time of every row (or of those `among`) with the constants of `table` (nan: none)."""
        found = self.predictor.predict(leaves(self.predictor, self.catalog, table), among)
        return np.array([one.figures["step_time"] if one else np.nan for one in found])

    def held(self, table: Table) -> HeldSteps:
        """Return the same steps, each with the layout that is best with the constants of `table`."""
        return HeldSteps(self, self.predictor.held(leaves(self.predictor, self.catalog, table)))

    def weights(self, part: NDArray[np.bool_]) -> Array:
        """Return the weight of every row of `part`: rows of one file, accelerator and format share at most `MOST_WEIGHT`."""
        kinds = np.array([f"{f} {r.case.accelerator} {r.case.workload['precision']['compute']}" for f, r in zip(self.files, self.rows, strict=True)])  # fmt: skip
        groups = np.array([row.case.group for row in self.rows])
        weights = np.zeros(part.size)
        for kind in np.unique(kinds[part]):
            among = part & (kinds == kind)
            _, of_group, counts = np.unique(groups[among], return_inverse=True, return_counts=True)
            shares = np.minimum(1, MOST_OF_GROUP / counts)[of_group]
            weights[among] = np.sqrt(shares * min(1, MOST_WEIGHT / shares.sum()))
        return weights


class HeldSteps:
    """Steps of one layout each; what constants do not touch is not evaluated again."""

    def __init__(self, steps: Steps, predictor: Predictor) -> None:
        self.steps = steps
        self.predictor = predictor
        self.known: dict[tuple[object, ...], Array] = {}

    def predict(self, table: Table, among: NDArray[np.bool_]) -> Array:
        """Return the step time of the rows `among` with the constants of `table` (nan: none)."""
        given = leaves(self.predictor, self.steps.catalog, table)
        found = np.full(len(self.steps.rows), np.nan)
        if len(self.known) > MOST_KNOWN * len(self.predictor.batches):
            self.known.clear()
        for number, batch in enumerate(self.predictor.batches):
            if not among[batch.cases].any():
                continue
            constants = given[batch.chip, batch.precision, batch.engine]
            key = (number, *constants.values())
            if key not in self.known:
                self.known[key] = batch.figures(constants)["step_time"]
            found[batch.cases] = self.known[key]
        return found


def leaves(predictor: Predictor, catalog: Catalog, table: Table) -> dict[tuple[str, str, str], dict[str, float]]:
    """Return the leaves that `table` sets, by symbol name, for every chip, format and engine of a predictor; what the data state for an
    engine is left alone.
    """
    found = {}
    for chip, precision, engine in {(batch.chip, batch.precision, batch.engine) for batch in predictor.batches}:
        constants = {}
        stated = engine_fields(engine)
        for constant, symbol in SYMBOLS.items():
            if constant in stated:
                continue
            own = fitted_field(engine, constant, table)
            if own is None and constant in OF_ENGINES:
                continue  # what the data state for the generic class
            constants[symbol] = (
                float(own["value"]) if own else fitted_figure(catalog, chip, constant, precision, table).value
            )
        found[chip, precision, engine] = constants
    return found


def table_of(values: Mapping[Free, float], rows: int = 0, errors: tuple[float, float] = (0.0, 0.0)) -> Table:
    """Return constants as a table that `fitted_figure` reads."""
    return {
        (free.chip, free.constant, free.precision): {
            "value": str(value), "unit": free.unit, "rows": str(rows), "median_error": str(errors[0]), "source": SOURCE,
        }
        for free, value in values.items()
    }  # fmt: skip


def fit_steps(steps: Steps, part: NDArray[np.bool_]) -> dict[Free, float]:
    """Return the constants that fit the rows of `part` best in log time; layouts that rows leave open are the best with them."""
    values = {one: one.start for one in FREE if _told(one, steps, part)}
    unknown = {one: one.start for one in FREE if one not in values}
    for _ in range(ROUNDS):
        values = _fit_held(steps.held(table_of(values | unknown)), part, values, unknown)
    return values


def _fit_held(
    held: HeldSteps, part: NDArray[np.bool_], values: Mapping[Free, float], unknown: Mapping[Free, float]
) -> dict[Free, float]:
    from scipy.optimize import least_squares

    free, weights = list(values), held.steps.weights(part)

    def misses(logs: Array) -> Array:
        tried = dict(zip(free, np.exp(logs).tolist(), strict=True))
        errors = np.log(held.predict(table_of({**tried, **unknown}), part) / held.steps.seconds)
        data = np.where(np.isfinite(errors) & part, errors, 0.0) * weights
        return np.concatenate([data, SPREAD / DRIFT * (logs - starts)])

    low, high, starts = (np.log([getattr(one, field) for one in free]) for field in ("low", "high", "start"))
    inside = np.clip(np.log([values[one] for one in free]), low + EDGE, high - EDGE)
    found = least_squares(
        misses, inside, bounds=(low, high), loss="soft_l1", f_scale=SPREAD, diff_step=2e-3, max_nfev=15
    )
    return dict(zip(free, np.exp(found.x).tolist(), strict=True))


def _told(one: Free, steps: Steps, part: NDArray[np.bool_]) -> bool:
    """Return whether `part` has rows that tell this constant."""
    return any(_bears(one, row, steps.catalog) for row, used in zip(steps.rows, part, strict=True) if used)


def calibrate_training(folder: Path, own: Sequence[Measured] = ()) -> dict[str, int]:
    """Fit the constants of training, write them with those of both halves and the residuals; return lines by table."""
    steps = Steps(load_catalog(), own)
    halves = {"even": steps.even & steps.usable, "odd": ~steps.even & steps.usable}
    fits = {fold: fit_steps(steps, part) for fold, part in halves.items()}
    other = np.where(steps.even, steps.predict(table_of(fits["odd"])), steps.predict(table_of(fits["even"])))
    whole = fit_steps(steps, steps.usable)
    constants = [_record(one, value, steps, other) for one, value in whole.items()]
    write_constants(constants, folder / "training.csv")
    for fold, values in fits.items():
        write_constants([_record(one, v, steps, other) for one, v in values.items()], folder / f"training_{fold}.csv")
    lines = _write_residuals(steps, other, folder / "residuals.csv")
    return {"training.csv": len(constants), "residuals.csv": lines}


def _record(one: Free, value: float, steps: Steps, other: Array) -> Fitted:
    """Return a constant with the errors, on halves left out, of the rows that it bears on."""
    bears = np.array([_bears(one, row, steps.catalog) for row in steps.rows]) & np.isfinite(other)
    errors = np.abs(other[bears] / steps.seconds[bears] - 1)
    median, p90 = median_and_p90(errors)
    return Fitted(one.chip, one.constant, one.precision, value, one.unit, int(bears.sum()), median, p90, SOURCE)


def _bears(one: Free, row: Measured, catalog: Catalog) -> bool:
    """Return whether the prediction of a row takes this constant: no nearer relative of its chip has one for its format."""
    if one.chip in CLASSES:
        engine = engine_of(row.case)
        named = {free.chip for free in FREE if free.constant == one.constant}
        known = next((name for name in (engine, engine_like(engine)) if name in named), ENGINE)
        return one.constant not in engine_fields(engine) and one.chip == known
    format_ = catalog.precision(row.case.workload["precision"]["compute"]).compute
    plain = NEAREST.get(format_, format_)
    owners = {free.chip for free in FREE if free.constant == one.constant and free.precision in ("", plain)}
    line = relatives(catalog, catalog.system(row.case.system).chip)
    return one.precision in ("", plain) and next((chip for chip in line if chip in owners), None) == one.chip


def _write_residuals(steps: Steps, other: Array, path: Path) -> int:
    """Write the quantiles of log(measured/predicted) on halves left out, by class of residuals from narrow to wide."""
    from tokenmill.validate_steps import classes_of

    found: list[list[str]] = []
    classes = [classes_of(row.case, steps.catalog) for row in steps.rows]
    scored = steps.usable | np.array([sparse(row.case.model) for row in steps.rows])
    for name in sorted({name for one in classes for name in one}):
        at = np.flatnonzero(scored & np.isfinite(other) & np.array([name in one for one in classes]))
        groups = np.array([steps.rows[i].case.group for i in at])
        if at.size >= LEAST_ROWS and np.unique(groups).size >= LEAST_GROUPS:
            low, high = group_quantiles(np.log(steps.seconds[at] / other[at]), groups)
            found.append(
                [stage_of("training"), "step_time", name, "", f"{low:.4f}", f"{high:.4f}", str(at.size), SOURCE]
            )
    write_table(RESIDUAL_COLUMNS, found, path)
    return len(found)


@cache
def fold_table(fold: str, folder: Path) -> Table:
    """Return the constants that were fitted on one half of the groups (``even`` or ``odd``)."""
    return read_constants(folder / f"training_{fold}.csv")
