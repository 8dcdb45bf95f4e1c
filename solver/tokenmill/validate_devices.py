"""Scores the file of measured devices: answer and prompt tokens a second, time to first token, and what does not fit."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

from tokenmill import data
from tokenmill.catalog import load_catalog
from tokenmill.validate import Evaluation, Outcome, fitted_half
from tokenmill.validate_cases import Case, Predictor
from tokenmill.validate_serving_rows import names

FIGURES = ("tokens_per_second", "prefill_tokens_per_second", "ttft.mean", "memory.weights")
FIGURE_OF = {"decode": "tokens_per_second", "prefill": "prefill_tokens_per_second", "ttft": "ttft.mean"}
WITHOUT_FLASH = "May 2024"  # builds of llama.cpp before flash attention became the default
SYMBOLS = {
    "device_bandwidth_share": "eta_device_bandwidth",
    "device_cache_share": "eta_device_cache",
    "device_flash_share": "eta_device_flash",
    "device_compute_share": "eta_device_compute",
    "device_layer": "device_layer",
}
"""Fitted constants of devices: name in catalog/efficiency/devices.csv to symbol."""
CHUNKED = "llama.cpp"
CUT_ACROSS = ("vllm", "mlc")
WITHOUT_LAYERS = "Llama.cpp Oct 2023"
"""Builds of llama.cpp before pull request 4766 (January 2024): several devices share matrices by rows, not layers."""
LONGEST = 1e6  # engines that pass a prompt whole
HALVES = ("devices_half_a.csv", "devices_half_b.csv")
"""Constants fitted on the devices of one half alone: each predicts the rows of the other half."""


@dataclass(frozen=True)
class Row:
    """A measured row as a case: `metric` of FIGURE_OF, `value` in SI (None: it did not fit)."""

    case: Case
    metric: str
    value: float | None


def read_rows() -> list[dict[str, str]]:
    """Return the rows of measured/serving/edge.csv as text by column."""
    with (data.path("measured") / "serving" / "edge.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def measured() -> tuple[tuple[Row, ...], Mapping[str, int]]:
    """Return every row that can be asked as a problem, and how many cannot by reason."""
    rows: list[Row] = []
    left: Counter[str] = Counter()
    for entry in read_rows():
        reason = _unusable(entry)
        if reason:
            left[reason] += 1
        else:
            rows.append(_row(entry))
    return tuple(rows), dict(left)


def _unusable(entry: Mapping[str, str]) -> str:
    if not entry["chip"] or entry["chip"] not in load_catalog().chips:
        return "the catalogue has no such device"
    if entry["weights"] == "?":
        return "its format or its speculation is not offered"
    if entry["devices"] != "1" and (entry["engine"] in CUT_ACROSS or entry["version"] == WITHOUT_LAYERS):
        return "layers cut across devices, not split over them"
    if entry["batch"] not in ("", "1"):
        return "several conversations at once"
    if not _model(entry["model"]):
        return "the catalogue has no such model"
    return ""


@cache
def _model(name: str) -> str | None:
    """Return the model as problems name it: of the catalogue, or a configuration beside the measurements."""
    from tokenmill.imports.architecture import architecture_names

    if name in architecture_names():
        return name
    beside = data.path("measured") / "serving" / "models" / f"{name}.json"
    return str(beside) if beside.exists() else None


def _row(entry: Mapping[str, str]) -> Row:
    number = float(entry["value"]) if entry["value"] else None
    tokens, depth = float(entry["tokens"] or 0), float(entry["depth"] or 0)
    lengths = {"input_tokens": 1.0, "output_tokens": tokens or 128.0, "past_tokens": depth}
    if entry["test"] != "decode":
        lengths = {"input_tokens": tokens or 512.0, "output_tokens": 1.0, "past_tokens": depth}
    stated = float(entry["memory_gib"] or 0) if entry["source_checked"] == "yes" else 0.0
    part = min(1.0, stated * 2**30 / load_catalog().chip(entry["chip"]).capacity) if stated else 1.0
    whole = {} if entry["engine"] == CHUNKED else {"chunk": LONGEST}
    workload: dict[str, Any] = {
        **lengths,
        "memory_fraction": part,
        "engine": {"name": entry["engine"], **whole},
        "kernels": {"flash_attention": WITHOUT_FLASH not in entry["version"]},
        "layout": {"pp": int(entry["devices"])},
    }
    stored = _stored(entry)
    if stored:
        workload["precision"] = stored
    model = _model(entry["model"]) or ""
    case = Case(entry["id"], entry["chip"], entry["device"], entry["chip"], model, workload, "edge")
    return Row(case, entry["test"], number / 1e3 if number is not None and entry["unit"] == "ms" else number)


def _stored(entry: Mapping[str, str]) -> dict[str, str]:
    """Return the formats of a row's weights: of files whose experts have one of their own, both."""
    kept = names()["published"]
    published = entry["version"] in kept["versions"] or entry["source"] in kept["sources"]
    if entry["engine"] == CHUNKED and not (published and entry["model"] in kept["models"]):
        found = names()["files"].get(entry["model"], {}).get(entry["weights"])
        if found is not None:
            return dict(found)
    return {"weights": entry["weights"]} if entry["weights"] else {}


