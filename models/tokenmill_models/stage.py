"""What a stage declares: inputs, choices, roles, rules, couplings and figures. The solver sees nothing else of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from tokenmill_models.formula import Graph

INPUT_KINDS = (
    "number",  # one value; text with a unit where the dimension is not "1"
    "lengths",  # a count, or {mean, p95}: leaves <symbol> (mean) and those named in Input.parts
    "percentiles",  # {mean|p50|p95|p99 = value}
    "slices",  # a number, or {slice = number}
    "choice",  # a word of `among`
    "flag",  # true or false
    "name",  # a name of what `of` says (a model, a store); else free text (an engine)
    "system",  # one or several systems of the catalogue
    "architecture",  # a name of the catalogue or a path
    "records",  # a list of tables; their keys are inputs named "<this>[].<key>"
    "members",  # one word or several of `among`: {word = 1 or 0}, whose parts are leaves named "<this>.<word>"
    "table",  # a table whose keys are free: {word = number}
    "trace",  # a file of requests: what it measures stands under the keys of `fills` where the problem states nothing there
)
RULE_KINDS = ("divides", "equal", "at_most", "capacity", "limit")
ROLE_KINDS = ("pool", "run", "part")
HARDWARE = ("accelerator", "processor", "store")
ENCODER = "encoder"
"""Word of `Input.among` of the key ``model``: models that only read may stand there, too."""


@dataclass(frozen=True)
class Input:
    """One key of the problem file under `[[workload]]`, by its dotted name (``slo.tpot``, ``demand.classes[].input_tokens``).

    `symbol` receives the value; `parts` maps further fields to symbols (``{"p95": S_p95}``; percentiles: word to
    symbol). `default` None means: may be absent, and rules that name its symbol do not apply; `required` means it
    must be there. `choice` says that a list is a choice (an Axis of the same name takes it). `fills` of a trace: what it
    measures (classes, rate [1/s], gap_cv, prefix_hit, shared_head [tokens], surge) to the key that it stands for. `of` a name: what it must be
    a name of (model, store, precision), or a word of `among`; empty: free text. `whole`: fractions are refused.
    """

    name: str
    kind: str
    doc: str
    symbol: sp.Symbol | None = None
    dimension: str = "1"
    default: Any = None
    among: tuple[str, ...] = ()
    parts: Mapping[str, sp.Symbol] = field(default_factory=dict)
    required: bool = False
    minimum: float | None = 0.0
    maximum: float | None = None
    whole: bool = False
    fills: Mapping[str, str] = field(default_factory=dict)
    of: str = ""

    def __post_init__(self) -> None:
        if self.kind not in INPUT_KINDS:
            raise ValueError(f"input {self.name}: kind {self.kind!r} is not one of {INPUT_KINDS}")


@dataclass(frozen=True)
class Axis:
    """One choice. `values` is the fixed grid when the file leaves it free; a held value need not be on the grid.

    Numbers go into `symbol` as an array. Words go through `codes`: word to {symbol: number}, one word at a time for
    the whole array search. `operate`: may differ by request on one replica (batch). `key` is the dotted key in the
    file that holds it (``layout.tp``, ``precision.weights``). `default` (a tuple) is taken in place of `values`
    when the key is absent, for choices that are not searched unless listed. `grid` may compute the values from the
    leaves known so far (a function of {symbol name: number}) where they depend on the problem. `maximum`: held numbers above it are refused.
    """

    name: str
    key: str
    values: tuple[Any, ...]
    doc: str
    symbol: sp.Symbol | None = None
    codes: Mapping[str, Mapping[sp.Symbol, float]] | None = None
    operate: bool = False
    default: tuple[Any, ...] | None = None
    grid: Callable[[Mapping[str, float]], Iterable[float]] | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class Group:
    """Ranks that talk together: `size` members, `stride` apart in the numbering (innermost dimension first).

    The topology answers with the leaves that `collectives.group_leaves(name)` declares.
    """

    name: str
    size: sp.Expr
    stride: sp.Expr


@dataclass(frozen=True)
class Rule:
    """A condition that a row must meet: `left` divides | equals | is at most `right`.

    `kind`: divides, equal, at_most (shape), capacity (B), limit (a user's limit). `unit`: dimension of both sides.
    `cure`: the dotted key of the file whose release helps.
    """

    name: str
    left: sp.Expr
    right: sp.Expr
    kind: str
    doc: str
    unit: str = "1"
    cure: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in RULE_KINDS:
            raise ValueError(f"rule {self.name}: kind {self.kind!r} is not one of {RULE_KINDS}")


@dataclass(frozen=True)
class Role:
    """One kind of replica (pool), a whole run, or a part of a run.

    `ports`: what the programme reads, name to symbol. Every role: ``ranks`` (devices of a replica), ``power_idle``
    and ``power_loaded`` (W of a replica's chips). A pool: ``rate`` (units/s a replica sustains, by request class
    and operating point). A run: ``duration`` (s). A part: any, read by the run's graph as ``part.<name>.<port>``.
    `figures`: name in the plan's ``predicted`` (dotted for tables: ``memory.weights``) to symbol.
    `shares`: time share name to symbol [s], of the step. `slots`: axis names in order, outermost search first; the
    last is an array dimension of its own, so choose one on which few definitions depend. `parts`: of a run.
    `prefer`: symbols; among rows with equal ports the row with the smallest values stays. `model`: the input that names
    the model of this role, where it is not the workload's own. `hardware`: a word of HARDWARE, the only kind of system that
    it stands on; None: any that computes. `system`: the input of kind "system" that names its systems, where given. `remarks`: by
    figure, what a plan says of it where it is above zero (after its value).
    """

    name: str
    kind: str
    axes: tuple[Axis, ...]
    graph: Graph
    rules: tuple[Rule, ...]
    groups: tuple[Group, ...]
    ports: Mapping[str, sp.Symbol]
    figures: Mapping[str, sp.Symbol]
    shares: Mapping[str, sp.Symbol] = field(default_factory=dict)
    parts: Mapping[str, Role] = field(default_factory=dict)
    prefer: tuple[sp.Symbol, ...] = ()
    model: str | None = None
    hardware: str | None = None
    system: str | None = None
    remarks: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in ROLE_KINDS:
            raise ValueError(f"role {self.name}: kind {self.kind!r} is not one of {ROLE_KINDS}")
        if self.hardware not in (None, *HARDWARE):
            raise ValueError(f"role {self.name}: hardware {self.hardware!r} is not one of {HARDWARE}")


@dataclass(frozen=True)
class Route:
    """The roles that one unit of demand passes, in order (mixed; prefill then decode).

    `when`: axis or input name to the words under which the route is offered ({"engine.disaggregated": (True,)}).
    """

    name: str
    roles: tuple[str, ...]
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Coupling:
    """What passes from one role's pool to the next: `per_unit` [B a unit of demand], a port of the source role.

    `match`: axis names whose values must be equal on both sides. `budget`: (port of the source, port of the target,
    input symbol of the total): the two may not sum to more than the total; None where there is none.
    """

    source: str
    target: str
    kind: str
    per_unit: str
    match: tuple[str, ...] = ()
    budget: tuple[str, str, sp.Symbol] | None = None


@dataclass(frozen=True)
class Demand:
    """What a pool workload must carry: `unit` (request, task, page), and the inputs that state it.

    `rate`: units a second; `closed`: units that clients keep in flight, whose rate is an outcome; `classes`: kinds of unit.
    `devices`: key that names systems which users may have already; then a unit is a device that stands for as long as
    the horizon lasts, and `rate` is how many. `elastic`: the least and the most share of it that is to be served.
    `seen`: limits on times that users see: the way to them and back counts in these. `anytime`: what a period brings may be
    carried in any slice of it, so that `rate` is a mean over the day.
    """

    unit: str
    rate: str
    classes: str | None = None
    closed: str | None = None
    devices: str | None = None
    elastic: tuple[str, str] | None = None
    seen: tuple[str, ...] = ()
    anytime: bool = False


@dataclass(frozen=True)
class StageModel:
    """A stage: its name, static inputs (schema and docs come from them), and its roles for one architecture.

    `roles(architecture)` returns the roles; `architecture` is None where the stage has no model. `axes`: every axis
    of every role, once (their keys are keys of the file). `demand` None means a run. `yields`: objective name to the port that it divides by: {"cost_per_token": {"output": port, "all":
    port}} in units per unit of demand (pool) or per run (run). `staffed(architecture, models, values)` returns the roles where
    they depend (a ValueError of key, found, allowed refuses what the values lack) on
    further models (by the name of the input of kind "architecture"; of a list of tables: ``steps.2.model``), or on the
    workload's values and held choices (tuples) by dotted key; None: `roles` alone. `parts`: names of parts of a run that may have a table of
    their own. `hardware`: words of HARDWARE that its roles need beside systems that compute.
    """

    name: str
    doc: str
    inputs: tuple[Input, ...]
    roles: Callable[[Any], tuple[Role, ...]]
    routes: tuple[Route, ...] = ()
    couplings: tuple[Coupling, ...] = ()
    demand: Demand | None = None
    yields: Mapping[str, Mapping[str, sp.Symbol]] = field(default_factory=dict)
    axes: tuple[Axis, ...] = ()
    staffed: Callable[[Any, Mapping[str, Any], Mapping[str, Any]], tuple[Role, ...]] | None = None
    parts: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()


_STAGES: dict[str, StageModel] = {}

PLANNED = (
    "data",
    "pretraining",
    "sft",
    "preference",
    "rl",
    "finetuning",
    "evaluation",
    "serving",
    "edge",
    "agents",
    "lifecycle",
)


def register_stage(stage: StageModel) -> StageModel:
    """Make a stage known under its name (models/, plugins and tests call this); return it.

    Raises
    ------
    ValueError
        Where another stage has the name.
    """
    known = _STAGES.setdefault(stage.name, stage)
    if known is not stage:
        raise ValueError(f"stage {stage.name!r} is registered twice")
    return stage


def registered() -> dict[str, StageModel]:
    """Return the stages registered so far by name, without loading the shipped ones."""
    return dict(_STAGES)


def stages() -> dict[str, StageModel]:
    """Return every registered stage by name; the shipped ones register on first use."""
    import tokenmill_models.agents
    import tokenmill_models.batch_serving
    import tokenmill_models.data
    import tokenmill_models.edge
    import tokenmill_models.embedding
    import tokenmill_models.evaluation
    import tokenmill_models.finetuning
    import tokenmill_models.posttraining
    import tokenmill_models.pretraining
    import tokenmill_models.rl
    import tokenmill_models.serving  # noqa: F401

    return dict(sorted(_STAGES.items()))
