"""`front`: what a replica gives at every load it can carry: batch against latency against cost, none beaten by another.

The programme looks no further than the limits of the file; a front looks past those on latency, and marks what keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.candidates.evaluate import Block, Tally, blocks
from tokenmill.candidates.gather import plain
from tokenmill.candidates.program import Program
from tokenmill.candidates.program import prepare as program_of
from tokenmill.candidates.prune import pareto
from tokenmill.candidates.search import Ask, Context, allowed, route_offered, settings_of, yields_of
from tokenmill.errors import CatalogError, Mistake, ProblemError
from tokenmill.explore import HOUR, layout_words, rents

if TYPE_CHECKING:
    from tokenmill.catalog import Catalog
    from tokenmill.problem import Problem, Workload

MILLION = 1e6
YIELD = "cost_per_token"
FIGURES = {"tpot": "tpot.mean", "ttft": "ttft.mean", "ttft_p95": "ttft.p95"}
"""Field of a point, and the figure of a role that it is."""


@dataclass(frozen=True)
class LoadPoint:
    """One layout on one system at one load.

    `load`: mean running sequences of a replica (its operating axis). `tpot`, `ttft`, `ttft_p95` [s]: mean over the request
    classes. `rate` [1/s] of a replica. `tokens_per_second_per_user`: 1/TPOT; `..._per_chip`: answer tokens [1/s].
    `cost_per_million` [USD] of answer tokens: rent of the chips at this load, None where nothing is paid by the hour.
    `within`: whether the limits on latency of the file hold.
    """

    system: str
    market: str
    chips: float
    layout: str
    load: float
    tpot: float
    ttft: float
    ttft_p95: float
    rate: float
    tokens_per_second_per_user: float
    tokens_per_second_per_chip: float
    cost_per_million: float | None
    within: bool


def front(
    problem: Problem, *, workload: str | None = None, system: str | None = None, catalog: Catalog | None = None
) -> list[LoadPoint]:
    """Return the points of a workload on each system (or on `system`) that no other of that system beats in TPOT, TTFT and tokens a chip.

    The fastest for its users comes first. Pools that do all of a request's work are looked at, at every load of the grid.

    Raises
    ------
    ProblemError
        For a workload that is none, or whose pools do not answer token by token; for a system that is not on offer.
    """
    from tokenmill.api import ask_of, offered

    found = offered(problem, catalog)
    ask = ask_of(problem, _named(problem, workload), found.catalog, found.offers)
    names = {one.id for one in ask.systems}
    if system is not None:
        system = found.catalog.system(system).id
        if system not in names:
            raise ProblemError([Mistake("--system", repr(system), ", ".join(sorted(names)))])
    paid = rents(found.offers)
    points: dict[str, list[LoadPoint]] = {}
    for point in _points(ask, paid, system):
        points.setdefault(point.system, []).append(point)
    return [point for name in sorted(points) for point in best(points[name])]


def best(points: Sequence[LoadPoint]) -> list[LoadPoint]:
    """Return the points that no other beats in TPOT, TTFT and tokens a chip, the fastest for a user first."""
    ordered = sorted(points, key=lambda point: (point.tpot, point.ttft, point.chips, point.layout))
    costs = [(point.tpot, point.ttft, -point.tokens_per_second_per_chip) for point in ordered]
    return [ordered[index] for index in pareto(np.array(costs))] if ordered else []


def _named(problem: Problem, name: str | None) -> Workload:
    known = [workload.name for workload in problem.workloads]
    if name not in known and (name is not None or len(known) > 1):
        raise ProblemError([Mistake("--workload", "nothing" if name is None else repr(name), ", ".join(known))])
    return next(workload for workload in problem.workloads if name in (None, workload.name))


def _points(ask: Ask, paid: Mapping[str, tuple[float, str]], system: str | None) -> Iterator[LoadPoint]:
    alone = [
        route.roles[0] for route in ask.stage.routes if len(route.roles) == 1 and route_offered(route, ask.workload)
    ]
    roles = [ask.roles[name] for name in alone if set(FIGURES.values()) <= set(ask.roles[name].figures)]
    if not roles or YIELD not in ask.stage.yields:
        cure = "".join(
            f", with {key} = {str(words[0]).lower()}"
            for route in ask.stage.routes
            if len(route.roles) == 1
            for key, words in route.when.items()
        )
        answers = f"a workload whose pools answer token by token, prompts and answers in one pool{cure}"
        raise ProblemError([Mistake(f"workload.{ask.workload.name}", f"no such pool ({ask.stage.name})", answers)])
    for role in roles:
        program = program_of(role)
        for one in allowed(ask, role):
            if system not in (None, one.id):
                continue
            try:
                settings = list(settings_of(ask, role, program, one))
            except CatalogError:
                continue  # as in the search: a system whose figures are not known lays out nothing
            for context, grids in settings:
                yield from _of_context(ask, program, context, grids, paid)


def _of_context(
    ask: Ask, program: Program, context: Context, grids: Mapping[str, Any], paid: Mapping[str, tuple[float, str]]
) -> Iterator[LoadPoint]:
    limits = _limits(program, context)
    role = program.role
    outputs = {name: role.ports[name] for name in ("ranks", "rate")}
    outputs |= {name: role.figures[figure] for name, figure in FIGURES.items()}
    outputs |= {f"limit {at}": left for at, (left, _, _) in enumerate(limits)}
    absent = context.absent | {name for _, name, _ in limits}
    tokens = next(value for name, value in yields_of(ask, {"": context}).items() if name.startswith(YIELD))
    shares = np.array([one.share for one in ask.workload.classes] or [1.0])
    for block in blocks(program, grids, context.setting, outputs, absent, Tally()):
        within = np.ones(block.keep.shape, bool)
        for at, (_, _, most) in enumerate(limits):
            within &= block.outputs[f"limit {at}"] <= most
        served = (block.keep & (block.outputs["rate"] > 0) | (shares == 0)).all(axis=2)
        for row, column in np.argwhere(served):
            yield _point(program, context, block, (row, column), shares, np.array(tokens), within, paid)


def _limits(program: Program, context: Context) -> list[tuple[Any, str, float]]:
    """Return what is limited, the name of the leaf that limits it and its value, of limits that the file states outright."""
    given = context.setting.scalars
    return [
        (rule.left, rule.right.name, given[rule.right.name])
        for rule in program.role.rules
        if rule.kind == "limit" and getattr(rule.right, "name", None) in given and hasattr(rule.left, "name")
    ]


def _point(
    program: Program, context: Context, block: Block, at: tuple[int, int], shares: Any, tokens: Any, within: Any,
    paid: Mapping[str, tuple[float, str]],
) -> LoadPoint:  # fmt: skip
    keys = {axis.symbol.name: axis for axis in program.role.axes if axis.symbol is not None}
    values = {
        name: plain(float(np.broadcast_to(value, block.keep.shape)[(*at, 0)])) for name, value in block.axes.items()
    }
    load = next((value for name, value in values.items() if name in keys and keys[name].operate), 0.0)
    words = {
        axis.key: context.binder.words[axis.name] for axis in program.role.axes if axis.name in context.binder.words
    }
    layout = {
        keys[name].key: value for name, value in values.items() if name in keys and not keys[name].operate
    } | words
    read = {name: value[at] for name, value in block.outputs.items()}
    used = shares > 0
    rate = float(1 / (shares[used] / read["rate"][used]).sum())
    times = {name: float((shares[used] * read[name][used]).sum() / shares[used].sum()) for name in FIGURES}
    system, chips = context.binder.system.id, float(read["ranks"][0]) / context.binder.chip.ranks
    answers = rate * float((shares * tokens).sum())
    price, market = paid.get(system, (None, ""))
    return LoadPoint(
        system, market, chips, layout_words(layout), float(load), **times, rate=rate,
        tokens_per_second_per_user=1 / times["tpot"], tokens_per_second_per_chip=answers / chips,
        cost_per_million=None if price is None else price * chips / HOUR / answers * MILLION,
        within=bool(within[at][used].all()),
    )  # fmt: skip
