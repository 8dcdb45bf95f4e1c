"""Predicts many measured rows at once: through the same role, leaves, rules and machine as a plan, with everything held.

Choices that a row leaves blank are free: the best that its rules allow is the prediction.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill import data
from tokenmill.candidates.evaluate import Setting, group_values
from tokenmill.candidates.program import PlacedRule, Program, prepare
from tokenmill.candidates.search import Ask, Context, settings_of
from tokenmill.catalog import Catalog, load_catalog
from tokenmill.efficiency import GENERIC
from tokenmill.errors import TokenmillError
from tokenmill.imports.architecture import load_architecture
from tokenmill.reading import load_problem
from tokenmill_models.stage import Role, stages

Array = NDArray[np.float64]
TOLERANCE = 1e-9
UNSTRUCTURAL = frozenset({"name", "family", "source", "aliases", "notes", "evidence", "checked", "indices"})


@cache
def stage_of(folder: str) -> str:
    """Return the stage that predicts the rows of a folder under measured/."""
    with (data.path("measured") / "stages.toml").open("rb") as file:
        return str(tomllib.load(file)[folder])


@cache
def stages_alike(folder: str) -> tuple[str, ...]:
    """Return the stage that predicts the rows of a folder, and those whose runs hold the same tensors."""
    with (data.path("measured") / "stages.toml").open("rb") as file:
        return (stage_of(folder), *tomllib.load(file)["same_memory"].get(stage_of(folder), ()))


@dataclass(frozen=True)
class Case:
    """One measured row as a problem: `model` a catalogue name or the fields of a configuration; `workload` the keys of its table.

    `group`: rows that stay on one side of a split. `fabric`: a network of the catalogue in place of the system's usual one.
    `role`: the role of the stage that is predicted ("": its first).
    """

    row: str
    accelerator: str
    group: str
    system: str
    model: str | Mapping[str, Any]
    workload: Mapping[str, Any]
    stage: str = field(default_factory=lambda: stage_of("training"))
    fabric: str | None = None
    role: str = ""


@dataclass(frozen=True)
class Prediction:
    """Figures of the best layout that the row allows (SI, by figure name); `fits`: it stays within memory."""

    figures: Mapping[str, float]
    fits: bool


@dataclass(frozen=True)
class Batch:
    """Layouts of many cases whose roles have one structure, on one chip in one format (a key of `Chip.peak`).

    `values` of all leaves by symbol name, arrays over layouts; `cases`: number of the case that each layout belongs to.
    """

    program: Program
    chip: str
    precision: str
    outputs: tuple[str, ...]
    cases: NDArray[np.int64]
    values: Mapping[str, Any]
    allowed: NDArray[np.bool_]
    engine: str = GENERIC

    def evaluate(self, constants: Mapping[str, Any]) -> dict[str, Array]:
        """Return figures (and ``room``, B left in memory) of every layout with some leaves replaced by `constants`."""
        capacity = [r for r in _capacity(self.program) if all(q.symbol.name in self.values for q in r.needs.scalars)]
        arrays = self._arrays(constants, [side for rule in capacity for side in (rule.left, rule.right)])
        named = dict(zip(self.outputs, arrays, strict=False))
        sides = arrays[len(self.outputs) :]
        room = [right - left for left, right in zip(sides[::2], sides[1::2], strict=True)]
        named["room"] = np.fmin.reduce(room) if room else np.full(self.cases.shape, np.inf)
        return named

    def figures(self, constants: Mapping[str, Any]) -> dict[str, Array]:
        """Return figures as `evaluate` does, without the room that is left in memory."""
        return dict(zip(self.outputs, self._arrays(constants, []), strict=True))

    def _arrays(self, constants: Mapping[str, Any], others: Sequence[Any]) -> list[Array]:
        symbols = [symbol_of(self.program.role, name) for name in self.outputs]
        with np.errstate(all="ignore"):
            found = self.program.compile([*symbols, *others])({**self.values, **constants}).values()
        return [np.broadcast_to(np.asarray(value, float), self.cases.shape) for value in found]

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return the layouts at `rows`."""
        of_all = self.cases.shape
        values = {name: value[rows] if np.shape(value) == of_all else value for name, value in self.values.items()}
        return replace(self, cases=self.cases[rows], values=values, allowed=self.allowed[rows])


def symbol_of(role: Role, name: str) -> Any:
    """Return the symbol of a figure of a role, or of a definition of its graph."""
    return role.figures[name] if name in role.figures else role.graph.named(name)


