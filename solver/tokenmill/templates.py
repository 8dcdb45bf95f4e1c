"""Commented problem files, printed from what a stage declares; ``#key = value`` lines hold without their mark, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from math import isinf
from typing import Any

from tokenmill.errors import Mistake, ProblemError, nearest
from tokenmill.problem import Horizon, Limits, Ownership, Workload
from tokenmill.reading_keys import Key, key_of_input, keys_of
from tokenmill.reading_stage import PUBLISHED, StageKeys, stage_keys
from tokenmill.reading_values import bare_factor, listed
from tokenmill.units import example, format_quantity
from tokenmill_models.stage import ENCODER, PLANNED, Axis, Input, StageModel, stages

MODEL = "llama-3.1-8b"
READER = "bge-m3"  # of stages that take encoders
DEVICES = '["apple-m4-pro", "rtx-4090"]'
SERVER = "cpu-epyc-9654"
SHOWN = 6  # values of a choice
DEADLINE = 90 * 86400.0
LENGTH, RATE, LARGE_COUNT, SMALL_COUNT = 1000, 10, 1e9, 1024  # examples of what has no default
EXAMPLES: dict[str, Any] = {
    "ttft": "2 s", "tpot": "50 ms", "e2e": "30 s", "latency": "200 ms", "output_tokens": 250, "requests_per_second": RATE, "sequence_length": 4096, "critical_batch": 4096,
    "min_tokens_per_second": 20, "examples": 100_000, "pairs": 100_000, "texts": 1_000_000, "documents": 10_000_000,
}  # fmt: skip
"""Examples of what has no default, by the last word of the key, where one of its kind would mislead."""
_FREE = ("number", "word", "flag", "slices", "text", "lengths", "percentiles", "model")
HEADER = """# {doc}
# Lines that begin with #key are optional: they show the default, or an example; take the mark away to set them.
# A value with a dimension carries its unit. A list where one value is expected is a choice.
title = "{title}"
objective = {{ minimise = "{objective}" }}
#gap = 0.001
#time_limit = "60 s"
"""


def new(stage: str, known: Mapping[str, StageModel] | None = None) -> str:
    """Return a commented problem file of a stage, complete as it stands; `known`: the stages, else the registered ones.

    Raises
    ------
    ProblemError
        For a stage that is not there.
    """
    known = stages() if known is None else known
    if stage not in known:
        planned = " (this stage is planned and not there yet)" if stage in PLANNED else ""
        raise ProblemError([Mistake("stage", repr(stage[:60]), listed(known) + planned, nearest(stage, known))])
    model = known[stage]
    head = HEADER.format(doc=model.doc, title=f"A workload of {stage}", objective="cost")
    return "\n".join([head, *_common(bool(model.parts)), *_workload(model)]) + "\n"


def _line(label: str, text: str, doc: str, given: bool = False) -> str:
    return f"{'' if given else '#'}{f'{label} = {text}':<44} # {' '.join(doc.split())}"


def _common(named: bool) -> Iterator[str]:
    """Yield the tables before the workload; `named`: with systems, where pools of a run are tried on every combination of them."""
    for title, table in (("horizon", Horizon), ("limits", Limits), ("hardware.ownership", Ownership)):
        yield f"[{title}]"
        defaults: dict[str, Any] = {item.name: item.default for item in fields(table)}
        for label, (attribute, key) in keys_of(table).items():
            if key.kind in _FREE:
                yield _line(label, _text(key, defaults[attribute]), key.doc)
        yield ""
    yield "[hardware]"
    yield _line("systems", '["hgx-h100", "hgx-h200"]', "absent: all that are in production and have a price", named)
    yield _line("markets", '["on-demand", "reserved-1y"]', "buy, reserved-1y, reserved-3y, on-demand, spot")
    yield ""


def _workload(stage: StageModel) -> Iterator[str]:
    keys = stage_keys(stage)
    yield "[[workload]]"
    yield _line("name", f'"{stage.name}"', "its name", given=True)
    yield _line("stage", f'"{stage.name}"', "the step of the model's life", given=True)
    for label, (_, key) in keys_of(Workload).items():
        item = keys.common.get(label)
        if label == "deadline" and stage.demand is not None:  # its demand stands: nothing ends
            continue
        if label == "quality":
            yield _line(label, "{ int4 = 0.98 }", key.doc)
        elif key.kind in ("model", "number") and (item or label != "model"):
            default: Any = {"deadline": DEADLINE, "starts": 0.0, "min_quality": 0.0}.get(label)
            if item is not None and ENCODER in item.among:
                default = READER
            yield _line(label, _text(key, default), item.doc if item else key.doc, given=bool(item and item.required))
    lines = _lines(stage, keys)
    for table in sorted({table for table, _ in lines}):
        if table:
            yield f"\n[workload.{table}]"
        yield from (line for owner, line in lines if owner == table)


def _lines(stage: StageModel, keys: StageKeys) -> list[tuple[str, str]]:
    """Return (table, line) of every input and choice of a stage."""
    needed = {stage.demand.rate} if stage.demand else set()
    members = keys.members.get(keys.classes or "", {})
    shared = {dotted: members[label] for dotted, label in keys.shared().items()}
    needed |= {dotted for dotted, item in shared.items() if item.required}
    tables = {axis.key: _below(axis.key, keys.inputs) for axis in stage.axes}
    below = {f"{owner}.{label}" for owner, inputs in tables.items() for label in inputs}
    found: list[tuple[str, str]] = []
    for dotted, item in {**keys.inputs, **shared}.items():
        if dotted in keys.choices or dotted == keys.classes or item.kind == "records" or dotted in below:
            continue
        key = key_of_input(item)
        table, label = _split(dotted)
        if item.kind == "trace":  # in place of other keys, not beside them: a remark
            found.append((table, f'# or in place of them, {label} = "FILE": {item.doc}'))
            continue
        text = _text(key, item.default, EXAMPLES.get(label))
        found.append((table, _line(label, text, _explained(key), item.required or dotted in needed)))
    for owner, inputs in keys.members.items():
        table, label = _split(owner)
        found.append((table, _line(label, _record(inputs), "a list of tables" + _beside(owner == keys.classes))))
    for axis in stage.axes:
        table, label = _split(axis.key)
        text, doc = _choice(axis)
        if tables[axis.key]:
            text = f"{text[:-1]}, {_record(tables[axis.key])[1:]}"
        found.append((table, _line(label, text, doc)))
    for dotted, key in keys.choices.items():
        if dotted not in {axis.key for axis in stage.axes}:
            table, label = _split(dotted)
            devices = stage.demand is not None and dotted == stage.demand.devices
            text = DEVICES if devices else '"hgx-h100"' if key.of else "8"
            found.append((table, _line(label, text, key.doc, devices)))
    return found


def _below(owner: str, inputs: Mapping[str, Input]) -> dict[str, Input]:
    """Return the inputs of the table that a word of a choice may be given as, by their last word."""
    return {dotted[len(owner) + 1 :]: item for dotted, item in inputs.items() if dotted.startswith(f"{owner}.")}


def _choice(axis: Axis) -> tuple[str, str]:
    """Return the values of a choice as TOML, and what it is."""
    default = [value for value in axis.default or () if value != PUBLISHED]
    grid = [value for value in axis.values if value != PUBLISHED]
    values = default or grid[:SHOWN] or [1]
    absent = ", ".join(str(value).lower() for value in axis.default) if axis.default else "chosen"
    return f"[{', '.join(_plain(value) for value in values)}]", f"{axis.doc}; absent: {absent}"


def _split(dotted: str) -> tuple[str, str]:
    """Return the table right under the workload, and the rest of the key."""
    table, point, label = dotted.partition(".")
    return (table, label) if point else ("", table)


def _beside(classes: bool) -> str:
    return ", in place of the keys beside it" if classes else ""


def _explained(key: Key) -> str:
    return f"{key.doc}: {', '.join(key.among)}" if key.among else key.doc


def _record(inputs: Mapping[str, Input]) -> str:
    parts = (f"{label} = {_text(key_of_input(item), item.default)}" for label, item in inputs.items())
    return f"[{{ {', '.join(parts)} }}]"


def _text(key: Key, default: Any, sample: Any = None) -> str:
    """Return a value of a key as TOML: its default, else an example (`sample`, else one of its kind)."""
    value = _default(key, default if sample is None or key.kind == "percentiles" or _stated(default) else sample)
    if key.kind == "percentiles":
        return f'{{ {"p95" if "p95" in key.points else key.points[0]} = "{sample or example(key.dimension)}" }}'
    if key.kind == "table":
        return f"{{ name = {_plain(key.maximum or 1)} }}"
    if isinstance(value, int | float) and not isinstance(value, bool) and bare_factor(key, si=False) is None:
        return f'"{format_quantity(value / key.scale, key.dimension)}"'
    return _plain(value)


def _default(key: Key, default: Any) -> Any:
    """Return the default where a file could state it, else an example within the bounds."""
    if _stated(default):
        return default
    if key.kind == "flag":
        return True
    if key.kind in ("number", "slices", "lengths"):
        if bare_factor(key, si=False) is None:
            return example(key.dimension)
        if key.maximum is not None:
            return key.maximum
        large = LARGE_COUNT if not key.minimum else SMALL_COUNT
        return {"slices": RATE, "lengths": LENGTH}.get(key.kind, SMALL_COUNT if key.whole else large)
    return {"model": MODEL, "names": SERVER}.get(key.kind) or (*key.among, "text")[0]


def _stated(default: Any) -> bool:
    """Return whether a file could state a default."""
    return isinstance(default, str | bool | int) or (isinstance(default, float) and not isinf(default))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if value == int(value) and abs(value) >= 1e4:
        return f"{int(value):_}"
    return f"{value:.12g}" if isinstance(value, float) else str(value)
