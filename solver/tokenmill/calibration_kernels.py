"""Fits the constants of chips on measured kernel times, through the very formulas that plans use."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.calibration_fit import Array, Constant, Fitted, Result, fit, records
from tokenmill.catalog import Catalog, Chip
from tokenmill_models.compile import Compiled, compile_graph
from tokenmill_models.formula import Graph, maximum
from tokenmill_models.operations_attention import timed_attention
from tokenmill_models.roofline import W, converted, eta_W, inner_time, launch, timed_product
from tokenmill_models.symbols import declare
from tokenmill_models.tiles import tiled

CHIP_OF = {"a100_sxm": "a100-sxm-80gb", "b60": "arc-b60"}
PEAK_OF = {"bfloat16": "bf16", "fp8": "fp8", "nvfp4": "fp4"}
WEIGHT_BYTES = {"bfloat16": 2.0, "fp8": 1.0, "nvfp4": 0.5625}
MOE_PEAK_OF = {"bfloat16": "bf16", "fp8_block": "fp8", "nvfp4": "fp4"}
GEMM, PREFILL, DECODE, MOE = "gemm", "attention_prefill", "attention_decode", "moe"
SOURCE = "fitted on measured/kernels/{}.csv"

SIDES = (
    Constant("half_rows", "1", 60.0, 0.01, 512.0),
    Constant("half_inner", "1", 100.0, 0.01, 1024.0),
    Constant("half_columns", "1", 60.0, 0.01, 512.0),
)
SHARE = Constant("compute_share", "1", 0.7, 0.05, 1.0)
PLAIN = (
    Constant("bandwidth_share", "1", 0.8, 0.05, 1.0),
    Constant("launch", "s", 3e-6, 1e-7, 1e-4),
    Constant("inner_time", "s", 1e-10, 1e-13, 1e-7),
)
CONVERTED = (
    Constant("convert_launch", "s", 2e-6, 1e-8, 1e-4),
    Constant("convert_time", "s", 1e-12, 1e-15, 1e-9),
    Constant("convert_rows", "1", 60.0, 0.01, 512.0),
    Constant("convert_inner", "1", 500.0, 0.01, 8192.0),
)
TILES = (
    Constant("small_tile_share", "1", 0.9, 0.3, 1.0),
    Constant("split_cost", "1", 0.3, 0.001, 4.0),
)
LARGE = 512
"""Rows of a product from which it is like those of training: libraries take large output tiles."""
PREFILL_CONSTANTS = (
    Constant("attention_share", "1", 0.7, 0.05, 1.0),
    Constant("attention_width", "1", 30.0, 0.01, 256.0),
    Constant("prefill_launch", "s", 1e-5, 1e-7, 1e-3),
    Constant("prefill_row", "s", 3e-12, 1e-14, 1e-9),
)
DECODE_CONSTANTS = (
    Constant("cache_share", "1", 0.8, 0.05, 1.0),
    Constant("decode_launch", "s", 1e-5, 1e-7, 1e-3),
    Constant("decode_row", "s", 2e-11, 1e-14, 1e-9),
)
MOE_CONSTANTS = (Constant("expert_launch", "s", 2e-5, 1e-7, 1e-3),)

Rows = list[dict[str, str]]


def fit_kernels(folder: Path, catalog: Catalog) -> list[Fitted]:
    """Return the fitted constants of every chip that `folder` has kernel times of, ordered by chip and constant."""
    found: list[Fitted] = []
    for chip, tables in sorted(_tables(folder, catalog).items()):
        found += _fit_chip(catalog.chip(chip), tables)
    return found


def _tables(folder: Path, catalog: Catalog) -> dict[str, dict[str, Rows]]:
    """Return rows by chip id and table: ``gemm:<precision>``, ``attention_prefill``, ``attention_decode``."""
    tables: dict[str, dict[str, Rows]] = {}
    for name, row in _rows(folder):
        chip = CHIP_OF.get(row["chip"], row["chip"].replace("_", "-"))
        if chip in catalog.chips and name:
            tables.setdefault(chip, {}).setdefault(name, []).append(row)
    return tables


def _rows(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    formats = {GEMM: ("gemm_dtype", PEAK_OF), MOE: ("moe_dtype", MOE_PEAK_OF)}
    for stem in (GEMM, PREFILL, DECODE, MOE):
        with (folder / f"{stem}.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if stem in formats:
                    column, known = formats[stem]
                    yield f"{stem}:{known[row[column]]}" if row[column] in known else "", row
                else:
                    yield (stem if row["attn_dtype"] == row["kv_cache_dtype"] == "bfloat16" else ""), row


def _fit_chip(chip: Chip, tables: Mapping[str, Rows]) -> list[Fitted]:
    fixed: dict[str, float] = {}
    found: list[Fitted] = []
    for name in sorted(tables, key=lambda key: (key != "gemm:bf16", key)):
        stem, _, precision = name.partition(":")
        if stem != GEMM:
            continue
        constants = (SHARE, *SIDES, *(CONVERTED if fixed else PLAIN))
        if precision in chip.peak:
            result = _fit_products(chip, precision, tables[name], constants, fixed)
            of_format = [c for c in constants if c not in PLAIN]
            found += records(chip.id, precision, result, of_format, SOURCE.format(GEMM))
            if not fixed:
                found += records(chip.id, "", result, PLAIN, SOURCE.format(GEMM))
                fixed = {c.name: result.values[c.name] for c in PLAIN}
            tiles = _fit_tiles(chip, precision, tables[name], {**fixed, **result.values})
            found += records(chip.id, precision, tiles, TILES, SOURCE.format(GEMM))
            experts = tables.get(f"{MOE}:{precision}")
            if experts:
                sorting = _fit_experts(chip, precision, experts, {**fixed, **result.values})
                found += records(chip.id, precision, sorting, MOE_CONSTANTS, SOURCE.format(MOE))
    for stem, constants in ((DECODE, DECODE_CONSTANTS), (PREFILL, PREFILL_CONSTANTS)):
        if stem in tables:
            result = _fit_attention(chip, stem, tables[stem], constants, fixed)
            fixed |= result.values
            found += records(chip.id, "", result, constants, SOURCE.format(stem))
    return sorted(found, key=lambda c: (c.constant, c.precision))


def _numbers(rows: Rows, *names: str) -> list[Array]:
    return list(np.array([[float(row[name]) for name in names] for row in rows]).T)


def _leaf(name: str, unit: str = "1") -> Any:
    return declare(f"kernel_{name}", unit, f"{name} of a measured kernel", origin=f"measured.{name}", sign="positive")


@cache
def _product_formula() -> Compiled:
    graph = Graph()
    rows, inner, columns, moved = (_leaf("m"), _leaf("k"), _leaf("n"), _leaf("moved", "B"))
    return compile_graph(graph, [timed_product(graph, "kernel", rows, inner, columns, moved, _leaf("copies")).time])


@cache
def _tiled_formula() -> Compiled:
    graph = Graph()
    rows, inner, columns, moved = (_leaf("m"), _leaf("k"), _leaf("n"), _leaf("moved", "B"))
    busy = maximum(tiled(rows, inner, columns), moved / (W * eta_W))
    time = busy + launch + inner * inner_time + converted(rows, inner)
    return compile_graph(graph, [graph.let("kernel_tiled", "s", "time of a measured kernel in rounds of tiles", time)])


@cache
def _attention_formula(causal: bool) -> Compiled:
    graph = Graph()
    flops, moved, elements, width = _leaf("flops", "FLOP"), _leaf("moved", "B"), _leaf("elements"), _leaf("width")
    return compile_graph(graph, [timed_attention(graph, "kernel", flops, moved, elements, width, causal).time])


def _bound(formula: Compiled, known: Mapping[str, Any]) -> Callable[[dict[str, float]], Array]:
    """Return the formula as a function of the constants alone; `known` by the last part of a leaf's origin."""
    from tokenmill_models.symbols import quantity

    origins = {s.name: (quantity(s).origin or "").partition(".") for s in formula.inputs}
    constants = {name: float(value) for name, (kind, _, value) in origins.items() if kind == "constant"}
    fields = {name: field.partition("[")[0] for name, (_, _, field) in origins.items() if name not in constants}

    def time(values: dict[str, float]) -> Array:
        given = {**known, **values}
        leaves = constants | {name: given[field] for name, field in fields.items()}
        return np.asarray(next(iter(formula(leaves).values())))

    return time


