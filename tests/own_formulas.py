"""A user's own formula and a stage beside it, as `--plugin own_formulas` brings them; it shares no word with the shipped ones."""

from __future__ import annotations

from tokenmill_models.formula import Formula, Source, register
from tokenmill_models.symbols import declare

water = declare("own_water", "kg", "water in the loop", origin="input.own_water", sign="positive")
heat = declare("own_heat", "J/kg", "heat that a kilogram takes", origin="input.own_heat", sign="positive")
draw = declare("own_draw", "W", "draw of the rack", origin="input.own_draw", sign="positive")

HOLD = register(
    Formula(
        "own.hold_time",
        "Time that the water holds without a pump",
        declare("own_hold", "s", "time until the water is warm"),
        water * heat / draw,
        Source("first law", ("heat taken is mass times heat a kilogram", "over the draw")),
        assumes=("no loss to the room",),
    )
)
