"""Terms of payment of systems that are bought or reserved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil, floor

from tokenmill.offers import YEAR, Offer
from tokenmill.problem import Horizon, Ownership

HOUR = 3600.0
ROUNDING = 1e-9


@dataclass(frozen=True)
class Commitment:
    """A unit committed at the start of a period: periods it can be used, USD paid by period, present USD got back."""

    active: int
    payments: Mapping[int, float]
    residual: float


def discount(horizon: Horizon, period: float) -> float:
    """Return the present value of a dollar paid at the start of a period (period `periods` + 1: the horizon's end)."""
    years = (period - 1) * horizon.duration / horizon.periods / YEAR
    return float((1.0 + horizon.discount_rate) ** -years)


def commitment(offer: Offer, since: int, horizon: Horizon, ownership: Ownership) -> Commitment:
    """Return the terms of one counted unit of an offer that is committed at the start of period `since`."""
    if offer.kind == "buy":
        return _bought(
            offer.unit_price(since), since, horizon.duration, horizon.periods, horizon.discount_rate, ownership
        )
    return _reserved(
        offer.unit_price(since), offer.commitment or 0.0, since, horizon.duration, horizon.periods, horizon.commitments
    )


@cache
def _bought(price: float, since: int, duration: float, periods: int, rate: float, own: Ownership) -> Commitment:
    """Purchase at once, operations while it stands; at its end a straight line from the price to its residual share."""
    length = duration / periods
    age = min(duration - (since - 1) * length, own.life)
    active = min(max(1, floor(own.life / length + ROUNDING)), periods - since + 1)
    paid = {since + n: price * own.operations * min(length, age) / YEAR for n in range(active)}
    paid[since] += price
    value = price * (1.0 - (1.0 - own.residual) * age / own.life)
    years = ((since - 1) * length + age) / YEAR
    return Commitment(active, paid, value * float((1.0 + rate) ** -years))


@cache
def _reserved(price: float, term: float, since: int, duration: float, periods: int, past: str) -> Commitment:
    """Pay by the hour over the whole term, renewed to last a period; what lies past the horizon falls due in its last period."""
    length = duration / periods
    terms = ceil(length / term - ROUNDING) if term < length else 1
    whole = terms * term
    active = min(max(1, floor(whole / length + ROUNDING)), periods - since + 1)
    paid: dict[int, float] = {}
    left = whole
    for period in range(since, periods + 1):
        seconds = min(length, left)
        if seconds > 0.0:
            paid[period] = price * seconds / HOUR
        left -= seconds
    if past == "full" and left > 0.0:
        paid[periods] += price * left / HOUR
    return Commitment(active, paid, 0.0)
