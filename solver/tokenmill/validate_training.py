"""Rows of measured training runs as problems with what was measured: one reader a file of measured/training."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tokenmill import data
from tokenmill.imports.architecture import load_architecture
from tokenmill.validate_cases import Case

Row = Mapping[str, str]
GIB = 2**30
KERNELS_ALONE = "mfu_kernels_alone"
TOKENS = 1e12
"""Tokens of a run: any number, a step does not depend on it."""

SYSTEMS = {
    "A100": "hgx-a100-80gb", "A100-SXM-80GB": "hgx-a100-80gb", "A100-SXM-40GB": "hgx-a100-40gb",
    "A100-SXM-40GB (DGX-A100)": "hgx-a100-40gb", "V100-32GB (DGX-2)": "dgx-2", "A800-SXM-80GB": "hgx-a100-80gb",
    "H100-SXM-80GB": "hgx-h100", "H100-SXM-80GB 700W": "hgx-h100", "H100-SXM-96GB HBM2e 2.4TB/s 500W": "hgx-h100-96gb",
    "H200-SXM-141GB": "hgx-h200", "H800-SXM-80GB": "h800-8", "B200": "hgx-b200", "B200-180GB": "hgx-b200",
    "B200/GB200-class 184GiB": "hgx-b200", "B300": "hgx-b300", "GB200": "gb200-nvl72", "GB200-NVL72": "gb200-nvl72",
    "GB300-NVL72": "gb300-nvl72", "MI300X": "mi300x-8", "MI355X 288GB": "mi355x-8", "TPU v4 32GB": "tpu-v4-pod",
    "TPU v5e 16GB": "tpu-v5e-pod", "TPU v5p 95GB": "tpu-v5p-pod", "TPU v6e (Trillium) 32GB": "tpu-v6e-pod",
    "TPU7x (Ironwood) 192GB": "tpu7x-pod", "Trainium1 (trn1.32xlarge, 16 chips)": "trn1-32xlarge",
}  # fmt: skip
PRECISIONS = {"": "bf16", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp8-cs": "fp8", "fp8-ds": "fp8", "mxfp8": "mxfp8",
              "fp8-mx": "mxfp8", "nvfp4": "nvfp4", "fp8-sc": "fp8-block"}  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """A case with what was measured: `values` by metric, `fits` where it was tried.

    Metrics: step_time [s], KERNELS_ALONE [1, the published MFU beside that of kernel times without any fit of training], peak_memory [B of tensors], reserved_memory [B that the device shows as taken].

    `setting`: rows that differ in layout alone have the same one (None: not ranked). `fit`: the row may enter a fit: a dense
    model (imbalance of experts is not stated; see `_enters`) and no known disturbance; it is scored either way.
    """

    case: Case
    values: Mapping[str, float] = field(default_factory=dict)
    fits: bool | None = None
    setting: str | None = None
    fit: bool = True


class LeftOut(Exception):  # noqa: N818
    """A row that cannot be predicted, and why."""


def read_rows(name: str) -> list[Row]:
    """Return the rows of a file below measured/training."""
    with (data.path("measured") / "training" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def measured(name: str) -> tuple[list[Measured], dict[str, int]]:
    """Return the usable rows of a file, and how many were left out by reason."""
    used: list[Measured] = []
    left: dict[str, int] = {}
    for row in read_rows(name):
        try:
            used.append(READERS[name](row))
        except LeftOut as reason:
            left[str(reason)] = left.get(str(reason), 0) + 1
    return used, left


def gpt(row: Row, sequence: int, vocabulary: int = 51200) -> dict[str, Any]:
    """Return the configuration of a plain GPT: learned positions, MLP four times the width, tied embeddings."""
    layers, width, heads = (_whole(row, key) for key in ("layers", "hidden", "heads"))
    words = int(row.get("vocab") or vocabulary)
    return {"model_type": "gpt2", "n_layer": layers, "n_embd": width, "n_head": heads, "n_inner": 4 * width,
            "vocab_size": words, "n_positions": sequence, "n_ctx": sequence}  # fmt: skip


@cache
def _models() -> dict[str, Row]:
    return {row["model"]: row for row in read_rows("models")}


@cache
def _configuration(name: str, changes: str, layers: int) -> Any:
    """Return a catalogue name, or its configuration with changes and as many layers as were run (0: all)."""
    if not changes and not layers:
        return name
    fields = json.loads((data.path("catalog") / "architectures" / load_file(name)).read_text(encoding="utf-8"))
    fields |= json.loads(changes or "{}")
    if layers:
        fields["num_hidden_layers"] = layers
        if "first_k_dense_replace" in fields:
            fields["first_k_dense_replace"] = 1
    return fields


def sparse(model: str | Mapping[str, Any]) -> bool:
    """Return whether a model (a catalogue name or the fields of a configuration) has routed experts."""
    if isinstance(model, str):
        return any(kind.mlp.expert for kind in load_architecture(model).layers)
    return any("expert" in key for key in model)


@cache
def load_file(name: str) -> str:
    """Return the file of a catalogue architecture."""
    load_architecture(name)
    with (data.path("catalog") / "architectures" / "index.csv").open(encoding="utf-8", newline="") as file:
        return next(row["file"] for row in csv.DictReader(file) if name in (row["name"], row["alias"]))


def _whole(row: Row, key: str) -> int:
    if not row[key]:
        raise LeftOut(f"no {key.replace('_', ' ')} is stated")
    return int(row[key])


def _time(row: Row, *keys: str) -> float:
    found = next((float(row[key]) for key in keys if row.get(key)), None)
    if found is None:
        raise LeftOut("no step time is stated")
    return found


def _system(row: Row) -> str:
    if row["accelerator"] not in SYSTEMS:
        raise LeftOut(f"accelerator {row['accelerator'] or 'not stated'} has no system in the catalogue")
    return SYSTEMS[row["accelerator"]]


def _case(row: Row, model: Any, batch: int, sequence: int, layout: Mapping[str, Any], *, precision: str = "bf16",
          flash: bool = True, dropout: bool = False, engine: str = "generic", reduced: str = "fp32",
          gradients: str = "fp32", **others: Any) -> Case:  # fmt: skip
    chips = _whole(row, "accelerators")
    workload = {
        "tokens": TOKENS, "sequence_length": sequence, "global_batch": batch, "optimizer": "adam",
        "mfu_peak": "fp16" if precision == "fp16" else "bf16",
        "kernels": {"flash_attention": flash, "dropout": dropout}, "engine": {"name": engine},
        "precision": {"compute": precision, "weights": "fp16" if precision == "fp16" else "bf16", "communication": reduced,
                      "gradients": gradients},
        "layout": {"chips": chips, **{key: value for key, value in layout.items() if value is not None}}, **others,
    }  # fmt: skip
    return Case(
        row["row_id"], row["accelerator"], row["group"], _system(row), model, workload, fabric=row.get("fabric") or None
    )


def _degrees(row: Row, *keys: str, **fixed: Any) -> dict[str, Any]:
    """Return held degrees: those the row states, `fixed` ones beside them; a blank degree is free."""
    found: dict[str, Any] = {key: int(row[key]) for key in keys if row.get(key)}
    return found | fixed


OLD = "megatron-2021"
"""The class of frameworks before flash attention and before gradients were exchanged beside the backward pass."""
DENSE = {"cp": 1, "ep": 1, "expert_tp": 1}


def _megatron_2021(row: Row) -> Measured:
    sequence = int(row["seq_len"] or 1024)  # that release trained with 1024
    if row["sharding"] == "ZeRO-3":
        layout = _degrees(row, "dp", "micro_batch", tp=1, pp=1, virtual=1, zero=3, schedule="1f1b")
    else:
        layout = _degrees(row, "tp", "pp", "dp", "micro_batch", zero=0)
    layout |= {**DENSE, "recompute": "full", "sequence_parallel": False}
    if row["pp"] == "1":
        layout |= {"virtual": 1, "schedule": "1f1b"}
    case = _case(row, gpt(row, sequence), _whole(row, "global_batch_seqs"), sequence, layout, precision="fp16", flash=False,
                 dropout=True, engine=OLD)  # fmt: skip
    step = _time(row, "step_time_s", "step_time_s_derived")
    return Measured(
        case, {"step_time": step}, fit=row["sharding"] != "ZeRO-3"
    )  # no other run shows that implementation


def _recompute_2022(row: Row) -> Measured:
    if row["kind"] != "step_time":
        raise LeftOut(f"{row['kind'].replace('_', ' ')}: no step time of a run")
    selective = row["scheme"].startswith("selective")
    virtual = int(row["vpp"] or 1)
    layout = _degrees(row, "tp", "pp", "micro_batch", dp=int(row["dp"] or 1), zero=0, virtual=virtual,
                      schedule="interleaved" if virtual > 1 else "1f1b", recompute="selective" if selective else "full",
                      sequence_parallel=selective, **DENSE)  # fmt: skip
    case = _case(row, gpt(row, 2048), _whole(row, "global_batch_seqs"), 2048, layout, precision="fp16", flash=False,
                 dropout=True, engine="megatron-2022")  # fmt: skip
    return Measured(case, {"step_time": _time(row, "step_time_s")})


def _llama3(row: Row) -> Measured:
    if row["kind"] != "throughput":
        raise LeftOut(f"{row['kind'].replace('_', ' ')}: no step time of a layout")
    layout = _degrees(row, "tp", "cp", "pp", "dp", ep=1, expert_tp=1, zero=2, schedule="interleaved", recompute="none")
    case = _case(row, "llama-3.1-405b", _whole(row, "global_batch_seqs"), _whole(row, "seq_len"), layout)
    return Measured(case, {"step_time": _time(row, "step_time_s_derived"), KERNELS_ALONE: float(row["mfu_pct"]) / 100})


DEEPSEEK_BATCH = 15360
"""Sequences of a step of DeepSeek-V3 after its ramp (technical report, section 4.2)."""


def _deepseek(row: Row) -> Measured:
    if row["quantity"] != "pre-training" or row["kind"] != "gpu_hours":
        raise LeftOut(f"{row['kind'].replace('_', ' ')}: no run of a stated layout")
    chips, sequence = _whole(row, "accelerators"), _whole(row, "seq_len")
    layout = _degrees(
        row, "pp", "ep", "tp", cp=1, expert_tp=1, dp=128, zero=1, virtual=1, schedule="dualpipe", recompute="selective"
    )  # section 3.2.3: norms and up-projections
    case = _case(row, "deepseek-v3", DEEPSEEK_BATCH, sequence, layout, precision="fp8-block")
    seconds = float(row["accel_hours"]) * 3600 / chips
    step = seconds * DEEPSEEK_BATCH * sequence / (float(row["tokens_trained_b"]) * 1e9)
    return Measured(case, {"step_time": step}, fit=False)


BFLOAT = "02-28"
"""From which day on the sweep of BLOOM ran in bf16: its rows hold some 4 bytes a parameter more; before, in fp16."""


def _bloom(row: Row) -> Measured:
    layers = _whole(row, "layers")
    layout = _degrees(row, "tp", "pp", "dp", "micro_batch", zero=int(row["zero_stage"] or 1), virtual=1, schedule="1f1b",
                      recompute="full", sequence_parallel=False, **DENSE)  # fmt: skip
    case = _case(
        row, gpt(row, 2048), _whole(row, "global_batch_seqs"), 2048, layout, flash=False, engine="megatron-deepspeed",
        gradients="fp32" if row["date"][-5:] >= BFLOAT else "fp16",
    )  # fmt: skip
    values = {"step_time": float(row["step_time_s"])} if row["step_time_s"] else {}
    if row["peak_mem_gb_per_accel"]:
        values["reserved_memory"] = float(row["peak_mem_gb_per_accel"]) * GIB  # read from the device, not the allocator
    if not values and row["fits"] != "no":
        raise LeftOut("no step time is stated")
    side = "after" if row["date"][-5:] >= "02-25" else "before"
    setting = f"{layers} {row['hidden']} {row['heads']} {row['accelerators']} {row['global_batch_seqs']} {side}"
    # input was slow before 25 February
    return Measured(case, values, row["fits"] == "yes", setting, fit=side == "after")


def _vtrain(row: Row) -> Measured:
    sequence = _whole(row, "seq_len")
    layout = _degrees(row, "tp", "pp", "dp", "micro_batch", virtual=1, schedule="1f1b", zero=1, sequence_parallel=False,
                      **DENSE)  # fmt: skip
    if row["set"] == "multi-node":
        layout["recompute"] = "full"
    case = _case(row, gpt(row, sequence), _whole(row, "global_batch_seqs"), sequence, layout, precision="fp16", flash=False,
                 dropout=True, engine="megatron-2023" if row["set"] == "multi-node" else "megatron-2023-node")  # fmt: skip
    shape = " ".join(row[key] for key in ("layers", "hidden", "heads", "accelerators", "global_batch_seqs"))
    return Measured(case, {"step_time": _time(row, "step_time_s")}, setting=shape)


SIMUMAX = {"llama3-70b": "llama-3.1-70b", "llama3-405b": "llama-3.1-405b", "deepseekv2": "deepseek-v2",
           "deepseekv3": "deepseek-v3"}  # fmt: skip


def _simumax(row: Row) -> Measured:
    dp = int(row["dp"] or 1)
    layout = _degrees(row, "tp", "pp", "cp", "micro_batch", ep=int(row["ep"] or 1), dp=dp, expert_tp=1, virtual=1,
                      schedule="1f1b", zero=1, recompute="none")  # fmt: skip
    model = _configuration(SIMUMAX[row["model"]], "", _whole(row, "layers_run"))
    case = _case(row, model, _whole(row, "global_batch_seqs"), _whole(row, "seq_len"), layout, engine="simumax")
    memory = float(row["peak_alloc_gib_max_rank"]) * GIB
    values = {"step_time": _time(row, "step_time_s"), "peak_memory": memory}
    return Measured(case, values, fit=row["model"].startswith("llama"))


RECOMPUTE = {"full": "full", "none": "none", "selective": "selective", "selective (per-op)": "selective"}
WITHOUT_FLASH = frozenset({"Megatron-DeepSpeed", "NeMo Framework Launcher"})
"""Frameworks whose rows are of the time before flash attention."""


REDUCE_16 = ("llm-foundry", "fms-fsdp")
"""Frameworks whose recipes reduce gradients in bf16 (mixed precision PURE; bfSixteen)."""
USUAL_RECOMPUTE = {"torchtitan FSDP2": "selective (per-op)"}
"""What frameworks recompute unless told otherwise, where that is not nothing."""
ENGINES = {"llm-foundry": "llm-foundry", "FSDP": "fsdp", "AutoModel": "fsdp"}
"""Class of frameworks by a word of their names, where it is not the generic one."""
HIDES_DISPATCH = "26.06"
"""Release of Megatron-Bridge from which racks of one domain run three quarters to half as long on sparse models, others as before."""


def _engine(row: Row) -> str:
    """Return the class of frameworks of a row."""
    framework = row["framework"]
    if framework in WITHOUT_FLASH:
        return OLD
    if framework == "Megatron-Bridge" and row["release"] >= HIDES_DISPATCH and "NVL72" in row["accelerator"]:
        return "megatron-bridge nvl72"
    name = next((name for word, name in ENGINES.items() if word.lower() in framework.lower()), "generic")
    return f"{name} hopper" if name == "llm-foundry" and row["accelerator"].startswith("H") else name


def _sharding(words: str) -> int | None:
    """Return the ZeRO stage that the words of a row say, None where they say nothing."""
    low = words.lower()
    for marks, stage in (
        (("full_shard", "fsdp", "zero-3"), 3),
        (("zero-2", "grad_op"), 2),
        (("zero-1", "distributed"), 1),
    ):
        if any(mark in low for mark in marks):
            return stage
    return None


def _other(row: Row) -> Measured:
    if row["kind"] != "throughput":
        raise LeftOut(f"{row['kind'].replace('_', ' ')}: no step time of a layout")
    model = _models().get(row["model"])
    if model is None and not (
        row["layers"]
        and row["hidden"]
        and row["heads"]
        and row["model"].startswith(("GPT", "gpt", "MPT", "MT-NLG", "GLM"))
    ):
        raise LeftOut("the shape of the model is not public")
    if not (row["tp"] and row["pp"]):
        raise LeftOut("no layout is stated")
    sequence, chips = _whole(row, "seq_len"), _whole(row, "accelerators")
    precision = PRECISIONS.get(row["precision"])
    if precision is None:
        raise LeftOut(f"mixture of formats {row['precision']}")
    layout = _degrees(row, "tp", "pp", "ep", cp=int(row["cp"] or 1), expert_tp=1)
    if row["arch"].startswith("dense"):
        layout["ep"] = 1
    layout |= {"micro_batch": _count(row["micro_batch"]), "zero": _sharding(row["sharding"]),
               "recompute": RECOMPUTE.get(row["recompute"] or USUAL_RECOMPUTE.get(row["framework"], ""))}  # fmt: skip
    if row["vpp"].isdigit() or layout["pp"] == 1:
        layout["virtual"] = int(row["vpp"] or 1)
        layout["schedule"] = "interleaved" if layout["virtual"] > 1 else "1f1b"
    elif row["vpp"]:
        layout["schedule"] = "interleaved"
    batch = _batch(row, chips, layout)
    flash = row["framework"] not in WITHOUT_FLASH
    shape = gpt(row, sequence) if model is None else _configuration(model["configuration"], model["changes"], 0)
    case = _case(
        row,
        shape,
        batch,
        sequence,
        layout,
        precision=precision,
        flash=flash,
        engine=_engine(row),
        reduced="bf16" if row["framework"].startswith(REDUCE_16) else "fp32",
    )
    values = {"step_time": _other_time(row, batch * sequence, chips)}
    if row["peak_mem_gib_per_accel"] and layout["recompute"]:  # what is rebuilt decides it
        values["peak_memory"] = float(row["peak_mem_gib_per_accel"]) * GIB
    return Measured(case, values, {"yes": True, "no": False}.get(row["fits"]), fit=_enters(row))


VARIANTS = ("H100-SXM-96GB HBM2e 2.4TB/s 500W",)
"""Parts that take their constants from a relative with more power: scored alone, to see what lending is worth."""
BLACKWELL = ("B200", "B300", "GB200", "GB300")


def _enters(row: Row) -> bool:
    """Return whether a row enters a fit: dense models on parts of the catalogue; on Blackwell all, its dense rows are few."""
    if row["accelerator"] in VARIANTS:
        return False
    return row["arch"].startswith("dense") or row["accelerator"].startswith(BLACKWELL)


def _count(text: str) -> int | None:
    if text and not text.isdigit():
        raise LeftOut("a micro-batch that is no whole number of sequences")
    return int(text) if text else None


def _batch(row: Row, chips: int, layout: Mapping[str, Any]) -> int:
    if row["global_batch_seqs"]:
        return int(float(row["global_batch_seqs"]))
    if not (layout["micro_batch"] and row["grad_accum"]):
        raise LeftOut("no global batch is stated")
    return int(layout["micro_batch"] * int(row["grad_accum"]) * chips / (layout["tp"] * layout["pp"] * layout["cp"]))


def _other_time(row: Row, tokens: int, chips: int) -> float:
    if row["tokens_per_s_per_accel"] and not row["step_time_s"]:
        return tokens / (float(row["tokens_per_s_per_accel"]) * chips)
    return _time(row, "step_time_s", "step_time_s_derived")


READERS: dict[str, Callable[[Row], Measured]] = {
    "megatron_2021": _megatron_2021,
    "megatron_recompute_2022": _recompute_2022,
    "llama3_2024": _llama3,
    "deepseek_v3": _deepseek,
    "bloom_layout_sweep": _bloom,
    "vtrain_a100": _vtrain,
    "simumax_b200": _simumax,
    "other_pretraining": _other,
}
"""Reader of a row, by file."""
