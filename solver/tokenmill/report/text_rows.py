"""Records of the catalogue and of foreign files as people read them in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def print_rows(rows: Sequence[Mapping[str, Any]], left_out: Sequence[str] = ("source", "origin")) -> None:
    """Print records as aligned columns, a column a key; long ones are left to `catalog show` and JSON."""
    if not rows:
        print("none")
        return
    keys = [key for key in rows[0] if key not in left_out]
    cells = [keys] + [["" if row.get(key) is None else str(row[key]) for key in keys] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(keys))]
    for line in cells:
        print("  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip())


def print_entry(entry: Mapping[str, Any], indent: str = "") -> None:
    """Print a record, nested tables indented."""
    for key, value in entry.items():
        if isinstance(value, Mapping):
            print(f"{indent}{key}")
            print_entry(value, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            print(f"{indent}{key}")
            for item in value:
                shown = (f"{name} {held}" for name, held in item.items() if held not in (None, "", []))
                print(f"{indent}  " + ", ".join(shown))
        elif value not in (None, "", []):
            print(f"{indent}{key}: {value}")
