"""Reads what announcements write: counts and names of hardware, models, precisions, numbers in a sentence; none of it is trusted to be there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.catalog import Catalog
from tokenmill.errors import Mistake, ProblemError, TokenmillError, nearest

KEYS = (
    "text",
    "metric",
    "value",
    "baseline",
    "hardware",
    "model",
    "precision",
    "batch",
    "context",
    "power",
    "maturity",
    "source",
)
FURTHER = ("chips", "price", "revenue", "cost", "made_up")
"""Keys beyond those that every claim has: numbers that some metrics need, and a mark on claims that nobody made."""
UNSAID = ("", "not stated", "unstated", "unknown", "n/a", "any", "none", "not applicable", "not given")
_NUMBER = re.compile(r"\d[\d\s,]*(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
_WORD = re.compile(r"[a-z]+\d[\w.]*|\d+[a-z][\w.]*|[a-z]+|\d+(?:\.\d+)?")
_COUNT = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(?:x|×|times)\s*", re.IGNORECASE)
_NODES = re.compile(r"(\d+(?:\.\d+)?)\s*(?:nodes|servers|hosts)\s*(?:of)?\s*(\d+)", re.IGNORECASE)
COUNTED = {"one": 1, "two": 2, "four": 4, "eight": 8, "sixteen": 16}


@dataclass(frozen=True)
class Hardware:
    """What a claim runs on: a chip of the catalogue (None: unknown there), how many (None: not said), and what is known of it otherwise."""

    said: str
    chip: Any | None
    count: float | None
    remark: str = ""


def read_claim(path: Path) -> dict[str, Any]:
    """Return the ``[claim]`` table of a file.

    Raises
    ------
    ProblemError
        Where the file cannot be read, a key is unknown, or text, metric, value or source is missing.
    """
    try:
        if path.exists() and not path.is_file():  # a device or pipe never ends
            raise OSError("no regular file")
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ProblemError([Mistake(str(path), str(error), "a readable TOML file with a [claim]")]) from error
    claim = tables.get("claim")
    if not isinstance(claim, dict) or len(tables) != 1:
        found = ", ".join(tables) or "nothing"
        raise ProblemError([Mistake(str(path), found, "one table, [claim]")])
    known = (*KEYS, *FURTHER)
    mistakes = [
        Mistake(f"claim.{key}", "unknown key", ", ".join(known), nearest(key, known))
        for key in claim
        if key not in known
    ]
    mistakes += [
        Mistake(f"claim.{key}", "nothing", "what is claimed, in words or a number")
        for key in ("text", "metric", "value", "source")
        if said(claim.get(key)) is None
    ]
    if mistakes:
        raise ProblemError(mistakes)
    return claim


def said(value: Any) -> Any | None:
    """Return a value, None where it says that nothing was said."""
    return None if value is None or (isinstance(value, str) and value.strip().lower() in UNSAID) else value


def numbers(value: Any) -> list[float]:
    """Return the numbers in a value: itself, those of a list, or those that a sentence holds."""
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, list):
        return [one for item in value for one in numbers(item)]
    return [float(re.sub(r"[\s,]", "", found)) for found in _NUMBER.findall(str(value)) if re.sub(r"[\s,]", "", found)]


def words(text: str) -> set[str]:
    """Return the words of a name, lower case, letters parted from what follows unless digits: ``h100``, ``70b``, ``sxm``."""
    return set(_WORD.findall(text.lower().replace("-", " ").replace("_", " ")))


def count_of(text: str) -> tuple[float | None, str]:
    """Return how many devices a text names (``8x H100``, ``226.75 nodes of 8 H800``), and the rest of it."""
    nodes = _NODES.search(text)
    if nodes:
        return float(nodes[1]) * float(nodes[2]), text[: nodes.start()] + text[nodes.end() :]
    count = _COUNT.match(text)
    if count:
        return float(count[1]), text[count.end() :]
    first, _, rest = text.partition(" ")
    return (float(COUNTED[first.lower()]), rest) if first.lower() in COUNTED else (None, text)


def hardware(text: Any, catalog: Catalog) -> Hardware:
    """Return the hardware that a text names."""
    if said(text) is None:
        return Hardware(str(text or "not stated"), None, None)
    count, rest = count_of(str(text))
    plain = re.sub(r"\([^)]*\)", " ", rest)
    asked = words(plain)
    # of chips that a text fits alike, the one in the wider domain: "H100" is the one on a board of eight
    chips = sorted(catalog.chips.values(), key=lambda chip: (-chip.scale_up_domain, -chip.scale_up, chip.id))
    found = best(plain, {chip.id: f"{chip.id} {chip.name}" for chip in chips})
    racks = best(plain, {id: f"{id} {system.name}" for id, system in catalog.systems.items()})
    if racks and (not found or asked & (words(racks) - words(f"{found} {catalog.chips[found].name}"))):
        system = catalog.systems[racks]
        return Hardware(str(text), catalog.chip(system.chip), count if count is not None else float(system.chips))
    if found:
        return Hardware(str(text), catalog.chips[found], count)
    try:
        catalog.chip("-".join(plain.lower().split()))
    except TokenmillError as error:
        return Hardware(str(text), None, count, str(error))
    return Hardware(str(text), None, count)


def best(text: str, names: Mapping[str, str]) -> str | None:
    """Return the key whose name shares most words with a text, and of those that with fewest others; words with digits must all be there."""
    asked = words(text)
    exact = {word for word in asked if any(c.isdigit() for c in word) and any(c.isalpha() for c in word)} or asked
    fitting = [key for key, name in names.items() if exact and exact <= words(name)]
    order = {key: place for place, key in enumerate(names)}
    return min(fitting, key=lambda key: (-len(asked & words(names[key])), order[key]), default=None)


def model_of(text: Any, names: Iterable[str]) -> str | None:
    """Return the architecture that a text names, None for none; of several, the one with the fewest further words."""
    if said(text) is None:
        return None
    first = re.split(r"\bwith\b|/", str(text))[0]
    asked = words(first)
    letters = {word for word in asked if word.isalpha()}
    fitting = [name for name in names if asked <= words(name) and letters]
    return min(fitting, key=lambda name: (len(words(name) - asked), -len(name), name), default=None)


def precisions(text: Any, known: Iterable[str]) -> list[str]:
    """Return the number formats that a text names, in its order; ``FP4`` alone is nvfp4, 16 and 8 bits are bf16 and fp8."""
    low = str(said(text) or "").lower()
    for usual, name in (("16-bit", "bf16"), ("8-bit", "fp8"), ("4-bit", "int4")):
        low = low.replace(usual, name)
    low = re.sub(r"(?<![a-z])fp4", "nvfp4", low)
    places = {name: re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", low) for name in known}
    return [name for _, name in sorted((place.start(), name) for name, place in places.items() if place)]


def numbers_of_sizes(text: str) -> list[float]:
    """Return model sizes in a text [parameters]: ``70B``, ``1.8T``."""
    scale = {"b": 1e9, "t": 1e12, "m": 1e6}
    return [
        float(n) * scale[unit.lower()] for n, unit in re.findall(r"(\d+(?:\.\d+)?)\s*([BTM])\b", text, re.IGNORECASE)
    ]
