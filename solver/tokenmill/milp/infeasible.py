"""Why there is no plan: in the problem's own keys and units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from tokenmill.candidates.columns import Dropped, WorkloadColumns
from tokenmill.milp.constraints.demand import LAST_RESORT
from tokenmill.milp.constraints.flows import Join, joins
from tokenmill.milp.highs import Outcome, solve_arrays
from tokenmill.milp.quantities import Build
from tokenmill.milp.rows import Arrays, Linear, Requirement, total
from tokenmill.milp.sets import Sets
from tokenmill.milp.solution import Shortfall

if TYPE_CHECKING:
    from tokenmill.milp.clock import Clock
    from tokenmill.milp.solve import Formulation, Wish

ELASTIC_GAP = 1e-6
LEAST = 1e-7


def without_columns(sets: Sets) -> tuple[Shortfall, ...]:
    """Return why workloads have nothing to choose from: no layout passed its rules, or nothing offers its systems."""
    found: list[Shortfall] = []
    for w, workload in enumerate(sets.workloads):
        has = able(workload)
        if not has:
            found += _nearest(workload)
        elif not _offered(sets, w, workload):
            systems = ", ".join(sorted({c.system for columns in workload.columns.values() for c in columns}))
            found.append(Shortfall(
                "hardware.markets", f"an offer of {systems} for {workload.workload}", None, "system", True,
                "allow a market or site in which these systems can be had, or give a price under [[hardware.price]]",
            ))  # fmt: skip
    return tuple(found)


def able(workload: WorkloadColumns) -> bool:
    """Tell whether each request class has a route whose roles all have a column for it (a run: any column)."""
    if workload.kind == "run":
        return any(workload.columns.values())

    def serves(role: str, b: int) -> bool:
        return any(point.rate[b] > 0.0 for column in workload.columns.get(role, ()) for point in column.points)

    wanted = [b for b, share in enumerate(workload.shares) if share > 0.0]
    return all(any(all(serves(role, b) for role in route) for route in workload.routes) for b in wanted)


def _offered(sets: Sets, w: int, workload: WorkloadColumns) -> bool:
    if workload.kind == "run":
        return bool(sets.ways_of(workload.workload))
    return any(all(sets.uses_of(w, role) for role in route) for route in workload.routes)


def _nearest(workload: WorkloadColumns) -> list[Shortfall]:
    """Return, for each rule that removed candidates, how near the nearest came: memory and limits before shapes, what removed most first."""
    if not workload.dropped:
        key = f"workload.{workload.workload}"
        return [Shortfall(key, "layouts", None, "layout", None, "free a held choice, or allow other systems")]
    best: dict[tuple[str, str], Dropped] = {}
    for drop in workload.dropped:
        kept = best.get((drop.role, drop.rule))
        if kept is None or (_size(drop), drop.system) < (_size(kept), kept.system):
            best[drop.role, drop.rule] = drop
    ordered = sorted(
        best.values(),
        key=lambda d: (d.shortfall is None, d.kind not in ("capacity", "limit"), -d.count, d.rule, d.role),
    )
    return [_of_rule(workload, drop) for drop in ordered]


def _size(drop: Dropped) -> float:
    return inf if drop.shortfall is None else drop.shortfall


def _of_rule(workload: WorkloadColumns, drop: Dropped) -> Shortfall:
    cure = drop.cure or "free a held choice, or allow other systems"
    key = f"workload.{workload.workload}.{drop.cure}" if drop.cure else f"workload.{workload.workload}"
    told = {name: value for name, value in sorted(drop.nearest.items()) if value not in (0, 1, "none", False)}
    near = ", ".join(f"{name} = {value}" for name, value in (told or drop.nearest).items())
    limit = f"{drop.rule} ({drop.role} on {drop.system}: {drop.count} layouts; nearest: {near})"
    alone = len({(d.role, d.rule) for d in workload.dropped}) == 1
    return Shortfall(key, limit, drop.shortfall, drop.unit, alone or None, f"change {cure}" if drop.cure else cure)


def mismatches(sets: Sets) -> tuple[Shortfall, ...]:
    """Return why pools of a workload cannot work together: what must match does not, or no link joins them.

    Of a workload that has a route whose couplings all have a pair to talk, nothing.
    """
    found: dict[int, list[Shortfall]] = {}
    whole: set[int] = set()
    made = joins(sets)
    for w, workload in enumerate(sets.workloads):
        for r, _ in enumerate(workload.routes if workload.couplings else ()):
            apart = [join for join in made if (join.workload, join.route) == (w, r) and not join.pairs]
            found.setdefault(w, []).extend(_apart(workload.workload, join) for join in apart)
            if not apart:
                whole.add(w)
    return tuple(short for w, shorts in found.items() if w not in whole for short in dict.fromkeys(shorts))


def _apart(workload: str, join: Join) -> Shortfall:
    """Return why no source of a coupling may talk to any target."""
    coupling = join.coupling
    ends = {group.end.match for group in join.sources}, {group.end.match for group in join.targets}
    for at, key in enumerate(coupling.match):
        sent, taken = ({str(match[at]) for match in side if at < len(match)} for side in ends)
        if not sent & taken:
            limit = (
                f"{coupling.kind} from {coupling.source} ({key} {', '.join(sorted(sent))}) is not what "
                f"{coupling.target} takes ({', '.join(sorted(taken))})"
            )
            cure = f"give {coupling.source} and {coupling.target} the same {key}, or leave it free"
            return Shortfall(f"workload.{workload}.{key}", limit, None, "", True, cure)
    if ends[0] & ends[1] and coupling.budget is not None:
        least = min(g.end.budget for g in join.sources) + min(g.end.budget for g in join.targets)
        if least > coupling.budget:
            limit = f"what {coupling.source} and {coupling.target} take of one latency limit together"
            return Shortfall(
                f"workload.{workload}", limit, least - coupling.budget, "s", True, "loosen the limit that they share"
            )
    limit = f"a link for {coupling.kind} from {coupling.source} to {coupling.target}"
    return Shortfall(
        "hardware.wan", limit, None, "", True, "join the places where they may stand, or let them stand at one"
    )


def why_not(
    sets: Sets, formulate: Callable[[], Formulation], wish: Wish, clock: Clock
) -> tuple[tuple[Shortfall, ...], tuple[str, ...]]:
    """Return what is missing, and a note on limits that cannot hold where easing no one of them would do."""
    if missing := mismatches(sets):
        return missing, ()
    fresh = formulate()
    rows = fresh.build.programme.rows.required()
    limits = {row.requirement.key for _, row in rows if row.requirement and row.requirement.weight < LAST_RESORT}
    missing = shortfalls(fresh, wish, clock)
    own = [short for short in missing if short.key in limits]
    if len(own) < 2 or any(short.alone_would_do for short in own):
        return missing, ()
    keys = conflict(formulate(), wish, clock)
    together = "together " if len(keys) > 1 else ""
    said = f"{', '.join(keys)} cannot hold {together}with what is to be done; the other limits named are in the way too"
    return missing, (said,) if keys else ()


def conflict(formulation: Formulation, wish: Wish, clock: Clock) -> tuple[str, ...]:
    """Return keys of limits that cannot hold together, none of which could be left out of them (an irreducible set).

    By deletion (Chinneck and Dravnieks 1991): a limit without which the others still have no plan is left out for good.
    What is to be done (demand, runs) holds throughout.
    """
    build = formulation.build
    slack = _make_elastic(build)
    arrays = build.programme.arrays(Linear())
    kept = sorted(key for key, (_, _, asked) in slack.items() if asked.weight < LAST_RESORT)
    for key in list(kept):
        upper = arrays.upper.copy()
        for other, (index, _, asked) in slack.items():
            holds = asked.weight >= LAST_RESORT or (other in kept and other != key)
            upper[index] = 0.0 if holds else inf
        outcome = _solve(replace(arrays, upper=upper), wish, clock)
        if outcome.status == "infeasible":
            kept.remove(key)
        elif outcome.values is None:
            return ()  # no time to tell
    return tuple(kept)


def shortfalls(formulation: Formulation, wish: Wish, clock: Clock) -> tuple[Shortfall, ...]:
    """Return what is missing: every limit eased at once, then every one alone (whether or not it was short together)."""
    build = formulation.build
    slack = _make_elastic(build)
    if not slack:
        return (_nothing_helps(),)
    weight = {key: Linear({index: asked.weight / size}) for key, (index, size, asked) in slack.items()}
    together = _minimise(build, total(weight.values()), wish, clock)
    found = []
    for key, (index, _, asked) in sorted(slack.items()):
        alone = _alone(build, slack, key, wish, clock)
        if alone.values is not None and alone.values[index] > LEAST:
            found.append(_short(asked, float(alone.values[index]), True))
        elif together.values is not None and together.values[index] > LEAST:
            known = None if alone.status == "unknown" else False
            found.append(_short(asked, float(together.values[index]), known))
    return tuple(found) or (_nothing_helps(),)


def _nothing_helps() -> Shortfall:
    return Shortfall(
        "problem", "all limits together", None, "", False, "the held choices exclude one another: free one of them"
    )


def _short(asked: Requirement, amount: float, alone: bool | None) -> Shortfall:
    return Shortfall(asked.key, asked.limit, amount * asked.scale, asked.unit, alone, asked.cure)


def _make_elastic(build: Build) -> dict[str, tuple[int, float, Requirement]]:
    """Add one shortfall a limit to all of its rows; returns its variable, its size (largest right-hand side) and the limit."""
    programme, found = build.programme, dict[str, tuple[int, float, Requirement]]()
    for number, row in list(programme.rows.required()):
        asked = row.requirement
        if asked is None:
            continue
        if asked.key not in found:
            index = programme.variable("shortfall", asked.key)
            found[asked.key] = (index, 1.0, asked)
        index, size, _ = found[asked.key]
        found[asked.key] = (index, max(size, abs(row.right) / asked.relax), asked)
        sign = -1.0 if row.sense == "<=" else 1.0
        programme.rows[number] = replace(row, terms={**row.terms, index: sign * asked.relax})
    return found


def _alone(
    build: Build, slack: dict[str, tuple[int, float, Requirement]], key: str, wish: Wish, clock: Clock
) -> Outcome:
    """Return the least shortfall of one limit while all others hold."""
    arrays = build.programme.arrays(Linear({slack[key][0]: 1.0 / slack[key][1]}))
    upper = arrays.upper.copy()
    for other, (index, _, _) in slack.items():
        upper[index] = inf if other == key else 0.0
    return _solve(replace(arrays, upper=upper), wish, clock)


def _minimise(build: Build, expression: Linear, wish: Wish, clock: Clock) -> Outcome:
    return _solve(build.programme.arrays(expression), wish, clock)


def _solve(arrays: Arrays, wish: Wish, clock: Clock) -> Outcome:
    return solve_arrays(arrays, time_limit=clock.left(), gap=ELASTIC_GAP, threads=wish.threads)
