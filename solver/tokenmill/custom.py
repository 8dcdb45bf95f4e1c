"""A user's own chips laid over the catalogue: figures of theirs win, achieved shares come from the chip named by `like`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from tokenmill.catalog import Catalog, Chip, MemoryTier
from tokenmill.errors import Mistake, ProblemError
from tokenmill.problem import CustomChip, Problem

FROM_FILE = "problem file"
MEMORY = ("memory", "bandwidth")


def with_custom_chips(catalog: Catalog, problem: Problem) -> Catalog:
    """Return the catalogue with the problem's `[[hardware.chip]]` records, marked as the user's.

    Raises
    ------
    ProblemError
        For a new chip that lacks memory, bandwidth or any arithmetic.
    """
    if not problem.hardware.chips:
        return catalog
    made = [_custom(catalog, custom) for custom in problem.hardware.chips]
    return catalog.overlaid(chips=made)


def with_fields(chip: Chip, given: Mapping[str, float]) -> Chip:
    """Return a chip with figures replaced: memory [B], bandwidth [B/s], power [W], peaks by precision [FLOP/s], others by name."""
    main = chip.main_memory
    tier = replace(main, capacity=given.get("memory", main.capacity), bandwidth=given.get("bandwidth", main.bandwidth))
    memory = tuple(tier if old is main else old for old in chip.memory)
    known = {field.name for field in fields(Chip)}
    peaks = {name: value for name, value in given.items() if name not in known and name not in (*MEMORY, "power")}
    others: dict[str, Any] = {name: value for name, value in given.items() if name in known}
    if "power" in given:
        others["tdp"] = given["power"]
    return replace(chip, memory=memory, peak={**chip.peak, **peaks}, **others)


def _custom(catalog: Catalog, custom: CustomChip) -> Chip:
    base = catalog.chips.get(custom.name) or (catalog.chip(custom.like) if custom.like else None)
    if base is None:
        base = _blank(catalog)
        missing = [name for name in MEMORY if name not in custom.fields]
        if missing or not set(custom.fields) - {*MEMORY, "power"}:
            needed = "memory, bandwidth and a rate (fp16 = ...), or like = a chip of the catalogue"
            raise ProblemError([Mistake(f"hardware.chip.{custom.name}", f"no {', '.join(missing) or 'rate'}", needed)])
    elif custom.name not in catalog.chips and set(custom.fields) & set(base.peak):
        base = replace(base, peak={})
    chip = replace(
        with_fields(base, custom.fields),
        id=custom.name,
        name=custom.name,
        source=FROM_FILE,
        checked=False,
        origin="user",
    )
    return replace(chip, like=custom.like or chip.like, figures={})


def _blank(catalog: Catalog) -> Chip:
    """Return a chip on a host link alone, whose figures are all the user's to give."""
    like = next(chip for chip in catalog.chips.values() if chip.scale_up_domain == 1)
    return replace(like, peak={}, measured_peak={}, memory=(MemoryTier("main", 0.0, 0.0),), like=None, ranks=1)
