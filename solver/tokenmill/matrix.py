"""`matrix`: every workload against every resource it can exhaust, and the levers that lower its cost most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from tokenmill.problem import Problem
from tokenmill_models.sensitivity import elasticities
from tokenmill_models.symbols import quantity

if TYPE_CHECKING:
    from tokenmill.api import Found
    from tokenmill.candidates.columns import Column
    from tokenmill.catalog import Catalog
    from tokenmill.plan import Plan, Pool, WorkloadPlan

RESOURCES = (
    "storage_throughput", "storage_capacity", "cpu", "compute", "memory_bandwidth", "memory_capacity", "scale_up", "scale_out",
    "power", "cooling", "reliability", "cost",
)  # fmt: skip
"""Columns of the matrix. Shares of time: storage_throughput, storage_capacity, cpu, compute, memory_bandwidth, scale_up, scale_out;
of what there is: memory_capacity (of the fullest chip), power (of its chips' limit), cooling (of a rack's limit), reliability (time
lost to failures), cost (of the plan's)."""
LEVERS: Mapping[str, str] = {
    "chip.peak": "compute", "chip.bandwidth": "memory_bandwidth", "chip.capacity": "memory_capacity", "chip.host_link": "scale_out",
    "chip.failure_rate": "reliability", "store.write": "storage_throughput", "store.read": "storage_throughput",
    "store.total": "storage_throughput", "system.cores": "cpu", "engine.step_graph": "launch", "engine.layer_graph": "launch",
    "engine.layer_train": "launch",
}  # fmt: skip
"""Resource of a lever, by the beginning of the origin of its leaves; links are told by their level."""
PEAK = "chip.peak"
CHANGE = 1.1
"""Factor by which a lever is moved to check it."""
CHECKED: Mapping[str, tuple[str, ...]] = {
    "chip.peak": ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4"), "chip.bandwidth": ("bandwidth",),
    "chip.capacity": ("memory",), "scale_up": ("scale_up",),
}  # fmt: skip
"""Levers that a problem can move itself, with the figures of a chip that they are."""


@dataclass(frozen=True)
class Lever:
    """A property of hardware or software, and what it does to the cost of a workload.

    `elasticity`: per cent of cost a per cent more of it (below 0: it saves), with layout held and replicas at the most that they run. `resolved`: the cost at
    CHANGE times it, over that of the plan, with everything chosen anew; None where it was not tried. `held`: the same by the elasticity.
    """

    name: str
    resource: str
    elasticity: float
    resolved: float | None = None

    @property
    def held(self) -> float:
        """Cost at CHANGE times the lever over that of the plan, with all choices held."""
        return float(CHANGE**self.elasticity)


@dataclass(frozen=True)
class Row:
    """A workload: shares by resource (of RESOURCES; one that does not apply is left out), and its levers, the strongest first."""

    workload: str
    stage: str
    shares: Mapping[str, float]
    levers: tuple[Lever, ...]


@dataclass(frozen=True)
class Matrix:
    """Rows of all workloads, and the plan that they are read from."""

    rows: tuple[Row, ...]
    plan: Plan

    def to_dict(self) -> dict[str, Any]:
        """Return the matrix as JSON data (without the plan)."""
        rows = [
            {**asdict(row), "levers": [{**asdict(lever), "held": lever.held} for lever in row.levers]}
            for row in self.rows
        ]
        return {"schema": 1, "status": self.plan.status, "resources": list(RESOURCES), "change": CHANGE, "rows": rows}


def matrix(
    problem: Problem, *, check: bool = True, time_limit: float | str | None = None, catalog: Catalog | None = None
) -> Matrix:
    """Return how far each workload of the best plan exhausts each resource, and what its cost answers to.

    `check`: levers that a problem can move are moved by CHANGE and the problem is solved anew.

    Raises
    ------
    ProblemError
        For what the problem asks and the product cannot do, in words.
    """
    from tokenmill.api import solve_found

    plan, found, solution = solve_found(problem, time_limit=time_limit, catalog=catalog)
    used = [item.column for item in (*solution.running, *solution.runs)]
    rows = []
    moved: dict[Any, Plan] = {}
    for name, work in plan.workloads.items():
        levers = _levers(found, name, used)
        if check and plan.cost.total:
            levers = [_tried(lever, problem, plan, name, found, time_limit, catalog, moved) for lever in levers]
        order = sorted(
            levers, key=lambda lever: (lever.elasticity if lever.resolved is None else lever.resolved - 1, lever.name)
        )
        rows.append(Row(name, work.stage, _shares(plan, problem, found.catalog, name, work), tuple(order)))
    return Matrix(tuple(rows), plan)


def _shares(plan: Plan, problem: Problem, data: Catalog, name: str, work: WorkloadPlan) -> dict[str, float]:
    """Return the shares of a workload by resource."""
    time = dict(work.bottleneck.shares) if work.bottleneck else {}
    found = {resource: time[resource] for resource in RESOURCES if resource in time}
    memories = [pool.predicted.get("memory", {}) for pool in work.pools]
    filled = [m["total"] / m["capacity"] for m in memories if m.get("total") and m.get("capacity")]
    if filled:
        found["memory_capacity"] = max(filled)
    drawn = [share for pool in work.pools if (share := _drawn(pool, data)) is not None]
    if drawn:
        found["power"] = max(drawn)
    racks = [site.rack_power for site in problem.hardware.sites if isfinite(site.rack_power)]
    bought = [item for item in plan.purchases if item.system in {pool.system for pool in work.pools} and item.count]
    if racks and bought:
        found["cooling"] = max(item.power / item.count for item in bought) / min(racks)
    goodput = work.totals.get("goodput")
    if goodput is not None:
        found["reliability"] = max(0.0, 1 - goodput)
    if plan.cost.total and name in plan.cost.by_workload:
        found["cost"] = plan.cost.by_workload[name] / plan.cost.total
    return {resource: found[resource] for resource in RESOURCES if resource in found}


def _drawn(pool: Pool, data: Catalog) -> float | None:
    """Return the draw of a pool's chips over their limit."""
    drawn = pool.predicted.get("power_per_chip")
    if drawn is None:
        return None
    tdp = data.chip(data.system(pool.system).chip).tdp
    return float(drawn) / tdp if tdp else None


def _levers(found: Found, workload: str, used: list[str]) -> list[Lever]:
    """Return the levers of a workload: those of its columns in use, each weighted by its chips."""
    sums: dict[tuple[str, str], float] = {}
    weights = 0.0
    for searched in found.searched:
        if searched.columns.workload != workload:
            continue
        columns = {column.key: column for role in searched.columns.columns.values() for column in role}
        for key in dict.fromkeys(key for key in used if key in columns):
            weights += columns[key].chips
            for lever, value in _of_column(searched, columns[key]):
                sums[lever] = sums.get(lever, 0.0) + value * columns[key].chips
    return [
        Lever(name, resource, value / weights)
        for (name, resource), value in sums.items()
        if abs(value) > 1e-6 * weights
    ]


def _of_column(searched: Any, column: Column) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield levers of a column with the elasticity of its cost: of its duration (a run), of 1 over its rate (a pool)."""
    from tokenmill.candidates.unfold import leaf_values

    context = searched.contexts[column.key]
    role = context.program.role
    port, sign = ("duration", 1.0) if column.duration is not None else ("rate", -1.0)
    if port not in role.ports or column.parts:
        return
    point = max(column.points, key=lambda point: sum(point.rate), default=None)
    values = leaf_values(context, column, {} if point is None else point.values, 0)
    _, leaves = context.program.graph.needs([role.ports[port]])
    groups: dict[tuple[str, str], list[str]] = {}
    for leaf in leaves:
        lever = _lever_of(str(quantity(leaf).origin or ""))
        if lever is not None and leaf.name in values:
            groups.setdefault(lever, []).append(leaf.name)
    for lever, names in groups.items():
        found = elasticities(context.program.graph, {port: role.ports[port]}, names, values)
        if port in found:
            yield lever, sign * found[port]


def _lever_of(origin: str) -> tuple[str, str] | None:
    """Return the lever that a leaf belongs to, and its resource; None for a leaf that is none."""
    if origin.startswith("group.") and origin.rstrip("012").endswith((".beta", ".pair", ".exchange")):
        resource = "scale_up" if origin.endswith("0") else "scale_out"
        return resource, resource
    start = origin.partition("[")[0]
    start = PEAK if start.startswith(PEAK) else start  # chip.peak_bf16, chip.peak[compute]
    return (start, LEVERS[start]) if start in LEVERS else None


def _tried(
    lever: Lever,
    problem: Problem,
    plan: Plan,
    workload: str,
    found: Found,
    time_limit: float | str | None,
    catalog: Catalog | None,
    known: dict[Any, Plan],
) -> Lever:
    """Return a lever with the cost at CHANGE times it, everything chosen anew, where the problem can move it.

    `known`: plans by what was moved, of which workloads on the same chips need one alone.
    """
    from tokenmill.api import solve

    keys = CHECKED.get(lever.name)
    if keys is None:
        return lever
    chips = sorted({found.catalog.system(pool.system).chip for pool in plan.workloads[workload].pools})
    what = (lever.name, *chips)
    if what not in known:
        moved = {chip: {**problem.assume.chip.get(chip, {}), **_moved(found.catalog, chip, keys)} for chip in chips}
        assume = replace(problem.assume, chip={**problem.assume.chip, **moved})
        known[what] = solve(replace(problem, assume=assume), time_limit=time_limit, catalog=catalog)
    better = known[what]
    cost, before = better.cost.by_workload.get(workload), plan.cost.by_workload.get(workload)
    return lever if cost is None or not before else replace(lever, resolved=cost / before)


def _moved(catalog: Catalog, id: str, keys: tuple[str, ...]) -> dict[str, float]:
    chip = catalog.chip(id)
    now = {"bandwidth": chip.bandwidth, "memory": chip.capacity, "scale_up": chip.scale_up, **chip.peak}
    return {key: now[key] * CHANGE for key in keys if now.get(key)}
