"""Fits what devices of users reach of their peaks, a family of chips at a time, on measured/serving/edge.csv."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill import data
from tokenmill.calibration_fit import SPREAD, Fitted, median_and_p90, write_constants
from tokenmill.validate import fitted_half
from tokenmill.validate_devices import FIGURE_OF, HALVES, SYMBOLS, Row, measured, predictor

Array = NDArray[np.float64]
SOURCE = "measured/serving/edge.csv, family {}"


@cache
def families() -> Mapping[str, Any]:
    """Return the families of devices with the first guess and the constants that are not fitted."""
    with (data.path("catalog") / "efficiency" / "devices.toml").open("rb") as file:
        return tomllib.load(file)


def calibrate_devices(folder: Path) -> dict[str, int]:
    """Fit and write the constants of devices: on all rows, and apart on each half of the devices; return rows by table."""
    rows, _ = measured()
    half = np.array([fitted_half(row.case.group) for row in rows])
    every, counts = fit_families(np.ones(half.size, bool))
    errors = {}
    for name, part in zip(HALVES, (half, ~half), strict=True):
        values, sizes = fit_families(part)
        write_constants(_records(values, sizes, {}), folder / name)
        errors[name] = _errors(values, ~part)
    together = {family: np.concatenate([errors[name].get(family, []) for name in HALVES]) for family in every}
    final = [*_records(every, counts, together), *_given()]
    write_constants(final, folder / "devices.csv")
    return {"devices.csv": len(final)}


def fit_families(part: NDArray[np.bool_]) -> tuple[dict[str, dict[str, float]], dict[str, int]]:
    """Return the constants of every family fitted on the rows of `part`, and how many rows each had."""
    known = families()
    guess = {name: entry["value"] for name, entry in known["first_guess"].items()}
    values: dict[str, dict[str, float]] = {"": guess}
    counts: dict[str, int] = {}
    for name, family in known["families"].items():
        values[name], counts[name] = _fit(frozenset(family["chips"]), values[family["relative"]], part)
    return {name: found for name, found in values.items() if name}, counts


def _fit(chips: frozenset[str], start: Mapping[str, float], part: NDArray[np.bool_]) -> tuple[dict[str, float], int]:
    from scipy.optimize import least_squares

    used = {i for i, row in enumerate(measured()[0]) if row.case.system in chips and part[i] and row.value is not None}
    if not used:
        return dict(start), 0
    bounds = [families()["first_guess"][name] for name in start]
    low, high = (np.log([entry[side] for entry in bounds]) for side in ("low", "high"))
    origin = np.clip(np.log(list(start.values())), low + 1e-6, high - 1e-6)
    hold = np.array([entry["hold"] for entry in bounds])

    def misses(logs: Array) -> Array:
        values = dict(zip(start, np.exp(logs).tolist(), strict=True))
        errors = [miss for index, miss in _misses(chips, values) if index in used]
        return np.array([*errors, *(hold * (logs - origin))])

    found = least_squares(misses, origin, bounds=(low, high), loss="cauchy", f_scale=SPREAD)
    return dict(zip(start, np.exp(found.x).tolist(), strict=True)), len(used)


def _misses(chips: frozenset[str], values: Mapping[str, float]) -> Iterator[tuple[int, float]]:
    """Yield (row, log of predicted over measured) of every row on these chips."""
    rows = measured()[0]
    constants = {SYMBOLS[name]: value for name, value in values.items()}
    for batch in predictor().batches:
        if batch.chip in chips:
            named = batch.evaluate(constants)
            for at, index in enumerate(batch.cases):
                row: Row = rows[int(index)]
                if row.value is not None:
                    yield int(index), log(float(named[FIGURE_OF[row.metric]][at]) / row.value)


def _errors(values: Mapping[str, Mapping[str, float]], part: NDArray[np.bool_]) -> dict[str, list[float]]:
    """Return the absolute relative errors of answer rates on the rows of `part`, by family."""
    found: dict[str, list[float]] = {}
    for name, family in families()["families"].items():
        found[name] = [
            abs(exp(miss) - 1)
            for index, miss in _misses(frozenset(family["chips"]), values[name])
            if part[index] and measured()[0][index].metric == "decode"
        ]
    return found


def _records(
    values: Mapping[str, Mapping[str, float]], counts: Mapping[str, int], errors: Mapping[str, Array]
) -> Iterator[Fitted]:
    guess = families()["first_guess"]
    for name, family in families()["families"].items():
        median, worse = median_and_p90(errors.get(name, np.empty(0)))
        for chip in family["chips"]:
            for constant, value in values[name].items():
                unit = guess[constant]["unit"]
                yield Fitted(chip, constant, "", value, unit, counts[name], median, worse, SOURCE.format(name))


def _given() -> Iterator[Fitted]:
    """Yield the constants that are stated, not fitted (their rows are 0)."""
    known = families()
    for family in known["families"].values():
        for chip in family["chips"]:
            source = family["memory_source"]
            yield Fitted(chip, "device_memory_share", "", family["memory_share"], "1", 0, 0.0, 0.0, source)
            source = "llama.cpp: the input embedding stays in host memory beside a card"
            yield Fitted(chip, "device_embedding", "", family["embedding"], "1", 0, 0.0, 0.0, source)
    chip = next(iter(known["families"].values()))["chips"][0]
    for name, entry in known["constants"].items():
        yield Fitted(chip, name, "", entry["value"], entry["unit"], 0, 0.0, 0.0, entry["source"])
