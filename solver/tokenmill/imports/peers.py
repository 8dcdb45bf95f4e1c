"""Reads the files of two other planners, calculon and SimuMax: a run's layout, a model, a machine, as what a problem file takes.

Their files are JSON with flat keys. What has a place here is taken over; every other key is named, so that nothing is lost unseen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenmill.errors import ImportFileError
from tokenmill.imports.architecture import LARGEST_FILE
from tokenmill.imports.files import read_json

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Imported:
    """What a foreign file says: its `kind` (run, model, machine), `tables` as in a problem file, keys left out, and remarks.

    A model's tables are the fields of a ``config.json``.
    """

    kind: str
    tables: dict[str, Any]
    left_out: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the tables as TOML to paste into a problem file (a model: as JSON, to be named by its path)."""
        said = "".join(f"# {line}\n" for line in self.remarks)
        left = f"# left out: {', '.join(self.left_out)}\n" if self.left_out else ""
        if self.kind == MODEL:
            return json.dumps(self.tables, indent=1) + "\n"
        return said + left + _toml(self.tables)


RUN, MODEL, MACHINE = "run", "model", "machine"
RECOMPUTE = {
    "full": "full", "attn_only": "selective", "none": "none", "full_block": "full", "sdp_only": "selective",
    "selective_recompute": "selective",
}  # fmt: skip
TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float8": "fp8", "bf16": "bf16", "fp16": "fp16"}
CALCULON_RUN = {
    "num_procs": "layout.chips", "tensor_par": "layout.tp", "pipeline_par": "layout.pp", "data_par": "layout.dp",
    "microbatch_size": "layout.micro_batch", "pipeline_interleaving": "layout.virtual", "batch_size": "global_batch",
}  # fmt: skip
CALCULON_MODEL = {
    "hidden": "n_embd", "feedforward": "n_inner", "attn_heads": "n_head", "num_blocks": "n_layer", "seq_size": "n_positions",
}  # fmt: skip
SIMUMAX_RUN = {
    "world_size": "layout.chips", "tp_size": "layout.tp", "pp_size": "layout.pp", "cp_size": "layout.cp",
    "ep_size": "layout.ep", "etp_size": "layout.expert_tp", "micro_batch_size": "layout.micro_batch",
    "zero_state": "layout.zero", "interleaving_size": "layout.virtual", "seq_len": "sequence_length",
    "enable_sequence_parallel": "layout.sequence_parallel", "mem_factor": "memory_fraction",
}  # fmt: skip
SIMUMAX_MODEL = {
    "hidden_size": "hidden_size", "head_num": "num_attention_heads", "kv_head_num": "num_key_value_heads",
    "head_size": "head_dim", "intermediate_size": "intermediate_size", "layer_num": "num_hidden_layers",
    "vocab_size": "vocab_size",
}  # fmt: skip
VOCABULARY = 51200
"""Words of a GPT where the file does not say: Megatron-LM pads that of GPT-2 so."""


def read_calculon(path: Path) -> Imported:
    """Return what an execution, application or system file of calculon says.

    Raises
    ------
    ImportFileError
        Where the file cannot be read, is none of the three, or a number is no number.
    """
    return _read(path, "calculon", ((("tensor_par", "pipeline_par"), _calculon_run),
                                    (("attn_heads", "num_blocks"), _calculon_model),
                                    (("matrix", "mem1"), _calculon_machine)))  # fmt: skip


def read_simumax(path: Path) -> Imported:
    """Return what a strategy, model or system file of SimuMax says.

    Raises
    ------
    ImportFileError
        Where the file cannot be read, is none of the three, or a number is no number.
    """
    return _read(path, "SimuMax", ((("tp_size", "pp_size"), _simumax_run),
                                   (("head_num", "layer_num"), _simumax_model),
                                   (("accelerator",), _simumax_machine)))  # fmt: skip


Form = tuple[tuple[str, ...], Callable[["Foreign"], Imported]]


