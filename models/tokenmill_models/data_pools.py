"""The pools of data preparation: cores, a store, and accelerators for each operator that a model does; all at one pace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sympy as sp

from tokenmill_models import data_leaves as own
from tokenmill_models import energy
from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.batch_inference import always_full, arrival_defaults, of_one_length
from tokenmill_models.data_flow import Flow, answers_of, define_flow
from tokenmill_models.data_leaves import Operator
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.roofline import M
from tokenmill_models.stage import Role, Rule

PACED = Source(
    "every pool is as small as its part of the work within the common time allows, or as large as the file holds it",
    ("pools of one run work side by side: the slowest sets the time, so that none need be faster",),
)
THROUGHPUT = Source(
    "a store gives the least of: what it gives in all, what its provisioned capacity brings, what requests allow",
    ("nodes take from it no more than their link, or their connections, carry",),
)
CPU, STORE = "cpu", "storage"
NOT_MORE = sp.Float("0.9999999999")
"""Keeps the last digit of a quotient that is whole from asking for one more."""


def _sized(graph: Graph, name: str, needs: sp.Expr, title: str) -> sp.Symbol:
    """Define the chips or units of a pool: those held, else the fewest that do its part in time."""
    return graph.let(
        f"{name}_units", "1", title,
        sp.Piecewise((own.held, own.held > 0), (maximum(1, sp.ceiling(needs * NOT_MORE)), True)), source=PACED,
    )  # fmt: skip


def _ports(graph: Graph, name: str, units: sp.Expr, time: sp.Symbol, idle: sp.Expr, loaded: sp.Expr) -> dict[str, sp.Symbol]:  # fmt: skip
    """Define what the run reads of a pool; pace and its inverse keep rows of one pace apart from those of another."""
    return {
        "ranks": graph.let(f"{name}_ranks", "1", "ranks of the pool", units),
        "time": graph.let(
            f"{name}_taken",
            "s",
            "time that the run reckons with: the common one, or that of a size which the file holds",
            sp.Piecewise((time, own.held > 0), (own.pace, True)),
        ),
        "worked": time,
        "pace": graph.let(f"{name}_pace", "s", "time in which the pool does its part", own.pace),
        "haste": graph.let(f"{name}_haste", "1/s", "inverse of that time", 1 / own.pace),
        "power_idle": graph.let(f"{name}_power_idle", "W", "draw of the pool at rest", idle),
        "power_loaded": graph.let(f"{name}_power_loaded", "W", "draw of the pool at work", loaded),
    }


def _in_time(time: sp.Symbol) -> tuple[Rule, ...]:
    whole = own.pace + own.startup
    return (
        Rule("pace", time, own.pace, "limit", "the pool does its part in the common time", "s", "layout.chips"),
        Rule("deadline", whole, own.deadline, "limit", "the common time ends before the deadline", "s", "deadline"),
    )


def cpu_role(operators: tuple[Operator, ...], in_memory: bool) -> Role:
    """Return the pool of cores: one rank is a processor of a server."""
    graph = Graph()
    flow = define_flow(graph, operators, in_memory)
    cores = graph.let("cores_of_chip", "1", "cores of a processor", own.system_cores / own.system_chips)
    memory = graph.let(
        "memory_of_chip", "B", "memory of a server for each processor", own.system_memory / own.system_chips
    )
    needs = maximum(
        flow.core_seconds / (cores * own.use * own.pace),
        (flow.read + flow.written) / (own.nic * own.pace),
        *([flow.buckets / memory] if in_memory else []),
    )
    units = _sized(graph, "cpu", needs, "processors of the pool")
    core_time = graph.let(
        "cpu_core_time",
        "s",
        "time that the cores take for all operators",
        flow.core_seconds / (units * cores * own.use),
    )
    link_time = graph.let(
        "cpu_link_time", "s", "time that the servers' links take for all copies", (flow.read + flow.written) / (units * own.nic)
    )  # fmt: skip
    time = graph.let("cpu_time", "s", "time of the pool of cores", maximum(core_time, link_time))
    ports = _ports(graph, "cpu", units, time, units * energy.idle, units * energy.tdp) | {
        "core_time": core_time,
        "link_time": link_time,
        "crowding": graph.let("cpu_crowding", "1", "inverse of the servers of the pool", own.system_chips / units),
    }
    rules = [*_in_time(time)]
    if in_memory:
        rules.append(Rule("memory", flow.buckets, units * memory, "capacity", "signatures and buckets fit the servers' memory", "B", "shuffle"))  # fmt: skip
    figures = {
        "cores": graph.let("cpu_cores", "1", "cores of the pool", units * cores),
        "core_hours": graph.let("cpu_core_hours", "1", "core-hours of work", flow.core_seconds / own.AN_HOUR),
        "wall_time": time,
        "power": ports["power_loaded"],
    }  # fmt: skip
    if in_memory:
        figures |= {
            "memory.total": graph.let("cpu_memory", "B", "signatures and buckets that the servers hold", flow.buckets),
            "memory.capacity": graph.let("cpu_memory_room", "B", "memory of the servers", units * memory),
        }
    shares = {"cores": core_time, "store": link_time}
    return Role(CPU, "part", (own.PACE,), graph, tuple(rules), (), ports, figures, shares, hardware="processor")


def storage_role(operators: tuple[Operator, ...], in_memory: bool) -> Role:
    """Return the store: one rank is a provisioned terabyte; it must hold every copy and carry every byte in time."""
    graph = Graph()
    flow = define_flow(graph, operators, in_memory)
    moved = graph.let("data_moved", "B", "bytes through the store", flow.read + flow.written)
    by_size = graph.let("storage_by_size", "1", "units that hold every copy", flow.kept / M)
    by_rate = graph.let(
        "storage_by_rate", "1", "units that bring the throughput", moved / (own.store_unit_rate * own.pace)
    )
    units = _sized(graph, "storage", maximum(by_size, by_rate), "provisioned terabytes of the store")
    bandwidth = graph.let(
        "storage_bandwidth", "B/s", "throughput of the whole store: its own, its units', or what it answers in requests",
        minimum(own.store_total, units * own.store_unit_rate, own.object_bytes * own.store_requests * own.prefixes),
        source=THROUGHPUT,
    )  # fmt: skip
    time = graph.let("storage_time", "s", "time that the store takes", moved / bandwidth)
    node_read = minimum(own.store_read, own.store_connection * own.connections)
    node_write = minimum(own.store_write, own.store_connection * own.connections)
    ports = _ports(graph, "storage", units, time, 0 * units * energy.idle, 0 * units * energy.tdp) | {
        "time": time,
        "node_time": graph.let("storage_node_time", "s", "time that one node would take", flow.read / node_read + flow.written / node_write),
    }  # fmt: skip
    rules = (
        Rule("capacity", flow.kept, units * M, "capacity", "the store holds the corpus and every copy", "B", "layout.chips"),
        *_in_time(time),
    )  # fmt: skip
    figures = {
        "bytes_read": flow.read,
        "bytes_written": flow.written,
        "bytes_kept": flow.kept,
        "bandwidth": bandwidth,
        "wall_time": time,
        "request_cost": graph.let(
            "storage_request_cost", "USD", "price of all requests, beside the rent",
            (flow.read * own.request_price + flow.written * own.write_request_price) / own.object_bytes,
        ),
        "sized_by_throughput": graph.let("storage_sized_by", "1", "units that throughput asks for over those that capacity asks for", by_rate / by_size),
    }  # fmt: skip
    return Role(STORE, "part", (own.PACE,), graph, rules, (), ports, figures, {"store": time}, hardware="store")


def model_role(operator: Operator, arch: Architecture, operators: tuple[Operator, ...], in_memory: bool) -> Role:
    """Return the pool of accelerators on which a model does one operator: replicas of one layout, always full."""
    graph = Graph()
    flow = define_flow(graph, operators, in_memory)
    answers = graph.let(
        f"answers_{operator.name}", "1", "answers of the model", answers_of(operator, flow.documents[operator.at])
    )
    role = always_full(arch, arrival_defaults() | of_one_length(*_lengths(operator, flow)))
    graph = Graph(dict(graph.formulas)).merge(role.graph)
    rate = role.ports["rate"]
    share = leaf.ranks / leaf.ranks_a_chip
    replicas = graph.let(
        "model_replicas", "1", "replicas of the model",
        sp.Piecewise((own.held / share, own.held > 0), (maximum(1, sp.ceiling(answers / (rate * own.pace) * NOT_MORE)), True)), source=PACED,
    )  # fmt: skip
    time = graph.let("model_time", "s", "time of all answers", answers / (rate * replicas))
    ranks = leaf.ranks * replicas
    ports = _ports(graph, "model", ranks, time, ranks * energy.idle, ranks * energy.tdp) | {
        "nodes": graph.let("model_nodes", "1", "systems of the pool", share * replicas / own.system_chips),
    }
    figures = {**role.figures, "requests_per_second": rate, "replicas": replicas, "wall_time": time}
    whole = Rule("whole", share, replicas * share, "divides", "chips held are whole replicas", cure="layout.chips")
    axes = (*(own.FULL.get(axis.name, axis) for axis in role.axes), own.PACE)
    model = f"operators.{operator.at}.model"
    return replace(
        role, name=operator.do, axes=axes, graph=graph, rules=(*role.rules, *_in_time(time), whole), ports=ports,
        figures=figures, model=model, hardware="accelerator",
    )  # fmt: skip


def _lengths(operator: Operator, flow: Flow) -> tuple[sp.Expr, sp.Expr]:
    """Return prompt and answer tokens [1] of a request to the model: a document, or what of it is read; one token where it only judges."""
    at = operator.at
    document = flow.bytes[at] / flow.documents[at] / own.bytes_per_token
    most = operator.member("prompt_tokens", "1", "tokens of a document that the model reads at most")
    prompt = most if operator.do == "synthesise" else minimum(most, maximum(1, document))
    written = operator.member("answer_tokens", "1", "tokens of an answer, where the model writes")
    return prompt, written if operator.do == "synthesise" else sp.Integer(1)


def pools(operators: tuple[Operator, ...], models: Mapping[str, Architecture], in_memory: bool) -> dict[str, Role]:
    """Return every pool of the run by the name of its part."""
    found = {CPU: cpu_role(operators, in_memory), STORE: storage_role(operators, in_memory)}
    for operator in operators:
        if operator.model:
            arch = models[f"operators.{operator.at}.model"]
            found[operator.name] = model_role(operator, arch, operators, in_memory)
    return found
