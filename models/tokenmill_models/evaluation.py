"""The evaluation stage: prompts × passes as throughput work, on replicas that are always full; a judge works beside them.

It is a run of serving's mixed step without arrivals: the prompts are there from the start, so that only the rate counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import sympy as sp

from tokenmill_models import energy
from tokenmill_models import evaluation_leaves as own
from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.batch_inference import always_full
from tokenmill_models.formula import Graph, Source
from tokenmill_models.stage import Role, Rule, StageModel, register_stage
from tokenmill_models.symbols import declare

DRAIN = Source(
    "a batch run ends with its last answers: the work at the full rate, then the time of a long answer",
    ("answers start as others end until prompts run out", "a long answer: one of a hundred is longer"),
)
written = declare("eval_written", "1", "answer tokens of the run")
_PARTS = {
    name: {
        port: declare(f"{name}_{port}", dimension, f"{port} of the part {name}", origin=f"part.{name}.{port}")
        for port, dimension in (("ranks", "1"), ("time", "s"), ("power_idle", "W"), ("power_loaded", "W"))
    }
    for name in ("mixed", "judge")
}


def answers() -> sp.Expr:
    """Answers [1] of the run: every prompt, as often as it is passed."""
    return own.prompts * own.passes


@lru_cache(maxsize=16)
def answering(arch: Architecture, name: str) -> Role:
    """Return the part that answers prompts (``mixed``) or judges answers (``judge``): replicas of one layout, always full."""
    lengths = own.JUDGEMENTS if name == "judge" else own.ANSWERS
    role = always_full(arch, own.substitution(lengths))
    graph = Graph(dict(role.graph.formulas))
    _counted(graph)
    long = next(parts["p99"] for key, (_, parts) in lengths.items() if key.endswith("output_tokens"))
    rate = graph.let("eval_rate", "1/s", "answers a second of all replicas", role.ports["rate"] * own.replicas)
    ports = {
        "ranks": graph.let("eval_ranks", "1", "ranks of all replicas", leaf.ranks * own.replicas),
        "time": graph.let("eval_time", "s", "time of all answers: at the full rate, then a long one to the end",
                          answers() / rate + long * role.figures["step_time"], source=DRAIN),
        "power_idle": graph.let("eval_power_idle", "W", "draw of all replicas at rest", role.ports["power_idle"] * own.replicas),
        "power_loaded": graph.let("eval_power_loaded", "W", "draw of all replicas at work", role.ports["power_loaded"] * own.replicas),
    }  # fmt: skip
    figures = {**role.figures, "requests_per_second": rate, "wall_time": ports["time"]}
    rules = (
        *role.rules,
        Rule("filled", leaf.batch * own.replicas, answers(), "at_most", "there are prompts for all that run at once", cure="layout.replicas"),
    )  # fmt: skip
    axes = (*role.axes, own.AXES["replicas"])
    model = own.judged if name == "judge" else None
    return replace(role, name=name, axes=axes, graph=graph, rules=rules, ports=ports, figures=figures, model=model)


def _counted(graph: Graph) -> None:
    """Define what the run yields."""
    graph.let("eval_written", "1", "answer tokens of the run", answers() * own.ANSWERS["output_tokens"][0])


def alone(arch: Architecture) -> Role:
    """Return the run without a judge."""
    part = answering(arch, "mixed")
    ports = {"duration": part.ports["time"]} | {name: symbol for name, symbol in part.ports.items() if name != "time"}
    return replace(part, kind="run", ports=ports, rules=(*part.rules, _held(ports["ranks"])))


def with_judge(arch: Architecture, judge: Architecture) -> Role:
    """Return the run whose answers a second pool judges while more are written; it is large enough to keep up.

    The programme is charged the power limit of the devices, since parts are told apart by size and time alone.
    """
    graph = Graph()
    _counted(graph)
    ports = {
        f"run_{name}": graph.let(f"run_{name}", dimension, f"{name} of both pools", _PARTS["mixed"][name] + _PARTS["judge"][name])
        for name, dimension in (("ranks", "1"), ("power_idle", "W"), ("power_loaded", "W"))
    }  # fmt: skip
    ports = {name.removeprefix("run_"): symbol for name, symbol in ports.items()}
    ports["duration"] = graph.let("eval_wall", "s", "length of the run: that of its answers", _PARTS["mixed"]["time"])
    parts = {"mixed": _sized(answering(arch, "mixed")), "judge": _sized(answering(judge, "judge"))}
    rules = (
        _held(ports["ranks"]),
        Rule(
            "pace",
            _PARTS["judge"]["time"],
            _PARTS["mixed"]["time"],
            "at_most",
            "the judge keeps up with the answers",
            "s",
        ),
    )
    judging = graph.let(
        "eval_judging", "s", "time that the judge's pool takes for all answers", _PARTS["judge"]["time"]
    )
    figures = {"wall_time": ports["duration"], "judge_time": judging, "power": ports["power_loaded"]}
    return Role("evaluation", "run", (), graph, rules, (), ports, figures, parts=parts)


def _sized(part: Role) -> Role:
    """Return a part that can be paired: power at the limit of its devices, so that rows differ by size and time; replicas doubled."""
    graph = Graph(dict(part.graph.formulas))
    limit = graph.let("eval_limit", "W", "power limit of all replicas", energy.tdp * part.ports["ranks"])
    axes = (*part.axes[:-1], replace(part.axes[-1], values=own.DOUBLED))
    return replace(part, axes=axes, graph=graph, ports={**part.ports, "power_loaded": limit})


def _held(ranks: sp.Symbol) -> Rule:
    held = leaf.held_chips * leaf.ranks_a_chip
    return Rule("chips", held, ranks, "equal", "chips held are those of the whole run", cure="layout.chips")


def _staffed(architecture: Any, models: Mapping[str, Any], _: Mapping[str, Any]) -> tuple[Role, ...]:
    judge = models.get(own.judged)
    return (alone(architecture),) if judge is None else (with_judge(architecture, judge),)


EVALUATION = register_stage(
    StageModel(
        name="evaluation",
        doc="Answer a suite of prompts, perhaps several times each and judged, as throughput work by a deadline.",
        inputs=own.INPUTS,
        roles=lambda architecture: (alone(architecture),),
        staffed=_staffed,
        yields={"cost_per_token": {"output": written}},
        axes=tuple(own.AXES.values()),
    )
)
