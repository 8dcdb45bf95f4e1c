"""Fits what serving engines add to the work of the model, on measured/serving: a few constants an engine, on all rows and on each half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokenmill.calibration_fit import (
    RESIDUAL_COLUMNS,
    SPREAD,
    Constant,
    Fitted,
    median_and_p90,
    write_constants,
    write_table,
)
from tokenmill.efficiency import GENERIC
from tokenmill.validate import even_quantiles, log_quantiles
from tokenmill.validate_cases import Predictor
from tokenmill.validate_serving import (
    HALVES,
    HIGHEST,
    METRICS,
    class_of,
    engine_of,
    fold,
    half_table,
    paces,
    pairs,
    sides,
)
from tokenmill.validate_serving_rows import Row, measured

Array = NDArray[np.float64]
TABLE, RESIDUALS = "engines.csv", "engines_residuals.csv"
SCORED = {"inferencemax": ("tpot", "ttft"), "energy_serving": ("power",)}
"""Files and metrics whose residuals give plans their intervals."""
MOST_ROWS = 40
"""Rows of a group that enter a fit, evenly spread: large sweeps weigh as others do."""
ALIKE = 2.0
"""Weight of the start of what engines of one time do alike: their hosts' loop over running sequences, kernels of experts as measured."""

STEP = Constant("step_graph", "s", 5e-4, 1e-6, 5e-3)
LAYER = Constant("layer_graph", "s", 5e-6, 1e-7, 1e-4)
SEQUENCE = Constant("sequence", "s", 1.5e-5, 1e-7, 1e-3)
FIRST = (Constant("request", "s", 0.02, 1e-4, 0.3), Constant("stream", "step", 4.0, 0.01, 60.0))


@dataclass(frozen=True)
class Task:
    """Constants of an engine, the file and the metrics they are fitted on, in stages: each holds what the one before found.

    `first`: a task of the same engine on another file, whose constants hold in this one.
    """

    engine: str
    file: str
    stages: tuple[tuple[tuple[str, ...], tuple[Constant, ...]], ...]
    first: Task | None = None


EXPERT = Constant("expert_pace", "1", 1.0, 0.3, 3.0)
GAIN = Constant("expert_gain", "1/month", 0.0, -0.3, 0.3)
FIRST_FILE = "inferencemax"
DATED = f"fitted on measured/serving/{FIRST_FILE}.csv"
TOKENS = (("tpot",), (STEP, LAYER, replace(SEQUENCE, hold=ALIKE), replace(EXPERT, hold=ALIKE)))
EARLY = Task(
    "vllm 0.2", "splitwise_profiles",
    ((("token",), (Constant("step_eager", "s", 1e-3, 1e-5, 2e-2), Constant("layer_eager", "s", 3e-4, 1e-5, 2e-3), SEQUENCE)),),
)  # fmt: skip
TASKS = (
    *(Task(engine, "inferencemax", (TOKENS, (("ttft",), FIRST))) for engine in ("vllm", "sglang", "trtllm", "trtllm 1.0")),
    Task("vllm 0.11", "energy_serving", ((("rate",), (STEP, LAYER, SEQUENCE, EXPERT)),)),
    Task("trtllm 0.17", "vendor_perf", ((("rate",), (STEP, LAYER, SEQUENCE, EXPERT)),)),
    EARLY,
    Task("vllm 0.2", "splitwise_prompts", ((("prompt",), (FIRST[0],)),), EARLY),
)  # fmt: skip


def calibrate_serving(folder: Path) -> dict[str, int]:
    """Fit and write the constants of engines, on all rows and on each half of the groups; return rows by table."""
    found: dict[str, list[Fitted]] = {name: [] for name in (TABLE, *HALVES)}
    gains = {name: _gain(side) for name, side in ((TABLE, None), (HALVES[0], True), (HALVES[1], False))}
    for task in TASKS:
        rows = _rows(task)
        half = np.array([sides(task.file)[row.case.group] for row in rows])
        errors = []
        for name, part in zip(HALVES, (half, ~half), strict=True):
            values = _fit(task, rows, part, gains[name])
            found[name] += _records(task, values, int(part.sum()), np.empty(0))
            errors.append(_errors(task, rows, values | {GAIN.name: gains[name]})[~part])
        values = _fit(task, rows, np.ones(half.size, bool), gains[TABLE])
        found[TABLE] += _records(task, values, half.size, np.concatenate(errors))
    for name, constants in found.items():
        count = sum(one.rows for one in constants if one.constant == EXPERT.name and one.source == DATED)
        write_constants(
            [*constants, Fitted(GENERIC, GAIN.name, "", gains[name], GAIN.unit, count, 0.0, 0.0, DATED)], folder / name
        )
    half_table.cache_clear()
    lines = write_residuals(folder / RESIDUALS)
    return {name: len(constants) + 1 for name, constants in found.items()} | {RESIDUALS: lines}


