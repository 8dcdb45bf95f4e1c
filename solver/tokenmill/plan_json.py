"""Plans to JSON and back, and files written whole or not at all."""

from __future__ import annotations

import json
import os
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from tokenmill.errors import Mistake, ProblemError
from tokenmill.plan import SCHEMA, Plan

DIGITS = 12


def encode(value: Any) -> Any:
    """Return JSON data of plain values, mappings, sequences and dataclasses; floats to 12 digits, infinite ones None."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return float(f"{number:.{DIGITS}g}") if isfinite(number) else None
    if is_dataclass(value):
        return {_json_name(item): encode(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [encode(item) for item in value]
    return float(value) if hasattr(value, "__float__") else str(value)


def dump(data: Any) -> str:
    """Return JSON text with a line end."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _json_name(item: Any) -> str:
    return str(item.metadata.get("json", item.name))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def decode(kind: Any, data: Any, place: str = "plan") -> Any:
    """Return `data` as the annotated type `kind` (dataclasses, tuples, mappings, unions of them).

    Raises
    ------
    ProblemError
        Where a table or list is asked and something else found, or a key is missing.
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(kind), data, place)
    if is_dataclass(kind) and isinstance(kind, type):
        return _decode_record(kind, data, place)
    if origin is tuple:
        _expect(data, list, "a list", place)
        arguments = get_args(kind)
        if arguments[-1] is Ellipsis:
            return tuple(decode(arguments[0], item, f"{place}[{i}]") for i, item in enumerate(data))
        return tuple(data)
    if origin is not None and issubclass(origin, Mapping):
        _expect(data, dict, "a table", place)
        keys, values = get_args(kind)
        read_key = int if keys is int else str
        return {read_key(key): decode(values, item, f"{place}.{key}") for key, item in data.items()}
    return data


def _decode_union(kinds: tuple[Any, ...], data: Any, place: str) -> Any:
    records = [kind for kind in kinds if is_dataclass(kind)]
    return decode(records[0], data, place) if records and isinstance(data, dict) else data


def _decode_record(kind: type, data: Any, place: str) -> Any:
    _expect(data, dict, "a table", place)
    names = {_json_name(item): item.name for item in fields(kind)}
    hints = _hints(kind)
    values = {
        names[key]: decode(hints[names[key]], item, f"{place}.{key}") for key, item in data.items() if key in names
    }
    try:
        return kind(**values)
    except TypeError as error:
        missing = [key for key, name in names.items() if name not in values]
        raise ProblemError(
            [Mistake(place, f"no {', '.join(missing)}", "a plan written by this version of tokenmill")]
        ) from error


def _expect(data: Any, kind: type, allowed: str, place: str) -> None:
    if not isinstance(data, kind):
        raise ProblemError([Mistake(place, type(data).__name__, allowed)])


def read(path: Path) -> Plan:
    """Read a plan from a JSON file; see `plan.load_plan`."""
    try:
        if path.exists() and not path.is_file():  # a device or pipe never ends
            raise ValueError("no regular file")
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProblemError([Mistake(str(path), str(error), "a readable JSON file with a plan")]) from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or "objective" not in data:
        found = f"schema {data.get('schema')!r}" if isinstance(data, dict) else type(data).__name__
        raise ProblemError([Mistake(str(path), found, f"a plan with schema {SCHEMA}")])
    plan: Plan = decode(Plan, data)
    return plan


def write_text(text: str, path: str | Path) -> None:
    """Write text to a file, whole or not at all: aside first, then renamed.

    Raises
    ------
    ProblemError
        Where the file cannot be written; nothing is left behind.
    """
    target = Path(path)
    # a device such as /dev/stdout cannot be renamed over
    aside = (
        target.with_name(f".{target.name}.{os.getpid()}.part") if target.is_file() or not target.exists() else target
    )
    try:
        aside.write_text(text, encoding="utf-8")
        if aside != target:
            os.replace(aside, target)
    except OSError as error:
        if aside != target:
            aside.unlink(missing_ok=True)
        found = error.strerror or str(error)
        raise ProblemError(
            [Mistake(str(target), found, "a file in a folder that exists and can be written")]
        ) from error
