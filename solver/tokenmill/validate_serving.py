"""Scores the files of measured serving: every row through the role, leaves and machine that a plan would use."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill import data
from tokenmill.catalog import load_catalog
from tokenmill.efficiency import GENERIC, engine_version, residual_class, residuals
from tokenmill.engine_days import GAINING, release_pace
from tokenmill.imports.architecture import load_architecture
from tokenmill.lending import HALF
from tokenmill.validate import Compared, Evaluation, Outcome, fitted_half, log_quantiles
from tokenmill.validate_cases import Batch, Prediction, Predictor
from tokenmill.validate_serving_pairs import compared, loaded
from tokenmill.validate_serving_rows import Row, measured, read_rows
from tokenmill_models.collectives import own_pair_share, own_share, ring_share
from tokenmill_models.energy import WEIGHTS
from tokenmill_models.operations_attention import cache_share
from tokenmill_models.roofline import eta_F, eta_W, half_rows


@dataclass(frozen=True)
class Metric:
    """How a measured value is predicted: a figure or definition of the role, and what a constant share would scale with.

    `base` of the definitions `inputs`: the baseline is it times the median of measured over it on the other half.
    """

    figure: str
    inputs: tuple[str, ...]
    base: Callable[..., float]


def _same(value: float) -> float:
    return value


def _over(one: float, other: float) -> float:
    return one / other


METRICS = {
    "tpot": Metric("tpot.mean", ("moved_plain",), _same),
    "ttft": Metric("ttft.mean", ("flop_full",), _same),
    "rate": Metric("tokens_per_second", ("batch", "moved_plain"), _over),
    "rate_chip": Metric("tokens_per_second_per_chip", ("batch", "moved_plain"), _over),
    "power": Metric("power_per_chip", ("replica_chips",), lambda chips: 1.0),
    "token": Metric("T_plain", ("moved_plain",), _same),
    "prompt": Metric("prompt_sent", ("flop_prompt",), _same),
    "layer_decode": Metric("layer_plain", ("moved_plain_0",), _same),
    "layer_prompt": Metric("bare_layer_prompt", ("flop_prompt_0",), _same),
    "products": Metric("matmul_plain_0", ("matmul_flop_plain_0",), _same),
}
"""Metrics of serving rows; of the baseline: constant bandwidth for answers, constant compute for prompts, one power a chip."""
HALVES = ("engines_half_a.csv", "engines_half_b.csv")
"""Constants of engines fitted on one half of the groups alone: each predicts the rows of the other half."""
POWER_HALVES = ("power_half_a.csv", "power_half_b.csv")
"""Constants of the draw of chips fitted on either half, by chip."""
LAYER_HALVES = ("layers_half_a.csv", "layers_half_b.csv")
"""Constants of cards fitted on whole layers of either half, by chip."""
CARD_LEAVES = {
    "compute_share": eta_F.name, "half_rows": half_rows.name, "bandwidth_share": eta_W.name, "cache_share": cache_share.name,
    "ring_share": ring_share.name, "own_share": own_share.name, "own_pair_share": own_pair_share.name,
}  # fmt: skip
"""Leaves of the constants that whole layers tell of a card."""
OF_FORMAT = {eta_F.name, half_rows.name}
"""Those that hold for products in 16 bits alone."""
FOLDS = ("half_a", "half_b")
PACED = ("inferencemax",)
"""Files of closed loops over many loads, whose chips and layouts are ranked at one pace of the users."""
HIGHEST = ("rate_chip", "rate")
"""Metrics of rows that leave the layout open: the highest of those allowed is the prediction."""


@dataclass(frozen=True)
class Pair:
    """A measured row with its prediction (None: refused, with why); `fitted`: whether it is in the half that may enter a fit."""

    row: Row
    predicted: Prediction | None
    fitted: bool
    reason: str = ""


def figures_of(metrics: tuple[str, ...]) -> tuple[str, ...]:
    """Return the figures and definitions that metrics need, the first metric's own first."""
    names = [METRICS[m].figure for m in metrics] + [name for m in metrics for name in METRICS[m].inputs]
    return tuple(dict.fromkeys(names))