def _gain(side: bool | None) -> float:
    """Return the share by which kernels of experts get faster a month [1/month], on the groups of one half (None: of all).

    Only builds of different days in one group tell of it: what a group has in common is taken out, at the start of the other constants.
    """
    from scipy.optimize import least_squares

    tasks = [task for task in TASKS if task.file == FIRST_FILE]

    def misses(gain: Array) -> Array:
        return np.concatenate([_apart(task, side, float(gain[0])) for task in tasks])

    return float(
        least_squares(misses, [GAIN.start], bounds=([GAIN.low], [GAIN.high]), loss="soft_l1", f_scale=SPREAD).x[0]
    )


def _apart(task: Task, side: bool | None, gain: float) -> Array:
    """Return the weighted logarithms of predicted over measured of a task's first stage, less the mean of each group."""
    rows, (metrics, constants) = _rows(task), task.stages[0]
    values = {constant.name: constant.start for constant in constants} | {GAIN.name: gain}
    wanted = np.array([[row.values[metric] for metric in metrics] for row in rows])
    logs = np.log(_predict(task, values, metrics, len(rows)) / wanted)
    groups = np.array([row.case.group for row in rows])
    kept = [name for name in dict.fromkeys(groups.tolist()) if side is None or sides(task.file)[name] is side]
    parts = [logs[groups == name] for name in kept]
    return np.concatenate([np.zeros(0), *((3 / np.sqrt(len(part)) * (part - part.mean())).ravel() for part in parts)])


def write_residuals(path: Path) -> int:
    """Write the quantiles of log(measured/predicted) by figure, class and half, of rows predicted by the other half's fit; return lines.

    Those of closed loops hold for all classes, groups alike: few groups of a class tell little of further ones.
    """
    found: dict[tuple[str, str, str, str], list[tuple[str, float]]] = {}
    for name, metrics in SCORED.items():
        for pair in pairs(name):
            for metric in metrics if pair.predicted is not None else ():
                figure = METRICS[metric].figure
                predicted = pair.predicted.figures[figure] if pair.predicted is not None else 0.0
                one = (pair.row.case.group, float(np.log(pair.row.values[metric] / predicted)))
                for part in ("", fold(pair.fitted)):
                    found.setdefault((pair.row.case.stage, figure, class_of(pair.row), part), []).append(one)
    pooled = {METRICS[metric].figure for metric in SCORED[FIRST_FILE]}
    lines = []
    for key, own in sorted(found.items()):
        alike = [one for other in found if (other[:2], other[3]) == (key[:2], key[3]) for one in found[other]]
        groups, logs = zip(*(alike if key[1] in pooled else own), strict=True)
        low, high = (
            even_quantiles(np.array(logs), np.array(groups)) if key[1] in pooled else log_quantiles(np.array(logs))
        )
        lines.append([*key, f"{low:.4f}", f"{high:.4f}", len(logs), "fitted on measured/serving"])
    write_table(RESIDUAL_COLUMNS, lines, path)
    return len(found)


