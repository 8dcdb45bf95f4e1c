r"""Flows between coupled pools, over directed arcs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenmill.candidates.columns import CouplingEnd, CouplingUse
from tokenmill.milp.quantities import Build, chips_in_hand_of
from tokenmill.milp.rows import Linear, Requirement
from tokenmill.milp.sets import ArcLike, Sets


@dataclass(frozen=True)
class Group:
    """Uses that are the same to a coupling: their node, and what must match, be within budget and be sent."""

    node: str
    end: CouplingEnd
    uses: tuple[int, ...]


@dataclass(frozen=True)
class Join:
    """A coupling between two neighbouring roles of a route, with both sides' groups and the pairs that may talk.

    `at_hubs`: bytes a unit by class of all that may match, by what must match; then pools stand at the hubs of their
    leaves, and the leaves' arcs carry what the pools there send and take. None where these differ.
    """

    workload: int
    route: int
    position: int
    coupling: CouplingUse
    sources: tuple[Group, ...]
    targets: tuple[Group, ...]
    pairs: tuple[tuple[int, int], ...]
    at_hubs: Mapping[tuple[Any, ...], tuple[float, ...]] | None = None


@dataclass
class Sent:
    """What the programme decides on flows: f by (join, source, target, class, moment), e by (join, nodes, arc, moment).

    `unit`: B/s that e counts in: the most that any pool may send, so that rows are near one.
    """

    joins: list[Join] = field(default_factory=list)
    unit: float = 1.0
    shares: dict[tuple[int, int, int, int, int, int], int] = field(default_factory=dict)
    over: dict[tuple[int, str, str, str, int, int], int] = field(default_factory=dict)


def joins(sets: Sets) -> list[Join]:
    """Return every coupling of pools, route by route."""
    found = []
    for w, workload in enumerate(sets.workloads):
        for r, route in enumerate(workload.routes):
            for position, (source, target) in enumerate(itertools.pairwise(route)):
                for coupling in workload.couplings:
                    if (coupling.source, coupling.target) != (source, target):
                        continue
                    sizes = _sizes(sets, w, source, coupling)
                    hubs = sizes is not None
                    ends = _groups(sets, w, source, coupling, hubs), _groups(sets, w, target, coupling, hubs)
                    pairs = tuple(
                        (a, b)
                        for a, one in enumerate(ends[0])
                        for b, other in enumerate(ends[1])
                        if compatible(one.end, other.end, coupling) and joined(sets, one.node, other.node)
                    )
                    found.append(Join(w, r, position, coupling, *ends, pairs, sizes))
    return found


def compatible(source: CouplingEnd, target: CouplingEnd, coupling: CouplingUse) -> bool:
    """Tell whether two ends may talk: equal in what must match, together within the budget."""
    within = coupling.budget is None or source.budget + target.budget <= coupling.budget * (1 + 1e-9)
    return source.match == target.match and within


def end_of(sets: Sets, n: int, coupling: CouplingUse) -> CouplingEnd:
    """Return a use's side of a coupling."""
    return sets.columns[sets.uses[n].column].ends.get(coupling.name, CouplingEnd(()))


def _sizes(sets: Sets, w: int, role: str, coupling: CouplingUse) -> Mapping[tuple[Any, ...], tuple[float, ...]] | None:
    """Return bytes a unit by what must match, where all sources that match send the same; else None."""
    found: dict[tuple[Any, ...], tuple[float, ...]] = {}
    for n in sets.uses_of(w, role):
        end = end_of(sets, n, coupling)
        if found.setdefault(end.match, end.per_unit) != end.per_unit:
            return None
    return found


def _groups(sets: Sets, w: int, role: str, coupling: CouplingUse, hubs: bool) -> tuple[Group, ...]:
    """Return the uses of a role by node (that of the hub where pools are taken there) and end."""
    found: dict[tuple[str, str], list[int]] = {}
    ends: dict[tuple[str, str], CouplingEnd] = {}
    for n in sets.uses_of(w, role):
        end, node = end_of(sets, n, coupling), use_node(sets, n)
        node = sets.leaves[node].hub if hubs and node in sets.leaves else node
        key = (node, repr((end.match, end.budget, end.per_unit)))
        found.setdefault(key, []).append(n)
        ends[key] = end
    return tuple(Group(key[0], ends[key], tuple(found[key])) for key in sorted(found))


