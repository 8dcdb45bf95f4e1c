"""Fits the achieved shares and ramps of chips on measured kernel times (formulas.md section 10; models: roofline, operations).

Constants of a chip: compute_share, half_rows, half_inner, half_columns by precision; bandwidth_share, half_read;
attention_share, attention_half_read. Each is fitted on half of the shapes and scored on the other half.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.catalog import Catalog, Chip

Array = NDArray[np.float64]

CHIP_OF = {"a100_sxm": "a100-sxm-80gb", "b60": "arc-b60"}
PEAK_OF = {"bfloat16": "bf16", "fp8": "fp8", "nvfp4": "fp4"}
WEIGHT_BYTES = {"bfloat16": 2.0, "fp8": 1.0, "nvfp4": 0.5625}
SOURCE = "fitted on measured/kernels"
SPREAD = 0.1
"""Relative error from which a row counts linearly: kernels choose among tilings that no smooth formula follows."""
BOUNDS = {
    "share": (0.05, 1.0),
    "bandwidth_share": (0.05, 1.0),
    "half": (1e-2, 1e4),
    "read": (1e3, 1e9),
}


@dataclass(frozen=True)
class Fitted:
    """A constant of a chip with what it was fitted on, and the errors of times on the shapes left out of the fit."""

    chip: str
    constant: str
    precision: str
    value: float
    unit: str
    rows: int
    median_error: float
    p90_error: float


def fit_kernels(folder: Path, catalog: Catalog) -> list[Fitted]:
    """Return the fitted constants of every chip that `folder` has kernel times of, ordered by chip and constant."""
    found: list[Fitted] = []
    for chip, tables in sorted(_tables(folder, catalog).items()):
        found += _fit_chip(catalog.chip(chip), tables)
    return found


def write_constants(constants: list[Fitted], path: Path) -> None:
    """Write constants as CSV, whole or not at all."""
    aside = path.with_suffix(".new")
    with aside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["chip", "constant", "precision", "value", "unit", "rows", "median_error", "p90_error", "source"]
        )
        for c in constants:
            numbers = [f"{c.value:.5g}", c.unit, c.rows, f"{c.median_error:.3f}", f"{c.p90_error:.3f}"]
            writer.writerow([c.chip, c.constant, c.precision, *numbers, SOURCE])
    aside.replace(path)


def _tables(folder: Path, catalog: Catalog) -> dict[str, dict[str, list[dict[str, str]]]]:
    """Return rows by chip id and table: ``gemm:<precision>``, ``attention_prefill``, ``attention_decode``."""
    tables: dict[str, dict[str, list[dict[str, str]]]] = {}
    for name, row in _rows(folder):
        chip = CHIP_OF.get(row["chip"], row["chip"].replace("_", "-"))
        if chip in catalog.chips and name:
            tables.setdefault(chip, {}).setdefault(name, []).append(row)
    return tables


def _rows(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    for stem in ("gemm", "attention_prefill", "attention_decode"):
        with (folder / f"{stem}.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if stem == "gemm":
                    yield f"gemm:{PEAK_OF[row['gemm_dtype']]}" if row["gemm_dtype"] in PEAK_OF else "", row
                else:
                    yield (stem if row["attn_dtype"] == row["kv_cache_dtype"] == "bfloat16" else ""), row


def _fit_chip(chip: Chip, tables: dict[str, list[dict[str, str]]]) -> list[Fitted]:
    found: list[Fitted] = []
    bandwidth, read = 0.8, 1e7
    for name in sorted(tables, key=lambda key: (key != "gemm:bf16", key)):
        precision = name.partition(":")[2]
        if name.startswith("gemm") and precision in chip.peak:
            fixed = None if precision == "bf16" else (bandwidth, read)
            constants, errors, count = _fit_products(chip, precision, tables[name], fixed)
            if fixed is None:
                bandwidth, read = constants.pop("bandwidth_share"), constants.pop("half_read")
                found.append(Fitted(chip.id, "bandwidth_share", "", bandwidth, "1", count, *errors))
                found.append(Fitted(chip.id, "half_read", "", read, "B", count, *errors))
            found += [Fitted(chip.id, n, precision, v, "1", count, *errors) for n, v in constants.items()]
    for name, constant, unit in (("attention_decode", "attention_half_read", "B"), ("attention_prefill", "attention_share", "1")):
        if name in tables:
            read, errors, count = _fit_attention(chip, name, tables[name], bandwidth, read)
            found.append(Fitted(chip.id, constant, "", read, unit, count, *errors))
    return sorted(found, key=lambda c: (c.constant, c.precision))


def _numbers(rows: list[dict[str, str]], *names: str) -> list[Array]:
    return list(np.array([[float(row[name]) for name in names] for row in rows]).T)


def _fit_products(
    chip: Chip, precision: str, rows: list[dict[str, str]], fixed: tuple[float, float] | None
) -> tuple[dict[str, float], tuple[float, float], int]:
    m, n, k, latency = _numbers(rows, "m", "n", "k", "latency_ms")
    width = WEIGHT_BYTES[rows[0]["gemm_dtype"]]
    flops, moved = 2 * m * n * k, (n * k + m * k) * width + 2 * m * n
    quantised = 0.0 if precision == "bf16" else m * k * (2 + width)

    def predicted(p: Array) -> Array:
        share, rows_, inner, columns, *rest = p
        eta, read = rest if fixed is None else fixed
        compute = flops * (1 + rows_ / m + inner / k + columns / n) / (chip.peak[precision] * share)
        memory = (moved + read) / (chip.bandwidth * eta)
        extra = (quantised + read) / (chip.bandwidth * eta) if precision != "bf16" else 0.0
        return np.asarray(np.maximum(compute, memory) + extra)

    kinds = ["share", "half", "half", "half"] + (["bandwidth_share", "read"] if fixed is None else [])
    start = [0.7, 100.0, 200.0, 200.0] + ([0.8, 1e7] if fixed is None else [])
    values, errors = _fit(predicted, latency / 1e3, start, kinds)
    names = ["compute_share", "half_rows", "half_inner", "half_columns", "bandwidth_share", "half_read"]
    return dict(zip(names, values.tolist(), strict=False)), errors, len(rows)


def _fit_attention(
    chip: Chip, kind: str, rows: list[dict[str, str]], bandwidth: float, read: float
) -> tuple[float, tuple[float, float], int]:
    length = "isl" if kind == "attention_prefill" else "context"
    names = ("batch_size", length, "num_heads", "num_key_value_heads", "head_dim", "window_size", "latency_ms")
    b, s, heads, kv_heads, width, window, latency = _numbers(rows, *names)
    w = np.where(window > 0, np.minimum(window, s), s)
    if kind == "attention_prefill":
        seen = np.minimum(s / 2, w * (1 - (w - 1) / (2 * s)))
        flops, moved = 4 * b * s * heads * width * seen, 4 * b * s * width * (kv_heads + heads)
    else:
        flops, moved = 4 * b * heads * width * w, 4 * b * width * (w * kv_heads + heads)

    def prefill(p: Array) -> Array:
        return np.asarray(flops / (chip.peak["bf16"] * p[0]) + (moved + read) / (chip.bandwidth * bandwidth))

    def decode(p: Array) -> Array:
        return np.asarray((moved + p[0]) / (chip.bandwidth * bandwidth))

    model, start, kinds = (prefill, [0.4], ["share"]) if kind == "attention_prefill" else (decode, [3e7], ["read"])
    values, errors = _fit(model, latency / 1e3, start, kinds)
    return float(values[0]), errors, len(rows)


def _fit(
    predicted: Callable[[Array], Array], seconds: Array, start: list[float], kinds: list[str]
) -> tuple[Array, tuple[float, float]]:
    """Return the constants that fit one half of the rows in log time, and (median, p90) error on the other half."""
    from scipy.optimize import least_squares

    def misses(p: Array, part: Any) -> Array:
        return np.asarray(np.log(predicted(np.exp(p))[part] / seconds[part]))

    order = np.random.default_rng(0).permutation(seconds.size)
    fitted, other = order[::2], order[1::2]
    low, high = (np.log([BOUNDS[kind][side] for kind in kinds]) for side in (0, 1))
    result = least_squares(
        lambda p: misses(p, fitted), np.log(start), bounds=(low, high), loss="soft_l1", f_scale=SPREAD
    )
    error = np.abs(np.expm1(misses(result.x, other)))
    return np.exp(result.x), (float(np.median(error)), float(np.quantile(error, 0.9)))