@cache
def _rows(task: Task) -> tuple[Row, ...]:
    """Return the rows of the task's engine, at most so many a group."""
    wanted = {metric for metrics, _ in task.stages for metric in metrics}
    groups: dict[str, list[Row]] = {}
    for row in (row for row in measured(task.file)[0] if wanted <= set(row.values)):
        if engine_of(row) == task.engine:
            groups.setdefault(row.case.group, []).append(row)
    return tuple(row for rows in groups.values() for row in rows[:: max(1, len(rows) // MOST_ROWS)])


@cache
def _predictor(task: Task) -> Predictor:
    """Return the predictor of a task's rows, each with the layout that is best by the constants there are."""
    metrics = [metric for names, _ in task.stages for metric in names]
    figures = [METRICS[metric].figure for metric in metrics]
    return Predictor([row.case for row in _rows(task)], figures, highest=metrics[0] in HIGHEST).held({})


def _fit(task: Task, rows: Sequence[Row], part: NDArray[np.bool_], gain: float) -> dict[str, float]:
    """Return the constants fitted on the rows of `part`, groups alike, of experts in the month that `gain` [1/month] counts from."""
    from scipy.optimize import least_squares

    found = _held(task, part, rows, gain) | {GAIN.name: gain}
    known = set(found)
    groups = [row.case.group for row in rows]
    size = {group: sum(p for g, p in zip(groups, part, strict=True) if g == group) for group in groups}
    weight = np.array([3 / np.sqrt(size[group] or 1) for group in groups])[part, None]
    for metrics, constants in task.stages:
        start, low, high = (np.log([getattr(c, side) for c in constants]) for side in ("start", "low", "high"))
        value = np.array([[row.values[metric] for metric in metrics] for row in rows])[part]
        stage = _Stage(task, metrics, constants, dict(found), start, part, value, weight)
        result = least_squares(
            stage.misses, start, bounds=(low, high), loss="soft_l1", f_scale=SPREAD, diff_step=1e-2, max_nfev=15
        )
        found |= stage.named(result.x)
    return {name: value for name, value in found.items() if name not in known}


def _held(task: Task, part: NDArray[np.bool_], rows: Sequence[Row], gain: float) -> dict[str, float]:
    """Return the constants of the task before, fitted on its rows of the same groups."""
    if task.first is None:
        return {}
    groups = {row.case.group for row, inside in zip(rows, part, strict=True) if inside}
    before = _rows(task.first)
    return _fit(task.first, before, np.array([row.case.group in groups for row in before]), gain)


@dataclass(frozen=True)
class _Stage:
    """One stage of a fit: the constants before it, and the measured values [SI] and weights of its rows."""

    task: Task
    metrics: Sequence[str]
    constants: Sequence[Constant]
    before: Mapping[str, float]
    start: Array
    part: NDArray[np.bool_]
    value: Array
    weight: Array

    def named(self, logs: Array) -> dict[str, float]:
        """Return constants by name from their logarithms."""
        return dict(zip((c.name for c in self.constants), np.exp(logs).tolist(), strict=True))

    def misses(self, logs: Array) -> Array:
        """Return the weighted logarithms of predicted over measured, and what pulls the constants to their start."""
        predicted = _predict(self.task, {**self.before, **self.named(logs)}, self.metrics, self.part.size)[self.part]
        hold = np.array([constant.hold for constant in self.constants])
        return np.concatenate([(np.log(predicted / self.value) * self.weight).ravel(), hold * (logs - self.start)])


def _predict(task: Task, values: Mapping[str, float], metrics: Sequence[str], count: int) -> Array:
    found = np.full((count, len(metrics)), np.nan)
    leaves = {f"engine_{name}": value for name, value in values.items()}
    gain = {(GENERIC, f"engine_{GAIN.name}"): values[GAIN.name]}
    for batch in _predictor(task).batches:
        named = batch.evaluate(
            {name: value * paces(_rows(task), batch.cases, name, gain) for name, value in leaves.items()}
        )
        for place, metric in enumerate(metrics):
            found[batch.cases, place] = named[METRICS[metric].figure]
    return found


def _errors(task: Task, rows: Sequence[Row], values: Mapping[str, float]) -> Array:
    """Return the absolute relative errors of the first metric."""
    metric = task.stages[0][0][0]
    value = np.array([row.values[metric] for row in rows])
    return np.asarray(np.abs(_predict(task, values, (metric,), len(rows))[:, 0] / value - 1))


def _records(task: Task, values: Mapping[str, float], count: int, errors: Array) -> list[Fitted]:
    known = errors[np.isfinite(errors)]
    median, worse = median_and_p90(known)
    units = {c.name: c.unit for _, constants in task.stages for c in constants}
    source = f"fitted on measured/serving/{task.file}.csv"
    return [
        Fitted(task.engine, name, "", value, units[name], count, median, worse, source)
        for name, value in values.items()
    ]
