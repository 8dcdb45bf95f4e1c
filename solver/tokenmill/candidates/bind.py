"""Values of the leaves of a stage's formulas: one provider a prefix of `Quantity.origin`; none of them sees a stage."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any
from zlib import crc32

from tokenmill.catalog import Catalog, Chip, System
from tokenmill.catalog_stores import STORE
from tokenmill.efficiency import DRAW, GENERIC, chip_constant, engine_version, kernel_constants, released_figure
from tokenmill.errors import CatalogError
from tokenmill.hosts import host_pace
from tokenmill.problem import Assume, Lengths, Workload
from tokenmill_models.architecture import Architecture
from tokenmill_models.symbols import Quantity

IDEAL = "assumed ideal"
OF_EVERY_WORKLOAD = ("deadline", "starts")
UNLIMITED = 1e30
"""Stands for a rate that is not the limit: finite, so that nothing becomes NaN."""


@dataclass(frozen=True)
class Leaf:
    """A bound value (SI) with where it comes from; `value` None: not given, rules that name it do not apply."""

    value: float | None
    source: str
    evidence: str = "datasheet"


ABSENT = Leaf(None, "not given", "input")


@dataclass(frozen=True)
class Binder:
    """All that leaves can be read from, for one workload, role and system, and one word of each word axis.

    `words`: axis name to word. `held`: generic keys held at one value (``layout.chips``). `defaults`: default of the
    stage's inputs by name.
    """

    workload: Workload
    assume: Assume
    catalog: Catalog
    architecture: Architecture | None
    system: System
    chip: Chip
    words: Mapping[str, Any]
    held: Mapping[str, float]
    defaults: Mapping[str, Any]

    def leaf(self, quantity: Quantity) -> Leaf:
        """Return the scalar value of a leaf.

        Raises
        ------
        CatalogError
            For an origin that no provider knows, or a figure that the catalogue lacks.
        """
        prefix, _, path = (quantity.origin or "").partition(".")
        provider = _PROVIDERS.get(prefix)
        if provider is None:
            raise CatalogError(f"symbol {quantity.symbol}: no provider for origin {quantity.origin!r}")
        return provider(self, path)

    def classes(self, quantity: Quantity) -> list[Leaf]:
        """Return the values of a ``request.`` leaf, one an element of the workload's classes."""
        path = (quantity.origin or "").partition(".")[2]
        if path == "share":
            return [Leaf(c.share, "problem file", "input") for c in self.workload.classes]
        return [_part(self, c.values, path, self.defaults) for c in self.workload.classes]


def length_part(lengths: Lengths, part: str) -> float:
    """Return a statistic of a length [tokens]: mean, p50, p95, p99 or cv (standard deviation over mean).

    Lognormal where p95 is given: mean = exp(mu + sigma²/2), p95 = exp(mu + 1.645 sigma), the smaller sigma.
    """
    from math import exp, log, sqrt

    if part == "mean":
        return lengths.mean
    if lengths.p95 is None:
        return 0.0 if part == "cv" else lengths.mean
    z95 = NormalDist().inv_cdf(0.95)
    sigma = z95 - sqrt(max(0.0, z95 * z95 - 2 * log(lengths.p95 / lengths.mean)))
    if part == "cv":
        return sqrt(exp(sigma * sigma) - 1)
    mu = log(lengths.mean) - sigma * sigma / 2
    return exp(mu + sigma * NormalDist().inv_cdf(float(part.removeprefix("p")) / 100))


def _part(binder: Binder, values: Mapping[str, Any], path: str, defaults: Mapping[str, Any]) -> Leaf:
    """Return an input by dotted name; a name that is not there may end in a part of the input before it.

    ``steps.2.share`` is the member `share` of the third table of the list `steps`.
    """
    listed, _, member = path.partition(".")
    at, _, member = member.partition(".")
    if at.isdigit():
        values, path = values[listed][int(at)], member
    for name, part in ((path, "mean"), tuple(path.rpartition("."))[::2]):
        given = values.get(name)
        value = defaults.get(name) if given is None else given
        if value is None:
            continue
        origin = "problem file" if given is not None else "default"
        if isinstance(value, Lengths):
            return Leaf(length_part(value, part), origin, "input")
        if isinstance(value, Mapping):
            return Leaf(value.get(part), origin, "input")
        if name == path:
            return Leaf(float(value), origin, "input")
    return ABSENT


