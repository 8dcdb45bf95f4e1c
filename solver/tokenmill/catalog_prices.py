"""Prices: reading them, and which of them stands for a system in a market."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

from tokenmill.catalog_entry import Entry, read_csv
from tokenmill.catalog_records import Price, PriceChoice, System
from tokenmill.catalog_tables import evidence_of
from tokenmill.errors import CatalogError

HOUR = 3600.0
RENTAL = ("chip", "usd_per_hour")
"""Columns by which a rental table of our own is known."""


def first_month(as_of: str) -> str:
    """Return the first month (YYYY-MM) of a date written YYYY, YYYY-H1, YYYY-H2, YYYY-MM or YYYY-MM-DD.

    Raises
    ------
    CatalogError
        For anything else.
    """
    if re.fullmatch(r"\d{4}-H[12]", as_of):
        return as_of[:4] + ("-01" if as_of.endswith("1") else "-07")
    if re.fullmatch(r"\d{4}", as_of):
        return f"{as_of}-01"
    if re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])(-\d{2})?", as_of):
        return as_of[:7]
    raise CatalogError(f"date: found {as_of!r}; allowed: YYYY, YYYY-H1, YYYY-H2, YYYY-MM or YYYY-MM-DD")


def read_rentals(file: Path, cite: Callable[[str, tuple[str, ...]], str], user: bool = False) -> list[Price]:
    """Return the prices of a rental table: an offer of so many chips divided down to one chip."""
    found = []
    for at, line in enumerate(read_csv(file), start=1):
        row = Entry(f"{file.parent.name}/{file.name}[{at}]", line)
        as_of = row.text("as_of")
        found.append(
            Price(
                chip=row.text("chip"),
                system=row.text("system", "") or None,
                provider=row.text("provider"),
                market=row.text("market"),
                region=row.text("region", ""),
                per_chip_hour=row.number("usd_per_hour") / row.count("chips", 1),
                purchase=None,
                unit="chip",
                as_of=as_of,
                date=first_month(as_of),
                offer=row.text("offer", ""),
                source=cite(row.place, row.names("source")),
                evidence=evidence_of(row),
                notes=row.text("note", ""),
                origin="user" if user else "catalogue",
            )
        )
    return found


def read_purchases(
    file: Path, chips: Iterable[str], cite: Callable[[str, tuple[str, ...]], str], user: bool = False
) -> list[Price]:
    """Return the purchase prices of a table; `chips`: ids that are chips, the others are systems."""
    known = set(chips)
    found = []
    for at, line in enumerate(read_csv(file), start=1):
        row = Entry(f"{file.parent.name}/{file.name}[{at}]", line)
        unit, id, as_of = row.word("unit", ("chip", "system")), row.text("id"), row.text("as_of")
        if (unit == "chip") != (id in known):
            raise row.refuse("id", f"the id of a {unit}")
        found.append(
            Price(
                chip=id if unit == "chip" else "",
                system=None if unit == "chip" else id,
                provider=row.text("seller"),
                market="buy",
                region="",
                per_chip_hour=None,
                purchase=row.number("usd"),
                unit=unit,
                as_of=as_of,
                date=first_month(as_of),
                offer="",
                source=cite(row.place, row.names("source")),
                evidence=evidence_of(row),
                notes=row.text("note", ""),
                origin="user" if user else "catalogue",
            )
        )
    return found


def prices_of(
    prices: Iterable[Price],
    system: System,
    market: str,
    provider: str | None = None,
    region: str | None = None,
    price_date: str | None = None,
) -> list[Price]:
    """Return the prices that stand for a system in a market, oldest first.

    A price of the system itself, or of its chip. A cloud's own system takes that cloud's prices alone: of the same offer
    where there is one. `price_date`: the last date that counts.
    """
    limit = first_month(price_date) if price_date else "9999-12"
    asked = provider or system.provider
    rows = [
        price
        for price in prices
        if price.market == market
        and (price.system == system.id or price.chip == system.chip)
        and (asked is None or price.provider.casefold() == asked.casefold())
        and (region is None or price.region == region)
        and price.date <= limit
    ]
    own = [price for price in rows if price.system == system.id]
    if own:
        rows = own if system.provider or market == "buy" else rows
    elif system.provider:
        rows = [price for price in rows if price.system is None]
    return sorted(rows, key=lambda price: (price.date, price.provider, price.region))


def choose_price(rows: Sequence[Price], system: System, newest: str) -> PriceChoice | None:
    """Return the price taken of rows of one market, or None of none.

    The rows with the best evidence count; of them those of the newest month; each provider counts once, at its cheapest
    region; the median over providers is taken. A purchase of single chips is times the chips of the system.
    """
    sound = [row for row in rows if row.evidence != "guess"] or list(rows)
    if not sound:
        return None
    month = max(row.date for row in sound)
    latest = [row for row in sound if row.date == month]
    cheapest: dict[str, float] = {}
    for row in latest:
        amount = (
            row.per_chip_hour if row.purchase is None else row.purchase * (system.chips if row.unit == "chip" else 1)
        )
        if amount is not None:
            cheapest[row.provider] = min(amount, cheapest.get(row.provider, amount))
    value = median(cheapest.values())
    bought = latest[0].purchase is not None
    bare = bought and latest[0].unit == "chip" and system.chips > 1
    source = "; ".join(dict.fromkeys(row.source for row in latest))
    return PriceChoice(
        per_chip_hour=None if bought else value,
        purchase=value if bought else None,
        providers=tuple(sorted(cheapest)),
        date=max(row.as_of for row in latest),
        stale=months_between(month, newest) > 12,
        source=f"chips alone, without their host: {source}" if bare else source,
        evidence="guess" if bare else latest[0].evidence,
    )


def months_between(first: str, last: str) -> int:
    """Return the months from one YYYY-MM to another."""
    return (int(last[:4]) - int(first[:4])) * 12 + int(last[5:7]) - int(first[5:7])
