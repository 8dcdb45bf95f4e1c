"""From a workload to its columns: every role, system and word, searched, pruned, and named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from os import cpu_count
from typing import Any

import numpy as np

from tokenmill.candidates.bind import Binder, Leaf
from tokenmill.candidates.choices import held_values, numeric_values, word_combinations
from tokenmill.candidates.columns import Column, CouplingUse, Dropped, WorkloadColumns
from tokenmill.candidates.evaluate import MACHINE, GroupTable, Setting, Tally, blocks
from tokenmill.candidates.gather import Gathered, Read, columns_of, gather, plain
from tokenmill.candidates.program import ONLY, PART, Needs, Program, group_leaves, prepare
from tokenmill.candidates.quality import below, enough
from tokenmill.candidates.thrift import cheapest, read_of
from tokenmill.catalog import Catalog, System
from tokenmill.catalog_stores import STORE, suits
from tokenmill.errors import CatalogError, Mistake, ProblemError
from tokenmill.offers import Offer
from tokenmill.problem import Problem, Workload
from tokenmill.topology import Machine, machine_of
from tokenmill_models.stage import Role, Route, StageModel

CHIPS, SYSTEM = "layout.chips", "layout.system"
WORKERS = min(4, cpu_count() or 1)
"""Threads of the array search: numpy lets go of the interpreter while it works on a block."""
MOST_CHIPS = 1 << 17
"""Chips of the largest machine that is laid out where nothing limits it."""


@dataclass(frozen=True)
class Context:
    """What a column was evaluated in: enough to evaluate any definition of its role again, with provenance."""

    program: Program
    binder: Binder
    setting: Setting
    leaves: Mapping[str, Leaf]
    classes: Mapping[str, tuple[Leaf, ...]]

    @property
    def absent(self) -> frozenset[str]:
        """Names of leaves that are not given: rules that name one do not apply."""
        single = {name for name, leaf in self.leaves.items() if leaf.value is None}
        return frozenset(single | {n for n, leaves in self.classes.items() if any(x.value is None for x in leaves)})


@dataclass(frozen=True)
class Searched:
    """Columns of one workload, the context of each by its key, and systems that could not be evaluated, with why."""

    columns: WorkloadColumns
    contexts: Mapping[str, Context]
    left_out: Mapping[str, str]


@dataclass(frozen=True)
class Ask:
    """A workload with all that its search reads.

    `power_matters`: the programme reads power (limits, own electricity). `models`: further models by the input that names them.
    `offers`: what can be had, and at what price.
    """

    workload: Workload
    stage: StageModel
    problem: Problem
    catalog: Catalog
    architecture: Any
    systems: tuple[System, ...]
    power_matters: bool = False
    models: Mapping[str, Any] = field(default_factory=dict)
    offers: tuple[Offer, ...] = ()

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """Defaults of the stage's inputs by dotted name (of a record: without the list's name)."""
        return {i.name.rpartition("[].")[2]: i.default for i in self.stage.inputs if i.default is not None}

    @cached_property
    def roles(self) -> dict[str, Role]:
        """The stage's roles for this model, by name."""
        stage = self.stage
        try:
            made = (
                stage.staffed(self.architecture, self.models, {**self.workload.held, **self.workload.values})
                if stage.staffed
                else stage.roles(self.architecture)
            )
        except ValueError as error:
            if len(error.args) != 3:
                raise
            key, found, allowed = error.args
            raise ProblemError([Mistake(f"workload.{self.workload.name}.{key}", found, allowed)]) from error
        return {role.name: role for role in made}

    def model_of(self, role: Role) -> Any:
        """Return the architecture of a role: of the model it names, else the workload's."""
        return self.models.get(role.model, self.architecture) if role.model else self.architecture


