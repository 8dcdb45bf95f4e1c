"""Fits the grouped products of experts as serving engines run them, on measured kernel times."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from tokenmill.calibration_fit import Array, Constant, Fitted, Result, fit, records
from tokenmill.calibration_kernels import CHIP_OF
from tokenmill.catalog import Catalog, Chip

FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4", "w4a16_mxfp4": "fp4"}
"""Measured formats and the format of the stored weights; of several for one the quicker kernel stands."""
WIDENED = "w4a16_mxfp4"
"""Format of chips that cannot multiply what they store."""
WIDE = "bf16"
WIDTH = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5625}
CONSTANTS = (
    Constant("expert_share", "1", 0.4, 0.02, 1.0),
    Constant("expert_rows", "1", 32.0, 0.5, 256.0),
    Constant("expert_bandwidth", "1", 0.8, 0.05, 1.0),
    Constant("expert_start", "s", 3e-5, 1e-7, 1e-3),
)
SIZES = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
SHAPE = ("hidden_size", "inter_size", "topk", "num_experts")

Rows = list[dict[str, str]]


def fit_experts(folder: Path, catalog: Catalog) -> list[Fitted]:
    """Return the constants of every chip and format of `folder`/moe.csv, ordered by chip, format and constant."""
    found: list[Fitted] = []
    for (chip, precision), tables in sorted(_tables(folder, catalog).items()):
        rows = min(tables.values(), key=_typical)
        found += records(
            chip, precision, _fit(catalog.chip(chip), precision, rows), CONSTANTS, "fitted on measured/kernels/moe.csv"
        )
    return found


def _fit(chip: Chip, precision: str, rows: Rows) -> Result:
    seconds = np.array([float(row["latency_ms"]) for row in rows]) / 1e3
    sizes = np.array([[float(row[name]) for name in SIZES] for row in rows]).T
    shapes = [tuple(row[name] for name in SHAPE) for row in rows]
    return fit(lambda values: _time(chip, precision, sizes, values), seconds, CONSTANTS, shapes)


def _time(chip: Chip, precision: str, sizes: Array, values: Mapping[str, float]) -> Array:
    """Time [s] of an expert feed-forward: two grouped products and one sweep (the formula of `timed_experts`)."""
    tokens, hidden, inner, top, experts, tensor, expert = sizes
    pairs, cut = tokens * top / expert, inner / tensor
    copies = experts / expert * (1 - (1 - top / experts) ** tokens)
    peak = chip.peak.get(precision, chip.peak[WIDE])
    total = values["expert_start"] + 2 * pairs * (3 * cut + 4 * hidden) / chip.bandwidth
    for inputs, outputs in ((hidden, 2 * cut), (cut, hidden)):
        work = 2 * (pairs + copies * values["expert_rows"]) * inputs * outputs
        moved = copies * inputs * outputs * WIDTH[precision] + 2 * pairs * (inputs + outputs)
        compute = work / (peak * values["expert_share"])
        total = total + np.maximum(compute, moved / (chip.bandwidth * values["expert_bandwidth"]))
    return np.asarray(total)


def _tables(folder: Path, catalog: Catalog) -> dict[tuple[str, str], dict[str, Rows]]:
    """Return rows by chip and key of its peaks, then by measured format."""
    tables: dict[tuple[str, str], dict[str, Rows]] = {}
    for row in _rows(folder):
        chip = CHIP_OF.get(row["chip"], row["chip"].replace("_", "-"))
        precision = FORMATS.get(row["moe_dtype"])
        if (
            precision
            and chip in catalog.chips
            and (row["moe_dtype"] != WIDENED or precision not in catalog.chip(chip).peak)
        ):
            tables.setdefault((chip, precision), {}).setdefault(row["moe_dtype"], []).append(row)
    return tables


def _rows(folder: Path) -> Iterator[dict[str, str]]:
    with (folder / "moe.csv").open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _typical(rows: Rows) -> float:
    """Median time over that of the work and traffic without any loss: which of two formats has the quicker kernel."""
    tokens, hidden, inner, top, experts, tensor, expert = np.array(
        [[float(row[name]) for name in SIZES] for row in rows]
    ).T
    copies = experts / expert * (1 - (1 - top / experts) ** tokens)
    size = hidden * inner / tensor * np.maximum(copies, tokens * top / expert / 256)
    return float(np.median(np.array([float(row["latency_ms"]) for row in rows]) / size))
