"""What pools send one another over arcs, from the programme's values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.constraints.flows import Group, Sent, carried, use_node
from tokenmill.milp.quantities import Build
from tokenmill.milp.sets import Sets

LEAST = 1e-9


@dataclass(frozen=True)
class Transfer:
    """Bytes/s from a pool's node to another's at a moment, by way of nodes `start` and `end`; `between`: of all there."""

    join: int
    period: int
    slice: int
    source: str
    target: str
    start: str
    end: str
    amount: float
    between: float


def transfers(build: Build, sent: Sent, values: NDArray[np.float64]) -> Iterator[Transfer]:
    """Yield what pools send one another: between two groups in proportion to what each of their nodes carries."""
    for j, join in enumerate(sent.joins):
        workload = build.sets.workloads[join.workload]
        for h, l in build.sets.moments:
            shares = {key: x.value(values) for key, x in carried(build, join, h, l).items()}
            amounts: dict[tuple[str, str, str, str], float] = {}
            for s, t in join.pairs:
                size = join.sources[s].end.per_unit
                for b, share in enumerate(workload.shares):
                    index = sent.shares.get((j, s, t, b, h, l))
                    rate = 0.0 if index is None or b >= len(size) else values[index] * share * size[b]
                    if rate <= 0.0:
                        continue
                    rate *= build.sets.planned(join.workload, h, l)
                    ways = (
                        _parts(build.sets, join.sources[s], shares, b, 0),
                        _parts(build.sets, join.targets[t], shares, b, 1),
                    )
                    for (a, one), (z, other) in itertools.product(*(each.items() for each in ways)):
                        key = (a, z, join.sources[s].node, join.targets[t].node)
                        amounts[key] = amounts.get(key, 0.0) + rate * one * other
            for key, amount in sorted(amounts.items()):
                if amount > LEAST * sent.unit:
                    yield Transfer(j, h, l, *key, amount, sum(v for k, v in amounts.items() if k[2:] == key[2:]))


def _parts(
    sets: Sets, group: Group, shares: Mapping[tuple[int, int, int], float], b: int, side: int
) -> dict[str, float]:
    """Return the share of a group's traffic of a class that each of its nodes carries."""
    found: dict[str, float] = {}
    for n in group.uses:
        node = use_node(sets, n)
        found[node] = found.get(node, 0.0) + shares.get((b, n, side), 0.0)
    whole = sum(found.values())
    return {node: part / whole for node, part in found.items() if part > 0.0}


def arcs_taken(sent: Sent, sets: Sets, found: Transfer, values: NDArray[np.float64]) -> list[tuple[str, float]]:
    """Return (arc, B/s) of a transfer: out of its leaf, between the hubs in proportion, into the other leaf."""
    hubs = sent.joins[found.join].at_hubs is not None
    over: dict[str, float] = {}
    if hubs and found.source in sets.leaves:
        over[sets.leaves[found.source].out.name] = found.amount
    if hubs and found.target in sets.leaves:
        into = sets.leaves[found.target].into.name
        over[into] = over.get(into, 0.0) + found.amount
    for (j, start, end, arc, h, l), index in sent.over.items():
        if (j, start, end, h, l) == (found.join, found.start, found.end, found.period, found.slice):
            part = float(values[index]) * sent.unit * found.amount / found.between
            if part > LEAST * sent.unit:
                over[arc] = over.get(arc, 0.0) + part
    return sorted(over.items())
