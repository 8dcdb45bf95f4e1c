"""A model on a device of one's own: speed, battery, cost."""

from __future__ import annotations

from tokenmill_models.closed import DEFINITION, form, given
from tokenmill_models.money import MILLION, energy_price
from tokenmill_models.roofline import W, eta_W
from tokenmill_models.symbols import constant

battery = given("battery_energy", "J", "energy of a full battery")
device = given("device_draw", "W", "draw of a device while it generates")
idle = given("idle_draw", "W", "draw that work does not change", sign="nonnegative")
use = given("busy_share", "1", "share of its life that a chip works")
life = given("life_years", "1", "years that a purchase serves", "n")
model_bytes = given("device_model_bytes", "B", "bytes of the weights read for a token on the device")
cache = given("device_cache_bytes", "B", "bytes of the KV cache read for a token on the device", sign="nonnegative")
price = given("device_price", "USD", "price of a device")
tokens_a_day = given("device_tokens_a_day", "1", "tokens a day that a device generates")
DAYS = constant("days_a_year", 365.0, "1", "days of a year")

DEVICE_RATE = form(
    "edge.decode_rate", "Tokens a second of one sequence on a device, bound by bandwidth", ("device_rate", "1/s"),
    W * eta_W / (model_bytes + cache), "Williams, Waterman and Patterson 2009, Roofline, CACM 52(4)",
    ("weights and cache are read once a token",), ("one sequence", "compute keeps up"),
)  # fmt: skip
BATTERY_TOKENS = form(
    "edge.battery_tokens", "Tokens of a battery charge", ("battery_tokens", "1"),
    battery * W * eta_W / (device * (model_bytes + cache)), DEFINITION,
    ("a token takes the time to read weights and cache", "the battery lasts E/P"), ("the draw is constant",
     "no other load"),
)  # fmt: skip
BATTERY_LIFE = form(
    "edge.battery_life", "Time that a battery lasts at a share of generating", ("battery_life", "s"),
    battery / (idle + use * (device - idle)), DEFINITION, ("mean draw: idle, and the rest while it generates",),
    ("the draw is constant",), (use <= 1, device >= idle),
)  # fmt: skip
DEVICE_COST = form(
    "edge.cost_per_million", "Cost of a million tokens on a device: purchase and electricity",
    ("device_cost_per_million", "USD"),
    (price / (life * DAYS * tokens_a_day) + device * (model_bytes + cache) / (W * eta_W) * energy_price) * MILLION,
    DEFINITION, ("the price is spread over the tokens of the device's life",
     "a token takes the draw for the time of its reads"), ("no interest",),
)  # fmt: skip
