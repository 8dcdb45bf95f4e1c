"""Which values each choice may take: held by the file, else the stage's grid; words resolved for model and chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.catalog import Catalog, Chip
from tokenmill.problem import Workload
from tokenmill_models.stage import Axis, Role

PUBLISHED = ("published",)
WIDE = ("bf16", "fp16", "fp32")


def held_values(workload: Workload, role: str, key: str) -> tuple[Any, ...] | None:
    """Return the values that the file allows for a key, the role's own table first; None where it is silent."""
    return workload.role_held.get(role, {}).get(key) or workload.held.get(key)


def native(catalog: Catalog, chip: Chip, word: str) -> str:
    """Return the format in which a chip multiplies weights stored as `word`: its own where it can, else a wide one."""
    key = catalog.precision(word).compute
    if key in chip.peak:
        return key if key in catalog.precisions else word
    return next((wide for wide in WIDE if wide in chip.peak), key)


def word_combinations(
    role: Role, workload: Workload, architecture: Any, catalog: Catalog, chip: Chip
) -> Iterator[dict[str, Any]]:
    """Yield one word for every word axis, all combinations; "published" is resolved for the model and the chip."""
    axes = [axis for axis in role.axes if axis.codes is not None or axis.symbol is None]
    options: list[tuple[Any, ...]] = []
    for axis in axes:
        held = held_values(workload, role.name, axis.key)
        options.append(held or axis.default or axis.values)
    for combination in product(*options):
        words = {axis.name: word for axis, word in zip(axes, combination, strict=True)}
        yield _resolved(words, architecture, catalog, chip)


def _resolved(words: dict[str, Any], architecture: Any, catalog: Catalog, chip: Chip) -> dict[str, Any]:
    """Put formats in place of "published": the checkpoint's, else (compute, experts) what follows from the weights."""
    found = dict(words)
    for name, word in words.items():
        if word == PUBLISHED[0]:
            found[name] = getattr(architecture, f"{name}_precision", None)
    stored = found.get("weights") or "bf16"
    found |= {n: stored for n in ("weights", "experts") if words.get(n) == PUBLISHED[0] and found[n] is None}
    for name, word in words.items():
        if word == PUBLISHED[0] and found[name] is None:
            found[name] = native(catalog, chip, str(found.get("experts") or stored))
    return found


def numeric_values(axis: Axis, role: str, workload: Workload, scalars: Mapping[str, float]) -> NDArray[np.float64]:
    """Return the values of a numeric axis, ascending: those the file holds, else the stage's.

    A held operating axis is the most that a replica runs at: the grid below it stays.
    """
    held = held_values(workload, role, axis.key)
    grid = tuple(axis.grid(scalars)) if axis.grid else axis.values
    if held is None:
        chosen = axis.default if axis.default is not None else grid
    elif axis.operate:
        chosen = (*(v for v in grid if v < max(held)), *held)
    else:
        chosen = held
    return np.unique(np.asarray(chosen, dtype=float))
