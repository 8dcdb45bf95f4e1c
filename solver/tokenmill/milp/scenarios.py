r"""Plans under scenarios: commitments before, everything else after one future has come true.

.. math:: \min\ (1 - \omega) \sum_s p_s C_s + \omega \Big( \eta + \frac{1}{1 - \alpha} \sum_s p_s \xi_s \Big),
   \qquad \xi_s \ge C_s - \eta,\ \xi_s \ge 0

| symbol | meaning | unit |
|---|---|---|
| p, C | probability of a scenario, the objective in it | 1, the objective's |
| omega, alpha | weight and level of the conditional value at risk (Rockafellar and Uryasev 2000) | 1 |
| eta, xi | value at risk, excess over it (variables) | the objective's |

What is bought or reserved is one decision for all scenarios; where a scenario cuts the supply of a system, what arrives may be
less than was ordered (the buyer may cancel there), and is paid for alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.errors import SolverError
from tokenmill.milp.clock import Clock
from tokenmill.milp.highs import Outcome, fixed, solve_arrays
from tokenmill.milp.infeasible import why_not, without_columns
from tokenmill.milp.narrow import solve_narrowed, systems_of
from tokenmill.milp.objective import goal
from tokenmill.milp.ratio import Ratio
from tokenmill.milp.rows import Linear, Programme
from tokenmill.milp.sets import Sets
from tokenmill.milp.solution import InScenario, Solution, Termination
from tokenmill.milp.solve import Best, Formulation, Wish, checked, explained
from tokenmill.offers import Offer
from tokenmill.problem import Problem, Risk, Scenario, Supply


class Scope(Programme):
    """One scenario's part of a programme: its variables and rows, and the commitments that it shares with the others."""

    def __init__(self, whole: Programme, name: str, cut: frozenset[str]) -> None:
        self.__dict__.update(whole.__dict__)
        self.scope, self.cut, self.whole = name, cut, whole

    def variable(self, family: str, *label: Hashable, **terms: Any) -> int:
        """Record a variable of the scenario; a commitment is the one of all, or what arrives of it."""
        if family != "new":
            return super().variable(family, self.scope, *label, **terms)
        shared = self._index.get((family, *label))
        if shared is None:
            shared = super().variable(family, *label, **terms)
        if str(label[0]).partition("/")[0] not in self.cut:
            return shared
        arrives = super().variable("arrives", self.scope, *label, **terms)
        self.row("arrives", *label, left=Linear({arrives: 1.0, shared: -1.0}), sense="<=")
        return arrives

    def variables(self, family: str, *prefix: Hashable, **terms: Any) -> int:
        """Record variables of the scenario."""
        return super().variables(family, self.scope, *prefix, **terms)

    def row(self, family: str, *label: Hashable, **terms: Any) -> None:
        """Record a row of the scenario."""
        super().row(family, self.scope, *label, **terms)

    def block(self, family: str, *prefix: Hashable, **terms: Any) -> None:
        """Record rows of the scenario."""
        super().block(family, self.scope, *prefix, **terms)


@dataclass(frozen=True)
class Future:
    """A scenario: its name and probability, its index sets, and systems whose supply it cuts."""

    name: str
    probability: float
    sets: Sets
    cut: frozenset[str]


@dataclass(frozen=True)
class Stated:
    """All futures in one programme: each one's formulation, objective by future, the whole objective, masks of systems."""

    parts: tuple[Formulation, ...]
    each: tuple[Linear, ...]
    whole: Linear
    systems: Mapping[str, NDArray[np.bool_]]
    programme: Programme


def futures(sets: Sets) -> list[Future]:
    """Return the scenarios of a problem."""
    scenarios = sorted(sets.problem.scenarios, key=lambda s: s.name)
    return [Future(s.name, s.probability, in_scenario(sets, s), frozenset(s.supply)) for s in scenarios]


def in_scenario(sets: Sets, scenario: Scenario) -> Sets:
    """Return index sets with a scenario's demand, prices and supply."""
    return replace(
        sets,
        problem=_supplied(sets.problem, scenario.supply),
        demand={name: rates * scenario.demand for name, rates in sets.demand.items()},
        served={name: rates * scenario.demand for name, rates in sets.served.items()},
        offers=tuple(_priced(offer, scenario.price.get(offer.market, 1.0)) for offer in sets.offers),
    )