def search(ask: Ask) -> Searched:
    """Search every role that an offered route passes; return pruned columns, and a reason for every dropped row."""
    routes = tuple(route for route in ask.stage.routes if route_offered(route, ask.workload))
    names = dict.fromkeys(name for route in routes for name in route.roles) or dict.fromkeys(ask.roles)
    contexts: dict[str, Context] = {}
    left_out: dict[str, str] = {}
    columns: dict[str, tuple[Column, ...]] = {}
    dropped: list[Dropped] = []
    evaluated = 0
    for name in names:
        gathered, tallies = _search_role(ask, ask.roles[name], left_out)
        made = columns_of(ask.workload.name, ask.roles[name], gathered, ask.stage.couplings, ask.power_matters)
        for _, evaluated_in in made:
            contexts |= evaluated_in
        columns[name] = tuple(column for column, _ in made)
        dropped += _dropped(ask, ask.roles[name], tallies)
        if ask.workload.min_quality:
            dropped += _below_quality(ask, ask.roles[name])
        evaluated += sum(tally.evaluated for _, tally in tallies)
    found = WorkloadColumns(
        workload=ask.workload.name,
        stage=ask.stage.name,
        kind="run" if ask.stage.demand is None else "pool",
        columns=columns,
        routes=tuple(route.roles for route in routes) or tuple((name,) for name in names),
        couplings=_couplings(ask, columns),
        classes=tuple(c.name for c in ask.workload.classes) or ("all",),
        shares=tuple(c.share for c in ask.workload.classes) or (1.0,),
        counts=yields_of(ask, contexts),
        dropped=tuple(dropped),
        evaluated=evaluated,
        cut=sum(row.count for row in dropped),
        anytime=ask.stage.demand is not None and ask.stage.demand.anytime,
    )
    return Searched(found, contexts, left_out)


def route_offered(route: Route, workload: Workload) -> bool:
    """Return whether the file's words, or the defaults in `when`, offer a route."""
    for key, words in route.when.items():
        given = workload.held.get(key)
        if given is None and workload.values.get(key) is not None:
            given = (workload.values[key],)
        if given is not None and not set(given) & set(words):
            return False
    return True


def _search_role(ask: Ask, role: Role, left_out: dict[str, str]) -> tuple[list[Gathered], list[tuple[str, Tally]]]:
    program = prepare(role)
    parts = {name: _search_role(ask, part, left_out) for name, part in role.parts.items()}
    tallies: list[tuple[str, Tally]] = [entry for _, inner in parts.values() for entry in inner]
    thrifty: dict[Any, list[Gathered]] = {}
    settings: list[tuple[str, Context, dict[str, Any]]] = []
    for system in allowed(ask, role):
        try:
            settings += [(system.id, context, grids) for context, grids in settings_of(ask, role, program, system)]
        except CatalogError as error:
            left_out[system.id] = str(error)

    def run(setting: tuple[str, Context, dict[str, Any]]) -> tuple[list[Gathered], tuple[str, Tally]]:
        name, context, grids = setting
        tally = Tally()
        chosen = {part: _thrifty(ask, context, part, rows, thrifty) for part, (rows, _) in parts.items()}
        return list(_gather(ask, context, grids, chosen, tally)), (name, tally)

    with ThreadPoolExecutor(WORKERS) as workers:
        done = list(workers.map(run, settings))
    return [rows for found, _ in done for rows in found], tallies + [tally for _, tally in done]


def _thrifty(
    ask: Ask, context: Context, part: str, rows: list[Gathered], made: dict[Any, list[Gathered]]
) -> list[Gathered]:
    """Return the rows of a part that the run needs in its words; `made`: those found so far, by what the run reads."""
    read = read_of(context.program, part, context.setting.fixed, context.absent)
    key = (part, *read.items())
    if key not in made:
        made[key] = cheapest(rows, read, ask.problem, ask.offers, ask.power_matters)
    return made[key]


def allowed(ask: Ask, role: Role) -> tuple[System, ...]:
    """Return the systems on offer on which a role may stand."""
    if role.parts:
        return ask.systems[:1]  # a run of parts stands where its parts do
    demand = ask.stage.demand
    held = held_values(ask.workload, role.name, SYSTEM)
    if held is None and demand is not None and demand.devices:
        held = held_values(ask.workload, role.name, demand.devices)
    if held is None and role.system is not None:
        held = ask.workload.values.get(role.system)
    may = (system for system in ask.systems if suits(system, role.hardware))
    return tuple(system for system in may if held is None or system.id in held)


