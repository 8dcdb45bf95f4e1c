"""Scores the files of measured serving: every row through the role, leaves and machine that a plan would use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import median

from tokenmill.validate import Evaluation, Outcome, fitted_half
from tokenmill.validate_cases import Prediction, Predictor
from tokenmill.validate_serving_rows import Row, measured, read_rows


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
    "prompt": Metric("prompt_time", ("flop_prompt",), _same),
    "layer_decode": Metric("time_plain_0", ("moved_plain_0",), _same),
    "layer_prompt": Metric("time_prompt_0", ("flop_prompt_0",), _same),
    "products": Metric("matmul_plain_0", ("matmul_flop_plain_0",), _same),
}
"""Metrics of serving rows; of the baseline: constant bandwidth for answers, constant compute for prompts, one power a chip."""
HIGHEST = ("rate_chip",)
"""Metrics of rows that leave the layout open: the highest of those allowed is the prediction."""


@dataclass(frozen=True)
class Pair:
    """A measured row with its prediction (None: refused, with why)."""

    row: Row
    predicted: Prediction | None
    reason: str = ""

    @property
    def fitted(self) -> bool:
        """Whether the row is in the half that may enter a fit."""
        return fitted_half(self.row.case.group)


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
def pairs(name: str) -> tuple[Pair, ...]:
    """Return the rows of a file with their predictions."""
    found: list[Pair] = []
    for rows, predictor in predictors(name):
        predicted = predictor.predict()
        reasons = [predictor.refused.get(i, "") for i in range(len(rows))]
        found += [Pair(*one) for one in zip(rows, predicted, reasons, strict=True)]
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
    return Evaluation(outcomes, len(read_rows(name)), dict(left))


def _outcome(pair: Pair, metric: str, base: Mapping[tuple[bool, str, str], float]) -> Outcome:
    row, figures = pair.row, pair.predicted.figures if pair.predicted else {}
    share = base.get((not pair.fitted, row.case.accelerator, metric)) or base.get((not pair.fitted, "", metric))
    return Outcome(
        row.case.accelerator, metric, row.case.group, figures[METRICS[metric].figure], row.values[metric],
        None if share is None else share * _base(figures, metric), None, row.setting,
    )  # fmt: skip


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
