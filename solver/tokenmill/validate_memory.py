"""Rows of measured fine-tuning memory as problems, and their scores: each tool's framework fitted on halves of the groups."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import exp, log
from statistics import median
from typing import Any

import numpy as np

from tokenmill import data
from tokenmill.calibration_memory import (
    ALLOCATED,
    FIGURE,
    FIGURES,
    LEAST_ROWS,
    RESERVED,
    Measured,
    fold_table,
    given,
    residual_class,
)
from tokenmill.validate import FOLDS, Evaluation, Outcome, fitted_half, fold_of, log_quantiles
from tokenmill.validate_cases import Case, Prediction, Predictor, engine_of, stage_of
from tokenmill.validate_training import GIB, TOKENS, LeftOut, Row, load_file, read_rows

FILE = "finetune_memory"
ROOM = "hgx-b300"
"""The machine that every row is asked on: memory does not depend on it, and nothing is refused for want of room."""
METHODS = {
    "LoRA": "lora", "LORA": "lora", "LoRA (RL trainer)": "lora", "LoRA, FP8 base": "lora", "QLoRA": "qlora", "full": "full",
    "full (RL trainer)": "full", "full (SFT)": "full",
}  # fmt: skip
WHOLE_LOSS = "full (SFT)"
UNCUT = ("tuned in steps: + packed dataset", "tuned in steps: + compile")
"""Rows of a tool whose loss is not cut into chunks of tokens, as it is in its other rows: by method, by setting."""
CUMULATIVE = ("8-bit", "offload", "in backward")
"""Words of settings from which on a row keeps what no layout of the product says."""
TARGETS: Mapping[str, Any] = {
    "q_proj,v_proj": ["q", "v"], "Q and V": ["q", "v"], "all linear layers": "all-linear", "c_attn / default": ["q", "k", "v"],
    "down_proj,gate_proj,up_proj": ["gate", "up", "down"], "down_proj,k_proj,v_proj": ["k", "v", "down"], "v_proj": ["v"],
    "down_proj,gate_proj,k_proj,o_proj,q_proj,up_proj,v_proj": "all-linear",
}  # fmt: skip
LOADING = "peak of loading the whole model on each device before it is shared out"


@dataclass(frozen=True)
class Pair:
    """A row with its prediction by the fit on the other half of the groups (None: refused, with why)."""

    row: Measured
    predicted: Prediction | None
    reason: str = ""

    @property
    def fold(self) -> str:
        """The half of the groups that the row is in."""
        return fold_of(self.row.case.group)


@cache
def tools() -> Mapping[str, Any]:
    """Return what each tool does where a row does not say."""
    with (data.path("measured") / "training" / "finetune_tools.toml").open("rb") as file:
        return tomllib.load(file)


@cache
def _models() -> Mapping[str, Row]:
    return {row["model"]: row for row in read_rows("finetune_models")}


def _model(name: str) -> Any:
    if name not in _models():
        raise LeftOut("the catalogue has no such model")
    entry = _models()[name]
    if not entry["changes"]:
        return entry["configuration"]
    path = data.path("catalog") / "architectures" / load_file(entry["configuration"])
    return json.loads(path.read_text(encoding="utf-8")) | json.loads(entry["changes"])


@cache
def measured() -> tuple[tuple[Measured, ...], Mapping[str, int]]:
    """Return the usable rows, and how many were left out by reason."""
    used: list[Measured] = []
    left: Counter[str] = Counter()
    for row in read_rows(FILE):
        try:
            used.append(_measured(row))
        except LeftOut as reason:
            left[str(reason)] += 1
    return tuple(used), dict(left)


def _unusable(row: Row) -> str:
    """Return why a row cannot be asked, or nothing."""
    tool = row["framework"]
    reasons = {
        "a formula or a statement of its source, not a measurement": row["kind"] not in ("measured", "trainer_benchmark"),
        "adapters of another kind, or parts of the model trained whole": row["method"] not in METHODS,
        "no sequence length or micro-batch is stated": not row["seq_len"] or not (row["micro_batch"] or tool == "InternEvo"),
        "no peak is stated": not row["peak_mem_gb"] and row["fits"] != "no",
        "weights of 2 or 8 bits": row["quant_bits"] not in ("4", "16"),
        "a rounded figure of another run than the row's": row["framework"] == "axolotl",
        "the batch is inferred, and rows of the same page that state theirs contradict it": "batch inferred" in row["exactness"],
        "the optimiser steps inside the backward pass, or states or activations wait in host memory by a scheme of the tool": any(word in row["setting"] for word in CUMULATIVE)
        or (tool == "torchtune" and row["method"] == "full" and not row["recompute"]),
        "examples of unstated lengths": "baseline" in row["setting"] or tool.endswith("(Jul 2024)"),  # too long to fit as stated
        "activations of recomputed layers wait in host memory": row["recompute"] == "offload",
        LOADING: tool.startswith("LitGPT") and row["sharding"] == "FSDP",
        "other matrices carry adapters": bool(row["lora_targets"]) and row["lora_targets"] not in TARGETS,
        "what the tool does by default is not known": tool not in tools(),
    }  # fmt: skip
    return next((reason for reason, holds in reasons.items() if holds), "")


def _measured(row: Row) -> Measured:
    reason = _unusable(row)
    if reason:
        raise LeftOut(reason)
    case = _case(row, tools()[row["framework"]])
    if row["offload"] and case.workload["layout"]["offload"] == "none":
        raise LeftOut("offload by a scheme of the tool")
    if not row["peak_mem_gb"]:
        return Measured(case, None, False, _capacity(row))
    # files and drivers print GiB; two tools print 10^9 bytes and say so
    size = float(row["peak_mem_gb"]) * (1e9 if row["peak_mem_unit"] == "GB" else GIB)
    if row["peak_mem_scope"].startswith("total"):
        size /= int(row["accelerators"])
    return Measured(case, size, row["fits"] == "yes", _capacity(row))


def _capacity(row: Row) -> float:
    """Return the memory of the device [B], infinite where it is not stated."""
    return float(row["accelerator_mem_gb"]) * GIB if row["accelerator_mem_gb"] else float("inf")


def _case(row: Row, tool: Mapping[str, Any]) -> Case:
    chips, micro_batch = int(row["accelerators"] or 1), int(row["micro_batch"] or 1)
    layout = _layout(row, tool, chips) | {"micro_batch": micro_batch}
    method = METHODS[row["method"]]
    if method == "lora" and row["quant_bits"] == "4":
        method = "qlora"
    weights = tool.get("weights", "bf16")
    kept = tool.get("gradients", weights)
    flash = row["model"] not in tool.get("plain_attention", ()) and row["setting"] != "plain attention"
    return Case(
        row["row_id"], row["accelerator"], row["group"], ROOM, _model(row["model"]),
        {
            "tokens": TOKENS, "sequence_length": int(float(row["seq_len"])),
            "global_batch": micro_batch * layout["dp"], "method": method,
            "rank": int(row["lora_rank"] or tool["rank"]),
            "targets": _targets(row, tool),
            "optimizer": tool.get("optimizer", "adam") if method == "full" else "adam",
            "kernels": {"flash_attention": flash}, "engine": {"name": _engine(row, tool)},
            "precision": {"compute": "bf16", "weights": weights, "gradients": kept},
            "layout": layout,
        },
        stage_of(FILE),
    )  # fmt: skip


def _targets(row: Row, tool: Mapping[str, Any]) -> Any:
    if row["lora_targets"]:
        return TARGETS[row["lora_targets"]]
    return "all-linear" if row["model"] in tool.get("everywhere", ()) else tool["targets"]


def _engine(row: Row, tool: Mapping[str, Any]) -> str:
    if row["setting"].startswith("unsloth"):
        return "unsloth"
    return str(tool["engine"]) + ("-whole-loss" if row["method"] == WHOLE_LOSS or row["setting"] in UNCUT else "")


def _layout(row: Row, tool: Mapping[str, Any], chips: int) -> dict[str, Any]:
    words = row["sharding"].split()
    degrees = {word[:2].lower(): int(word[2:]) for word in words if word[:2] in ("TP", "PP") and word[2:].isdigit()}
    # layers split over devices by a map are pipeline ranks with one micro-batch
    tp, pp = degrees.get("tp", 1), chips if "layer split" in row["sharding"] else degrees.get("pp", 1)
    # a tool that says "full or data parallel" and prints what one device takes ran data parallel where adapters are small
    either = "or data parallel" in row["sharding"]
    shards = ("FSDP" in row["sharding"] or "ZeRO-3" in row["sharding"]) and not (either and row["method"] == "LoRA")
    zero = 3 if shards else 2 if "ZeRO-2" in row["sharding"] else 1 if "ZeRO-1" in row["sharding"] else 0
    return {
        "chips": chips, "tp": tp, "pp": pp, "dp": chips // (tp * pp), "cp": 1, "ep": 1, "expert_tp": 1, "virtual": 1,
        "schedule": "1f1b", "sequence_parallel": tp > 1, "zero": zero, "recompute": row["recompute"] or tool["recompute"],
        "offload": "parameters" if row["offload"].startswith("CPU parameters") else "none",
    }  # fmt: skip


@cache
def predictor() -> Predictor:
    """Return the predictor of all usable rows."""
    return Predictor([row.case for row in measured()[0]], FIGURES)


@cache
def pairs() -> tuple[Pair, ...]:
    """Return the usable rows, each predicted by the constants fitted on the other half."""
    rows, _ = measured()
    folder = data.path("catalog") / "efficiency"
    by_fit = {fold: predictor().predict(given(fold_table(fold, folder))) for fold in FOLDS}
    found = []
    for i, row in enumerate(rows):
        fit = FOLDS[1] if fitted_half(row.case.group) else FOLDS[0]
        found.append(Pair(row, by_fit[fit][i], predictor().refused.get(i, "")))
    return tuple(found)


def evaluate(name: str) -> Evaluation:
    """Return the scored outcomes of the file: peak memory beside the same share of the states, and whether it fits."""
    _, left = measured()
    left_out = Counter(left)
    outcomes: list[Outcome] = []
    for pair in pairs():
        if pair.predicted is None:
            left_out[f"refused: {pair.reason}"] += 1
        else:
            outcomes += _outcomes(pair, pair.predicted)
    return Evaluation(outcomes, len(read_rows(name)), dict(left_out))


def _outcomes(pair: Pair, predicted: Prediction) -> list[Outcome]:
    row, total = pair.row, predicted.figures[FIGURE]
    case = row.case
    tool = engine_of(case)
    found = []
    if row.bytes is not None:
        found.append(
            Outcome(
                tool, "peak_memory", case.group, total, row.bytes, baseline(pair), None, None, interval(pair, total)
            )
        )
    if np.isfinite(row.capacity):
        found.append(Outcome(tool, "fits", case.group, 0.0, None, fits=(row.fits, needed(predicted) <= row.capacity)))
    return found


def needed(predicted: Prediction) -> float:
    """Return the least memory that a run gets by with [B]: an allocator that runs short gives back what it holds beyond its tensors
    and tries again (PyTorch documentation, memory management).
    """
    held = predicted.figures
    return held[ALLOCATED] + held[FIGURE] - held[RESERVED]


def interval(pair: Pair, total: float) -> tuple[float, float] | None:
    """Return the 80% interval of a row's memory from the residuals of other groups of its class, None where too few are known."""
    case = pair.row.case
    others = np.array([one for group, one in residuals().get(residual_class(case), ()) if group != case.group])
    if others.size < LEAST_ROWS:
        return None
    low, high = log_quantiles(others)
    return total * exp(low), total * exp(high)


