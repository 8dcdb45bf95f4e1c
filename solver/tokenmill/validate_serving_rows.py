"""Measured serving rows read as problems: what ran on what, in the words of problem files, and the figures it gave in SI."""

from __future__ import annotations

import csv
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from tokenmill import data
from tokenmill.validate_cases import Case

DRAWN = (0.9, 0.99)
"""Mean and 95th percentile of lengths drawn evenly from 80 to 100% of the nominal one."""
CHUNK = 8192.0
FRACTIONS = {"trtllm": 0.97}
"""Memory share by engine: TensorRT-LLM takes nine tenths of what its weights leave."""
FAULTY = "nvidia/DeepSeek-R1-NVFP4"
MOST = 4096.0


@dataclass(frozen=True)
class Row:
    """A measured row as a case. `values`: measured by metric [s, 1/s, W]; `setting`: rows that differ in layout alone."""

    case: Case
    values: Mapping[str, float]
    setting: str | None = None


@cache
def names() -> Mapping[str, Any]:
    """Return what measured names are in the catalogue's words: models, accelerators, precisions."""
    with (data.path("measured") / "serving" / "names.toml").open("rb") as file:
        return tomllib.load(file)


def read_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a file of measured/serving as text by column."""
    with (data.path("measured") / "serving" / f"{FILES.get(name, name)}.csv").open(
        encoding="utf-8", newline=""
    ) as file:
        return list(csv.DictReader(file))


@cache
def measured(name: str) -> tuple[tuple[Row, ...], Mapping[str, int]]:
    """Return the rows of a file that can be asked as problems, and how many cannot by reason."""
    rows: list[Row] = []
    left: Counter[str] = Counter()
    read = getattr(import_module(READERS[name]), name)
    for entry in read_rows(name):
        found = read(entry)
        if isinstance(found, str):
            left[found] += 1
        else:
            rows.append(found)
    return tuple(rows), dict(left)


@cache
def model_of(name: str) -> str | None:
    """Return a model as problems name it: of the catalogue, or a configuration beside the measurements."""
    from tokenmill.imports.architecture import architecture_names

    known = names()["models"].get(name)
    if known is None or known in architecture_names():
        return str(known) if known else None
    beside = data.path("measured") / "serving" / "models" / f"{known}.json"
    return str(beside) if beside.exists() else None


def system_of(accelerator: str, ranks: int) -> str | None:
    """Return the system that `ranks` of an accelerator stand in: the chip alone where one is enough and the system is none."""
    known = names()["accelerators"].get(accelerator)
    return None if known is None else str(known["chip"] if ranks == 1 else known["system"])


def lengths(mean: float, p95: float | None = None) -> float | dict[str, float]:
    """Return a length as problems state it."""
    return mean if p95 is None else {"mean": mean, "p95": max(mean, p95)}


def serving_case(
    entry: Mapping[str, str],
    accelerator: str,
    model: str,
    group: str,
    ranks: int,
    workload: dict[str, Any],
    does: str = "whole",
) -> Case | str:
    """Return a case on a system of the catalogue, or why there is none."""
    system, known = system_of(accelerator, ranks), model_of(model)
    if system is None:
        return "the catalogue has no such accelerator"
    if known is None:
        return "the catalogue has no such model"
    chip, role = names()["accelerators"][accelerator]["chip"], names()["roles"][does]
    return Case(entry["id"], chip, group, system, known, workload, names()["stage"], role=role)


def precision(weights: str, kv: str = "", experts: str = "") -> dict[str, str]:
    """Return the precision table of a problem from measured words."""
    words = names()["precisions"]
    table = {"weights": words[weights], "kv": words[kv] if kv else "bf16"}
    return table | ({"experts": words[experts]} if experts else {})


def _number(text: str, default: float = 0.0) -> float:
    return float(text) if text else default


def inferencemax(entry: Mapping[str, str]) -> Row | str:
    """Read a point of a closed loop: fixed requests in flight, lengths drawn from 80 to 100% of the nominal, a build of its day."""
    if entry["mode"] != "agg":
        return "prompts and answers in pools of their own"
    if entry["model"] == FAULTY:
        return "answers of 85 to 92 ms a token whatever the load: a fault of the run"
    dp, pp = int(_number(entry["attn_dp"], 1)), int(_number(entry["pp"], 1))
    ranks = int(entry["num_gpus"])
    stated = {"isl": float(entry["isl_tokens"]), "osl": float(entry["osl_tokens"])}
    workload: dict[str, Any] = {
        "demand": {
            "input_tokens": lengths(*(share * stated["isl"] for share in DRAWN)),
            "output_tokens": lengths(*(share * stated["osl"] for share in DRAWN)),
            "arrivals": {"concurrency": float(entry["concurrency_requests"])},
        },
        "engine": {"name": entry["engine"], "version": entry["measured_date"] or entry["engine_version"], "chunk": CHUNK, "disaggregated": False, "attention_dp": dp},
        "layout": {"tp": ranks // (pp * dp), "pp": pp, "ep": int(_number(entry["moe_ep"], 1))},
        "precision": _quantised(entry),
        "memory_fraction": FRACTIONS.get(entry["engine"], 0.9),
    }  # fmt: skip
    group = "/".join(entry[key] for key in ("model", "gpu", "precision", "engine"))
    case = serving_case(entry, entry["gpu"], entry["model"], group, ranks, workload)
    if isinstance(case, str):
        return case
    values = {"tpot": float(entry["tpot_ms"]) / 1e3, "ttft": float(entry["ttft_ms"]) / 1e3}
    keys = ("model", "gpu", "precision", "engine", "isl_tokens", "osl_tokens", "concurrency_requests")
    return Row(case, values, "/".join(entry[key] for key in keys))


def _quantised(entry: Mapping[str, str]) -> dict[str, str]:
    """Products and experts in the formats that the row names; gpt-oss as it is published, whatever the label."""
    if "gpt-oss" in entry["model"]:
        return {"kv": "fp8" if entry["engine"] == "trtllm" else "bf16"}
    words = names()["precisions"]
    weights, experts = (words[entry[key].partition("_")[0]] for key in ("gemm_quant", "moe_quant"))
    routed = {"experts": experts} if entry["moe_ep"] or experts != weights else {}
    return {"weights": weights, "kv": "fp8" if weights != "bf16" else "bf16", **routed}


def energy_serving(entry: Mapping[str, str]) -> Row | str:
    """Read a steady state of vLLM: as many running as measured, answers of the mean length; a chip's power beside the rate."""
    if entry["task"] not in names()["prompts"]:
        return "prompts of pictures or video, of a size that is not published"
    dp, ranks = int(entry["data_parallel"]), int(entry["num_gpus"])
    workload: dict[str, Any] = {
        "demand": {
            "input_tokens": names()["prompts"][entry["task"]]["mean"],
            "output_tokens": max(2.0, float(entry["mean_output_tokens"])),
            "arrivals": {"concurrency": max(1.0, float(entry["mean_running_batch"])), "rounds": 1000},
        },
        "engine": {"name": "vllm", "version": "0.11", "chunk": CHUNK, "disaggregated": False, "attention_dp": dp},
        "layout": {"tp": ranks // dp, "pp": 1, "ep": int(entry["expert_parallel"])},
        "precision": {} if "gpt-oss" in entry["model"] else {"weights": names()["precisions"][entry["weight_precision"]]},
    }  # fmt: skip
    case = serving_case(entry, entry["gpu"], entry["model"], f"{entry['model']}/{entry['gpu']}", ranks, workload)
    if isinstance(case, str):
        return case
    values = {"rate": float(entry["output_tok_s"]), "power": float(entry["avg_power_w_per_gpu"])}
    setting = "/".join(entry[key] for key in ("model", "task", "max_num_seqs"))
    return Row(case, values, setting)


def vendor_perf(entry: Mapping[str, str]) -> Row | str:
    """Read a vendor's table: the most tokens a second offline at a batch that is not stated, or of a static batch."""
    kind = entry["kind"]
    if kind not in KINDS:
        return KIND_REASONS.get(kind, kind)
    tp, pp = int(_number(entry["tp"], 1)), int(_number(entry["pp"], 1))
    if entry["gpu"] not in names()["accelerators"]:
        return "the catalogue has no such accelerator, or no fitted constants of it"
    most = min(MOST, _number(entry["batch_size"], MOST))
    apart = (tp,) if entry["engine"] in ATTENDS_APART else ()
    answer = float(entry["osl_tokens"])
    workload: dict[str, Any] = {
        "demand": {
            "input_tokens": float(entry["isl_tokens"]), "output_tokens": answer, "arrivals": {"concurrency": most, "rounds": 1000},
        },
        "engine": {**_vendor_engine(entry), "chunk": CHUNK, "disaggregated": False, "attention_dp": sorted({1, *apart})},
        "layout": {"tp": sorted({tp, *(tp // dp for dp in apart)}), "pp": pp, "chips": tp * pp},
        "memory_fraction": VENDOR_FRACTION,
        "precision": {"weights": names()["precisions"][entry["weights_dtype"]], "kv": names()["precisions"][entry["kv_dtype"]]},
    }  # fmt: skip
    case = serving_case(
        entry, entry["gpu"], entry["model"], f"{entry['model']}/{entry['gpu']}", tp * pp, workload, does=KINDS[kind]
    )
    if isinstance(case, str):
        return case
    if kind == "first_token_latency":
        return Row(case, {"prompt": float(entry["ttft_ms"]) / 1e3})
    return Row(case, {"rate": float(entry["output_tok_s_per_gpu"]) * tp * pp})


def mlperf_inference(entry: Mapping[str, str]) -> Row | str:
    """Read an offline result: the layout is not stated, so the best of one node is predicted."""
    if entry["scenario"].lower() != "offline":
        return "a load that arrives: the rate at a limit of latency"
    lengths_of = names()["benchmarks"].get(entry["benchmark"])
    if lengths_of is None:
        return "a benchmark with beam search, or of unknown prompts"
    known = names()["accelerators"].get(entry["accelerator"])
    if known is None:
        return "the catalogue has no such accelerator, or no fitted constants of it"
    if entry["weight_dtype"] in ("UNSET", "fp32"):
        return "the format of its weights is not stated"
    total = float(entry["accelerators_total"])
    words = names()["precisions"]
    answer = _number(entry["derived_mean_output_tokens"], lengths_of["output"])
    workload: dict[str, Any] = {
        "demand": {"input_tokens": lengths_of["input"], "output_tokens": answer, "arrivals": {"concurrency": MOST, "rounds": 1000}},
        "engine": {**_engine_of(entry["software"]), "chunk": CHUNK, "disaggregated": False},
        "layout": {"tp": [t for t in (1, 2, 4, 8) if t <= total], "pp": 1},
        "memory_fraction": VENDOR_FRACTION,
        "precision": {"weights": words[entry["weight_dtype"]] if entry["weight_dtype"] else known["offline"], "kv": "fp8"},
    }  # fmt: skip
    group = f"{entry['benchmark'].partition('-9')[0]}/{entry['accelerator']}"
    case = serving_case(entry, entry["accelerator"], entry["benchmark"], group, int(min(total, 8)), workload)
    return case if isinstance(case, str) else Row(case, {"rate_chip": float(entry["result"]) / total})


def _engine_of(software: str) -> dict[str, str]:
    """Return the engine of an offline result; of TensorRT-LLM the release that builds on the TensorRT 10.11 of most rows."""
    if "TensorRT" in software:
        return {"name": "trtllm", "version": "1.0"}
    if "SGLang" in software:
        return {"name": "sglang"}
    release = re.search(r"vllm[ -]v?(\d+)\.(\d+)", software.lower())
    if release is None:
        return {"name": "vllm"}
    return {"name": "vllm", "version": ".".join(map(str, max(FIRST_GRAPHS, (int(release[1]), int(release[2])))))}


def _vendor_engine(entry: Mapping[str, str]) -> dict[str, str]:
    release = re.search(r"v(\d+\.\d+)", entry["doc"])
    return {
        "name": names()["engines"].get(entry["engine"], entry["engine"]),
        "version": release[1] if release else "",
    }


ATTENDS_APART = ("trtllm-pytorch",)
"""Engines whose tables leave open whether the ranks of a layer attend to sequences of their own."""
KINDS = {"offline_max_throughput": "whole", "static_batch": "whole", "first_token_latency": "prompts"}
KIND_REASONS = {
    "online_serving": "a load that arrives: latency at a rate",
    "online_concurrency": "the catalogue has no fitted constants of the chip",
    "batch1_latency": "the catalogue has no fitted constants of the chip",
    "static_batch_latency": "a batch in step from prompt to answer",
}
FIRST_GRAPHS = (0, 7)
"""Releases of vLLM before it are nearer to its second engine than to one without captured graphs."""
VENDOR_FRACTION = 0.93
"""Memory share of offline runs: 90 to 95% of what weights leave, as the tables state."""
PROFILES = "tokenmill.validate_serving_profiles"
READERS = {
    "inferencemax": __name__,
    "energy_serving": __name__,
    "vendor_perf": __name__,
    "mlperf_inference": __name__,
    "splitwise_profiles": PROFILES,
    "splitwise_prompts": PROFILES,
    "helix_layer_profiles": PROFILES,
    "kernel_profiles": PROFILES,
}
"""Module that reads a file: it has a function of the file's name."""
FILES = {"splitwise_prompts": "splitwise_profiles"}
"""File of those rows that are read twice."""
