"""Workloads: the common keys, then what the stage declares.

Nothing here names a stage, an input of one, or a role: all come from its StageModel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenmill.errors import nearest
from tokenmill.problem import Lengths, RequestClass, Workload
from tokenmill.reading_keys import Key, key_of_input, keys_of
from tokenmill.reading_stage import StageKeys, stage_keys
from tokenmill.reading_tables import read_fields, read_value, tables_of
from tokenmill.reading_trace import with_traces
from tokenmill.reading_values import Reading, check_sum, identifier, join, listed, several, show
from tokenmill_models.stage import PLANNED, Input, StageModel

CHOSEN = "chosen"
NO_MODEL = "none"
ONE_CLASS = "all"
_CLASS_NAME = Key("name", "identifier", "name of the class")
_LISTABLE = ("flag", "word")  # kinds of inputs of which a list is a choice


@dataclass
class _Found:
    """What one workload's stage keys gave so far; `shared`: member of the classes to its value, stated for all of them."""

    values: dict[str, Any] = field(default_factory=dict)
    held: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    role_held: dict[str, dict[str, tuple[Any, ...]]] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    classes: tuple[RequestClass, ...] | None = None
    given: set[str] = field(default_factory=set)


def workloads(raw: Any, path: str, state: Reading, stages: Mapping[str, StageModel]) -> tuple[Workload, ...]:
    """Read every [[workload]]; those with a mistake in what makes them up are noted and left out."""
    found = [_workload(item, place, state, stages) for place, item in tables_of(raw, path, state)]
    return tuple(item for item in found if item is not None)


def _workload(raw: Mapping[str, Any], path: str, state: Reading, stages: Mapping[str, StageModel]) -> Workload | None:
    stage = _stage(raw, path, state, stages)
    own = keys_of(Workload)
    if stage is None:
        read_fields({label: raw[label] for label in own if label in raw}, Workload, path, state)
        return None
    raw = with_traces(raw, path, stage, state)
    keys = stage_keys(stage)
    tables = tuple({leaf.partition(".")[0] for leaf in keys.leaves()} | set(keys.roles))
    common = read_fields(raw, Workload, path, state, others=tables)
    found = _Found(values={label: common[label] for label in keys.common if label in common})
    for label, item in keys.common.items():
        if item.required and label not in raw:
            state.refuse(join(path, label), "nothing", f"a value: {item.doc}")
    rest = {label: value for label, value in raw.items() if label not in own and label in tables}
    for dotted, here, value in _leaves(rest, "", path, keys, state):
        _read(dotted, here, value, keys, found, state)
    for label in keys.roles:
        if label in rest:
            _role(rest[label], label, join(path, label), keys, found, state)
    _absent(path, keys, found, state)
    if "name" not in common:
        return None
    made = Workload(
        **common, values=found.values, held=found.held, role_held=found.role_held, classes=found.classes or ()
    )
    state.places[id(made)] = path
    return made


def _stage(raw: Mapping[str, Any], path: str, state: Reading, stages: Mapping[str, StageModel]) -> StageModel | None:
    label = raw.get("stage")
    if isinstance(label, str) and label in stages:
        return stages[label]
    if "stage" in raw:
        allowed, near = listed(stages), None
        if isinstance(label, str):
            near = nearest(label, stages)
            allowed += " (this stage is planned and not there yet)" if label in PLANNED else ""
        state.refuse(join(path, "stage"), show(label), allowed, near)
    return None


