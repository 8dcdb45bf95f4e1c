"""What the programme answers: how it ended, and the decisions, in the problem's own terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STATUSES = ("optimal", "feasible", "infeasible", "unbounded", "unknown", "error")


@dataclass(frozen=True)
class Termination:
    """How a solve ended. `objective` is None where there is no plan; `gap` is relative, proven by `bound`."""

    status: str
    objective: float | None = None
    bound: float | None = None
    gap: float | None = None
    limit: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Purchase:
    """Systems bought, reserved or rented at a site from `period` to `until` (both included), in a `slice` or all (None).

    `unit_price`: USD to buy one, or USD an hour of one rented; `cost`: USD over the horizon (payments less residual,
    discounted); `power`: W drawn at most; `chips`: catalogue chips of all; `price_source`: provider and date.
    `workload`: the run that rents them for itself alone, for as long as it lasts; empty for what pools and runs share.
    Chips had by the chip count as parts of a system. Own systems have the market "owned" and cost nothing here.
    """

    system: str
    site: str
    market: str
    period: int
    until: int
    slice: str | None
    count: float
    chips: float
    unit_price: float
    cost: float
    power: float
    price_source: str = ""
    workload: str = ""


@dataclass(frozen=True)
class Running:
    """Replicas of a column at a site in a period and slice, and what they carry.

    `rates`: (class index, operating-point index) to units/s carried by all of them. `utilisation`: share of the
    replicas' capacity used. `power`: W drawn by their chips. `tenure`: own, rent or spot systems carry them;
    `by_chip`: these are had by the chip.
    """

    column: str
    site: str
    period: int
    slice: str
    replicas: float
    rates: Mapping[tuple[int, int], float]
    utilisation: float
    power: float
    tenure: str = "rent"
    by_chip: bool = False


@dataclass(frozen=True)
class RunStart:
    """A run that was chosen: column, site, market that pays for it, start and end [s from the start of the horizon].

    `cost`: USD of its own rents and electricity (its rents stand among the purchases too, under its name).
    `places`: (system, tenure, by chip, chips) that it takes of shared systems.
    """

    workload: str
    column: str
    site: str
    market: str
    start: float
    end: float
    cost: float
    places: tuple[tuple[str, str, bool, int], ...] = ()


@dataclass(frozen=True)
class Electricity:
    """What own systems draw in a moment, or for a run: (what, mean IT W), PUE, seconds, USD/J, present value of a dollar."""

    what: str
    site: str
    draws: tuple[tuple[str, float], ...]
    pue: float
    seconds: float
    price: float
    discount: float

    @property
    def power(self) -> float:
        """Mean IT watts."""
        return sum(watts for _, watts in self.draws)

    @property
    def cost(self) -> float:
        """USD."""
        return self.power * self.pue * self.seconds * self.price * self.discount


@dataclass(frozen=True)
class InScenario:
    """The objective in one scenario, or its mean in the `worst` of them, and its weight in the whole objective."""

    name: str
    weight: float
    value: float
    worst: bool = False


@dataclass(frozen=True)
class Flow:
    """Bytes a second of a workload between two pools in a period and slice, and the arcs it takes with their shares used."""

    workload: str
    kind: str
    source: str
    target: str
    period: int
    slice: str
    arcs: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True)
class Packing:
    """How domains of a system are filled at a site in a period and slice.

    `pattern`: chips a replica or run, to how many of them one domain holds (one larger than a domain: 1, over `spans`
    domains). `count`: domains (or spans) filled so. `left_over`: chips left in all of these.
    """

    system: str
    site: str
    pattern: Mapping[float, float]
    count: float
    left_over: float
    period: int = 1
    slice: str = "all"
    tenure: str = "rent"
    spans: int = 1


@dataclass(frozen=True)
class Binding:
    """A limit that holds the plan back: slack (its unit) and, where re-solved, what one step more of it saves.

    `key`: path in the problem file. `step` (unit) and `saves` (objective's unit) are None where not computed.
    """

    limit: str
    key: str
    slack: float
    unit: str
    step: float | None = None
    saves: float | None = None
    dual: float | None = None


@dataclass(frozen=True)
class Had:
    """The most that a plan has of a system in a market at one time: systems (a part of one where had by the chip) and chips."""

    system: str
    market: str
    count: float
    chips: float

    @property
    def amount(self) -> str:
        """The systems in words; chips where these are no whole systems."""
        whole = abs(self.count - round(self.count)) < 1e-9
        if whole:
            return f"{self.count:g} {self.system}"
        return f"{self.chips:g} {'chip' if self.chips == 1 else 'chips'} of {self.system}"


@dataclass(frozen=True)
class Alternative:
    """A plan that lacks a kind (system, market, site, refusals) of every better one: its objective, what it has.

    `without`: the kinds that were forbidden to find it; `change`: what else is other, in words.
    """

    objective: float
    had: tuple[Had, ...]
    without: tuple[str, ...] = ()
    change: str = ""


@dataclass(frozen=True)
class Shortfall:
    """A requirement that cannot be met: by how much (its unit), whether easing it alone would do, and the cure."""

    key: str
    limit: str
    shortfall: float | None
    unit: str
    alone_would_do: bool | None
    cure: str


@dataclass(frozen=True)
class Solution:
    """The programme's whole answer; empty decisions where no plan is in hand.

    `cost_by_kind`: rent, capital, energy, storage, network, operations [USD]; `cost_by_workload`; `cost_by_period`.
    `residual`: the audit's largest residual, relative to max(1, |right-hand side|). `refused`: (workload, class, period,
    slice) to the share of its demand that is refused. `electricity`: what the cost of energy is made of. `expected`: (workload, period, slice) to the share of what pools are
    planned to carry that is expected, where there is head-room; `scenarios`: what the objective is made of, the one that the
    plan shows first; `notes`: what was rounded, skipped or held coarsely, in words.
    """

    termination: Termination
    purchases: tuple[Purchase, ...] = ()
    running: tuple[Running, ...] = ()
    runs: tuple[RunStart, ...] = ()
    flows: tuple[Flow, ...] = ()
    packing: tuple[Packing, ...] = ()
    binding: tuple[Binding, ...] = ()
    infeasible: tuple[Shortfall, ...] = ()
    cost_total: float | None = None
    cost_by_kind: Mapping[str, float] | None = None
    cost_by_workload: Mapping[str, float] | None = None
    cost_by_period: tuple[float, ...] = ()
    idle_cost: float | None = None
    carbon: float | None = None
    energy: float | None = None
    electricity: tuple[Electricity, ...] = ()
    residual: float | None = None
    refused: Mapping[tuple[str, int, int, str], float] = field(default_factory=dict)
    expected: Mapping[tuple[str, int, str], float] = field(default_factory=dict)
    scenarios: tuple[InScenario, ...] = ()
    notes: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
