"""What a task asks: calls with a growing context, attempts until one succeeds, and the time from first call to last."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tokenmill_models import agents_leaves as own
from tokenmill_models import inference_leaves as leaf
from tokenmill_models.closed_agents import GEOMETRIC, GROWTH, REUSED
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.queueing import ONE_PERCENTILE

SPREAD = Source(
    "central limit: the times of independent calls add, their variances too",
    (
        "the slowest of k side by side is sqrt(2 ln k) standard deviations above the mean (Gumbel's bound for normal variables)",
        "the percentile of the number of attempts takes that many attempts",
    ),
)
QUANTILE = {"p50": sp.Float(0.0), "p95": sp.Float("1.6448536269514722"), "p99": sp.Float("2.3263478740408408")}
WIDTH = QUANTILE["p95"]
NEARLY_SURE, HARDLY = sp.Float("0.999999"), sp.Float("1e-9")


@dataclass(frozen=True)
class Task:
    """Sizes of a task: `chain` calls of one agent one after another, `attempts` in the mean, `success` share, and per attempt
    `read` prompt tokens, `computed` ones of them, [1]; `growth` tokens a call.
    """

    chain: sp.Symbol
    growth: sp.Symbol
    read: sp.Symbol
    allowed: sp.Symbol
    attempts: sp.Symbol
    success: sp.Symbol


def define_task(graph: Graph) -> Task:
    """Define what does not depend on where a task's calls are computed."""
    chain = graph.let("task_chain", "1", "calls of one agent, one after another", maximum(1, own.calls / own.parallel))
    growth = graph.let("task_growth", "1", "tokens by which a call lengthens the context", own.answer + own.added)
    read = graph.let(
        "task_read", "1", "prompt tokens of an attempt, computed or cached",
        own.parallel * (chain * own.first + chain * (chain - 1) / 2 * growth), source=GROWTH,
    )  # fmt: skip
    tokens = graph.let("attempt_tokens", "1", "tokens that an attempt reads and writes", read + own.calls * own.answer)
    affordable = sp.Piecewise((maximum(1, sp.floor(own.budget / tokens)), own.budget > 0), (own.attempts_most, True))
    allowed = graph.let(
        "task_allowed", "1", "attempts that limit and budget allow", minimum(own.attempts_most, affordable)
    )
    failing = (1 - own.success) ** allowed
    attempts = graph.let(
        "task_attempts", "1", "mean attempts of a task",
        sp.Piecewise(((1 - failing) / maximum(own.success, HARDLY), own.success > 0), (allowed, True)), source=GEOMETRIC,
    )  # fmt: skip
    success = graph.let("task_success", "1", "share of tasks that succeed", 1 - failing, source=GEOMETRIC)
    graph.let("task_written", "1", "tokens that a task writes in all its attempts", attempts * own.calls * own.answer)
    return Task(chain, growth, read, allowed, attempts, success)


def kept_prefix(graph: Graph) -> sp.Symbol:
    """Define 1 where the context of the last call is there for the next: on the devices, or brought back from the host."""
    return graph.let("prefix_kept", "1", "1 where a call finds the context of the last", own.reuse * (own.kept + own.offloaded))  # fmt: skip


def call_lengths(graph: Graph, task: Task) -> dict[sp.Symbol, sp.Expr]:
    """Define the lengths of a call and return what they stand for in serving: prompts are spread evenly from first to last call."""
    grown = (task.chain - 1) * task.growth
    mean = graph.let("call_prompt", "1", "mean prompt tokens of a call", own.first + grown / 2, source=GROWTH)
    spread = graph.let(
        "call_cv", "1", "variation of the prompts of a task", task.growth * sp.sqrt(maximum(0, task.chain**2 - 1) / 12) / mean,
    )  # fmt: skip
    computed = graph.let(
        "call_computed", "1", "mean prompt tokens of a call that are computed",
        mean + kept_prefix(graph) * ((own.first + (task.chain - 1) * own.added) / task.chain - mean), source=REUSED,
    )  # fmt: skip
    hit = graph.let("call_hit", "1", "share of a call's prompt that is found in the cache", 1 - computed / mean)
    found = {leaf.input_tokens: mean, leaf.input_cv: spread, leaf.output_tokens: own.answer, leaf.output_cv: sp.Integer(0), leaf.prefix_hit: hit}  # fmt: skip
    for word, exceed in ONE_PERCENTILE.items():
        found[leaf.input_percentiles[word]] = own.first + (1 - exceed) * grown
        found[leaf.output_percentiles[word]] = own.answer
    return found


def task_times(graph: Graph, task: Task, call: dict[str, sp.Expr]) -> dict[str, sp.Symbol]:
    """Define mean and percentiles [s] of the time of a task, from those of a call ({mean, p95}) and its tools."""
    one = graph.let("call_time", "s", "mean time of a call and its tool", call["mean"] + own.tool_time)
    deviation = graph.let(
        "call_deviation",
        "s",
        "standard deviation of the time of a call",
        maximum(0, call["p95"] - call["mean"]) / WIDTH,
    )
    slowest = sp.sqrt(2 * sp.log(own.parallel)) * sp.sqrt(task.chain) * deviation
    attempt = graph.let("attempt_time", "s", "mean time of an attempt: the slowest of its agents", task.chain * one + slowest, source=SPREAD)  # fmt: skip
    found = {"mean": graph.let("task_mean", "s", "mean time of a task", task.attempts * attempt, source=SPREAD)}
    for word, quantile in QUANTILE.items():
        number = _attempts_at(graph, task, word)
        found[word] = graph.let(
            f"task_{word}", "s", f"{word} time of a task",
            number * attempt + quantile * sp.sqrt(number * task.chain) * deviation, source=SPREAD,
            assumes=("calls wait independently of one another",),
        )  # fmt: skip
    return found


def _attempts_at(graph: Graph, task: Task, word: str) -> sp.Symbol:
    """Define the attempts that a share of tasks does not pass."""
    exceed = ONE_PERCENTILE[word]
    failing = 1 - maximum(HARDLY, minimum(own.success, NEARLY_SURE))
    needed = sp.Piecewise(
        (maximum(1, sp.ceiling(sp.log(exceed) / sp.log(failing))), own.success > 0), (task.allowed, True)
    )
    return graph.let(
        f"attempts_{word}",
        "1",
        f"attempts that {word} of tasks do not pass",
        minimum(task.allowed, needed),
        source=GEOMETRIC,
    )
