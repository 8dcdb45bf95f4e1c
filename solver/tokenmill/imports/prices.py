"""Reads cloud price lists in the form of the SkyPilot catalogue (``vms.csv``), or of an extract with the provider named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite
from pathlib import Path

from tokenmill import data
from tokenmill.catalog_entry import read_csv
from tokenmill.catalog_prices import first_month
from tokenmill.catalog_records import Price
from tokenmill.errors import CatalogError, ImportFileError, nearest

UNDATED = "undated"
BEFORE_ALL = "0000-01"
"""Month of a list without a date: older than any, so that its prices are marked as stale."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "instance": ("instance_type", "InstanceType"),
    "accelerator": ("accelerator", "AcceleratorName"),
    "count": ("accelerator_count", "AcceleratorCount"),
    "price": ("on_demand_usd_per_hour", "Price"),
    "region": ("region", "Region"),
}
SPOT = ("spot_low_usd_per_hour", "spot_high_usd_per_hour", "SpotPrice")


@dataclass(frozen=True)
class PriceList:
    """What was read of a file: the prices, and the rows left out, each with its number, its name and the reason."""

    prices: tuple[Price, ...]
    refused: tuple[str, ...]


def read_prices(path: Path | str, provider: str | None = None, as_of: str | None = None) -> list[Price]:
    """Return the prices of a list, USD a chip-hour; see `read_price_list` for what was left out.

    Raises
    ------
    ImportFileError
        Where the file cannot be read, lacks a column, or holds no price of a known chip.
    """
    return list(read_price_list(path, provider, as_of).prices)


def read_price_list(path: Path | str, provider: str | None = None, as_of: str | None = None) -> PriceList:
    """Return the prices of a list and the rows refused.

    Prices in the file are of a whole instance and are divided by its accelerators. `provider`: where the file has no such
    column (default: the name of its folder). `as_of`: its date (YYYY, YYYY-H2, YYYY-MM or YYYY-MM-DD).
    """
    file = Path(path)
    try:
        date = first_month(as_of) if as_of else BEFORE_ALL
        rows = read_csv(file)
    except (OSError, CatalogError) as error:
        raise ImportFileError(f"price list {file}: {error}") from error
    if not rows:
        raise ImportFileError(f"price list {file}: found no rows; allowed: a CSV with a header")
    names = {key: _column(file, rows[0], key) for key in COLUMNS}
    found: list[Price] = []
    refused: list[str] = []
    for number, row in enumerate(rows, start=1):
        cells = {key: row[column].strip() for key, column in names.items()}
        seller = row.get("provider") or provider or file.parent.name
        try:
            found += _prices(cells, row, seller, as_of or UNDATED, date, row.get("source_file") or file.name)
        except _RowError as error:
            refused.append(
                f"row {number} ({seller} {cells['instance'] or cells['accelerator']} {cells['region']}): {error}"
            )
            found += error.kept
    if not found:
        raise ImportFileError(f"price list {file}: no price of a known chip; " + "; ".join(refused[:5]))
    return PriceList(tuple(found), tuple(refused))


class _RowError(Exception):
    """Why a row, or its spot price alone, is left out; `kept`: the prices of the row that stand."""

    def __init__(self, reason: str, kept: tuple[Price, ...] = ()) -> None:
        self.kept = kept
        super().__init__(reason)


def _column(file: Path, row: Mapping[str, str], key: str) -> str:
    for name in COLUMNS[key]:
        if name in row:
            return name
    raise ImportFileError(
        f"price list {file}: found columns {', '.join(row)}; allowed: one of {' or '.join(COLUMNS[key])}"
    )


def _prices(
    cells: Mapping[str, str], row: Mapping[str, str], seller: str, as_of: str, date: str, source: str
) -> Iterator[Price]:
    """Yield the on-demand and the spot price of a row."""
    if not cells["accelerator"]:
        raise _RowError("no accelerator")
    if not cells["instance"] or cells["instance"] == "nan":
        raise _RowError("an accelerator without its host: the price of the host must be added")
    chip = chip_of(cells["accelerator"])
    count = _number(cells["count"], "accelerator count")
    if not count or count < 1:
        raise _RowError("accelerator count: allowed: at least 1")
    listed = _number(cells["price"], "price")
    quotes = [quote for name in SPOT if (quote := _number(row.get(name, ""), name)) is not None]
    spot = sum(quotes) / len(quotes) if quotes else None

    def price(market: str, amount: float) -> Price:
        return Price(
            chip=chip, system=_system_of(cells["instance"]), provider=seller, market=market, region=cells["region"],
            per_chip_hour=amount / count, purchase=None, unit="chip", as_of=as_of, date=date, offer=cells["instance"],
            source=source, evidence="datasheet",
        )  # fmt: skip

    if listed is not None and spot is not None and spot > listed:
        raise _RowError(f"spot {spot:g} above the price {listed:g}: a flexible-start or calendar offer, not on-demand")
    if listed is not None:
        yield price("on-demand", listed)
    if spot is not None and spot == listed:
        raise _RowError(f"spot equals the price {listed:g}: no discount, so no spot market")
    if spot is not None:
        yield price("spot", spot)
    if listed is None and spot is None:
        raise _RowError("no price")


def _number(text: str, what: str) -> float | None:
    """Return a number, None for an empty cell."""
    if text.strip().lower() in ("", "nan"):
        return None
    try:
        value = float(text)
    except ValueError:
        raise _RowError(f"{what}: found {text!r}; allowed: a number") from None
    if not isfinite(value) or value < 0:
        raise _RowError(f"{what}: found {text!r}; allowed: a finite number, at least 0")
    return value


def chip_of(accelerator: str) -> str:
    """Return the catalogue chip that a price list calls by another name."""
    known = _accelerators()
    chip = known.get(accelerator.casefold())
    if chip is None:
        hint = nearest(accelerator.casefold(), known)
        raise _RowError(f"accelerator {accelerator!r} is not known" + (f" (nearest: {hint})" if hint else ""))
    return chip


@cache
def _accelerators() -> dict[str, str]:
    rows = read_csv(data.path("catalog") / "prices" / "accelerators.csv")
    return {row["accelerator"].casefold(): row["chip"] for row in rows}


def _system_of(instance: str) -> str | None:
    """Return the catalogue system of an instance type, where there is one of that name."""
    from tokenmill.catalog import load_catalog

    id = instance.replace(".", "-")
    return id if id in load_catalog().systems else None
