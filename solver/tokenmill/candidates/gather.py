"""Evaluated blocks gathered into rows, pruned exactly, and made into columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, frexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.candidates.columns import Column, CouplingEnd, OperatingPoint
from tokenmill.candidates.evaluate import Block
from tokenmill.candidates.program import PART, Program
from tokenmill.candidates.prune import pareto, thin
from tokenmill_models.stage import Coupling, Role

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Gathered:
    """Rows of one context.

    `axes`: values by axis name (parts: ``part:<name>``, row numbers), arrays (rows,). `points`: values of the operating
    axis (k,), one 0 where there is none. `ports`: arrays (rows, k, classes).
    """

    context: Any
    axes: Mapping[str, Array]
    points: Array
    ports: Mapping[str, Array]
    parts: Mapping[str, Sequence[Gathered]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(next(iter(self.ports.values())).shape[0])

    def port(self, name: str) -> Array:
        """Return a port of a run or part, one value a row."""
        return self.ports[name][:, 0, 0]

    def take(self, index: NDArray[np.int64]) -> Gathered:
        """Return the rows at `index`."""
        axes = {name: values[index] for name, values in self.axes.items()}
        return Gathered(self.context, axes, self.points, {n: v[index] for n, v in self.ports.items()}, self.parts)


@dataclass(frozen=True)
class Read:
    """What the programme reads of a role's rows beside ranks and rate: power or not, and the ports of couplings."""

    power: bool
    ports: tuple[str, ...] = ()

    @classmethod
    def of(cls, role: Role, couplings: Sequence[Coupling], power: bool) -> Read:
        """Return what is read of a role in these couplings."""
        names = [c.per_unit for c in couplings if c.source == role.name]
        for coupling in couplings:
            if coupling.budget is not None:
                names += [
                    p
                    for r, p in zip((coupling.source, coupling.target), coupling.budget, strict=False)
                    if r == role.name
                ]
        return cls(power, tuple(dict.fromkeys(names)))


def gather(
    context: Any, program: Program, found: Iterable[Block], read: Read, parts: Mapping[str, Sequence[Gathered]]
) -> Gathered | None:
    """Return the rows of the blocks that pass, pruned block by block; None where no row passes."""
    pieces = []
    for block in found:
        made = _pool if program.role.kind == "pool" else _flat
        piece = made(context, program, block, parts)
        if piece.rows:
            pieces.append(piece.take(survivors(piece, program.role, read)))
    if not pieces:
        return None
    whole = Gathered(
        context,
        {name: np.concatenate([piece.axes[name] for piece in pieces]) for name in pieces[0].axes},
        pieces[0].points,
        {name: np.concatenate([piece.ports[name] for piece in pieces]) for name in pieces[0].ports},
        parts,
    )
    return whole.take(survivors(whole, program.role, read))


def _names(program: Program) -> dict[str, str]:
    """Return axis name (or ``part:<name>``) by the name under which a block carries it."""
    return {step.carried: step.name for step in program.steps}


def _pool(context: Any, program: Program, block: Block, parts: Mapping[str, Sequence[Gathered]]) -> Gathered:
    """Rows are build layouts, the operating axis stays a dimension; a cell that fails a rule has rate 0."""
    names = _names(program)
    last = program.steps[-1]
    rate = np.where(block.keep, block.outputs["rate"], 0.0)
    outputs = dict(block.outputs) | {"rate": np.where(np.isfinite(rate), rate, 0.0)}
    carried = {key: value for key, value in block.axes.items() if key in names}
    count, width, classes = block.keep.shape
    if last.axis is not None and last.axis.operate:
        points = np.ravel(carried.pop(last.carried))
        axes = {names[name]: np.broadcast_to(value, (count, 1, 1))[:, 0, 0] for name, value in carried.items()}
        ports = outputs
    else:
        points = np.zeros(1)
        axes = {names[n]: np.broadcast_to(v, (count, width, 1)).reshape(-1) for n, v in carried.items()}
        ports = {name: value.reshape(count * width, 1, classes) for name, value in outputs.items()}
    whole = Gathered(context, axes, points, ports, parts)
    return whole.take(np.flatnonzero((ports["rate"] > 0).any(axis=(1, 2))))


def _flat(context: Any, program: Program, block: Block, parts: Mapping[str, Sequence[Gathered]]) -> Gathered:
    """Rows are the cells that pass (runs and parts know no request classes)."""
    names = _names(program)
    keep = block.keep[:, :, 0]
    at = np.flatnonzero(keep)
    axes = {
        names[name]: np.broadcast_to(value, (*keep.shape, 1))[:, :, 0].reshape(-1)[at]
        for name, value in block.axes.items()
        if name in names
    }
    ports = {name: value[:, :, :1].reshape(-1, 1, 1)[at] for name, value in block.outputs.items()}
    return Gathered(context, axes, np.zeros(1), ports, parts)