@cache
def predictor() -> Predictor:
    """Return all rows prepared for prediction."""
    return Predictor([row.case for row in measured()[0]], FIGURES)


@cache
def half_constants(name: str) -> Mapping[str, Mapping[str, float]]:
    """Return the constants of one half: chip to symbol name to value."""
    found: dict[str, dict[str, float]] = {}
    with (data.path("catalog") / "efficiency" / name).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["chip"], {})[SYMBOLS[row["constant"]]] = float(row["value"])
    return found


@cache
def predictions() -> tuple[tuple[Mapping[str, float], bool] | None, ...]:
    """Return figures and fit of every row, by constants of the half that its device is not in (None: refused)."""
    rows, prepared = measured()[0], predictor()
    found: list[tuple[Mapping[str, float], bool] | None] = [None] * len(rows)
    for batch in prepared.batches:
        sides = [batch.evaluate(half_constants(name).get(batch.chip, {})) for name in HALVES]
        for at, index in enumerate(batch.cases):
            side = sides[1 if fitted_half(rows[int(index)].case.group) else 0]
            figures = {name: float(side[name][at]) for name in FIGURES}
            if batch.allowed[at]:
                found[int(index)] = figures, bool(side["room"][at] >= 0)
    return tuple(found)


def evaluate(name: str) -> Evaluation:
    """Return the outcomes of measured/serving/edge.csv; the baseline is the median rate over bytes of weights, a chip's or of all."""
    rows, left = measured()
    counted, outcomes = Counter(left), []
    base = _baseline()
    for row, found in zip(rows, predictions(), strict=True):
        if found is None:
            counted["refused: no layout keeps the rules"] += 1
            continue
        figures, fits = found
        case = row.case
        if row.value is None:
            outcomes.append(Outcome(case.accelerator, "fits", case.group, 0.0, None, fits=(False, fits)))
            continue
        predicted = figures[FIGURE_OF[row.metric]]
        guess = base.get((case.accelerator, row.metric)) or base["", row.metric]
        baseline = guess * figures["memory.weights"] if row.metric == "ttft" else guess / figures["memory.weights"]
        outcomes.append(
            Outcome(case.accelerator, row.metric, case.group, predicted, row.value, baseline, fits=(True, fits))
        )
    return Evaluation(outcomes, len(read_rows()), dict(counted))


def _baseline() -> Mapping[tuple[str, str], float]:
    """Return the median of rate times bytes of weights (of a time: over them) by chip ("": all) and metric."""
    found: dict[tuple[str, str], list[float]] = {}
    for row, one in zip(measured()[0], predictions(), strict=True):
        if one is None or row.value is None:
            continue
        weights = one[0]["memory.weights"]
        value = row.value / weights if row.metric == "ttft" else row.value * weights
        for chip in ("", row.case.accelerator):
            found.setdefault((chip, row.metric), []).append(value)
    return {key: median(values) for key, values in found.items()}
