"""Parts of a run compared over systems by what they cost: a row goes if another that serves as well is cheaper in every market.

Which system a part takes matters to the programme only through money, power and chips, as long as systems are rented by the
hour without limits of their own; systems with supply limits, owned or bought ones are left as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.candidates.gather import Gathered
from tokenmill.candidates.program import Program
from tokenmill.candidates.prune import pareto
from tokenmill.offers import Offer
from tokenmill.problem import Problem

Array = NDArray[np.float64]
SIZE = ("ranks", "power_idle", "power_loaded")


def cheapest(
    rows: Sequence[Gathered], read: Mapping[str, bool], problem: Problem, offers: Sequence[Offer], power: bool
) -> list[Gathered]:
    """Return the rows of a part that no cheaper row of any system replaces; `read`: see `read_of`.

    Where the run reads the size of the part for more than its sum, rows replace those of their system and size alone.
    """
    plain = {system: _plain(problem, system, offers) for system in {_system(item) for item in rows}}
    compared = [item for item in rows if plain[_system(item)]]
    if len(compared) < 2:
        return list(rows)
    sized = bool(set(read) & set(SIZE))
    number = {system: float(at) for at, system in enumerate(dict.fromkeys(map(_system, compared)))}
    criteria = [_criteria(item, read, problem, plain[_system(item)], power) for item in compared]
    of = [np.full((item.rows, 1), number[_system(item)] if sized else 0.0) for item in compared]
    kept = pareto(np.hstack([np.concatenate(of), -np.concatenate(of), np.concatenate(criteria)]))
    found = [item for item in rows if not plain[_system(item)]]
    offset = 0
    for item in compared:
        here = kept[(kept >= offset) & (kept < offset + item.rows)] - offset
        offset += item.rows
        if here.size:
            found.append(item.take(here))
    return found


def _system(rows: Gathered) -> str:
    return str(rows.context.binder.system.id)


def read_of(
    program: Program, part: str, fixed: Mapping[str, float], absent: frozenset[str] = frozenset()
) -> dict[str, bool]:
    """Return the ports of a part that the run reads for more than the sums of sizes, and whether more is not worse: in an equality.

    `fixed`: leaves of 0 or 1 in the words of the run, `absent`: leaves that are not given; what falls away with them is not read.
    """
    ports = [symbol for name, symbol in program.role.ports.items() if name not in SIZE]
    placed = [rule for step in program.steps for rule in step.rules if not rule.without(absent)]
    equal = [side for rule in placed if rule.rule.kind == "equal" for side in (rule.left, rule.right)]
    rules = [side for rule in placed for side in (rule.left, rule.right)]
    both = _ports_of(program, part, equal, fixed)
    found = sorted(_ports_of(program, part, [*ports, *rules], fixed))
    return {port: port in both or port in SIZE for port in found}


def _ports_of(program: Program, part: str, symbols: Sequence[Any], fixed: Mapping[str, float]) -> set[str]:
    return {port for of, port in program.ports_read(symbols, fixed) if of == part}


def _plain(problem: Problem, system: str, offers: Sequence[Offer]) -> list[Offer]:
    """Return the offers of a system where they are nothing but rent at a price, else nothing."""
    own = [offer for offer in offers if offer.system == system]
    bound = any(
        o.kind != "rent" or o.at_most is not None or o.minimum or o.later or o.from_period > 1 or o.sites is not None
        for o in own
    )
    limited = any(record.system == system for record in problem.hardware.supply)
    scarce = any(system in scenario.supply for scenario in problem.scenarios)
    return [] if bound or limited or scarce else own


def _criteria(
    rows: Gathered, read: Mapping[str, bool], problem: Problem, offers: Sequence[Offer], power: bool
) -> Array:
    """Return what the programme reads of rows, smaller is better: ports, price in each market, and power or chips where they count."""
    columns = [rows.port(name) for name in read] + [-rows.port(name) for name, equal in read.items() if equal]
    taken = rows.port("ranks") / rows.context.binder.chip.ranks
    chips = np.maximum(np.round(taken), np.ceil(np.minimum(taken, 1.0))).astype(np.int64)
    for market in problem.hardware.markets:
        price = np.full(rows.rows, inf)
        for offer in offers:
            if offer.market == market:
                units = np.array([n if offer.by_chip else ceil(ceil(n / offer.domain) / offer.domains) for n in chips])
                price = np.minimum(price, units * offer.unit_price(1))
        columns.append(price)
    limits = problem.limits
    if limits.chips is not None or limits.spot_share is not None or limits.availability is not None:
        columns.append(chips.astype(float))
    if power:
        columns += [rows.port("power_idle"), rows.port("power_loaded")]
        columns.append(np.full(rows.rows, max((offer.host_power for offer in offers), default=0.0)))
    return np.column_stack(columns)
