r"""Runs: one way each, in time, after what they need."""

from __future__ import annotations

from tokenmill.milp.constraints.demand import LAST_RESORT
from tokenmill.milp.quantities import Build
from tokenmill.milp.rows import Linear, Requirement
from tokenmill.milp.sets import before
from tokenmill.milp.ways import run_duration
from tokenmill.offers import lead_time_of


def finish(build: Build, workload: str) -> Linear:
    """Return when a run ends [s from the start of the horizon]."""
    result = Linear({build.variables.start[workload]: 1.0})
    for n in build.sets.ways_of(workload):
        result.add(build.variables.taken[n], run_duration(build.sets, build.sets.ways[n]))
    return result


def run_rows(build: Build) -> None:
    r"""Every run is taken once, ends by its deadline, and starts after all that it needs.

    .. math:: \sum_v z_v = 1, \qquad S_w + \sum_v T_v z_v \le E_w, \qquad S_w \ge S_{w'} + \sum_v T_v z_{v(w')}
       \quad (w' \text{ needed by } w), \qquad S_w \ge A_v z_v

    | symbol | meaning | unit |
    |---|---|---|
    | z, S | way taken, start (variables) | 1, s |
    | T, E, A | duration of a way, deadline, lead time of what it stands on | s |

    Rows ``once``, ``deadline``, ``needs``, ``lead``. Dual of a deadline: what a second more saves.
    """
    sets, programme = build.sets, build.programme
    done = before(sets.problem)
    for name in sorted(build.variables.start):
        workload = sets.workload(name)
        chosen = Linear({build.variables.taken[n]: 1.0 for n in sets.ways_of(name)})
        wanted = Requirement(f"workload.{name}", "run", "run", "allow more hardware, other systems or other markets",
                             weight=LAST_RESORT)  # fmt: skip
        programme.row("once", name, left=chosen, sense="=", right=1.0, requirement=wanted)
        if workload.deadline is not None:
            due = Requirement(
                f"workload.{name}.deadline", "deadline", "s", "allow more time", step=0.1 * workload.deadline
            )
            programme.row(
                "deadline", name, left=finish(build, name), sense="<=", right=workload.deadline, requirement=due
            )
        for other in sorted(done[name]):
            if other in build.variables.start:
                left = finish(build, other).add(build.variables.start[name], -1.0)
                first = Requirement(f"workload.{name}.needs", f"{name} after {other}", "s",
                                    "allow more time, or let them go on side by side")  # fmt: skip
                programme.row("needs", name, other, left=left, sense="<=", requirement=first)
        for n in sets.ways_of(name):
            way = sets.ways[n]
            systems = [sets.stocks[s].system for s, _ in way.places] + [sets.offers[a.offer].system for a in way.held]
            lead, system = max(((lead_time_of(sets.problem, name), name) for name in systems), default=(0.0, ""))
            if lead > 0.0:
                late = Requirement(f"hardware.supply.{system}.lead_time", f"lead time of {system}", "s",
                                   "order earlier, or allow systems that come sooner")  # fmt: skip
                left = Linear({build.variables.taken[n]: lead}).add(build.variables.start[name], -1.0)
                programme.row("lead", name, n, left=left, sense="<=", requirement=late)
    if len(sets.periods) > 1:
        _period_rows(build)


def _period_rows(build: Build) -> None:
    r"""A run holds every period that it touches, whole.

    .. math:: o_{w,h} + a_{w,h} + b_{w,h} = 1, \quad S_w \ge t_{h+1} a_{w,h}, \quad
       S_w + T_w \le t_h + M (1 - b_{w,h}), \quad k_{v,h} \ge z_v + o_{w,h} - 1, \quad S_w + T_w \le t_{H+1}

    | symbol | meaning | unit |
    |---|---|---|
    | o, a, b | goes on in, starts after, has ended before period h (variables) | 1 |
    | k | way v holds its systems in period h (variable) | 1 |
    | t, M | start of a period, the horizon | s |

    Rows ``touch``, ``after``, ``ended``, ``hold``, ``within``. Dual: the worth of a free period.
    """
    sets, programme = build.sets, build.programme
    whole = sets.problem.horizon.duration
    length = whole / sets.problem.horizon.periods
    for name, start in sorted(build.variables.start.items()):
        programme.row("within", name, left=finish(build, name), sense="<=", right=whole, requirement=Requirement(
            "horizon.duration", "end of the horizon", "s", "plan a longer horizon"))  # fmt: skip
        for h in sets.periods:
            later = programme.variable("later", name, h, integer=True, upper=1.0)
            ended = programme.variable("ended", name, h, integer=True, upper=1.0)
            going = build.variables.going[name, h]
            programme.row("touch", name, h, left=Linear({going: 1.0, later: 1.0, ended: 1.0}), sense="=", right=1.0)
            programme.row("after", name, h, left=Linear({later: h * length, start: -1.0}), sense="<=")
            left = finish(build, name).add(ended, whole)
            programme.row("ended", name, h, left=left, sense="<=", right=(h - 1) * length + whole)
            for n in sets.ways_of(name):
                left = Linear({build.variables.taken[n]: 1.0, going: 1.0, build.variables.hold[n, h]: -1.0})
                programme.row("hold", n, h, left=left, sense="<=", right=1.0)
