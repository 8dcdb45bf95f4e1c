"""Limits on power left out at first: where the best plan without them keeps them, it is the best with them.

With such a limit every replica is set to an operating point and slow layouts stay for what they do not draw: a programme of
many times the size. Most plans draw far less than a site can supply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from tokenmill.candidates.columns import WorkloadColumns
from tokenmill.milp.clock import Clock
from tokenmill.milp.dominance import power_is_tight
from tokenmill.milp.highs import forget_stop
from tokenmill.milp.infeasible import without_columns
from tokenmill.milp.narrow import relaxed
from tokenmill.milp.objective import goal
from tokenmill.milp.parts import holds
from tokenmill.milp.ratio import Ratio
from tokenmill.milp.rows import Linear
from tokenmill.milp.sets import Sets
from tokenmill.milp.solution import Solution
from tokenmill.milp.solve import Formulation, Wish, optimise, settled
from tokenmill.problem import Problem

MANY = 2000  # settings of replicas from which it is worth a try
SHARE = 0.8  # of a time limit


def answer_eased(
    problem: Problem,
    columns: Sequence[WorkloadColumns],
    sets_of: Callable[[Problem], Sets],
    formulate: Callable[[Sets], Formulation],
    wish: Wish,
) -> Solution | None:
    """Return the answer of a programme without limits on power if its plan keeps them with every replica loaded; else None."""
    if wish.solver != "highs" or not _worth_a_try(problem, columns):
        return None
    clock = Clock(wish.time_limit)
    forget_stop()
    sets = sets_of(without_limits(problem))
    if without_columns(sets):
        return None
    limited = replace(sets, problem=problem, hungriest=True)
    eased, fresh = formulate(sets), formulate(limited)
    if not _relaxation_keeps(eased, fresh, wish, clock):
        return None
    least = None if wish.time_limit is None else SHARE * wish.time_limit
    best = optimise(eased, replace(wish, time_limit=least), Clock(least))
    arrays = fresh.build.programme.arrays(Linear())
    if best.values is None or not holds(arrays, best.values[: len(arrays.lower)]):
        return None
    within = replace(eased, build=replace(eased.build, sets=limited))
    return settled(within, best, lambda: formulate(limited), wish, clock)


def without_limits(problem: Problem) -> Problem:
    """Return the problem with power without end."""
    sites = tuple(replace(site, power=inf) for site in problem.hardware.sites)
    hardware = replace(problem.hardware, sites=sites)
    return replace(problem, hardware=hardware, limits=replace(problem.limits, power=None))


def _worth_a_try(problem: Problem, columns: Sequence[WorkloadColumns]) -> bool:
    points = sum(len(c.points) for work in columns for role in work.columns.values() for c in role if len(c.points) > 1)
    moments = problem.horizon.periods * len(problem.horizon.slices)
    minimised = any(each.minimise == "power" for each in problem.objectives)
    return power_is_tight(problem) and not minimised and points * moments * len(problem.hardware.sites) > MANY


def _relaxation_keeps(eased: Formulation, limited: Formulation, wish: Wish, clock: Clock) -> bool:
    """Tell whether the relaxation without the limits keeps them."""
    expression = goal(eased.build, eased.build.sets.problem.objectives[0], 0)
    if isinstance(expression, Ratio):
        return False
    found = relaxed(eased.build.programme.arrays(expression), time_limit=clock.left(), threads=wish.threads)
    return found is not None and holds(limited.build.programme.arrays(Linear()), found.values)