def settings_of(ask: Ask, role: Role, program: Program, system: System) -> Iterator[tuple[Context, dict[str, Any]]]:
    """Yield the context and the grids of every combination of words and held chips on a system."""
    chip, model = ask.catalog.chip(system.chip), ask.model_of(role)
    needs = program.needs(role.ports.values()).union(*(r.needs for r in _rules(program)), program.needs(role.prefer))
    own = ask.workload.role_held.get(role.name, {}).get(CHIPS)  # what the workload holds is a whole run's, not a part's
    chips = (own if role.kind == "part" else held_values(ask.workload, role.name, CHIPS)) or (None,)
    tables: dict[int, dict[str, GroupTable]] = {}
    offered = word_combinations(role, ask.workload, model, ask.catalog, chip)
    for words, count in product((one for one in offered if enough(ask.workload, role, one)), chips):
        binder = Binder(
            ask.workload, ask.problem.assume, ask.catalog, model, system, chip, words,
            {} if count is None else {CHIPS: count}, ask.defaults,
        )  # fmt: skip
        leaves = {q.symbol.name: binder.leaf(q) for q in needs.scalars if not (q.origin or "").startswith("axis.")}
        for axis in program.words:
            for symbol, number in (axis.codes or {}).get(words[axis.name], {}).items():
                leaves[symbol.name] = Leaf(float(number), f"{axis.key} = {words[axis.name]}", "input")
        classes = {q.symbol.name: tuple(binder.classes(q)) for q in needs.classes}
        size = int(count or 0)
        setting = _setting(ask, system, chip, leaves, classes, size, tables.setdefault(size, {}), program.sizes)
        context = Context(program, binder, setting, leaves, classes)
        yield context, _grids(program, role, ask.workload, setting.scalars)


def _rules(program: Program) -> Iterable[Any]:
    return (*program.before, *(rule for step in program.steps for rule in step.rules))


def _setting(
    ask: Ask,
    system: System,
    chip: Any,
    leaves: Mapping[str, Leaf],
    classes: Mapping[str, tuple[Leaf, ...]],
    chips: int,
    tables: dict[str, GroupTable],
    groups: Iterable[str],
) -> Setting:
    most = None if system.hardware == STORE else ask.problem.limits.chips
    machine = _machine(ask, system, max(chips, most or MOST_CHIPS, system.chips))
    scalars = {name: leaf.value for name, leaf in leaves.items() if leaf.value is not None}
    return Setting(
        scalars=scalars,
        classes={
            name: np.array([leaf.value for leaf in values], float)
            for name, values in classes.items()
            if all(leaf.value is not None for leaf in values)
        },
        machine=machine.split(chip.ranks),
        ideal=ask.problem.assume.efficiency == "ideal",
        tables=tables,
        fixed={n: v for n, v in scalars.items() if v in (0.0, 1.0)} | _levels_fixed(groups, machine),
    )


def _levels_fixed(groups: Iterable[str], machine: Machine) -> dict[str, float]:
    """Return the group leaves that a machine fixes: a level it lacks joins no one, a switch adds up what passes or not."""
    fixed: dict[str, float] = {}
    for group in groups:
        for leaf, part, level in group_leaves(group):
            there = level < len(machine.levels)
            if part == "reduces":
                fixed[leaf] = float(there and machine.levels[level].in_switch_reduction)
            elif not there and part in ("n", "alpha"):
                fixed[leaf] = 1.0 if part == "n" else 0.0
    return fixed


def _machine(ask: Ask, system: System, chips: int) -> Machine:
    """Return the user's own machine, else that of so many chips, or of one system where nothing would join more."""
    hardware = ask.problem.hardware
    if hardware.topology is not None:
        from tokenmill.imports.topology import read_topology

        return read_topology(hardware.topology)
    fabric = ask.catalog.network(hardware.fabric) if hardware.fabric else None
    try:
        return machine_of(system, fabric, chips)
    except CatalogError:
        return machine_of(system, fabric, system.chips)


def _grids(program: Program, role: Role, workload: Workload, scalars: Mapping[str, float]) -> dict[str, Any]:
    grids: dict[str, Any] = {ONLY: np.zeros(1)}
    for step in program.steps:
        if step.axis is not None:
            grids[step.name] = numeric_values(step.axis, role.name, workload, scalars)
    return grids


def _gather(
    ask: Ask, context: Context, grids: dict[str, Any], parts: Mapping[str, list[Gathered]], tally: Tally
) -> Iterator[Gathered]:
    role, absent = context.program.role, context.absent
    for name, chosen in parts.items():
        grids[f"{PART}{name}"] = np.arange(float(sum(part.rows for part in chosen)))
    setting = replace(context.setting, parts=_part_leaves(context.program, parts))
    context = replace(context, setting=setting)
    found = blocks(context.program, grids, setting, role.ports, absent, tally)
    read = Read.of(role, ask.stage.couplings, ask.power_matters)
    rows = gather(context, context.program, found, read, parts)
    if rows is not None:
        yield rows