def _fit_products(
    chip: Chip, precision: str, rows: Rows, constants: tuple[Constant, ...], fixed: Mapping[str, float]
) -> Result:
    known, seconds, shapes = _products(chip, precision, rows, fixed)
    return fit(_bound(_product_formula(), known), seconds, constants, shapes)


def _fit_tiles(chip: Chip, precision: str, rows: Rows, fixed: Mapping[str, float]) -> Result:
    """Fit how large products take their output in tiles, with the other constants of products as fitted."""
    large = [row for row in rows if float(row["m"]) >= LARGE]
    known, seconds, shapes = _products(chip, precision, large, fixed)
    return fit(_bound(_tiled_formula(), known), seconds, TILES, shapes)


def _products(
    chip: Chip, precision: str, rows: Rows, fixed: Mapping[str, float]
) -> tuple[dict[str, Any], Array, list[tuple[str, str]]]:
    """Return what is known of measured products, their times [s], and their shapes."""
    m, n, k, latency = _numbers(rows, "m", "n", "k", "latency_ms")
    width = WEIGHT_BYTES[rows[0]["gemm_dtype"]]
    known = {
        "peak": chip.peak[precision], "bandwidth": chip.bandwidth, "units": chip.units, "m": m, "n": n, "k": k, "copies": 1.0,
        "moved": (n * k + m * k) * width + 2 * m * n, **{c.name: 0.0 for c in CONVERTED}, **fixed,
    }  # fmt: skip
    return known, latency / 1e3, [(row["n"], row["k"]) for row in rows]