def use_node(sets: Sets, n: int) -> str:
    """Return where a pool stands among the arcs: its own node, its site's fabric, or the site."""
    use = sets.uses[n]
    name, system = sets.sites[use.site].name, sets.columns[use.column].system
    return next((node for node in (f"{name}/{system}", f"{name}/fabric") if node in sets.nodes), name)


def useful_arcs(sets: Sets, source: str, target: str) -> list[ArcLike]:
    """Return arcs on some way from one node to another that passes no pool's node between; none where they are one place."""
    if source == target and source not in sets.pool_nodes:
        return []
    ahead = _reach([(a.source, a.target) for a in sets.arcs], source, sets.pool_nodes)
    back = _reach([(a.target, a.source) for a in sets.arcs], target, sets.pool_nodes)
    # from a node to itself the way leads out and back: it is start and end, never between
    return [a for a in sets.arcs if (a.source == source or a.source in ahead) and (a.target == target or a.target in back)
            and not (a.source == target and a.source != source) and not (a.target == source and a.target != target)]  # fmt: skip


def _reach(edges: list[tuple[str, str]], start: str, closed: frozenset[str]) -> set[str]:
    """Return nodes that may be passed on the way from `start`."""
    seen, open_ = set[str](), [start]
    while open_:
        here = open_.pop()
        for tail, head in edges:
            if tail == here and head not in seen and head not in closed:
                seen.add(head)
                open_.append(head)
    return seen


def joined(sets: Sets, source: str, target: str) -> bool:
    """Tell whether bytes can go: within one site without arcs freely, else over arcs."""
    same = source.split("/")[0] == target.split("/")[0]
    if same and (source not in sets.nodes or target not in sets.nodes):
        return True
    if source == target and source not in sets.pool_nodes:
        return True
    arcs = useful_arcs(sets, source, target)
    return any(a.source == source for a in arcs) and any(a.target == target for a in arcs)


def flow_rows(build: Build) -> Sent:
    r"""What one pool sends, another of a matching kind takes, over arcs with room for it.

    .. math:: \sum_{b} f_{a,b} = \sum_{n \in a} q_{n}, \qquad \sum_{a} f_{a,b} = \sum_{n \in b} q_{n}, \qquad
       \sum_{(S,T)} e_{S,T,\alpha} \le C_\alpha + c_\alpha Y

    | symbol | meaning | unit |
    |---|---|---|
    | f | share of a class's demand from source group a to target group b (variable) | 1 |
    | e | bytes of pair (S, T) of nodes over an arc (variable) | B/s (scaled) |
    | C, c, Y | room of the arc, more of it a chip in hand, chips in hand | B/s, B/s, chips |

    Conserved at every node: all that S sends T leaves S and passes every node between. Rows ``sent``, ``taken`` by
    (join, group, class, moment), ``leaves``, ``passes`` by (join, nodes, moment), ``arc`` by (arc, moment).
    Dual of an arc: saved by a byte a second more.
    """
    sets, sent = build.sets, Sent(joins(build.sets))
    sent.unit = max((_most_sent(sets, join) for join in sent.joins), default=0.0) or 1.0
    for j, join in enumerate(sent.joins):
        rates = sets.demand[sets.workloads[join.workload].workload]
        for h, l in sets.moments:
            if rates[h - 1, l] > 0.0:
                _share_rows(build, sent, j, h, l)
                _node_rows(build, sent, j, h, l)
    _arc_rows(build, sent)
    return sent


def _most_sent(sets: Sets, join: Join) -> float:
    """Return the largest B/s of a join: all of the largest demand, at the most bytes a unit."""
    demand = float(sets.demand[sets.workloads[join.workload].workload].max(initial=0.0))
    return demand * max((size for group in join.sources for size in group.end.per_unit), default=0.0)


def _share_rows(build: Build, sent: Sent, j: int, h: int, l: int) -> None:
    join, programme = sent.joins[j], build.programme
    for b, share in enumerate(build.sets.workloads[join.workload].shares):
        if share <= 0.0:
            continue
        for s, t in join.pairs:
            sent.shares[j, s, t, b, h, l] = programme.variable("flow", j, s, t, b, h, l, upper=1.0)
        for side, groups in enumerate((join.sources, join.targets)):
            for g, group in enumerate(groups):
                left = Linear({sent.shares[j, s, t, b, h, l]: 1.0 for s, t in join.pairs if (s, t)[side] == g})
                key = (join.workload, b, join.route, join.position + side)
                left.many(build.variables.shares.of_uses(key, group.uses, h, l), -1.0)
                programme.row(("sent", "taken")[side], j, g, b, h, l, left=left, sense="=")


