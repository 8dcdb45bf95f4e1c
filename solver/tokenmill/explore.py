"""`explore`: the layouts that survive the search, with what each would cost a unit or a run, before the programme chooses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import inf, log10
from typing import TYPE_CHECKING, Any

from tokenmill.plan_pools import layout_of
from tokenmill.report.html_parts import colour, document, table
from tokenmill.report.text_pools import choices_text
from tokenmill.report.text_words import money, quantity

if TYPE_CHECKING:
    from tokenmill.candidates.columns import Column
    from tokenmill.catalog import Catalog
    from tokenmill.offers import Offer
    from tokenmill.problem import Problem

HOUR = 3600.0
WIDTH, HEIGHT, EDGE = 760, 420, 56


@dataclass(frozen=True)
class Candidate:
    """A layout of a role on a system.

    `chips` of one replica or run. `rate`: units/s a replica carries at the shares of the request classes (a pool).
    `duration`: s (a run). `chip_hour`: USD in the cheapest asked market; None where it can only be bought or is owned.
    `cost`: USD a unit, or a run, at full load; None likewise. `power`: W of its chips at full load.
    """

    workload: str
    role: str
    system: str
    market: str
    chips: float
    layout: str
    rate: float | None
    duration: float | None
    chip_hour: float | None
    cost: float | None
    power: float


def explore(problem: Problem, *, catalog: Catalog | None = None) -> list[Candidate]:
    """Return the candidates of a problem by workload and role, the cheapest first, those without a rent last.

    Raises
    ------
    ProblemError
        For what the problem asks and the product cannot do, in words.
    """
    from tokenmill.api import prepare

    found = prepare(problem, catalog)
    paid = rents(found.offers)
    rows = [
        _candidate(column, searched.columns.shares, paid)
        for searched in found.searched
        for columns in searched.columns.columns.values()
        for column in columns
    ]
    return sorted(rows, key=lambda row: (row.workload, row.role, inf if row.cost is None else row.cost, row.layout))


def rents(offers: Sequence[Offer]) -> dict[str, tuple[float, str]]:
    """Return USD a chip-hour and its market by system: the cheapest that is paid by the hour."""
    found: dict[str, tuple[float, str]] = {}
    for offer in offers:
        if offer.kind in ("rent", "reserve"):
            price = offer.price / offer.chips, offer.market
            found[offer.system] = min(price, found.get(offer.system, price))
    return found


def _candidate(column: Column, shares: Sequence[float], paid: Mapping[str, tuple[float, str]]) -> Candidate:
    rate = max((_mixed_rate(point.rate, shares) for point in column.points), default=0.0) or None
    price, market = paid.get(column.system, (None, ""))
    hours = column.duration / HOUR if column.duration else 1 / (HOUR * rate) if rate else None
    return Candidate(
        column.workload, column.role, column.system, market, column.room, layout_words(column.layout), rate, column.duration,
        price, None if price is None or hours is None else price * column.room * hours, column.power_loaded,
    )  # fmt: skip


def _mixed_rate(rates: Sequence[float], shares: Sequence[float]) -> float:
    """Return units/s of a replica that serves all classes at their shares; 0 where it cannot serve one."""
    if len(rates) != len(shares) or any(rate <= 0 < share for rate, share in zip(rates, shares, strict=True)):
        return 0.0
    busy = sum(share / rate for rate, share in zip(rates, shares, strict=True) if share)
    return 1 / busy if busy else 0.0


def layout_words(values: Mapping[str, Any]) -> str:
    """Return the choices of a layout, by key, as people read them."""
    tables = layout_of(values)
    settings = {key: value for key, value in tables["settings"].items() if value not in (None, "none")}
    further = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in settings.items() if value != 1)
    return ", ".join(part for part in (choices_text(tables["layout"], tables["precision"], {}), further) if part)


def page(title: str, rows: Sequence[Candidate]) -> str:
    """Return candidates as an HTML page without script: a picture of cost against speed for every role, and a table."""
    groups: dict[tuple[str, str], list[Candidate]] = {}
    for row in rows:
        groups.setdefault((row.workload, row.role), []).append(row)
    body = [f"<h1>{escape(title)}</h1>", f"<p>{len(rows)} layouts survive the search.</p>"]
    for (workload, role), found in groups.items():
        body += [f"<h2>{escape(workload)}, {escape(role)}</h2>", _picture(found), _table(found)]
    style = "body{font:15px system-ui;margin:2rem} td,th{padding:.1rem .8rem .1rem 0;text-align:left} svg text{font-size:11px}"
    return document(title, style, body)


def _picture(rows: Sequence[Candidate]) -> str:
    """Return cost against chips as SVG, both on a scale of tens; a mark a candidate, its layout on pointing."""
    shown = [row for row in rows if row.cost]
    if not shown:
        return ""
    costs = [log10(row.cost or 1.0) for row in shown]
    chips = [log10(row.chips) for row in shown]
    systems = sorted({row.system for row in shown})
    marks = []
    for row, cost, count in zip(shown, costs, chips, strict=True):
        x = EDGE + _place(count, min(chips), max(chips)) * (WIDTH - 2 * EDGE)
        y = HEIGHT - EDGE - _place(cost, min(costs), max(costs)) * (HEIGHT - 2 * EDGE)
        fill = colour(systems.index(row.system))
        said = escape(f"{row.system}: {row.layout}; {row.chips:g} chips; ${row.cost:.4g}")
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" fill-opacity=".7"><title>{said}</title></circle>'
        )
    names = [
        f'<text x="{WIDTH - EDGE + 6}" y="{EDGE + 14 * at}" fill="{colour(at)}">{escape(name)}</text>'
        for at, name in enumerate(systems)
    ]
    axes = (
        f'<text x="{EDGE}" y="{HEIGHT - 18}">{min(r.chips for r in shown):g} chips</text>'
        f'<text x="{WIDTH - EDGE}" y="{HEIGHT - 18}" text-anchor="end">{max(r.chips for r in shown):g} chips</text>'
        f'<text x="4" y="{HEIGHT - EDGE}">${10 ** min(costs):.3g}</text><text x="4" y="{EDGE}">${10 ** max(costs):.3g}</text>'
    )
    return f'<svg width="{WIDTH + 140}" height="{HEIGHT}" role="img">{axes}{"".join(marks)}{"".join(names)}</svg>'


def _place(value: float, low: float, high: float) -> float:
    return 0.5 if high == low else (value - low) / (high - low)


def _table(rows: Sequence[Candidate]) -> str:
    heads = [name.removesuffix(">") for name in HEADS]
    return table(heads, ([escape(cell) for cell in cells] for cells in lines(rows)))


HEADS = (
    "system",
    "chips>",
    "layout",
    "rate>",
    "duration>",
    "market",
    "chip-hour>",
    "per million>",
    "per run>",
    "power>",
)
"""Columns of `lines`; ``>`` stands to the right."""


def lines(rows: Sequence[Candidate]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of `HEADS` of each candidate as people read them."""
    for row in rows:
        yield (
            row.system,
            f"{row.chips:g}",
            row.layout,
            "" if row.rate is None else f"{row.rate:.4g}/s",
            "" if row.duration is None else quantity(row.duration, "s"),
            row.market,
            "" if row.chip_hour is None else money(row.chip_hour),
            "" if row.cost is None or row.duration else money(row.cost * 1e6),
            "" if row.cost is None or not row.duration else money(row.cost),
            quantity(row.power, "W") if row.power else "",
        )
