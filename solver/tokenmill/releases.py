"""Which lines of the file leave a workload without a layout: each tried without, and those that exclude one another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from tokenmill.milp.infeasible import able
from tokenmill.milp.solution import Shortfall
from tokenmill.problem import Problem, Workload

PATIENCE = 15.0
"""Seconds that trying lines may take."""
MOST = 24
"""Lines of a workload that are tried."""
Able = Callable[[Workload], bool]


@dataclass(frozen=True)
class Line:
    """A line of the file that narrows what may be chosen: its key under the workload, the role it is for (or none), its value."""

    key: str
    role: str
    value: Any

    @property
    def text(self) -> str:
        """The line in words: ``layout.tp = 2``."""
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        shown = " or ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
        return f"{self.role + '.' if self.role else ''}{self.key} = {shown}"


def lines(workload: Workload, limits: Iterable[str], defaults: Mapping[str, Any]) -> list[Line]:
    """Return the lines that hold a choice, and those of `limits` (keys of rules) that differ from their default."""
    found = [Line(key, "", values) for key, values in workload.held.items()]
    found += [Line(key, role, values) for role, table in workload.role_held.items() for key, values in table.items()]
    for key in dict.fromkeys(limits):
        value = _stated(workload.values, key)
        if value is not None and value != defaults.get(key) and key not in workload.held:
            found.append(Line(key, "", value))
    return found[:MOST]


def without(workload: Workload, gone: Iterable[Line], defaults: Mapping[str, Any]) -> Workload:
    """Return the workload as if some lines were not in the file."""
    keys = {(line.role, line.key) for line in gone}
    return replace(
        workload,
        held={key: values for key, values in workload.held.items() if ("", key) not in keys},
        role_held={
            role: {key: values for key, values in table.items() if (role, key) not in keys}
            for role, table in workload.role_held.items()
        },
        values={
            key: defaults.get(key) if ("", key) in keys else _left(key, value, keys)
            for key, value in workload.values.items()
        },
    )


def _stated(values: Mapping[str, Any], key: str) -> Any:
    """Return what a workload states under a key, or under a word of a table such as ``slo.ttft.p95``."""
    table, _, word = key.rpartition(".")
    words = values.get(table)
    return values[key] if key in values else words.get(word) if isinstance(words, Mapping) else None


def _left(key: str, value: Any, gone: Collection[tuple[str, str]]) -> Any:
    """Return what is left of a value when some of its words are gone; None where it was a table and nothing is."""
    if not isinstance(value, Mapping):
        return value
    return {word: item for word, item in value.items() if ("", f"{key}.{word}") not in gone} or None


def blamed(
    workload: Workload, every: Sequence[Line], defaults: Mapping[str, Any], has_layout: Able
) -> tuple[list[Line], list[Line]]:
    """Return the lines each of which alone makes room for a layout when released, else those that exclude one another.

    The latter by deletion: a line without which the others still leave no layout is left out for good. Both are
    empty where not even all lines released make room, or the time is over.
    """
    began = perf_counter()

    def late() -> bool:
        return perf_counter() - began > PATIENCE

    alone: list[Line] = []
    for line in every:
        if late():
            return alone, []
        if has_layout(without(workload, [line], defaults)):
            alone.append(line)
    if alone or not has_layout(without(workload, every, defaults)):
        return alone, []
    kept = list(every)
    for line in every:
        if late():
            return [], []
        rest = [other for other in kept if other is not line]
        if not has_layout(without(workload, [other for other in every if other not in rest], defaults)):
            kept = rest
    return [], kept


def told(
    shortfalls: Sequence[Shortfall], problem: Problem, lacking: Iterable[str], limits: Mapping[str, Iterable[str]],
    defaults: Mapping[str, Mapping[str, Any]], search: Callable[[Problem], Any],
) -> tuple[Shortfall, ...]:  # fmt: skip
    """Return shortfalls of workloads without a layout with the lines of the file that are in the way: what would do alone first.

    `lacking`: names of such workloads; `limits`, `defaults`: keys of the rules that removed layouts, and the stage's defaults, by
    workload; `search`: the columns of the one workload of a problem.
    """
    found = list(shortfalls)
    for name in reversed(tuple(lacking)):
        workload = next(w for w in problem.workloads if w.name == name)

        def has_layout(changed: Workload) -> bool:
            return able(search(replace(problem, workloads=(replace(changed, needs=()),))))

        every = lines(workload, limits[name], defaults[name])
        alone, together = blamed(workload, every, defaults[name], has_layout)
        said = _said(alone, together)
        if not said:
            continue
        freed = {f"workload.{name}.{line.key}" for line in alone}
        own = [short for short in found if short.key.split(".")[:2] == ["workload", name]]
        own = [replace(short, alone_would_do=True) if short.key in freed else short for short in own]
        own.sort(key=lambda short: short.alone_would_do is not True)
        own[:1] = [replace(short, cure=f"{short.cure}; {said}") for short in own[:1]]
        found = [*own, *(short for short in found if short.key.split(".")[:2] != ["workload", name])]
    return tuple(found)


def _said(alone: Sequence[Line], together: Sequence[Line]) -> str:
    if alone:
        others = " or ".join(line.text for line in alone)
        return f"without {others} there are layouts" + (" (each alone would do)" if len(alone) > 1 else "")
    if len(together) > 1:
        return f"these lines exclude one another: {', '.join(line.text for line in together)}"
    return ""
