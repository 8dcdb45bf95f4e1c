"""Readers of single values: each takes what the file holds and its Key, and returns an SI value, or notes one mistake and
returns None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, isfinite
from numbers import Real
from pathlib import Path
from typing import Any, Protocol

from tokenmill import answer_lengths
from tokenmill.errors import Mistake, ProblemError, nearest
from tokenmill.problem import CHIP_DIMENSIONS, Lengths
from tokenmill.reading_keys import Key
from tokenmill.units import QuantityError, describe, format_quantity, parse_quantity

LONGEST_NAME = 200
LONGEST_LIST = 1000
LARGEST = 1e30  # products of a few such numbers are still finite
MOST_MISTAKES = 1000  # a file with more is no problem file; reading stops
# A lognormal's p95 over its mean is exp(z sigma - sigma^2 / 2), largest at sigma = z = 1.645 (its 95th percentile)
LARGEST_P95_RATIO = exp(1.6448536269514722**2 / 2)
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
# A key whose own name carries its unit takes a bare number: ending, dimension, factor to SI
_CARRIED = (("seconds", "s", 1.0), ("per_second", "1/s", 1.0), ("per_day", "1/s", 1 / 86400.0))


Reader = Callable[[Any, Key, str, "Reading"], Any]


class Vocabulary(Protocol):
    """Says of a name whether it is known: None, or (what is allowed, nearest known name)."""

    def check(self, of: str, name: str) -> tuple[str, str | None] | None:
        """Return None for a known name."""

    def slices(self) -> Any:
        """Return the slices of the day."""


@dataclass
class Reading:
    """What a reading knows and gathers.

    `si`: bare numbers are SI (Python); `base`: the folder of paths; `mistakes`; `defaulted`: keys left out; `places`:
    id of a table made to its path; `nested`: readers of the kinds that need more than this.
    """

    names: Vocabulary
    base: Path = Path()
    si: bool = False
    mistakes: list[Mistake] = field(default_factory=list)
    defaulted: list[str] = field(default_factory=list)
    places: dict[int, str] = field(default_factory=dict)
    nested: dict[str, Reader] = field(default_factory=dict)

    def refuse(self, path: str, found: str, allowed: str, near: str | None = None) -> Any:
        """Note one mistake; return None, which a reader returns in place of a value."""
        self.mistakes.append(Mistake(path, found, allowed, near))
        if len(self.mistakes) >= MOST_MISTAKES:
            raise ProblemError(self.mistakes)

    def unknown(self, path: str, name: Any, known: Iterable[str]) -> None:
        """Note a key that nothing reads."""
        known = sorted(known)
        self.refuse(join(path, str(name)[:LONGEST_NAME]), "an unknown key", listed(known), nearest(str(name), known))


def join(path: str, name: str) -> str:
    """Return the path of a key within a table; a name with a point in it stands in quotes."""
    name = f'"{name}"' if "." in name else name
    return f"{path}.{name}" if path else name


def show(value: Any) -> str:
    """Return a value as found, short whatever its size."""
    if isinstance(value, Mapping):
        return f"a table with {', '.join(str(name)[:20] for name in list(value)[:4]) or 'nothing in it'}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, str):
        return repr(value) if len(value) <= 80 else f"{value[:60]!r}… ({len(value)} characters)"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a whole number of over 20 digits"
    return str(value)[:80]


def listed(words: Iterable[str]) -> str:
    """Return words in a row, not more than forty."""
    words = list(words)
    return ", ".join(words[:40]) + (", …" if len(words) > 40 else "") or "nothing"


def bounds(key: Key) -> str:
    """Return the allowed values of a number in words."""
    parts = []
    if key.above is not None:
        parts.append(f"above {_bound(key.above, key)}")
    elif key.minimum is not None:
        parts.append(f"at least {_bound(key.minimum, key)}")
    if key.maximum is not None:
        parts.append(f"at most {_bound(key.maximum, key)}")
    kind = "a whole number" if key.whole else describe(key.dimension) if key.dimension != "1" else "a number"
    return f"{kind} {' and '.join(parts)}".rstrip()


def _bound(value: float, key: Key) -> str:
    return f"{value:g}" if key.dimension == "1" or not value else format_quantity(value, key.dimension)


def number(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read one number: text with a unit, or a bare one where the dimension, the key's name or Python allows it."""
    value: float
    if isinstance(raw, str):
        try:
            value = parse_quantity(raw, key.dimension) * key.scale
        except QuantityError as error:
            return state.refuse(path, error.found, bounds(key))
    elif isinstance(raw, bool) or not isinstance(raw, Real):
        many = isinstance(raw, list | tuple) and raw
        return state.refuse(path, show(raw), f"one value, {bounds(key)}" if many else bounds(key))
    else:
        factor = bare_factor(key, state.si)
        if factor is None:
            return state.refuse(path, f"{show(raw)} without a unit", bounds(key))
        try:
            value = float(raw) * factor
        except OverflowError:
            value = float("inf")
    return _bounded(value, raw, key, path, state)


