"""Achieved shares and overheads: fitted constants of chips and engines, each with its evidence, never 1 for want of a measurement."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from math import exp, sqrt
from pathlib import Path
from statistics import median
from typing import Any

from tokenmill import data
from tokenmill.catalog import Catalog, Figure
from tokenmill.engine_days import GAINING, release_pace
from tokenmill.lending import CLOCKED, HALF, SUSTAINED, lent_share

GENERIC = "generic"
ENGINE = ""
"""The chip of a fitted constant that belongs to frameworks of the generic class, whatever the chip."""
TABLES = (
    "kernels.csv",
    "experts.csv",
    "links.csv",
    "training.csv",
    "memory.csv",
    "runs.csv",
    "devices.csv",
    "power.csv",
)
"""Fitted constants below catalog/efficiency: of single kernels, of grouped products of experts, of exchanges, of training over single kernels, of what frameworks hold of memory, of runs of several pools, of devices of users, of the draw of chips."""
LAYERS = "layers.csv"
"""Constants of cards fitted on times of whole layers: a card keeps them to itself, as its hosts and its limits are its own."""
DRAW = "power_"
"""How constants of the draw of chips begin: they hold at ideal speeds too."""
ACHIEVED = {"ring_share": "all_gather", "exchange_share": "alltoall"}
"""Shares of a link, and the collective whose achieved bandwidth stands for them where neither a chip nor a relative was fitted."""
OF_LINKS = ("ring_", "switch_", "exchange_", "own_")
"""How constants of exchanges begin: chips with links of their own and cards on a host's lend them to their own kind alone."""
RESIDUALS = ("residuals.csv", "engines_residuals.csv", "memory_residuals.csv", "runs_residuals.csv")
"""Quantiles of measured over predicted on rows left out of the fits: of training, of serving engines, of memory in training, of runs of several pools."""
READS = ("bandwidth_share", "cache_share", "expert_bandwidth")
"""Shares of memory bandwidth, that of large reads first."""
DEVICE_READS = "device_bandwidth_share"
"""What the engines of devices reached of a chip's bandwidth, with overheads of their own: the geometric mean with what a relative lends."""
RUN_OF_PARTS = "run of parts"
"""The class of residuals of a run as a whole, made of pools that are predicted apart."""
WIDE = "bf16"
NEAREST = {"int8": "fp8", "fp6": "fp8", "int4": "fp4", "fp16": "bf16"}
"""Formats without measured products, and the format whose kernels resemble theirs."""
CONVERT = "convert_"
NONE_TO_CONVERT = Figure(0.0, "", "definition: products of 16 bits and more take their input as it is", "input")

Table = Mapping[tuple[str, str, str], Mapping[str, str]]
"""Rows of fitted constants by chip, constant and precision."""


def read_constants(file: Path) -> Table:
    """Return the rows of a table of fitted constants."""
    with file.open(encoding="utf-8", newline="") as text:
        return {(row["chip"], row["constant"], row["precision"]): row for row in csv.DictReader(text)}


@cache
def _fitted() -> Table:
    found: dict[tuple[str, str, str], Mapping[str, str]] = {}
    for name in TABLES:
        found |= read_constants(data.path("catalog") / "efficiency" / name)
    return found


@cache
def _own_layers() -> Table:
    return read_constants(data.path("catalog") / "efficiency" / LAYERS)


@cache
def residuals() -> Mapping[tuple[str, str, str, str], tuple[float, float]]:
    """Return the quantiles (10%, 90%) of log(measured/predicted) by stage, figure, class of residuals (evidence), and half ("": all)."""
    rows: list[dict[str, str]] = []
    for name in RESIDUALS:
        file = data.path("catalog") / "efficiency" / name
        if file.exists():
            with file.open(encoding="utf-8", newline="") as text:
                rows += csv.DictReader(text)
    return {(r["stage"], r["figure"], r["evidence"], r["fold"]): (float(r["low"]), float(r["high"])) for r in rows}


