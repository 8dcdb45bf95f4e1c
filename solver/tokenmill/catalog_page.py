"""The page ``docs/catalog.md``: what the catalogue holds, and every figure in it that nobody has checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tokenmill.catalog import Catalog, Figure, Rate, load_catalog
from tokenmill.docs.text import table
from tokenmill.plan_json import write_text

HEAD = """# The catalogue

Written by `python -m tokenmill.catalog_page docs/catalog.md`; not edited by hand.

Every figure has a source and one of these marks: **measured**, **datasheet** (read in the source named), **claim** (of the
maker, for a product that nobody else has measured) or **guess** (recalled, estimated or derived). A figure marked guess may
enter a plan, which shows the mark; no test takes one as its oracle.
"""

FILES = """## Its files

| file under `catalog/` | what it holds |
| --- | --- |
| `chips/*.toml` | accelerators, SoCs, processors: dense rates, memory, links, power |
| `systems/*.toml` | servers, racks, pods, instances: chips, scale-up and scale-out, host, power, list price |
| `networks/`, `links/`, `stores/` | fabrics; links and what collectives reached on them; storage |
| `prices/rental.csv`, `prices/purchase.csv` | what plans are priced with: a chip-hour by provider, market and region; a unit to buy |
| `prices/services.csv`, `prices/vcpu.csv` | storage, network, colocation, building; CPU-only instances |
| `prices/owner_tco.csv`, `prices/trends.csv` | modelled cost of ownership and ratios over time: to compare with, never priced with |
| `prices/accelerators.csv` | what price lists call a chip |
| `grids/`, `power/`, `cpus/` | carbon, water and electricity by region; PUE, embodied carbon, power shares; CPU and data-preparation rates |
| `precisions.toml`, `reliability.toml`, `refused.toml`, `sources.toml` | number formats; failure rates; names not offered, with the reason; citations |

A folder given with `--catalog` holds any of `chips/ systems/ networks/ stores/ prices/` in the same forms: a known id overrides
the keys that it gives, new ids are added, and prices replace those of their chip and market. All of it is marked as the user's.
"""


def page(catalog: Catalog) -> str:
    """Return the page in Markdown."""
    parts = [HEAD, FILES, _counts(catalog), _unchecked("Chips", catalog.chips), _unchecked("Systems", catalog.systems)]
    parts += [_unchecked("Networks", catalog.networks), _unchecked("Stores", catalog.stores)]
    parts += [
        _prices(catalog),
        _rates("CPU and storage steps", catalog.cpus),
        _rates("Power", catalog.power),
        _refused(catalog),
    ]
    return "\n".join(parts)


def _counts(catalog: Catalog) -> str:
    rows = []
    for name in ("chips", "systems", "networks", "stores"):
        records: Mapping[str, object] = getattr(catalog, name)
        rows.append((name, len(records), sum(bool(getattr(record, "checked", False)) for record in records.values())))
    rows.append(("prices", len(catalog.prices), sum(price.evidence != "guess" for price in catalog.prices)))
    return "## What it holds\n\n" + table(("table", "entries", "main figures read in a source"), rows)


def _unchecked(title: str, records: Mapping[str, object]) -> str:
    rows = []
    for id, record in sorted(records.items()):
        figures: Mapping[str, Figure] = getattr(record, "figures", {})
        doubted = [name for name, figure in figures.items() if figure.evidence == "guess" and name != "idle_power"]
        claimed = [name for name, figure in figures.items() if figure.evidence == "claim"]
        if doubted or claimed:
            rows.append((f"`{id}`", ", ".join(doubted) or "-", ", ".join(claimed) or "-"))
    note = (
        "\nThe idle power of a chip is a guess wherever it is not given: the usual share of its limit.\n"
        if title == "Chips"
        else ""
    )
    return f"## {title}\n{note}\n" + table(("entry", "guess", "claim"), rows)


def _prices(catalog: Catalog) -> str:
    rows = [
        (f"`{price.chip or price.system}`", price.market, price.provider, price.as_of, price.notes or "-")
        for price in catalog.prices
        if price.evidence == "guess"
    ]
    return "## Prices\n\n" + table(("of", "market", "provider", "as of", "note"), sorted(rows))


def _rates(title: str, rates: Mapping[str, Rate]) -> str:
    rows = [(f"`{id}`",) for id, rate in rates.items() if rate.figure.evidence == "guess"]
    return f"## {title}\n\n" + table(("guess",), rows)


def _refused(catalog: Catalog) -> str:
    rows = [(f"`{id}`", refused.status, refused.reason) for id, refused in sorted(catalog.refused.items())]
    return "## Not offered\n\n" + table(("name", "status", "reason"), rows)


def main(target: Path) -> None:
    """Write the page."""
    write_text(page(load_catalog()), target)


if __name__ == "__main__":
    import sys

    main(Path(sys.argv[1]))
