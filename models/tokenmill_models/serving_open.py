"""Open arrivals at a replica whose steps carry prompts: what a request waits for, and how its times scatter.

A step takes all prompts that wait, up to its budget, so that it lasts as long as what arrived during the one before asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.inference import LEAST_SECONDS
from tokenmill_models.queueing import NORMAL, RHO_STATED
from tokenmill_models.serving_load import Request

GATED = Source(
    "gated batch service with a pass that always runs: moments of T' = V + c (tokens that arrived in T), stationary",
    (
        "E[T] = V/(1-rho); E[T²] (1-rho²) = V² + 2 V rho E[T] + rate c² E[S²] E[T]",
        "E[T³] (1-rho³)/E[T] = V³/E[T] + 3 V² rho + 3 V (b + rho² m) + rate c³ E[S³] + 3 rho b m; b = rate c² E[S²], m = E[T²]/E[T]",
        "an arrival meets a step of mean length E[T²]/E[T], waits half of it, and shares the next with what else came in it",
    ),
)
CHUNKED = Source(
    "Pollaczek and Khinchine: prompts longer than a step's budget are served one after another, each for the steps that it fills; second moment of the wait by Takacs 1962",
    ("the wait holds what is left of prompts in service: only who finds none waits for the rest of a step",),
)
RUN_ON = Source(
    "a first-order autoregression of steps with coefficient rho: an excess dies out over 1/(1-rho) steps, sums have a variance of Var(1+rho)/(1-rho)"
)
LOGNORMAL = Source("what lies above its least value is taken lognormal, by its mean and variance")


@dataclass(frozen=True)
class Pace:
    """A group in steady state: time of a plain step, of a mean one and of one with prompts [s], of a prompt token [s], most prompt
    tokens of a step, decode sequences.
    """

    plain: sp.Symbol
    step: sp.Symbol
    longest: sp.Expr
    token: sp.Symbol
    budget: sp.Symbol
    decoding: sp.Symbol


@dataclass(frozen=True)
class Moments:
    """Share of time that prompts take [1], requests a second, E[T²]/E[T] of steps [s], prompt work squared that a second brings [s]."""

    rho: sp.Symbol
    rate: sp.Symbol
    met: sp.Symbol
    brought: sp.Symbol


def define_moments(graph: Graph, request: Request, pace: Pace) -> Moments:
    """Define the moments of steps that take all that waits; see GATED. Bursts of arrivals count as more variable prompts."""
    rho = graph.let("open_rho", "1", "share of time that prompts take", 1 - pace.plain / pace.step)
    rate = graph.let("open_rate", "1/s", "requests a second of a group", pace.decoding / (request.steps * pace.step))
    work = pace.token * request.computed
    brought = graph.let(
        "open_brought", "s", "prompt work squared that a second brings",
        rate * work**2 * (leaf.arrival_cv**2 + leaf.input_cv**2), source=GATED,
    )  # fmt: skip
    met = graph.let(
        "open_met", "s", "mean length of the step that an arrival meets",
        (pace.plain**2 / pace.step + 2 * pace.plain * rho + brought) / (1 - rho**2), source=GATED,
    )  # fmt: skip
    return Moments(rho, rate, met, brought)


def first_times(
    graph: Graph, request: Request, pace: Pace, moments: Moments, late: sp.Expr, token: sp.Expr
) -> dict[str, sp.Expr]:
    """Define the time to first token [s] but for slots and the front end: the longer of gated and chunked service, then `late` steps of `token`."""
    rho, met = moments.rho, moments.met
    work = pace.token * request.computed
    gated = graph.let(
        "first_gated", "s", "time to the end of the step that takes a prompt with all that waits",
        pace.plain + work + (sp.Rational(1, 2) + rho) * met, source=GATED,
    )  # fmt: skip
    wait, spread, busy = _one_by_one(graph, request, pace, moments)
    filled = request.computed / pace.budget
    met_filled = graph.let(
        "open_filled",
        "1",
        "steps' budgets that the prompt of a token met at random fills",
        filled * (1 + leaf.input_cv**2),
    )
    several_steps = sp.Gt(met_filled, 1, evaluate=False)
    steps = sp.Piecewise((maximum(1, filled + sp.Rational(1, 2)), several_steps), (1, True))
    rest = sp.Piecewise(((1 - busy) * met / 2, several_steps), (met / 2, True))
    chunked = graph.let(
        "first_chunked", "s", "time to the end of the last step of a prompt that is served alone",
        rest + wait + steps * pace.plain + work, source=CHUNKED,
    )  # fmt: skip
    several = met * moments.brought + ((sp.Rational(1, 2) + rho) ** 2 + sp.Rational(1, 12)) * _scatter(
        graph, request, pace, moments
    )
    alone = (work * leaf.input_cv) ** 2 + met**2 / 12
    variance = graph.let(
        "first_variance", "s^2", "variance of the time to first token",
        _run_on(pace, moments, late)
        + sp.Piecewise((spread + met**2 / 12, several_steps), (alone + several, True)),
        source=RUN_ON,
    )  # fmt: skip
    mean = graph.let("first_mean", "s", "time to first token of open arrivals", maximum(gated, chunked) + late * token)
    return {"mean": mean} | _quantiles(graph, "first", "time to first token", (1 + late) * pace.plain, mean, variance)


def _scatter(graph: Graph, request: Request, pace: Pace, moments: Moments) -> sp.Symbol:
    """Define the variance [s²] of the step that an arrival meets: E[T³]/E[T] less the square of its mean."""
    V, T, rho, brought = pace.plain, pace.step, moments.rho, moments.brought
    third = moments.rate * (pace.token * request.computed) ** 3 * (1 + leaf.input_cv**2) ** 3
    cube = (
        V**3 / T + 3 * V**2 * rho + 3 * V * (brought + rho**2 * moments.met) + third + 3 * rho * brought * moments.met
    )
    return graph.let(
        "open_scatter", "s^2", "variance of the step that an arrival meets",
        maximum(0, cube / (1 - rho**3) - moments.met**2), source=GATED,
    )  # fmt: skip


def _run_on(pace: Pace, moments: Moments, steps: sp.Expr) -> sp.Expr:
    """Variance [s²] of the time of a few steps one after another; over many it nears brought x step / (1 - rho)² a step."""
    rho = moments.rho
    once = moments.brought * pace.step / (1 - rho**2)
    return once * (steps * (1 + rho) / (1 - rho) - 2 * rho * (1 - rho**steps) / (1 - rho) ** 2)


def _one_by_one(graph: Graph, request: Request, pace: Pace, moments: Moments) -> tuple[sp.Symbol, sp.Symbol, sp.Symbol]:
    """Define the mean wait [s] for prompts served one after another, the variance [s²] of wait and service, the share of time [1] so busy."""
    per_token = pace.plain / pace.budget + pace.token
    service = request.computed * per_token
    busy = graph.let(
        "open_busy", "1", "share of time that prompts served one after another fill",
        minimum(moments.rate * service, RHO_STATED), source=CHUNKED,
    )  # fmt: skip
    cv2 = leaf.input_cv**2
    wait = graph.let(
        "open_wait", "s", "mean wait for prompts served one after another",
        moments.rate * service**2 * (leaf.arrival_cv**2 + cv2) / (2 * (1 - busy)), source=CHUNKED,
    )  # fmt: skip
    third = moments.rate * service**3 * (1 + cv2) ** 3 / (3 * (1 - busy))
    added = sp.Piecewise((per_token, sp.Gt(request.computed, pace.budget, evaluate=False)), (pace.token, True))
    spread = graph.let(
        "open_spread", "s^2", "variance of wait and service where prompts are served one after another",
        wait**2 + third + (added * request.computed) ** 2 * cv2, source=CHUNKED,
    )  # fmt: skip
    return wait, spread, busy


def token_mean(graph: Graph, request: Request, pace: Pace, moments: Moments) -> sp.Symbol:
    """Define the mean over requests of the mean step [s] of an answer: the own prompt's long step brings more that waits for the next ones."""
    own = pace.plain + pace.token * request.computed + moments.rho * moments.met
    excess = graph.let(
        "open_excess", "s", "time that the own prompt's step adds to the steps of an answer",
        maximum(0, own - pace.step) * moments.rho * (1 - moments.rho**request.steps) / (1 - moments.rho), source=RUN_ON,
    )  # fmt: skip
    return graph.let(
        "token_open", "s", "mean step of a request's answer, averaged over requests of open arrivals",
        minimum(pace.longest, pace.step + excess * _inverse_steps(request)), source=RUN_ON,
    )  # fmt: skip


