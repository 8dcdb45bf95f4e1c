"""Reading one table or row of a catalogue file: typed, with its place named in every complaint."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from tokenmill.errors import CatalogError, nearest


class Entry:
    """One table of a catalogue file; `finish` refuses the keys that nobody asked for."""

    def __init__(self, place: str, data: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        self.place = place
        self._data = {**(defaults or {}), **data}
        self._asked: set[str] = set()

    def _get(self, key: str) -> Any:
        self._asked.add(key)
        value = self._data.get(key)
        return None if value == "" else value

    def refuse(self, key: str, allowed: str) -> CatalogError:
        """Return the error for a value that is not allowed."""
        return CatalogError(f"{self.place}.{key}: found {self._data.get(key)!r}; allowed: {allowed}")

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text; without a default the key must be there."""
        value = self._get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.refuse(key, "text")
        return value

    def word(self, key: str, among: Iterable[str], default: str | None = None) -> str:
        """Return one of the words allowed."""
        value = self.text(key, default)
        if value not in among:
            raise self.refuse(key, ", ".join(among))
        return value

    def number(self, key: str, default: float | None = None, least: float = 0.0) -> float:
        """Return a finite number not below `least`; without a default the key must be there."""
        value = self.maybe(key, least)
        if value is not None:
            return value
        if default is None:
            raise self.refuse(key, f"a number, at least {least:g}")
        return default

    def maybe(self, key: str, least: float = 0.0) -> float | None:
        """Return a finite number not below `least`, or None where the key is absent."""
        value = self._get(key)
        if value is None:
            return None
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise self.refuse(key, "a number") from None
        if isinstance(value, bool) or not isfinite(number) or number < least:
            raise self.refuse(key, f"a finite number, at least {least:g}")
        return number

    def count(self, key: str, default: int | None = None) -> int:
        """Return a whole number, at least 1."""
        value = self.number(key, default, least=1)
        if value != int(value):
            raise self.refuse(key, "a whole number, at least 1")
        return int(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a truth value: true, false, or yes, no in a CSV."""
        value = self._get(key)
        if value is None:
            return default
        if value in ("yes", "no"):
            return bool(value == "yes")
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list of texts (in a CSV: joined by +)."""
        value = self._get(key) or []
        if isinstance(value, str):
            return tuple(value.split("+"))
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.refuse(key, "a list of texts")
        return tuple(value)

    def counts(self, key: str) -> tuple[int, ...]:
        """Return a list of whole numbers."""
        value = self._get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, int) and item > 0 for item in value):
            raise self.refuse(key, "a list of whole numbers, at least 1")
        return tuple(value)

    def table(self, key: str) -> Entry:
        """Return a table inside this one, empty where the key is absent."""
        value = self._get(key)
        if value is not None and not isinstance(value, dict):
            raise self.refuse(key, "a table")
        return Entry(f"{self.place}.{key}", value or {})

    def tables(self, key: str) -> Iterator[Entry]:
        """Yield the tables of a list."""
        for at, value in enumerate(self._get(key) or []):
            yield Entry(f"{self.place}.{key}[{at}]", value)

    def rates(self, key: str, known: Iterable[str] | None = None, scale: float = 1.0) -> dict[str, float]:
        """Return a table of numbers above 0 by name."""
        inner = self.table(key)
        for name in inner._data:
            if known is not None and name not in known:
                raise CatalogError(f"{inner.place}: found {name!r}; allowed: {', '.join(known)}")
        return {name: inner.number(name, least=1e-12) * scale for name in inner._data}

    def __bool__(self) -> bool:
        return bool(self._data)

    def finish(self) -> None:
        """Refuse keys that no reader asked for."""
        for key in self._data:
            if key not in self._asked:
                hint = nearest(key, self._asked)
                meant = f" (did you mean {hint!r}?)" if hint else ""
                raise CatalogError(
                    f"{self.place}: unknown key {key!r}{meant}; allowed: {', '.join(sorted(self._asked))}"
                )


def read_toml(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the tables of all TOML files of a folder by id; an id given twice is refused."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.glob("*.toml")):
        try:
            tables = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise CatalogError(f"{file}: not TOML: {error}") from error
        for key, table in tables.items():
            if key in found:
                raise CatalogError(f"{file}: {key!r} is given twice in {folder.name}")
            if not isinstance(table, dict):
                raise CatalogError(f"{file}: found {key!r} = {table!r}; allowed: a table [id] of figures")
            found[key] = table
    return found


def read_csv(file: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV by column; lines that start with # are comments. An absent file has no rows."""
    if not file.is_file():
        return []
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise CatalogError(f"{file}: not UTF-8 text: {error}") from error
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise CatalogError(f"{file}: data row {number} has another number of columns than the header")
    return rows