_TIMES = ("mean", "p50", "p95", "p99")
FOLLOW = {"tpot.mean": {**{f"tpot.{word}": 1 for word in _TIMES}, "tokens_per_second": -1, "tokens_per_second_per_chip": -1},
          "ttft.mean": {f"ttft.{word}": 1 for word in _TIMES}, "power_per_chip": {"power_per_chip": 1, "power": 1},
          "step_time": {"step_time": 1, "wall_time": 1, "mfu": -1, "hfu": -1, "tokens_per_second": -1,
                        "tokens_per_second_per_chip": -1},
          "memory.total": {"memory.total": 1}}  # fmt: skip
"""Figures that scale with a figure whose residuals are known: as it (1), or as its inverse (-1)."""


def residual_class(catalog: Catalog, chip_id: str, sparse: bool) -> str:
    """Return the widest class of residuals: ``calibrated`` where training was fitted on the chip, for dense models; else ``guess``."""
    return "guess" if sparse else chip_constant(catalog, chip_id, "train_product_share", "").evidence


def residual_classes(catalog: Catalog, chip_id: str, sparse: bool, engine: str = GENERIC) -> tuple[str, ...]:
    """Return the classes of residuals of a case, the narrowest first: family of chips, kind of model and class of engines; family
    and kind; how well the chip is known (``calibrated`` where training was fitted on it, for dense models; else ``guess``).
    """
    near = f"{catalog.chip(chip_id).family} {'sparse' if sparse else 'dense'}"
    return (f"{near} {engine}", near, residual_class(catalog, chip_id, sparse))


def quantiles_of(stage: str, figure: str, classes: Iterable[str]) -> tuple[float, float] | None:
    """Return the quantiles of the narrowest class that has any."""
    return next((known for name in classes if (known := residuals().get((stage, figure, name, "")))), None)


def intervals(
    catalog: Catalog, stage: str, chip_id: str, sparse: bool, figures: Mapping[str, float], engine: str = GENERIC
) -> dict[str, tuple[float, float]]:
    """Return the 80% intervals [low, high] of those predicted figures whose residuals on measured rows are known.

    `sparse`: the model has routed experts; `engine`: its class, whose memory is known whatever the chip.
    """
    found: dict[str, tuple[float, float]] = {}
    classes = (*residual_classes(catalog, chip_id, sparse), engine)
    for figure in FOLLOW:
        quantiles = quantiles_of(stage, figure, classes)
        found |= scaled(figures, figure, quantiles) if quantiles is not None else {}
    return found


def scaled(figures: Mapping[str, float], figure: str, quantiles: tuple[float, float]) -> dict[str, tuple[float, float]]:
    """Return the intervals [low, high] of the figures that follow one whose quantiles of log(measured/predicted) are given."""
    found: dict[str, tuple[float, float]] = {}
    for name, power in FOLLOW.get(figure, {figure: 1}).items():
        if name in figures:
            low, high = sorted(figures[name] * exp(power * quantile) for quantile in quantiles)
            found[name] = (low, high)
    return found


@cache
def _engines() -> dict[str, dict[str, Any]]:
    with (data.path("catalog") / "engines" / "engines.toml").open("rb") as file:
        return tomllib.load(file)


@cache
def kernel_constants() -> frozenset[str]:
    """Return the names of the fitted constants of chips."""
    engine = {constant for chip, constant, _ in _fitted() if chip == ENGINE or chip in _engines()}
    of_engines = engine & set(_engines()[GENERIC])
    return frozenset(constant for _, constant, _ in _fitted()) - of_engines


def chip_constant(catalog: Catalog, chip_id: str, constant: str, precision: str, own: bool = True) -> Figure:
    """Return a fitted constant of a chip, or of its nearest fitted relative (marked a guess), else the median of all.

    `constant`: one of `kernel_constants`; `precision`: key of `Chip.peak` ("" where it does not depend on it). A chip
    whose largest product was measured keeps its own compute share. `own`: whether what whole layers of the card told counts.
    """
    row = _layer_row(chip_id, constant, precision) if own else None
    if row is not None:
        return Figure(float(row["value"]), row["unit"], _source(row, chip_id), "calibrated")
    return fitted_figure(catalog, chip_id, constant, precision, _fitted())


