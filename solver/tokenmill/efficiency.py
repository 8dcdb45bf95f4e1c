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
UNIT_OF_KERNEL = {"half_read": "B", "attention_half_read": "B"}


@cache
def _kernels() -> dict[tuple[str, str, str], dict[str, str]]:
    with (data.path("catalog") / "efficiency" / "kernels.csv").open(encoding="utf-8", newline="") as file:
        return {(row["chip"], row["constant"], row["precision"]): row for row in csv.DictReader(file)}


@cache
def _engines() -> dict[str, dict[str, Any]]:
    with (data.path("catalog") / "engines" / "engines.toml").open("rb") as file:
        return tomllib.load(file)


@cache
def kernel_constants() -> frozenset[str]:
    """Return the names of the constants that kernels were fitted for."""
    return frozenset(constant for _, constant, _ in _kernels())


def chip_constant(catalog: Catalog, chip_id: str, constant: str, precision: str) -> Figure:
    """Return a fitted constant of a chip, or of its nearest fitted relative (marked a guess), else the median of all.

    `constant`: one of `kernel_constants`; `precision`: key of `Chip.peak` ("" where it does not depend on it). A chip
    whose largest product was measured keeps its own compute share.
    """
    wanted = precision if any((c, p) == (constant, precision) for _, c, p in _kernels()) else ""
    lineage = catalog.lineage(chip_id)
    for chip in lineage:
        row = _kernels().get((chip.id, constant, wanted)) or _kernels().get((chip.id, constant, "bf16"))
        if row is not None:
            own = chip.id == chip_id
            source = f"{row['source']}, {chip.id}, {row['rows']} rows, median error {float(row['median_error']):.0%}"
            return Figure(float(row["value"]), row["unit"], source, "calibrated" if own else "guess")
    if constant in ("compute_share", "bandwidth_share"):
        return catalog.measured_share(chip_id, precision if constant == "compute_share" else "bandwidth")
    values = [
        float(row["value"]) for (_, c, p), row in _kernels().items() if c == constant and p in (wanted, "bf16", "")
    ]
    return Figure(median(values), UNIT_OF_KERNEL.get(constant, "1"), f"median of fitted chips: {constant}", "guess")


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
