"""A file of requests in place of what a workload would state of its demand: classes, rate, gaps, prefix hits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenmill.errors import TokenmillError
from tokenmill.reading_values import Reading, join
from tokenmill_models.stage import Input, StageModel

CLASSES = "classes"


def with_traces(raw: Mapping[str, Any], path: str, stage: StageModel, state: Reading) -> Mapping[str, Any]:
    """Return a workload's table with what its traces measure under the keys that they fill; a key that is stated stays.

    Lengths beside a trace are refused: they are what it measures.
    """
    for item in stage.inputs:
        name = _at(raw, item.name) if item.kind == "trace" else None
        if isinstance(name, str):
            raw = _filled(raw, path, item, name, stage, state)
    return raw


def _filled(
    raw: Mapping[str, Any], path: str, item: Input, name: str, stage: StageModel, state: Reading
) -> Mapping[str, Any]:
    from tokenmill.imports.traces import facts, read_trace, request_classes

    here = join(path, item.name)
    twice = [key for key in _lengths(item, stage) if _at(raw, key) is not None]
    if twice:
        state.refuse(join(path, twice[0]), "given beside a trace", f"one of the two: {item.name} measures it")
        return raw
    try:
        trace = read_trace(state.base / name)
    except TokenmillError as error:
        state.refuse(here, str(error), "a request trace: see tokenmill import trace")
        return raw
    found, classes = facts(trace), request_classes(trace)
    measured = {
        CLASSES: classes, "rate": found.requests_per_second, "gap_cv": found.arrival_cv,
        "prefix_hit": found.prefix_hit, "shared_head": _head_of_all(found.shared_head, classes), "surge": found.surge,
    }  # fmt: skip
    for what, key in item.fills.items():
        if _at(raw, key) is None and measured[what] is not None:
            raw = _put(raw, key.split("."), measured[what])
    return raw


def _head_of_all(head: float | None, classes: list[dict[str, Any]]) -> float | None:
    """Return the shared head [tokens] as far as the mean prompt of every class reaches: more than half hold it, not all."""
    prompts = (one["input_tokens"] for one in classes)
    means = [one["mean"] if isinstance(one, Mapping) else one for one in prompts]
    return None if head is None else min(head, *means)


def _lengths(item: Input, stage: StageModel) -> list[str]:
    """Return the keys that state what the trace's classes hold: the list of classes, and its members beside it."""
    owner = item.fills[CLASSES]
    level = owner.rpartition(".")[0]
    members = [one.name.partition("[].")[2] for one in stage.inputs if one.name.startswith(f"{owner}[].")]
    return [owner, *(f"{level}.{member}" for member in members if member != "share")]


def _at(raw: Any, dotted: str) -> Any:
    for step in dotted.split("."):
        raw = raw.get(step) if isinstance(raw, Mapping) else None
    return raw


def _put(raw: Mapping[str, Any], steps: list[str], value: Any) -> dict[str, Any]:
    """Return a table with a value under nested keys; the tables on the way are copied."""
    first, *rest = steps
    inner = raw.get(first)
    return {**raw, first: _put(inner if isinstance(inner, Mapping) else {}, rest, value) if rest else value}
