"""The page ``docs/constants.md``: every fitted constant with its unit, its value by family, and what it was fitted on."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenmill import data
from tokenmill.docs.text import table
from tokenmill.plan_json import write_text

HEAD = """# Fitted constants

Written by `python -m tokenmill.constants_page docs/constants.md` from `catalog/efficiency/*.csv`; not edited by hand. `tokenmill calibrate`
fits them anew. A value is of one chip (or class of frameworks) and one format where it depends on it; a chip without a value takes
its relatives', marked as a guess. *Error* is the median error of the times that the constant bears on, on groups left out of the fit.

"""
TITLES = {
    "kernels.csv": "Single kernels",
    "experts.csv": "Grouped products of experts in serving",
    "links.csv": "Links",
    "layers.csv": "Cards known by whole layers",
    "engines.csv": "Serving engines",
    "training.csv": "Training over single kernels",
    "memory.csv": "Memory beside counted tensors",
    "runs.csv": "Runs of several pools",
    "power.csv": "Draw of chips",
}
"""Tables of the page, in its order. Constants of users' devices (devices.csv) are one set a device, and too many to print."""
Row = Mapping[str, str]


def page(folder: Path) -> str:
    """Return the page in Markdown from the tables of a folder."""
    meaning = {row["constant"]: row["meaning"] for row in _rows(folder / "constants.csv")}
    return HEAD + "\n".join(_section(title, _rows(folder / name), meaning) for name, title in TITLES.items())


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _section(title: str, rows: Sequence[Row], meaning: Mapping[str, str]) -> str:
    names = list(dict.fromkeys(row["constant"] for row in rows))
    lines = [f"## {title}: {len(names)} constants\n"]
    for name in names:
        own = [row for row in rows if row["constant"] == name]
        lines += [f"**`{name}`** [{own[0]['unit']}]: {meaning[name]}\n", table(HEADS, map(_cells, own))]
    return "\n".join(lines)


HEADS = ("chip or class", "format", "value", "rows", "error", "fitted on")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row["chip"] or "generic",
        row["precision"] or "any",
        row["value"],
        row["rows"],
        f"{float(row['median_error']):.1%}",
        row["source"].removeprefix("fitted on measured/"),
    )


def main(target: Path) -> None:
    """Write the page."""
    write_text(page(data.path("catalog") / "efficiency"), target)


if __name__ == "__main__":
    import sys

    main(Path(sys.argv[1]))
