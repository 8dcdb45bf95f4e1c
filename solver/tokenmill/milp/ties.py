"""Objectives held at their best while others are asked, and the ties that are settled so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.cbc import solve_cbc
from tokenmill.milp.clock import Clock
from tokenmill.milp.constraints.limits import enough
from tokenmill.milp.highs import Outcome
from tokenmill.milp.narrow import solve_narrowed, systems_of
from tokenmill.milp.objective import chip_seconds, kinds, order_of_offers, order_of_uses
from tokenmill.milp.quantities import Build
from tokenmill.milp.ratio import Ratio
from tokenmill.milp.rows import Linear

if TYPE_CHECKING:
    from tokenmill.milp.solve import Wish

SAME = 1e-9
PROVEN = 1e-6
WEIGHT = 10.0
"""Of each held objective, in what is minimised next, where that is one: no answer depends on it, only how soon it is found."""


@dataclass
class Held:
    """The programme of a problem, and what is proven to be at its best in it: expressions near one, or near zero of a ratio."""

    build: Build
    expressions: list[Linear] = field(default_factory=list)

    def at_best(self, expression: Linear, best: float, why: str, gap: float | None = None) -> None:
        """Record that an objective stays as good (to 1e-9) as was found, `gap` from its best: a row near one whatever its unit."""
        size = max(abs(best), _least(expression))
        left = Linear().plus(expression, 1.0 / size)
        self._hold(why, left, best / size + SAME, gap)

    def ratio_at_best(self, ratio: Ratio, values: NDArray[np.float64], number: int, gap: float | None) -> None:
        """Record that a ratio stays as good (to 1e-9) as was found, at no less volume: rows near one."""
        level = ratio.value(values) * (1.0 + SAME)
        size = max(abs(level) * ratio.most, _least(ratio.above))
        self._hold(f"objective {number}", Linear().plus(ratio.at(level), 1.0 / size), 0.0, gap)
        volume = Linear().plus(ratio.below, 1.0 / ratio.most)
        least = ratio.below.value(values) / ratio.most
        self.build.programme.row("held", f"volume {number}", left=volume, sense=">=", right=least * (1.0 - SAME))

    def _hold(self, why: str, left: Linear, right: float, gap: float | None) -> None:
        if gap is not None and gap <= PROVEN:
            self.expressions.append(Linear().plus(left))
        self.build.programme.row("held", why, left=left, sense="<=", right=right)

    def minimise(self, expression: Linear, start: NDArray[np.float64], wish: Wish, clock: Clock) -> Outcome:
        """Return the plan of the least `expression` among those that keep what is held; `start` is one of them.

        What is at its best is minimised along with it: no plan has less of it, and a solver bounds a search by what is
        minimised far better than by a row. Objective and gap of the outcome are those of `expression`; it has no bound.
        """
        size = max(abs(expression.value(start)), _least(expression))
        asked = Linear().plus(expression, 1.0 / size)
        for held in self.expressions:
            asked.plus(held, WEIGHT)
        parts = 1.0 + WEIGHT * len(self.expressions)
        programme, left = self.build.programme, clock.left()
        if wish.solver == "cbc":
            found = solve_cbc(programme, asked, time_limit=left, gap=wish.gap / parts)
        else:
            found = solve_narrowed(
                programme.arrays(asked), systems_of(self.build), time_limit=left, gap=wish.gap / parts, threads=wish.threads, start=start
            )  # fmt: skip
        value = None if found.values is None else expression.value(found.values)
        return replace(found, objective=value, bound=None, gap=None if found.gap is None else found.gap * parts)


def _least(expression: Linear) -> float:
    """Return the size under which a value of an expression counts as none."""
    return max(1e-9 * max((abs(c) for c in expression.terms.values()), default=0.0), 1e-12)


def settle(held: Held, values: NDArray[np.float64], wish: Wish, clock: Clock, notes: list[str]) -> NDArray[np.float64]:
    """Return the plan of fewest chips, then fewest kinds of systems, then first names, among those equally good.

    What is had is named before what runs on it, and then stays: moments are apart from there on.
    """
    build = held.build
    most = {k: enough(build, k) for k in range(len(build.sets.offers))}
    steps: list[tuple[str, Callable[[], Linear]]] = [
        ("fewer chips", lambda: chip_seconds(build)),
        ("fewer kinds", lambda: kinds(build, most)),
        ("names of offers", lambda: order_of_offers(build)),
        ("names of layouts", lambda: order_of_uses(build)),
    ]
    one = len({offer.system for offer in build.sets.offers}) == 1
    for name, make in steps:
        if one and name == "fewer kinds":
            continue
        expression = make()
        outcome = held.minimise(expression, _with_kinds(values, build), replace(wish, gap=0.0), clock)
        if outcome.values is None or outcome.status != "optimal":
            notes.append(f"ties were not settled by {name}: not proven in the time given")
            return values
        values = outcome.values
        held.at_best(expression, outcome.objective or 0.0, f"tie {name}", outcome.gap)
        if name == "names of offers":
            _keep(build, values)
    return values


def _keep(build: Build, values: NDArray[np.float64]) -> None:
    """Fix what is bought, reserved and rented as it is in a plan."""
    programme = build.programme
    for index in [*build.variables.new.values(), *build.variables.rented.values()]:
        if programme.integer[index]:
            programme.lower[index] = programme.upper[index] = float(round(values[index]))


def _with_kinds(values: NDArray[np.float64], build: Build) -> NDArray[np.float64]:
    """Return a plan as a first one for ties: kinds of systems declared since are all said to be in use."""
    later = build.programme.labels[len(values) :]
    return np.concatenate([values, np.array([1.0 if label[0] == "kind" else 0.0 for label in later])])
