"""Records of the catalogue and of foreign files as people read them in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from shutil import get_terminal_size
from typing import Any


def print_rows(rows: Sequence[Mapping[str, Any]], left_out: Sequence[str] = ("source", "origin")) -> None:
    """Print records as aligned columns, a column a key; long ones are left to `catalog show` and JSON."""
    if not rows:
        print("none")
        return
    keys = [key for key in rows[0] if key not in left_out]
    cells = [keys] + [["" if row.get(key) is None else str(row[key]) for key in keys] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(keys))]
    shown = fitting(widths, get_terminal_size().columns) if sys.stdout.isatty() else len(widths)
    for line in cells:
        print("  ".join(f"{line[at]:<{widths[at]}}" for at in range(shown)).rstrip())
    if shown < len(keys):
        print(f"a wider terminal, or --json, shows {', '.join(keys[shown:])}")


def fitting(widths: Sequence[int], room: int) -> int:
    """Return how many columns, two letters apart, fit into `room` letters: one at least."""
    ends = (sum(widths[: at + 1]) + 2 * at for at in range(len(widths)))
    return max(1, sum(end <= room for end in ends))


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
