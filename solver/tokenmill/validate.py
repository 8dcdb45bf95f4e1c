"""`validate`: predictions against every shipped file of measured runs, with a baseline beside each figure.

Constants were fitted on half of the groups; only rows of the other half are scored. A kind of measurement adds itself to `EVALUATORS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from itertools import combinations
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EVALUATORS: dict[str, str] = {
    "megatron_2021": "tokenmill.validate_steps",
    "megatron_recompute_2022": "tokenmill.validate_steps",
    "llama3_2024": "tokenmill.validate_steps",
    "deepseek_v3": "tokenmill.validate_steps",
    "other_pretraining": "tokenmill.validate_steps",
    "bloom_layout_sweep": "tokenmill.validate_steps",
    "vtrain_a100": "tokenmill.validate_steps",
    "simumax_b200": "tokenmill.validate_steps",
    "finetune_memory": "tokenmill.validate_memory",
    "rl_posttraining": "tokenmill.validate_runs",
    "edge": "tokenmill.validate_devices",
    "inferencemax": "tokenmill.validate_serving",
    "energy_serving": "tokenmill.validate_serving",
    "vendor_perf": "tokenmill.validate_serving",
    "mlperf_inference": "tokenmill.validate_serving",
    "splitwise_profiles": "tokenmill.validate_serving",
    "splitwise_prompts": "tokenmill.validate_serving",
    "helix_layer_profiles": "tokenmill.validate_serving",
    "kernel_profiles": "tokenmill.validate_serving",
    "reported_cases": "tokenmill.validate_serving_memory",
    "deepseek_serving": "tokenmill.validate_serving_fleet",
    "request_logs": "tokenmill.validate_serving_logs",
    "nccl": "tokenmill.validate_links",
    "allreduce": "tokenmill.validate_links",
}
"""Module that evaluates a file: it has ``evaluate(file) -> Evaluation``."""
LEAST_RANKED = 3
CLOSE = 1.05
"""How near to the best measured layout the chosen one must come."""
APART = 1.1
"""Ratio of two measured values from which their order counts."""


@dataclass(frozen=True)
class Outcome:
    """One measured value beside its prediction and that of the baseline (SI).

    `fits` (measured, predicted) where it was tried; `setting`: rows that differ in layout alone; `interval`: [low, high] of
    the prediction at 80%. `measured` None: the run did not happen (it did not fit).
    """

    accelerator: str
    metric: str
    group: str
    predicted: float
    measured: float | None
    baseline: float | None = None
    fits: tuple[bool, bool] | None = None
    setting: str | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Compared:
    """Pairs over all accelerators that part by more than `APART`, and the share of them that is ranked right (None: no pair)."""

    metric: str
    count: int
    right: float | None


@dataclass(frozen=True)
class Evaluation:
    """Outcomes of the rows that are scored, rows in the file, and how many were left out by reason (fitted rows among them)."""

    outcomes: Sequence[Outcome]
    rows_in_file: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    compared: Sequence[Compared] = ()


@dataclass(frozen=True)
class Score:
    """A line of `validate`: errors are of the predicted over the measured value; a figure that does not apply is None."""

    file: str
    accelerator: str
    metric: str
    count: int
    median_error: float | None = None
    p90_error: float | None = None
    worst_error: float | None = None
    bias: float | None = None
    baseline_median_error: float | None = None
    beats_baseline: float | None = None
    coverage_80: float | None = None
    half_width: float | None = None
    false_fit: float | None = None
    false_no_fit: float | None = None
    rank_correlation: float | None = None
    best_within_5pct: float | None = None
    pairs_right: float | None = None
    rows_in_file: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)


FOLDS = ("even", "odd")
"""Halves of the groups; the constants fitted on one half predict the rows of the other."""


def fitted_half(group: str) -> bool:
    """Return whether rows of a group may enter a fit; the others are scored."""
    return crc32(group.encode()) % 2 == 0


def fold_of(group: str) -> str:
    """Return the half that a group is in."""
    return FOLDS[0] if fitted_half(group) else FOLDS[1]


def validate(files: Iterable[str] | None = None) -> list[Score]:
    """Return the scores of every file and accelerator (`files`: names of `EVALUATORS`, all where None).

    Raises
    ------
    KeyError
        For a file without an evaluator.
    """
    scores: list[Score] = []
    for name in EVALUATORS if files is None else files:
        evaluation: Evaluation = import_module(EVALUATORS[name]).evaluate(name)
        scores += _scores(name, evaluation)
    return scores


def to_rows(scores: Iterable[Score]) -> list[dict[str, Any]]:
    """Return scores as plain tables."""
    return [asdict(score) for score in scores]


def _scores(name: str, evaluation: Evaluation) -> Iterator[Score]:
    grouped: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in evaluation.outcomes:
        grouped.setdefault((outcome.accelerator, outcome.metric), []).append(outcome)
    if not grouped:
        yield Score(name, "", "none", 0, rows_in_file=evaluation.rows_in_file, left_out=evaluation.left_out)
    for (accelerator, metric), outcomes in sorted(grouped.items()):
        yield score(name, accelerator, metric, outcomes, evaluation)
    for one in evaluation.compared:
        yield Score(name, "all", one.metric, one.count, pairs_right=one.right, rows_in_file=evaluation.rows_in_file,
                    left_out=evaluation.left_out)  # fmt: skip


def score(name: str, accelerator: str, metric: str, outcomes: Sequence[Outcome], evaluation: Evaluation) -> Score:
    """Return the statistics of one metric on one accelerator."""
    ran = [o for o in outcomes if o.measured is not None]
    measured, predicted = (np.array([getattr(o, key) for o in ran], float) for key in ("measured", "predicted"))
    figures: dict[str, float | None] = {}
    if ran:
        error = predicted / measured - 1
        figures |= {
            "median_error": _median(np.abs(error)), "p90_error": float(np.quantile(np.abs(error), 0.9)),
            "worst_error": float(np.abs(error).max()), "bias": _median(error),
        }  # fmt: skip
        based = [(o.baseline / o.measured - 1) for o in ran if o.baseline is not None and o.measured]
        if based:
            base = figures["baseline_median_error"] = _median(np.abs(np.array(based)))
            figures["beats_baseline"] = 1 - _median(np.abs(error)) / base if base else None
    figures |= _interval_figures(ran) | _fit_figures(outcomes) | _rank_figures(ran)
    return Score(name, accelerator, metric, len(outcomes), rows_in_file=evaluation.rows_in_file,
                 left_out=evaluation.left_out, **figures)  # fmt: skip


def _median(values: Array) -> float:
    return float(np.median(values))


def _interval_figures(ran: Sequence[Outcome]) -> dict[str, float | None]:
    held = [o for o in ran if o.interval is not None]
    if not held:
        return {}
    inside = [o.interval[0] <= (o.measured or 0.0) <= o.interval[1] for o in held if o.interval]
    widths = [(o.interval[1] - o.interval[0]) / 2 / o.predicted for o in held if o.interval]
    return {"coverage_80": float(np.mean(inside)), "half_width": _median(np.array(widths))}


def _fit_figures(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    tried = [o.fits for o in outcomes if o.fits is not None]
    failed, ran = ([fits for fits in tried if fits[0] is kind] for kind in (False, True))
    return {
        "false_fit": sum(fits[1] for fits in failed) / len(failed) if failed else None,
        "false_no_fit": sum(not fits[1] for fits in ran) / len(ran) if ran else None,
    }


def _rank_figures(ran: Sequence[Outcome]) -> dict[str, float | None]:
    """Median rank correlation over settings of three layouts and more, how often the best predicted is near the best measured;
    of the pairs in a setting that part, the share ranked right.
    """
    settings: dict[str, list[Outcome]] = {}
    for outcome in ran:
        if outcome.setting is not None:
            settings.setdefault(outcome.setting, []).append(outcome)
    pairs = [(one, other) for rows in settings.values() for one, other in combinations(rows, 2) if _apart(one, other)]
    right = {"pairs_right": float(np.mean([_ranked(*pair) for pair in pairs]))} if pairs else {}
    compared = [rows for rows in settings.values() if len(rows) >= LEAST_RANKED]
    if not compared:
        return {**right}
    correlations, close = [], []
    for rows in compared:
        measured, predicted = (np.array([getattr(o, key) for o in rows], float) for key in ("measured", "predicted"))
        correlations.append(rank_correlation(predicted, measured))
        close.append(measured[int(np.argmin(predicted))] <= CLOSE * measured.min())
    return {
        "rank_correlation": _median(np.array(correlations)),
        "best_within_5pct": float(np.mean(close)),
        **right,
    }


def _apart(one: Outcome, other: Outcome) -> bool:
    low, high = sorted((one.measured or 0.0, other.measured or 0.0))
    return high > APART * low


def _ranked(one: Outcome, other: Outcome) -> bool:
    return (one.predicted - other.predicted) * ((one.measured or 0.0) - (other.measured or 0.0)) > 0


def rank_correlation(one: Array, other: Array) -> float:
    """Return Spearman's rank correlation (ties share their mean rank); 0 where either is constant."""
    first, second = _ranks(one), _ranks(other)
    if first.std() == 0 or second.std() == 0:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Array) -> Array:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean = last - (counts - 1) / 2
    return np.asarray(mean[inverse], float)


