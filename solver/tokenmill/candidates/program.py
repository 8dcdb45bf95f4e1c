"""A role prepared for the array search: which rule applies after which axis, and the compiled functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tokenmill_models.collectives import LEVELS
from tokenmill_models.compile import Compiled, compile_graph
from tokenmill_models.formula import Graph, alias
from tokenmill_models.stage import Axis, Role, Rule
from tokenmill_models.symbols import Quantity, quantity

GROUP_FIELDS = ("n", "beta", "alpha", "reduces", "pair", "exchange")
PART = "part:"
ONLY = "only"  # the one dimension, of one row, of a role that has no numeric choice


@dataclass(frozen=True)
class Needs:
    """What symbols depend on: numeric axes (and parts, as ``part:<name>``), groups, request classes, other leaves."""

    axes: frozenset[str]
    groups: frozenset[str]
    classes: tuple[Quantity, ...]
    parts: tuple[Quantity, ...]
    scalars: tuple[Quantity, ...]

    def union(self, *others: Needs) -> Needs:
        """Return what these and the others depend on together."""
        every = (self, *others)
        return Needs(
            frozenset().union(*(n.axes for n in every)),
            frozenset().union(*(n.groups for n in every)),
            *(
                tuple(dict.fromkeys(q for n in every for q in getattr(n, kind)))
                for kind in ("classes", "parts", "scalars")
            ),
        )


NOTHING = Needs(frozenset(), frozenset(), (), (), ())


@dataclass(frozen=True)
class PlacedRule:
    """A rule with the symbols that carry its two sides in the search graph."""

    rule: Rule
    left: Any
    right: Any
    needs: Needs

    def without(self, absent: frozenset[str]) -> bool:
        """Return whether the rule does not apply where the leaves named in `absent` are not given."""
        return any(q.symbol.name in absent for q in (*self.needs.scalars, *self.needs.classes))


@dataclass(frozen=True)
class Step:
    """One dimension of the search (a numeric axis, or the choice of a part), and the rules that apply after it."""

    name: str
    axis: Axis | None
    rules: tuple[PlacedRule, ...]

    @property
    def carried(self) -> str:
        """The name under which blocks carry its values: the axis symbol's, or ``part:<name>``."""
        return self.name if self.axis is None or self.axis.symbol is None else str(self.axis.symbol.name)


@dataclass(frozen=True)
class Inner:
    """Symbols that `axes` (as blocks carry them) alone settle, and the program that takes them as given."""

    axes: tuple[str, ...]
    symbols: tuple[Any, ...]
    rest: Program


@dataclass(frozen=True)
class Program:
    """A role as the search runs it: word axes outside, then `steps` in order, the last an array dimension of its own."""

    role: Role
    graph: Graph
    words: tuple[Axis, ...]
    before: tuple[PlacedRule, ...]
    steps: tuple[Step, ...]
    sizes: dict[str, tuple[Any, Any]]
    compiled: dict[tuple[Any, ...], Compiled] = field(default_factory=dict)
    needed: dict[tuple[Any, ...], Needs] = field(default_factory=dict)
    inners: dict[tuple[Any, ...], Inner] = field(default_factory=dict)

    def compile(self, outputs: Iterable[Any], fixed: Mapping[str, float] | None = None) -> Compiled:
        """Return the numpy function of the outputs, compiled once for all, and once for the values of `fixed` leaves."""
        wanted = tuple(outputs)
        if wanted not in self.compiled:
            self.compiled[wanted] = compile_graph(self.graph, wanted, self.wide)
        if not fixed:
            return self.compiled[wanted]
        plain = self.compiled[wanted]
        taken = {symbol.name: fixed[symbol.name] for symbol in plain.inputs if symbol.name in fixed}
        key = (wanted, *taken.items())
        if key not in self.compiled:
            self.compiled[key] = plain.fixed(taken)
        return self.compiled[key]

    @cached_property
    def wide(self) -> frozenset[Any]:
        """Leaves that carry the dimensions of the last axis or of request classes."""
        last = self.steps[-1].axis
        axes = {axis.symbol: axis.name for axis in self.role.axes if axis.codes is None}
        found = {last.symbol} if last is not None else set()
        for name, sides in self.sizes.items():
            if last is not None and last.name in _needs(self.graph, self.sizes, axes, sides).axes:
                found |= {
                    symbol for symbol in self.graph_leaves if symbol.name in {n for n, _, _ in group_leaves(name)}
                }
        return frozenset(found | {s for s in self.graph_leaves if (quantity(s).origin or "").startswith("request.")})

    @cached_property
    def graph_leaves(self) -> tuple[Any, ...]:
        """Every leaf of the search graph."""
        return tuple(self.graph.needs(self.graph.formulas)[1])

    def needs(self, outputs: Iterable[Any]) -> Needs:
        """Return what the outputs depend on."""
        wanted = tuple(outputs)
        if wanted not in self.needed:
            axes = {axis.symbol: axis.name for axis in self.role.axes if axis.codes is None}
            self.needed[wanted] = _needs(self.graph, self.sizes, axes, wanted)
        return self.needed[wanted]

    def ports_read(self, outputs: Iterable[Any], fixed: Mapping[str, float]) -> frozenset[tuple[str, str]]:
        """Return (part, port) of every port that the outputs still depend on with the leaves in `fixed` at their values."""
        origins = ((quantity(leaf).origin or "").split(".") for leaf in self.graph.read(outputs, fixed))
        return frozenset((origin[1], origin[2]) for origin in origins if origin[0] == "part" and len(origin) == 3)

    def inner(self, outputs: Iterable[Any]) -> Inner:
        """Return what of the outputs the few axes settle on which most of the arithmetic depends (never the last)."""
        wanted = tuple(outputs)
        if wanted not in self.inners:
            self.inners[wanted] = _inner(self, wanted)
        return self.inners[wanted]


