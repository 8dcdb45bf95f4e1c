"""Two plans, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tokenmill.plan import Plan, Pool
from tokenmill.report.text_pools import layout_text


@dataclass(frozen=True)
class Line:
    """A figure of two plans: its key, both values (None: that plan has none), its unit."""

    key: str
    first: float | str | None
    second: float | str | None
    unit: str = ""

    @property
    def difference(self) -> float | None:
        """The second value less the first, where both are numbers."""
        if isinstance(self.first, str) or isinstance(self.second, str) or self.first is None or self.second is None:
            return None
        return self.second - self.first

    @property
    def relative(self) -> float | None:
        """The difference as a share of the first value."""
        change = self.difference
        return None if change is None or not self.first else change / abs(float(self.first))


def compare(first: Plan, second: Plan) -> list[Line]:
    """Return every line of two plans side by side; those equal in both too."""
    one, other = _figures(first), _figures(second)
    return [Line(key, one.get(key, (None, ""))[0], other.get(key, (None, ""))[0], (one.get(key) or other[key])[1])
            for key in dict.fromkeys([*one, *other])]  # fmt: skip


def _figures(plan: Plan) -> dict[str, tuple[float | str | None, str]]:
    return {key: (value, unit) for key, value, unit in _lines(plan)}


def _lines(plan: Plan) -> Iterator[tuple[str, float | str | None, str]]:
    yield "status", plan.status, ""
    yield f"objective.{plan.objective.name}", plan.objective.value, plan.objective.unit
    yield "cost.total", plan.cost.total, "USD"
    for kind, value in plan.cost.by_kind.items():
        if value:
            yield f"cost.{kind}", value, "USD"
    for name, value in plan.cost.by_workload.items():
        yield f"cost.workload.{name}", value, "USD"
    yield "cost.idle", plan.cost.idle, "USD"
    for name, value in plan.cost.per.items():
        yield f"cost.per.{name}", value, f"USD/{name}"
    yield from _systems(plan)
    for name, workload in plan.workloads.items():
        for total, value in workload.totals.items():
            if isinstance(value, int | float):
                yield f"{name}.{total}", value, "s" if total.endswith("time") else ""
        for pool in workload.pools:
            yield from _pool(name, pool)
    for run in plan.runs:
        yield f"{run.workload}.end", run.end, "s"
    yield "binding", ", ".join(sorted(b.limit for b in plan.binding)) or "nothing", ""


def _systems(plan: Plan) -> Iterator[tuple[str, float, str]]:
    """Yield chips, power, and the most systems had at one time of each kind and market."""
    from tokenmill.milp.alternatives import had

    rows = had(plan.purchases)
    yield "chips", sum(row.chips for row in rows), "chip"
    for row in rows:
        yield f"systems.{row.system}.{row.market}", row.count, "system"


def _pool(name: str, pool: Pool) -> Iterator[tuple[str, float | str | None, str]]:
    key = f"{name}.{pool.name}"
    yield f"{key}.system", pool.system, ""
    yield f"{key}.replicas", pool.replicas, ""
    yield f"{key}.chips", pool.chips, "chip"
    yield f"{key}.layout", layout_text(pool), ""
    yield f"{key}.batch", pool.batch, ""
    for figure, unit in (("ttft", "s"), ("tpot", "s")):
        table = pool.predicted.get(figure)
        if isinstance(table, Mapping):
            for part in ("mean", "p95"):
                if isinstance(table.get(part), int | float):
                    yield f"{key}.{figure}.{part}", table[part], unit
    for figure, unit in (
        ("step_time", "s"),
        ("mfu", "share"),
        ("tokens_per_second_per_chip", "1/s"),
        ("energy_per_token", "J"),
    ):
        value = pool.predicted.get(figure)
        if isinstance(value, int | float):
            yield f"{key}.{figure}", value, unit


def to_rows(lines: list[Line]) -> list[dict[str, Any]]:
    """Return lines as JSON data."""
    return [
        {"key": n.key, "a": n.first, "b": n.second, "difference": n.difference, "relative": n.relative, "unit": n.unit}
        for n in lines
    ]
