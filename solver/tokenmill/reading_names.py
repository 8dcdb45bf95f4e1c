"""The names that a problem file may use: of the catalogue, and of its own tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenmill.catalog import Catalog
from tokenmill.errors import CatalogError, ImportFileError, nearest
from tokenmill.imports.architecture import architecture_names, load_architecture
from tokenmill.problem import MARKETS

Refusal = tuple[str, str | None]


class Names:
    """Vocabularies of one file: `of` is a kind of name (system, chip, network, model, workload, site, slice, region, ...)."""

    def __init__(self, raw: Mapping[str, Any], catalog: Catalog, base: Path) -> None:
        self.catalog, self.base = catalog, base
        hardware = _table(raw, "hardware")
        own_chips = _names(hardware.get("chip"))
        sites = [site for site in _list(hardware.get("site")) if isinstance(site, Mapping)]
        self.own: dict[str, list[str]] = {
            "workload": _names(raw.get("workload")),
            "site": _names(sites) or ["site"],
            "slice": _keys(_table(raw, "horizon").get("slices")) or ["all"],
            "region": [region for site in sites for region in _keys(site.get("regions"))],
            "market": list(MARKETS),
            "chip": [*own_chips, *catalog.chips],
            "network": list(catalog.networks),
            "precision": list(catalog.precisions),
            "store": list(catalog.stores),
        }
        self._own_chips = own_chips
        self._special: dict[str, Callable[[str], Refusal | None]] = {
            "system": self._system,
            "model": self._model,
        }

    def check(self, of: str, name: str) -> Refusal | None:
        """Return None for a known name, else (what is allowed, nearest known name)."""
        if of in self._special:
            return self._special[of](name)
        known = self.own[of]
        if name in known:
            return None
        return (f"a {of} that is there: {_short(known)}", nearest(name, known))

    def slices(self) -> tuple[str, ...]:
        """Return the slices of the day."""
        return tuple(self.own["slice"])

    def _system(self, name: str) -> Refusal | None:
        if name in self._own_chips:
            return None
        try:
            self.catalog.system(name)
        except CatalogError as error:
            known = [*self.catalog.systems, *self.own["chip"]]
            return (f"a system or chip of the catalogue ({error})", nearest(name, known))
        return None

    def _model(self, name: str) -> Refusal | None:
        try:
            load_architecture(name, self.base)
        except CatalogError:
            allowed = "an architecture of the catalogue, or the path of a config.json"
            return (allowed, nearest(name.lower(), architecture_names()))
        except ImportFileError as error:
            return (f"a configuration that can be read ({error})", None)
        return None


def _short(words: Iterable[str]) -> str:
    words = list(words)
    return ", ".join(words[:12]) + (f", … ({len(words)} in all)" if len(words) > 12 else "") or "none"


def _table(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = raw.get(name)
    return found if isinstance(found, Mapping) else {}


def _list(raw: Any) -> list[Any]:
    return list(raw) if isinstance(raw, list | tuple) else []


def _keys(raw: Any) -> list[str]:
    return [str(label) for label in raw] if isinstance(raw, Mapping) else []


def _names(raw: Any) -> list[str]:
    tables = [item for item in _list(raw) if isinstance(item, Mapping)]
    return [item["name"] for item in tables if isinstance(item.get("name"), str)]
