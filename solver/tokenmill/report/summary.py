"""A plan in at most ten lines: the decision, what it costs, what holds it back, what would come next.

Each figure stands with the key under which `explain` unfolds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tokenmill.milp.alternatives import had
from tokenmill.milp.solution import Had, Shortfall
from tokenmill.plan import Alternative, Bound, NextUnit, Plan, Pool, WorkloadPlan
from tokenmill.report.text_pools import LATENCIES, layout_text, may_not_fit
from tokenmill.report.text_words import cut, money, percent, quantity

MOST, SHOWN = 10, 2
NONE = 1e-9
"""Gap under which nothing is left to prove: the solver's own tolerance."""
FAR = 0.1
"""Gap over which a plan that was cut short is said to be so before anything else."""
PROVEN = "Proven: nothing better exists."
ENDINGS = {
    "optimal": "Proven to within {gap} of the best there is.",
    "feasible": "A plan, not proven best: it may be up to {gap} from the best. Stopped by the {limit}.",
    "infeasible": "No plan can meet what is asked.",
    "unbounded": "The objective can fall without end: a price or a limit is missing.",
    "unknown": "Stopped by the {limit} before a plan was found.",
    "error": "The solve failed.",
}
VERBS = {"buy": "buy", "owned": "keep", "on-demand": "rent on demand", "spot": "rent on spot"}


def summary(plan: Plan) -> list[str]:
    """Return a plan in at most ten lines, most telling first."""
    lines = heading(plan)
    if plan.objective.value is None:
        said: dict[tuple[str, str], str] = {}  # what several roles miss stands there once
        for item in plan.infeasible:
            said.setdefault((item.key, _missed(item)), _short(item))
        return (lines + list(said.values()))[:MOST]
    body = [_decision(plan), *_workloads(plan), *_cost(plan), _held_back(plan), *_apart(plan), *_next(plan)]
    return (lines + [line for line in body if line])[:MOST]


def title(plan: Plan) -> str:
    """Return what a plan is called: the title of its problem."""
    return str(plan.problem.get("title") or "Plan")


def heading(plan: Plan) -> list[str]:
    """Return the title, how the solve ended, and the objective with its value; first of all that the search was cut short."""
    lines = [*_caution(plan), title(plan), _ending(plan)]
    if plan.objective.value is not None:
        name, value = plan.objective.name.replace("_", " "), objective_text(plan, plan.objective.value)
        lines.append(f"{name}: {value}{_expected(plan)}  [objective]")
    return lines


def _caution(plan: Plan) -> Iterator[str]:
    """Yield that a plan may be far from the best, where it was cut short that far from proof."""
    gap, limit = plan.termination.gap, plan.termination.limit or "limit"
    if plan.status == "feasible" and (gap is None or gap > FAR):
        far = "by how much is unknown" if gap is None else f"by up to {percent(gap)} of this one"
        yield f"CUT SHORT by the {limit}: a better plan may exist, {far}. Allow more time before acting on this one."


def _scenarios(plan: Plan) -> list[str]:
    """Return the names of scenarios that the objective is made of, the one that is shown first; a mean of the worst last."""
    node = plan.trace.get("objective", {})
    return [key.partition(".")[2] for key in node.get("inputs", ()) if isinstance(key, str)]


def _expected(plan: Plan) -> str:
    names = _scenarios(plan)
    return f" over the scenarios {', '.join(names)}" if names else ""


def _ending(plan: Plan) -> str:
    """Return how the solve ended and how much of it is proven."""
    ended = plan.termination
    left = 0.0 if ended.gap is not None and ended.gap < NONE else ended.gap
    gap = "an unknown gap" if left is None else percent(left)
    proven = plan.status == "optimal" and not left
    how = PROVEN if proven else ENDINGS[plan.status].format(gap=gap, limit=ended.limit or "limit")
    lacks = "unknown" if plan.status == "feasible" else "none"
    return f"status {plan.status}, gap {lacks if left is None else percent(left)}. {how}"


def objective_text(plan: Plan, value: float) -> str:
    """Return a value [unit of the plan's objective] in words: money by the million tokens, energy in watt-hours."""
    unit, _, per = plan.objective.unit.partition("/")
    if per == "token":
        return f"{money(value * 1e6)} per million tokens"
    if plan.objective.name == f"{unit}s":
        return f"{value:g}"
    return money(value) + (f" per {per}" if per else "") if unit == "USD" else quantity(value, unit)


def step_text(following: NextUnit) -> str:
    """Return a step in words: ``10.2 kW more``, or less where it is one down."""
    unit = {"units/s": "a second", "chip": "chips"}.get(following.unit, following.unit)
    return f"{quantity(abs(following.step), unit)} {'more' if following.step >= 0 else 'less'}"


