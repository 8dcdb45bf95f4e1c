"""Measured profiles of serving work: one pass of a whole model, one layer, the products of one layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenmill.validate_serving_rows import Row, serving_case

EARLY = {"name": "vllm", "version": "0.2", "graph": False}
"""vLLM of 2023: no captured graphs."""
TINY = 2.0
"""Context of profiles that hold none."""
HELIX_PROMPT, HELIX_ANSWER = 763.0, 232.0
"""Mean prompt and answer of the requests that Helix was profiled with: the hour of chats of Azure less prompts over 2048 and answers over
1024 tokens (Mei et al. 2025, Helix, ASPLOS, section 6.2; the same cut of measured/traces/azure-2023-conv gives these means)."""
LONGEST = 1e6


def splitwise_profiles(entry: Mapping[str, str]) -> Row | str:
    """Read the time of a prompt and of a token at one batch; prompts are computed alone."""
    batch, prompt = float(entry["batch"]), float(entry["prompt_tokens"])
    tp = int(entry["tensor_parallel"])
    group = f"{entry['model']}/{entry['gpu']}"
    workload = _workload(prompt, float(entry["output_tokens"]), batch, tp, EARLY, "bf16")
    case = serving_case(entry, entry["gpu"], entry["model"], group, tp, workload, does="answers")
    return case if isinstance(case, str) else Row(case, {"token": float(entry["token_time_ms"]) / 1e3})


def splitwise_prompts(entry: Mapping[str, str]) -> Row | str:
    """Read the time of a single prompt."""
    if entry["batch"] != "1":
        return "several prompts at once"
    tp = int(entry["tensor_parallel"])
    workload = _workload(float(entry["prompt_tokens"]), 2.0, 1.0, tp, EARLY, "bf16")
    group = f"{entry['model']}/{entry['gpu']}"
    case = serving_case(entry, entry["gpu"], entry["model"], group, tp, workload, does="prompts")
    return case if isinstance(case, str) else Row(case, {"prompt": float(entry["prompt_time_ms"]) / 1e3})


def helix_layer_profiles(entry: Mapping[str, str]) -> Row | str:
    """Read the time of one layer on one or several cards of a kind; tokens of prompts are those of several, so that attention hardly counts."""
    card, _, count = entry["gpu"].partition(" x")
    tp = int(count or 1)
    load, prompt = float(entry["x_value"]), entry["phase"] == "prompt"
    lengths = (load, 2.0, 1.0) if prompt else (HELIX_PROMPT, HELIX_ANSWER, load)
    workload = _workload(*lengths, tp, EARLY, "fp16")
    accelerator = "A100-40" if card == "A100" else card
    group = f"{entry['gpu']}/{tp}"
    case = serving_case(
        entry, accelerator, entry["model"], group, tp, workload, does="prompts" if prompt else "answers"
    )
    metric = "layer_prompt" if prompt else "layer_decode"
    return case if isinstance(case, str) else Row(case, {metric: float(entry["layer_time_ms"]) / 1e3})


def kernel_profiles(entry: Mapping[str, str]) -> Row | str:
    """Read the time of the products of one layer over so many tokens."""
    tp = int(entry["tensor_parallel"])
    workload = _workload(TINY, 2.0, float(entry["num_tokens"]), tp, {"name": "vllm"}, "bf16")
    group = f"{entry['gpu']}/{tp}"
    case = serving_case(entry, entry["gpu"], entry["model"], group, tp, workload, does="answers")
    return case if isinstance(case, str) else Row(case, {"products": float(entry["sum_linear_ms"]) / 1e3})


def _workload(
    prompt: float, answer: float, batch: float, tp: int, engine: Mapping[str, Any], kind: str
) -> dict[str, Any]:
    return {
        "demand": {"input_tokens": prompt, "output_tokens": answer, "arrivals": {"concurrency": batch}},
        "engine": {**engine, "chunk": LONGEST, "disaggregated": True},
        "layout": {"tp": tp, "pp": 1},
        "precision": {"weights": kind, "compute": kind},
    }
