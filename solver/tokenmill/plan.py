"""The plan: the whole answer to a problem, as `--json` prints it.

SI numbers throughout: s, B, FLOP, W, J, USD, kg. A figure that does not apply is None. Names with a dot
(``memory.weights``) are nested tables here and in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenmill.milp.solution import Packing, Purchase, Shortfall

SCHEMA = 1
NOT_COMPUTED = "not computed"


@dataclass(frozen=True)
class Objective:
    """What was minimised: its value and proven bound [unit], and the relative gap between them."""

    name: str
    value: float | None
    unit: str
    bound: float | None = None
    gap: float | None = None


@dataclass(frozen=True)
class Cost:
    """Money over the horizon [USD]; `per`: USD a token, a million tokens, a run, a task, a device."""

    total: float | None = None
    by_period: tuple[float, ...] = ()
    by_kind: Mapping[str, float] = field(default_factory=dict)
    by_workload: Mapping[str, float] = field(default_factory=dict)
    idle: float | None = None
    per: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Scheduled:
    """A pool in a period and slice: replicas, units/s carried, share of its capacity used, W drawn by its chips."""

    period: int
    slice: str
    replicas: float
    rate: float
    utilisation: float
    power: float


@dataclass(frozen=True)
class Pool:
    """All replicas of one role on one system at one site.

    `name`: the role, numbered where a workload has several pools of it; trace keys use it. `chips`: catalogue chips
    over all replicas. `predicted`, `intervals` ([low, high]) and `evidence` have the same names. `settings`:
    choices besides layout and precision (chunk, optimizer). `by_class`: predictions of each request class where there are several.
    """

    name: str
    role: str
    system: str
    site: str
    chips: float
    replicas: float
    layout: Mapping[str, Any]
    precision: Mapping[str, Any]
    batch: float | None
    predicted: Mapping[str, Any]
    intervals: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    schedule: tuple[Scheduled, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    by_class: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bottleneck:
    """The resource that takes the greatest share of the time, and the next one; `shares`: of the time, by resource."""

    resource: str
    share: float
    second: str | None = None
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkloadPlan:
    """What a workload runs on, and its totals (wall_time [s], goodput, tokens, ...)."""

    stage: str
    bottleneck: Bottleneck | None = None
    totals: Mapping[str, Any] = field(default_factory=dict)
    pools: tuple[Pool, ...] = ()


@dataclass(frozen=True)
class Run:
    """A run: start and end [s from the start of the horizon], chips, the market that pays, checkpoints written.

    `cost`: its rents and electricity, and its share of what is bought, reserved or rented for several [USD].
    """

    workload: str
    start: float
    end: float
    chips: float
    market: str
    checkpoints: float | None = None
    site: str = ""
    cost: float | None = None


@dataclass(frozen=True)
class Arc:
    """A directed link that a flow uses: B/s over it, and the share of its capacity."""

    arc: str
    bytes_per_second: float
    share: float


@dataclass(frozen=True)
class Flow:
    """What passes between two pools in a period and slice (kind: kv, weights, data)."""

    workload: str
    kind: str
    source: str = field(metadata={"json": "from"})
    target: str = field(metadata={"json": "to"})
    period: int
    slice: str
    arcs: tuple[Arc, ...]


@dataclass(frozen=True)
class NextUnit:
    """What easing a limit by `step` saves; `unit` is the unit of the step, savings are in the objective's."""

    step: float
    saves: float
    unit: str


@dataclass(frozen=True)
class Bound:
    """A limit that holds the plan back: slack (in the limit's unit), and what a step more would save."""

    limit: str
    slack: float
    value_of_next: NextUnit | str = NOT_COMPUTED
    key: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Alternative:
    """Another plan: its objective, how much worse it is, and what changes."""

    objective: float
    difference: float
    what_changes: str


@dataclass(frozen=True)
class Audit:
    """The re-check without a solver: whether it passed, and the largest relative residual."""

    passed: bool | None = None
    largest_residual: float | None = None


@dataclass(frozen=True)
class RunRecord:
    """How the answer was made: seconds, the limit that stopped it, host, versions, seed. Nothing else changes from run to run."""

    seconds: float | None = None
    limit: str | None = None
    host: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True)
class Termination:
    """How solving ended: reason (the status), the limit that stopped it, proven bound and relative gap."""

    reason: str
    limit: str | None
    bound: float | None
    gap: float | None


@dataclass(frozen=True)
class Plan:
    """The whole answer. `trace`: figure key to {formula, value, unit, inputs}; `problem`: resolved, with defaults."""

    status: str
    objective: Objective
    cost: Cost = Cost()
    purchases: tuple[Purchase, ...] = ()
    workloads: Mapping[str, WorkloadPlan] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    flows: tuple[Flow, ...] = ()
    packing: tuple[Packing, ...] = ()
    binding: tuple[Bound, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    infeasible: tuple[Shortfall, ...] = ()
    audit: Audit = Audit()
    trace: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problem: Mapping[str, Any] = field(default_factory=dict)
    catalog_version: str = ""
    run: RunRecord = RunRecord()
    notes: tuple[str, ...] = ()

    @property
    def termination(self) -> Termination:
        """How solving ended: reason, limit, bound, gap."""
        return Termination(self.status, self.run.limit, self.objective.bound, self.objective.gap)

    def explain(self, figure: str, style: str = "text") -> str:
        """Return a figure unfolded to formulas, numbers and sources; see `explain.explain`."""
        from tokenmill.explain import explain

        return explain(self, figure, style)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON data: stable keys, 12 significant digits."""
        from tokenmill.plan_json import encode

        return {"schema": SCHEMA, **encode(self)}


def load_plan(path: str | Path) -> Plan:
    """Read a plan that `write_json` wrote.

    Raises
    ------
    ProblemError
        Where the file cannot be read or is no plan.
    """
    from tokenmill.plan_json import read

    return read(Path(path))


def write_json(plan: Plan, path: str | Path) -> None:
    """Write a plan to a file, whole or not at all.

    Raises
    ------
    ProblemError
        Where the folder does not exist or cannot be written; nothing is left behind.
    """
    from tokenmill.plan_json import dump, write_text

    write_text(dump(plan.to_dict()), path)
