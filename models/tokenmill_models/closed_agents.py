"""Closed forms of agents: growing contexts, idle caches, retries, and what a success costs."""

from __future__ import annotations

from typing import Any

import sympy as sp

from tokenmill_models.formula import Formula, Source, register
from tokenmill_models.roofline import FLOP_PER_MAC, F
from tokenmill_models.symbols import declare, uncapitalised

GROWTH = Source(
    "arithmetic series: call i reads the first prompt and what i - 1 calls and tools have added",
    ("sum of S_0 + (i - 1)(S_out + S_tool) over i = 1..n",),
)
REUSED = Source(
    "a kept prefix is not computed again",
    (
        "the first call computes S_0; each later one what the tool has added, since its own answers are cached as they are written",
    ),
)
GEOMETRIC = Source(
    "truncated geometric distribution",
    (
        "attempt i takes place if i - 1 have failed: probability (1 - q)^(i-1)",
        "the sum over i = 1..A is (1 - (1 - q)^A)/q; a task succeeds unless all A fail",
    ),
)
IDLE = Source(
    "equal cost of memory held and of work repeated",
    (
        "holding S tokens takes S kv of the device's cache room M, that share of the device, for the idle time",
        "computing them again takes all of the device for 2 N_a S/(F eta)",
        "S falls out",
    ),
)
AMDAHL = Source(
    "Amdahl 1967, Validity of the single processor approach, AFIPS 30",
    ("the part that is split takes 1/k of its time", "the rest takes what it took"),
)
STEPS = Source("definition: independent steps", ("all n go right with the product of their probabilities",))
BREAK_EVEN = Source("definition: equal cost and worth", ("an attempt costs c and brings q·V in the mean",))
LITTLE = Source(
    "Little 1961, A proof for the queuing formula L = lambda W", ("what is inside is the rate times the time inside",)
)


def _given(name: str, dimension: str, doc: str, latex: str | None = None) -> sp.Symbol:
    return declare(name, dimension, doc, origin=f"input.{name}", latex=latex, sign="positive")


def _form(name: str, title: str, dimension: str, expr: sp.Expr, source: Source, **about: Any) -> Formula:
    symbol = declare(name.replace("agents.", "agents_"), dimension, uncapitalised(title))
    return register(Formula(name, title, symbol, expr, source, **about))


n = _given("calls", "1", "model calls of a task", "n")
S_0 = _given("tokens_first", "1", "tokens of the first prompt", "S_0")
S_tool = _given("tokens_tool", "1", "tokens that a tool adds to the context", "S_{tool}")
S_answer = _given("tokens_answer", "1", "tokens that a call writes", "S_{out}")
q = _given("success_share", "1", "probability that an attempt succeeds", "q")
A = _given("attempts_most", "1", "attempts at most", "A")
c = _given("attempt_cost", "USD", "cost of an attempt", "c")
c_success = _given("success_cost", "USD", "cost of an attempt that succeeds", "c_s")
c_failure = _given("failure_cost", "USD", "cost of an attempt that fails", "c_f")
value = _given("task_value", "USD", "what a success is worth", "V")
other_cost = _given("other_cost", "USD", "cost of an attempt with another model")
wanted = _given("wanted_share", "1", "share of tasks that are to succeed")
step_share = _given("step_share", "1", "probability that a step goes right", "p_s")
tasks = _given("task_rate", "1/s", "tasks a second")
tool_time = _given("tool_time", "s", "time of a tool", "T_{tool}")
kv = _given("kv_of_token", "B", "cache bytes of a token")
room = _given("cache_room", "B", "memory of the devices that holds caches")
N_active = _given("active_parameters", "1", "parameters active for a token", "N_a")
mfu = _given("prefill_mfu", "1", "MFU of computing prompts")
split = _given("parallel_share", "1", "share of a task's calls that can be done side by side")
agents = _given("sub_agents", "1", "sub-agents that work side by side", "k")

PROMPT_TOKENS = _form("agents.prompt_tokens", "Prompt tokens that a task computes where no prefix is reused", "1",
                      n * S_0 + n * (n - 1) / 2 * (S_answer + S_tool), GROWTH,
    assumes=("every call adds one answer and one tool result",))  # fmt: skip
PROMPT_TOKENS_REUSED = _form("agents.prompt_tokens_reused", "Prompt tokens that a task computes where the prefix is kept", "1",
                             S_0 + (n - 1) * S_tool, REUSED,
    assumes=("the prefix stays cached between calls",))  # fmt: skip
