"""Closed forms of a model's whole life: smaller models and longer answers, retraining, and when the money has crossed over."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.closed import form, given
from tokenmill_models.closed_lifecycle import SERVE_FLOP, TRAIN_FLOP
from tokenmill_models.symbols import constant

DAY = constant("day_seconds", 86400.0, "s", "seconds of a day")
large = given("N_large", "1", "active parameters of the larger model", "N_L")
small = given("N_small", "1", "active parameters of the smaller model", "N_S")
large_answer = given("answer_large", "1", "tokens of an answer of the larger model", "S_L")
small_answer = given("answer_small", "1", "tokens of an answer of the smaller model that is as good", "S_S")
distilled = given("D_distilled", "1", "tokens on which the smaller model is trained", "D_S")
price_large = given("price_large", "USD", "price of a token of the larger model")
price_small = given("price_small", "USD", "price of a token of the smaller model")
train_cost = given("train_cost", "USD", "cost of a training run")
serve_price = given("served_price", "USD", "cost of a served token")
per_second = given("tokens_per_second_served", "1/s", "tokens served a second")
runs = given("retrainings", "1", "training runs within the horizon", "k")
horizon = given("horizon_time", "s", "horizon", "H")
votes = given("votes", "1", "answers of which the majority or the best counts", "v")

EQUAL_ANSWER = form(
    "lifetime.equal_answer", "Tokens of a smaller model's answer that cost as many FLOPs as a larger model's answer", ("equal_answer", "1"),
    large_answer * large / small,
    "two FLOP a parameter and token on both sides",
    ("2 N_L S_L = 2 N_S S_S",),
    ("attention over the context is left out on both sides",),
)  # fmt: skip
EQUAL_ANSWER_PRICE = form(
    "lifetime.equal_answer_price", "Tokens of a smaller model's answer that cost as much as a larger model's answer", ("equal_answer_price", "1"),
    large_answer * price_large / price_small,
    "equal price of an answer",
    ("p_L S_L = p_S S_S",),
    ("prompts cost the same on both sides, or nothing",),
)  # fmt: skip
EQUAL_VOTES = form(
    "lifetime.equal_votes", "Votes of a smaller model that cost as many FLOPs as one answer of a larger model", ("equal_votes", "1"),
    large_answer * large / (small_answer * small),
    "two FLOP a parameter and token on both sides",
    ("2 N_L S_L = 2 N_S S_S v",),
    ("attention over the context is left out on both sides",),
)  # fmt: skip
DISTILLED = form(
    "lifetime.distillation_pays", "Served tokens after which a smaller model has saved the FLOPs of its training", ("distillation_pays", "1"),
    TRAIN_FLOP * small * distilled / (SERVE_FLOP * (large - small)),
    "work spent against work saved a token",
    ("6 N_S D_S = 2 (N_L - N_S) T",),
    ("a token of the smaller model is worth as much", "labels of the larger model are there already"),
    valid=(sp.Gt(large, small),),
)  # fmt: skip
LABELLED = form(
    "lifetime.distillation_pays_labelled", "The same where the larger model first writes what the smaller one is trained on",
    ("distillation_pays_labelled", "1"),
    (TRAIN_FLOP * small + SERVE_FLOP * large) * distilled / (SERVE_FLOP * (large - small)),
    "work spent against work saved a token",
    ("(6 N_S + 2 N_L) D_S = 2 (N_L - N_S) T",),
    ("a token of the smaller model is worth as much",),
    valid=(sp.Gt(large, small),),
)  # fmt: skip
MONEY_CROSSOVER = form(
    "lifetime.cost_crossover", "Days until serving has cost as much as training", ("cost_crossover_days", "1"),
    train_cost / (serve_price * per_second * DAY),
    "definition",
    ("c rate t = K",),
    ("the rate stays the same", "serving costs what is used"),
)  # fmt: skip
RETRAINED = form(
    "lifetime.training_share", "Share of all cost over a horizon that goes to training", ("lifetime_training_share", "1"),
    runs * train_cost / (runs * train_cost + serve_price * per_second * horizon),
    "definition",
    ("k runs against rate times horizon",),
    ("the rate stays the same",),
)  # fmt: skip
RETRAIN_CROSSOVER = form(
    "lifetime.even_rate", "Tokens a second from which serving costs more than k training runs within a horizon", ("even_rate", "1/s"),
    runs * train_cost / (serve_price * horizon),
    "lifetime.training_share at a half",
    ("k K = c rate H",),
    ("the rate stays the same",),
)  # fmt: skip
VOTES_PRICE = form(
    "lifetime.answer_price", "Price of an answer chosen among several", ("answer_price", "USD"),
    votes * small_answer * price_small,
    "definition",
    ("every vote is written in full",),
    ("the prompt is computed once and costs little beside",),
)  # fmt: skip