def structure(item: Any) -> Any:
    """Return what of an architecture shapes its formulas: names, kinds, and whether a number is 0, 1 or more."""
    if is_dataclass(item) and not isinstance(item, type):
        return tuple((f.name, structure(getattr(item, f.name))) for f in fields(item) if f.name not in UNSTRUCTURAL)
    if isinstance(item, Mapping):
        return tuple(sorted((key, structure(value)) for key, value in item.items()))
    if isinstance(item, tuple | list):
        return tuple(structure(value) for value in item)
    if isinstance(item, int | float) and not isinstance(item, bool):
        return min(item, 2) if item >= 0 else -1
    return item


Constants = Mapping[tuple[str, str, str], Mapping[str, float]] | Callable[[Batch], Mapping[str, Any]]
"""Leaves by symbol name that replace the catalogue's, by chip, format and engine or of a batch."""


@dataclass(frozen=True)
class _Best:
    """The best layout of a case: its rank, the number of its batch, its row there, and what is predicted of it."""

    rank: float
    batch: int
    row: int
    prediction: Prediction


class Predictor:
    """Batches of cases, built once and evaluated for any values of the constants.

    Of the layouts that a case leaves open, that with the lowest (`highest`: the highest) first output is its prediction.
    """

    def __init__(
        self, cases: Sequence[Case], outputs: Sequence[str] = ("step_time",), catalog: Catalog | None = None,
        highest: bool = False,
    ) -> None:  # fmt: skip
        self.cases = list(cases)
        self.outputs = tuple(outputs)
        self.sign = -1.0 if highest else 1.0
        self.catalog = catalog or load_catalog()
        self.refused: dict[int, str] = {}
        self._programs: dict[Any, Program] = {}
        with TemporaryDirectory() as folder:
            laid = [self._laid(index, case, Path(folder)) for index, case in enumerate(self.cases)]
        grouped: dict[Any, list[_Laid]] = {}
        for one in (entry for entries in laid for entry in entries):
            case = self.cases[one.case]
            place = (one.context.binder.system.id, case.fabric, self._format(one.context), engine_of(case))
            grouped.setdefault((id(one.context.program), place), []).append(one)
        self.batches = [_batch(entries, self.outputs, place[2], place[3]) for (_, place), entries in grouped.items()]

    def predict(
        self,
        constants: Constants | None = None,
        among: NDArray[np.bool_] | None = None,
    ) -> list[Prediction | None]:
        """Return a prediction for every case (None: refused, see `refused`).

        `among`: which cases matter (the others may stay None).
        """
        found = self._found(constants or {}, among)
        for index in range(len(self.cases)):
            if index not in found and among is None:
                self.refused.setdefault(index, "no layout keeps the rules")
        return [found[index].prediction if index in found else None for index in range(len(self.cases))]

    def held(self, constants: Constants) -> Predictor:
        """Return a predictor of the same cases, each with the one layout that is best under `constants`."""
        rows: dict[int, list[int]] = {}
        for one in self._found(constants, None).values():
            rows.setdefault(one.batch, []).append(one.row)
        narrow = copy(self)
        narrow.batches = [self.batches[number].take(np.array(sorted(kept))) for number, kept in rows.items()]
        return narrow

    def _found(self, constants: Constants, among: NDArray[np.bool_] | None) -> dict[int, _Best]:
        found: dict[int, _Best] = {}
        for number, batch in enumerate(self.batches):
            if among is not None and not among[batch.cases].any():
                continue
            place = (batch.chip, batch.precision, batch.engine)
            named = batch.evaluate(constants(batch) if callable(constants) else constants.get(place, {}))
            for row, prediction in _best(batch, named, self.outputs, self.sign):
                case = int(batch.cases[row])
                rank = self.sign * prediction.figures[self.outputs[0]] if prediction.fits else np.inf
                if case not in found or rank < found[case].rank:
                    found[case] = _Best(rank, number, row, prediction)
        return found

    def _format(self, context: Context) -> str:
        return self.catalog.precision(str(context.binder.words["compute"])).compute

    def _laid(self, index: int, case: Case, folder: Path) -> list[_Laid]:
        try:
            ask = self._ask(case, folder)
            role, program = self._program(case, ask)
            system = self.catalog.system(case.system)
            return [_Laid(index, context, grids) for context, grids in settings_of(ask, role, program, system)]
        except TokenmillError as error:
            self.refused[index] = str(error)
            return []

    def _ask(self, case: Case, folder: Path) -> Ask:
        name = case.model
        if not isinstance(name, str):
            text = json.dumps(dict(name), sort_keys=True)
            path = folder / f"{abs(hash(text))}.json"
            path.write_text(text, encoding="utf-8")
            name = str(path)
        problem = load_problem(
            {
                "objective": {"minimise": "cost"},
                "hardware": {"systems": [case.system]} | ({"fabric": case.fabric} if case.fabric else {}),
                "assume": {"memory_fraction": 1.0},
                "workload": [{"name": "run", "stage": case.stage, "model": name, **case.workload}],
            },
            catalog=self.catalog,
        )
        arch = load_architecture(name)
        return Ask(problem.workloads[0], stages()[case.stage], problem, self.catalog, arch, ())

    def _program(self, case: Case, ask: Ask) -> tuple[Role, Program]:
        key = (case.stage, case.role, structure(ask.architecture))
        if key not in self._programs:
            self._programs[key] = prepare(ask.roles[case.role or next(iter(ask.roles))])
        return self._programs[key].role, self._programs[key]


