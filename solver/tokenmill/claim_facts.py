"""What an announcement says with what the catalogue knows of it, and the formulas that it is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from tokenmill.catalog import Catalog
from tokenmill.claim_words import Hardware, hardware, model_of, numbers, numbers_of_sizes, precisions, said
from tokenmill_models.architecture import Architecture, kv_bytes_per_token, weight_bytes
from tokenmill_models.closed_claim import Metric, symbols
from tokenmill_models.formula import Formula
from tokenmill_models.symbols import quantity

NO_PEAK = 1e30
"""Stands for a rate of arithmetic that nobody published: it bounds nothing."""


@dataclass(frozen=True)
class Bound:
    """What the claim was held against: the formula's key and title, its value [unit], its inputs by name, and it in numbers."""

    formula: str
    title: str
    value: float
    unit: str
    inputs: Mapping[str, float]
    text: str


class Facts:
    """A claim with what the catalogue knows of what it names."""

    def __init__(self, table: Mapping[str, Any], metric: Metric, catalog: Catalog) -> None:
        from tokenmill.imports.architecture import architecture_names, load_architecture

        self.table, self.metric, self.catalog = table, metric, catalog
        self.hardware = hardware(table.get("hardware"), catalog)
        self.baseline = hardware(table.get("baseline"), catalog)
        name = model_of(table.get("model"), architecture_names())
        self.model: Architecture | None = load_architecture(name) if name else None
        self.formats = precisions(table.get("precision"), catalog.precisions)
        self.batch = next(iter(numbers(said(table.get("batch")))), None)
        self.context = next(iter(numbers(said(table.get("context")))), None)
        self.values = numbers(table["value"])

    @cached_property
    def value(self) -> float:
        """The number claimed; the least of several [unit of the metric]."""
        return min(self.values, default=0.0)

    @cached_property
    def chips(self) -> float:
        """Devices: as stated, or as many as hold the weights."""
        stated = numbers(self.table.get("chips")) or ([self.hardware.count] if self.hardware.count else [])
        if stated or self.hardware.chip is None or self.model is None:
            return float(stated[0] or 1.0) if stated else 1.0
        return float(-(-self.weights // self.hardware.chip.capacity))

    @cached_property
    def weights(self) -> float:
        """Bytes of all weights in the format claimed."""
        bits = {name: entry.bits for name, entry in self.catalog.precisions.items()}
        assert self.model is not None
        return weight_bytes(self.model, bits, self.formats[0] if self.formats else None)

    def missing(self) -> tuple[str, ...]:
        """Return the keys that the metric needs and the claim leaves out, or that the catalogue cannot follow."""
        found = []
        for key in self.metric.needed:
            if said(self.table.get(key)) is None or (key in ("batch", "context") and not numbers(self.table[key])):
                found.append(key)
        parts = len(numbers_of_sizes(str(self.table.get("model") or "")))  # sizes are enough of a pair of models
        if self.model is None and parts < 2 and "model" in self.metric.needed and "model" not in found:
            found.append(f"model: the shape of {self.table['model']} is not known")
        known = self.hardware
        if known.chip is None and "hardware" in self.metric.needed and "hardware" not in found:
            found.append(f"hardware: {known.remark or 'not in the catalogue: ' + known.said}")
        if known.chip is not None and self.formats and self.peak is None:
            found.append(f"peak: no rate of {known.chip.name} in {self.formats[0]} is published")
        return tuple(found)

    @cached_property
    def peak(self) -> float | None:
        """Dense peak of a device in the format claimed [FLOP/s]; None where none is published."""
        return self.peak_on(self.hardware, 0)

    def peak_on(self, on: Hardware, place: int) -> float | None:
        """Return the dense peak of a device in the format at a place of those claimed [FLOP/s]; None where none is published."""
        if on.chip is None or not self.formats:
            return None
        entry = self.catalog.precisions[self.formats[min(place, len(self.formats) - 1)]]
        # where a chip has no arithmetic of that format its weights are widened to 16 bits
        return next((on.chip.peak[name] for name in (entry.compute, "bf16", "fp16") if name in on.chip.peak), None)

    def leaves(self, batch: float, context: float) -> dict[str, float]:
        """Return the numbers of a decode step by plain name (asked only of a claim with a model and a chip)."""
        assert self.model is not None and self.hardware.chip is not None  # noqa: PT018
        counts, bits = self.model.parameters, {name: entry.bits for name, entry in self.catalog.precisions.items()}
        routed = [kind.mlp for kind in self.model.layers if kind.mlp.expert]
        width = bits[self.formats[0]] / 8 if self.formats else 2.0
        kv_width = 1.0 if width <= 1 else 2.0
        return {
            "batch": batch, "context": max(context, 1e-9), "chips": self.chips, "computed": float(counts.computed),
            "kv_token": kv_bytes_per_token(self.model, kv_width, context or None), "weights": self.weights,
            "routed": counts.experts * width, "active": routed[0].active / routed[0].experts if routed else 1.0,
            "peak": self.peak or NO_PEAK, "bandwidth": self.hardware.chip.bandwidth,
        }  # fmt: skip


def evaluated(formula: Formula, named: Mapping[str, float]) -> Bound:
    """Return a formula at numbers given by plain name (SI)."""
    from tokenmill.derive import derive

    known = {str(symbol): named[name] for name, symbol in symbols().items() if name in named}
    wanted = {str(symbol) for symbol in formula.expr.free_symbols}
    known = {name: value for name, value in known.items() if name in wanted}
    value = derive(formula.name).given(known).value
    shown = derive(formula.name).given({name: number for name, number in known.items() if number < NO_PEAK})
    return Bound(
        formula.name, formula.title, inf if value is None else value, quantity(formula.symbol).dimension, {n: v for n, v in named.items() if v < NO_PEAK},
        shown.text(),
    )  # fmt: skip