def saving_text(plan: Plan, following: NextUnit) -> str:
    """Return a step and what it would save, in words."""
    return f"{step_text(following)} would save {objective_text(plan, following.saves)}"


def holding(plan: Plan) -> list[Bound]:
    """Return what holds a plan back: limits whose next step saves something, what saves most first, then those not valued."""

    def saves(bound: Bound) -> float:
        return bound.value_of_next.saves if isinstance(bound.value_of_next, NextUnit) else 0.0

    found = [bound for bound in plan.binding if not isinstance(bound.value_of_next, NextUnit) or saves(bound) > 0.0]
    return sorted(found, key=saves, reverse=True)


def _missed(item: Shortfall) -> str:
    return item.limit.partition(" (")[0]


def _short(item: Shortfall) -> str:
    amount = "" if item.shortfall is None else f" by {quantity(item.shortfall, item.unit)}"
    return cut(f"in the way: {item.key}: {_missed(item)} is missed{amount}; {item.cure}")


def _decision(plan: Plan) -> str:
    parts = [
        f"{', '.join(f'{_verb(row.market)} {row.amount}' for row in rows)}{where}" for where, rows in by_site(plan)
    ]
    return "decision: " + ("; ".join(parts) or "nothing is had") + ("  [cost.total, power]" if parts else "")


def by_site(plan: Plan) -> list[tuple[str, tuple[Had, ...]]]:
    """Return where and what a plan has, site by site; where there is one site alone that goes without saying."""
    several = len(plan.problem.get("hardware", {}).get("sites", ())) > 1
    sites = sorted({bought.site for bought in plan.purchases})
    return [
        (f" at {site}" if several else "", had([bought for bought in plan.purchases if bought.site == site]))
        for site in sites
    ]


def _verb(market: str) -> str:
    return VERBS.get(market) or f"reserve ({market.removeprefix('reserved-')})"


def _workloads(plan: Plan) -> Iterator[str]:
    """Yield a line a workload: its largest pool, and how near its limits it comes; of more than two in a line of their own."""
    asked = {item["name"]: item for item in plan.problem.get("workloads", ())}
    several = len(plan.workloads) > SHOWN
    for name, made in list(plan.workloads.items())[:SHOWN]:
        if made.pools:
            pool = max(made.pools, key=lambda each: each.chips)
            others = len(made.pools) - 1
            more = f" and {others} more pool{'s' if others > 1 else ''}" if others else ""
            times = "" if name in {run.workload for run in plan.runs} else f"{pool.replicas:g} x "
            limits = () if several else _limits(plan, name, pool, asked.get(name, {}))
            facts = _listed((*limits, *_cautions(plan, name, made.pools)))
            yield f"{name}: {times}{layout_text(pool)} on {pool.system}{more}{facts}"
            if not several:
                yield from _run(plan, name, pool, made.totals)
    if several:
        told = [_times(plan, name, made, asked.get(name, {})) for name, made in plan.workloads.items() if made.pools]
        yield "; ".join(text for text in told if text)


def _times(plan: Plan, name: str, made: WorkloadPlan, asked: Mapping[str, Any]) -> str:
    """Return a workload's times beside their limits, or how long its run takes."""
    pool = max(made.pools, key=lambda each: each.chips)
    facts = list(_limits(plan, name, pool, asked))
    if wall := _wall(made.totals):
        facts.append(wall + _keys(plan, f"{name}.{pool.name}", "wall_time", "goodput"))
    return f"{name}: {', '.join(facts)}" if facts else ""


def _cautions(plan: Plan, workload: str, pools: Iterable[Pool]) -> Iterator[str]:
    """Yield for each pool whose memory may run short in how many cases it fits."""
    for pool in pools:
        if caution := may_not_fit(pool):
            yield caution + _keys(plan, f"{workload}.{pool.name}", "memory.total")


def _keys(plan: Plan, pool: str, *figures: str) -> str:
    """Return the keys of a pool's figures that the trace has, in brackets; of several request classes that of the greatest."""
    found = []
    for figure in figures:
        own = [f"{pool}.{figure}", f"{pool.partition('.')[0]}.{figure}"]
        classes = [key for key in plan.trace if key.startswith(f"{pool}.") and key.endswith(f".{figure}")]
        known = [key for key in own if key in plan.trace] or classes
        if known:
            found.append(max(known, key=lambda key: plan.trace[key]["value"]))
    return f"  [{', '.join(found)}]" if found else ""


def _listed(facts: Iterable[str]) -> str:
    said = "; ".join(facts)
    return f"; {said}" if said else ""


