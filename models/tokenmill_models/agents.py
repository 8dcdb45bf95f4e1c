"""The agents stage: tasks of many calls; one pool answers the calls, another runs the tools in sandboxes on processors.

A unit of demand is a task with all its attempts; what it costs is held against the tasks that succeed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import sympy as sp

from tokenmill_models import agents_leaves as own
from tokenmill_models import energy
from tokenmill_models import inference_leaves as leaf
from tokenmill_models.agents_tasks import Task, call_lengths, define_task, task_times
from tokenmill_models.architecture import Architecture
from tokenmill_models.batch_inference import arrival_defaults, rewritten
from tokenmill_models.closed_agents import LITTLE
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.serving_figures import flat, limit_rules
from tokenmill_models.serving_mixed import mixed_role
from tokenmill_models.stage import Demand, Role, Route, Rule, StageModel, register_stage
from tokenmill_models.symbols import declare

RETURN = Source("a cache that went to the host comes back over the host's link before the next call is computed")
succeeded = declare("task_success", "1", "share of tasks that succeed")
written = declare("task_written", "1", "tokens that a task writes in all its attempts")
WORDS = ("mean", "p50", "p95", "p99")
SMALL = sp.Float("1e-9")


@lru_cache(maxsize=16)
def calling(arch: Architecture) -> Role:
    """Return the pool that answers the calls of agents: serving's mixed role with calls for requests and tasks for units."""
    graph = Graph()
    task = define_task(graph)
    stands = arrival_defaults() | call_lengths(graph, task)
    role = rewritten(mixed_role(arch), stands)
    graph.merge(role.graph)
    rate = role.ports["rate"]
    idle = graph.let(
        "idle_agents", "1", "agents of a replica that wait for a tool", rate * own.tool_time, source=LITTLE
    )
    sequence = graph.named("kv_sequence")
    back = graph.let(
        "cache_return", "s", "time that a cache takes to come back from the host", own.reuse * own.offloaded * sequence / own.host_link,
        source=RETURN,
    )  # fmt: skip
    times = {
        name: {word: graph.let(f"call_{name}_{word}", "s", f"{word} {title} of a call", role.figures[f"{name}.{word}"] + back) for word in WORDS}
        for name, title in (("ttft", "time to first token"), ("e2e", "whole time"))
    }  # fmt: skip
    spans = task_times(graph, task, times["e2e"])
    units = graph.let("tasks_rate", "1/s", "tasks a second that a replica sustains", rate / (own.calls * task.attempts))
    replaced = {"ttft", "e2e"}
    figures = {key: symbol for key, symbol in role.figures.items() if key.partition(".")[0] not in replaced}
    figures |= {"calls_per_second": rate, "tasks_per_second": units, "idle_agents": idle, "cache_return": back}
    figures |= (
        flat("ttft", times["ttft"]) | flat("e2e", times["e2e"]) | flat("task", spans) | _task_figures(graph, task)
    )
    rules = tuple(rule for rule in role.rules if rule.name.partition(".")[0] not in replaced)
    rules += (*_idle_rules(graph, role, idle, sequence, rate), *_task_rules(task, spans))
    rules += (*limit_rules("ttft", times["ttft"]), *limit_rules("e2e", times["e2e"]))
    axes = (own.IDLE, *role.axes)
    ports = {name: role.ports[name] for name in ("ranks", "power_idle", "power_loaded")} | {"rate": units}
    return replace(role, graph=graph, rules=rules, ports=ports, figures=figures, axes=axes, hardware="accelerator")


def _idle_rules(graph: Graph, role: Role, idle: sp.Symbol, sequence: sp.Symbol, rate: sp.Symbol) -> tuple[Rule, ...]:
    """Rules on the caches of agents that wait: on the devices, or in the host's memory and on its link."""
    room = graph.named("kv_room")
    held = graph.let(
        "kv_idle", "B", "cache of agents that work or wait, kept on the devices",
        (role.figures["batch"] + own.reuse * own.kept * idle) * sequence / leaf.attention_dp,
    )  # fmt: skip
    away = own.reuse * own.offloaded
    ranks = own.system_sockets * leaf.ranks_a_chip
    return (
        Rule("memory.idle", held, room, "capacity", "caches of agents that wait fit beside those at work", "B", "engine.idle_cache"),
        Rule("memory.host", away * idle * sequence / leaf.attention_dp, own.system_memory / ranks, "capacity",
             "caches of agents that wait fit the host's memory", "B", "engine.idle_cache"),
        Rule("host_link", away * 2 * rate * sequence / leaf.attention_dp, own.host_link, "limit",
             "the host's link carries caches out and back", "B/s", "engine.idle_cache"),
    )  # fmt: skip


