"""Making a programme smaller before it is solved: a first plan from few kinds of systems, and bounds that it proves.

Reduced-cost fixing: with an LP bound L and a plan of cost U in hand, no plan that costs at most U sets an integer of
reduced cost above U - L to one (Dantzig, Fulkerson, Johnson 1954). Integers so fixed are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.clock import Clock
from tokenmill.milp.highs import Outcome, solve_arrays
from tokenmill.milp.quantities import Build
from tokenmill.milp.rows import Arrays

FEW = 250  # integers that the solver settles as quickly alone
TRIES = 4  # kinds whose own best plan is looked for
ROOM = 1e-6  # relative: the solver's tolerances
ROUGH = 0.02  # gap of first plans
HASTE = 0.3  # share of the time left that they may take


@dataclass(frozen=True)
class Relaxed:
    """The LP of a programme: its bound, values and reduced costs."""

    bound: float
    values: NDArray[np.float64]
    reduced: NDArray[np.float64]


def relaxed(arrays: Arrays, *, time_limit: float | None = None, threads: int = 1) -> Relaxed | None:
    """Return the LP relaxation, or None where it has no optimum."""
    outcome = solve_arrays(
        replace(arrays, integer=np.zeros_like(arrays.integer)), time_limit=time_limit, threads=threads
    )
    if outcome.status != "optimal" or outcome.values is None or outcome.reduced is None or outcome.objective is None:
        return None
    return Relaxed(outcome.objective, outcome.values, outcome.reduced)


def narrowed(arrays: Arrays, relaxation: Relaxed | None, most: float) -> Arrays:
    """Return the programme without integers that no plan of objective at most `most` takes."""
    if relaxation is None or most == inf:
        return arrays
    room = most - relaxation.bound + ROOM * max(abs(most), abs(relaxation.bound))
    useless = arrays.integer & (relaxation.reduced > room)
    return replace(arrays, upper=np.where(useless, arrays.lower, arrays.upper))


def systems_of(build: Build) -> dict[str, NDArray[np.bool_]]:
    """Return, for each system, which variables mean that it is had or used."""
    sets, made = build.sets, build.variables
    found = {offer.system: np.zeros(len(build.programme), dtype=np.bool_) for offer in sets.offers}
    for (k, *_), index in [*made.new.items(), *made.rented.items()]:
        found[sets.offers[k].system][index] = True
    for (n, _, _), index in made.replicas.items():
        found[sets.columns[sets.uses[n].column].system][index] = True
    for n, index in made.taken.items():
        for system, _ in sets.columns[sets.ways[n].column].footprint:
            found[system][index] = True
    return found


def without(arrays: Arrays, systems: Mapping[str, NDArray[np.bool_]], forbidden: frozenset[str]) -> Arrays:
    """Return the programme in which systems are not to be had."""
    gone = np.zeros(len(arrays.lower), dtype=np.bool_)
    for system in forbidden:
        mask = systems[system]
        gone[: len(mask)] |= mask
    return replace(arrays, upper=np.where(gone, arrays.lower, arrays.upper))


def with_row(arrays: Arrays, terms: Mapping[int, float], least: float) -> Arrays:
    """Return the programme with a row more: a sum of variables is at least `least`."""
    index = np.array(list(terms), dtype=np.int32)
    return replace(
        arrays,
        row_lower=np.append(arrays.row_lower, least),
        row_upper=np.append(arrays.row_upper, inf),
        starts=np.append(arrays.starts, arrays.starts[-1] + len(index)).astype(np.int32),
        index=np.concatenate([arrays.index, index]),
        value=np.concatenate([arrays.value, np.array(list(terms.values()), dtype=np.float64)]),
    )


def solve_narrowed(
    arrays: Arrays,
    systems: Mapping[str, NDArray[np.bool_]],
    *,
    time_limit: float | None = None,
    gap: float = 0.0,
    threads: int = 1,
    start: NDArray[np.float64] | None = None,
    most: float = inf,
) -> Outcome:
    """Minimise, by way of a first plan and what it proves useless; `most`: no plan that costs more is asked for.

    `start` is a plan of this programme. Small programmes go to the solver as they are.
    """
    if int(arrays.integer.sum()) <= FEW:
        return solve_arrays(arrays, time_limit=time_limit, gap=gap, threads=threads, start=start)
    clock = Clock(time_limit)
    relaxation = relaxed(arrays, time_limit=clock.left(), threads=threads)
    if start is None and relaxation is not None:
        start = _first_plan(arrays, relaxation, systems, clock.left, clock.spent(), threads)
    if start is not None:
        most = min(most, float(arrays.cost @ start) + arrays.offset)
    small = narrowed(arrays, relaxation, most)
    outcome = solve_arrays(small, time_limit=clock.left(), gap=gap, threads=threads, start=start)
    return outcome if relaxation is None else _proven(outcome, arrays, relaxation.bound, start, gap)


def _proven(outcome: Outcome, arrays: Arrays, bound: float, start: NDArray[np.float64] | None, gap: float) -> Outcome:
    """Return how a solve that was stopped ended, with the plan it began with and the relaxation's bound where it has no better."""
    if outcome.status not in ("feasible", "unknown"):
        return outcome
    bound = bound if outcome.bound is None else max(bound, outcome.bound)
    values, value = outcome.values, outcome.objective
    if value is None and start is not None:
        values, value = start, float(arrays.cost @ start) + arrays.offset
    if value is None:
        return replace(outcome, bound=bound)
    proven = max(0.0, value - bound) / max(abs(value), 1e-12)
    return replace(
        outcome, status="optimal" if proven <= gap else "feasible", values=values, objective=value,
        bound=min(bound, value), gap=proven, limit=outcome.limit if proven > gap else None,
    )  # fmt: skip


