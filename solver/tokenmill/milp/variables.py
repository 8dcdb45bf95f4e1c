"""The decisions of the programme, by index.

| symbol | variable | unit | kind |
|---|---|---|---|
| n[k,i,h] | units of offer k committed (bought or reserved) at site i in period h | systems (chips where had by chip) | integer |
| u[k,i,h,l] | units of offer k rented, or of one's own switched on, in slice l | the same | integer |
| x[c,s,i,h,l] | replicas of column c on stock s at site i | replicas | integer |
| t[c,s,i,p,h,l] | replicas of these that are set to operating point p, where power is limited | replicas | continuous |
| q[w,b,r,c,s,i,p,h,l] | share of class b of workload w that route r sends there | 1 | continuous |
| s[j,c,s,i,h,l] | the j-th spare of these replicas is due | 1 | binary |
| d[w,b,h,l] | share of a class that is refused | 1 | continuous |
| z[v] | run's way v (column, site, what carries it) is taken | 1 | binary |
| start[w], finish[w] | of a run, from the horizon's start | s | continuous |
| on[w,h], early[w,h], late[w,h] | the run goes on in period h, has ended before it, starts after it | 1 | binary |
| hold[v,h] | way v is taken and goes on in period h | 1 | continuous |
| m[g,s,i,h,l] | domains filled after pattern g | domains | integer |
| f[w,j,a,b,h,l] | share of class traffic of coupling j from source group a to target group b | 1 | continuous |
| e[w,j,a,arc,h,l] | what node a sends over an arc | scaled B/s | continuous |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tokenmill.milp.blocks import Label
from tokenmill.milp.grids import Replicas, Shares
from tokenmill.milp.rows import Linear, Programme
from tokenmill.milp.sets import Sets, at_site

COMMITTED = ("buy", "reserve")
Moment = tuple[int, int]


@dataclass
class Variables:
    """Indices of all variables, by what they decide (see the module's table). `q`: by (workload, class, route, role
    position, use, point, period, slice). `less_usable`: spares less replicas, where an availability is asked.
    """

    replicas: Replicas
    shares: Shares
    new: dict[tuple[int, int, int], int] = field(default_factory=dict)
    rented: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    settings: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    refused: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    start: dict[str, int] = field(default_factory=dict)
    going: dict[tuple[str, int], int] = field(default_factory=dict)
    hold: dict[tuple[int, int], int] = field(default_factory=dict)
    less_usable: dict[tuple[int, int, int], Linear] = field(default_factory=dict)
    patterns: dict[tuple[int, int, int, int, tuple[tuple[float, int], ...]], int] = field(default_factory=dict)


def declare(programme: Programme, sets: Sets) -> Variables:
    """Record every decision that stands by itself (flows, patterns and peaks are declared with their rows)."""
    replicas = Replicas(sets.problem.horizon.periods, len(sets.slices), len(sets.uses))
    made = Variables(replicas, Shares(sets))
    _declare_systems(programme, sets, made)
    _declare_pools(programme, sets, made)
    _declare_runs(programme, sets, made)
    return made


def _declare_systems(programme: Programme, sets: Sets, made: Variables) -> None:
    for k, offer in enumerate(sets.offers):
        most = float("inf") if offer.at_most is None else float(offer.at_most)
        for i, site in enumerate(sets.sites):
            if not at_site(offer, site):
                continue
            for h in sets.periods:
                if h < offer.from_period or (offer.until is not None and h > offer.until):
                    continue
                if offer.kind in COMMITTED:
                    made.new[k, i, h] = programme.variable("new", offer.key, site.name, h, integer=True, upper=most)
                    continue
                for l, name in enumerate(sets.slices):
                    made.rented[k, i, h, l] = programme.variable(
                        "rented", offer.key, site.name, h, name, integer=True, upper=most
                    )


def _declare_pools(programme: Programme, sets: Sets, made: Variables) -> None:
    settled = sets.power_is_tight and any(len(sets.points[use.column]) > 1 for use in sets.uses)
    for h, l in sets.moments:
        if settled:
            _declare_settings(programme, sets, made, h, l)
        else:
            first = programme.variables(
                "replicas", h, l, count=len(sets.uses), label=partial(_of_use, sets, h, l), integer=True
            )
            made.replicas.at(h, l)[:] = np.arange(first, first + len(sets.uses))
        for w, workload in enumerate(sets.workloads):
            if workload.kind == "pool":
                _declare_shares(programme, sets, made, w, h, l)


def _of_use(sets: Sets, h: int, l: int, n: int) -> Label:
    """Return the label of a use at a moment."""
    use = sets.uses[n]
    column, stock = sets.columns[use.column], sets.stocks[use.stock]
    return (column.workload, column.role, column.key, stock.key, sets.sites[use.site].name, h, sets.slices[l])


def _declare_settings(programme: Programme, sets: Sets, made: Variables, h: int, l: int) -> None:
    """Record the replicas of a moment, each with its operating points."""
    for n, use in enumerate(sets.uses):
        label = _of_use(sets, h, l, n)
        made.replicas.at(h, l)[n] = programme.variable("replicas", *label, integer=True)
        useful = sets.points[use.column]
        if len(useful) > 1:
            for p in useful:
                made.settings[n, p, h, l] = programme.variable("setting", *label, p)


def _declare_shares(programme: Programme, sets: Sets, made: Variables, w: int, h: int, l: int) -> None:
    workload = sets.workloads[w]
    if sets.planned(w, h, l) <= 0.0:
        return
    for b, share in enumerate(workload.shares):
        if share <= 0.0:
            continue
        label = (workload.workload, b, h, sets.slices[l])
        least = 0.0 if sets.problem.limits.shed is not None else sets.elastic.get(workload.workload, 1.0)
        if least < 1.0:
            made.refused[w, b, h, l] = programme.variable("refused", *label, upper=1.0 - least)
        group = made.shares.number[w, b]
        paths = made.shares.paths[group]
        made.shares.first[group, h - 1, l] = programme.variables(
            "share", *label, count=len(paths), upper=1.0, label=partial(_of_path, sets, made, group)
        )


def _of_path(sets: Sets, made: Variables, group: int, place: int) -> Label:
    """Return the label of a share among those of its class at a moment."""
    r, position, n, p = list(made.shares.paths[group])[place]
    use = sets.uses[n]
    return (r, position, sets.columns[use.column].key, sets.stocks[use.stock].key, sets.sites[use.site].name, p)


def _declare_runs(programme: Programme, sets: Sets, made: Variables) -> None:
    for n, way in enumerate(sets.ways):
        column, site = sets.columns[way.column], sets.sites[way.site]
        stands = (f"{sets.stocks[s].key}/{chips}" for s, chips in way.places)
        rents = (f"{sets.offers[held.offer].key}/{held.units}" for held in way.held)
        label = (column.workload, column.key, site.name, *stands, *rents)
        made.taken[n] = programme.variable("taken", *label, integer=True, upper=1.0)
        if len(sets.periods) > 1:
            for h in sets.periods:
                made.hold[n, h] = programme.variable("hold", *label, h, upper=1.0)
    for workload in sets.workloads:
        if workload.kind != "run":
            continue
        name = workload.workload
        made.start[name] = programme.variable("start", name, lower=sets.workload(name).starts)
        if len(sets.periods) > 1:
            for h in sets.periods:
                made.going[name, h] = programme.variable("going", name, h, integer=True, upper=1.0)
