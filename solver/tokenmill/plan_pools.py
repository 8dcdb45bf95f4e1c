"""Predictions of a pool from those of its request classes, and what holds a workload back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from tokenmill.candidates.columns import Column
from tokenmill.milp.solution import Running
from tokenmill.plan import Bottleneck, Pool
from tokenmill.trace import ClassFigures, Evaluated

# time share -> resource that it uses, unless the evaluation says otherwise
RESOURCES = {
    "cores": "cpu",
    "store": "storage_throughput",
    "provisioned": "storage_capacity",
    "compute": "compute",
    "memory": "memory_bandwidth",
    "tensor": "scale_up",
    "expert": "scale_up",
    "context": "scale_up",
    "pipeline": "scale_out",
    "data": "scale_out",
    "offload": "scale_out",
    "sync": "scale_out",
    "checkpoint": "storage_throughput",
    "failures": "reliability",
}
# worst first, for mixing the classes of a pool
EVIDENCE = ("guess", "claim", "datasheet", "calibrated", "measured")
# figures of the fullest moment, which classes do not average
GREATEST = ("memory", "kv_tokens", "max_batch")
NOTHING = ClassFigures({}, {}, {}, {}, {})
PERCENTILES = ("p50", "p95", "p99")


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted names as nested tables."""
    tables: dict[str, Any] = {}
    for name, value in flat.items():
        table = tables
        *path, last = name.split(".")
        for step in path:
            table = table.setdefault(step, {})
        table[last] = value
    return tables


