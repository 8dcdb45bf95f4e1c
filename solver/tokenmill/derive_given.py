"""Numbers for the symbols of a formula: given with units, or read from a chip or model of the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isnan
from typing import TYPE_CHECKING, Any

from tokenmill.errors import Mistake, ProblemError, TokenmillError, nearest
from tokenmill.units import QuantityError, parse_quantity
from tokenmill_models.symbols import Quantity, quantity

if TYPE_CHECKING:
    from tokenmill.derive import Given

CHIP_PREFIXES = ("chip", "precision")
DEFAULT_PRECISION = "bf16"
# symbols of a model as a whole, and the figure of its report that each is
OF_MODEL = {
    "N_active": "active",
    "N_train": "active",
    "N_serve": "active",
    "base_parameters": "total",
    "parameters_held": "total",
    "weight_bytes": "weight_bytes",
    "kv_token_bytes": "kv",
}
_INDEX = re.compile(r"\[(\w+)\]")
_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def read_given(symbols: Iterable[Any], values: Mapping[str, Any], catalog: Any = None) -> dict[str, Given]:
    """Return what was given by symbol name, in SI; the catalogue is loaded only where a name needs it.

    Besides symbols, `values` may hold ``chip``, ``model`` and the precisions that chip figures depend on
    (``compute``; bf16 where absent).

    Raises
    ------
    ProblemError
        All mistakes at once.
    """
    from tokenmill.derive import Given

    known = {symbol.name: quantity(symbol) for symbol in symbols}
    words = {word: str(values.get(word, DEFAULT_PRECISION)) for word in _words(known.values()) if word not in known}
    lookups = {"chip", "model", *words} - set(known)
    mistakes: list[Mistake] = []
    found: dict[str, Given] = {}
    for name, value in values.items():
        if name in lookups:
            continue
        name = _full(name, known)
        if name not in known:
            allowed = ", ".join((*sorted(known), *sorted(lookups)))
            mistakes.append(Mistake(f"--given {name}", repr(name), allowed, nearest(name, known)))
            continue
        try:
            found[name] = Given(_number(value, known[name]))
        except QuantityError as error:
            mistakes.append(Mistake(f"--given {name}", error.found, error.allowed))
        else:
            mistakes += _outside(name, found[name].value, known[name])
    looked_up = _look_up(known, words, {key: str(values[key]) for key in lookups & set(values)}, catalog, mistakes)
    if mistakes:
        raise ProblemError(mistakes)
    return {**looked_up, **found}


def _outside(name: str, value: float, about: Quantity) -> list[Mistake]:
    """Return the mistake of a number that the symbol cannot have, if it is one."""
    symbol = about.symbol
    if isnan(value) or (symbol.is_nonnegative and value < 0) or (symbol.is_positive and value == 0):
        return [
            Mistake(f"--given {name}", f"{value:g}", "a number above zero" if symbol.is_positive else "zero or more")
        ]
    return []


def _full(name: str, known: Mapping[str, Quantity]) -> str:
    """Return the symbol that a name starts, where it starts one alone: batch for batch_size."""
    starting = [symbol for symbol in known if symbol.startswith(f"{name}_")]
    return starting[0] if name not in known and len(starting) == 1 else name


def _of_model(name: str, symbols: Iterable[str]) -> dict[str, Given]:
    """Return what closed forms ask of a model as a whole: sizes counted from its configuration, published precision."""
    from tokenmill.derive import Given
    from tokenmill.imports.architecture import architecture_report, load_architecture

    if not set(symbols) & set(OF_MODEL):
        return {}
    report = architecture_report(load_architecture(name))
    counted = {**report["parameters"], "weight_bytes": report["weight_bytes"], "kv": report["kv_bytes_per_token"]}
    source = f"{name}, {report['evidence']}: counted from its configuration, weights as published, cache of 16 bits"
    return {symbol: Given(float(counted[OF_MODEL[symbol]]), source) for symbol in symbols if symbol in OF_MODEL}


def _words(quantities: Iterable[Quantity]) -> list[str]:
    return sorted({word for q in quantities for word in _INDEX.findall(q.origin or "")})


def _number(value: Any, about: Quantity) -> float:
    """Return a number in SI; a bare number counts in SI."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    text = str(value).strip()
    return float(text) if _PLAIN.fullmatch(text) else parse_quantity(text, about.dimension)


def _look_up(
    known: Mapping[str, Quantity],
    words: Mapping[str, str],
    names: Mapping[str, str],
    catalog: Any,
    mistakes: list[Mistake],
) -> dict[str, Given]:
    """Return the values that the chip and the model named give."""
    from tokenmill.derive import Given

    wanted = {"chip": CHIP_PREFIXES, "model": ("arch",)}
    found: dict[str, Given] = {}
    for source, prefixes in wanted.items():
        if source not in names:
            continue
        try:
            binder = _binder(source, names[source], words, catalog)
            for symbol, about in known.items():
                if (about.origin or "").partition(".")[0] not in prefixes:
                    continue
                leaf = binder.leaf(about)
                if leaf.value is not None:
                    found[symbol] = Given(leaf.value, f"{names[source]}, {leaf.evidence}: {leaf.source}")
            if source == "model":
                found |= _of_model(names[source], known)
        except (TokenmillError, AttributeError, LookupError, StopIteration) as error:
            mistakes.append(Mistake(f"--given {source}", repr(names[source]), str(error) or "a name of the catalogue"))
    return found


def _binder(source: str, name: str, words: Mapping[str, str], catalog: Any) -> Any:
    """Return the search's own reader of leaves, holding this chip or model alone."""
    from tokenmill.candidates.bind import Binder
    from tokenmill.catalog import load_catalog
    from tokenmill.problem import Assume, Workload

    data = catalog or load_catalog()
    chip: Any = data.chip(name) if source == "chip" else None
    system: Any = data.system(name) if source == "chip" else None
    architecture = None
    if source == "model":
        from tokenmill.imports.architecture import load_architecture

        architecture = load_architecture(name)
    return Binder(Workload("derive", ""), Assume(), data, architecture, system, chip, words, {}, {})