def _supplied(problem: Problem, supply: Mapping[str, int]) -> Problem:
    kept = [s for s in problem.hardware.supply if s.system not in supply]
    cut = []
    for system, most in supply.items():
        own = [s for s in problem.hardware.supply if s.system == system] or [Supply(system)]
        cut += [replace(s, at_most=most if s.at_most is None else min(most, s.at_most)) for s in own]
    return replace(problem, hardware=replace(problem.hardware, supply=(*kept, *cut)))


def _priced(offer: Offer, factor: float) -> Offer:
    later = tuple((period, price * factor) for period, price in offer.later)
    return replace(offer, price=offer.price * factor, later=later)


def state(parts: Sequence[Future], problem: Problem) -> Stated:
    """Record every future in one programme, and its objective.

    Raises
    ------
    SolverError
        For an objective that is a ratio of two decisions.
    """
    from tokenmill.milp.formulation import formulate

    programme = Programme()
    made, each = [], []
    for part in parts:
        formulation = formulate(part.sets, Scope(programme, part.name, part.cut))
        expression = goal(formulation.build, problem.objectives[0], 0)
        if isinstance(expression, Ratio):
            raise SolverError(
                "objective: a cost per unit of a volume that may vary has no expected value over scenarios"
            )
        made.append(formulation)
        each.append(expression)
    whole = Linear()
    weight = problem.risk.cvar_weight
    for part, expression in zip(parts, each, strict=True):
        whole.plus(expression, (1.0 - weight) * part.probability)
    if weight > 0.0:
        whole.plus(_tail(programme, parts, each, problem.risk.cvar_level), weight)
    systems: dict[str, NDArray[np.bool_]] = {}
    for formulation in made:
        for name, mask in systems_of(formulation.build).items():
            systems[name] = systems.get(name, np.zeros(len(programme.names), dtype=np.bool_)) | mask
    return Stated(tuple(made), tuple(each), whole, systems, programme)


def _tail(programme: Programme, parts: Sequence[Future], each: Sequence[Linear], level: float) -> Linear:
    """Return the conditional value at risk of the objective."""
    result = Linear({programme.variable("value_at_risk"): 1.0})
    (risk,) = result.terms
    for part, expression in zip(parts, each, strict=True):
        excess = programme.variable("excess", part.name)
        programme.row("excess", part.name, left=Linear({risk: -1.0, excess: -1.0}).plus(expression), sense="<=")
        result.add(excess, part.probability / (1.0 - level))
    return result


def answer_futures(sets: Sets, wish: Wish) -> Solution:
    """Return the plan of commitments that is best over all scenarios, shown in the likeliest; others in the notes."""
    clock = Clock(wish.time_limit)
    if wish.solver != "highs":
        raise SolverError("solver: scenarios are solved by HiGHS; found 'cbc'")
    lacking = without_columns(sets)
    if lacking:
        return Solution(Termination("infeasible", seconds=clock.spent()), infeasible=lacking)
    parts = futures(sets)
    stated = state(parts, sets.problem)
    outcome = _solve(stated, wish, clock)
    if outcome.values is None:
        missing, said = (
            why_not(sets, lambda: state(parts, sets.problem).parts[0], wish, clock)
            if outcome.status == "infeasible"
            else ((), ())
        )
        end = Termination(outcome.status, bound=outcome.bound, limit=outcome.limit, seconds=clock.spent())
        return Solution(end, infeasible=missing, notes=said)
    values = _rest(stated, outcome.values)
    plans = [
        checked(part, Best(replace(outcome, values=values), values, (expression,), part.notes))
        for part, expression in zip(stated.parts, stated.each, strict=True)
    ]
    shown = max(range(len(parts)), key=lambda n: (parts[n].probability, -n))
    notes = _notes(sets, parts, stated, plans, shown, values, wish, clock)
    objective = stated.whole.value(values)
    found, others, cut = explained(
        [stated.parts[shown], *(part for n, part in enumerate(stated.parts) if n != shown)],
        stated.programme.arrays(stated.whole), Best(replace(outcome, objective=objective), values, (stated.whole,), ()), wish, clock,
    )  # fmt: skip
    end = Termination(outcome.status, objective, outcome.bound, outcome.gap, outcome.limit, clock.spent())
    worst = max(plan.residual or 0.0 for plan in plans)
    end = replace(end, seconds=clock.spent())
    return replace(
        plans[shown], termination=end, residual=worst, binding=found, alternatives=others,
        scenarios=_weighed(parts, stated, shown, values, sets.problem.risk),
        notes=(*plans[shown].notes, *notes, *cut),
    )  # fmt: skip