class Foreign:
    """The fields of a foreign file, which remember what was read of them."""

    def __init__(self, fields: Fields, place: str) -> None:
        self.fields = fields
        self.place = place
        self.seen: set[str] = set()

    def word(self, key: str) -> Any:
        """Return a field, None where it is absent."""
        self.seen.add(key)
        return self.fields.get(key)

    def number(self, *path: str) -> float:
        """Return a finite number under nested keys."""
        self.seen.add(path[0])
        found: Any = self.fields
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < float("inf"):
            raise ImportFileError(f"{self.place}: {'.'.join(path)}: found {found!r}; allowed: a number")
        return found

    def whole(self, key: str, default: int = 1) -> int:
        """Return a count, `default` where the field is absent."""
        if self.fields.get(key) is None:
            self.seen.add(key)
            return default
        value = self.number(key)
        if value != int(value) or value < 1:
            raise ImportFileError(f"{self.place}: {key}: found {value!r}; allowed: a count of 1 or more")
        return int(value)

    def chosen(self, key: str, words: Mapping[str, str]) -> str | None:
        """Return the word for a field, None where it is absent."""
        found = self.word(key)
        if found is None:
            return None
        if found not in words:
            raise ImportFileError(f"{self.place}: {key}: found {found!r}; allowed: {', '.join(words)}")
        return words[found]

    def unread(self) -> list[str]:
        """Return the fields that nothing read."""
        return sorted(set(self.fields) - self.seen)


def _read(path: Path, tool: str, forms: tuple[Form, ...]) -> Imported:
    fields = read_json(path, LARGEST_FILE)
    for keys, make in forms:
        if all(key in fields for key in keys):
            return make(Foreign(fields, str(path)))
    known = "; ".join(" and ".join(keys) for keys, _ in forms)
    raise ImportFileError(f"{path}: no file of {tool} that is known; allowed: one with the keys {known}")