def _few(arrays: Arrays, relaxation: Relaxed) -> Arrays:
    """Return the programme of the integers that its relaxation takes, and of those that would enter it at least cost."""
    whole = np.flatnonzero(arrays.integer & (relaxation.values <= ROOM))
    order = whole[np.argsort(relaxation.reduced[whole], kind="stable")]
    gone = np.zeros(len(arrays.lower), dtype=np.bool_)
    gone[order[2 * FEW :]] = True
    return replace(arrays, upper=np.where(gone, arrays.lower, arrays.upper))


def _first_plan(
    arrays: Arrays,
    relaxation: Relaxed,
    systems: Mapping[str, NDArray[np.bool_]],
    left: Callable[[], float | None],
    took: float,
    threads: int,
) -> NDArray[np.float64] | None:
    """Return the best plan among those of the relaxation's kinds and of each single kind that promises most.

    `took`: seconds of the relaxation; where that is much of what is `left`, of the integers that it takes and the next cheapest.
    """
    seconds = left()
    if seconds is not None and took * (2 + len(systems)) > HASTE * seconds:
        few = _few(arrays, relaxation)
        return solve_arrays(few, time_limit=HASTE * seconds, gap=ROUGH, threads=threads).values
    used = frozenset(name for name, mask in systems.items() if relaxation.values[: len(mask)][mask].any())
    every = frozenset(systems)
    tries: list[tuple[float, str, Arrays]] = []
    for allowed in dict.fromkeys([used, *(frozenset([name]) for name in sorted(systems))]):
        part = without(arrays, systems, every - allowed)
        bound = relaxed(part, time_limit=left(), threads=threads)
        if bound is not None:
            tries.append((bound.bound, ",".join(sorted(allowed)), part))
    best, least = None, inf
    for bound_of, _, part in sorted(tries, key=lambda entry: entry[:2])[:TRIES]:
        if bound_of < least:
            seconds = left()
            most = None if seconds is None else HASTE * seconds
            outcome = solve_arrays(part, time_limit=most, gap=ROUGH, threads=threads)
            if outcome.values is not None and outcome.objective is not None and outcome.objective < least:
                best, least = outcome.values, outcome.objective
    return best