def _inner(program: Program, outputs: tuple[Any, ...]) -> Inner:
    aliases = {symbol for sides in program.sizes.values() for symbol in sides} | {
        side for step in program.steps for placed in step.rules for side in (placed.left, placed.right)
    }
    sizes = [symbol for name in sorted(program.needs(outputs).groups) for symbol in program.sizes[name]]
    order, leaves = program.graph.needs([*outputs, *sizes])
    axes = {axis.symbol: axis.name for axis in program.role.axes if axis.codes is None}
    depends = {leaf: _needs(program.graph, program.sizes, axes, (leaf,)).axes for leaf in leaves}
    work: Counter[frozenset[str]] = Counter()
    for symbol in order:
        formula = program.graph.formulas[symbol]
        depends[symbol] = frozenset().union(*(depends[name] for name in formula.inputs))
        if program.steps[-1].name not in depends[symbol]:
            work[depends[symbol]] += int(formula.expr.count_ops())
    most = max((found for found in work if found), key=lambda found: work[found], default=frozenset())
    given = {symbol for symbol in order if depends[symbol] and depends[symbol] <= most and symbol not in aliases}
    read = {name for symbol in order if symbol not in given for name in program.graph.formulas[symbol].inputs}
    border = tuple(symbol for symbol in order if symbol in given and (symbol in read or symbol in outputs))
    kept = {symbol: formula for symbol, formula in program.graph.formulas.items() if symbol not in given}
    carried = tuple(step.carried for step in program.steps if step.name in most)
    return Inner(carried, border, replace(program, graph=Graph(kept), compiled={}, needed={}, inners={}))


def prepare(role: Role) -> Program:
    """Place every rule of a role after the first dimension at which all its symbols exist."""
    graph = Graph(dict(role.graph.formulas))
    words = tuple(axis for axis in role.axes if axis.codes is not None or axis.symbol is None)
    numeric = [axis for axis in role.axes if axis not in words]
    sizes = {
        group.name: (
            alias(graph, f"size_of_{group.name}", "members of the group", group.size),
            alias(graph, f"stride_of_{group.name}", "distance of its members in the numbering", group.stride),
        )
        for group in role.groups
    }
    dimensions: list[tuple[str, Axis | None]] = [(f"{PART}{name}", None) for name in role.parts]
    dimensions += [(axis.name, axis) for axis in numeric]
    dimensions = dimensions or [(ONLY, None)]
    order = {name: position + 1 for position, (name, _) in enumerate(dimensions)}
    symbols = {axis.symbol: axis.name for axis in numeric}
    placed: list[list[PlacedRule]] = [[] for _ in range(len(dimensions) + 1)]
    for index, rule in enumerate(role.rules):
        left = alias(graph, f"left_of_rule_{index}", rule.doc, rule.left)
        right = alias(graph, f"right_of_rule_{index}", rule.doc, rule.right)
        needs = _needs(graph, sizes, symbols, (left, right))
        at = len(dimensions) if needs.classes else max((order[axis] for axis in needs.axes), default=0)
        placed[at].append(PlacedRule(rule, left, right, needs))
    steps = tuple(Step(name, axis, tuple(rules)) for (name, axis), rules in zip(dimensions, placed[1:], strict=True))
    return Program(role, graph, words, tuple(placed[0]), steps, sizes)


def group_leaves(group: str) -> list[tuple[str, str, int]]:
    """Return (symbol name, field, level) of every leaf that the topology provides for a group."""
    return [(f"{field}_{group}{level}", field, level) for field in GROUP_FIELDS for level in range(LEVELS)]


def _needs(graph: Graph, sizes: dict[str, tuple[Any, Any]], axes: dict[Any, str], outputs: Iterable[Any]) -> Needs:
    _, leaves = graph.needs(outputs)
    found: dict[str, list[Quantity]] = {"axis": [], "group": [], "request": [], "part": [], "": []}
    for leaf in leaves:
        known = quantity(leaf)
        prefix = "axis" if leaf in axes else (known.origin or "").partition(".")[0]
        found[prefix if prefix in found and not (prefix == "axis" and leaf not in axes) else ""].append(known)
    groups = frozenset((q.origin or "").split(".")[1] for q in found["group"])
    named = {axes[q.symbol] for q in found["axis"]} | {PART + (q.origin or "").split(".")[1] for q in found["part"]}
    inner = [_needs(graph, sizes, axes, sizes[name]) for name in sorted(groups)]
    own = Needs(frozenset(named), groups, tuple(found["request"]), tuple(found["part"]), tuple(found[""]))
    return own.union(*inner)
