"""Evaluation by hand: how many prompts a difference needs, what repeated sampling finds, what a suite costs."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.closed import DEFINITION, form, given
from tokenmill_models.money import rent_price

MILLER = "Miller 2024, Adding Error Bars to Evals, arXiv:2411.00640, sections 2 and 5"
CHEN = "Chen et al. 2021, Evaluating Large Language Models Trained on Code, arXiv:2107.03374, section 2.1"

accuracy = given("accuracy", "1", "share of right answers", "p")
half_width = given("half_width", "1", "half-width of the interval wanted")
deviations = given("deviations", "1", "standard deviations of the interval: 1.96 for 95%", "z")
prompts = given("suite_prompts", "1", "prompts of a suite")
passes = given("suite_passes", "1", "answers a prompt")
prompt_tokens = given("suite_input_tokens", "1", "tokens of a prompt")
answer_tokens = given("suite_output_tokens", "1", "tokens of an answer")
prefill = given("replica_prefill_rate", "1/s", "prompt tokens a second of a replica")
decode = given("replica_decode_rate", "1/s", "answer tokens a second of a replica")
replicas = given("suite_replicas", "1", "replicas at work")
devices = given("replica_devices", "1", "devices of a replica", "n")
correlation = given("cluster_correlation", "1", "correlation of answers to prompts of one cluster", sign="nonnegative")
cluster = given("cluster_prompts", "1", "prompts of a cluster")

PROMPTS = form(
    "evaluation.prompts_needed", "Prompts for an interval of an accuracy", ("prompts_needed", "1"),
    deviations**2 * accuracy * (1 - accuracy) / half_width**2, MILLER, ("the variance of a share is p·(1 - p)/n",
     "z standard deviations are the half-width: solve for n"), ("prompts are independent",), (accuracy < 1,),
    rounding="ceil",
)  # fmt: skip
ERROR = form(
    "evaluation.standard_error", "Standard error of an accuracy", ("standard_error", "1"),
    sp.sqrt(accuracy * (1 - accuracy) / prompts), MILLER, ("the variance of a share is p·(1 - p)/n",),
    ("prompts are independent",), (accuracy < 1,),
)  # fmt: skip
CLUSTERED = form(
    "evaluation.effective_prompts", "Independent prompts that clustered ones are worth", ("effective_prompts", "1"),
    prompts / (1 + (cluster - 1) * correlation), MILLER,
    ("prompts of one cluster repeat one another: the variance grows by 1 + (m - 1)·rho",),
    ("clusters are of one size",), (correlation <= 1, cluster >= 1),
)  # fmt: skip
PASS_AT_K = form(
    "evaluation.pass_at_k", "Share of problems that one of several answers solves", ("pass_at_k", "1"),
    1 - (1 - accuracy) ** passes, CHEN, ("k independent answers all fail with (1 - p)^k",),
    ("every problem is solved with the same probability",), (accuracy < 1,),
)  # fmt: skip
SAMPLES = form(
    "evaluation.answers_for_success", "Answers until one is right with a wanted probability", ("answers_for_success",
     "1"), sp.log(1 - given("wanted_success", "1", "probability wanted")) / sp.log(1 - accuracy), CHEN,
    ("1 - (1 - p)^k is the wanted probability", "solve for k and round up"), ("independent answers",
     "a verifier knows the right one"), (accuracy < 1, given("wanted_success", "1", "probability wanted") < 1),
    rounding="ceil",
)  # fmt: skip
TIME = form(
    "evaluation.suite_time", "Time of a suite on some replicas", ("suite_time", "s"),
    prompts * passes * (prompt_tokens / prefill + answer_tokens / decode) / replicas, DEFINITION,
    ("each answer takes its prompt's and its own share of a replica",), ("replicas are kept full",
     "prompts are computed anew for each answer"),
)  # fmt: skip
COST = form(
    "evaluation.suite_cost", "Cost of a suite", ("suite_cost", "USD"),
    prompts * passes * (prompt_tokens / prefill + answer_tokens / decode) * devices * rent_price, DEFINITION,
    ("replica time times its price: the number of replicas cancels",), ("replicas are kept full",),
)  # fmt: skip
