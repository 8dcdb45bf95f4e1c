"""A user's formula whose dimension is wrong: watts are added to joules."""

from __future__ import annotations

from tokenmill_models.formula import Formula, register
from tokenmill_models.symbols import declare

draw = declare("wrong_draw", "W", "draw of the rack", origin="input.wrong_draw", sign="positive")
store = declare("wrong_store", "J", "energy of the battery", origin="input.wrong_store", sign="positive")

SUM = register(Formula("wrong.sum", "Draw and energy", declare("wrong_sum", "W", "their sum"), draw + store))
