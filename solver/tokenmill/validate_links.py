"""Measured collectives inside a scale-up domain: their rows, predicted by the formulas that plans use, and their scores."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill import data
from tokenmill.calibration_kernels import CHIP_OF
from tokenmill.catalog import Catalog, load_catalog
from tokenmill.efficiency import chip_constant
from tokenmill.topology import Machine, machine_of
from tokenmill.validate import FOLDS, Evaluation, Outcome, fitted_half
from tokenmill_models.collectives import LEVELS, all_reduce, all_to_all, engine_all_reduce, gather, group_leaves
from tokenmill_models.compile import Compiled, compile_graph
from tokenmill_models.formula import Graph
from tokenmill_models.symbols import declare, quantity

Array = NDArray[np.float64]

LIBRARY, ENGINE_OWN = "nccl", "allreduce"
FILES = (LIBRARY, ENGINE_OWN)
KERNEL_OF = {"all_gather": "gather", "reduce_scatter": "gather", "all_reduce": "reduce", "alltoall": "exchange"}
PASSES = {"gather": 1, "exchange": 1}
"""How often a buffer goes over the wire, (n - 1)/n of it each time; an all-reduce twice."""
ELEMENT_BYTES = {"half": 2, "bfloat16": 2, "int8": 1}
ADDED_UP = ("half", "bfloat16")
"""Formats that switches add up in flight."""
PAIR = 2
NO_PEERS = "several cards of a box without copies between them: a peculiarity of that machine"

GROUP = group_leaves("measured")
VOLUME = declare("measured_volume", "B", "bytes of a measured exchange", origin="measured.volume", sign="positive")
CAPTURED = declare("measured_captured", "1", "1 where its launch is captured in a graph", origin="measured.captured")


@dataclass(frozen=True)
class Rows:
    """Measured exchanges of one chip, arrays (rows,): `kernel` word of KERNEL_OF, or own or eager; `seconds`, `volume` [B],
    `members`; `reduces` and `captured` 0 or 1; `groups`: rows that stay together when they are split.
    """

    file: str
    kernel: NDArray[np.str_]
    members: Array
    volume: Array
    reduces: Array
    captured: Array
    seconds: Array
    groups: NDArray[np.str_]

    def among(self, *kernels: str) -> Rows:
        """Return the rows of these kernels."""
        return self.at(np.isin(self.kernel, kernels))

    def at(self, kept: NDArray[np.bool_]) -> Rows:
        """Return the rows that are kept."""
        arrays = {name: value[kept] for name, value in vars(self).items() if name != "file"}
        return Rows(self.file, **arrays)

    @property
    def even(self) -> NDArray[np.bool_]:
        """Which rows belong to the first half."""
        return np.array([fitted_half(group) for group in self.groups], bool)


def read(file: str, catalog: Catalog) -> tuple[dict[str, Rows], int, dict[str, int]]:
    """Return the usable rows of a file by chip, the number of rows in it, and how many were left out by reason."""
    with (data.path("measured") / "kernels" / f"{file}.csv").open(encoding="utf-8", newline="") as text:
        entries = list(csv.DictReader(text))
    kept: dict[str, list[tuple[Any, ...]]] = {}
    left: Counter[str] = Counter()
    for entry in entries:
        chip = CHIP_OF.get(entry["chip"], entry["chip"].replace("_", "-"))
        reason = _unusable(catalog, chip, int(entry["num_gpus"]))
        if reason:
            left[reason] += 1
        else:
            kept.setdefault(chip, []).append(_row(file, entry))
    columns = {chip: [np.array(column) for column in zip(*rows, strict=True)] for chip, rows in kept.items()}
    return {chip: Rows(file, *found) for chip, found in columns.items()}, len(entries), dict(left)


def _unusable(catalog: Catalog, chip: str, members: int) -> str:
    if chip not in catalog.chips or not any(s.chip == chip and s.chips > 1 for s in catalog.systems.values()):
        return "the catalogue has no system of several such chips"
    odd = any(row.chip == chip and not row.general for row in catalog.achieved)
    return NO_PEERS if odd and members > PAIR else ""


def _row(file: str, entry: Mapping[str, str]) -> tuple[Any, ...]:
    format_of = entry["nccl_dtype"] if file == LIBRARY else entry["allreduce_dtype"]
    size = float(entry["message_size"]) * ELEMENT_BYTES[format_of]
    captured = file == LIBRARY or entry["kernel_source"].endswith("graph")
    own = "own" if captured else "eager"
    kernel = KERNEL_OF[entry["op_name"]] if file == LIBRARY else own
    members = float(entry["num_gpus"])
    seconds = float(entry["latency_ms"]) / 1e3
    adds = float(format_of in ADDED_UP)
    return kernel, members, size, adds, float(captured), seconds, f"{members:.0f} x {size:.0f}"


@cache
def formula(kernel: str) -> Compiled:
    """Return the time of a kernel as a numpy function of the leaves of one group."""
    graph = Graph()
    made: dict[str, Callable[[], Any]] = {
        "gather": lambda: gather(graph, "measured", GROUP, VOLUME),
        "reduce": lambda: all_reduce(graph, "measured", GROUP, VOLUME),
        "exchange": lambda: all_to_all(graph, "measured", GROUP, VOLUME),
        "own": lambda: engine_all_reduce(graph, "measured", GROUP, VOLUME, CAPTURED),
    }
    return compile_graph(graph, [made["own" if kernel == "eager" else kernel]()])


def _machine(catalog: Catalog, chip: str) -> Machine:
    system = next(s for s in catalog.systems.values() if s.chip == chip and s.chips > 1)
    return machine_of(system, None, system.chips)


def predict(catalog: Catalog, chip: str, rows: Rows, constants: Mapping[str, float]) -> Array:
    """Return the time [s] of every row with the constants by name (those of kernels that do not occur may be absent)."""
    machine = _machine(catalog, chip)
    placed = machine.groups(rows.members.astype(np.int64), 1)
    reduces = rows.reduces * float(machine.levels[0].in_switch_reduction)
    speed = {"W": catalog.chip(chip).bandwidth, "eta_W": chip_constant(catalog, chip, "bandwidth_share", "").value}
    leaves: dict[str, Any] = {"measured_volume": rows.volume, "measured_captured": rows.captured, **speed}
    for level in range(LEVELS):
        for field in ("n", "beta", "alpha", "pair", "exchange"):
            leaves[f"{field}_measured{level}"] = np.asarray(getattr(placed, field)[level], float)
        leaves[f"reduces_measured{level}"] = reduces if level == 0 else 0.0
    found = np.empty(rows.seconds.size)
    for kernel in np.unique(rows.kernel):
        at = rows.kernel == kernel
        function = formula(str(kernel))
        known = {**{symbol.name: 1.0 for symbol in function.inputs if _constant(symbol)}, **constants, **leaves}
        with np.errstate(all="ignore"):
            (result,) = function(known).values()
        found[at] = result[at]
    return found


def _constant(symbol: Any) -> bool:
    return not (quantity(symbol).origin or "").startswith(("group.", "measured."))


@cache
def half_constants(fold: str) -> Mapping[str, Mapping[str, float]]:
    """Return the constants fitted on one half, by chip and name."""
    found: dict[str, dict[str, float]] = {}
    with (data.path("catalog") / "efficiency" / f"links_{fold}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["chip"], {})[row["constant"]] = float(row["value"])
    return found


def left_out(catalog: Catalog, chip: str, rows: Rows) -> Array | None:
    """Return the time [s] of every row by the constants of the half that it is not in; None for a chip without constants."""
    sides = [half_constants(fold).get(chip) for fold in FOLDS]
    even, odd = (None if side is None else predict(catalog, chip, rows, side) for side in sides)
    return None if even is None or odd is None else np.where(rows.even, odd, even)


@cache
def _residuals() -> Mapping[tuple[str, str], tuple[float, float]]:
    file = data.path("catalog") / "efficiency" / "links_residuals.csv"
    with file.open(encoding="utf-8", newline="") as text:
        return {(row["kernel"], row["fold"]): (float(row["low"]), float(row["high"])) for row in csv.DictReader(text)}


def _textbook(catalog: Catalog, chip: str, rows: Rows) -> Array:
    """Return the time [s] of the plain formula, (n-1)/n of the bytes at the link's rate and a hop a step, as a baseline."""
    machine = _machine(catalog, chip)
    placed = machine.groups(rows.members.astype(np.int64), 1)
    passes = np.array([PASSES.get(str(kernel), 2) for kernel in rows.kernel])
    others = rows.members - 1
    return np.asarray(passes * others * (rows.volume / rows.members / placed.beta[0] + placed.alpha[0]), float)


def evaluate(name: str) -> Evaluation:
    """Return the outcomes of a file of `FILES`: every row by the constants that were fitted without it."""
    catalog = load_catalog()
    chips, total, reasons = read(name, catalog)
    left, outcomes = Counter(reasons), []
    for chip, rows in sorted(chips.items()):
        predicted = left_out(catalog, chip, rows)
        if predicted is None:
            left["the library was not measured on the chip"] += rows.seconds.size
            continue
        base = _textbook(catalog, chip, rows)
        for at, kernel in enumerate(rows.kernel.tolist()):
            low, high = _residuals()[kernel, FOLDS[1] if rows.even[at] else FOLDS[0]]
            value = float(predicted[at])
            outcomes.append(
                Outcome(
                    chip, kernel, str(rows.groups[at]), value, float(rows.seconds[at]), float(base[at]),
                    interval=(value * exp(low), value * exp(high)),
                )
            )  # fmt: skip
    return Evaluation(outcomes, total, dict(left))
