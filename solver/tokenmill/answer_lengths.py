"""How long answers are by kind of task, as measured over several models: a length that a problem file may name."""

from __future__ import annotations

import csv
from collections import defaultdict
from functools import cache
from statistics import median

from tokenmill import data

COLUMN = "output_tokens"
"""The key of a problem file that may name a task, and the end of the column of means."""


@cache
def by_task() -> dict[str, tuple[float, float]]:
    """Return mean and p95 of answers [tokens] by task: the medians over the models of output_lengths.csv."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    (place,) = data.path("measured").glob("*/output_lengths.csv")
    with place.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["task"]].append((float(row[f"mean_{COLUMN}"]), float(row["p95"])))
    return {
        task: (median(mean for mean, _ in rows), median(p95 for _, p95 in rows)) for task, rows in sorted(found.items())
    }
