"""A plan of few layouts, where a time limit passed before any plan was found: constructed quickly, and marked with its gap."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from tokenmill.milp.highs import stop_is_asked
from tokenmill.milp.sets import Sets, Use
from tokenmill.milp.solution import Solution
from tokenmill.milp.solve import Formulation, Wish, answer
from tokenmill.milp.ways import run_cost, run_duration, stood_on

GRACE = 10.0
"""Seconds that such a plan may take beyond the limit, and no more than the limit itself."""
ROUGH = 0.05
"""Gap of its own programme that is good enough."""


def answer_of_few(sets: Sets, formulate: Callable[[Sets], Formulation], found: Solution, wish: Wish) -> Solution:
    """Return a plan from the most promising layouts alone, its gap to the bound that was proven; `found` where there is none."""
    if stop_is_asked() or not wish.time_limit:
        return found
    thin = replace(sets, uses=_uses(sets), ways=tuple(sets.ways[n] for n in _ways(sets)))
    hasty = replace(
        wish, gap=max(wish.gap, ROUGH), time_limit=min(GRACE, wish.time_limit), value_of_next=False, alternatives=0
    )
    plan = answer(thin, lambda: formulate(thin), hasty)
    value, bound = plan.termination.objective, found.termination.bound
    if value is None:
        return found
    gap = None if bound is None else max(0.0, value - bound) / max(abs(value), 1e-12)
    status = "optimal" if gap is not None and gap <= wish.gap else "feasible"
    seconds = found.termination.seconds + plan.termination.seconds
    ended = replace(plan.termination, status=status, bound=bound, gap=gap, limit="time", seconds=seconds)
    said = "the time limit passed before a plan was found: this one was made of few layouts" + (
        "" if gap is not None else "; no bound is proven"
    )
    return replace(plan, termination=ended, notes=(*plan.notes, said))


def _uses(sets: Sets) -> tuple[Use, ...]:
    """Return, of every role on every stock at every site, the use that carries most a chip, and the smallest."""
    best: dict[Hashable, dict[str, int]] = {}
    for n, use in enumerate(sets.uses):
        group = (sets.owner[use.column], sets.columns[use.column].role, use.stock, use.site)
        best.setdefault(group, {"dense": n, "small": n})
        dense, small = best[group]["dense"], best[group]["small"]
        if _density(sets, n) > _density(sets, dense):
            best[group]["dense"] = n
        if _chips(sets, n) < _chips(sets, small):
            best[group]["small"] = n
    return tuple(sets.uses[n] for n in sorted({n for group in best.values() for n in group.values()}))


def _chips(sets: Sets, n: int) -> int:
    return sets.columns[sets.uses[n].column].chips


def _density(sets: Sets, n: int) -> float:
    """Return units/s a chip at the shares of the request classes; 0 where a class is not carried."""
    column, shares = sets.columns[sets.uses[n].column], sets.workloads[sets.owner[sets.uses[n].column]].shares
    best = [max(point.rate[b] for point in column.points) for b in range(len(shares))]
    if any(rate <= 0.0 < share for rate, share in zip(best, shares, strict=True)):
        return 0.0
    return 1.0 / sum(share / rate for rate, share in zip(best, shares, strict=True) if share) / column.room


def _ways(sets: Sets) -> list[int]:
    """Return, of every run on every choice of stocks and offers, the ways that cost least, take least, and are quickest."""
    best: dict[Hashable, list[int]] = {}
    for n, way in enumerate(sets.ways):
        best.setdefault(stood_on(sets, way), []).append(n)
    kept: set[int] = set()
    for numbers in best.values():
        kept.add(min(numbers, key=lambda n: (run_cost(sets, sets.ways[n]), n)))
        kept.add(min(numbers, key=lambda n: (run_duration(sets, sets.ways[n]), n)))
        kept.add(min(numbers, key=lambda n: (_work(sets, n), n)))
    return sorted(kept)


def _work(sets: Sets, n: int) -> float:
    """Return chip-seconds of a way."""
    way = sets.ways[n]
    chips = sum(c for _, c in way.places) + sum(h.units * sets.offers[h.offer].unit_chips for h in way.held)
    return chips * run_duration(sets, way)
