"""What runs where for each workload, and what it delivers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log
from statistics import NormalDist
from typing import Any

from rich.console import Console

from tokenmill.plan import Plan, Pool, WorkloadPlan
from tokenmill.report.text_words import money, per_second, percent, print_table, quantity, say

SITE = {"site": "site"}
"""Name of the only site where a problem names none, by column."""
SHOWN_FIGURES = (
    ("step_time", "s"),
    ("tokens_per_second", "1/s"),
    ("tokens_per_second_per_chip", "1/s"),
    ("mfu", "share"),
    ("mbu", "share"),
    ("power_per_chip", "J/s"),
    ("energy_per_token", "J"),
)
LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", "latency": "latency", "task": "task"}
"""What times of requests are called, by the figure's name."""
STAGES, ORDER = "pp", "schedule"
"""The order of a pipeline's work says something where it has several stages."""
METHODS, NAMED = ("method",), ("speculative",)
"""Choices besides layout and precision that say what is done: by their word alone, with their name."""
COLUMNS = ("pool", "system", "site", "replicas>", "chips>", "layout", "batch>")


def print_workload(console: Console, name: str, workload: WorkloadPlan, asked: Mapping[str, Any]) -> None:
    """Print a workload's pools, what they deliver beside what was asked, and what time goes to.

    `asked`: the workload's record of the problem.
    """
    if not workload.pools:
        return
    rows = [
        (pool.name, pool.system, pool.site, f"{pool.replicas:g}", f"{pool.chips:g}", layout_text(pool), _batch(pool))
        for pool in workload.pools
    ]
    print_table(console, f"{name} ({workload.stage})", COLUMNS, rows, SITE)
    for pool in workload.pools:
        for line in delivers(pool, asked):
            say(console, f"{pool.name}: {line}")
    wall = workload.totals.get("wall_time")
    if wall is not None:
        good, latest = workload.totals.get("goodput"), asked.get("deadline")
        limit = f" (asked: at most {quantity(latest, 's')})" if latest is not None else ""
        ends = " to ".join(quantity(end, "s") for end in workload.totals.get("intervals", {}).get("wall_time", ()))
        within = f" (8 cases of 10: {ends})" if ends else ""
        say(console, f"wall time {quantity(wall, 's')}{within}{limit}" + (f", goodput {percent(good)}" if good else ""))
    if workload.bottleneck:
        held = workload.bottleneck
        second = f", then {held.second.replace('_', ' ')}" if held.second else ""
        say(console, f"time goes to {held.resource.replace('_', ' ')} ({percent(held.share)}){second}")


def layout_text(pool: Pool) -> str:
    """Return degrees over 1, then words of a layout, in one line: ``tp 4, pp 2, fp8, kv bf16``."""
    return choices_text(pool.layout, pool.precision, pool.settings)