def layout_of(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Split axis values by dotted key into layout, precision, and settings (all others)."""
    tables: dict[str, dict[str, Any]] = {"layout": {}, "precision": {}, "settings": {}}
    for key, value in values.items():
        table, _, name = key.rpartition(".")
        number = isinstance(value, float) and value.is_integer()
        tables[table if table in tables else "settings"][name] = int(value) if number else value
    return tables


def predictions(record: Evaluated, weights: Mapping[int, float]) -> dict[str, Any]:
    """Return predicted, intervals, evidence and by_class of a pool.

    Over several classes a figure is the mean weighted by the time they take (`weights`, by class index); a percentile
    is the greatest of the classes', which bounds that of the mixture; memory is that of the fullest.
    """
    classes = list(record.classes.values())
    shares = [weights.get(at, 0.0) for at in range(len(classes))]
    if not any(shares):
        shares = [1.0 / len(classes)] * len(classes)
    used = [(one, share) for one, share in zip(classes, shares, strict=True) if share > 0]
    figures = {name: _mix(name, used, lambda c, n: c.figures.get(n)) for name in _names(used, "figures")}
    times = {name: _mix(name, used, lambda c, n: c.shares.get(n)) for name in _names(used, "shares")}
    low = {name: _mix(name, used, lambda c, n: _end(c, n, 0)) for name in _names(used, "intervals")}
    high = {name: _mix(name, used, lambda c, n: _end(c, n, 1)) for name in _names(used, "intervals")}
    by_class = {name: nested(one.figures) for name, one in record.classes.items()} if len(classes) > 1 else {}
    return {
        "predicted": {**nested(figures), "time_shares": normalised(times)},
        "intervals": nested({name: [low[name], high[name]] for name in low}),
        "evidence": nested({name: _worst(name, used) for name in _names(used, "evidence")}),
        "by_class": by_class,
    }


def _names(used: Sequence[tuple[ClassFigures, float]], table: str) -> list[str]:
    return list(dict.fromkeys(name for one, _ in used for name in getattr(one, table)))


def _end(one: ClassFigures, name: str, end: int) -> float | None:
    return one.intervals[name][end] if name in one.intervals else None


def _mix(
    name: str,
    used: Sequence[tuple[ClassFigures, float]],
    read: Callable[[ClassFigures, str], float | None],
) -> float | None:
    values = [(value, share) for one, share in used if (value := read(one, name)) is not None]
    if not values:
        return None
    if name.partition(".")[0] in GREATEST or name.rpartition(".")[2] in PERCENTILES:
        return max(value for value, _ in values)
    if all(value == values[0][0] for value, _ in values):
        return values[0][0]
    return sum(value * share for value, share in values) / sum(share for _, share in values)


def _worst(name: str, used: Sequence[tuple[ClassFigures, float]]) -> str:
    words = [one.evidence[name] for one, _ in used if name in one.evidence]
    return next((word for word in EVIDENCE if word in words), words[0])


def class_weights(column: Column, rows: Sequence[Running]) -> dict[int, float]:
    """Return the share of the replicas' busy time that each request class takes, by class index."""
    busy: dict[int, float] = {}
    for row in rows:
        for (at, point), rate in row.rates.items():
            most = column.points[point].rate[at]
            if most > 0:
                busy[at] = busy.get(at, 0.0) + rate / most
    total = sum(busy.values())
    return {at: time / total for at, time in busy.items()} if total > 0 else {}


def whole_run(records: Iterable[Evaluated], pools: Collection[str]) -> ClassFigures:
    """Return the figures of a run as a whole, which no pool of it shows; empty where there is none."""
    whole = (record for record in records if record.role not in pools)
    return next((next(iter(record.classes.values())) for record in whole), NOTHING)


def normalised(times: Mapping[str, float | None]) -> dict[str, float]:
    """Return times [s] as shares of their sum."""
    known = {name: value for name, value in times.items() if value is not None}
    total = sum(known.values())
    return {name: value / total if total > 0 else 0.0 for name, value in known.items()}


def bottleneck_of(pools: Sequence[Pool], evaluated: Iterable[Evaluated], workload: str) -> Bottleneck | None:
    """Return the resource with the greatest share of time in the workload's largest pool, and the second.

    A run of parts that says itself what its time goes to is taken at its word; what goes to a part goes where that part's time does.
    """
    if not pools:
        return None
    records = [record for record in evaluated if record.workload == workload]
    largest = max(pools, key=lambda pool: pool.chips)
    overrides = next((record.resources for record in records if record.role == largest.role), {})
    shares = whole_run(records, {pool.role for pool in pools}).shares or largest.predicted.get("time_shares", {})
    by_resource: dict[str, float] = {}
    for name, share in _by_part(normalised(shares), pools).items():
        resource = overrides.get(name) or RESOURCES.get(name)
        if resource:
            by_resource[resource] = by_resource.get(resource, 0.0) + share
    ranked = sorted(by_resource.items(), key=lambda item: (-item[1], item[0]))
    if not ranked:
        return None
    second = ranked[1][0] if len(ranked) > 1 and ranked[1][1] > 0 else None
    return Bottleneck(ranked[0][0], ranked[0][1], second, dict(ranked))


def _by_part(shares: Mapping[str, float], pools: Sequence[Pool]) -> dict[str, float]:
    """Return shares of time with those named after a pool's role spread over what that pool's time goes to."""
    inner = {pool.role: pool.predicted.get("time_shares") or {} for pool in pools}
    spread: dict[str, float] = {}
    for name, share in shares.items():
        for what, part in (inner.get(name) or {name: 1.0}).items():
            spread[what] = spread.get(what, 0.0) + share * part
    return spread


def per_name(yielded: str, value: float, counted: str) -> dict[str, float]:
    """Return the plan's names of a ratio; `yielded` is ``cost_per_token.output`` or ``cost_per_task.all``."""
    kind, _, count = yielded.rpartition(".")
    word = kind.removeprefix("cost_per_")
    names: dict[str, float] = {word: value} if word and count == counted else {}
    if word == "token" and count in ("input", "output"):
        names[f"million_{count}"] = value * 1e6
    if word not in ("token", "") and word not in names:
        names[word] = value
    return names