def _layer_row(chip_id: str, constant: str, precision: str) -> Mapping[str, str] | None:
    """Return a card's constant from whole layers, in the format asked for or one of its width."""
    words = (NEAREST.get(precision, precision) if precision in HALF else precision, "")
    return next((row for word in words if (row := _own_layers().get((chip_id, constant, word)))), None)


def _source(row: Mapping[str, str], chip: str) -> str:
    return f"{row['source']}, {chip}, {row['rows']} rows, median error {float(row['median_error']):.0%}"


@lru_cache(maxsize=1024)
def relatives(catalog: Catalog, chip_id: str) -> tuple[str, ...]:
    """Return a chip and those whose constants it takes, nearest first: its lineage, its family, then the family's generation."""
    line = [chip.id for chip in catalog.lineage(chip_id)]
    family = catalog.chip(chip_id).family
    near = [c.id for c in catalog.chips.values() if c.family == family]
    wide = [c.id for c in catalog.chips.values() if c.family.partition("-")[0] == family.partition("-")[0]]
    return tuple(dict.fromkeys([*line, *near, *wide]))


def fitted_figure(catalog: Catalog, chip_id: str, constant: str, precision: str, table: Table) -> Figure:
    """Return a constant of `table` for a chip: its own or its nearest relative's, in the format or the nearest to it."""
    wanted = NEAREST.get(precision, precision)
    converts = constant.startswith(CONVERT)
    if converts and not any(c == constant and p == wanted for _, c, p in table):
        return NONE_TO_CONVERT
    choices = (wanted, "") if converts else (wanted, WIDE, "")
    for chip in (*relatives(catalog, chip_id), ENGINE):
        if not _lends(catalog, constant, chip, chip_id):
            continue
        key = next((key for word in choices if (key := (chip, constant, word)) in table), None)
        if key is not None:
            row = table[key]
            own = chip in (chip_id, ENGINE) and precision in (wanted, "fp16")
            value = _lent(catalog, key, chip_id, table)
            return Figure(value, row["unit"], _source(row, chip), "calibrated" if own and int(row["rows"]) else "guess")
    if constant in ("compute_share", "bandwidth_share"):
        return catalog.measured_share(chip_id, precision if constant == "compute_share" else "bandwidth")
    line = {chip.id for chip in catalog.lineage(chip_id)}
    if constant in ACHIEVED and any(row.general and row.chip in line for row in catalog.achieved):
        return catalog.link_share(chip_id, ACHIEVED[constant])
    return _usual(catalog, chip_id, constant, choices, table)


def _lends(catalog: Catalog, constant: str, chip: str, asks: str) -> bool:
    """Return whether a chip's constant may stand for that of the chip that asks."""
    if not constant.startswith(OF_LINKS) or chip not in catalog.chips:
        return True
    return bool(catalog.chip(chip).scale_up) == bool(catalog.chip(asks).scale_up)


def _lent(catalog: Catalog, key: tuple[str, str, str], asks: str, table: Table) -> float:
    """Return a chip's constant as it stands for the chip that asks: shares of matrix units by the power of both (of what training
    keeps up no more than the lender's); shares of bandwidth raised half-way to what the asking chip's own memory gave as a device of users.
    """
    chip, constant, precision = key
    value = float(table[key]["value"])
    if chip in (asks, ENGINE) or chip not in catalog.chips:
        return value
    if constant in CLOCKED:
        return lent_share(value, catalog.chip(chip), catalog.chip(asks), precision)
    if constant in SUSTAINED:
        return min(value, lent_share(value, catalog.chip(chip), catalog.chip(asks), precision))
    own, lenders = table.get((asks, DEVICE_READS, "")), table.get((chip, READS[0], ""))
    if constant in READS and own is not None and lenders is not None:
        return min(1.0, value * sqrt(max(1.0, float(own["value"]) / float(lenders["value"]))))
    return value


