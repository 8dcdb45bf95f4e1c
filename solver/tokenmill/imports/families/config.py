"""Typed, polite reading of one configuration: every complaint names the file, the field, what was found, what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenmill.errors import ImportFileError

LARGEST = 10**9
MOST_LAYERS = 10_000


class Config:
    """The fields of one (sub-)configuration. An absent field and a null are the same."""

    def __init__(self, fields: Mapping[str, Any], source: str, place: str = "") -> None:
        self.fields, self.source, self.place = fields, source, place

    def fail(self, field: str, found: object, allowed: str) -> ImportFileError:
        """Return the error to raise about `field`."""
        return ImportFileError(f"{self.source}: {self.place}{field}: found {found}; allowed: {allowed}")

    def get(self, *names: str) -> Any:
        """Return the first of `names` that is present and not null, else None."""
        return next((self.fields[name] for name in names if self.fields.get(name) is not None), None)

    def count(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number; without a default the field must be there."""
        value = self.get(*names)
        if value is None:
            if default is None:
                raise self.fail(" or ".join(names), "nothing", "a whole number (the family needs this field)")
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            raise self.fail(names[0], repr(value)[:60], f"a whole number from {least} to {LARGEST}")
        return value

    def optional(self, *names: str) -> int | None:
        """Return a whole number (0 where the family means "none"), or None where it is absent."""
        return self.count(*names, least=0) if self.get(*names) is not None else None

    def number(self, name: str, default: float) -> float:
        """Return a finite number."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < LARGEST:
            raise self.fail(name, repr(value)[:60], "a finite number")
        return float(value)

    def flag(self, *names: str, default: bool) -> bool:
        """Return true or false."""
        value = self.get(*names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(names[0], repr(value)[:60], "true or false")
        return value

    def text(self, name: str, default: str = "") -> str:
        """Return a string."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.fail(name, repr(value)[:60], "a string")
        return value

    def items(self, name: str, length: int | None = None) -> list[Any] | None:
        """Return a list of at least `length` items (cut to it), or None where it is absent."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.fail(name, repr(value)[:60], "a list")
        if length is not None and len(value) < length:
            raise self.fail(name, f"{len(value)} items", f"one for each of the {length} layers")
        return value if length is None else value[:length]

    def numbers(self, name: str, length: int | None = None) -> list[int] | None:
        """Return a list of whole numbers, or None where it is absent."""
        value = self.items(name, length)
        if value is not None and not all(isinstance(v, int) and 0 <= v <= LARGEST for v in value):
            raise self.fail(name, "other things than whole numbers", "a list of whole numbers")
        return value

    def sub(self, name: str) -> Config | None:
        """Return a nested configuration, or None where it is absent."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.fail(name, repr(value)[:60], "a table of fields")
        return Config(value, self.source, f"{self.place}{name}.")

    @property
    def layers(self) -> int:
        """Number of layers, whatever the family calls it."""
        value = self.count("num_hidden_layers", "n_layer", "n_layers", "num_layers")
        if value > MOST_LAYERS:
            raise self.fail("num_hidden_layers", value, f"at most {MOST_LAYERS}")
        return value

    @property
    def hidden(self) -> int:
        """Hidden size, whatever the family calls it."""
        return self.count("hidden_size", "n_embd", "n_embed", "d_model")