def choices_text(layout: Mapping[str, Any], precision: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return what was chosen of a layout's keys in one line; see `layout_text`."""
    said = sorted(layout.items(), key=lambda item: isinstance(item[1], str))
    if layout.get(STAGES) in (None, 1):
        said = [item for item in said if item[0] != ORDER]
    parts = [str(settings[name]) for name in METHODS if settings.get(name)]
    said += [(name, settings.get(name)) for name in NAMED]
    parts += [f"{key.replace('_', ' ')} {value}" for key, value in said if _worth_saying(key, value)]
    return ", ".join(parts + _precisions(precision))


def _precisions(formats: Mapping[str, Any]) -> list[str]:
    """Return the format of the weights, then those that differ from it with what is in them."""
    given = {key: str(value) for key, value in formats.items() if value is not None}
    main = given.get("weights", given.get("compute"))
    return ([main] if main else []) + [f"{key} {value}" for key, value in given.items() if value != main]


def _worth_saying(key: str, value: Any) -> bool:
    return value not in (None, 1, "none", False, "") and key not in ("system", "chips", "replicas", "order")


def _batch(pool: Pool) -> str:
    return "" if pool.batch is None else f"{pool.batch:.4g}"


def delivers(pool: Pool, asked: Mapping[str, Any]) -> Iterable[str]:
    """Yield what a pool is predicted to deliver, beside what was asked, line by line."""
    predicted = pool.predicted
    for name, word in LATENCIES.items():
        if isinstance(predicted.get(name), Mapping):
            limits = asked.get("values", {}).get(f"slo.{name}") or {}
            yield f"{word} {_percentiles(predicted[name], limits)}"
    shown = []
    for name, unit in SHOWN_FIGURES:
        value = predicted.get(name)
        if isinstance(value, int | float):
            text = percent(value) if unit == "share" else per_second(value) if unit == "1/s" else quantity(value, unit)
            shown.append(f"{name.replace('_', ' ')} {text}")
    if shown:
        yield ", ".join(shown)
    yield from _memory(predicted.get("memory", {}), memory_interval(pool))
    caution = may_not_fit(pool)
    if caution:
        yield caution


def _percentiles(values: Mapping[str, float | None], limits: Mapping[str, float | None]) -> str:
    """Return ``mean 307 ms, p95 478 ms (asked: at most 1 s)``."""
    parts = []
    for word, value in values.items():
        if value is not None:
            limit = limits.get(word)
            asked = "" if limit is None else f" (asked: at most {quantity(limit, 's')})"
            parts.append(f"{word} {quantity(value, 's')}{asked}")
    return ", ".join(parts)


def _memory(memory: Mapping[str, Any], interval: tuple[float, float] | None) -> Iterable[str]:
    used = next((memory[name] for name in ("total", "reserved", "allocated") if memory.get(name)), None)
    if used is None:
        return
    parts = {k: v for k, v in memory.items() if k not in ("total", "capacity", "allocated", "reserved", "usable") and v}
    held = ", ".join(f"{name} {quantity(value, 'B')}" for name, value in parts.items())
    room = f" of {quantity(memory['capacity'], 'B')}" if memory.get("capacity") else ""
    ends = " to ".join(quantity(end, "B") for end in interval or ())
    within = f" (8 cases of 10: {ends})" if interval and memory.get("total") else ""
    yield f"memory of a chip {quantity(used, 'B')}{within}{room}" + (f": {held}" if held else "")


def memory_interval(pool: Pool) -> tuple[float, float] | None:
    """Return the 80% interval of the memory of a pool's fullest chip [B], None where no measured runs tell it."""
    ends = pool.intervals.get("memory", {}).get("total")
    return (float(ends[0]), float(ends[1])) if ends else None


def may_not_fit(pool: Pool) -> str:
    """Return a word of caution where the interval of a pool's memory passes what its chip has, else nothing."""
    memory, interval = pool.predicted.get("memory", {}), memory_interval(pool)
    capacity, total = memory.get("capacity"), memory.get("total")
    if not (interval and capacity and total) or interval[1] <= capacity:
        return ""
    cases = 10 * chance_to_fit(total, interval[1], capacity)
    return f"memory may run short: by the errors on measured runs it fits in some {cases:.0f} cases of 10"


def chance_to_fit(total: float, upper: float, capacity: float) -> float:
    """Return the chance that memory predicted as `total` stays within `capacity` [B], `upper` the 90% quantile: errors above the
    prediction are lognormal.
    """
    spread = log(upper / total) / NormalDist().inv_cdf(0.9)
    return NormalDist().cdf(log(capacity / total) / spread) if spread > 0 else float(capacity >= total)


def print_runs(console: Console, plan: Plan) -> None:
    """Print when each run works, and what it costs."""
    rows = [
        (
            run.workload,
            run.site,
            run.market,
            f"{run.chips:g}",
            quantity(run.start, "s"),
            quantity(run.end, "s"),
            "" if run.cost is None else money(run.cost),
        )
        for run in plan.runs
    ]
    if rows:
        print_table(console, "Runs", ("workload", "site", "market", "chips>", "start>", "end>", "cost>"), rows, SITE)