def _limits(plan: Plan, workload: str, pool: Pool, asked: Mapping[str, Any]) -> Iterator[str]:
    """Yield each percentile that was limited, and its limit."""
    for figure, values in pool.predicted.items():
        limits = asked.get("values", {}).get(f"slo.{figure}")
        if isinstance(values, Mapping) and isinstance(limits, Mapping):
            for word, limit in limits.items():
                if limit is not None and values.get(word) is not None:
                    keys = _keys(plan, f"{workload}.{pool.name}", f"{figure}.{word}")
                    yield f"{LATENCIES.get(figure, figure)} {word} {quantity(values[word], 's')} of {quantity(limit, 's')}{keys}"


RUN = (
    ("mtbf", "s", "a failure every"),
    ("checkpoint_bytes", "B", "a checkpoint of"),
    ("checkpoint_interval", "s", "every"),
)
"""Figures of a run that say how it bears failures, with their units and words."""


def _run(plan: Plan, workload: str, pool: Pool, totals: Mapping[str, Any]) -> Iterator[str]:
    wall = _wall(totals)
    if not wall:
        return
    told = [f"{words} {quantity(pool.predicted[name], unit)}" for name, unit, words in RUN if pool.predicted.get(name)]
    spare = totals.get("spare_systems")
    stand_by = "" if spare is None else f"; {spare:g} spare systems  [{workload}.spare_systems]"
    failures = f"; {told[0]}; {told[1]} {told[2]}" if len(told) == len(RUN) else ""
    keys = _keys(plan, f"{workload}.{pool.name}", "wall_time", "goodput", *(name for name, _, _ in RUN if failures))
    yield f"{workload}: {wall}{failures}{keys}{stand_by}"


def _wall(totals: Mapping[str, Any]) -> str:
    wall, goodput = totals.get("wall_time"), totals.get("goodput")
    good = f", goodput {percent(goodput)}" if goodput else ""
    return "" if wall is None else f"wall time {quantity(wall, 's')}{good}"


def _kind(key: str) -> str:
    million, _, kind = key.partition("_")
    return f"a million {kind} tokens" if kind else f"a {million}"


def _cost(plan: Plan) -> Iterator[str]:
    cost = plan.cost
    if cost.total is None:
        return
    duration = plan.problem.get("horizon", {}).get("duration")
    parts = [f"{kind} {money(value)}" for kind, value in cost.by_kind.items() if value]
    over = "" if duration is None else f" over {quantity(duration, 's')}"
    per = cost.per.get("million_output")
    tokens = "output tokens" if "million_input" in cost.per else "tokens"
    each = "" if per is None else f"; {money(per)} per million {tokens}  [cost.per.million_output]"
    where = f" in the scenario {names[0]}" if (names := _scenarios(plan)) else ""
    yield f"cost {money(cost.total)}{over}{where}: {', '.join(parts) or 'nothing paid'}  [cost.total]{each}"


def _apart(plan: Plan) -> Iterator[str]:
    for name, made in plan.workloads.items():
        if apart := made.totals.get("cost_apart"):
            words = (f"{money(value)} {_kind(key)}" for key, value in apart.items())
            keys = ", ".join(f"{name}.cost_apart.{key}" for key in apart)
            yield f"{name}, by the time that each takes: {', '.join(words)}  [{keys}]"
        margin = made.totals.get("margin")
        if margin is not None:
            revenue = made.totals["revenue"]
            yield f"{name}: revenue {money(revenue)}, margin {money(margin)}  [{name}.revenue, {name}.margin]"


def _held_back(plan: Plan) -> str:
    held_back = holding(plan)
    if held_back and isinstance(held_back[0].value_of_next, NextUnit):
        return f"binding: {held_back[0].limit}: {saving_text(plan, held_back[0].value_of_next)}  [{binding_key(held_back[0])}]"
    if held_back:
        return f"binding: {', '.join(bound.limit for bound in held_back[:3])}"
    largest = max(plan.workloads.values(), key=lambda made: sum(pool.chips for pool in made.pools), default=None)
    if largest is None or largest.bottleneck is None:
        return ""
    held = largest.bottleneck
    return f"binding: no limit of the file; time goes to {held.resource.replace('_', ' ')} ({percent(held.share)})"


def binding_key(bound: Bound) -> str:
    """Return the key of the trace that unfolds what a step of a limit saves."""
    return f"binding.{bound.key}"


def _next(plan: Plan) -> Iterator[str]:
    for number, other in enumerate(plan.alternatives, 1):
        word = "runner-up" if number == 1 else "then"
        whole = objective_text(plan, other.objective)
        yield cut(f"{word}: {other.what_changes}: {worse_text(plan, other)}, {whole} in all  [alternatives.{number}]")


def worse_text(plan: Plan, other: Alternative) -> str:
    """Return how much worse another plan is, in words."""
    return f"{objective_text(plan, other.difference)} more" if other.difference > 0.0 else "just as good"