def _leaves(
    raw: Mapping[str, Any], prefix: str, path: str, keys: StageKeys, state: Reading
) -> Iterator[tuple[str, str, Any]]:
    """Yield (dotted key, path, value) of every value below a table; note what nothing reads."""
    known = keys.leaves()
    for label, value in raw.items():
        dotted, here = f"{prefix}{label}", join(path, str(label))
        below = any(leaf.startswith(f"{dotted}.") for leaf in known)
        if below and dotted in keys.choices:
            words, table = _words_and_table(value, keys.choices[dotted].among[-1])
            yield dotted, here, words
            yield from _leaves(table, f"{dotted}.", here, keys, state)
        elif isinstance(value, Mapping) and below:
            yield from _leaves(value, f"{dotted}.", here, keys, state)
        elif dotted in known:
            yield dotted, here, value
        elif below:
            state.refuse(here, show(value), f"a table [{here}]")
        elif prefix or label not in keys.roles:
            beside = {leaf.removeprefix(prefix).partition(".")[0] for leaf in known if leaf.startswith(prefix)}
            state.unknown(path, label, beside)


def _words_and_table(value: Any, word: str) -> tuple[Any, Mapping[str, Any]]:
    """Return a choice with `word` in place of a table, and the table: its keys are inputs (a second table stays, and is refused)."""
    several = value if isinstance(value, list | tuple) else [value]
    at = next((i for i, item in enumerate(several) if isinstance(item, Mapping)), None)
    if at is None:
        return value, {}
    words = [word if i == at else item for i, item in enumerate(several)]
    return (words if isinstance(value, list | tuple) else word), several[at]


def _read(dotted: str, here: str, raw: Any, keys: StageKeys, found: _Found, state: Reading) -> None:
    """Read one value into `found`."""
    found.given.add(dotted)
    if dotted in keys.choices:
        _hold(found.held, dotted, raw, keys.choices[dotted], here, state)
        return
    if dotted == keys.classes:
        found.classes = _classes(raw, here, keys, state)
        return
    member = keys.shared().get(dotted)
    item = keys.inputs.get(dotted) or keys.members[keys.classes or ""][member or ""]
    key = key_of_input(item)
    if key.kind in _LISTABLE and isinstance(raw, list | tuple):
        _hold(found.held, dotted, raw, key, here, state)
        return
    if item.kind == "architecture" and not item.required and raw == NO_MODEL:
        return
    value = _records(raw, dotted, here, keys, state) if item.kind == "records" else read_value(raw, key, here, state)
    if value is None:
        return
    if dotted in keys.inputs:
        found.values[dotted] = value
    if member:
        found.shared[member] = value


def _hold(target: dict[str, tuple[Any, ...]], dotted: str, raw: Any, key: Key, path: str, state: Reading) -> None:
    """Read what the file allows for a choice: one value or a list of them; "chosen" leaves it free."""
    if raw == CHOSEN:
        return
    values = several(read_value)(raw, key, path, state)
    if values:
        target[dotted] = values


def _role(raw: Any, role: str, path: str, keys: StageKeys, found: _Found, state: Reading) -> None:
    """Read the choices of one role alone: by dotted key, or by last word (tp for layout.tp)."""
    if not isinstance(raw, Mapping):
        state.refuse(path, show(raw), f"a table [{path}]")
        return
    by_word: dict[str, str] = {}
    for dotted in sorted(keys.choices, key=lambda dotted: not dotted.startswith("layout.")):
        by_word.setdefault(dotted.rsplit(".", 1)[-1], dotted)
    flat: list[tuple[str, str, Any]] = []
    for label, value in raw.items():
        inner = {dotted for dotted in keys.choices if dotted.startswith(f"{label}.")}
        if isinstance(value, Mapping) and inner:
            flat += [(f"{label}.{last}", join(join(path, label), str(last)), item) for last, item in value.items()]
        else:
            flat.append((by_word.get(label, str(label)), join(path, str(label)), value))
    target: dict[str, tuple[Any, ...]] = {}
    for dotted, here, value in flat:
        if dotted in target:
            state.refuse(here, "a second value", f"{dotted} once")
        elif dotted in keys.choices:
            _hold(target, dotted, value, keys.choices[dotted], here, state)
        else:
            table, _, label = here.rpartition(".")
            state.unknown(table, label, [*by_word, *{dotted.partition(".")[0] for dotted in keys.choices}])
    if target:
        found.role_held[role] = target


