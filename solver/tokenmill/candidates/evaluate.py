"""Array evaluation of a role: axes laid down one after another, rules applied as soon as their symbols exist."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.candidates.program import NOTHING, Inner, Needs, PlacedRule, Program, group_leaves
from tokenmill.topology import Machine
from tokenmill_models.stage import Rule

BLOCK = 1 << 16
MANY = 1 << 19
"""Cells from which making a function for the fixed leaves of a search saves more than it costs."""
LARGE = 1 << 16
"""Cells from which rules and figures are worked out in turn."""
CHEAP = 16
"""Definitions up to which a rule is looked at before anything dearer is worked out."""
TOLERANCE = 1e-9
MACHINE = Rule(
    "machine", None, None, "at_most", "a layout stands on the ranks of its machine", cure="hardware.topology"
)

Array = NDArray[np.float64]


@dataclass
class Tally:
    """Rows that each rule removed, and the nearest of them: (shortfall in the rule's unit, its axis values)."""

    count: dict[str, int] = field(default_factory=dict)
    nearest: dict[str, tuple[float, dict[str, float]]] = field(default_factory=dict)
    evaluated: int = 0

    def add(self, other: Tally) -> None:
        """Add the rows of another tally."""
        self.evaluated += other.evaluated
        for name, number in other.count.items():
            self.count[name] = self.count.get(name, 0) + number
        for name, miss in other.nearest.items():
            if miss[0] < self.nearest.get(name, (np.inf, {}))[0]:
                self.nearest[name] = miss

    def record(self, placed: PlacedRule, failed: NDArray[np.bool_], gap: Array, rows: Mapping[str, Array]) -> None:
        """Count the failed rows of a rule and keep the one that misses it by least."""
        number = int(np.count_nonzero(failed))
        if not number:
            return
        name = placed.rule.name
        self.count[name] = self.count.get(name, 0) + number
        amounts = np.where(failed & np.isfinite(gap), gap, np.inf)
        at = np.unravel_index(int(np.argmin(amounts)), amounts.shape)
        least = float(amounts[at])
        if least < self.nearest.get(name, (np.inf, {}))[0]:
            values = {key: float(np.broadcast_to(value, amounts.shape)[at]) for key, value in rows.items()}
            self.nearest[name] = (least, values)


@dataclass(frozen=True)
class Setting:
    """What stays the same over one array search.

    `scalars`: leaves by symbol name; `classes`: leaves by symbol name as arrays over request classes; `machine`:
    levels of the machine in ranks; `parts`: port leaves of parts
    by symbol name, arrays over the part's rows; `ideal`: latencies are zero; `tables`: what groups get, as looked up so far;
    `fixed`: leaves of 0 or 1, whose terms and branches fall away.
    """

    scalars: Mapping[str, float]
    classes: Mapping[str, Array]
    machine: Machine
    parts: Mapping[str, Array] = field(default_factory=dict)
    ideal: bool = False
    tables: dict[str, GroupTable] = field(default_factory=dict, compare=False)
    fixed: Mapping[str, float] = field(default_factory=dict)

    @property
    def class_count(self) -> int:
        """Number of request classes (1 where there are none)."""
        return max((array.size for array in self.classes.values()), default=1)


class GroupTable:
    """What the groups of one machine get, by size and stride: filled as they are met, looked up ever after."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.sizes = np.empty(0)
        self.strides = np.empty(0)
        self.columns: dict[tuple[str, int], Any] = {}
        self.filling = Lock()

    def look_up(self, size: Any, stride: Any) -> tuple[dict[tuple[str, int], Any], Any]:
        """Return the flat columns by (field, level), and where in them each pair of size and stride stands (broadcast)."""
        size, stride = np.asarray(size, float), np.asarray(stride, float)
        with self.filling:
            return self._filled(size, stride)

    def _filled(self, size: Array, stride: Array) -> tuple[dict[tuple[str, int], Any], Any]:
        found = _places(self.sizes, size), _places(self.strides, stride)
        if found[0] is None or found[1] is None:
            self.sizes = np.unique(np.concatenate([self.sizes, size.reshape(-1)]))
            self.strides = np.unique(np.concatenate([self.strides, stride.reshape(-1)]))
            groups = self.machine.groups(self.sizes[:, None].astype(np.int64), self.strides[None, :].astype(np.int64))
            self.columns = {}
            for part in ("n", "beta", "alpha", "pair", "exchange"):
                for level, column in enumerate(getattr(groups, part)):
                    same = bool((column == column.flat[0]).all())
                    self.columns[part, level] = float(column.flat[0]) if same else column.astype(float).ravel()
            found = _places(self.sizes, size), _places(self.strides, stride)
        return self.columns, found[0] * self.strides.size + found[1]


def _places(known: Array, wanted: Array) -> Any:
    """Return where the wanted values stand among the known, None where one is not there."""
    if not known.size:
        return None
    at = np.minimum(np.searchsorted(known, wanted), known.size - 1)
    return at if (known.take(at) == wanted).all() else None


def group_values(
    program: Program,
    names: Sequence[str],
    values: Mapping[str, Any],
    setting: Setting,
    wanted: Container[str] | None = None,
) -> dict[str, Any]:
    """Return the leaves (all, or the wanted) of the groups `names` at the axis values; shaped as size and stride broadcast."""
    leaves: dict[str, Any] = {}
    for name in names:
        size, stride = program.compile(program.sizes[name])(values).values()
        if name not in setting.tables:
            setting.tables.setdefault(name, GroupTable(setting.machine))
        columns, index = setting.tables[name].look_up(size, stride)
        for leaf, part, level in group_leaves(name):
            if wanted is None or leaf in wanted:
                leaves[leaf] = _group_field(columns, part, level, setting, index)
    return leaves


def _group_field(columns: Mapping[tuple[str, int], Any], part: str, level: int, setting: Setting, index: Any) -> Any:
    if part == "reduces":
        levels = setting.machine.levels
        return float(level < len(levels) and levels[level].in_switch_reduction)
    if part == "alpha" and setting.ideal:
        return 0.0
    column = columns[part, level]
    return column if isinstance(column, float) else column.take(index)


def call(
    program: Program, outputs: Sequence[Any], needs: Needs, axes: Mapping[str, Any], setting: Setting, many: bool
) -> list[Any]:
    """Evaluate outputs at the axis values `axes` (by symbol name; parts by ``part:<name>`` as row indices).

    `many`: so many cells that a function made for the fixed leaves alone is worth its making.
    """
    values = dict(setting.scalars) | {name: value for name, value in axes.items() if ":" not in name}
    for quantity in needs.parts:
        part = (quantity.origin or "").split(".")[1]
        values[quantity.symbol.name] = setting.parts[quantity.symbol.name][axes[f"part:{part}"].astype(np.int64)]
    values |= {name: array[:, None, None] for name, array in setting.classes.items()}
    compiled = program.compile(outputs, setting.fixed if many else None)
    wanted = frozenset(symbol.name for symbol in compiled.inputs)
    values |= group_values(program, sorted(needs.groups), values, setting, wanted)
    with np.errstate(all="ignore"):
        results = compiled(values)
    return [results[symbol.name] for symbol in outputs]


def _failures(placed: PlacedRule, left: Any, right: Any) -> tuple[NDArray[np.bool_], Array]:
    """Return which rows miss a rule, and by how much (in its unit); shaped as its two sides broadcast."""
    left, right = np.asarray(left, float), np.asarray(right, float)
    if placed.rule.kind == "divides":
        ratio = np.asarray(right / left)
        gap = np.asarray(np.rint(ratio))
        np.abs(np.subtract(ratio, gap, out=gap), out=gap)
        passed = np.asarray(gap <= TOLERANCE)
        passed &= ratio > 0.5
        return np.logical_not(passed, out=passed), np.multiply(gap, left, out=gap)
    if placed.rule.kind == "equal":
        gap = np.abs(left - right)
        return ~(gap <= TOLERANCE * np.maximum(1.0, np.abs(right))), gap
    gap = left - right
    return ~(gap <= TOLERANCE * np.abs(right)), gap


def apply_rules(
    program: Program,
    rules: Sequence[PlacedRule],
    axes: dict[str, Any],
    setting: Setting,
    tally: Tally,
    shape: tuple[int, ...],
    outputs: Sequence[Any] = (),
    many: bool = False,
) -> tuple[NDArray[np.bool_], list[Any]]:
    """Return which cells of `shape` pass every rule, and the outputs; a failure counts under the first rule it misses."""
    keep = np.ones(shape, bool)
    sides = [side for placed in rules for side in (placed.left, placed.right)]
    if not sides and not outputs:
        return keep, []
    needs = program.needs(outputs) if outputs else NOTHING
    results = call(program, [*sides, *outputs], needs.union(*(placed.needs for placed in rules)), axes, setting, many)
    with np.errstate(all="ignore"):
        for placed, left, right in zip(rules, results[: len(sides) : 2], results[1 : len(sides) : 2], strict=True):
            failed, gap = _failures(placed, left, right)
            if failed.any():
                failed = failed & keep
                tally.record(placed, failed, np.broadcast_to(gap, shape), axes)
                keep &= ~failed
    return keep, results[len(sides) :]


def _on_machine(
    most: int, ranks: Any, axes: Mapping[str, Any], keep: NDArray[np.bool_], tally: Tally
) -> NDArray[np.bool_]:
    """Drop layouts of more ranks than the machine has: what its topology answers for them would mean nothing."""
    over = np.broadcast_to(np.asarray(ranks, float) - most, keep.shape)
    failed = keep & (over > 0)
    tally.record(PlacedRule(MACHINE, None, None, NOTHING), failed, over, axes)
    return keep & ~failed


@dataclass(frozen=True)
class Block:
    """Evaluated cells: axis values by symbol name (shapes (n, 1, 1) and (1, k, 1)), which pass (n, k, b), outputs."""

    axes: Mapping[str, Any]
    keep: NDArray[np.bool_]
    outputs: Mapping[str, Array]


def blocks(
    program: Program,
    grids: Mapping[str, Array],
    setting: Setting,
    outputs: Mapping[str, Any],
    absent: frozenset[str],
    tally: Tally,
) -> Iterator[Block]:
    """Lay the axes down in order, cut by the rules, and yield evaluated blocks.

    `grids`: values by dimension name; `outputs`: name to symbol; `absent`: names of leaves that are not given.
    """

    def active(rules: Sequence[PlacedRule]) -> list[PlacedRule]:
        return [r for r in rules if not r.without(absent)]

    keep, _ = apply_rules(program, active(program.before), {}, setting, tally, ())
    if not keep.all():
        return
    axes: dict[str, Array] = {}
    for step in program.steps[:-1]:
        axes = _product(axes, step.carried, grids[step.name])
        count = next(iter(axes.values())).size
        keep, _ = apply_rules(program, active(step.rules), axes, setting, tally, (count,))
        axes = {name: value[keep] for name, value in axes.items()}
        if not keep.any():
            return
    yield from _last(program, axes, grids, setting, outputs, active, tally)


def _product(axes: dict[str, Array], name: str, values: Array) -> dict[str, Array]:
    rows = next(iter(axes.values())).size if axes else 1
    wider = {key: np.repeat(array, values.size) for key, array in axes.items()}
    return wider | {name: np.tile(values, rows)}


def _last(
    program: Program, parents: dict[str, Array], grids: Mapping[str, Array], setting: Setting,
    outputs: Mapping[str, Any], active: Any, tally: Tally,
) -> Iterator[Block]:  # fmt: skip
    step = program.steps[-1]
    values = grids[step.name]
    rules = active(step.rules)
    wanted = list(outputs.values())
    rows = next(iter(parents.values())).size if parents else 1
    cells = rows * values.size * setting.class_count
    many = cells > MANY
    if cells > LARGE and not setting.classes and not (step.axis is not None and step.axis.operate):
        yield from _in_turn(program, parents, values, setting, outputs, rules, tally, many)
        return
    span = max(1, BLOCK // max(1, values.size * setting.class_count))
    for start in range(0, rows, span):
        # parents lie innermost in memory: numpy's inner loops run over thousands of them, not over one axis' few values
        axes: dict[str, Any] = {name: array[start : start + span] for name, array in parents.items()}
        axes[step.carried] = values[:, None]
        shape = (setting.class_count, values.size, min(span, rows - start))
        keep, results = apply_rules(program, rules, axes, setting, tally, shape, wanted, many)
        tally.evaluated += keep.size
        if "ranks" in outputs and not program.role.parts:
            keep = _on_machine(setting.machine.chips, results[list(outputs).index("ranks")], axes, keep, tally)
        if keep.any():
            arrays = (np.broadcast_to(np.asarray(value, float), shape).transpose(2, 1, 0) for value in results)
            shaped = {name: np.atleast_2d(value).transpose()[:, :, None] for name, value in axes.items()}
            shaped[step.carried] = values[None, :, None]
            yield Block(shaped, keep.transpose(2, 1, 0), dict(zip(outputs, arrays, strict=True)))


def _in_turn(
    program: Program, parents: dict[str, Array], values: Array, setting: Setting, outputs: Mapping[str, Any],
    rules: Sequence[PlacedRule], tally: Tally, many: bool,
) -> Iterator[Block]:  # fmt: skip
    """Yield the cells that pass, one a row: cheap rules cut the grid, dear ones what is left, and outputs are worked out for the rest."""
    cheap, dear = _by_cost(program, rules)
    carried, wanted = program.steps[-1].carried, list(outputs.values())
    rows = next(iter(parents.values())).size if parents else 1
    inner = program.inner([*wanted, *(side for placed in dear for side in (placed.left, placed.right))])
    settled, place = _settled(program, inner, parents, setting)
    span = max(1, BLOCK // values.size)
    for start in range(0, rows, span):
        some = {name: array[start : start + span] for name, array in parents.items()}
        width = min(span, rows - start)
        grid: dict[str, Any] = {**some, carried: values[:, None]}
        keep, _ = apply_rules(program, cheap, grid, setting, tally, (values.size, width), (), many)
        tally.evaluated += keep.size
        upper, lower = np.nonzero(keep)
        cells = {**{name: array[lower] for name, array in some.items()}, carried: values[upper]}
        at = place[start : start + span][lower]
        if upper.size:
            known = cells | {name: values.take(at) for name, values in settled.items()}
            keep, _ = apply_rules(inner.rest, dear, known, setting, tally, upper.shape, (), many)
            cells, at = {name: array[keep] for name, array in cells.items()}, at[keep]
        shape = cells[carried].shape
        if shape == (0,):
            continue
        known = cells | {name: values.take(at) for name, values in settled.items()}
        keep, results = apply_rules(inner.rest, (), known, setting, tally, shape, wanted, many)
        if "ranks" in outputs and not program.role.parts:
            keep = _on_machine(setting.machine.chips, results[list(outputs).index("ranks")], cells, keep, tally)
        if keep.any():
            found = (np.broadcast_to(np.asarray(value, float), shape)[:, None, None] for value in results)
            shaped = {name: array[:, None, None] for name, array in cells.items()}
            yield Block(shaped, keep[:, None, None], dict(zip(outputs, found, strict=True)))


def _settled(
    program: Program, inner: Inner, parents: Mapping[str, Array], setting: Setting
) -> tuple[dict[str, Array], NDArray[np.intp]]:
    """Return the inner symbols' values by name, one for each combination of their axes, and which of them each parent has."""
    rows = next(iter(parents.values())).size if parents else 1
    code = np.zeros(rows, np.intp)
    for name in inner.axes:
        values, place = np.unique(parents[name], return_inverse=True)
        code = code * values.size + place
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    axes = {name: array[first] for name, array in parents.items()}
    found = call(program, inner.symbols, program.needs(inner.symbols), axes, setting, False) if inner.symbols else []
    arrays = (np.broadcast_to(np.asarray(value, float), first.shape) for value in found)
    return dict(zip((symbol.name for symbol in inner.symbols), arrays, strict=True)), place


def _by_cost(program: Program, rules: Sequence[PlacedRule]) -> tuple[list[PlacedRule], list[PlacedRule]]:
    """Split rules into those that few definitions and no exchange settle, and the others; each in their order."""
    cheap = [
        one for one in rules if not one.needs.groups and len(program.graph.needs((one.left, one.right))[0]) <= CHEAP
    ]
    return cheap, [one for one in rules if one not in cheap]
