"""Reads the shape of an AI model from a Hugging Face ``config.json``, or from the catalogue by name."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from tokenmill import data
from tokenmill.catalog_tables import read_precisions
from tokenmill.errors import CatalogError, nearest
from tokenmill.imports.families.assemble import assemble
from tokenmill.imports.families.config import Config
from tokenmill.imports.files import read_json
from tokenmill_models.architecture import (
    Architecture,
    indexer_bytes_per_token,
    kv_bytes_per_token,
    state_bytes,
    weight_bytes,
)

LARGEST_FILE = 16 * 2**20  # bytes; a configuration is a few kilobytes


def short_name(full: str) -> str:
    """Return the kebab-case name: after the organisation, without ``Meta-`` before and ``-hf``, ``-Instruct``, date behind."""
    name = re.split(r"__|/", full)[-1].lower().removeprefix("meta-")
    previous = None
    while name != previous:
        previous = name
        name = re.sub(r"(-hf|-instruct|-\d{4}|-\d{6,8})$", "", name)
    return name.replace("_", "-")


def read_architecture(source: str | Path | Mapping[str, Any], name: str | None = None) -> Architecture:
    """Read an architecture from a ``config.json`` (or its fields).

    Raises
    ------
    ImportFileError
        Where the file cannot be read, the family is unknown, or a field is missing or impossible; it names file and field.
    """
    if isinstance(source, Mapping):
        fields, place = source, "configuration"
    else:
        path = Path(source)
        path = path / "config.json" if path.is_dir() else path
        fields, place = read_json(path, LARGEST_FILE), str(path)
    if name is None:
        given = fields.get("_name_or_path")
        file_name = "" if isinstance(source, Mapping) else Path(place).stem
        name = short_name(file_name if file_name not in ("", "config") else str(given or "model"))
    arch = assemble(Config(fields, place), name)
    return replace(arch, source=place)


@cache
def _index(folder: Path) -> dict[str, dict[str, str]]:
    """Read the index of a folder of configurations: name and alias -> row."""
    file = folder / "index.csv"
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except OSError as error:
        raise CatalogError(f"{file}: cannot be read ({error.strerror})") from error
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        for key in (row["name"], row["alias"].lower(), row["alias"].rsplit("/", 1)[-1].lower()):
            if found.setdefault(key, row) is not row:
                raise CatalogError(f"{file}: {key!r} names both {found[key]['file']} and {row['file']}")
    return found


def _folder() -> Path:
    return data.path("catalog") / "architectures"


def architecture_names() -> list[str]:
    """Return the names under ``catalog/architectures``, sorted."""
    return sorted({row["name"] for row in _index(_folder()).values()})


def published_as(name: str) -> str | None:
    """Return the repository, ``organisation/name``, of a model of the catalogue; None for another."""
    row = _index(_folder()).get(name.lower())
    return row["alias"] if row is not None else None


def load_architecture(name_or_path: str, base: Path | None = None) -> Architecture:
    """Return the architecture of a catalogue name, or of a configuration file (relative to `base`).

    Raises
    ------
    CatalogError
        Where neither the catalogue nor the disk holds it; it gives the nearest name.
    ImportFileError
        Where the file cannot be read.
    """
    index = _index(_folder())
    row = index.get(name_or_path.lower())
    if row is not None:
        return _from_row(row)
    path = (base or Path()) / name_or_path
    if path.suffix == ".json" or path.exists():
        return read_architecture(path)
    near = nearest(name_or_path.lower(), index)
    hint = f"; nearest: {index[near]['name']}" if near else ""
    raise CatalogError(f"architecture {name_or_path!r}: not in the catalogue and no file of that name{hint}")


def _from_row(row: Mapping[str, str]) -> Architecture:
    arch = read_architecture(_folder() / row["file"], row["name"])
    checked = row["checked"] == "yes"
    return replace(
        arch,
        aliases=(row["alias"],),
        source=row["source"],
        checked=checked,
        evidence="datasheet" if checked else "guess",
        notes=arch.notes + ((row["note"],) if row["note"] else ()),
    )


@cache
def published_bits() -> dict[str, float]:
    """Return bits an element, scales included, by precision: the catalogue's."""
    return {name: precision.bits for name, precision in read_precisions(data.path("catalog")).items()}


def architecture_report(arch: Architecture) -> dict[str, Any]:
    """Return what ``import architecture --json`` prints. Bytes are of the checkpoint as published, KV of 16 bits.

    ``kv_bytes_per_token`` counts every layer that caches (no window full yet); with full windows it is
    ``kv_bytes_per_token_past_windows``.
    """
    unbounded = replace(arch, layers=tuple(kind for kind in arch.layers if kind.mixer.window is None))
    return {
        "name": arch.name,
        "family": arch.family,
        "parameters": {**asdict(arch.parameters), "multi_token_prediction": sum(size for _, size in arch.mtp)},
        "weight_bytes": weight_bytes(arch, published_bits()),
        "kv_bytes_per_token": kv_bytes_per_token(arch, 2.0),
        "kv_bytes_per_token_past_windows": kv_bytes_per_token(unbounded, 2.0),
        "indexer_bytes_per_token": indexer_bytes_per_token(arch),
        "state_bytes": state_bytes(arch),
        "precision": {
            "base": arch.base_precision,
            "weights": arch.weights_precision,
            "experts": arch.experts_precision or arch.weights_precision,
        },
        "hidden": arch.hidden,
        "vocabulary": arch.vocabulary,
        "max_positions": arch.max_positions,
        "layers": [{"kind": kind.name, "count": kind.count, "parameters": kind.parameters} for kind in arch.layers],
        "towers": [{"name": tower.name, "parameters": tower.parameters} for tower in arch.towers],
        "source": arch.source,
        "evidence": arch.evidence,
        "notes": list(arch.notes),
    }
