"""Scores what engines printed of their memory when they started, and what started at all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from tokenmill.catalog import load_catalog
from tokenmill.imports.architecture import load_architecture
from tokenmill.validate import Evaluation, Outcome
from tokenmill.validate_cases import Case, Prediction, Predictor
from tokenmill.validate_serving_rows import model_of, names, read_rows, system_of

GIB = 2.0**30
BUDGET, LARGE_BUDGET, LARGE = 2048.0, 8192.0, 70 * GIB
"""Tokens of a step where a report states none, and on devices of so much memory: defaults of vLLM's second engine."""
SEQUENCES, LARGE_SEQUENCES = 256.0, 1024.0
"""Sequences that an engine is started for where a report states none: vLLM's, and those of its second engine on large devices."""
NOT_LARGE = "a100"
"""Chips that the second engine counts as small whatever their memory (recalled)."""
ROWS = "engine_logit_rows"
"""Leaf: sequences whose logits a start holds."""
SECOND_ENGINE, SECOND_ISSUE = (0, 8), 14000
"""Release, and number of the report, from which vLLM runs its second engine; the first passed the longest prompt whole when it started."""
SEEN = 0.986
"""Memory that a program sees over the nominal one, of a device that no report prints: the median of those that do."""
COMPRESSED = (0, 7)
"""Release from which vLLM keeps the latent of latent attention; before, keys and values of all heads, each padded to `PADDED`."""
PADDED = 256.0
STARTED = {"works": True, "fails_init": False, "oom": False, "works_short": False}
OTHER_FORMS = ("PP2", "layer split")
ENGINES = {"vLLM": "vllm", "SGLang": "sglang", "TensorRT-LLM": "trtllm", "LMDeploy": "lmdeploy"}
TOKENS, ROOM = "kv_tokens", "kv_room"
"""Figures of a role: tokens that the cache holds, bytes left for it on a device."""


def evaluate(name: str) -> Evaluation:
    """Return the outcomes of measured/serving/reported_cases.csv: tokens from printed memory, memory from the set-up, what fits."""
    left: Counter[str] = Counter()
    asked: list[tuple[Mapping[str, str], bool]] = []
    for entry in read_rows(name):
        reason = _unusable(entry)
        if reason:
            left[reason] += 1
        else:
            asked += [(entry, held) for held in (True, False) if not held or _prints(entry)]
    predictor = Predictor([_case(*one) for one in asked], (TOKENS, ROOM))
    outcomes: list[Outcome] = []
    sequences = np.array([_sequences(start) for start, _ in asked])
    for (start, held), found in zip(
        asked, predictor.predict(lambda batch: {ROWS: sequences[batch.cases]}), strict=True
    ):
        if found is not None:
            outcomes += _printed(start, found) if held else _from_setup(start, found)
    return Evaluation(outcomes, len(read_rows(name)), dict(left))


def _unusable(entry: Mapping[str, str]) -> str:
    if entry["engine"] not in ENGINES or entry["other_parallel"].startswith(OTHER_FORMS):
        return "an engine or a split of layers that is not offered"
    if entry["model"] in names()["own_cache"]["models"]:
        return "what its engine keeps of the cache is not published"
    if model_of(entry["model"]) is None:
        return "the catalogue has no such model"
    if entry["weights_dtype"] not in names()["precisions"]:
        return "its format is not offered"
    if system_of(_device(entry), int(entry["num_gpus"] or 1)) is None:
        return "its device is not named, or not in the catalogue"
    return ""


def _device(entry: Mapping[str, str]) -> str:
    """Return the device of a report: another than it names where what it printed shows so."""
    return str(names()["devices_shown"].get(entry["id"], entry["gpu"]))


def _release(entry: Mapping[str, str]) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", entry["engine_version"])[:2])


def _prints(entry: Mapping[str, str]) -> bool:
    return bool(entry["kv_cache_tokens"]) and float(entry["kv_available_gib_per_gpu"] or 0) > 0


def _printed(entry: Mapping[str, str], found: Prediction) -> list[Outcome]:
    """Tokens of a cache whose memory is printed."""
    chip = names()["accelerators"][_device(entry)]["chip"]
    return [Outcome(chip, TOKENS, entry["source"], found.figures[TOKENS], float(entry["kv_cache_tokens"]))]


