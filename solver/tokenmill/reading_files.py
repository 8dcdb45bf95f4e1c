"""Text of problem files: TOML, JSON or YAML to plain tables, and values set from the command line."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from tokenmill.errors import Mistake, ProblemError, nearest
from tokenmill.reading_values import listed, show

LARGEST_FILE = 16 * 2**20  # bytes; a problem file is a few kilobytes
SUFFIXES = (".toml", ".json", ".yaml", ".yml")


def _fail(key: str, found: str, allowed: str, near: str | None = None) -> ProblemError:
    return ProblemError([Mistake(key, found, allowed, near)])


def read_file(path: Path) -> dict[str, Any]:
    """Return the tables of a file, by its suffix (TOML where there is none).

    Raises
    ------
    ProblemError
        Where it cannot be read, is too large, is no text in UTF-8, or breaks its format.
    """
    try:
        if not path.is_file():
            raise _fail(str(path), "a folder" if path.is_dir() else "no file of that name", "a problem file")
        if path.stat().st_size > LARGEST_FILE:
            raise _fail(str(path), f"{path.stat().st_size} bytes", f"at most {LARGEST_FILE} bytes")
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise _fail(str(path), error.strerror or "an error of the disk", "a file that can be read") from error
    except UnicodeDecodeError as error:
        raise _fail(str(path), f"byte {error.start} that is no UTF-8", "text in UTF-8") from error
    return parse(text, path.suffix.lower(), str(path))


def read_text(text: str) -> dict[str, Any]:
    """Return the tables of a text in any of the three formats, told apart by how it begins."""
    if len(text) > LARGEST_FILE:
        raise _fail("problem", f"{len(text)} characters", f"at most {LARGEST_FILE}")
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    yaml = re.match(r"(---|[\w-]+\s*:(\s|$))", first)
    return parse(text, ".json" if first.startswith("{") else ".yaml" if yaml else ".toml", "problem")


def parse(text: str, suffix: str, place: str) -> dict[str, Any]:
    """Return the tables of a text in the format of a file suffix; `place` stands in mistakes."""
    reader: Callable[[str, str], Any] = _toml
    if suffix in SUFFIXES[1:]:
        reader = _json if suffix == ".json" else _yaml
    try:
        found = reader(text.removeprefix("\ufeff"), place)
    except RecursionError as error:
        raise _fail(place, "tables nested too deep", "the tables of the reference") from error
    if not isinstance(found, dict):
        raise _fail(place, show(found), "one table of keys")
    return found


def _toml(text: str, place: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:
        line = re.search(r"at line (\d+)", str(error))
        row = text.splitlines()[int(line[1]) - 1].strip() if line else ""
        key = f"{place}: line {line[1]}" if line else place
        raise _fail(key, f"{row[:60]!r}: {str(error)[:120]}", "TOML, each key once") from error


def _json(text: str, place: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for label, value in pairs:
            if label in found:
                raise _fail(label[:80], "the key a second time", "each key once")
            found[label] = value
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise _fail(f"{place}: line {error.lineno}", error.msg, "JSON") from error
    except ValueError as error:
        raise _fail(place, str(error)[:120], "JSON") from error


def _yaml(text: str, place: str) -> Any:
    import yaml

    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                at = event.start_mark.line + 1 if event.start_mark else 1
                raise _fail(f"{place}: line {at}", "an alias", "every value written out")
        node = yaml.compose(text, yaml.SafeLoader)
        _yaml_once(node, place)
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        raise _fail(f"{place}: line {mark.line + 1}" if mark else place, str(error)[:120], "YAML") from error


def _yaml_once(node: Any, place: str) -> None:
    """Refuse a key that stands twice in a mapping, of which YAML would keep the last."""
    ahead = [node]
    while ahead:
        item = ahead.pop()
        if item is None or isinstance(item.value, str):
            continue
        seen: set[str] = set()
        for child in item.value:
            if isinstance(child, tuple):
                label = str(child[0].value)
                if label in seen:
                    raise _fail(
                        f"{place}: line {child[0].start_mark.line + 1}", f"{label} a second time", "each key once"
                    )
                seen.add(label)
                ahead.append(child[1])
            else:
                ahead.append(child)


def apply_overrides(raw: Mapping[str, Any], overrides: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the tables with values set by path ("workload.chat.demand.at_least", "0.5"); tables of a list go by name.

    A value that is text is a TOML literal; plain words and quantities need no quotes.

    Raises
    ------
    ProblemError
        For paths that lead nowhere and values that are none, all of them.
    """
    found = deepcopy(dict(raw))
    mistakes: list[Mistake] = []
    for path, value in overrides:
        try:
            _set(found, path, _literal(path, value) if isinstance(value, str) else value)
        except ProblemError as error:
            mistakes.extend(error.mistakes)
    if mistakes:
        raise ProblemError(mistakes)
    return found


def _literal(path: str, text: str) -> Any:
    try:
        found = tomllib.loads(f"value = {text}")
        if found.keys() == {"value"}:
            return found["value"]
    except (ValueError, RecursionError):
        if re.fullmatch(r"[\w$.][\w $./^*-]*", text):
            return text
    raise _fail(path, show(text), "one TOML value")


def _set(raw: dict[str, Any], path: str, value: Any) -> None:
    segments = [a or b for a, b in re.findall(r'"([^"]+)"|([^."\[\]]+)', path)]
    if not segments:
        raise _fail(path or "--set", "no key", "a key such as horizon.periods")
    place: Any = raw
    for segment in segments[:-1]:
        place = _step(place, segment, path)
    if isinstance(place, dict):
        place[segments[-1]] = value
    elif isinstance(place, list) and segments[-1].isdecimal() and int(segments[-1]) < len(place):
        place[int(segments[-1])] = value
    else:
        raise _fail(path, f"{show(place)} before {segments[-1]!r}", "a table")


def _step(place: Any, segment: str, path: str) -> Any:
    """Return what lies under one segment: a key of a table, or of a list the table with that name, system or place."""
    if isinstance(place, dict):
        return place.setdefault(segment, {})
    if isinstance(place, list):
        tables = [item for item in place if isinstance(item, dict)]
        for label in ("name", "system", "market"):
            matching = [item for item in tables if item.get(label) == segment]
            if matching:
                return matching[0] if len(matching) == 1 else matching
        if segment.isdecimal() and int(segment) < len(place):
            return place[int(segment)]
        names = [str(item[label]) for item in tables for label in ("name", "system") if label in item]
        raise _fail(
            path, f"no {segment!r} there", listed(names) if names else "a place in the list", nearest(segment, names)
        )
    raise _fail(path, f"{show(place)} before {segment!r}", "a table")
