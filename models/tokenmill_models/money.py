"""Money in closed form: rent, ownership, their break-even, erosion of prices, and what a token costs."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.formula import DEFINITION, Formula, Source, register
from tokenmill_models.symbols import constant, declare

ANNUITY = Source(
    "annuity with payments at the end of each year, e.g. Park 2013, Fundamentals of Engineering Economics, chapter 2"
)


def _input(name: str, dimension: str, doc: str, **about: str) -> sp.Symbol:
    return declare(name, dimension, doc, origin=f"input.{name}", **{"sign": "positive", **about})


YEAR = constant("year", 365 * 86400.0, "s", "seconds of a year of 365 days")
MILLION = constant("million", 1e6, "1", "a million")

rate = _input("discount_rate", "1", "discount rate a year", latex="r")
life = _input("life_years", "1", "years that a purchase serves", latex="n")
residual = _input("residual_share", "1", "share of the price that is left at the end of its life", sign="nonnegative")
purchase = _input("purchase", "USD", "price of a chip with its part of server, network and facility")
operations = _input("operations_share", "1", "cost of operation a year as a share of the price", sign="nonnegative")
draw = _input("chip_power", "W", "mean draw of a chip with its part of the server")
pue = _input("pue", "1", "facility power over IT power")
energy_price = _input("energy_price", "USD/J", "price of electricity")
rent_price = _input("rent_price", "USD/s", "rent of a chip")
chips = _input("chips", "1", "chips")
duration = _input("duration", "s", "time that they are held")
throughput = _input("fleet_tokens_per_second", "1/s", "tokens a second of all chips together")
revenue = _input("revenue", "USD", "what is earned in the same time")
cost = _input("cost", "USD", "what it costs")
halving = _input("halving_years", "1", "years in which the price of the same work halves")
years = _input("years", "1", "years from now", sign="nonnegative")

RECOVERY = register(
    Formula(
        "money.capital_recovery_factor",
        "Share of a purchase that each year must bring back",
        declare("crf", "1", "capital recovery factor"),
        rate * (1 + rate) ** life / ((1 + rate) ** life - 1),
        ANNUITY.by("n equal payments have the worth (1 - (1 + r)^-n)/r today", "set it to 1 and solve for the payment"),
        assumes=("payments at the end of each year",),
    )
)
_crf = RECOVERY.expr
_sinking = rate / ((1 + rate) ** life - 1)
_owned_year = purchase * (_crf - residual * _sinking + operations)
OWNED = register(
    Formula(
        "money.owned_price",
        "Cost of an owned chip for a second, all hours counted",
        declare("owned_price", "USD/s", "cost of an owned chip a second"),
        _owned_year / YEAR + draw * pue * energy_price,
        ANNUITY.by(
            "the price is paid back by an annuity over the life",
            "the residual value saves a sinking-fund payment",
            "operation is a share of the price; energy is draw times PUE times price",
        ),
        assumes=("the residual value is received at the end of the life", "the chip draws its mean power throughout"),
    )
)
BREAK_EVEN = register(
    Formula(
        "money.break_even_utilisation",
        "Share of the time that a chip must be needed for owning to cost no more than renting by the hour",
        declare("break_even_utilisation", "1", "share of time at which owning equals renting"),
        _owned_year / YEAR / (rent_price - draw * pue * energy_price),
        ANNUITY.by(
            "an owned chip costs its annuity, less what its residual value saves, and its operation",
            "a rented chip costs rent in the hours used; an owned one draws power in them",
            "set both equal and solve for the share of hours",
        ),
        assumes=("a rented chip is paid for the hours used alone", "an owned chip draws power in those hours alone"),
        valid=(sp.Gt(rent_price, draw * pue * energy_price),),
    )
)
EROSION = register(
    Formula(
        "money.price_erosion",
        "Price of the same work after some years of falling prices",
        declare("price_factor", "1", "price then over price now"),
        sp.Rational(1, 2) ** (years / halving),
        Source("constant halving time").by("each halving time halves the price"),
        assumes=("prices fall at a constant rate",),
    )
)
ERODED_MEAN = register(
    Formula(
        "money.mean_price_factor",
        "Mean price over a term of falling prices, over the price at its start: what a fixed rent competes with",
        declare("mean_price_factor", "1", "mean price over a term over its first price"),
        halving / (years * sp.log(2)) * (1 - sp.Rational(1, 2) ** (years / halving)),
        Source("integral of the price that halves in a constant time").by(
            "the price after t years is 2^(-t/h)", "its mean over n years is the integral over n"
        ),
        valid=(sp.Gt(years, 0),),
        assumes=("prices fall at a constant rate",),
    )
)
RENT = register(
    Formula(
        "money.rent",
        "Rent of chips over a time",
        declare("rent", "USD", "rent"),
        chips * duration * rent_price,
        DEFINITION.by("chips times time times price"),
        assumes=("one price throughout",),
    )
)
MARGIN = register(
    Formula(
        "money.margin_on_cost",
        "Profit over cost",
        declare("margin_on_cost", "1", "profit as a share of cost"),
        revenue / cost - 1,
        DEFINITION.by("revenue less cost, over cost"),
        assumes=("revenue and cost of the same time",),
    )
)
COST_PER_MILLION = register(
    Formula(
        "money.cost_per_million_tokens",
        "Price of a million tokens",
        declare("cost_per_million", "USD", "price of a million tokens"),
        rent_price * chips / throughput * MILLION,
        DEFINITION.by("price of all chips a second over tokens a second"),
        assumes=("the chips are kept busy at this rate",),
    )
)