@cache
def residuals() -> Mapping[str, list[tuple[str, float]]]:
    """Return group and log(measured/predicted) of the measured rows by class of residuals."""
    found: dict[str, list[tuple[str, float]]] = {}
    for pair in pairs():
        if pair.predicted is not None and pair.row.bytes is not None:
            one = (pair.row.case.group, log(pair.row.bytes / pair.predicted.figures[FIGURE]))
            found.setdefault(residual_class(pair.row.case), []).append(one)
    return found


def baseline(pair: Pair) -> float | None:
    """Return weights, gradients and optimiser states at the share of the peak that they are in the other half."""
    if pair.predicted is None:
        return None
    return _states(pair.predicted) / _share()[pair.fold]


def _states(predicted: Prediction) -> float:
    return sum(predicted.figures[f"memory.{name}"] for name in ("weights", "gradients", "optimizer"))


@cache
def _share() -> Mapping[str, float]:
    """Return, by half, the median share of the measured peak that states are in the other half."""
    found: dict[str, list[float]] = {fold: [] for fold in FOLDS}
    for pair in pairs():
        if pair.predicted is not None and pair.row.bytes is not None:
            found[FOLDS[1 - FOLDS.index(pair.fold)]].append(_states(pair.predicted) / pair.row.bytes)
    return {fold: median(values) for fold, values in found.items()}
