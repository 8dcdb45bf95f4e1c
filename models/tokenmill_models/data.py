"""The data stage: a corpus passes a pipeline of operators; cores, a store and accelerators work side by side at one pace.

The slowest of them sets the time: that is the bottleneck, and what it would take to be rid of it is a figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import sympy as sp

from tokenmill_models import data_leaves as own
from tokenmill_models.architecture import Architecture
from tokenmill_models.closed_data import BALANCE
from tokenmill_models.data_flow import Flow, define_flow, found_pairs
from tokenmill_models.data_leaves import Operator, operators_of
from tokenmill_models.data_pools import CPU, STORE, pools
from tokenmill_models.formula import Graph, Source, maximum
from tokenmill_models.stage import Role, Rule, StageModel, register_stage
from tokenmill_models.symbols import declare

EPOCHS = Source(
    "definition: tokens that the mixture takes of a domain over those that are there (Muennighoff et al. 2023, arXiv:2305.16264)"
)
tokens_out = declare("data_tokens", "1", "tokens that are left at the end")
HALF = sp.Rational(1, 2)


def _port(part: str, port: str, dimension: str) -> sp.Symbol:
    return declare(f"{part}_part_{port}", dimension, f"{port} of the part {part}", origin=f"part.{part}.{port}")


def run_role(operators: tuple[Operator, ...], parts: Mapping[str, Role], domains: Sequence[str], in_memory: bool) -> Role:  # fmt: skip
    """Return the run: its parts, the time that the slowest of them takes, and what comes out."""
    graph = Graph()
    flow = define_flow(graph, operators, in_memory)
    times = _times(graph, parts)
    taken = [_port(part, "time", "s") for part in parts]
    wall = graph.let(
        "data_wall", "s", "length of the run: the common pace, or that of the slowest pool whose size is held; and its start and end",
        maximum(*taken, _node_time()) + own.startup, source=BALANCE,
    )  # fmt: skip
    ports = {"duration": wall} | {
        name: graph.let(f"data_{name}", dimension, f"{name} of all pools", sp.Add(*(_port(part, name, dimension) for part in parts)))
        for name, dimension in (("ranks", "1"), ("power_idle", "W"), ("power_loaded", "W"))
    }  # fmt: skip
    figures = {"wall_time": wall, "power": ports["power_loaded"]} | _figures(graph, flow, operators, times)
    mixed, epochs = _mixture(graph, flow, domains)
    rules = [
        Rule("tokens", own.wanted, flow.tokens, "limit", "as many tokens are left as asked", cure="keep.filter"),
        Rule("deadline", wall, own.deadline, "limit", "the run ends in time", "s", "deadline"),
        *(Rule(f"epochs_{at}", passes, own.epochs_most, "limit", "no domain is passed over more often", cure="max_epochs")
          for at, passes in enumerate(epochs)),
        *(Rule(f"pace_{part}", _port(part, "pace", "s"), _port(CPU, "pace", "s"), "equal", "all pools have one pace", "s")
          for part in parts if part != CPU),
    ]  # fmt: skip
    shares = _shares(graph, parts, times)
    return Role("corpus", "run", (), graph, tuple(rules), (), ports, figures | mixed, shares, parts=dict(parts))


def _node_time() -> sp.Expr:
    """Time [s] that the nodes take to read from the store and write to it, at what one of them gets."""
    return _port(STORE, "node_time", "s") * _port(CPU, "crowding", "1")


def _times(graph: Graph, parts: Mapping[str, Role]) -> dict[str, sp.Symbol]:
    """Define the time [s] of the cores, of the store with the links to it, and of the slowest pool of accelerators."""
    found = {
        "cpu": graph.let("time_cores", "s", "time that the cores take", _port(CPU, "core_time", "s")),
        "storage": graph.let(
            "time_store", "s", "time that the store takes: itself, or the links of the nodes that read and write",
            maximum(_port(STORE, "worked", "s"), _node_time(), _port(CPU, "link_time", "s")),
        ),
    }  # fmt: skip
    others = [_port(part, "worked", "s") for part in parts if part not in (CPU, STORE)]
    if others:
        slowest = maximum(*others) if len(others) > 1 else others[0]
        found["accelerators"] = graph.let("time_accelerators", "s", "time that the slowest model takes", slowest)
    return found


def _shares(graph: Graph, parts: Mapping[str, Role], times: Mapping[str, sp.Symbol]) -> dict[str, sp.Symbol]:
    """Define the time of systems that each resource takes: pools of one pace are told apart by how large they must be.

    The store is weighed with the servers that read from it and write to it: it binds where its time is longer than the cores'.
    """
    servers = 1 / _port(CPU, "crowding", "1")
    found = {
        "cores": graph.let("server_time_cores", "s", "time of servers that the cores' work takes", times["cpu"] * servers),
        "store": graph.let("server_time_store", "s", "time of servers that the store takes", times["storage"] * servers),
    }  # fmt: skip
    models = [_port(part, "worked", "s") * _port(part, "nodes", "1") for part in parts if part not in (CPU, STORE)]
    if models:
        found["compute"] = graph.let("system_time_models", "s", "time of systems of accelerators", sp.Add(*models))
    return found


def _figures(
    graph: Graph, flow: Flow, operators: Sequence[Operator], times: Mapping[str, sp.Symbol]
) -> dict[str, sp.Symbol]:
    """Define what the run reads, keeps and yields; the time of each resource, and how long the run is with twice as much of it."""
    found = {
        "tokens_out": flow.tokens,
        "documents_out": graph.let("documents_out", "1", "documents that are left at the end", flow.documents[-1]),
        "bytes_out": graph.let("bytes_out", "B", "bytes that are left at the end", flow.bytes[-1]),
        "bytes_read": flow.read,
        "bytes_written": flow.written,
        "bytes_kept": flow.kept,
        "core_hours": graph.let("core_hours", "1", "core-hours of work", flow.core_seconds / own.AN_HOUR),
        "memory.buckets": flow.buckets,
        "wall_time_in_turn": graph.let("wall_in_turn", "s", "length of the run were the pools to work one after another", sp.Add(*times.values())),
    }  # fmt: skip
    for name, time in times.items():
        others = [other for key, other in times.items() if key != name]
        found[f"time.{name}"] = time
        found[f"time_if_doubled.{name}"] = graph.let(
            f"doubled_{name}", "s", f"length of the run with twice the {name}", maximum(time * HALF, *others) + own.startup, source=BALANCE
        )  # fmt: skip
    for operator in operators:
        if operator.do == "deduplicate" and operator.method == "minhash":
            found["duplicates_found"] = found_pairs(graph, operator)
    return found


def _mixture(graph: Graph, flow: Flow, domains: Sequence[str]) -> tuple[dict[str, sp.Symbol], list[sp.Symbol]]:
    """Define the tokens of each domain and how often the mixture passes over it."""
    found: dict[str, sp.Symbol] = {}
    passes = []
    whole = sp.Piecewise((own.mixture, own.mixture > 0), (flow.tokens, True))
    for at, name in enumerate(domains):
        share, weight = (
            declare(f"domain{at}_{key}", "1", f"{title} of domain {at + 1}", origin=f"input.domains.{at}.{key}", sign="positive")
            for key, title in (("share", "share of the tokens that are left"), ("weight", "share of the mixture"))
        )  # fmt: skip
        there = graph.let(f"domain{at}_tokens", "1", f"tokens of domain {at + 1}", share * flow.tokens)
        epochs = graph.let(
            f"domain{at}_epochs", "1", f"times that the mixture passes over domain {at + 1}", weight * whole / there, source=EPOCHS
        )  # fmt: skip
        passes.append(epochs)
        found |= {f"tokens.{name}": there, f"epochs.{name}": epochs}
    return found, passes


@lru_cache(maxsize=16)
def _run(
    operators: tuple[Operator, ...], models: tuple[tuple[str, Architecture], ...], domains: tuple[str, ...], in_memory: bool
) -> Role:  # fmt: skip
    return run_role(operators, pools(operators, dict(models), in_memory), domains, in_memory)


def _staffed(_: Any, models: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[Role, ...]:
    domains = tuple(str(row.get("name") or f"domain-{at + 1}") for at, row in enumerate(values.get("domains") or ()))
    return (_run(operators_of(values), tuple(sorted(models.items())), domains, values.get("shuffle") == "memory"),)


DATA = register_stage(
    StageModel(
        name="data",
        doc="Turn a crawl into training tokens by a deadline: cores, storage, and accelerators where a model reads or writes.",
        inputs=own.INPUTS,
        roles=lambda _: _staffed(None, {}, {}),
        staffed=_staffed,
        yields={"cost_per_token": {"output": tokens_out}},
        axes=tuple(own.AXES.values()),
        parts=(CPU, STORE, *own.MODEL_OPERATORS),
        hardware=("processor", "store"),
    )
)