def _task_rules(task: Task, spans: dict[str, sp.Symbol]) -> tuple[Rule, ...]:
    own_budget = sp.Piecewise((own.budget, own.budget > 0), (_tokens(task), True))
    limits = tuple(
        Rule(f"task.{word}", symbol, own.task_limit[word], "limit", f"{word} of the time of a task within its limit", "s", f"slo.task.{word}")
        for word, symbol in spans.items()
    )  # fmt: skip
    return (*limits, Rule("budget", _tokens(task), own_budget, "limit", "an attempt stays within the budget of a task", cure="budget.tokens"))  # fmt: skip


def _tokens(task: Task) -> sp.Expr:
    return task.read + own.calls * own.answer


def _task_figures(graph: Graph, task: Task) -> dict[str, sp.Symbol]:
    """Define what a task is: steps, tokens, attempts, success."""
    computed = graph.named("call_computed")
    return {
        "steps": graph.let("task_steps", "1", "calls of a task in all its attempts", own.calls * task.attempts),
        "success": task.success,
        "attempts": task.attempts,
        "tokens.read": task.read,
        "tokens.computed": graph.let("task_computed", "1", "prompt tokens of an attempt that are computed", own.calls * computed),
        "tokens.written": graph.named("task_written"),
    }  # fmt: skip


@lru_cache(maxsize=1)
def sandboxes() -> Role:
    """Return the pool in which tools run: one rank is a socket of a server, bound by its cores or by its memory."""
    graph = Graph()
    task = define_task(graph)
    cores = graph.let("tool_cores", "1", "cores of a socket", own.system_cores / own.system_sockets)
    memory = graph.let("tool_room", "B", "memory of a socket", own.system_memory / own.system_sockets)
    uses = graph.let("tool_uses", "1", "tools that a task uses in all its attempts", own.calls * task.attempts)
    by_cores = graph.let(
        "tool_by_cores", "1/s", "tasks a second that the cores carry", own.tool_use * cores / (uses * maximum(own.tool_work, SMALL * own.A_SECOND))
    )  # fmt: skip
    stay = graph.let(
        "tool_stay", "s", "time that a sandbox holds its memory a use", own.tool_time + own.tool_held, source=LITTLE
    )
    by_memory = graph.let(
        "tool_by_memory", "1/s", "tasks a second whose sandboxes fit the memory",
        memory / (uses * maximum(own.tool_memory * stay, SMALL * own.A_BYTE_SECOND)), source=LITTLE,
    )  # fmt: skip
    rate = graph.let("tool_rate", "1/s", "tasks a second whose tools a socket runs", minimum(by_cores, by_memory))
    busy = graph.let("tool_busy", "1", "share of the cores' time that tools take", rate * uses * own.tool_work / cores)
    ports = {
        "ranks": graph.let("tool_ranks", "1", "sockets of a replica", sp.Integer(1)),
        "rate": rate,
        "power_idle": graph.let("tool_idle_power", "W", "draw of a socket at rest", energy.idle),
        "power_loaded": graph.let("tool_power", "W", "draw of a socket at work", energy.idle + (energy.tdp - energy.idle) * busy),
    }  # fmt: skip
    figures = {
        "tasks_per_second": rate,
        "tools_per_second": graph.let("tools_rate", "1/s", "tools a second of a socket", rate * uses),
        "sandboxes": graph.let("tool_sandboxes", "1", "sandboxes of a socket", rate * uses * stay, source=LITTLE),
        "core_use": busy,
        "power": ports["power_loaded"],
        "memory.total": graph.let("tool_memory_held", "B", "memory of the sandboxes of a socket", rate * uses * stay * own.tool_memory),
        "memory.capacity": memory,
    }  # fmt: skip
    shares = {"cores": graph.let("share_tool_cores", "s", "time of the cores a task", 1 / by_cores)}
    return Role(
        "environment", "pool", (), graph, (), (), ports, figures, shares, hardware="processor", system="tool.system"
    )


AGENTS = register_stage(
    StageModel(
        name="agents",
        doc="Agents that call a model many times a task and run tools between: cost of a success within a limit on waiting.",
        inputs=own.INPUTS,
        roles=lambda architecture: (calling(architecture), sandboxes()),
        routes=(
            Route("sandboxed", ("mixed", "environment"), {"tool.sandbox": (True,)}),
            Route("elsewhere", ("mixed",), {"tool.sandbox": (False,)}),
        ),
        demand=Demand("task", "tasks_per_second"),
        yields={"cost_per_task": {"output": succeeded}, "cost_per_token": {"output": written}},
        axes=tuple(own.AXES.values()),
        hardware=("processor",),
    )
)