def _part_leaves(program: Program, parts: Mapping[str, list[Gathered]]) -> dict[str, Any]:
    """Return the port arrays of the parts' rows by the name of the leaf that reads them."""
    role = program.role
    needs: Needs = program.needs([*role.ports.values(), *role.figures.values(), *role.shares.values()])
    needs = needs.union(*(rule.needs for rule in _rules(program)))
    leaves: dict[str, Any] = {}
    for quantity in needs.parts:
        _, part, port = (quantity.origin or "").split(".")
        leaves[quantity.symbol.name] = np.concatenate([rows.port(port) for rows in parts[part]] or [np.empty(0)])
    return leaves


def _couplings(ask: Ask, columns: Mapping[str, Sequence[Column]]) -> tuple[CouplingUse, ...]:
    uses = []
    for index, coupling in enumerate(ask.stage.couplings):
        if coupling.source in columns and coupling.target in columns:
            total = None
            if coupling.budget is not None:
                from tokenmill_models.symbols import quantity

                given = (quantity(coupling.budget[2]).origin or "").partition(".")[2]
                total = ask.workload.values.get(given, ask.defaults.get(given))
            name = f"{coupling.kind}{index}"
            keys = {axis.name: axis.key for axis in ask.roles[coupling.source].axes}
            match = tuple(keys.get(axis, axis) for axis in coupling.match)
            uses.append(CouplingUse(name, coupling.source, coupling.target, coupling.kind, total, match))
    return tuple(uses)


def yields_of(ask: Ask, contexts: Mapping[str, Context]) -> dict[str, tuple[float, ...]]:
    """Return units per unit of demand by class (or per run) of every yield, from any one context."""
    context = next(iter(contexts.values()), None)
    counts: dict[str, tuple[float, ...]] = {}
    if context is None:
        return counts
    if ask.stage.demand is not None and ask.stage.demand.devices:
        counts["cost_per_device.all"] = (
            1.0 / ask.problem.horizon.duration,
        )  # a unit of demand stands for the whole horizon
    for objective, kinds in ask.stage.yields.items():
        for kind, symbol in kinds.items():
            program = context.program
            needs = program.needs([symbol])
            values = {q.symbol.name: context.binder.leaf(q).value for q in needs.scalars}
            arrays = {
                q.symbol.name: np.array([leaf.value for leaf in context.binder.classes(q)], float)
                for q in needs.classes
            }
            (result,) = program.compile([symbol])(values | arrays).values()
            width = max(1, len(ask.workload.classes))
            counts[f"{objective}.{kind}"] = tuple(
                float(x) for x in np.broadcast_to(np.asarray(result, float), (width,))
            )
    return counts


def _below_quality(ask: Ask, role: Role) -> Iterator[Dropped]:
    """Yield the choices of formats that the least quality removes, of a role and of its parts."""
    words = {
        (one.name, system.id): list(
            word_combinations(one, ask.workload, ask.model_of(one), ask.catalog, ask.catalog.chip(system.chip))
        )
        for one in (role, *role.parts.values())
        for system in allowed(ask, one)
    }
    return below(ask.workload, (role, *role.parts.values()), words)


def _dropped(ask: Ask, role: Role, tallies: list[tuple[str, Tally]]) -> Iterator[Dropped]:
    every = (role, *role.parts.values())
    rules = {MACHINE.name: MACHINE} | {rule.name: rule for one in every for rule in one.rules}
    keys = {axis.symbol.name: axis.key for one in every for axis in one.axes if axis.symbol is not None}
    merged: dict[str, Tally] = {}
    for system, tally in tallies:
        merged.setdefault(system, Tally()).add(tally)
    for system, tally in merged.items():
        for name, count in tally.count.items():
            rule = rules[name]
            shortfall, values = tally.nearest.get(name, (None, {}))
            nearest = {keys[symbol]: plain(value) for symbol, value in values.items() if symbol in keys}
            yield Dropped(
                ask.workload.name, role.name, system, name, rule.kind, count, shortfall, rule.unit, rule.cure, nearest
            )
