"""The edge stage: one conversation at a time on devices of users, bound by bandwidth, memory, heat and battery.

A unit of demand is a device; a pool stands for `units` of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import sympy as sp

from tokenmill_models import edge_leaves as own
from tokenmill_models import energy
from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.edge_work import (
    Speed,
    Work,
    define_decode,
    define_prompt,
    embedding_bytes,
    expert_bytes,
    head_bytes,
)
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.inference_memory import sequence_bytes
from tokenmill_models.operations_parts import arch_leaf
from tokenmill_models.roofline import FLOP_PER_MAC, F, M, W
from tokenmill_models.stage import Demand, Role, Rule, StageModel, register_stage
from tokenmill_models.symbols import constant, declare

DAY = constant("day", 86400.0, "s", "a day")
F32_BYTES = constant("b_32", 4.0, "B", "bytes of an element kept in 32 bits")
tokens_counted = declare("tokens_counted", "1", "answer tokens of a device a second, over the day")
SUSTAINED = Source(
    "dynamic power is f·V² and voltage rises with the clock; traffic costs a fixed energy a byte",
    (
        "what the device can shed above idle lowers the clock of compute by a power law",
        "and caps the traffic in proportion",
    ),
)
FILE = Source(
    "GGUF file format: the bits a weight are the mean of the file",
    (
        "llama.cpp's quantisation writes the output head, and an embedding that serves as one, in q6_k (q8_0 in files of that)",
        "other formats keep embedding and head in 16 bits",
    ),
)
WORDS = ("mean", "p50", "p95", "p99")
TINY = sp.Float("1e-6")


@dataclass(frozen=True)
class Memory:
    """Bytes of the fullest device [B]: weights, cache of the whole context, buffers, reserve, total; what it gives a program."""

    weights: sp.Symbol
    cache: sp.Symbol
    buffers: sp.Symbol
    total: sp.Symbol
    usable: sp.Symbol
    host: sp.Symbol


@lru_cache(maxsize=16)
def device_role(arch: Architecture) -> Role:
    """Return the device role for one architecture."""
    graph = Graph()
    held = graph.let("conversation", "1", "tokens of the whole conversation", own.past + own.prompt + own.answer)
    room = graph.let("context_room", "1", "tokens that the cache has room for",
                     sp.Piecewise((own.context, own.context > 0), (held, True)))  # fmt: skip
    cap, speed = _sustained(graph)
    memory = _memory(graph, arch, room)
    token = define_decode(graph, arch, own.past + own.prompt + own.answer / 2, speed)
    prompt = define_prompt(graph, arch, own.past + own.prompt / 2, speed)
    rate = graph.let("tokens_per_second", "1/s", "answer tokens a second", 1 / token.time)
    figures = _figures(graph, token, prompt, rate, cap, speed) | _memory_figures(graph, memory)
    share = _day(graph, rate, figures)
    rules = (
        Rule("stages", leaf.pp, arch_leaf("layer_count"), "at_most", "a device has a layer at least", cure="layout.pp"),
        Rule("host_layers", own.host_layers, arch_leaf("layer_count"), "at_most", "no more layers than there are", cure="layout.host_layers"),
        Rule("memory", memory.total, memory.usable, "capacity", "weights, cache and buffers fit the device", "B", "precision.weights"),
        Rule("memory.host", memory.host, own.host_memory, "capacity", "the host's layers fit its memory", "B", "host.memory"),
        Rule("context", held, room, "limit", "the conversation fits the context", cure="context"),
        Rule("power", energy.idle, cap, "limit", "the device sheds more than it draws at rest", "W", "power"),
        Rule("rate", own.least_rate, rate, "limit", "answers come as fast as asked", "1/s", "min_tokens_per_second"),
        Rule("day", share, sp.Integer(1), "limit", "the tokens of a day take no longer than a day", cure="tokens_per_day"),
    )  # fmt: skip
    ports = {
        "ranks": graph.let("ranks", "1", "devices of a user", leaf.pp * leaf.ranks_a_chip),
        "rate": graph.let("devices", "1", "units of demand that a device is", sp.Integer(1)),
        "power_idle": graph.let("power_resting", "W", "draw charged to the model while it does nothing", sp.Integer(0)),
        "power_loaded": graph.let(
            "power_mean", "W", "mean draw over the day for the tokens of a day", share * figures["power"]
        ),
    }
    shares = {"compute": token.compute, "memory": token.memory, "launch": token.launch}
    prefer = (figures["ttft.mean"], token.time)
    return Role("device", "pool", own.axes_of(arch), graph, rules, (), ports, figures, shares, prefer=prefer)


def _sustained(graph: Graph) -> tuple[sp.Symbol, Speed]:
    """Define the power that a device sheds for long, and what that leaves of its peaks."""
    cap = graph.let("P_cap", "W", "power that a device sheds for long",
                    sp.Piecewise((minimum(energy.tdp, own.sustained), own.sustained > 0), (energy.tdp, True)))  # fmt: skip
    above = graph.let("power_above", "1", "share of the power above idle that can be sustained",
                      maximum(cap - energy.idle, TINY) / (energy.tdp - energy.idle))  # fmt: skip
    clock = graph.let(
        "clock", "1", "share of the clock that can be sustained", minimum(1, above**own.clock_share), source=SUSTAINED
    )
    return cap, Speed(clock, above)


def _memory(graph: Graph, arch: Architecture, room: sp.Expr) -> Memory:
    """Define the memory of the fullest device: its layers, embedding and head on one of them, its part of the cache."""
    layers = arch_leaf("layer_count")
    embedding, head = arch_leaf("embedding_parameters"), arch_leaf("head.parameters") if arch.head else sp.Integer(0)
    outside = embedding if arch.tied else embedding + head
    inside, routed = arch_leaf("parameters.total") - outside, arch_leaf("parameters.experts")
    stored = inside * leaf.bytes_weights
    if any(kind.mlp.expert for kind in arch.layers):
        stored = (inside - routed) * leaf.bytes_weights + routed * expert_bytes()
    body = graph.let("body_bytes", "B", "weights of all layers", stored, source=FILE)
    fullest = sp.ceiling((layers - own.host_layers) / leaf.pp) / layers
    apart = embedding * own.embedding_held * embedding_bytes() + head * head_bytes()
    ends = embedding * head_bytes() if arch.tied else apart
    even = (body * (1 - own.host_layers / layers) + ends) / leaf.pp
    weights = graph.let("memory_weights", "B", "weights on the fullest device, embedding and head where most room is",
                        maximum(body * fullest, even))  # fmt: skip
    cache = graph.let("memory_kv", "B", "cache of the whole context on the fullest device",
                      sequence_bytes(arch, room, sp.Integer(1), sp.Integer(1)) * fullest)  # fmt: skip
    rows = arch_leaf("vocabulary") + 4 * arch_leaf("hidden")
    heads = [arch_leaf(f"layers.{i}.mixer.heads") for i, kind in enumerate(arch.layers) if kind.mixer.heads]
    if heads:
        rows += (1 - own.flash) * room * (maximum(*heads) if len(heads) > 1 else heads[0])
    buffers = graph.let(
        "memory_buffers",
        "B",
        "buffers of a pass: logits, activations, scores",
        minimum(own.chunk, room) * rows * F32_BYTES,
    )
    return Memory(
        weights, cache, buffers,
        graph.let("memory_total", "B", "memory of the fullest device", weights + cache + buffers + leaf.reserve),
        graph.let("memory_usable", "B", "memory that the device gives to the program", M * own.memory_share * leaf.memory_fraction),
        graph.let("memory_host", "B", "weights that stay with the host", body * own.host_layers / layers),
    )  # fmt: skip


def _figures(
    graph: Graph, token: Work, prompt: Work, rate: sp.Symbol, cap: sp.Expr, speed: Speed
) -> dict[str, sp.Symbol]:
    """Define speed, use and power; devices of a split take turns, so each is used a part of the time."""
    use = token.flops / (token.time * F * leaf.pp)
    mbu = graph.let("mbu", "1", "memory traffic over time times bandwidth", token.bytes / (token.time * W * leaf.pp))
    counted = FLOP_PER_MAC * arch_leaf("matmul_parameters_active")
    drawn = minimum(1, own.compute_power * use + own.memory_power * mbu)
    one = graph.let("power_device", "W", "draw of a device while it answers",
                    minimum(cap, energy.idle + (energy.tdp - energy.idle) * drawn), source=SUSTAINED)  # fmt: skip
    power = graph.let(
        "power_loaded", "W", "draw of a user's devices while they answer", one * leaf.pp * leaf.ranks_a_chip
    )
    ttft = graph.let("ttft", "s", "time to first token", prompt.time)
    found = {
        "tokens_per_second": rate,
        "tokens_per_second_per_chip": graph.let("tokens_per_second_per_chip", "1/s", "answer tokens a second of a chip", rate / leaf.pp),
        "prefill_tokens_per_second": graph.let("prompt_rate", "1/s", "prompt tokens a second", own.prompt / ttft),
        "step_time": token.time,
        "mbu": mbu,
        "mfu": graph.let("mfu", "1", "counted work over peak", counted / (token.time * leaf.mfu_peak * leaf.pp)),
        "hfu": graph.let("hfu", "1", "executed work over peak", token.flops / (token.time * leaf.mfu_peak * leaf.pp)),
        "power": power,
        "power_per_chip": graph.let("power_per_chip", "W", "draw of a chip while it answers", one * leaf.ranks_a_chip),
        "energy_per_token": graph.let("energy_per_token", "J", "energy of the devices an answer token", power / rate),
        "clock": speed.compute,
    }  # fmt: skip
    return found | {f"ttft.{word}": ttft for word in WORDS} | {f"tpot.{word}": token.time for word in WORDS}


def _day(graph: Graph, rate: sp.Symbol, figures: dict[str, sp.Symbol]) -> sp.Symbol:
    """Define the share of the day that the device works, and what its battery gives."""
    asked = graph.let("tokens_counted", "1", "answer tokens of a device a second, over the day", own.daily / DAY)
    share = graph.let("day_share", "1", "share of the day that the device answers",
                      sp.Piecewise((asked / rate, own.daily > 0), (1, True)))  # fmt: skip
    charge = graph.let(
        "tokens_per_charge", "1", "answer tokens of a full battery", own.battery / figures["energy_per_token"]
    )
    figures |= {
        "day_share": share,
        "tokens_per_charge": charge,
        "battery_share_per_day": graph.let("battery_share", "1", "share of a full battery that a day takes", DAY * share * rate / charge),
    }  # fmt: skip
    return share


def _memory_figures(graph: Graph, memory: Memory) -> dict[str, sp.Symbol]:
    return {
        "memory.weights": memory.weights,
        "memory.activations": memory.buffers,
        "memory.kv": memory.cache,
        "memory.reserve": graph.let(
            "memory_reserve", "B", "memory that is no tensor: context of the driver", leaf.reserve
        ),
        "memory.total": memory.total,
        "memory.usable": memory.usable,
        "memory.host": memory.host,
        "memory.capacity": graph.let("memory_capacity", "B", "memory of a device", M),
    }


EDGE = register_stage(
    StageModel(
        name="edge",
        doc="A model on devices of users: which device, which format, how fast, how hot, how long a battery lasts.",
        inputs=own.INPUTS,
        roles=lambda architecture: (device_role(architecture),),
        demand=Demand("device", "units", devices="devices"),
        yields={"cost_per_token": {"output": tokens_counted}},
        axes=tuple(own.AXES.values()),
    )
)
