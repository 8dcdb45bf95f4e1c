"""Users far from a site see its answers later: the way there and back is taken off the limits on what they see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokenmill.problem import Problem, Workload

if TYPE_CHECKING:
    from tokenmill.candidates.columns import Column
    from tokenmill.candidates.search import Ask, Searched


def ways(problem: Problem, workload: Workload) -> dict[float, tuple[str, ...]]:
    """Return, by the time there and back [s] to the workload's region, the sites from which it may be served."""
    found: dict[float, tuple[str, ...]] = {}
    for site in problem.hardware.sites:
        if workload.region is None or (site.regions and workload.region not in site.regions):
            continue
        away = float(site.regions.get(workload.region, 0.0))
        found[away] = (*found.get(away, ()), site.name)
    return dict(sorted(found.items()))


def limits_seen(workload: Workload, seen: Sequence[str]) -> dict[str, Any]:
    """Return the limits of a workload on what its users see, by key."""
    given = {key: value for key, value in workload.values.items() if key in seen and value is not None}
    return {key: value for key, value in given.items() if not isinstance(value, Mapping) or any(value.values())}


def nearer(workload: Workload, seen: Sequence[str], away: float) -> Workload | None:
    """Return the workload with limits less the way to its users; None where nothing is left of one."""
    changed = {key: _less(value, away) for key, value in limits_seen(workload, seen).items()}
    if any(value is None for value in changed.values()):
        return None
    return replace(workload, values={**workload.values, **changed})


def _less(value: Any, away: float) -> Any:
    """Return a limit, or a table of limits by percentile, less the way; None where one of them is used up."""
    if not isinstance(value, Mapping):
        return value - away if value > away else None
    left = {word: None if limit is None else limit - away for word, limit in value.items()}
    return None if any(limit is not None and limit <= 0.0 for limit in left.values()) else left


def search_near(ask: Ask, search: Callable[[Ask], Searched]) -> Searched:
    """Return the search of a workload; where its region is at a distance, one for each distance, for the sites there."""
    demand = ask.stage.demand
    seen = demand.seen if demand is not None else ()
    away = ways(ask.problem, ask.workload)
    if not any(away) or not limits_seen(ask.workload, seen):
        return search(ask)
    found = []
    for time, sites in away.items():
        workload = nearer(ask.workload, seen, time)
        if workload is not None:
            found.append(_at(search(replace(ask, workload=workload)), time, sites))
    return _together(found) if found else _too_far(search(ask), ask.workload, away)


def _too_far(searched: Searched, workload: Workload, away: Mapping[float, tuple[str, ...]]) -> Searched:
    """Return a search without columns: from no site do answers reach their users in time."""
    reasons = {
        site: f"the way to {workload.region} and back, {time * 1e3:g} ms, is longer than a limit on what users there see"
        for time, sites in away.items()
        for site in sites
    }
    none: dict[str, tuple[Column, ...]] = dict.fromkeys(searched.columns.columns, ())
    return replace(searched, columns=replace(searched.columns, columns=none, dropped=()), left_out=reasons)


def _at(searched: Searched, away: float, sites: tuple[str, ...]) -> Searched:
    """Return a search whose columns stand at some sites alone, and are named after the way to them."""
    mark = f"/{away * 1e3:g}ms"

    def moved(column: Column) -> Column:
        return replace(column, key=column.key + mark, sites=sites)

    columns = {role: tuple(moved(column) for column in own) for role, own in searched.columns.columns.items()}
    contexts = {key + mark: context for key, context in searched.contexts.items()}
    return replace(searched, columns=replace(searched.columns, columns=columns), contexts=contexts)


def _together(parts: Sequence[Searched]) -> Searched:
    """Return searches of one workload as one."""
    first = parts[0].columns
    roles = dict.fromkeys(role for part in parts for role in part.columns.columns)
    columns = {role: tuple(c for part in parts for c in part.columns.columns.get(role, ())) for role in roles}
    whole = replace(
        first, columns=columns,
        counts=next((part.columns.counts for part in parts if part.columns.counts), first.counts),
        couplings=max((part.columns.couplings for part in parts), key=len),
        dropped=tuple(drop for part in parts for drop in part.columns.dropped),
        evaluated=sum(part.columns.evaluated for part in parts), cut=sum(part.columns.cut for part in parts),
    )  # fmt: skip
    contexts = {key: context for part in parts for key, context in part.contexts.items()}
    return replace(parts[0], columns=whole, contexts=contexts)
