"""Small problems whose optimum can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tokenmill.candidates.columns import Column, OperatingPoint, WorkloadColumns
from tokenmill.milp.formulation import solve_programme
from tokenmill.milp.solution import Solution
from tokenmill.offers import Offer
from tokenmill.problem import Hardware, Horizon, Limits, Objective, Ownership, Problem, Site, Workload

HOUR, DAY, YEAR = 3600.0, 86400.0, 365 * 86400.0
FREE = Site(electricity={"all": 0.0})


def pool_column(
    chips: int = 8, rate: float = 10.0, system: str = "node", watts: float = 700.0, name: str = "", **more: Any
) -> Column:
    """Return a column of `chips` that carries `rate` units/s, at 100 W a chip idle and `watts` loaded."""
    point = OperatingPoint({}, (rate,), chips * watts)
    return Column(
        name or f"{system}-{chips}", "chat", "mixed", "pool", system, chips, ((system, chips),), {}, (point,), chips * 100.0, chips * watts,
        **more,
    )  # fmt: skip


def pool(*columns: Column) -> WorkloadColumns:
    return WorkloadColumns(
        "chat",
        "toy",
        "pool",
        {"mixed": columns},
        (("mixed",),),
        (),
        ("all",),
        (1.0,),
        {"cost_per_token.output": (100.0,), "cost_per_token.all": (300.0,)},
    )


def run(name: str, *columns: tuple[int, float], system: str = "node", watts: float = 700.0) -> WorkloadColumns:
    """Return a run with a column for each (chips, days)."""
    made = tuple(
        Column(
            f"{name}-{chips}",
            name,
            "train",
            "run",
            system,
            chips,
            ((system, chips),),
            {},
            (),
            chips * 100.0,
            chips * watts,
            days * DAY,
        )
        for chips, days in columns
    )
    return WorkloadColumns(
        name, "toy", "run", {"train": made}, (("train",),), (), (), (), {"cost_per_token.output": (1e9,)}
    )


def rent(price: float = 16.0, system: str = "node", market: str = "on-demand", **more: Any) -> Offer:
    """Return an hourly offer of a system of 8 chips in one domain: 1 kW of host, 100 W an idle chip."""
    shape: dict[str, Any] = {
        "chips": 8,
        "domain": 8,
        "domains": 1,
        "host_power": 1000.0,
        "chip_idle": 100.0,
        "chip_tdp": 700.0,
    }
    return Offer(system, market, more.pop("kind", "rent"), price, **{**shape, **more})


def buy(price: float = 100_000.0, **more: Any) -> Offer:
    return rent(price, market="buy", kind="buy", **more)


def problem(*workloads: Workload, **more: Any) -> Problem:
    """Return a problem of a year at a free site, proven to the last dollar."""
    hardware = more.pop("hardware", {})
    return Problem(
        workloads or (Workload("chat", "toy"),),
        objectives=tuple(
            Objective(name) if isinstance(name, str) else name for name in more.pop("objectives", ("cost",))
        ),
        gap=0.0,
        horizon=Horizon(**more.pop("horizon", {})),
        limits=Limits(**more.pop("limits", {})),
        hardware=Hardware(**{"sites": (FREE,), **hardware}),
    )


def solve(
    asked: Problem, columns: list[WorkloadColumns], offers: list[Offer], demand: Any = 25.0, arcs: Any = (), **more: Any
) -> Solution:
    table = np.broadcast_to(np.array(demand, dtype=float), (asked.horizon.periods, len(asked.horizon.slices)))
    named: Mapping[str, Any] = {"chat": table}
    return solve_programme(asked, columns, offers, arcs, demand=named, **more)


__all__ = ["DAY", "FREE", "HOUR", "YEAR", "Ownership", "buy", "pool", "pool_column", "problem", "rent", "run", "solve"]
