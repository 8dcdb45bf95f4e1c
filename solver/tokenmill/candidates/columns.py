"""What the candidate search hands to the programme: columns, and a reason for every row that it dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class OperatingPoint:
    """One way to run a replica: its operating axes, what it sustains of each request class, its power.

    `rate`: units/s a replica carries when it does nothing else, one an element of the workload's classes; 0 where the
    class misses a limit. `power_loaded`: W of a replica's chips.
    """

    values: Mapping[str, Any]
    rate: tuple[float, ...]
    power_loaded: float


@dataclass(frozen=True)
class CouplingEnd:
    """One side of a coupling: values that must be equal, budget share used, bytes a unit by class (source side)."""

    match: tuple[Any, ...]
    budget: float = 0.0
    per_unit: tuple[float, ...] = ()


@dataclass(frozen=True)
class Column:
    """A layout on a system with its evaluated ports.

    `key`: canonical text that orders columns. `chips`: catalogue chips of one replica or run. `footprint`: (system,
    chips) pairs it occupies, one but for runs of parts. `layout`: build axes by key. `power_idle`: W. `duration`: s of a run.
    `power_loaded`: W at full load (of a pool: at its hungriest operating point). `parts`: columns of the parts of a run.
    `sites`: where alone it may stand, as its limits allow for the way to users from there (None: anywhere). `share`: of a single
    chip, the part that a replica takes: a half, a quarter, ...; others stand beside it.
    """

    key: str
    workload: str
    role: str
    kind: str
    system: str
    chips: int
    footprint: tuple[tuple[str, int], ...]
    layout: Mapping[str, Any]
    points: tuple[OperatingPoint, ...]
    power_idle: float
    power_loaded: float = 0.0
    duration: float | None = None
    ends: Mapping[str, CouplingEnd] = field(default_factory=dict)
    parts: tuple[Column, ...] = ()
    reliability: str = "owned"
    sites: tuple[str, ...] | None = None
    share: float = 1.0

    @property
    def room(self) -> float:
        """Chips that a replica takes: a whole number, or a part of one."""
        return self.chips if self.share == 1.0 else self.chips * self.share


@dataclass(frozen=True)
class Dropped:
    """Rows that a rule removed: how many, and how far the nearest of them was from passing (in the rule's unit)."""

    workload: str
    role: str
    system: str
    rule: str
    kind: str
    count: int
    shortfall: float | None
    unit: str
    cure: str | None
    nearest: Mapping[str, Any]


@dataclass(frozen=True)
class CouplingUse:
    """A coupling of the workload as the programme needs it: source and target role, kind of flow, total budget.

    `match`: keys of the choices that must be equal on both sides, in the order of the ends' `match`.
    """

    name: str
    source: str
    target: str
    kind: str
    budget: float | None = None
    match: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkloadColumns:
    """All columns of a workload by role, its routes (tuples of roles a unit passes), couplings, and dropped rows.

    `shares`: request classes' shares of the demand. `counts`: for each yield name, units per unit of demand by class
    (pool) or per run. `anytime`: what a period brings may be carried in any of its slices. `evaluated`: rows evaluated in full, `cut`: rows that a rule removed before.
    """

    workload: str
    stage: str
    kind: str
    columns: Mapping[str, tuple[Column, ...]]
    routes: tuple[tuple[str, ...], ...]
    couplings: tuple[CouplingUse, ...]
    classes: tuple[str, ...]
    shares: tuple[float, ...]
    counts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    dropped: tuple[Dropped, ...] = ()
    evaluated: int = 0
    cut: int = 0
    anytime: bool = False
