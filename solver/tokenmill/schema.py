"""The JSON Schema of problem files, from the keys of problem.py and the inputs and choices of the stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tokenmill import answer_lengths
from tokenmill.problem import Problem, Workload
from tokenmill.reading_keys import Key, key_of_input, keys_of
from tokenmill.reading_stage import StageKeys, stage_keys
from tokenmill.reading_values import CHIP_KEYS, bare_factor
from tokenmill.units import example
from tokenmill_models.stage import StageModel, stages

Schema = dict[str, Any]

_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
COUNT = rf"^\s*{_NUMBER}\s*[kMGTPE]?([A-Za-z]+)?\s*$"
QUANTITY = rf"^\s*{_NUMBER}\s*[A-Za-zµ/][A-Za-zµ0-9/*^]{{0,39}}\s*$"
MONEY = rf"^\s*(\$\s*{_NUMBER}[A-Za-z0-9/*^]{{0,40}}|{_NUMBER}\s*[A-Za-z]*USD[A-Za-z0-9/*^]{{0,37}})\s*$"


def schema(known: Mapping[str, StageModel] | None = None) -> Schema:
    """Return the JSON Schema of a problem file; `known`: the stages, the registered ones where absent."""
    known = stages() if known is None else known
    made = _object(keys_of(Problem).values())
    made["properties"]["workload"] = {
        "type": "array",
        "minItems": 1,
        "items": {"oneOf": [_workload(stage) for stage in known.values()]},
        "description": "the work: one table a stage of one model",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A problem of tokenmill",
        "description": "Values with a dimension are text with a unit, such as 80 GB or $2.10/h.",
        **made,
    }


def _object(keys: Iterable[tuple[str, Key]]) -> Schema:
    found = [(key.name or attribute, key) for attribute, key in keys]
    made = _table({label: value(key) for label, key in found if key.kind != "workloads"})
    required = [label for label, key in found if key.required]
    return made | ({"required": required} if required else {})


def value(key: Key) -> Schema:
    """Return the schema of what one key holds."""
    return _KINDS.get(key.kind, _text)(key) | {"description": key.doc}


def _text(key: Key) -> Schema:
    return {"type": "string"}


def _number(key: Key) -> Schema:
    bare: Schema = {"type": "integer" if key.whole else "number"}
    if key.above is not None:
        bare["exclusiveMinimum"] = key.above
    elif key.minimum is not None:
        bare["minimum"] = key.minimum
    if key.maximum is not None:
        bare["maximum"] = key.maximum
    if key.dimension == "1":
        return {"anyOf": [bare, {"type": "string", "pattern": COUNT}]}
    pattern = MONEY if key.dimension.startswith("USD") else QUANTITY
    united: Schema = {"type": "string", "pattern": pattern, "examples": [example(key.dimension)]}
    return united if bare_factor(key, si=False) is None else {"anyOf": [bare, united]}


def _table(properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _map(inner: Schema) -> Schema:
    return {"type": "object", "additionalProperties": inner}


def _several(inner: Schema) -> Schema:
    return {"anyOf": [inner, {"type": "array", "minItems": 1, "items": inner}]}


def _word(key: Key) -> Schema:
    return {"enum": list(key.among)}


def _lengths(key: Key) -> Schema:
    count: Schema = {"type": "number", "exclusiveMinimum": 0}
    table = _table({"mean": count, "p95": count})
    named: list[Schema] = [{"enum": list(answer_lengths.by_task())}] if key.name == answer_lengths.COLUMN else []
    return {"anyOf": [_number(key), table | {"required": ["mean"]}, *named]}


def _percentiles(key: Key) -> Schema:
    inner = _number(key)
    return _table(dict.fromkeys(key.points, inner))


def _records(key: Key) -> Schema:
    return {"type": "array", "minItems": 1, "items": _object(keys_of(key.table).values()) if key.table else {}}


def _chip() -> Schema:
    return _table({label: value(key) for label, key in CHIP_KEYS.items()})


def _chips(key: Key) -> Schema:
    made = _chip()
    made["properties"]["name"] = {"type": "string"}
    return {"type": "array", "minItems": 1, "items": made | {"required": ["name"]}}


_KINDS: dict[str, Callable[[Key], Schema]] = {
    "number": _number,
    "flag": lambda key: {"type": "boolean"},
    "word": _word,
    "words": lambda key: _several(_word(key)),
    "members": lambda key: _several(_word(key)),
    "names": lambda key: _several(_text(key)),
    "table": lambda key: _map(_number(key)),
    "shares": lambda key: _map(_number(key)),
    "slices": lambda key: {"anyOf": [_number(key), _map(_number(key))]},
    "by_slice": lambda key: {"anyOf": [_number(key), _map(_number(key))]},
    "lengths": _lengths,
    "percentiles": _percentiles,
    "record": lambda key: _object(keys_of(key.table).values()),
    "records": _records,
    "tuples": _records,
    "one_or_more": lambda key: {"anyOf": [_object(keys_of(key.table).values()), _records(key)]},
    "chips": _chips,
    "chip_table": lambda key: _map(_chip()),
}


def _workload(stage: StageModel) -> Schema:
    keys = stage_keys(stage)
    made = _object(keys_of(Workload).values())
    made["description"] = stage.doc
    made["properties"]["stage"] = {"const": stage.name}
    made["required"] += [label for label, item in keys.common.items() if item.required]
    for dotted, leaf in _leaves(keys).items():
        _put(made, dotted, leaf)
    choices = _table({})
    for dotted, choice in keys.choices.items():
        _put(choices, dotted, _choice(choice))
        choices["properties"].setdefault(dotted.rsplit(".", 1)[-1], _choice(choice))
    made["properties"] |= dict.fromkeys(keys.roles, choices)
    return made


def _choice(key: Key) -> Schema:
    return {"anyOf": [{"const": "chosen"}, _several(value(key))], "description": key.doc}


def _leaves(keys: StageKeys) -> dict[str, Schema]:
    leaves = {dotted: value(key_of_input(item)) for dotted, item in keys.inputs.items()}
    for dotted, members in keys.members.items():
        rows = {label: value(key_of_input(item)) for label, item in members.items()}
        if dotted == keys.classes:
            rows = {"name": {"type": "string"}, "share": {"type": "number"}} | rows
        leaves[dotted] = {"type": "array", "minItems": 1, "items": _table(rows)}
    for dotted, member in keys.shared().items():
        leaves.setdefault(dotted, value(key_of_input(keys.members[keys.classes or ""][member])))
    return leaves | {dotted: _choice(key) for dotted, key in keys.choices.items()}


def _put(made: Schema, dotted: str, leaf: Schema) -> None:
    """Place a leaf under its tables."""
    *tables, label = dotted.split(".")
    for table in tables:
        made = made["properties"].setdefault(table, _table({}))
    there = made["properties"].get(label)
    made["properties"][label] = {"anyOf": [there, _several({"anyOf": [there, leaf]})]} if there else leaf