@cache
def predictors(name: str) -> tuple[tuple[tuple[Row, ...], Predictor], ...]:
    """Return the rows of a file by role and metrics, each with its predictor."""
    kinds: dict[tuple[str, tuple[str, ...]], list[Row]] = {}
    for row in measured(name)[0]:
        kinds.setdefault((row.case.role, tuple(row.values)), []).append(row)
    return tuple(
        (tuple(rows), Predictor([row.case for row in rows], figures_of(metrics), highest=metrics[0] in HIGHEST))
        for (_, metrics), rows in kinds.items()
    )


@cache
def half_table(name: str) -> Mapping[tuple[str, str], float]:
    """Return the constants of a table of one half by engine and symbol, and those of the draw of chips by chip and symbol."""
    at = HALVES.index(name)
    found: dict[tuple[str, str], float] = {}
    for file in (name, POWER_HALVES[at], LAYER_HALVES[at]):
        path = data.path("catalog") / "efficiency" / file
        if path.exists():
            with path.open(encoding="utf-8", newline="") as text:
                found |= {(r["chip"], _symbol(r["constant"])): float(r["value"]) for r in csv.DictReader(text)}
    return found


def _symbol(constant: str) -> str:
    if constant in WEIGHTS:
        return str(WEIGHTS[constant].name)
    return str(CARD_LEAVES.get(constant, f"engine_{constant}"))


