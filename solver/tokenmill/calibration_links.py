"""Fits the constants of exchanges inside a scale-up domain on measured collectives, through the formulas that plans use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tokenmill.calibration_fit import Constant, Fitted, Result, fit, records, write_constants, write_table
from tokenmill.catalog import Catalog, load_catalog
from tokenmill.validate import FOLDS, fold_of, group_quantiles
from tokenmill.validate_links import ENGINE_OWN, FILES, LIBRARY, Rows, half_constants, left_out, predict, read

SOURCE = "fitted on measured/kernels/{}.csv"
SMALLEST, HOP = 0.3, 1e-6
"""Share of the rows that count as smallest messages, and s of a hop, where a fit starts."""

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
    Constant("exchange_self", "1", 0.5, 0.01, 1.0),
)
OWN = (
    Constant("own_start", "s", 5e-6, 1e-7, 3e-5),
    Constant("own_hops", "1", 0.1, 1e-4, 100.0),
    Constant("own_share", "1", 0.7, 0.02, 1.0),
    Constant("own_pair_share", "1", 0.3, 0.02, 1.0),
)
HOST = (Constant("own_host", "s", 2e-5, 1e-7, 1e-3),)
NO_HOST = {"own_host": 0.0}


def fit_links(catalog: Catalog, half: bool | None = None) -> list[Fitted]:
    """Return the constants of every chip that has measured exchanges, fitted on the rows of one half (None: on all)."""
    files = {file: read(file, catalog)[0] for file in FILES}
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
    for kernel, constants in (("own", OWN), ("eager", HOST)):
        rows = files[ENGINE_OWN].among(kernel)
        tried = tuple(_begun(constant, rows) for constant in constants)
        fitted = _fit(catalog, chip, rows, tried, {**NO_HOST, **known})
        known |= fitted.values
        yield from records(chip, "", fitted, tried, SOURCE.format(ENGINE_OWN))


def _begun(constant: Constant, rows: Rows) -> Constant:
    """Return a constant whose fit starts at what the smallest messages of the fewest and the most ranks show."""
    if constant.name not in ("own_start", "own_hops", "own_host"):
        return constant
    small = rows.at(rows.volume <= np.quantile(rows.volume, SMALLEST))
    few, many = (small.at(small.members == side(small.members)) for side in (np.min, np.max))
    least, most = float(np.median(few.seconds)), float(np.median(many.seconds))
    hop = max(0.0, most - least) / max(many.members[0] - few.members[0], 1.0)
    begun = {"own_start": least - hop * (few.members[0] - 1), "own_hops": hop / HOP, "own_host": least}[constant.name]
    return replace(constant, start=float(np.clip(begun, constant.low, constant.high)))


def _fit(catalog: Catalog, chip: str, rows: Rows, constants: Sequence[Constant], known: Mapping[str, float]) -> Result:
    return fit(
        lambda values: predict(catalog, chip, rows, {**known, **values}), rows.seconds, constants, rows.groups.tolist()
    )


def calibrate_links(folder: Path) -> dict[str, int]:
    """Fit on all rows and on each half, write the tables and the residuals of the halves; return their lines by table."""
    catalog = load_catalog()
    lines = {}
    for name, half in (("links", None), *((f"links_{fold}", fold == FOLDS[0]) for fold in FOLDS)):
        constants = fit_links(catalog, half)
        write_constants(constants, folder / f"{name}.csv")
        lines[f"{name}.csv"] = len(constants)
    half_constants.cache_clear()
    return {**lines, "links_residuals.csv": _write_residuals(catalog, folder / "links_residuals.csv")}


def _write_residuals(catalog: Catalog, path: Path) -> int:
    """Write the range of log(measured/predicted) that holds 80% by kernel and half, rows predicted by the other half."""
    found: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for file in FILES:
        for chip, rows in read(file, catalog)[0].items():
            predicted = left_out(catalog, chip, rows)
            if predicted is None:
                continue
            logs = np.log(rows.seconds / predicted)
            for log, kernel, group in zip(logs.tolist(), rows.kernel.tolist(), rows.groups.tolist(), strict=True):
                found.setdefault((kernel, fold_of(group)), []).append((log, group))
    lines = []
    for (kernel, fold), one in sorted(found.items()):
        low, high = group_quantiles(np.array([log for log, _ in one]), np.array([group for _, group in one]))
        lines.append([kernel, fold, f"{low:.4f}", f"{high:.4f}", len(one), "measured/kernels"])
    write_table(("kernel", "fold", "low", "high", "rows", "source"), lines, path)
    return len(found)
