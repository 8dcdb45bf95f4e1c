"""Fits the constants of exchanges inside a scale-up domain on measured collectives, through the formulas that plans use."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill import data
from tokenmill.calibration_fit import Array, Constant, Fitted, Result, fit, records, write_constants
from tokenmill.calibration_kernels import CHIP_OF
from tokenmill.catalog import Catalog, load_catalog
from tokenmill.topology import machine_of
from tokenmill.validate import fitted_half
from tokenmill_models.collectives import LEVELS, all_reduce, all_to_all, engine_all_reduce, gather, group_leaves
from tokenmill_models.compile import Compiled, compile_graph
from tokenmill_models.formula import Graph
from tokenmill_models.symbols import declare, quantity

LIBRARY, ENGINE_OWN = "nccl", "allreduce"
FILES = (LIBRARY, ENGINE_OWN)
HALVES = ("links_even.csv", "links_odd.csv")
"""Constants fitted on the groups of one half alone: each predicts the rows of the other half."""
ALL = "links.csv"
RESIDUALS = "links_residuals.csv"
SOURCE = "fitted on measured/kernels/{}.csv"
KERNEL_OF = {"all_gather": "gather", "reduce_scatter": "gather", "all_reduce": "reduce", "alltoall": "exchange"}
ELEMENT_BYTES = {"half": 2, "bfloat16": 2, "int8": 1}
ADDED_UP = ("half", "bfloat16")
"""Formats that switches add up in flight."""
PAIR = 2
NO_PEERS = "several cards of a box without copies between them: a peculiarity of that machine"

RING = (
    Constant("ring_start", "s", 5e-6, 1e-7, 1e-3),
    Constant("ring_hops", "1", 1.0, 0.01, 100.0),
    Constant("ring_share", "1", 0.75, 0.05, 1.0),
    Constant("ring_ramp", "s", 1e-5, 1e-8, 1e-2),
)
SWITCH = (Constant("switch_start", "s", 1e-5, 1e-7, 1e-3), Constant("switch_share", "1", 0.6, 0.2, 1.0))
EXCHANGE = (
    Constant("exchange_start", "s", 7e-6, 1e-7, 1e-3),
    Constant("exchange_hops", "1", 0.2, 1e-3, 100.0),
    Constant("exchange_share", "1", 0.75, 0.05, 1.0),
    Constant("exchange_ramp", "s", 1e-5, 1e-8, 1e-2),
)
OWN = (
    Constant("own_start", "s", 5e-6, 1e-7, 3e-5),
    Constant("own_hops", "1", 0.1, 1e-4, 100.0),
    Constant("own_share", "1", 0.6, 0.02, 1.0),
)
HOST = (Constant("own_host", "s", 2e-5, 1e-7, 1e-3),)
NO_HOST = {"own_host": 0.0}
TRIED: dict[str, tuple[Constant, ...]] = {"own": OWN, "eager": HOST, "exchange": EXCHANGE, "ring": RING}

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


@cache
def _raw(file: str, folder: Path) -> tuple[Mapping[str, str], ...]:
    with (folder / f"{file}.csv").open(encoding="utf-8", newline="") as text:
        return tuple(csv.DictReader(text))


def read(file: str, catalog: Catalog, folder: Path | None = None) -> tuple[dict[str, Rows], int, dict[str, int]]:
    """Return the usable rows of a file by chip, the number of rows in it, and how many were left out by reason."""
    entries = _raw(file, folder or data.path("measured") / "kernels")
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


def predict(catalog: Catalog, chip: str, rows: Rows, constants: Mapping[str, float]) -> Array:
    """Return the time [s] of every row with the constants by name (those of kernels that do not occur may be absent)."""
    system = next(s for s in catalog.systems.values() if s.chip == chip and s.chips > 1)
    machine = machine_of(system, None, system.chips)
    placed = machine.groups(rows.members.astype(np.int64), 1)
    reduces = rows.reduces * float(machine.levels[0].in_switch_reduction)
    leaves: dict[str, Any] = {"measured_volume": rows.volume, "measured_captured": rows.captured}
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


def fit_links(folder: Path, catalog: Catalog, half: bool | None = None) -> list[Fitted]:
    """Return the constants of every chip that has measured exchanges, fitted on the rows of one half (None: on all)."""
    files = {file: read(file, catalog, folder)[0] for file in FILES}
    found: list[Fitted] = []
    for chip in sorted(files[LIBRARY]):
        rows = {file: chips[chip] for file, chips in files.items() if chip in chips}
        kept = {file: one if half is None else one.at(one.even == half) for file, one in rows.items()}
        found += sorted(_fit_chip(catalog, chip, kept), key=lambda constant: constant.constant)
    return found


def _fit_chip(catalog: Catalog, chip: str, files: Mapping[str, Rows]) -> Iterator[Fitted]:
    library = files[LIBRARY]
    ring = library.among("gather", "reduce")
    switched = any(s.chip == chip and s.in_switch_reduction for s in catalog.systems.values())
    constants = (*RING, *(SWITCH if switched else ()))
    result = _fit(catalog, chip, ring, constants, {})
    yield from records(chip, "", result, constants, SOURCE.format(LIBRARY))
    exchanged = _fit(catalog, chip, library.among("exchange"), EXCHANGE, {})
    yield from records(chip, "", exchanged, EXCHANGE, SOURCE.format(LIBRARY))
    if ENGINE_OWN not in files:
        return
    known = dict(result.values)
    for kernel, tried in (("own", OWN), ("eager", HOST)):
        rows = files[ENGINE_OWN].among(kernel)
        fitted = _fit(catalog, chip, rows, tried, {**NO_HOST, **known})
        known |= fitted.values
        yield from records(chip, "", fitted, tried, SOURCE.format(ENGINE_OWN))


def _fit(catalog: Catalog, chip: str, rows: Rows, constants: Sequence[Constant], known: Mapping[str, float]) -> Result:
    return fit(
        lambda values: predict(catalog, chip, rows, {**known, **values}), rows.seconds, constants, rows.groups.tolist()
    )


def calibrate_links(folder: Path) -> dict[str, int]:
    """Fit on all rows and on each half, and write the tables below `folder`; return their numbers of constants."""
    measured, catalog = data.path("measured") / "kernels", load_catalog()
    counts = {}
    for name, half in ((ALL, None), *zip(HALVES, (True, False), strict=True)):
        constants = fit_links(measured, catalog, half)
        write_constants(constants, folder / name)
        counts[name] = len(constants)
    return counts
