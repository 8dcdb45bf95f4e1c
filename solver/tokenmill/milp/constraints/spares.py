r"""Spares: replicas beyond those needed, so that enough stand for the availability asked."""

from __future__ import annotations

from functools import cache
from math import ceil, lgamma, log, log1p

import numpy as np

from tokenmill.milp.quantities import Build
from tokenmill.milp.rows import Linear
from tokenmill.milp.sets import Sets

MOST_STEPS = 400


def standing(sets: Sets, n: int) -> float:
    """Return the share of time that a replica of a use stands: all of its chips do, of outages independent of one another."""
    use = sets.uses[n]
    outage = max(sets.offers[k].chip_outage for k in sets.stocks[use.stock].offers)
    return 1.0 / (1.0 + outage * sets.columns[use.column].chips)


@cache
def usable(replicas: int, share: float, availability: float) -> int:
    """Return the most of `replicas` that stand together with a probability of at least `availability`."""
    if share >= 1.0 or replicas == 0:
        return replicas
    n = np.arange(replicas + 1)
    ways = lgamma(replicas + 1) - np.array([lgamma(k + 1) + lgamma(replicas - k + 1) for k in n])
    each = np.exp(ways + n * log(share) + (replicas - n) * log1p(-share))
    at_least = np.cumsum(each[::-1])[::-1]  # P(standing >= n)
    return int(np.flatnonzero(at_least >= availability * (1.0 - 1e-12)).max(initial=0))


def spares(share: float, availability: float, needed: int) -> tuple[int, list[int]]:
    """Return replicas that hold `needed`, and the numbers of replicas from which one more of them is a spare."""
    steps: list[int] = []
    replicas, lost = 0, 0
    while replicas - lost < needed and lost < MOST_STEPS:
        replicas += 1
        while replicas - usable(replicas, share, availability) > lost:
            lost += 1
            steps.append(replicas)
    return replicas, steps


def spare_rows(build: Build) -> None:
    r"""Of x replicas all but k(x) carry load: :math:`\sum_p t_p \le x - \sum_j s_j`, s_j = 1 from x = X_j on.

    .. math:: k(x) = x - \max \{n : P(\mathrm{Binomial}(x, a) \ge n) \ge A\}, \qquad x - (M - X_j + 1)\, s_j \le X_j - 1

    | symbol | meaning | unit |
    |---|---|---|
    | s | whether the j-th spare is due (variable) | 1 |
    | a, A | share of time that a replica stands, availability asked | 1 |
    | X_j, M | replicas from which the j-th spare is due, more than any plan needs | replicas |

    Recorded before the rows of load, which read what is left. Rows ``spare`` by (use, step, moment). Dual: the worth of
    a replica more before a spare is due.
    """
    asked = build.sets.problem.limits.availability
    if asked is None:
        return
    for (n, h, l), index in build.variables.replicas.items():
        most, steps = spares(standing(build.sets, n), asked, _needed(build, n, h, l))
        build.programme.upper[index] = min(build.programme.upper[index], float(most))
        ready = Linear({index: -1.0})
        for number, at in enumerate(steps):
            due = build.programme.variable("spare", n, number, h, l, integer=True, upper=1.0)
            ready.add(due)
            left = Linear({index: 1.0, due: -float(most - at + 1)})
            build.programme.row("spare", n, number, h, l, left=left, sense="<=", right=float(at - 1))
        build.variables.less_usable[n, h, l] = ready


def _needed(build: Build, n: int, h: int, l: int) -> int:
    """Return standing replicas of a use beyond which no plan needs more: it alone carries every class in turn."""
    sets = build.sets
    use = sets.uses[n]
    w, points = sets.owner[use.column], sets.columns[use.column].points
    total = 0.0
    for b, share in enumerate(sets.workloads[w].shares):
        rates = [point.rate[b] for point in points if point.rate[b] > 0.0]
        total += sets.planned(w, h, l) * share / min(rates) if rates else 0.0
    held = sets.workload(sets.workloads[w].workload).held.get("layout.replicas", (0,))
    return max(ceil(total / (1.0 - sets.problem.hardware.ownership.maintenance)) + 1, int(max(held)))