def log_quantiles(logs: Array, share: float = 0.8) -> tuple[float, float]:
    """Return the quantiles of `logs`, log(measured/predicted), between which `share` of further ones lie.

    Of n outcomes the k-th leaves k/(n + 1) below it (split conformal prediction), so few of them make the range wider.
    """
    upper = min(1.0, (1 + share) / 2 * (logs.size + 1) / logs.size)
    low, high = np.quantile(logs, [1 - upper, upper])
    return float(low), float(high)


def group_quantiles(logs: Array, groups: NDArray[np.str_], share: float = 0.8) -> tuple[float, float]:
    """Return the range about the median of `logs` that holds `share` of those of a further group.

    Rows of one group err together, so groups count as draws: of n groups the k-th farthest leaves k/(n + 1) inside it.
    """
    count = np.unique(groups).size
    middle = np.median(logs)
    reach = np.quantile(np.abs(logs - middle), min(1.0, share * (count + 1) / count))
    return float(middle - reach), float(middle + reach)


def even_quantiles(logs: Array, groups: NDArray[np.str_], share: float = 0.8) -> tuple[float, float]:
    """Return the quantiles of `logs` between which `share` of a further group's lie on average: every group weighs alike."""
    _, inverse, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.argsort(logs)
    weight = (1 / sizes[inverse])[order] / sizes.size
    low, high = np.interp([(1 - share) / 2, (1 + share) / 2], np.cumsum(weight) - weight / 2, logs[order])
    return float(low), float(high)