def leaves_of(rows: tuple[Row, ...], batch: Batch, table: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    """Return the leaves of a batch's engines and chip as arrays over its layouts, those of `table` in place of the catalogue's."""
    engines = [engine_of(rows[int(case)]) for case in batch.cases]
    of_chips = {weight.name for weight in WEIGHTS.values()} | set(CARD_LEAVES.values())
    wide = batch.precision in HALF
    found: dict[str, Any] = {}
    for symbol in {symbol for _, symbol in table} & set(batch.values) - (set() if wide else OF_FORMAT):
        known = np.broadcast_to(np.asarray(batch.values[symbol], float), batch.cases.shape)
        keys = [batch.chip] * len(engines) if symbol in of_chips else engines
        fitted = np.array([table.get((key, symbol), np.nan) for key in keys])
        found[symbol] = np.where(np.isnan(fitted), known, fitted * paces(rows, batch.cases, symbol, table))
    return found


def _leaves_by(rows: tuple[Row, ...], table: Mapping[tuple[str, str], float]) -> Callable[[Batch], Mapping[str, Any]]:
    def leaves(batch: Batch) -> Mapping[str, Any]:
        return leaves_of(rows, batch, table)

    return leaves


def engine_of(row: Row) -> str:
    """Return the engine of the data whose constants hold for a row."""
    return engine_version(str(row.case.workload["engine"]["name"]), version_of(row))


def version_of(row: Row) -> str:
    """Return the release or the day of the engine of a row."""
    return str(row.case.workload["engine"].get("version") or "")


def paces(
    rows: Sequence[Row], cases: NDArray[np.int64], symbol: str, table: Mapping[tuple[str, str], float]
) -> NDArray[np.float64] | float:
    """Return the value of a constant of engines in the builds of cases over that of `MIDDLE`, by the monthly gain of a table."""
    gain = table.get((GENERIC, f"engine_{GAINING.get(symbol.removeprefix('engine_'))}"), 0.0)
    return np.array([release_pace(version_of(rows[int(case)]), gain) for case in cases]) if gain else 1.0


@cache
def sides(name: str) -> Mapping[str, bool]:
    """Return by group of a file whether it is in the half that may enter a fit: an engine whose groups all lie in one half splits its own."""
    engines: dict[str, set[str]] = {}
    for row in measured(name)[0]:
        engines.setdefault(engine_of(row), set()).add(row.case.group)
    found: dict[str, bool] = {}
    for groups in engines.values():
        drawn = {group: fitted_half(group) for group in groups}
        alone = len(set(drawn.values())) == 1
        found |= {group: at % 2 == 0 for at, group in enumerate(sorted(groups))} if alone else drawn
    return found


@cache
def pairs(name: str) -> tuple[Pair, ...]:
    """Return the rows of a file with their predictions, by constants of the half that the row's group is not in."""
    found: list[Pair] = []
    fitted = sides(name)
    for rows, predictor in predictors(name):
        by_half = [predictor.predict(_leaves_by(rows, half_table(half))) for half in HALVES]
        for i, row in enumerate(rows):
            inside = fitted[row.case.group]
            found.append(Pair(row, by_half[1 if inside else 0][i], inside, predictor.refused.get(i, "")))
    return tuple(found)


def evaluate(name: str) -> Evaluation:
    """Return the scored outcomes of a file of measured/serving."""
    left = Counter(measured(name)[1])
    base = baselines(name)
    outcomes: list[Outcome] = []
    for pair in pairs(name):
        if pair.predicted is None:
            left[f"refused: {pair.reason}"] += 1
            continue
        outcomes += [_outcome(pair, metric, base) for metric in pair.row.values]
    return Evaluation(outcomes, len(read_rows(name)), dict(left), _paced(name))


def _paced(name: str) -> Sequence[Compared]:
    """Return how chips and layouts of a closed loop are ranked at one pace of its users."""
    if name not in PACED:
        return ()
    return compared([loaded(pair.row, pair.predicted.figures) for pair in pairs(name) if pair.predicted is not None])


def _outcome(pair: Pair, metric: str, base: Mapping[tuple[bool, str, str], float]) -> Outcome:
    row, figures = pair.row, pair.predicted.figures if pair.predicted else {}
    share = base.get((not pair.fitted, row.case.accelerator, metric)) or base.get((not pair.fitted, "", metric))
    return Outcome(
        row.case.accelerator, metric, row.case.group, figures[METRICS[metric].figure], row.values[metric],
        None if share is None else share * _base(figures, metric), None, row.setting, interval(pair, metric),
    )  # fmt: skip


@cache
def _sparse(model: str) -> bool:
    return any(kind.mlp.expert for kind in load_architecture(model).layers)


def class_of(row: Row) -> str:
    """Return the class of residuals of a row, by its chip and whether its model has experts."""
    catalog = load_catalog()
    return residual_class(catalog, catalog.system(row.case.system).chip, _sparse(str(row.case.model)))


def fold(fitted: bool) -> str:
    """Return the name of a half of the groups in the table of residuals."""
    return FOLDS[0 if fitted else 1]


@cache
def draw_residuals() -> Mapping[str, list[tuple[str, float]]]:
    """Return group and log(measured/predicted) of the draw of every measured row by class: few groups a half, so that one tells little of the other."""
    found: dict[str, list[tuple[str, float]]] = {}
    for pair in pairs("energy_serving"):
        if pair.predicted is not None and "power" in pair.row.values:
            ratio = pair.row.values["power"] / pair.predicted.figures[METRICS["power"].figure]
            found.setdefault(class_of(pair.row), []).append((pair.row.case.group, log(ratio)))
    return found


def interval(pair: Pair, metric: str) -> tuple[float, float] | None:
    """Return the 80% interval of a prediction from the residuals of the other half (of draw: of other groups), None where none are known."""
    figure = METRICS[metric].figure
    if metric == "power":
        others = [one for group, one in draw_residuals()[class_of(pair.row)] if group != pair.row.case.group]
        found = log_quantiles(np.array(others)) if others else None
    else:
        found = residuals().get((pair.row.case.stage, figure, class_of(pair.row), fold(not pair.fitted)))
    if found is None or pair.predicted is None:
        return None
    return tuple(pair.predicted.figures[figure] * exp(quantile) for quantile in found)  # type: ignore[return-value]


def _base(figures: Mapping[str, float], metric: str) -> float:
    spec = METRICS[metric]
    return spec.base(*(figures[name] for name in spec.inputs))


@cache
def baselines(name: str) -> Mapping[tuple[bool, str, str], float]:
    """Return the median of measured over base by half, accelerator ("": of all) and metric."""
    found: dict[tuple[bool, str, str], list[float]] = {}
    for pair in pairs(name):
        if pair.predicted is None:
            continue
        for metric, value in pair.row.values.items():
            for chip in ("", pair.row.case.accelerator):
                ratio = value / _base(pair.predicted.figures, metric)
                found.setdefault((pair.fitted, chip, metric), []).append(ratio)
    return {key: median(values) for key, values in found.items()}