CACHED_READS = _form("agents.cached_tokens", "Prompt tokens of a task that come from the cache", "1",
                     (n - 1) * S_0 + n * (n - 1) / 2 * (S_answer + S_tool) - (n - 1) * S_tool, REUSED,
    assumes=("every call adds one answer and one tool result",))  # fmt: skip
REUSE_GAIN = _form("agents.reuse_gain", "Times fewer prompt tokens to compute by keeping the prefix", "1",
                   (n * S_0 + n * (n - 1) / 2 * (S_answer + S_tool)) / (S_0 + (n - 1) * S_tool), REUSED,
    assumes=("the prefix stays cached between calls",))  # fmt: skip
IDLE_TIME = _form("agents.idle_time", "Idle time beyond which a cache is better computed again than kept in the devices' memory", "s",
                  FLOP_PER_MAC * N_active * room / (F * mfu * kv), IDLE,
                  assumes=("memory is what limits the batch, so that room held is room lost", "attention work is left out"))  # fmt: skip
RELOAD_BANDWIDTH = _form("agents.reload_bandwidth", "Bandwidth of a link above which a cache comes back sooner than it is computed again", "B/s",
                         kv * F * mfu / (FLOP_PER_MAC * N_active), IDLE, assumes=("attention work is left out",))  # fmt: skip
ATTEMPTS = _form("agents.attempts", "Mean attempts of a task", "1", (1 - (1 - q) ** A) / q, GEOMETRIC,
                 assumes=("attempts are independent",), valid=(sp.Le(q, 1),))  # fmt: skip
SUCCESS = _form("agents.success", "Share of tasks that succeed within the attempts", "1", 1 - (1 - q) ** A, GEOMETRIC,
                assumes=("attempts are independent",), valid=(sp.Le(q, 1),))  # fmt: skip
TASK_COST = _form("agents.task_cost", "Mean cost of a task", "USD", c * (1 - (1 - q) ** A) / q, GEOMETRIC,
                  assumes=("every attempt costs the same",), valid=(sp.Le(q, 1),))  # fmt: skip
SUCCESS_COST = _form("agents.cost_per_success", "Cost of a success, whatever the limit of attempts", "USD", c / q, GEOMETRIC,
                     assumes=("every attempt costs the same",), valid=(sp.Le(q, 1),))  # fmt: skip
UNEVEN_COST = _form("agents.cost_per_success_uneven", "Cost of a success where failures cost otherwise", "USD",
                    c_success + c_failure * (1 - q) / q, GEOMETRIC, valid=(sp.Le(q, 1),),
    assumes=("attempts are independent and repeated until one succeeds",))  # fmt: skip
ATTEMPTS_WANTED = _form("agents.attempts_wanted", "Attempts that bring a share of tasks to success", "1",
                        sp.log(1 - wanted) / sp.log(1 - q), GEOMETRIC, rounding="ceil", assumes=("attempts are independent",),
                        valid=(sp.Lt(q, 1), sp.Lt(wanted, 1)))  # fmt: skip
WORTH = _form(
    "agents.worth_share",
    "Success share below which an attempt costs more than it brings",
    "1",
    c / value,
    BREAK_EVEN,
    assumes=("a failed attempt brings nothing",),
)
RIVAL = _form(
    "agents.rival_share",
    "Success share at which another model's success costs as much",
    "1",
    q * other_cost / c,
    GEOMETRIC,
    assumes=("both are repeated until one attempt succeeds",),
)
CHAIN = _form("agents.chain_success", "Probability that every step of a task goes right", "1", step_share**n, STEPS,
              assumes=("steps are independent and none is made good later",), valid=(sp.Le(step_share, 1),))  # fmt: skip
LONGEST = _form("agents.longest_chain", "Steps after which fewer than a share of tasks have gone right", "1",
                sp.log(wanted) / sp.log(step_share), STEPS, rounding="floor",
                assumes=("steps are independent and none is made good later",), valid=(sp.Lt(step_share, 1), sp.Lt(wanted, 1)))  # fmt: skip
SANDBOXES = _form("agents.sandboxes", "Sandboxes in use: Little's law", "1", tasks * n * tool_time,
                  LITTLE,
    assumes=("steady load, one tool call a model call",))  # fmt: skip
SPEEDUP = _form("agents.parallel_speedup", "How much sooner a task ends where sub-agents share its calls", "1",
                1 / (1 - split + split / agents), AMDAHL, valid=(sp.Le(split, 1),),
    assumes=("sub-agents do not wait for one another",))  # fmt: skip