def _input(binder: Binder, path: str) -> Leaf:
    """Return a workload's own key, else what `[assume]` lays down under the same name, else the default."""
    assumed = None if path in binder.workload.values else getattr(binder.assume, path, None)
    if isinstance(assumed, float):
        return Leaf(assumed, "assumed in the problem file", "input")
    if path in binder.held:
        return Leaf(float(binder.held[path]), "problem file", "input")
    if path in OF_EVERY_WORKLOAD:
        given = getattr(binder.workload, path)
        return ABSENT if given is None else Leaf(float(given), "problem file", "input")
    return _part(binder, binder.workload.values, path, binder.defaults)


def _arch(binder: Binder, path: str) -> Leaf:
    if binder.architecture is None:
        raise CatalogError(f"workload {binder.workload.name}: the stage needs a model")
    value: Any = binder.architecture
    for step in path.split("."):
        if isinstance(value, tuple):
            value = value[int(step)] if step.isdigit() else next(item for item in value if item.name == step)
        elif isinstance(value, Mapping):
            value = value[step]
        else:
            value = getattr(value, step)
    source = f"configuration of {binder.architecture.name}"
    return Leaf(None if value is None else float(value), source, binder.architecture.evidence)


_INDEXED = re.compile(r"^(\w+)(?:\[([\w.]+)\])?$")


def _indexed(binder: Binder, path: str) -> tuple[str, str]:
    """Split ``field[by]`` into the field and the word that the axis or input named `by` holds ("" without an index)."""
    match = _INDEXED.match(path)
    if match is None:
        raise CatalogError(f"origin {path!r}: allowed: field or field[axis or input]")
    by = match[2]
    if by is None:
        return match[1], ""
    for values in (binder.words, binder.workload.values, binder.defaults):
        if values.get(by) is not None:
            return match[1], str(values[by])
    raise CatalogError(f"origin {path!r}: nothing holds {by!r}")


def _chip(binder: Binder, path: str) -> Leaf:
    chip, catalog = binder.chip, binder.catalog
    name, word = _indexed(binder, path)
    if name in kernel_constants():
        if binder.assume.efficiency == "ideal" and not name.startswith(DRAW):
            return Leaf(1.0 if name.endswith("share") else 0.0, IDEAL, "input")
        word = word or str(binder.words.get("compute", ""))
        figure = chip_constant(catalog, chip.id, name, catalog.precision(word).compute if word else "")
        return Leaf(figure.value, figure.source, figure.evidence)
    if name == "ranks":
        return Leaf(float(chip.ranks), chip.source, "datasheet")
    if name == "failure_rate":
        figure = catalog.failure_rate(chip.id)
        return Leaf(figure.value, figure.source, figure.evidence)
    if name.startswith("peak"):
        name = catalog.precision(word).compute if word else name.removeprefix("peak_")
        if (
            path.partition("[")[2].rstrip("]") not in binder.words
        ):  # no format that is chosen to compute in: a yardstick
            name = _widest(chip, name)
        value: Any = chip.peak.get(name)
        if value is None:
            raise CatalogError(f"{chip.id} has no native {name} arithmetic")
    else:
        value = getattr(chip, name, None)
    if value is None:
        return ABSENT
    figure_of = chip.figures.get(f"peak.{name}") or chip.figures.get(name)
    source, evidence = (figure_of.source, figure_of.evidence) if figure_of else (chip.source, "datasheet")
    if chip.origin == "user":
        source, evidence = "given in the problem file", "input"
    return Leaf(float(value) / chip.ranks, source, evidence)


def _widest(chip: Chip, key: str) -> str:
    """Return a key of the chip's peaks: the one asked for, else another of 16 bits, else 32."""
    return next((name for name in (key, "bf16", "fp16", "fp32") if name in chip.peak), key)


def _precision(binder: Binder, path: str) -> Leaf:
    name, word = _indexed(binder, path)
    entry = binder.catalog.precision(word)
    value = entry.bits / 8 if name == "bytes" else getattr(entry, name)
    return Leaf(float(value), entry.source, "datasheet")


