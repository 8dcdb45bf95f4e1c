"""The next best plans that differ in kinds of hardware: each lacks a kind of every better one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp import decode
from tokenmill.milp.narrow import solve_narrowed, systems_of, without
from tokenmill.milp.rows import Arrays
from tokenmill.milp.solution import Alternative, Purchase

if TYPE_CHECKING:
    from tokenmill.milp.solve import Best, Clock, Formulation, Wish

WITHIN = 0.25
"""Alternatives beyond the first cost at most so much more than the best plan, relative."""


def alternatives(
    fresh: Formulation, arrays: Arrays, best: Best, wish: Wish, clock: Clock, longest: float
) -> tuple[Alternative, ...]:
    """Return up to `wish.alternatives` plans, best first; the runner-up whatever it costs, others within a quarter.

    A tree over forbidden kinds, best first: below a plan stand those without one of its kinds, so that no plan that
    lacks one is missed. No more than `longest` [s] goes into it.
    """
    if best.values is None or best.outcome.objective is None or wish.alternatives <= 0:
        return ()
    systems = systems_of(fresh.build)
    values = best.values[: len(arrays.lower)]
    limit = best.outcome.objective + WITHIN * abs(best.outcome.objective)
    open_: list[tuple[float, tuple[str, ...], NDArray[np.float64]]] = [(-inf, (), values)]
    seen: set[frozenset[str]] = set()
    found: list[Alternative] = []
    kinds_found = {kinds_of(systems, values)}
    began = perf_counter()
    while open_ and len(found) < wish.alternatives:
        cost, forbidden, plan = heappop(open_)
        if found and cost > limit:
            break
        kinds = kinds_of(systems, plan)
        if kinds not in kinds_found:
            kinds_found.add(kinds)
            read = decode.Reader(fresh.build, fresh.sent, plan)
            found.append(Alternative(cost, had(decode.purchases(read))))
        for kind in sorted(kinds):
            without_ = frozenset((*forbidden, kind))
            spare = longest - (perf_counter() - began)
            left = clock.left()
            if without_ in seen or min(spare, spare if left is None else left) <= 0.0:
                continue
            seen.add(without_)
            outcome = solve_narrowed(
                without(arrays, systems, without_), systems, time_limit=spare if left is None else min(left, spare),
                gap=wish.gap, threads=wish.threads, most=limit if found else inf,
            )  # fmt: skip
            if outcome.status == "optimal" and outcome.values is not None and outcome.objective is not None:
                heappush(open_, (outcome.objective, tuple(sorted(without_)), outcome.values))
    return tuple(found)


def kinds_of(systems: Mapping[str, NDArray[np.bool_]], values: NDArray[np.float64]) -> frozenset[str]:
    """Return the systems that a plan has or uses."""
    return frozenset(name for name, mask in systems.items() if (values[: len(mask)][mask[: len(values)]] > 0.5).any())


def had(purchases: Iterable[Purchase]) -> tuple[tuple[str, str, float], ...]:
    """Return the most systems had at one time of each kind and market."""
    moments: dict[tuple[str, str], dict[tuple[int, str], float]] = {}
    parts = sorted({p.slice or "" for p in purchases})
    for bought in purchases:
        table = moments.setdefault((bought.system, bought.market), {})
        for h in range(bought.period, bought.until + 1):
            for part in parts if bought.slice is None else [bought.slice]:
                table[h, part] = table.get((h, part), 0.0) + bought.count
    return tuple((system, market, max(table.values())) for (system, market), table in sorted(moments.items()))