def _usual(catalog: Catalog, chip_id: str, constant: str, choices: tuple[str, ...], table: Table) -> Figure:
    """Return the median of a constant over the fitted chips (of a link's: over those linked alike), marked a guess."""
    every = {key: row for key, row in table.items() if key[1] == constant}
    alike = {key: row for key, row in every.items() if _lends(catalog, constant, key[0], chip_id)} or every
    rows = [row for (_, _, p), row in alike.items() if p in choices] or list(alike.values())
    value = median(float(row["value"]) for row in rows)
    return Figure(value, rows[0]["unit"], f"median of fitted chips: {constant}", "guess")


def fitted_field(name: str, field: str, table: Table) -> Mapping[str, str] | None:
    """Return the fitted constant of a class of engines (its name stands for the chip), or that of the generic class."""
    return next(
        (row for one in (name, engine_like(name)) if (row := table.get((one, field, "")))),
        table.get((ENGINE, field, "")),
    )


def engine_like(name: str) -> str:
    """Return the class of engines whose fitted constants a class takes where it has none of its own."""
    return str(_engines().get(name, {}).get("like", ENGINE))


def engine_fields(name: str) -> frozenset[str]:
    """Return the fields that the data state for a class of engines itself."""
    return frozenset(_engines().get(name, {})) if name != GENERIC else frozenset()


def engine_version(name: str, version: str) -> str:
    """Return the engine of the data that stands for a version: the nearest fitted one ("vllm 0.11"), else the engine itself."""
    asked = _release(version)
    fitted = {
        _release(str(entry["version"])): key
        for key, entry in _engines().items()
        if key.partition(" ")[0] == name and "version" in entry
    }
    return fitted[min(fitted, key=lambda known: abs(known - asked))] if asked and fitted else name


def _release(version: str) -> int:
    """Return the first two numbers of a version as one that orders them (0 where there are none): 0.11.2 is 11."""
    found = re.match(r"v?(\d{1,3})(?:\.(\d{1,4}))?(?!\d)", version)
    return int(found[1]) * 10_000 + int(found[2] or 0) if found else 0


@cache
def _engine_fits() -> Mapping[tuple[str, str], Mapping[str, str]]:
    """Return the fitted constants of engines by engine (or "engine version") and field."""
    with (data.path("catalog") / "efficiency" / "engines.csv").open(encoding="utf-8", newline="") as file:
        return {(row["chip"], row["constant"]): row for row in csv.DictReader(file)}


def engine_gain(field: str) -> float:
    """Return the share by which a constant of engines falls every month [1/month]."""
    row = _engine_fits().get((GENERIC, GAINING.get(field, "")))
    return 0.0 if row is None else float(row["value"])


def released_figure(name: str, field: str, version: str) -> Figure:
    """Return an overhead of a serving engine in the build whose day a version names."""
    figure, pace = engine_figure(name, field), release_pace(version, engine_gain(field))
    if pace == 1:
        return figure
    return replace(figure, value=figure.value * pace, source=f"{figure.source}; times {pace:.3g} for its day")


def engine_figure(name: str, field: str) -> Figure:
    """Return an overhead of a serving engine (s, B or a count); what an engine leaves out, or an unknown engine, is the generic class's."""
    engines, base = _engines(), name.partition(" ")[0]
    own = engines.get(base, {}) | engines.get(name, {})
    fitted = _engine_fits().get((name, field))
    if fitted is None and field not in engines.get(name, {}):
        fitted = _engine_fits().get((base, field))
    if fitted is None and field not in own:
        fitted = fitted_field(name, field, _fitted())
    if fitted is not None:
        source = f"{fitted['source']}, {fitted['rows']} rows, median error {float(fitted['median_error']):.0%}"
        return Figure(float(fitted["value"]), fitted["unit"], source, "calibrated")
    entry = own.get(field) or engines[GENERIC][field]
    evidence = entry["evidence"] if field in own or name == GENERIC else "guess"
    return Figure(float(entry["value"]), entry["unit"], entry["source"], evidence)
