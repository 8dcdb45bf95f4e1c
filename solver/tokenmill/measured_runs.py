"""Training steps that a user measured: read from CSV, laid beside predictions, and taken into the fit of `calibrate FILE`."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from tokenmill.catalog import Catalog, load_catalog
from tokenmill.errors import Mistake, ProblemError, TokenmillError, nearest
from tokenmill.imports.architecture import load_architecture
from tokenmill.validate_cases import Case, Predictor
from tokenmill.validate_training import TOKENS, Measured

REQUIRED = ("model", "system", "chips", "sequence_length", "global_batch", "step_time_s")
DEGREES = ("tp", "pp", "virtual", "cp", "ep", "expert_tp", "dp", "micro_batch", "zero")
WORDS = ("recompute", "schedule")
OTHERS = ("precision", "engine", "group")
COLUMNS = (*REQUIRED, *DEGREES, *WORDS, *OTHERS)
"""Columns of a file: a blank one of `DEGREES` and `WORDS` is free; precision is bf16, engine generic, group the model on its system."""


@dataclass(frozen=True)
class Beside:
    """A measured step beside its prediction [s] (None: refused, with the `reason`)."""

    row: str
    system: str
    measured: float
    predicted: float | None
    reason: str = ""

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1."""
        return None if self.predicted is None else self.predicted / self.measured - 1


def read_runs(path: Path, catalog: Catalog | None = None) -> list[Measured]:
    """Return the rows of a file of measured steps.

    Raises
    ------
    ProblemError
        Every mistake of the file at once: line and column, what was found, what is allowed.
    """
    known = catalog or load_catalog()
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            heads = list(reader.fieldnames or ())
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ProblemError([Mistake(str(path), str(error), "a readable CSV file")]) from error
    mistakes = [
        Mistake(f"{path}: {name}", "no such column", "one column each") for name in REQUIRED if name not in heads
    ]
    mistakes += [
        Mistake(f"{path}: {name}", "unknown column", ", ".join(COLUMNS), nearest(str(name), COLUMNS))
        for name in heads
        if name not in COLUMNS
    ]
    if not rows and not mistakes:
        mistakes.append(Mistake(str(path), "no rows", "one measured step a line"))
    if mistakes:
        raise ProblemError(mistakes)
    found = [_row(row, f"{path}: line {at}", path.parent, known, mistakes) for at, row in enumerate(rows, 2)]
    if mistakes:
        raise ProblemError(mistakes)
    return [row for row in found if row is not None]


def _row(row: Mapping[str, str], place: str, base: Path, catalog: Catalog, mistakes: list[Mistake]) -> Measured | None:
    before = len(mistakes)

    def number(name: str, whole: bool = True) -> float | None:
        text = (row.get(name) or "").strip()
        if not text:
            if name in REQUIRED:
                mistakes.append(Mistake(f"{place}: {name}", "nothing", "a number"))
            return None
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        least = 0 if name == "zero" else 1 if whole else 1e-9
        if not isfinite(value) or value < least or (whole and value != int(value)):
            mistakes.append(
                Mistake(
                    f"{place}: {name}",
                    repr(text[:40]),
                    "a whole number of 1 or more" if whole else "a time in s above 0",
                )
            )
            return None
        return value

    seconds = number("step_time_s", whole=False)
    counts = {name: number(name) for name in ("chips", "sequence_length", "global_batch")}
    layout = {name: int(value) for name in DEGREES if (value := number(name)) is not None}
    try:
        system = catalog.system((row["system"] or "").strip()).id
    except TokenmillError as error:
        mistakes.append(Mistake(f"{place}: system", repr(row["system"]), str(error)))
        system = ""
    try:
        model = load_architecture((row["model"] or "").strip(), base).name
    except TokenmillError as error:
        mistakes.append(Mistake(f"{place}: model", repr(row["model"]), str(error)))
        model = ""
    precision = (row.get("precision") or "bf16").strip()
    if precision not in catalog.precisions:
        mistakes.append(
            Mistake(
                f"{place}: precision",
                repr(precision),
                ", ".join(catalog.precisions),
                nearest(precision, catalog.precisions),
            )
        )
    if len(mistakes) > before or seconds is None:
        return None
    words = {name: row[name].strip() for name in WORDS if (row.get(name) or "").strip()}
    workload: dict[str, Any] = {
        "tokens": TOKENS, "sequence_length": counts["sequence_length"], "global_batch": counts["global_batch"], "optimizer": "adam",
        "precision": {"compute": precision}, "layout": {"chips": int(counts["chips"] or 1), **layout, **words},
        "engine": {"name": (row.get("engine") or "generic").strip()},
    }  # fmt: skip
    group = (row.get("group") or f"{model} on {system}").strip()
    named = row["model"].strip()
    shape: str | dict[str, Any] = named
    if (base / named).is_file():
        shape = json.loads((base / named).read_text(encoding="utf-8"))
    return Measured(Case(place, system, group, system, shape, workload), {"step_time": seconds})


def beside(rows: Sequence[Measured], catalog: Catalog | None = None) -> list[Beside]:
    """Return measured steps beside their predictions with the constants of the catalogue."""
    predictor = Predictor([row.case for row in rows], catalog=catalog)
    return [
        Beside(row.case.row, row.case.system, row.values["step_time"], None if one is None else one.figures["step_time"],
               predictor.refused.get(at, ""))
        for at, (row, one) in enumerate(zip(rows, predictor.predict({}), strict=True))
    ]  # fmt: skip


def errors_by_system(found: Sequence[Beside]) -> dict[str, tuple[int, float, float]]:
    """Return by system: rows predicted, median absolute error, and median error."""
    systems: dict[str, list[float]] = {}
    for one in found:
        if one.error is not None:
            systems.setdefault(one.system, []).append(one.error)
    return {name: (len(errors), median(map(abs, errors)), median(errors)) for name, errors in systems.items()}