def _from_setup(entry: Mapping[str, str], found: Prediction) -> list[Outcome]:
    """Memory left for the cache, and whether the engine started."""
    chip = names()["accelerators"][_device(entry)]["chip"]
    outcomes: list[Outcome] = []
    printed = float(entry["kv_available_gib_per_gpu"] or 0) * GIB
    if not printed and entry["kv_cache_tokens"] and found.figures[TOKENS]:
        printed = float(entry["kv_cache_tokens"]) * found.figures[ROOM] / found.figures[TOKENS]
    if printed > 0 and entry["memory_fraction"] and entry["engine"] == "vLLM":
        outcomes.append(Outcome(chip, "kv_memory", entry["source"], found.figures[ROOM], printed))
    if entry["outcome"] in STARTED and (entry["max_model_len"] or entry["outcome"] in ("works", "oom")):
        fits = (STARTED[entry["outcome"]], found.fits)
        outcomes.append(Outcome(chip, "fits", entry["source"], 0.0, None, fits=fits))
    return outcomes


def _budget(entry: Mapping[str, str], chip: str) -> float:
    """Return the tokens of the step that an engine tries when it starts."""
    if entry["max_batched_tokens"]:
        return float(entry["max_batched_tokens"])
    if _first_engine(entry) and entry["engine"] == "vLLM":
        return max(BUDGET, float(entry["max_model_len"] or BUDGET))
    return LARGE_BUDGET if _large(chip) else BUDGET


def _sequences(entry: Mapping[str, str]) -> float:
    """Return the sequences that an engine is started for."""
    if entry["max_num_seqs"]:
        return float(entry["max_num_seqs"])
    second = entry["engine"] == "vLLM" and not _first_engine(entry)
    return LARGE_SEQUENCES if second and _large(names()["accelerators"][_device(entry)]["chip"]) else SEQUENCES


def _first_engine(entry: Mapping[str, str]) -> bool:
    """Return whether a report is of vLLM's first engine: by its release, else by what it prints or the number of the report."""
    release = _release(entry)
    if release:
        return release < SECOND_ENGINE
    number = re.search(r"vllm#(\d+)$", entry["source"])
    return bool(entry["kv_blocks_of_16"]) or bool(number and int(number[1]) < SECOND_ISSUE)


def _large(chip: str) -> bool:
    return load_catalog().chip(chip).capacity > LARGE and not chip.startswith(NOT_LARGE)


def _weights(entry: Mapping[str, str]) -> str:
    """Return the format of the weights: the checkpoint's own where it keeps some of them wider than its name says."""
    return str(names()["checkpoints"].get(entry["model"]) or names()["precisions"][entry["weights_dtype"]])


def _expanded(entry: Mapping[str, str], model: str, ranks: int) -> float:
    """Return the cache of a token on a rank over that of a latent, of releases that do not keep latents."""
    release = _release(entry)
    mixer = load_architecture(model).layers[-1].mixer
    if entry["engine"] != "vLLM" or not release or release >= COMPRESSED or not mixer.kv_lora_rank:
        return 1.0
    return 2 * PADDED * mixer.heads / ranks / mixer.kv_elements


def _longest(entry: Mapping[str, str], model: str) -> float | None:
    """Return the tokens that a cache must hold for the engine to start: as stated; vLLM's own is the longest that the model knows."""
    if entry["max_model_len"]:
        return float(entry["max_model_len"])
    return load_architecture(model).max_positions if entry["engine"] == "vLLM" else None


def _case(entry: Mapping[str, str], held: bool) -> Case:
    """Return a start as a problem; `held`: with the memory of the cache as it was printed."""
    ranks = int(entry["num_gpus"] or 1)
    replicas = ranks // int(entry["tensor_parallel"] or 1)
    chip = names()["accelerators"][_device(entry)]["chip"]
    seen = float(entry["gpu_memory_gib_reported"] or ("" if held else names()["visible"].get(chip, "")) or 0)
    stated = seen * GIB / load_catalog().chip(chip).capacity
    fraction = float(entry["memory_fraction"] or 0.9) * (stated or (1.0 if held else SEEN))
    words = names()["precisions"]
    model = str(model_of(entry["model"]))
    engine: dict[str, Any] = {
        "name": ENGINES[entry["engine"]], "chunk": _budget(entry, chip), "disaggregated": False,
        "attention_dp": replicas, "kv_memory": float(entry["kv_available_gib_per_gpu"]) * GIB if held else 0.0,
    }  # fmt: skip
    longest = _longest(entry, model)
    if longest:
        engine["context_limit"] = longest * _expanded(entry, model, ranks // replicas)
    workload = {
        "demand": {"input_tokens": longest or 16.0, "output_tokens": 2.0, "arrivals": {"concurrency": float(replicas)}},
        "engine": engine,
        "layout": {"tp": ranks // replicas, "pp": 1, **({"ep": ranks} if replicas > 1 else {})},
        "precision": {"weights": _weights(entry), "kv": words[entry["kv_dtype"]]},
        "memory_fraction": min(1.0, fraction),
    }
    return Case(
        entry["id"],
        chip,
        entry["source"],
        str(system_of(_device(entry), ranks)),
        model,
        workload,
        names()["stage"],
        role=names()["roles"]["whole"],
    )