def survivors(rows: Gathered, role: Role, read: Read) -> NDArray[np.int64]:
    """Return the rows that no other row makes superfluous, replica for replica, among rows of one context."""
    if role.kind == "pool":
        return pareto(_pool_costs(rows, read))
    if role.kind == "part":
        return pareto(np.column_stack([rows.port(name) for name in sorted(role.ports)]))
    further = [rows.port(name) for name in ("power_idle", "power_loaded") if read.power]
    if role.parts:
        return _by_systems(rows, role, np.column_stack([rows.port("duration"), *further]))
    others = np.column_stack(further) if further else np.empty((rows.rows, 0))
    return thin(rows.port("ranks"), rows.port("duration"), others)


def _by_systems(rows: Gathered, role: Role, costs: Array) -> NDArray[np.int64]:
    """Prune a run of parts among rows whose parts stand on the same systems, by the ranks of every part and the costs."""
    systems, ranks = [], []
    for name in role.parts:
        at = rows.axes[f"{PART}{name}"].astype(np.int64)
        of_row = np.concatenate([np.full(part.rows, number) for number, part in enumerate(rows.parts[name])])
        names = [part.context.binder.system.id for part in rows.parts[name]]
        number = {system: order for order, system in enumerate(dict.fromkeys(names))}
        systems.append(np.array([number[names[i]] for i in of_row[at]], dtype=np.int64))
        ranks.append(np.concatenate([part.port("ranks") for part in rows.parts[name]])[at])
    criteria = np.column_stack([*ranks, costs])
    kinds, which = np.unique(np.column_stack(systems), axis=0, return_inverse=True)
    kept = []
    for kind in range(len(kinds)):
        members = np.flatnonzero(which.reshape(-1) == kind)
        kept.append(members[pareto(criteria[members])])
    return np.sort(np.concatenate(kept))


def _pool_costs(rows: Gathered, read: Read) -> Array:
    """Return the criteria of a pool's rows (smaller is better): ranks, coupling ports, rate and, where read, power.

    Without power only the best rate of a class counts, whatever the operating point; with power every point does.
    """
    count = rows.rows
    rate = rows.ports["rate"]
    others = [rows.ports[name].reshape(count, -1) for name in ("ranks", *read.ports)]
    if not read.power:
        return np.column_stack([*others, -rate.max(axis=1)])
    draws = [rows.ports[name].reshape(count, -1) for name in ("power_idle", "power_loaded")]
    return np.column_stack([*others, *draws, -rate.reshape(count, -1)])


def columns_of(
    workload: str, role: Role, gathered: Sequence[Gathered], couplings: Sequence[Coupling], power: bool
) -> list[tuple[Column, dict[str, Any]]]:
    """Return a column for every row left, with the contexts that it and its parts were evaluated in, by key."""
    made = []
    for rows in _across(gathered, role, couplings, Read.of(role, couplings, power)):
        for index in range(rows.rows):
            contexts: dict[str, Any] = {}
            made.append((_column(workload, role, rows, index, couplings, power, contexts), contexts))
    return sorted(made, key=lambda pair: pair[0].key)


def _across(gathered: Sequence[Gathered], role: Role, couplings: Sequence[Coupling], read: Read) -> Iterable[Gathered]:
    """Prune rows of one system and equal matching words against one another over their contexts."""
    match = {axis for c in couplings if role.name in (c.source, c.target) for axis in c.match}
    classes: dict[Any, list[Gathered]] = {}
    for rows in gathered:
        words = tuple(str(rows.context.binder.words.get(axis)) for axis in sorted(match))
        classes.setdefault((rows.context.binder.system.id, words, rows.points.size), []).append(rows)
    numeric = {axis for axis in match if gathered and axis in gathered[0].axes}
    for members in classes.values():
        if len(members) == 1 or numeric or role.parts:
            yield from members
            continue
        ports = {name: np.concatenate([m.ports[name] for m in members]) for name in members[0].ports}
        whole = Gathered(None, {}, members[0].points, ports)
        kept = survivors(whole, role, read)
        offset = 0
        for member in members:
            here = kept[(kept >= offset) & (kept < offset + member.rows)] - offset
            offset += member.rows
            if here.size:
                yield member.take(here)


def plain(value: float) -> float | int:
    """Return a whole number as int, any other as float."""
    return int(value) if float(value).is_integer() else float(value)