@dataclass(frozen=True)
class _Laid:
    case: int
    context: Context
    grids: Mapping[str, Any]


def engine_of(case: Case) -> str:
    """Return the class of frameworks of a case."""
    return str(case.workload.get("engine", {}).get("name", GENERIC))


def _batch(entries: Sequence[_Laid], outputs: tuple[str, ...], precision: str, engine: str) -> Batch:
    program, setting = entries[0].context.program, entries[0].context.setting
    axes = [step for step in program.steps if step.axis is not None]
    rows = [list(product(*(entry.grids[step.name] for step in axes))) for entry in entries]
    counts = [len(one) for one in rows]
    cases = np.repeat([entry.case for entry in entries], counts)
    laid = np.array([row for one in rows for row in one], float)
    values: dict[str, Any] = {step.carried: laid[:, i] for i, step in enumerate(axes)}
    leaves = [_single(entry.context.setting) for entry in entries]
    for name in dict.fromkeys(name for given in leaves for name in given):
        single = np.array([given.get(name, np.nan) for given in leaves], float)
        values[name] = float(single[0]) if (single == single[0]).all() else np.repeat(single, counts)
    values |= group_values(program, sorted(program.sizes), values, setting)
    allowed = _allowed(program, values, entries, np.repeat(np.arange(len(entries)), counts))
    chip = entries[0].context.binder.chip.id
    return Batch(program, chip, precision, outputs, cases, values, allowed, engine)


def _single(setting: Setting) -> dict[str, float]:
    """Return the leaves of a setting with one class of requests."""
    return {**setting.scalars, **{name: float(values[0]) for name, values in setting.classes.items()}}


def _rules(program: Program) -> Iterable[PlacedRule]:
    return (*program.before, *(rule for step in program.steps for rule in step.rules))


def _capacity(program: Program) -> list[PlacedRule]:
    return [placed for placed in _rules(program) if placed.rule.kind == "capacity"]


def _allowed(
    program: Program, values: Mapping[str, Any], entries: Sequence[_Laid], of_row: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which layouts keep every rule but capacity (a rule that names an absent input does not apply to its case)."""
    keep = np.ones(of_row.shape, bool)
    for placed in _rules(program):
        if placed.rule.kind == "capacity":
            continue
        names = [q.symbol.name for q in placed.needs.scalars]
        applies = np.array([all(n in e.context.setting.scalars for n in names) for e in entries])[of_row]
        if not applies.any():
            continue
        with np.errstate(all="ignore"):
            found = list(program.compile([placed.left, placed.right])(values).values())
        left, right = (np.broadcast_to(np.asarray(side, float), keep.shape) for side in (found[0], found[-1]))
        keep &= ~applies | _holds(placed.rule.kind, left, right)
    return keep


def _holds(kind: str, left: Array, right: Array) -> NDArray[np.bool_]:
    with np.errstate(all="ignore"):
        if kind == "divides":
            ratio = right / left
            return np.asarray((np.abs(ratio - np.round(ratio)) <= TOLERANCE) & (ratio > 0.5))
        if kind == "equal":
            return np.asarray(np.abs(left - right) <= TOLERANCE * np.maximum(1.0, np.abs(right)))
        return np.asarray(left - right <= TOLERANCE * np.abs(right))


def _best(
    batch: Batch, named: Mapping[str, Array], outputs: tuple[str, ...], sign: float
) -> Iterator[tuple[int, Prediction]]:
    """Yield for every case the row of the best of its allowed layouts that fit (of all, where none fits), and its prediction."""
    fits = named["room"] >= 0
    at = np.flatnonzero(batch.allowed)
    order = at[np.lexsort((sign * named[outputs[0]][at], ~fits[at], batch.cases[at]))]
    _, first = np.unique(batch.cases[order], return_index=True)
    for best in order[first]:
        figures = {name: float(named[name][best]) for name in outputs}
        yield int(best), Prediction(figures, bool(fits[best]))
