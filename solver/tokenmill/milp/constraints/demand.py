r"""Demand, routing and load of pools."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from tokenmill.milp.quantities import Build, load
from tokenmill.milp.rows import Linear, Requirement, total

LAST_RESORT = 100.0  # a limit of money or hardware is easier to ease than what the user wants done


def demand_rows(build: Build) -> None:
    r"""All of the demand is routed.

    .. math:: \sum_{r} \sum_{c,s,i,p} q_{w,b,r,c,s,i,p,h,l} + d_{w,b,h,l} = 1

    | symbol | meaning | unit |
    |---|---|---|
    | q | share of class b that route r sends to column c first (variable) | 1 |
    | d | share refused, where refusing has a price (variable) | 1 |

    Work that may be done in any slice of its period: one row over its slices,

    .. math:: \sum_l \Big( \sum_{r} \sum_{c,s,i,p} q_{w,b,r,c,s,i,p,h,l} + d_{w,b,h,l} \Big) = 1,

    where a share is of the whole period's work (the demand of a slice is what would do all of it there).

    Rows ``demand`` by (workload, class, period, slice), or (workload, class, period). Dual: what the whole class costs at the margin.
    """
    sets = build.sets
    for w, workload in enumerate(sets.workloads):
        if workload.kind != "pool":
            continue
        rates = sets.demand[workload.workload]
        asked = Requirement(
            f"workload.{workload.workload}.demand", f"demand of {workload.workload}", "units/s",
            "lower the demand, loosen its latency limits, or allow more hardware", scale=float(rates.max(initial=0.0)), weight=LAST_RESORT,
        )  # fmt: skip
        for moments in _together(build, workload.anytime):
            h = moments[0][0]
            for b, share in enumerate(workload.shares):
                if share <= 0.0 or max(rates[h - 1, l] for h, l in moments) <= 0.0:
                    continue
                left = total(_carried(build, w, b, h, l) for h, l in moments)
                label = (workload.workload, b, h, *([] if workload.anytime else [sets.slices[moments[0][1]]]))
                build.programme.row("demand", *label, left=left, sense="=", right=1.0, requirement=asked)


def _together(build: Build, anytime: bool) -> list[list[tuple[int, int]]]:
    """Return the moments that carry one demand: each its own, or all slices of a period."""
    moments = build.sets.moments
    if not anytime:
        return [[moment] for moment in moments]
    return [[(h, l) for h, l in moments if h == period] for period in build.sets.periods]


def _carried(build: Build, w: int, b: int, h: int, l: int) -> Linear:
    """Return the share of a class that is carried in a moment, or refused there."""
    refused = build.variables.refused
    left = Linear({refused[w, b, h, l]: 1.0} if (w, b, h, l) in refused else {})
    for r in range(len(build.sets.workloads[w].routes)):
        left.plus(routed(build, w, b, r, 0, h, l))
    return left


def routed(build: Build, w: int, b: int, r: int, position: int, h: int, l: int) -> Linear:
    """Return the share of a class that route r sends through its role at `position`."""
    return Linear().many(build.variables.shares.through(w, b, r, position, h, l))


def route_rows(build: Build) -> None:
    r"""What enters a route passes all of its roles.

    .. math:: \sum_{c \in r_j} q_{w,b,r,c,\dots} = \sum_{c \in r_{j+1}} q_{w,b,r,c,\dots}

    Rows ``route`` by (workload, class, route, position, period, slice). Dual: the worth of work half done.
    """
    sets = build.sets
    for w, workload in enumerate(sets.workloads):
        if workload.kind != "pool":
            continue
        for h, l in sets.moments:
            for b in range(len(workload.shares)):
                for r, route in enumerate(workload.routes):
                    for position in range(len(route) - 1):
                        left = routed(build, w, b, r, position, h, l)
                        left.plus(routed(build, w, b, r, position + 1, h, l), -1.0)
                        if left.terms:
                            label = (workload.workload, b, r, position, h, sets.slices[l])
                            build.programme.row("route", *label, left=left, sense="=")


def load_rows(build: Build) -> None:
    r"""Replicas carry what is routed to them.

    .. math:: \sum_{w,b,r} \frac{q_{w,b,r,c,p,\dots}\, D_{w,h,l}\, \beta_b}{\mu_{c,p,b}} \le (1 - m)\, t_{c,p,\dots},
       \qquad \sum_p t_{c,p,\dots} = x_{c,\dots}

    | symbol | meaning | unit |
    |---|---|---|
    | D, beta | demand of the workload, share of the class | units/s, 1 |
    | mu | rate of a replica at operating point p for the class alone | units/s |
    | m | share of time that own systems are in maintenance | 1 |
    | t | replicas set to the point (x itself where there is one point; x less spares where these are asked) | replicas |

    Where nothing limits or minimises power, one row over all points: :math:`\sum_p \dots \le (1 - m)\, x`. Rows ``load`` by
    (use, point, moment) or (use, moment), ``set`` by (use, moment). Dual: the worth of one more replica.
    """
    sets, made = build.sets, build.variables
    if not made.settings and not made.less_usable:
        for h, l in sets.moments:
            _load_block(build, h, l)
        return
    for (n, h, l), replicas in made.replicas.items():
        use = sets.uses[n]
        own = sets.stocks[use.stock].tenure == "own"
        ready = 1.0 - (sets.problem.hardware.ownership.maintenance if own else 0.0)
        carrying = made.less_usable.get((n, h, l), Linear({replicas: -1.0}))
        settings = {p: index for (m, p, at, part), index in _settings(build, n).items() if (at, part) == (h, l)}
        for p, index in settings.items():
            left = load(build, n, p, h, l)
            if left.terms:
                build.programme.row("load", n, p, h, sets.slices[l], left=left.add(index, -ready), sense="<=")
        if settings:
            left = Linear(dict.fromkeys(settings.values(), 1.0)).plus(carrying)
            build.programme.row("set", n, h, sets.slices[l], left=left, sense="=")
            continue
        left = total(load(build, n, p, h, l) for p in sets.points[use.column])
        if left.terms:
            build.programme.row("load", n, h, sets.slices[l], left=left.plus(carrying, ready), sense="<=")


def _load_block(build: Build, h: int, l: int) -> None:
    """Record the rows of load of a moment at once: in each the shares of a use, and its replicas."""
    sets, made = build.sets, build.variables
    stands, index, loads = made.shares.loads(h, l)
    terms = np.bincount(made.shares.entries.use[stands], minlength=len(sets.uses))
    busy = np.flatnonzero(terms)
    if not len(busy):
        return
    maintenance = sets.problem.hardware.ownership.maintenance
    ready = np.array([1.0 - maintenance if sets.stocks[use.stock].tenure == "own" else 1.0 for use in sets.uses])
    ends = np.cumsum(terms[busy] + 1)  # the last term of each row is that of the replicas
    last = np.zeros(int(ends[-1]), dtype=np.bool_)
    last[ends - 1] = True
    columns, values = np.empty(len(last), dtype=np.int64), np.empty(len(last))
    columns[~last], values[~last] = index[stands], loads[stands]
    columns[last], values[last] = made.replicas.at(h, l)[busy], -ready[busy]
    build.programme.block(
        "load", h, sets.slices[l], starts=np.concatenate([[0], ends]), index=columns, value=values, sense="<=",
        right=np.zeros(len(busy)), label=partial(_of_load, busy),
    )  # fmt: skip


def _of_load(busy: NDArray[np.int64], row: int) -> tuple[int]:
    return (int(busy[row]),)


def _settings(build: Build, n: int) -> dict[tuple[int, int, int, int], int]:
    points = range(len(build.sets.columns[build.sets.uses[n].column].points))
    made = build.variables.settings
    return {(n, p, h, l): made[n, p, h, l] for p in points for h, l in build.sets.moments if (n, p, h, l) in made}


def replica_rows(build: Build) -> None:
    r"""Replicas that the user holds.

    .. math:: \sum_{c,s,i} x_{c,s,i,h,l} = R_{w,\text{role}} \quad (\text{or between the least and the most of a list})

    Rows ``least`` and ``most`` by (workload, role, moment). Dual: the worth of holding one more.
    """
    sets = build.sets
    for w, workload in enumerate(sets.workloads):
        asked = sets.workload(workload.workload)
        for role in workload.columns if workload.kind == "pool" else ():
            values = asked.role_held.get(role, {}).get("layout.replicas", asked.held.get("layout.replicas"))
            if not values:
                continue
            key = f"workload.{workload.workload}.layout.replicas"
            wanted = Requirement(key, "replicas held", "replica", "hold another number of replicas, or leave it free")
            for h, l in sets.moments:
                left = Linear({build.variables.replicas[n, h, l]: 1.0 for n in sets.uses_of(w, role)})
                label = (workload.workload, role, h, sets.slices[l])
                build.programme.row(
                    "least", *label, left=left, sense=">=", right=float(min(values)), requirement=wanted
                )
                build.programme.row("most", *label, left=left, sense="<=", right=float(max(values)), requirement=wanted)