def _fit_attention(
    chip: Chip, stem: str, rows: Rows, constants: tuple[Constant, ...], fixed: Mapping[str, float]
) -> Result:
    names = ("num_heads", "num_key_value_heads", "head_dim", "window_size")
    length = "isl" if stem == PREFILL else "context"
    b, s, heads, kv_heads, width, window, latency = _numbers(rows, "batch_size", length, *names, "latency_ms")
    w = np.where(window > 0, np.minimum(window, s), s)
    causal = stem == PREFILL
    queries = b * heads * (s if causal else 1)
    cached = b * kv_heads * (s if causal else w) * width
    seen = np.minimum(s / 2, w * (1 - (w - 1) / (2 * s))) if causal else w
    known = {
        "peak_bf16": chip.peak["bf16"], "bandwidth": chip.bandwidth, "flops": 4 * queries * width * seen,
        "moved": 4 * (cached + queries * width), "elements": queries * width + causal * cached, "width": width,
        "attention_share": 1.0, "attention_width": 1.0, **fixed,
    }  # fmt: skip
    shapes = [tuple(row[name] for name in names) for row in rows]
    return fit(_bound(_attention_formula(causal), known), latency / 1e3, constants, shapes)


def _fit_experts(chip: Chip, precision: str, rows: Rows, known: Mapping[str, float]) -> Result:
    """Fit what an expert feed-forward takes beyond its two grouped products and one sweep (uniform routing)."""
    names = (
        "num_tokens",
        "hidden_size",
        "inter_size",
        "topk",
        "num_experts",
        "moe_tp_size",
        "moe_ep_size",
        "latency_ms",
    )
    tokens, hidden, inner, top, experts, tensor, expert, latency = _numbers(rows, *names)
    width = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5625}[precision]
    pairs, cut = tokens * top / expert, inner / tensor
    copies = experts / expert * (1 - (1 - top / experts) ** tokens)

    def product_time(inputs: Array, outputs: Array) -> Array:
        moved = copies * inputs * outputs * width + 2 * pairs * (inputs + outputs)
        leaves = {
            **{c.name: 0.0 for c in CONVERTED}, **known, "peak": chip.peak[precision], "bandwidth": chip.bandwidth,
            "m": pairs, "k": inputs, "n": outputs, "moved": moved, "copies": copies,
        }  # fmt: skip
        return _bound(_product_formula(), leaves)({})

    sweep = 2 * pairs * (3 * cut + 4 * hidden) / (chip.bandwidth * known["bandwidth_share"])
    busy = product_time(hidden, 2 * cut) + product_time(cut, hidden) + sweep
    shapes = [tuple(row[name] for name in ("hidden_size", "inter_size", "topk", "num_experts")) for row in rows]
    return fit(lambda values: busy + values["expert_launch"], latency / 1e3, MOE_CONSTANTS, shapes)
