"""Where serving overtakes training: tokens, days and shares at which two bills are equal."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.formula import DEFINITION, Formula, Source, register
from tokenmill_models.roofline import F
from tokenmill_models.symbols import constant, declare

KAPLAN = Source(
    "Kaplan et al. 2020, arXiv:2001.08361, section 2.1",
    (
        "training takes 6 FLOP a parameter and token: 2 forward, 4 backward",
        "a served token takes the 2 of the forward pass",
    ),
)


def _input(name: str, dimension: str, doc: str, latex: str | None = None) -> sp.Symbol:
    return declare(name, dimension, doc, origin=f"input.{name}", latex=latex, sign="positive")


TRAIN_FLOP = constant("train_flop", 6.0, "FLOP", "FLOP of training a parameter on a token")
SERVE_FLOP = constant("serve_flop", 2.0, "FLOP", "FLOP of a parameter on a served token")
N_train = _input("N_train", "1", "parameters active for a token of the trained model", r"N_{a,train}")
N_serve = _input("N_serve", "1", "parameters active for a token of the served model", r"N_{a,serve}")
D_train = _input("D_train", "1", "training tokens", "D")
C_train = _input("C_train", "FLOP", "training work", "C")
served_rate = _input("served_rate", "1/s", "tokens served a second")
served_tokens = _input("served_tokens", "1", "tokens served")
train_mfu = _input("train_mfu", "1", "MFU of training")
serve_mfu = _input("serve_mfu", "1", "MFU of serving")
train_time = _input("train_chip_time", "s", "chip time of training: chips times seconds")
serve_use = _input("serve_chips", "1", "chips that serving keeps busy")
task_tokens = _input("task_tokens", "1", "tokens of a task")

CROSSOVER = register(
    Formula(
        "lifecycle.crossover_tokens",
        "Served tokens whose inference FLOPs equal those of training",
        declare("crossover_tokens", "1", "served tokens at which the two bills are equal"),
        TRAIN_FLOP * N_train * D_train / (SERVE_FLOP * N_serve),
        KAPLAN,
        assumes=("attention over the context is left out on both sides",),
    )
)
CROSSOVER_FLOPS = register(
    Formula(
        "lifecycle.crossover_tokens_of_flops",
        "Served tokens whose inference FLOPs equal a stated training work",
        declare("crossover_tokens_of_flops", "1", "served tokens at which inference equals a training work"),
        C_train / (SERVE_FLOP * N_serve),
        KAPLAN,
        assumes=("attention over the context is left out",),
    )
)
CROSSOVER_MULTIPLE = register(
    Formula(
        "lifecycle.crossover_multiple",
        "Crossover tokens as a multiple of the training corpus: 3 for the same model, whatever its size",
        declare("crossover_multiple", "1", "crossover tokens over training tokens"),
        TRAIN_FLOP * N_train / (SERVE_FLOP * N_serve),
        KAPLAN,
        assumes=("attention over the context is left out on both sides",),
    )
)
CROSSOVER_TIME = register(
    Formula(
        "lifecycle.time_to_tokens",
        "Time to serve a number of tokens",
        declare("time_to_tokens", "s", "time to serve them"),
        served_tokens / served_rate,
        DEFINITION.by("tokens over tokens a second"),
        assumes=("a steady rate",),
    )
)
CROSSOVER_TASKS = register(
    Formula(
        "lifecycle.tasks_to_tokens",
        "Tasks that make up a number of tokens",
        declare("tasks_to_tokens", "1", "tasks"),
        served_tokens / task_tokens,
        DEFINITION.by("tokens over tokens of a task"),
        assumes=("tasks are alike",),
    )
)
SERVING_CHIPS = register(
    Formula(
        "lifecycle.serving_chips",
        "Chips that serving a rate of tokens keeps busy (chip-hours an hour)",
        declare("serving_chips", "1", "chips kept busy by serving"),
        SERVE_FLOP * N_serve * served_rate / (F * serve_mfu),
        KAPLAN,
        assumes=("the MFU of serving holds at this rate",),
    )
)
CROSSOVER_CHIP_TIME = register(
    Formula(
        "lifecycle.chip_time_crossover",
        "Time until serving has taken as many chip-hours as training",
        declare("chip_time_crossover", "s", "time until the chip-hours are equal"),
        train_time / serve_use,
        DEFINITION.by("training has taken chips times time", "serving takes its busy chips every second: divide"),
        assumes=("serving is steady",),
    )
)
CROSSOVER_SHIFT = register(
    Formula(
        "lifecycle.crossover_shift",
        "How much earlier chip-hours cross than FLOPs do",
        declare("crossover_shift", "1", "chip-hour crossover over FLOP crossover"),
        serve_mfu / train_mfu,
        Source("definition of MFU", ("chip-hours are FLOPs over peak times MFU, on each side",)),
        assumes=("the same chips on both sides",),
    )
)
