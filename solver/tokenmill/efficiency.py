"""Achieved shares and overheads: fitted constants of chips and engines, each with its evidence, never 1 for want of a measurement."""

from __future__ import annotations

import csv
import tomllib
from functools import cache
from statistics import median
from typing import Any

from tokenmill import data
from tokenmill.catalog import Catalog, Figure

GENERIC = "generic"
TABLES = ("kernels.csv", "training.csv", "devices.csv")
"""Constants of chips below catalog/efficiency: of single kernels, and of training over single kernels."""
WIDE = "bf16"
NEAREST = {"int8": "fp8", "fp6": "fp8", "int4": "fp4"}
"""Formats without measured products, and the format whose kernels resemble theirs."""
CONVERT = "convert_"
NONE_TO_CONVERT = Figure(0.0, "", "definition: products of 16 bits and more take their input as it is", "input")


@cache
def _kernels() -> dict[tuple[str, str, str], dict[str, str]]:
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for name in TABLES:
        with (data.path("catalog") / "efficiency" / name).open(encoding="utf-8", newline="") as file:
            found |= {(row["chip"], row["constant"], row["precision"]): row for row in csv.DictReader(file)}
    return found


@cache
def _engines() -> dict[str, dict[str, Any]]:
    with (data.path("catalog") / "engines" / "engines.toml").open("rb") as file:
        return tomllib.load(file)


@cache
def kernel_constants() -> frozenset[str]:
    """Return the names of the fitted constants of chips."""
    return frozenset(constant for _, constant, _ in _kernels())


def chip_constant(catalog: Catalog, chip_id: str, constant: str, precision: str) -> Figure:
    """Return a fitted constant of a chip, or of its nearest fitted relative (marked a guess), else the median of all.

    `constant`: one of `kernel_constants`; `precision`: key of `Chip.peak` ("" where it does not depend on it). A chip
    whose largest product was measured keeps its own compute share.
    """
    wanted = NEAREST.get(precision, precision)
    narrow = any(p == wanted != WIDE for _, _, p in _kernels())
    if constant.startswith(CONVERT) and not narrow:
        return NONE_TO_CONVERT
    choices = (wanted, "") if constant.startswith(CONVERT) else (wanted, WIDE, "")
    lineage = catalog.lineage(chip_id)
    for chip in lineage:
        row = next((row for word in choices if (row := _kernels().get((chip.id, constant, word)))), None)
        if row is not None:
            own = chip.id == chip_id and precision == wanted
            source = f"{row['source']}, {chip.id}, {row['rows']} rows, median error {float(row['median_error']):.0%}"
            return Figure(float(row["value"]), row["unit"], source, "calibrated" if own and int(row["rows"]) else "guess")
    if constant in ("compute_share", "bandwidth_share"):
        return catalog.measured_share(chip_id, precision if constant == "compute_share" else "bandwidth")
    rows = [row for (_, c, p), row in _kernels().items() if c == constant and p in choices]
    value = median(float(row["value"]) for row in rows)
    return Figure(value, rows[0]["unit"], f"median of fitted chips: {constant}", "guess")


def engine_figure(name: str, field: str) -> Figure:
    """Return an overhead of a serving engine (s, B or a count); what an engine leaves out, or an unknown engine, is the generic class's."""
    engines = _engines()
    own = engines.get(name, {})
    entry = own.get(field) or engines[GENERIC][field]
    evidence = entry["evidence"] if field in own or name == GENERIC else "guess"
    return Figure(float(entry["value"]), entry["unit"], entry["source"], evidence)


def engine_fields() -> frozenset[str]:
    """Return the fields of the generic engine."""
    return frozenset(_engines()[GENERIC])
