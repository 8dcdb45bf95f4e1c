"""The leaves, keys and choices of devices that one user holds: phones, laptops, boards, cars, single cards."""

from __future__ import annotations

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.serving_axes import GGUF, PRECISIONS, PUBLISHED
from tokenmill_models.stage import Axis, Input
from tokenmill_models.symbols import declare

past = declare("S_past", "1", "tokens already cached when the prompt comes", origin="input.past_tokens")
prompt = declare("S_prompt", "1", "tokens of the prompt", origin="input.input_tokens", sign="positive")
answer = declare("S_answer", "1", "tokens of the answer", origin="input.output_tokens", sign="positive")
context = declare(
    "S_context", "1", "tokens that the cache has room for; 0: what the conversation takes", origin="input.context"
)
least_rate = declare(
    "rate_least", "1/s", "fewest answer tokens a second", origin="input.min_tokens_per_second", sign="positive"
)
daily = declare(
    "tokens_a_day", "1", "answer tokens of a device a day; 0: it works all day", origin="input.tokens_per_day"
)
battery = declare("E_battery", "J", "energy of a full battery", origin="input.battery", sign="positive")
sustained = declare("P_sustained", "W", "power that a device can shed for long; 0: its limit", origin="input.power")
units = declare("device_units", "1", "devices", origin="input.units", sign="positive")
flash = declare(
    "flash_edge", "1", "1 where the score matrix never reaches memory", origin="input.kernels.flash_attention"
)
chunk = declare("chunk_edge", "1", "prompt tokens of a pass", origin="input.engine.chunk", sign="positive")
host_memory = declare("M_host_memory", "B", "memory of the host beside a card", origin="input.host.memory")
host_bandwidth = declare(
    "W_host_memory", "B/s", "bandwidth of the host's memory, whose processor works on the layers it holds", origin="input.host.bandwidth", sign="positive"
)  # fmt: skip
host_link = declare("W_device_link", "B/s", "bandwidth of the link from the host to a card", origin="chip.host_link")
host_layers = declare("host_layers", "1", "layers that stay in the host's memory", origin="axis.host_layers")
experts_counted = declare(
    "experts_counted", "1", "1 where the format of the weights is a mean over a file that counts the routed experts, 0 where they have their own",
    origin="axis.weights",
)  # fmt: skip
whole_file = declare(
    "whole_file",
    "1",
    "1 where the bits a weight are the mean of a whole file, embeddings among them",
    origin="axis.weights",
)

bandwidth_share, cache_share, flash_share, compute_share, memory_share, clock_share, memory_power, compute_power = (
    declare(f"eta_device_{name}", "1", title, origin=f"chip.device_{name}_share")
    for name, title in (
        ("bandwidth", "share of memory bandwidth that reads of weights reach, one sequence"),
        (
            "cache",
            "share of memory bandwidth that reads of keys and values reach where scores are written, one sequence",
        ),
        ("flash", "share of memory bandwidth that reads of keys and values reach in one kernel, one sequence"),
        ("compute", "share of peak compute that the products of a prompt reach"),
        ("memory", "share of its memory that a device gives to one program"),
        ("clock", "exponent of the clock over the power above idle: power grows as f·V²"),
        (
            "memory_power",
            "share of the range from idle to limit that traffic at the full bandwidth draws, with what moves it",
        ),
        ("compute_power", "share of the range from idle to limit that compute at its peak draws"),
    )
)
layer_seconds, hop_seconds = (
    declare(f"device_{name}", "s", title, origin=f"chip.device_{name}")
    for name, title in (
        ("layer", "time of a layer that no traffic explains: its kernels started one after another"),
        ("hop", "time to hand a token over to the next device"),
    )
)
embedding_held = declare(
    "embedding_held", "1", "1 where the input embedding lies in the device's memory, 0 where the host keeps it", origin="chip.device_embedding"
)  # fmt: skip

_FORMATS = tuple(dict.fromkeys((*PRECISIONS, *GGUF)))
BLOCKS = ("q8_0", "iq2_xxs-block", "iq3_xxs-block")
"""Formats of GGUF that are of a block of weights, not a mean over a file."""
HOST_LAYERS = (0, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 96, 112)

AXES = {
    axis.name: axis
    for axis in (
        Axis("weights", "precision.weights", _FORMATS, "format of the weights", default=PUBLISHED,
             codes={word: {whole_file: float(word in GGUF), experts_counted: float(word in GGUF and word not in BLOCKS)} for word in _FORMATS}),
        Axis("experts", "precision.experts", tuple(dict.fromkeys((*_FORMATS, *BLOCKS))), "format of the routed experts' weights", default=PUBLISHED),
        Axis("compute", "precision.compute", PRECISIONS, "format in which products are computed", default=PUBLISHED),
        Axis("kv", "precision.kv", ("bf16", "fp16", "fp8", "q8_0", "int8", "q4_0", "int4"), "format of the KV cache", default=("bf16",)),
        Axis("pp", "layout.pp", (1, 2, 4, 8), "devices that the layers are split over", leaf.pp, default=(1,)),
        Axis("host_layers", "layout.host_layers", HOST_LAYERS, "layers that stay in the host's memory and are computed there",
             host_layers, default=(0,)),
    )
}  # fmt: skip


def axes_of(arch: Architecture) -> tuple[Axis, ...]:
    """Return the choices for an architecture: a dense model has no experts to store."""
    routed = any(kind.mlp.expert for kind in arch.layers)
    return tuple(axis for axis in AXES.values() if routed or axis.name != "experts")


INPUTS = (
    Input("model", "architecture", "the model that runs on the device", required=True),
    Input("context", "number", "tokens that the cache has room for; 0: what the conversation takes", context, default=0.0),
    Input("past_tokens", "number", "tokens already cached when the prompt comes", past, default=0.0),
    Input("input_tokens", "number", "tokens of the prompt", prompt, default=512.0, minimum=1),
    Input("output_tokens", "number", "tokens of the answer", answer, default=128.0, minimum=1),
    Input("min_tokens_per_second", "number", "fewest answer tokens a second that will do", least_rate),
    Input("tokens_per_day", "number", "answer tokens of a device a day; 0: it works all day", daily, default=0.0),
    Input("battery", "number", "energy of a full battery", battery, "J"),
    Input("power", "number", "power that a device can shed for long; 0: its limit", sustained, "W", default=0.0),
    Input("units", "number", "devices", units, default=1.0, minimum=1),
    Input("kernels.flash_attention", "flag", "attention without a score matrix in memory", flash, default=True),
    Input("engine.name", "name", "inference engine; an unknown one takes the generic class", default="llama.cpp"),
    Input("engine.version", "name", "version of the engine, free text"),
    Input("engine.graph", "flag", "whether steps are launched as a captured graph", leaf.graph_launch, default=True),
    Input("engine.chunk", "number", "prompt tokens of a pass", chunk, default=512.0, minimum=1),
    Input("host.memory", "number", "memory of the host beside a card", host_memory, "B", default=32 * 2.0**30),
    Input("host.bandwidth", "number", "bandwidth of the host's memory", host_bandwidth, "B/s", default=60e9),
    Input("memory_fraction", "number", "share of what the device gives to a program that may be taken", leaf.memory_fraction,
          default=1.0, maximum=1.0),
    Input("mfu_peak", "name", "precision whose dense peak MFU is counted against", default="bf16", of="precision"),
)  # fmt: skip
