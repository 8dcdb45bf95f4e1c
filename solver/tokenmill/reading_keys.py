"""What a key of a problem file may hold; problem.py attaches one to each field, and a stage's inputs become the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from tokenmill_models.stage import Input


@dataclass(frozen=True)
class Key:
    """One key: its `name` in the file, its `kind` (a reader of reading_values), what it means, what is allowed.

    `dimension`: over the base units; `minimum` and `maximum` are allowed values, what is not `above` is refused;
    `whole`: whole numbers only; `among`: words; `of`: the vocabulary a name must come from (``system``, ``workload``);
    `table`: the dataclass of a nested table; `scale`: stored value over the SI value; `points`: words of a percentile table.
    """

    name: str
    kind: str
    doc: str
    dimension: str = "1"
    minimum: float | None = 0.0
    above: float | None = None
    maximum: float | None = None
    whole: bool = False
    among: tuple[str, ...] = ()
    of: str | None = None
    table: Any = None
    scale: float = 1.0
    required: bool = False
    points: tuple[str, ...] = ("mean", "p50", "p95", "p99")


def key(doc: str, kind: str = "number", *, name: str = "", default: Any = MISSING, **allowed: Any) -> Any:
    """Return a dataclass field that carries its Key; `name` where the file spells it otherwise; no default: required."""
    made = Key(name, kind, doc, required=default is MISSING, **allowed)
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata={"key": made})
    return field(default=default, metadata={"key": made})


def keys_of(table: Any) -> dict[str, tuple[str, Key]]:
    """Return the keys of a dataclass: name in the file to (attribute, Key)."""
    found: dict[str, tuple[str, Key]] = {}
    for item in fields(table):
        made: Key | None = item.metadata.get("key")
        if made is not None:
            name = made.name or item.name
            found[name] = (item.name, made)
    return found


_KINDS = {"choice": "word", "name": "text", "architecture": "model", "system": "names", "trace": "text"}


def key_of_input(item: Input) -> Key:
    """Return the Key of an input that a stage declares; a symbol that is positive refuses zero."""
    positive = item.symbol is not None and item.symbol.is_positive and not item.minimum
    return Key(
        item.name.rsplit(".", 1)[-1].removesuffix("[]"),
        "name" if item.of else _KINDS.get(item.kind, item.kind),
        item.doc,
        item.dimension,
        minimum=item.minimum,
        above=0.0 if positive else None,
        maximum=item.maximum,
        whole=item.whole,
        among=item.among,
        of="system" if item.kind == "system" else item.of or None,
        required=item.required,
        points=tuple(item.parts) or ("mean", "p50", "p95", "p99"),
    )