def _members(
    raw: Mapping[str, Any], path: str, members: Mapping[str, Input], state: Reading, others: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Read one table of a list by the inputs that its keys are; without those absent, None for those mistaken."""
    values: dict[str, Any] = {}
    for label, value in raw.items():
        if label in members:
            values[label] = read_value(value, key_of_input(members[label]), join(path, label), state)
        elif label not in others:
            state.unknown(path, label, (*members, *others))
    return values


def _records(raw: Any, dotted: str, path: str, keys: StageKeys, state: Reading) -> tuple[dict[str, Any], ...]:
    """Read a list of tables that a stage declares."""
    members = keys.members.get(dotted, {})
    rows = []
    for place, item in tables_of(raw, path, state):
        row = _members(item, place, members, state)
        for label, member in members.items():
            if label not in item and member.required:
                state.refuse(join(place, label), "nothing", f"a value: {member.doc}")
            elif label not in item and member.default is not None:
                row[label] = member.default
        rows.append(row)
    return tuple(rows)


def _classes(raw: Any, path: str, keys: StageKeys, state: Reading) -> tuple[RequestClass, ...]:
    """Read the classes of requests; their shares sum to 1."""
    members = keys.members.get(keys.classes or "", {})
    tables = tables_of(raw, path, state)
    classes = []
    for i, (place, item) in enumerate(tables, start=1):
        values = _members(item, place, members, state, others=("name", "share"))
        share = values.pop("share", None)
        if "share" not in item:
            share = (
                1.0 if len(tables) == 1 else state.refuse(join(place, "share"), "nothing", "a share of the requests")
            )
        label = identifier(item["name"], _CLASS_NAME, join(place, "name"), state) if "name" in item else f"class-{i}"
        if share is not None and label is not None:
            classes.append(RequestClass(label, share, values))
    if tables and len(classes) == len(tables):
        check_sum((item.share for item in classes), path, state)
    return tuple(classes)


def _absent(path: str, keys: StageKeys, found: _Found, state: Reading) -> None:
    """Put defaults in place of what the file leaves out; note what it must not leave out."""
    for dotted, item in keys.inputs.items():
        if dotted in found.given:
            continue
        here = ".".join((path, dotted))
        if item.required:
            state.refuse(here, "nothing", f"a value: {item.doc}")
        elif item.default is not None:
            found.values[dotted] = _default(item)
            state.defaulted.append(here)
    state.defaulted.extend(".".join((path, dotted)) for dotted in keys.choices if dotted not in found.given)
    _complete_classes(path, keys, found, state)


def _complete_classes(path: str, keys: StageKeys, found: _Found, state: Reading) -> None:
    """Give every class its members: its own, else the one beside the list, else the default."""
    members = {label: item for label, item in keys.members.get(keys.classes or "", {}).items() if label != "share"}
    if found.classes is None:
        found.classes = (RequestClass(ONE_CLASS, 1.0, {}),)
    complete = []
    missing: dict[str, Input] = {}
    for made in found.classes:
        values = dict(made.values)
        for label, item in members.items():
            stated = label in found.shared or keys.level() + label in found.given
            if label in values or (stated and label not in found.shared):
                continue
            if label in found.shared:
                values[label] = found.shared[label]
            elif item.default is not None:
                values[label] = _default(item)
            elif item.required:
                missing[label] = item
        complete.append(RequestClass(made.name, made.share, values))
    found.classes = tuple(complete)
    for label, item in missing.items():
        state.refuse(".".join((path, keys.level() + label)), "nothing", f"a value: {item.doc}")


def _default(item: Input) -> Any:
    plain = item.kind == "lengths" and isinstance(item.default, int | float)
    return Lengths(float(item.default)) if plain else item.default