def bare_factor(key: Key, si: bool) -> float | None:
    """Return the factor to SI of a number without a unit, None where the key needs one."""
    for ending, dimension, factor in _CARRIED:
        if key.dimension == dimension and key.name.endswith(ending):
            return factor
    return 1.0 if key.dimension == "1" or si else None


def _bounded(value: float, raw: Any, key: Key, path: str, state: Reading) -> Any:
    low = (key.above is not None and value <= key.above) or (key.minimum is not None and value < key.minimum)
    if isfinite(value) and abs(value) > LARGEST:
        return state.refuse(path, show(raw), f"{bounds(key)}, below {LARGEST:g} in SI units")
    if not isfinite(value) or low or (key.maximum is not None and value > key.maximum):
        return state.refuse(path, show(raw), bounds(key))
    if key.whole:
        return int(value) if value.is_integer() else state.refuse(path, show(raw), bounds(key))
    return value


def text(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read free text."""
    if isinstance(raw, str) and len(raw) <= 10_000 and "\0" not in raw:
        return raw
    return state.refuse(path, show(raw), "text in quotes")


def identifier(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read a name of the user's own."""
    if isinstance(raw, str) and _IDENTIFIER.fullmatch(raw):
        return raw
    return state.refuse(path, show(raw), "a name of letters, digits, - and _, at most 64")


def date(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read a month or a day ("2026-03", "2026-03-31", or a date of the file's own kind)."""
    found = raw.isoformat() if hasattr(raw, "isoformat") else raw
    if isinstance(found, str) and re.fullmatch(r"\d{4}(-(0[1-9]|1[0-2])(-([0-2]\d|3[01]))?)?", found, re.ASCII):
        return found
    return state.refuse(path, show(raw), 'a month or a day such as "2026-03"')


def flag(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read true or false."""
    return raw if isinstance(raw, bool) else state.refuse(path, show(raw), "true or false")


def word(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read one word of `among`."""
    if isinstance(raw, str) and raw in key.among:
        return raw
    one = "one of " if isinstance(raw, list | tuple) else ""
    near = nearest(raw, key.among) if isinstance(raw, str) else None
    return state.refuse(path, show(raw), one + listed(key.among), near)


def name(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read a name that its vocabulary knows, or a word of `among`."""
    if isinstance(raw, str) and raw in key.among:
        return raw
    if not isinstance(raw, str) or not 0 < len(raw) <= LONGEST_NAME:
        return state.refuse(path, show(raw), f"the name of one {key.of}")
    problem = state.names.check(key.of or "", raw)
    if problem is None:
        return raw
    allowed, near = problem
    return state.refuse(path, show(raw), f"{listed(key.among)}, or {allowed}" if key.among else allowed, near)


def model(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read the name of an architecture, or the path of its configuration."""
    return name(raw, Key(key.name, key.kind, key.doc, of="model"), path, state)


def several(read: Reader) -> Reader:
    """Return a reader of a list (or of one alone) whose members `read` reads; no member stands twice."""

    def reader(raw: Any, key: Key, path: str, state: Reading) -> Any:
        raws = list(raw) if isinstance(raw, list | tuple) else [raw]
        if not 0 < len(raws) <= LONGEST_LIST:
            return state.refuse(path, show(raw), f"1 to {LONGEST_LIST}; leave the key out for the default")
        places = [f"{path}[{i}]" for i in range(len(raws))] if isinstance(raw, list | tuple) else [path]
        values = [read(item, key, places[i], state) for i, item in enumerate(raws)]
        for i, value in enumerate(values):
            if value is not None and value in values[:i]:
                state.refuse(places[i], f"{show(raws[i])} a second time", "each one once")
        return tuple(value for value in values if value is not None)

    return reader


def file_path(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read the path of a file that is there, relative to the problem file."""
    if not isinstance(raw, str | Path) or not 0 < len(str(raw)) < 4096 or "\0" in str(raw):
        return state.refuse(path, show(raw), "the path of a file")
    place = state.base / raw
    return place if place.is_file() else state.refuse(path, show(raw), f"a file that exists; looked for {place}")


def table(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read a table with free words for keys (or names of one vocabulary) and numbers for values."""
    if not isinstance(raw, Mapping):
        return state.refuse(path, show(raw), "a table { name = value }")
    found: dict[str, Any] = {}
    for label, item in raw.items():
        here = join(path, str(label)[:LONGEST_NAME])
        if key.of and (problem := state.names.check(key.of, str(label))):
            state.refuse(here, show(label), *problem)
            continue
        found[str(label)] = number(item, key, here, state)
    return {label: value for label, value in found.items() if value is not None}


def members(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read one word or a list of them, as {word: 1.0 where it is named, else 0.0}."""
    found = several(word)(raw, key, path, state)
    return None if found is None else {label: float(label in found) for label in key.among}


def shares(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read a table of shares that sum to 1."""
    found = table(raw, key, path, state)
    if found is None:
        return None
    if len(found) == len(raw):
        check_sum(found.values(), path, state)
    return found


def check_sum(values: Iterable[float], path: str, state: Reading) -> None:
    """Note shares that do not sum to 1."""
    total = sum(values)
    if abs(total - 1) > 1e-6:
        state.refuse(path, f"shares that sum to {total:.6g}", "shares that sum to 1")


def slices(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read a number, or one for each slice of the day."""
    if not isinstance(raw, Mapping):
        return number(raw, key, path, state)
    found: dict[str, float] = {}
    for label, item in raw.items():
        here = join(path, str(label)[:LONGEST_NAME])
        if problem := state.names.check("slice", str(label)):
            state.refuse(here, show(label), *problem)
        elif (value := number(item, key, here, state)) is not None:
            found[str(label)] = value
    missing = [label for label in state.names.slices() if label not in raw]
    if missing:
        return state.refuse(path, f"nothing for {listed(missing)}", "a number for every slice of horizon.slices")
    return found


def by_slice(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read a number (for the slice "all") or one for each slice."""
    found = slices(raw, key, path, state)
    return found if found is None or isinstance(found, dict) else {"all": found}


def lengths(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read a count of tokens, or { mean, p95 } of a lognormal; of answers, also the name of a task whose lengths are measured."""
    if isinstance(raw, str) and key.name == answer_lengths.COLUMN:
        return _of_task(raw, path, state)
    if not isinstance(raw, Mapping):
        value = number(raw, key, path, state)
        return None if value is None else Lengths(value)
    for label in raw.keys() - {"mean", "p95"}:
        state.unknown(path, label, ("mean", "p95"))
    if "mean" not in raw:
        return state.refuse(join(path, "mean"), "nothing", "the mean number of tokens")
    positive = Key(key.name, key.kind, key.doc, above=0.0, maximum=key.maximum)
    mean = number(raw["mean"], positive, join(path, "mean"), state)
    p95 = number(raw["p95"], positive, join(path, "p95"), state) if "p95" in raw else None
    if mean and p95 and not 1 <= p95 / mean <= LARGEST_P95_RATIO:
        allowed = f"from {mean:g} to {mean * LARGEST_P95_RATIO:.6g}: 1 to 3.87 times the mean, as a lognormal can have"
        return state.refuse(join(path, "p95"), show(raw["p95"]), allowed)
    return None if mean is None else Lengths(mean, p95)


def _of_task(raw: str, path: str, state: Reading) -> Lengths | None:
    tasks = answer_lengths.by_task()
    if raw not in tasks:
        allowed = f"a number, {{ mean, p95 }}, or a task whose answers are measured: {listed(tasks)}"
        state.refuse(path, show(raw), allowed, nearest(raw, tasks))
        return None
    mean, p95 = tasks[raw]
    return Lengths(mean, min(p95, mean * LARGEST_P95_RATIO))


def percentiles(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read a table of percentiles to values, or one value for the mean where the stage knows it."""
    if not isinstance(raw, Mapping) or not raw:
        example = f"a table such as {{ {key.points[-1]} = … }}, of {describe(key.dimension)}"
        return state.refuse(path, show(raw), example)
    found: dict[str, float] = {}
    for label, item in raw.items():
        if label not in key.points:
            state.unknown(path, label, key.points)
        elif (value := number(item, key, join(path, label), state)) is not None:
            found[label] = value
    return found


CHIP_KEYS = {
    **{label: Key(label, "number", f"{label} of the chip", unit, above=0.0) for label, unit in CHIP_DIMENSIONS.items()},
    "like": Key("like", "name", "chip whose efficiencies it takes", of="chip"),
}


def chip_fields(raw: Any, path: str, state: Reading, others: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read figures of a chip: key of CHIP_KEYS to SI value (`like` to a name); `others` are keys read elsewhere."""
    found: dict[str, Any] = {}
    for label, item in raw.items():
        here = join(path, str(label)[:LONGEST_NAME])
        if label in CHIP_KEYS:
            read = name if label == "like" else number
            found[label] = read(item, CHIP_KEYS[label], here, state)
        elif label not in others:
            state.unknown(path, label, (*CHIP_KEYS, *others))
    return {label: value for label, value in found.items() if value is not None}


def chip_table(raw: Any, key: Key, path: str, state: Reading) -> Any:
    """Read { chip = { figure = value } } for chips of the catalogue or of the file."""
    if not isinstance(raw, Mapping):
        return state.refuse(path, show(raw), "a table of chips, each a table of figures")
    found = {}
    for label, fields in raw.items():
        here = join(path, str(label)[:LONGEST_NAME])
        if problem := state.names.check("chip", str(label)):
            state.refuse(here, show(label), *problem)
        elif not isinstance(fields, Mapping) or not fields:
            state.refuse(here, show(fields), f"a table of {listed(CHIP_KEYS)}")
        else:
            found[str(label)] = chip_fields(fields, here, state)
    return found


SIMPLE: dict[str, Reader] = {
    "number": number,
    "text": text,
    "identifier": identifier,
    "date": date,
    "flag": flag,
    "word": word,
    "words": several(word),
    "name": name,
    "names": several(name),
    "model": model,
    "path": file_path,
    "table": table,
    "members": members,
    "shares": shares,
    "slices": slices,
    "by_slice": by_slice,
    "lengths": lengths,
    "percentiles": percentiles,
    "chip_table": chip_table,
}
