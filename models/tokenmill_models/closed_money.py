"""Prices and break-evens: what work costs, when to reserve, to own, to replace."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.closed import DEFINITION, form, given
from tokenmill_models.money import MILLION, chips, halving, purchase, rate, rent_price
from tokenmill_models.roofline import F, W

PARK = "Park 2013, Fundamentals of Engineering Economics, chapters 3 to 5"

tokens = given("tokens_billed", "1", "tokens that are billed")
token_price = given("price_per_million", "USD", "price of a million tokens")
words = given("words", "1", "words of a text")
tokens_a_word = given("tokens_per_word", "1", "tokens of a word")
reserved = given("reserved_price", "USD/s", "price of a reserved chip, all hours paid")
on_demand = given("on_demand_price", "USD/s", "price of a chip by the hour")
spot = given("spot_price", "USD/s", "price of a spot chip")
spot_share = given("spot_useful", "1", "useful share of time on spot")
firm_share = given("firm_useful", "1", "useful share of time on demand")
old_rate = given("old_rate", "1/s", "tokens a second of the chip in hand")
new_rate = given("new_rate", "1/s", "tokens a second of the chip compared with")
running_old = given("running_cost_old", "USD/s", "what the chip in hand costs to run: power and place")
running_new = given("running_cost_new", "USD/s", "what the new chip costs to run: power and place")
saved = given("saved_rate", "USD/s", "what a purchase saves a second")
years = given("years_held", "1", "years that it is held", "n")
share_used = given("used_share", "1", "share of the paid time that is used")
input_tokens = given("input_tokens_a_request", "1", "prompt tokens of a request")
output_tokens = given("output_tokens_a_request", "1", "answer tokens of a request")
input_price = given("input_price_per_million", "USD", "price of a million prompt tokens")
cached_price = given("cached_price_per_million", "USD", "price of a million cached prompt tokens")
output_price = given("output_price_per_million", "USD", "price of a million answer tokens")
hit = given("hit_share", "1", "share of prompt tokens found in the cache", sign="nonnegative")
own_cost = given("own_cost_rate", "USD/s", "cost of an own deployment, busy or not")

PEAK_PER_DOLLAR = form(
    "money.peak_per_dollar", "Peak work that a dollar rents", ("peak_per_dollar", "FLOP/USD"), F / rent_price,
    DEFINITION, ("peak over the price of a second",), ("dense peak",),
)  # fmt: skip
BANDWIDTH_PER_DOLLAR = form(
    "money.bytes_per_dollar", "Bytes from memory that a dollar rents: what decode buys", ("bytes_per_dollar",
     "B/USD"), W / rent_price, DEFINITION, ("bandwidth over the price of a second",),
    ("decode is bound by bandwidth",),
)  # fmt: skip
BILL = form(
    "money.token_bill", "Bill of a number of tokens", ("token_bill", "USD"), tokens * token_price / MILLION,
    DEFINITION, ("tokens times the price of one",), ("one price for all",),
)  # fmt: skip
WORDS_BILL = form(
    "money.text_bill", "Bill of a text by its words", ("text_bill", "USD"),
    words * tokens_a_word * token_price / MILLION, DEFINITION, ("tokens of the words times the price of one",),
    ("the tokeniser's mean over the text",),
)  # fmt: skip
REQUEST_BILL = form(
    "money.request_bill", "Bill of a request with cached prompt tokens", ("request_bill", "USD"),
    (input_tokens * ((1 - hit) * input_price + hit * cached_price) + output_tokens * output_price) / MILLION,
    DEFINITION, ("new prompt tokens, cached ones and answer tokens each have a price",),
    ("no charge to write the cache",), (hit <= 1,),
)  # fmt: skip
RESERVE = form(
    "money.reserve_break_even", "Share of the time above which a reservation costs no more than renting by the hour",
    ("reserve_break_even", "1"), reserved / on_demand, PARK,
    ("a reservation is paid for all hours, rent for those used", "set both equal"), ("the reserved chip is the same",
     ),
)  # fmt: skip
SPOT = form(
    "money.spot_break_even", "Useful share of time below which spot costs more than chips by the hour",
    ("spot_break_even", "1"), firm_share * spot / on_demand, PARK,
    ("a useful hour costs price over useful share, on either market", "set both equal and solve for spot's share"),
    ("no deadline",), (firm_share <= 1,),
)  # fmt: skip
SPOT_PRICE = form(
    "money.spot_effective_price", "Price of a useful second on spot", ("spot_effective_price", "USD/s"),
    spot / spot_share, PARK, ("lost time is paid too",), ("lost work is in the useful share",), (spot_share <= 1,),
)  # fmt: skip
WORTH = form(
    "money.worth_of_faster", "Rent at which a faster chip makes tokens at the same price", ("worth_of_faster",
     "USD/s"), rent_price * new_rate / old_rate, DEFINITION, ("tokens a second over price are equal",),
    ("all tokens are wanted",),
)  # fmt: skip
REPLACE = form(
    "money.replacement_price", "Price below which buying a faster chip beats running the one in hand",
    ("replacement_price", "USD"),
    (running_old * new_rate / old_rate - running_new) * (1 - (1 + rate) ** -years) / rate * given("year_seconds", "s",
     "seconds of a year in use"), PARK, ("the chip in hand is paid: its tokens cost its running alone",
     "the new chip may cost what the same tokens cost on the old, less its own running",
     "a year's saving times (1 - (1 + r)^-n)/r is its worth today"), ("no residual value", "all tokens are wanted"),
    (running_old * new_rate > running_new * old_rate,),
)  # fmt: skip
PAYBACK = form(
    "money.payback_time", "Time in which savings repay a purchase, without interest", ("payback_time", "s"),
    chips * purchase / saved, PARK, ("price over what is saved a second",), ("no interest", "constant savings"),
)  # fmt: skip
ANNUITY = form(
    "money.present_value_factor", "Worth today of a dollar a year", ("present_value_factor", "1"),
    (1 - (1 + rate) ** -years) / rate, PARK, ("sum of (1 + r)^-k over n years, a geometric series",),
    ("paid at the end of each year",),
)  # fmt: skip
UTILISED = form(
    "money.price_at_utilisation", "Price of a used second when only a share of the time is used",
    ("price_at_utilisation", "USD/s"), rent_price / share_used, DEFINITION, ("all seconds are paid, a share is used",
     ), ("idle time has no other use",), (share_used <= 1,),
)  # fmt: skip
API_OR_OWN = form(
    "money.own_or_api_rate", "Tokens a second above which an own deployment costs less than a price per token",
    ("own_or_api_rate", "1/s"), own_cost / (token_price / MILLION), DEFINITION,
    ("the deployment costs the same whatever it serves", "the price per token grows with tokens", "set both equal"),
    ("the deployment carries that rate",),
)  # fmt: skip
WAIT_TO_BUY = form(
    "money.wait_break_even", "Years of waiting after which falling prices have saved a share of a purchase",
    ("wait_years", "1"),
    -halving * sp.log(1 - given("saved_share", "1", "share of the price that is to be saved")) / sp.log(2), PARK,
    ("the price falls by half in each halving time: 2^(-t/h)", "set it to 1 - s and solve for t"),
    ("prices fall at a constant rate",), (given("saved_share", "1", "share of the price that is to be saved") < 1,),
)  # fmt: skip
