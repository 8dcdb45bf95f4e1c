"""From a stated programme to a proven, re-checked answer: objectives in order, ties, the exact continuous rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenmill import audit
from tokenmill.milp import decode
from tokenmill.milp.alternatives import Search, alternatives, families, had, sizes, systems
from tokenmill.milp.binding import Steps, bindings
from tokenmill.milp.cbc import solve_cbc
from tokenmill.milp.clock import Clock
from tokenmill.milp.constraints.flows import Sent
from tokenmill.milp.decode_energy import electricity
from tokenmill.milp.eliminate import forced
from tokenmill.milp.highs import Outcome, fixed, forget_stop, solve_arrays, stop_is_asked
from tokenmill.milp.infeasible import why_not, without_columns
from tokenmill.milp.large import solve_large
from tokenmill.milp.narrow import FEW, narrowed, relaxed, solve_narrowed, systems_of
from tokenmill.milp.objective import goal, objective, weighted_energy
from tokenmill.milp.quantities import Build
from tokenmill.milp.ratio import Ratio, minimise_ratio
from tokenmill.milp.rows import Arrays, Linear
from tokenmill.milp.sets import Sets
from tokenmill.milp.solution import Alternative, Binding, Had, Solution, Termination
from tokenmill.milp.structure import fleet_of
from tokenmill.milp.ties import PROVEN, SAME, Held, settle

LARGE = 100_000
"""Variables of a programme from which it is solved by its parts."""
MOST_TERMS = 10_000_000
"""Terms of a programme beyond which the solver is not given it whole: it would take tens of GB."""
PATIENCE = 20.0
"""Seconds that each explanation may take (limits eased; other plans) where no time limit is given and solving took less."""
SHARE = 0.2
"""Share of a time limit that each may take."""


@dataclass(frozen=True)
class Formulation:
    """The programme of a problem, without its objective: what was built, what flows, notes on what was simplified."""

    build: Build
    sent: Sent
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Wish:
    """How to solve: relative gap, time limit [s] of everything, threads, solver, whether to ask what one more saves,
    how many other plans to look for.
    """

    gap: float
    time_limit: float | None
    threads: int
    solver: str
    value_of_next: bool
    alternatives: int = 0


@dataclass(frozen=True)
class Best:
    """The plan in hand: values, how the first objective ended, expressions of all objectives, notes on the way."""

    outcome: Outcome
    values: NDArray[np.float64] | None
    objectives: tuple[Linear | Ratio, ...]
    notes: tuple[str, ...]


def answer(sets: Sets, formulate: Callable[[], Formulation], wish: Wish) -> Solution:
    """Return the solution of a problem: optimise, explain what is missing, or decode and re-check."""
    clock = Clock(wish.time_limit)
    forget_stop()
    lacking = without_columns(sets)
    if lacking:
        return Solution(Termination("infeasible", seconds=clock.spent()), infeasible=lacking)
    formulation = formulate()
    best = optimise(formulation, wish, clock)
    ended = best.outcome
    if best.values is None:
        missing, said = why_not(sets, formulate, wish, clock) if ended.status == "infeasible" else ((), ())
        end = Termination(ended.status, bound=ended.bound, limit=ended.limit, seconds=clock.spent())
        return Solution(end, infeasible=missing, notes=(*best.notes, *said))
    return settled(formulation, best, formulate, wish, clock)


def settled(
    formulation: Formulation, best: Best, formulate: Callable[[], Formulation], wish: Wish, clock: Clock
) -> Solution:
    """Return a plan re-checked and explained; `formulate` states its programme anew.

    Raises
    ------
    AuditError
        Where the plan does not hold.
    """
    ended, asked = best.outcome, formulation.build.sets.problem.objectives[0]
    solution = checked(formulation, best)
    if isinstance(best.objectives[0], Ratio):  # what a step saves of a ratio is not linear: not computed
        termination = replace(ended_as(ended, solution), seconds=clock.spent())
        return replace(solution, termination=termination)
    fresh = formulate()
    arrays = fresh.build.programme.arrays(objective(fresh.build, asked, 0))
    found, others, cut = explained([fresh], arrays, best, wish, clock)
    termination = replace(ended_as(ended, solution), seconds=clock.spent())
    return replace(solution, termination=termination, binding=found, alternatives=others, notes=(*solution.notes, *cut))


def explained(
    parts: Sequence[Formulation], arrays: Arrays, best: Best, wish: Wish, clock: Clock
) -> tuple[tuple[Binding, ...], tuple[Alternative, ...], list[str]]:
    """Return what holds a plan back, the next best plans, and a note where there was no time for all of it.

    `parts`: the formulations of one programme (one, or one a scenario), as first stated; other plans are shown by the first.
    """
    if best.values is None or best.outcome.objective is None:
        return (), (), []
    limit = wish.time_limit
    longest = max(PATIENCE, clock.spent()) if limit is None else SHARE * limit
    longest = 0.0 if stop_is_asked() else longest
    builds = [part.build for part in parts]
    masks = systems(builds)
    steps = Steps(arrays, masks, best, wish, clock, longest)
    found = bindings(parts[0].build, steps)

    def read(values: NDArray[np.float64]) -> tuple[Had, ...]:
        return had(decode.purchases(decode.Reader(parts[0].build, parts[0].sent, values)))

    search = Search(arrays, masks, wish, clock, longest, best.outcome.objective, read)
    mine = best.values[: len(arrays.lower)]
    others: tuple[Alternative, ...] = ()
    if wish.alternatives:
        others = alternatives(search, mine, families(builds), wish.alternatives)
        known = {(round(other.objective, 6), other.had) for other in others}
        more = (
            other
            for other in sizes(search, mine, parts[0].build)
            if (round(other.objective, 6), other.had) not in known
        )
        others = tuple(sorted((*others, *more), key=lambda other: other.objective))
    cut = [
        name
        for name, short in (("what a step more saves", steps.cut_short), ("other plans", search.cut_short))
        if short
    ]
    return (
        found,
        others,
        [f"{' and '.join(cut)}: not all was looked for in the {longest:.3g} s that it may take"] if cut else [],
    )


def ended_as(outcome: Outcome, solution: Solution) -> Termination:
    """Return how a solve ended, with the objective of the plan as it was settled."""
    return Termination(outcome.status, solution.termination.objective, outcome.bound, outcome.gap, outcome.limit)


def checked(formulation: Formulation, best: Best) -> Solution:
    """Return the plan in the problem's own terms, re-checked.

    Raises
    ------
    AuditError
        Where it does not hold.
    """
    sets, solution = formulation.build.sets, _decoded(formulation, best)
    demand, served = sets.by_given(sets.demand), sets.by_given(sets.served)
    worst = audit.check(sets.problem, sets.workloads, sets.offers, sets.arcs, solution, demand, served)
    return replace(solution, residual=worst)


def optimise(formulation: Formulation, wish: Wish, clock: Clock) -> Best:
    """Solve objective after objective, holding each at its best, then settle ties, then the continuous rest."""
    build = formulation.build
    held = Held(build)
    asked = build.sets.problem.objectives
    first: Outcome | None = None
    expressions: list[Linear | Ratio] = []
    notes = list(formulation.notes)
    values: NDArray[np.float64] | None = None
    for number, each in enumerate(asked):
        expression = goal(build, each, number)
        expressions.append(expression)
        if isinstance(expression, Ratio):
            outcome = minimise_ratio(build, expression, wish, clock)
        elif values is None:
            outcome = _minimise(build, expression, wish, clock)
        else:
            outcome = held.minimise(expression, _padded(values, build), wish, clock)
        if outcome.values is None:
            if first is None:
                return Best(outcome, None, tuple(expressions), tuple(notes))
            notes.append(f"objective {each.minimise} was not reached in the time given")
            break
        first, values = first or outcome, outcome.values
        if isinstance(expression, Ratio):
            held.ratio_at_best(expression, values, number, outcome.gap)
            continue
        _leave_out(build, expression, outcome, wish, clock)
        held.at_best(expression, outcome.objective or 0.0, f"objective {number}", outcome.gap)
    if first is None or values is None:  # a problem has at least one objective
        raise ValueError("a problem without an objective")
    values = _padded(_settled(held, first.gap, values, wish, clock, notes), build)
    last = expressions[0]
    rest = _rest(build, values, last.at(last.value(values)) if isinstance(last, Ratio) else last)
    return Best(first, rest, tuple(expressions), tuple(notes))


def _settled(
    held: Held, gap: float | None, values: NDArray[np.float64], wish: Wish, clock: Clock, notes: list[str]
) -> NDArray[np.float64]:
    """Return the plan with its ties settled; as it is where it is not proven to be best, which `notes` then say."""
    if gap is not None and gap <= PROVEN and not stop_is_asked():
        return settle(held, values, wish, clock, notes)
    why = "stopped" if stop_is_asked() else "the gap that was proven is over 1e-6"
    notes.append(f"ties were not settled: {why}")
    return values


def _minimise(build: Build, expression: Linear, wish: Wish, clock: Clock) -> Outcome:
    if wish.solver == "cbc":
        return solve_cbc(build.programme, expression, time_limit=clock.left(), gap=wish.gap)
    arrays = build.programme.arrays(expression)
    large, start = None, None
    # each moment carries its own demand, on whole chips
    apart = not any(workload.anytime for workload in build.sets.workloads) and all(
        column.share == 1.0 for column in build.sets.columns
    )
    if len(build.programme) > LARGE and not build.variables.taken and apart:
        large = solve_large(arrays, fleet_of(build), gap=wish.gap, time_limit=clock.left(), threads=wish.threads)
        last = clock.left() == 0.0 or stop_is_asked() or len(arrays.value) > MOST_TERMS
        if large is not None and (large.status == "optimal" or last):
            return large
        start = None if large is None else large.values
    whole = solve_narrowed(
        arrays, systems_of(build), time_limit=clock.left(), gap=wish.gap, threads=wish.threads, start=start
    )
    return whole if large is None else _better(large, whole, wish.gap)


def _better(one: Outcome, other: Outcome, gap: float) -> Outcome:
    """Return the better plan of two outcomes of one programme, with the better of their bounds."""
    plans = [each for each in (one, other) if each.objective is not None]
    best = min(plans, key=lambda each: each.objective or 0.0)
    if best.objective is None:
        return best
    bound = max((each.bound for each in (one, other) if each.bound is not None), default=None)
    if bound is None:
        return best
    proven = max(0.0, best.objective - bound) / max(abs(best.objective), 1e-12)
    within = proven <= gap
    return replace(
        best, status="optimal" if within else "feasible", bound=min(bound, best.objective), gap=proven,
        limit=None if within else other.limit or best.limit,
    )  # fmt: skip


def _padded(values: NDArray[np.float64], build: Build) -> NDArray[np.float64]:
    """Return values with lower bounds for variables that were declared after them."""
    return np.concatenate([values, np.array(build.programme.lower[len(values) :])])


def _leave_out(build: Build, expression: Linear, outcome: Outcome, wish: Wish, clock: Clock) -> None:
    """Fix integers that no plan as good as the one in hand takes, before its objective is held."""
    whole = sum(build.programme.integer)
    if wish.solver != "highs" or outcome.objective is None or whole <= FEW or len(build.programme) > LARGE:
        return
    arrays = build.programme.arrays(expression)
    relaxation = relaxed(arrays, time_limit=clock.left(), threads=wish.threads)
    most = outcome.objective + SAME * abs(outcome.objective)
    upper = narrowed(arrays, relaxation, most).upper
    build.programme.upper[:] = [float(value) for value in upper]


def _rest(build: Build, values: NDArray[np.float64], expression: Linear) -> NDArray[np.float64]:
    """Return values with integers rounded and held, the continuous rest solved again, runs as early as they can be."""
    held = solve_arrays(forced(fixed(build.programme.arrays(expression), values)), threads=_threads())
    values = values if held.values is None else held.values
    if build.variables.start:
        early = Linear(dict.fromkeys(build.variables.start.values(), 1.0))
        Held(build).at_best(expression, expression.value(values), "first objective")
        soon = solve_arrays(fixed(build.programme.arrays(early), values), threads=_threads())
        values = values if soon.values is None else soon.values
    whole = np.array(build.programme.integer, dtype=np.bool_)
    return np.where(whole, np.round(values), values)


def _threads() -> int:
    from tokenmill.milp.highs import threads_in_use

    return threads_in_use()


def _expected(sets: Sets) -> dict[tuple[str, int, str], float]:
    """Return the share of the demand planned for that is expected, where it is not all."""
    shares = {
        (workload.workload, h, sets.slices[l]): sets.expected(w, h, l) / sets.planned(w, h, l)
        for w, workload in enumerate(sets.workloads)
        for h, l in (sets.moments if workload.kind == "pool" else ())
        if sets.planned(w, h, l) > 0.0
    }
    return {key: share for key, share in shares.items() if share != 1.0}


def _decoded(formulation: Formulation, best: Best) -> Solution:
    """Return the plan in the problem's own terms."""
    if best.values is None:
        raise ValueError("no plan to decode")
    read = decode.Reader(formulation.build, formulation.sent, best.values)
    bought = decode.purchases(read)
    money = decode.money(read, bought)
    build = formulation.build
    sets = build.sets
    value = best.objectives[0].value(best.values)
    refused = {
        (sets.workloads[w].workload, b, h, sets.slices[l]): read.at(index)
        for (w, b, h, l), index in build.variables.refused.items()
        if read.at(index) > decode.LEAST
    }
    return Solution(
        Termination(best.outcome.status, value, best.outcome.bound, best.outcome.gap, best.outcome.limit),
        purchases=bought,
        running=decode.running(read),
        runs=decode.runs(read),
        flows=decode.flows(read),
        packing=decode.packings(read),
        cost_total=money.total,
        cost_by_kind=money.by_kind,
        cost_by_workload=money.by_workload,
        cost_by_period=money.by_period,
        idle_cost=money.idle,
        carbon=weighted_energy(build, "carbon").value(best.values),
        energy=weighted_energy(build, "energy").value(best.values),
        electricity=electricity(read),
        refused=refused,
        expected=_expected(sets),
        notes=best.notes,
    )