def bytes_between(build: Build, sent: Sent, j: int, h: int, l: int) -> dict[tuple[str, str], Linear]:
    """Return bytes/s from node to node of a join at a moment, where there are any."""
    join, found = sent.joins[j], dict[tuple[str, str], Linear]()
    workload = build.sets.workloads[join.workload]
    demand = build.sets.planned(join.workload, h, l)
    for s, t in join.pairs:
        source = join.sources[s]
        for b, share in enumerate(workload.shares):
            index = sent.shares.get((j, s, t, b, h, l))
            size = source.end.per_unit[b] if b < len(source.end.per_unit) else 0.0
            if index is not None and size > 0.0:
                pair = (source.node, join.targets[t].node)
                found.setdefault(pair, Linear()).add(index, demand * share * size)
    return found


def _node_rows(build: Build, sent: Sent, j: int, h: int, l: int) -> None:
    programme = build.programme
    for (source, target), amount in sorted(bytes_between(build, sent, j, h, l).items()):
        arcs = useful_arcs(build.sets, source, target)
        if not arcs:
            continue
        for arc in arcs:
            sent.over[j, source, target, arc.name, h, l] = programme.variable("over", j, source, target, arc.name, h, l)
        over = {arc.name: sent.over[j, source, target, arc.name, h, l] for arc in arcs}
        left = _sum(over[a.name] for a in arcs if a.source == source).plus(amount, -1.0 / sent.unit)
        programme.row("leaves", j, source, target, h, l, left=left, sense="=")
        between = {a.source for a in arcs} | {a.target for a in arcs}
        for node in sorted(between - {source, target}):
            left = _sum(over[a.name] for a in arcs if a.source == node)
            left.plus(_sum(over[a.name] for a in arcs if a.target == node), -1.0)
            programme.row("passes", j, source, target, node, h, l, left=left, sense="=")


def _sum(indices: Iterable[int]) -> Linear:
    return Linear(dict.fromkeys(indices, 1.0))


def at_leaves(build: Build, sent: Sent, h: int, l: int) -> dict[str, Linear]:
    """Return B/s over the arcs of leaves at a moment, by arc: what the pools there send and take."""
    sets, found = build.sets, dict[str, Linear]()
    for join in sent.joins if sets.leaves else ():
        for (b, n, side), terms in carried(build, join, h, l).items():
            leaf = sets.leaves.get(use_node(sets, n))
            size = (join.at_hubs or {}).get(end_of(sets, n, join.coupling).match, ())
            if leaf is not None and b < len(size) and size[b] > 0.0:
                arc = (leaf.out, leaf.into)[side]
                demand = sets.planned(join.workload, h, l) * sets.workloads[join.workload].shares[b]
                found.setdefault(arc.name, Linear()).plus(terms, demand * size[b])
    return found


def carried(build: Build, join: Join, h: int, l: int) -> dict[tuple[int, int, int], Linear]:
    """Return the share of a class that each use sends (side 0) or takes (side 1): by (class, use, side)."""
    found: dict[tuple[int, int, int], Linear] = {}
    for side, groups in enumerate((join.sources, join.targets)):
        for b in range(len(build.sets.workloads[join.workload].shares)):
            key = (join.workload, b, join.route, join.position + side)
            for n in (n for group in groups for n in group.uses):
                indices = build.variables.shares.of_uses(key, (n,), h, l)
                if indices:
                    found[b, n, side] = Linear().many(indices)
    return found


def _arc_rows(build: Build, sent: Sent) -> None:
    over: dict[tuple[str, int, int], list[int]] = {}
    for key, index in sent.over.items():
        over.setdefault((key[3], key[4], key[5]), []).append(index)
    for h, l in build.sets.moments:
        leaves = at_leaves(build, sent, h, l)
        for arc in build.sets.arcs:
            left = _sum(over.get((arc.name, h, l), ())).plus(leaves.get(arc.name, Linear()), 1.0 / sent.unit)
            if not left.terms:
                continue
            if arc.per_chip > 0.0:
                left.plus(chips_in_hand_of(build, arc.site, arc.system, h, l), -arc.per_chip / sent.unit)
            asked = Requirement(
                f"network.{arc.name}", f"bandwidth of {arc.name}", "B/s", "a faster link, or pools nearer to each other",
                relax=1.0 / sent.unit, step=0.1 * arc.capacity or None,
            )  # fmt: skip
            right = arc.capacity / sent.unit
            build.programme.row("arc", arc.name, h, l, left=left, sense="<=", right=right, requirement=asked)
