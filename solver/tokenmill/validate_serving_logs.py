"""Scores the simulation against request logs of engines: each replayed on the plan of the set-up that wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tokenmill import data
from tokenmill.api import solve
from tokenmill.imports.traces import read_trace
from tokenmill.reading import load_problem
from tokenmill.simulate import Options, simulate
from tokenmill.simulate_steps import plan_leaves
from tokenmill.validate import Evaluation, Outcome
from tokenmill.validate_serving_rows import names

WORDS = {"p50": 50, "p95": 95}
IN_PROGRESS, AHEAD = 0.5, 1.0
"""Steps that a request waits for before its stamp, and after it: vLLM prepares a step while another runs (asynchronous scheduling)."""
NAME = "log"
LITTLE = 0.2
"""Requests a second of the plan: one replica is enough, the log brings its own times."""


def evaluate(name: str) -> Evaluation:
    """Return the outcomes of the request logs: median and 95th percentile of the times to first token and per token."""
    logs = names()["logs"]
    return Evaluation([outcome for log, setup in logs.items() for outcome in _replayed(log, setup)], len(logs))


def _replayed(log: str, setup: Mapping[str, Any]) -> Iterator[Outcome]:
    trace = read_trace(data.path("measured") / "traces" / setup["trace"])
    plan = solve(load_problem(_problem(setup)))
    report = simulate(plan, trace, options=Options(slots=setup["slots"]))
    (pool,) = plan.workloads[NAME].pools
    leaves = plan_leaves(plan.trace, f"{NAME}.{pool.role}")
    # The engine wrote its own times: what the front end adds until the first token is sent is not in them. It stamps a request when it
    # looks at its queue, between two steps, so that the rest of the step in progress (half of one) is not in them either; but the
    # step that it had prepared ahead by then runs first.
    late = leaves["engine_request"] + (leaves["engine_stream"] + IN_PROGRESS - AHEAD) * report.tpot["p50"]
    first = {word: max(0.0, seconds - late) for word, seconds in report.ttft.items()}
    for figure, simulated in (("ttft", first), ("tpot", report.tpot)):
        for word, percent in WORDS.items():
            measured = float(np.nanpercentile(trace.measured[figure], percent))
            yield Outcome(setup["system"], f"{figure}.{word}", log, simulated[word], measured)


def _problem(setup: Mapping[str, Any]) -> dict[str, Any]:
    ranks = setup["ranks"]
    return {
        "objective": {"minimise": "cost"},
        "hardware": {"systems": [setup["system"]], "owned": [{"system": setup["system"], "count": 1}]},
        "workload": [{
            "name": NAME,
            "stage": names()["stage"],
            "model": setup["model"],
            "demand": {"requests_per_second": LITTLE, "input_tokens": 860, "output_tokens": 660},
            "engine": {"name": "vllm", "disaggregated": False, "chunk": setup["chunk"], "attention_dp": ranks},
            "layout": {"chips": ranks, "tp": 1, "pp": 1, "ep": ranks},
            "precision": {"weights": "bf16"},
        }],
    }  # fmt: skip