def _taken(foreign: Foreign, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields that have a place here, by dotted key; a field that is absent is left out."""
    return {ours: value for theirs, ours in names.items() if (value := foreign.word(theirs)) is not None}


def _schedule(keys: dict[str, Any]) -> None:
    virtual = keys.get("layout.virtual", 1)
    keys["layout.schedule"] = "interleaved" if virtual > 1 else "1f1b"


def _calculon_run(foreign: Foreign) -> Imported:
    keys = _taken(foreign, CALCULON_RUN)
    keys["layout.recompute"] = foreign.chosen("activation_recompute", RECOMPUTE)
    keys["layout.zero"] = 1 if foreign.word("optimizer_sharding") else 0
    keys["layout.sequence_parallel"] = foreign.word("tensor_par_comm_type") in ("p2p_rs_ag", "rs_ag")
    keys["precision.compute"] = foreign.chosen("datatype", TYPES)
    keys |= {"layout.cp": 1, "layout.ep": 1, "kernels.flash_attention": bool(foreign.word("fused_activation"))}
    _schedule(keys)
    moved = [name for name in ("weight", "activations", "optimizer") if foreign.word(f"{name}_offload")]
    words = {"weight": "parameters"}
    if moved:
        keys["layout.offload"] = words.get(moved[0], moved[0])
    if foreign.word("training") is False:
        raise ImportFileError(f"{foreign.place}: training: found false; allowed: true (an execution that trains)")
    remarks = ["sequence_length, tokens and model are in the application's file, and for you to add"]
    return Imported(RUN, _tables(keys), foreign.unread(), remarks)


def _simumax_run(foreign: Foreign) -> Imported:
    keys = _taken(foreign, SIMUMAX_RUN)
    ranks = foreign.whole("world_size")
    copies = ranks / (foreign.whole("tp_size") * foreign.whole("pp_size") * foreign.whole("cp_size"))
    if copies != int(copies):
        raise ImportFileError(
            f"{foreign.place}: world_size: found {ranks}; allowed: a multiple of tp_size, pp_size, cp_size"
        )
    keys["layout.dp"] = int(copies)
    keys["global_batch"] = foreign.whole("micro_batch_size") * foreign.whole("micro_batch_num") * int(copies)
    recomputes = foreign.word("enable_recompute")
    kind = foreign.chosen("recompute_granularity", RECOMPUTE) if recomputes else "none"
    keys["layout.recompute"] = kind
    keys["precision.compute"] = "fp8" if foreign.word("fp8") else foreign.chosen("dtype", TYPES)
    _schedule(keys)
    remarks = ["model and tokens are for you to add"]
    return Imported(RUN, _tables(keys), foreign.unread(), remarks)


def _calculon_model(foreign: Foreign) -> Imported:
    fields = {"model_type": "gpt2", "vocab_size": VOCABULARY, **_taken(foreign, CALCULON_MODEL)}
    fields["n_ctx"] = fields.get("n_positions")
    if (name := foreign.word("name")) is not None:
        fields["_name_or_path"] = name
    return Imported(MODEL, fields, foreign.unread())


def _simumax_model(foreign: Foreign) -> Imported:
    kind = "mixtral" if foreign.word("expert_num") else "llama"
    if foreign.word("attention_type") == "mla" or foreign.word("moe_shared_expert_intermediate_size"):
        raise ImportFileError(
            f"{foreign.place}: latent attention or shared experts; allowed: plain models (take this one from the catalogue)"
        )
    fields: dict[str, Any] = {"model_type": kind, **_taken(foreign, SIMUMAX_MODEL)}
    if kind == "mixtral":
        fields["num_local_experts"] = foreign.whole("expert_num")
        fields["num_experts_per_tok"] = foreign.whole("topk")
        if (width := foreign.word("moe_ffn_hidden_size")) is not None:
            fields["intermediate_size"] = width
    if (name := foreign.word("model_name")) is not None:
        fields["_name_or_path"] = name
    return Imported(MODEL, fields, foreign.unread())


def _calculon_machine(foreign: Foreign) -> Imported:
    chip = {
        "name": Path(foreign.place).stem.lower().replace("_", "-"),
        "memory": f"{foreign.number('mem1', 'GiB'):g} GiB",
        "bandwidth": f"{foreign.number('mem1', 'GBps'):g} GB/s",
        "fp16": f"{foreign.number('matrix', 'float16', 'tflops'):g} TFLOP/s",
    }
    return Imported(MACHINE, {"hardware": {"chip": [chip]}}, foreign.unread(), MACHINE_REMARKS)


def _simumax_machine(foreign: Foreign) -> Imported:
    accelerator = Foreign(foreign.fields["accelerator"], f"{foreign.place}: accelerator")
    foreign.seen.add("accelerator")
    chip = {
        "name": str(foreign.word("sys_name") or Path(foreign.place).stem).lower().replace("_", "-"),
        "memory": f"{accelerator.number('mem_gbs'):g} GiB",
        "bandwidth": f"{accelerator.number('bandwidth', 'default', 'gbps'):g} GB/s",
        "fp16": f"{accelerator.number('op', 'default', 'tflops'):g} TFLOP/s",
    }
    return Imported(MACHINE, {"hardware": {"chip": [chip]}}, foreign.unread(), MACHINE_REMARKS)


MACHINE_REMARKS = [
    'networks are left to the catalogue: add like = "CHIP", whose efficiencies and host the chip takes',
]


def _tables(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted keys as one workload with nested tables."""
    workload: dict[str, Any] = {"name": "imported", "stage": "pretraining"}
    for key, value in keys.items():
        if value is None:
            continue
        *path, last = key.split(".")
        table = workload
        for step in path:
            table = table.setdefault(step, {})
        table[last] = value
    return {"workload": [workload]}


def _toml(tables: Fields) -> str:
    """Return arrays of tables as TOML."""
    lines: list[str] = []

    def table(name: str, fields: Fields, head: str) -> None:
        lines.append(head.format(name))
        inner = {key: value for key, value in fields.items() if isinstance(value, Mapping)}
        lines.extend(f"{key} = {json.dumps(value)}" for key, value in fields.items() if key not in inner)
        for key, value in inner.items():
            table(f"{name}.{key}", value, "[{}]")

    for name, found in tables.items():
        for key, items in found.items() if isinstance(found, Mapping) else ((None, found),):
            for item in items:
                table(name if key is None else f"{name}.{key}", item, "[[{}]]")
    return "\n".join(lines) + "\n"
