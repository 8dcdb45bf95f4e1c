"""The trace of what electricity costs: down to watts, hours and prices."""

from __future__ import annotations

from collections.abc import Sequence

from tokenmill.milp.solution import Electricity
from tokenmill.trace import Node, adds_up, row, total


def energy_nodes(rows: Sequence[Electricity], value: float) -> dict[str, Node]:
    """Return ``cost.energy`` [USD] as the sum over moments and runs, each ``power*pue*time*price*discount``.

    None where these do not add up to the plan's `value`.
    """
    if not adds_up((each.cost for each in rows), value):
        return {}
    nodes: dict[str, Node] = {}
    for at, each in enumerate(rows, 1):
        key = f"cost.energy.{at}"
        draws = [row(name, watts, "W", "the plan's systems and pools") for name, watts in each.draws]
        nodes[f"{key}.power"] = total(
            "power", f"IT power of own systems in the mean: {each.what}", "W", draws, each.power
        )
        nodes[key] = _moment(each, f"{key}.power")
    parts: list[str | Node] = [f"cost.energy.{at}" for at in range(1, len(rows) + 1)]
    return {"cost.energy": total("energy", "electricity of own systems", "USD", parts, value), **nodes}


def _moment(each: Electricity, power: str) -> Node:
    site = f"hardware.site.{each.site}"
    inputs: list[str | Node] = [
        power,
        {**row("pue", each.pue, "1", f"{site}.pue", "problem file", "input"), "title": "facility power over IT power"},
        {**row("time", each.seconds, "s", "horizon", "problem file", "input"), "title": "time for which it is drawn"},
        {
            **row("price", each.price, "USD/J", f"{site}.electricity", "problem file", "input"),
            "title": "price of electricity",
        },
        {
            **row("discount", each.discount, "1", "horizon.discount_rate", "problem file", "input"),
            "title": "present value of a dollar of the period",
        },
    ]
    title = f"electricity: {each.what}"
    return {
        **total("electricity", title, "USD", inputs, each.cost), "formula": "power*pue*time*price*discount",
    }  # fmt: skip