def _solve(stated: Stated, wish: Wish, clock: Clock) -> Outcome:
    arrays = stated.programme.arrays(stated.whole)
    return solve_narrowed(arrays, stated.systems, time_limit=clock.left(), gap=wish.gap, threads=wish.threads)


def _rest(stated: Stated, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values with integers rounded and held, the continuous rest solved again."""
    arrays = stated.programme.arrays(stated.whole)
    held = solve_arrays(fixed(arrays, values))
    values = values if held.values is None else held.values
    return np.where(arrays.integer, np.round(values), values)


def _weighed(
    parts: Sequence[Future], stated: Stated, shown: int, values: NDArray[np.float64], risk: Risk
) -> tuple[InScenario, ...]:
    """Return the objective in every scenario with its weight, the one that is shown first; then the mean of the worst."""
    weight = risk.cvar_weight
    rows = [
        InScenario(part.name, (1.0 - weight) * part.probability, expression.value(values))
        for part, expression in zip(parts, stated.each, strict=True)
    ]
    rows = [rows[shown], *rows[:shown], *rows[shown + 1 :]]
    if weight > 0.0:
        rest = stated.whole.value(values) - sum(row.weight * row.value for row in rows)
        rows.append(InScenario(f"cvar({risk.cvar_level:g})", weight, rest / weight, worst=True))
    return tuple(rows)


def _notes(
    sets: Sets, parts: Sequence[Future], stated: Stated, plans: Sequence[Solution], shown: int,
    values: NDArray[np.float64], wish: Wish, clock: Clock,
) -> list[str]:  # fmt: skip
    """Return in words: the objective in every scenario, and what knowing the mean, or the future, would change."""
    unit = sets.problem.objectives[0].minimise
    notes = [f"shown is the scenario {parts[shown].name}; what is bought or reserved holds in all"]
    for part, expression in zip(parts, stated.each, strict=True):
        notes.append(f"scenario {part.name} ({part.probability:.0%}): {unit} {expression.value(values):,.6g}")
    best = stated.whole.value(values)
    mean = with_mean_plan(sets, parts, wish, clock)
    if mean == inf:
        notes.append("the plan for the mean of all scenarios does not hold in every one")
    elif mean is not None:
        notes.append(f"value of the stochastic solution: {max(mean - best, 0.0):,.6g} less than the plan for the mean")
    if sets.problem.risk.cvar_weight == 0.0:
        known = with_perfect_information(sets, parts, wish, clock)
        if known is not None:
            notes.append(f"value of perfect information: {max(best - known, 0.0):,.6g} less if the future were known")
    return notes


def with_mean_plan(sets: Sets, parts: Sequence[Future], wish: Wish, clock: Clock) -> float | None:
    """Return the objective over all scenarios with the commitments that are best for their mean; inf where these do not hold."""
    scenarios = sets.problem.scenarios
    markets = {market for s in scenarios for market in s.price}
    systems = {system for s in scenarios for system in s.supply}
    mean = Scenario(
        "mean", 1.0, sum(s.probability * s.demand for s in scenarios),
        {m: sum(s.probability * s.price.get(m, 1.0) for s in scenarios) for m in markets},
        {k: int(sum(s.probability * s.supply[k] for s in scenarios if k in s.supply)) for k in systems if all(k in s.supply for s in scenarios)},
    )  # fmt: skip
    alone = state([Future("mean", 1.0, in_scenario(sets, mean), frozenset())], sets.problem)
    outcome = _solve(alone, wish, clock)
    if outcome.values is None:
        return None
    taken = {label: round(outcome.values[n]) for n, label in enumerate(alone.programme.labels) if label[0] == "new"}
    stated = state(parts, sets.problem)
    for n, label in enumerate(stated.programme.labels):
        if label[0] == "new":
            stated.programme.lower[n] = stated.programme.upper[n] = float(taken.get(label, 0))
    held = _solve(stated, wish, clock)
    return inf if held.status == "infeasible" else held.objective


def with_perfect_information(sets: Sets, parts: Sequence[Future], wish: Wish, clock: Clock) -> float | None:
    """Return the expected objective if every scenario could be planned for by itself."""
    total = 0.0
    for part in parts:
        outcome = _solve(state([replace(part, probability=1.0)], sets.problem), wish, clock)
        if outcome.objective is None:
            return None
        total += part.probability * outcome.objective
    return total