def _inverse_steps(request: Request) -> sp.Expr:
    """Mean of one over the steps of an answer [1], lognormal lengths."""
    return (1 + leaf.output_cv**2) / request.steps


def token_quantiles(
    graph: Graph, request: Request, pace: Pace, moments: Moments, mean: sp.Symbol
) -> dict[str, sp.Symbol]:
    """Define the percentiles over requests of the mean step [s] of an answer."""
    inverse = _inverse_steps(request)
    variance = graph.let(
        "token_variance", "s^2", "variance over requests of the mean step of an answer",
        moments.brought * pace.step / (1 - moments.rho) ** 2 * inverse + ((mean - pace.step) * leaf.output_cv) ** 2,
        source=RUN_ON, assumes=("the number of running sequences stays at its mean",),
    )  # fmt: skip
    return _quantiles(graph, "token_open", "mean step of an answer", pace.plain, mean, variance)


def _quantiles(
    graph: Graph, name: str, title: str, least: sp.Expr, mean: sp.Symbol, variance: sp.Symbol
) -> dict[str, sp.Symbol]:
    above = maximum(LEAST_SECONDS, mean - least)
    spread = 1 + variance / above**2
    return {
        word: graph.let(
            f"{name}_{word}", "s", f"{word} of {title}",
            least + above / sp.sqrt(spread) * sp.exp(z * sp.sqrt(sp.log(spread))), source=LOGNORMAL,
        )
        for word, z in NORMAL.items()
    }  # fmt: skip
