"""The leaves, keys and choices of agents: tasks of many calls, tools in sandboxes, retries, and caches that wait for tools."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.batch_inference import ENGINE_AXES, ENGINE_INPUTS
from tokenmill_models.serving_figures import SLO
from tokenmill_models.stage import Axis, Input
from tokenmill_models.symbols import constant, declare


def _input(name: str, symbol: str, dimension: str, doc: str, sign: str = "nonnegative") -> sp.Symbol:
    return declare(symbol, dimension, doc, origin=f"input.{name}", sign=sign)


calls = _input("calls", "task_calls", "1", "model calls of an attempt at a task", "positive")
parallel = _input("parallel", "task_parallel", "1", "sub-agents that share the calls and work side by side", "positive")
first = _input("tokens_first", "task_tokens_first", "1", "tokens of the first prompt of an agent", "positive")
added = _input("tokens_tool", "task_tokens_tool", "1", "tokens that a tool adds to the context")
answer = _input("tokens_out", "task_tokens_out", "1", "tokens that a call writes", "positive")
reuse = _input("prefix_reuse", "prefix_reuse", "1", "1 where the context of the last call may be kept for the next")
tool_time = _input("tool.seconds", "tool_seconds", "s", "time of a tool, in which the agent waits")
tool_work = _input("tool.core_seconds", "tool_core_seconds", "s", "time of a core that a tool takes")
tool_memory = _input("tool.memory", "tool_memory", "B", "memory of a sandbox")
tool_held = _input("tool.held_seconds", "tool_held", "s", "time that a sandbox keeps its memory between two uses")
tool_use = _input(
    "tool.use", "tool_use", "1", "share of the cores' time that tools may take, so that none waits long", "positive"
)
success = _input("success", "attempt_success", "1", "probability that an attempt succeeds")
attempts_most = _input("max_attempts", "attempts_allowed", "1", "attempts at a task at most", "positive")
budget = _input(
    "budget.tokens", "task_budget", "1", "tokens that a task may read and write in all its attempts; 0: any"
)
task_limit = {
    word: declare(f"slo_task_{word}", "s", f"most {word} time of a task", origin=f"input.slo.task.{word}", sign="positive")
    for word in ("mean", "p50", "p95", "p99")
}  # fmt: skip

kept = declare("idle_kept", "1", "1 where a waiting agent's cache stays on the devices", origin="axis.idle")
offloaded = declare("idle_offloaded", "1", "1 where it goes to the host's memory and comes back", origin="axis.idle")
host_link = declare("W_device_link", "B/s", "bandwidth of the link from the host to a card", origin="chip.host_link")
system_cores = declare("system_cores", "1", "cores of a server", origin="system.cores", sign="positive")
system_sockets = declare("system_sockets", "1", "sockets of a server", origin="system.chips", sign="positive")
system_memory = declare("system_memory", "B", "memory of a system's host", origin="system.host_ram", sign="positive")

A_SECOND = constant("one_second", 1.0, "s", "a second")
A_BYTE_SECOND = constant("one_byte_second", 1.0, "B*s", "a byte held for a second")

IDLE = Axis(
    "idle", "engine.idle_cache", ("keep", "offload", "recompute"),
    "what becomes of an agent's cache while its tool runs",
    codes={
        "keep": {kept: 1.0, offloaded: 0.0},
        "offload": {kept: 0.0, offloaded: 1.0},
        "recompute": {kept: 0.0, offloaded: 0.0},
    },
)  # fmt: skip
AXES = {**ENGINE_AXES, "idle": IDLE}

INPUTS = (
    Input("model", "architecture", "the model that the agents call", required=True),
    Input("tasks_per_second", "slices", "mean arrivals of tasks within a slice of the day, a second"),
    Input("growth_per_period", "number", "growth of the arrivals a period; compounds", default=0.0, minimum=-1.0),
    Input("calls", "number", "model calls of an attempt at a task, in the mean", calls, default=20.0, minimum=1),
    Input("parallel", "number", "sub-agents that share the calls and work side by side", parallel, default=1.0, minimum=1),
    Input("tokens_first", "number", "tokens of the first prompt of an agent", first, default=4000.0, minimum=1),
    Input("tokens_tool", "number", "tokens that a tool adds to the context", added, default=1000.0),
    Input("tokens_out", "number", "tokens that a call writes", answer, default=300.0, minimum=1),
    Input("prefix_reuse", "flag", "the context of the last call may be kept for the next", reuse, default=True),
    Input("tool.seconds", "number", "seconds of a tool, in which the agent waits", tool_time, "s", default=2.0),
    Input("tool.core_seconds", "number", "seconds of a core that a tool takes", tool_work, "s", default=1.0),
    Input("tool.memory", "number", "memory of a sandbox", tool_memory, "B", default=2e9),
    Input("tool.held_seconds", "number", "seconds that a sandbox keeps its memory between two uses", tool_held, "s", default=10.0),
    Input("tool.use", "number", "share of the cores' time that tools may take, so that none waits long", tool_use, default=0.7, maximum=1.0),
    Input("tool.system", "system", "servers that sandboxes stand on"),
    Input("tool.sandbox", "flag", "tools run in sandboxes of one's own; false: elsewhere, at no cost here", default=True),
    Input("success", "number", "probability that an attempt succeeds", success, default=1.0, maximum=1.0),
    Input("max_attempts", "number", "attempts at a task at most", attempts_most, default=1.0, minimum=1),
    Input("budget.tokens", "number", "tokens that a task may read and write in all its attempts; 0: any", budget, default=0.0),
    Input("slo.task", "percentiles", "most time of a task, with all its attempts", dimension="s", parts=task_limit),
    *(
        Input(f"slo.{name}", "percentiles", f"most time: {title}", dimension="s", parts=SLO[name])
        for name, title in (("ttft", "to first token of a call"), ("tpot", "per output token"), ("e2e", "of a whole call"))
    ),
    *ENGINE_INPUTS,
)  # fmt: skip
