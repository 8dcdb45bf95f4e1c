"""Readers of tables: a dataclass of problem.py from its keys, lists of them, and the ones of a form of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from tokenmill.problem import CustomChip
from tokenmill.reading_keys import Key, keys_of
from tokenmill.reading_values import LONGEST_LIST, SIMPLE, Reader, Reading, chip_fields, identifier, join, show


def read_value(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read what one key holds by its kind; None where it is mistaken."""
    if key.kind in SIMPLE:
        return SIMPLE[key.kind](raw, key, path, state)
    return (NESTED | state.nested)[key.kind](raw, key, path, state)


def read_fields(
    raw: Mapping[str, Any], table: Any, path: str, state: Reading, others: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Read every key of a dataclass: attribute to value, without those mistaken or absent.

    Notes unknown keys (`others` are known elsewhere), required ones that miss, and those left to their defaults.
    """
    keys = keys_of(table)
    for label in raw:
        if label not in keys and label not in others:
            state.unknown(path, label, (*keys, *others))
    found: dict[str, Any] = {}
    for label, (attribute, key) in keys.items():
        here = join(path, label)
        if label in raw:
            value = read_value(raw[label], key, here, state)
            if value is not None:
                found[attribute] = value
        elif key.required:
            state.refuse(here, "nothing", f"a value: {key.doc}")
        else:
            state.defaulted.append(here)
    return found


def _made(table: Any, found: Mapping[str, Any]) -> Any:
    """Return the dataclass, or None where a required value was mistaken."""
    complete = all(attribute in found for attribute, key in keys_of(table).values() if key.required)
    return table(**found) if complete else None


def record(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read one table."""
    if not isinstance(raw, Mapping):
        return state.refuse(path, show(raw), f"a table [{path}]")
    made = _made(key.table, read_fields(raw, key.table, path, state))
    state.places[id(made)] = path
    return made


def tables_of(raw: Any, path: str, state: Reading) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the tables of a list with their paths: by name where they have one of their own, else by place."""
    if not isinstance(raw, list | tuple) or not 0 < len(raw) <= LONGEST_LIST:
        state.refuse(path, show(raw), f"tables [[{path}]], 1 to {LONGEST_LIST}")
        return []
    labels = [item.get("name") if isinstance(item, Mapping) else None for item in raw]
    found = []
    for i, (item, label) in enumerate(zip(raw, labels, strict=True)):
        named = isinstance(label, str) and 0 < len(label) <= 64
        place = join(path, str(label)) if named and labels.count(label) == 1 else f"{path}[{i}]"
        if not isinstance(item, Mapping):
            state.refuse(place, show(item), f"a table [[{path}]]")
            continue
        if named and label in labels[:i]:
            state.refuse(f"{place}.name", f"{show(label)} a second time", "a name of its own")
        found.append((place, item))
    return found


def records(raw: Any, key: Key, path: str, state: Reading) -> tuple[Any, ...]:
    """Read a list of tables."""
    made = [record(item, key, place, state) for place, item in tables_of(raw, path, state)]
    return tuple(item for item in made if item is not None)


def tuples(raw: Any, key: Key, path: str, state: Reading) -> tuple[tuple[Any, ...], ...]:
    """Read a list of tables into plain tuples."""
    return tuple(astuple(item) for item in records(raw, key, path, state))


def one_or_more(raw: Any, key: Key, path: str, state: Reading) -> tuple[Any, ...]:
    """Read one table, or a list of them."""
    if isinstance(raw, list | tuple):
        return records(raw, key, path, state)
    made = record(raw, key, path, state)
    return () if made is None else (made,)


def chips(raw: Any, key: Key, path: str, state: Reading) -> tuple[CustomChip, ...]:
    """Read chips of the user's own."""
    found = []
    for place, item in tables_of(raw, path, state):
        fields = chip_fields(item, place, state, others=("name",))
        if "name" not in item:
            state.refuse(join(place, "name"), "nothing", "a value: its name")
        elif label := identifier(item["name"], key, join(place, "name"), state):
            found.append(CustomChip(label, fields, fields.pop("like", None)))
    return tuple(found)


NESTED: dict[str, Reader] = {
    "record": record,
    "records": records,
    "tuples": tuples,
    "one_or_more": one_or_more,
    "chips": chips,
}