def _chosen(binder: Binder, kind: str, usual: str | None = None) -> str:
    """Return the name that the file, or a default, gives for an engine or a store: ``<kind>.name`` or ``<table>.<kind>``."""
    for values in (binder.workload.values, binder.defaults):
        for key, value in values.items():
            if value is not None and (key == f"{kind}.name" or key.endswith(f".{kind}")):
                return str(value)
    if usual is None:
        raise CatalogError(f"workload {binder.workload.name}: no {kind} is named")
    return usual


def engine_name(binder: Binder) -> str:
    """Return the class of engines or frameworks whose constants hold."""
    return engine_version(_chosen(binder, "engine", GENERIC), _version(binder, "engine"))


def _version(binder: Binder, kind: str) -> str:
    """Return the version that the file names beside ``<kind>.name``, or nothing."""
    return str(binder.workload.values.get(f"{kind}.version") or "")


def _engine(binder: Binder, path: str) -> Leaf:
    figure = released_figure(engine_name(binder), path, _version(binder, "engine"))
    if binder.assume.efficiency == "ideal" and figure.unit in ("s", "step", "share"):
        return Leaf(1.0 if figure.unit == "share" else 0.0, IDEAL, "input")
    return Leaf(figure.value, figure.source, figure.evidence)


def _draft(binder: Binder, path: str) -> Leaf:
    """Return a size of the model that drafts: another model, or (mtp, eagle) a layer of the served one with its output head."""
    from tokenmill.imports.architecture import load_architecture

    name = _chosen(binder, "draft", "ngram")
    own = binder.architecture
    if name == "ngram" or own is None:
        return Leaf(0.0, "a draft that computes nothing", "input")
    layer = name in ("mtp", "eagle")
    drafts = own if layer else load_architecture(name)
    head = float(drafts.head.parameters) if drafts.head is not None else 0.0
    share = 1.0 / drafts.layer_count if layer else 1.0
    sizes = {
        "parameters": (drafts.matmul_parameters_active - head) * share + head,
        "layers": drafts.layer_count * share,
        "kv_elements": sum(kind.count * kind.mixer.kv_elements for kind in drafts.layers) * share,
    }
    return Leaf(sizes[path], f"configuration of {drafts.name}", "guess" if layer else drafts.evidence)


def _store(binder: Binder, path: str) -> Leaf:
    """Return a figure of the store that a role stands on, or else of the one that the file names."""
    own = binder.system.hardware == STORE
    store = binder.catalog.store(binder.system.id if own else _chosen(binder, "store"))
    value = getattr(store, path, None)
    if value is None:
        return ABSENT
    evidence = store.figures[path].evidence if path in store.figures else "datasheet" if store.checked else "guess"
    return Leaf(min(float(value), UNLIMITED), store.source, evidence)


def _rate(binder: Binder, path: str) -> Leaf:
    """Return a figure of the catalogue's table of what a core does in a second."""
    rate = binder.catalog.cpus.get(path)
    if rate is None:
        raise CatalogError(f"rate: found {path!r}; allowed: a row of the catalogue's rates of cores")
    return Leaf(rate.figure.value, rate.figure.source, rate.figure.evidence)


def _system(binder: Binder, path: str) -> Leaf:
    if path == "number":  # tells systems apart where parts of a run must stand on one
        return Leaf(float(crc32(binder.system.id.encode())), "name of the system", "input")
    if path == "fabric_share":
        if binder.assume.efficiency == "ideal":
            return Leaf(1.0, IDEAL, "input")
        figure = binder.catalog.fabric_share(binder.system.id)
        return Leaf(figure.value, figure.source, figure.evidence)
    if path == "host_pace":
        figure = host_pace(binder.system.host_cpu)
        return Leaf(figure.value, figure.source, figure.evidence)
    value = getattr(binder.system, path, None)
    return ABSENT if value is None else Leaf(float(value), binder.system.source, "datasheet")


def _constant(binder: Binder, path: str) -> Leaf:
    return Leaf(float(path), "constant", "input")


_PROVIDERS: dict[str, Callable[[Binder, str], Leaf]] = {
    "input": _input,
    "arch": _arch,
    "chip": _chip,
    "precision": _precision,
    "engine": _engine,
    "draft": _draft,
    "store": _store,
    "rate": _rate,
    "system": _system,
    "assume": _input,
    "constant": _constant,
}
