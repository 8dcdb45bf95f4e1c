"""Energy, carbon and power limits."""

from __future__ import annotations

from tokenmill_models.closed import form, given
from tokenmill_models.formula import minimum
from tokenmill_models.money import MILLION, YEAR, draw, energy_price, pue

PATTERSON = "Patterson et al. 2021, Carbon Emissions and Large Neural Network Training, arXiv:2104.10350, section 2"
HOROWITZ = "Horowitz 2014, Computing's Energy Problem, ISSCC, and its per-operation energies"
GUPTA = "Gupta et al. 2022, ACT: Designing Sustainable Computer Systems, ISCA, section 3"
DVFS = "Le Sueur and Heiser 2010, Dynamic Voltage and Frequency Scaling: The Laws of Diminishing Returns, HotPower"

rate = given("chip_tokens_per_second", "1/s", "tokens a second of a chip")
intensity = given("grid_intensity", "kg/J", "carbon of a joule from the grid")
embodied = given("embodied_carbon", "kg", "carbon of making a chip with its part of the server", sign="nonnegative")
life = given("life_years", "1", "years that a purchase serves", "n")
use = given("busy_share", "1", "share of its life that a chip works")
flop_energy = given("energy_per_flop", "J/FLOP", "energy of an operation")
byte_energy = given("energy_per_byte", "J/B", "energy of moving a byte from memory")
token_flops = given("work_a_token", "FLOP", "work of a token")
token_bytes = given("bytes_a_token", "B", "bytes read from memory for a token")
idle = given("idle_draw", "W", "draw that work does not change", sign="nonnegative")
full = given("limit_draw", "W", "draw at full clock")
cap = given("power_cap", "W", "draw allowed")
power = given("power_exponent", "1", "power of the clock that the draw above idle grows with")
site = given("site_power", "W", "power that a site supplies")

TOKEN_ENERGY = form(
    "energy.per_token", "Energy of a token at the meter", ("energy_per_token", "J"), draw * pue / rate, PATTERSON,
    ("a chip with its part of the server draws P", "the facility takes PUE times that",
     "divide by the tokens a second"), ("steady load",), (pue >= 1,),
)  # fmt: skip
ENERGY_COST = form(
    "energy.cost_per_million", "Cost of electricity of a million tokens", ("energy_cost_per_million", "USD"),
    draw * pue / rate * energy_price * MILLION, PATTERSON, ("energy of a token times the price of a joule",),
    ("no charge for peak power",), (pue >= 1,),
)  # fmt: skip
CARBON = form(
    "energy.carbon_per_token", "Carbon of a token: operation and its part of making the chip", ("carbon_per_token",
     "kg"), draw * pue / rate * intensity + embodied / (life * YEAR * use * rate), GUPTA,
    ("operation: energy at the meter times the grid's intensity",
     "making: the chip's carbon spread over the tokens of its life"), ("the grid's mean intensity",), (pue >= 1,
     use <= 1),
)  # fmt: skip
TOKENS_PER_JOULE = form(
    "energy.tokens_per_joule", "Tokens a joule at the meter", ("tokens_per_joule", "1/J"), rate / (draw * pue),
    PATTERSON, ("tokens a second over watts",), ("steady load",), (pue >= 1,),
)  # fmt: skip
WORK_ENERGY = form(
    "energy.of_work", "Energy of a token from its operations and its bytes", ("energy_of_work", "J"),
    token_flops * flop_energy + token_bytes * byte_energy + idle / rate, HOROWITZ,
    ("each operation and each byte costs its energy", "what is drawn at rest is spread over the tokens"),
    ("energies per operation hold at any rate",),
)  # fmt: skip
BALANCE = form(
    "energy.balance_intensity", "Work a byte at which compute and memory take equal energy", ("energy_balance",
     "FLOP/B"), byte_energy / flop_energy, HOROWITZ, ("set work·e_F equal to bytes·e_B",), ("idle draw is left out",
     ),
)  # fmt: skip
CAPPED = form(
    "energy.capped_speed", "Clock under a power cap over the full clock", ("capped_speed", "1"), minimum(1,
     ((cap - idle) / (full - idle)) ** (1 / power)), DVFS,
    ("draw above idle grows as the clock to a power near 3: frequency times voltage squared",
     "solve for the clock at the cap"), ("the same load",), (cap > idle, full > idle),
)  # fmt: skip
CHIPS_OF_SITE = form(
    "energy.chips_of_site", "Chips that a site's power carries", ("chips_of_site", "1"), site / (draw * pue),
    PATTERSON, ("a chip with its part of the server and facility takes P·PUE",), ("all draw their mean at once",),
    (pue >= 1,), rounding="floor",
)  # fmt: skip