def _column(
    workload: str, role: Role, rows: Gathered, index: int, couplings: Sequence[Coupling], power: bool, contexts: dict[str, Any]
) -> Column:  # fmt: skip
    binder = rows.context.binder
    keys = {axis.name: axis.key for axis in role.axes}
    values: dict[str, Any] = {name: plain(array[index]) for name, array in rows.axes.items() if name in keys}
    values |= {name: word for name, word in binder.words.items() if name in keys}
    chosen = {name: values[name] for name in keys if name in values}
    parts = tuple(
        _part_column(workload, role.parts[name], rows.parts[name], int(rows.axes[f"{PART}{name}"][index]), contexts)
        for name in role.parts
    )
    taken = float(rows.ports["ranks"][index, 0, 0]) / binder.chip.ranks
    shared = "shared" in role.ports and float(rows.ports["shared"][index, 0, 0]) > 0
    footprint = _footprint(parts, shared) or ((binder.system.id, round(taken) or ceil(taken)),)
    text = "-".join([f"{name}={value}" for name, value in chosen.items()] + [part.key for part in parts])
    ports = {name: value[index] for name, value in rows.ports.items()}
    key = f"{workload}.{role.name}.{binder.system.id}.{text}"
    contexts[key] = rows.context
    return Column(
        key=key,
        workload=workload,
        role=role.name,
        kind=role.kind,
        system=binder.system.id,
        chips=sum(count for _, count in footprint),
        footprint=footprint,
        layout={keys[name]: value for name, value in chosen.items()},
        points=_points(role, rows, index, power) if role.kind == "pool" else (),
        power_idle=float(ports["power_idle"].flat[0]) if "power_idle" in ports else 0.0,
        power_loaded=float(ports["power_loaded"].max()) if "power_loaded" in ports else 0.0,
        duration=float(ports["duration"].flat[0]) if "duration" in ports else None,
        ends=_ends(role, ports, values, couplings),
        parts=parts,
        share=taken if role.kind == "pool" and _part_of_a_chip(taken) else 1.0,
    )


def _part_of_a_chip(taken: float) -> bool:
    """Tell whether chips are a half, a quarter, ... of one: a power of two, which floats hold exactly."""
    return 0 < taken < 1 and frexp(taken)[0] == 0.5


def _footprint(parts: Sequence[Column], shared: bool) -> tuple[tuple[str, int], ...]:
    """Return what the parts of a run occupy; parts that take turns (`shared`) on one system stand on the same chips."""
    if not shared:
        return tuple(p for part in parts for p in part.footprint)
    most: dict[str, int] = {}
    for part in parts:
        for system, chips in part.footprint:
            most[system] = max(most.get(system, 0), chips)
    return tuple(most.items())


def _part_column(workload: str, role: Role, gathered: Sequence[Gathered], row: int, contexts: dict[str, Any]) -> Column:
    for rows in gathered:
        if row < rows.rows:
            return _column(workload, role, rows, row, (), False, contexts)
        row -= rows.rows
    raise IndexError(f"part {role.name}: row {row} is not there")


def _points(role: Role, rows: Gathered, index: int, power: bool) -> tuple[OperatingPoint, ...]:
    """Return the operating points worth keeping: per class the best rate, or with power the whole (rate, power) front."""
    rate, load = rows.ports["rate"][index], rows.ports["power_loaded"][index].max(axis=1)
    keep: set[int] = set()
    for of_class in rate.T:
        usable = np.flatnonzero(of_class > 0)
        if not usable.size:
            continue
        if power:
            keep |= {int(usable[i]) for i in pareto(np.column_stack([-of_class[usable], load[usable]]))}
        else:
            keep.add(int(usable[np.argmax(of_class[usable])]))
    axis = next((axis for axis in role.axes if axis.operate), None)
    return tuple(
        OperatingPoint(
            {axis.key: plain(rows.points[k])} if axis else {},
            tuple(float(r) for r in rate[k]),
            float(load[k]),
        )
        for k in sorted(keep)
    )


def _ends(
    role: Role, ports: Mapping[str, Array], values: Mapping[str, Any], couplings: Sequence[Coupling]
) -> dict[str, CouplingEnd]:
    ends = {}
    for number, coupling in enumerate(couplings):
        if role.name not in (coupling.source, coupling.target):
            continue
        source = role.name == coupling.source
        budget = 0.0
        if coupling.budget is not None:
            budget = float(ports[coupling.budget[0 if source else 1]].max())
        per_unit = tuple(float(x) for x in ports[coupling.per_unit].max(axis=0)) if source else ()
        match = tuple(values[axis] for axis in coupling.match)
        ends[f"{coupling.kind}{number}"] = CouplingEnd(match, budget, per_unit)
    return ends
