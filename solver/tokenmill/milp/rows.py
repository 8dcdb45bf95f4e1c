"""The one door to the programme: every variable and row is recorded here, checked, and stated in PuLP.

A name is the family and a running number (``replicas.12``): letters, digits and dots only, so that every solver and
file format takes it; the label says what it is in the problem's own terms.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf, isfinite
from re import fullmatch
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.errors import SolverError
from tokenmill.milp.blocks import Block, Floats, Integers, Label, Labels, RowBlock, Rows, matrix

if TYPE_CHECKING:
    import pulp

SENSES = ("<=", "=", ">=")
NAME = r"[A-Za-z_][A-Za-z0-9_.]*"


@dataclass
class Linear:
    """A linear expression: coefficient by variable index, and a constant."""

    terms: dict[int, float] = field(default_factory=dict)
    constant: float = 0.0

    def add(self, index: int, coefficient: float = 1.0) -> Linear:
        """Add `coefficient` times a variable; returns itself."""
        self.terms[index] = self.terms.get(index, 0.0) + coefficient
        return self

    def many(self, indices: Iterable[int], coefficients: Iterable[float] | float = 1.0) -> Linear:
        """Add variables, each of them new here, with a coefficient each or one for all; returns itself."""
        if isinstance(coefficients, float):
            self.terms.update(dict.fromkeys(indices, coefficients))
        else:
            self.terms.update(zip(indices, coefficients, strict=True))
        return self

    def plus(self, other: Linear, factor: float = 1.0) -> Linear:
        """Add `factor` times another expression; returns itself."""
        terms = self.terms
        if terms:
            for index, coefficient in other.terms.items():
                terms[index] = terms.get(index, 0.0) + factor * coefficient
        else:
            terms.update({index: factor * coefficient for index, coefficient in other.terms.items()})
        self.constant += factor * other.constant
        return self

    def value(self, values: NDArray[np.float64]) -> float:
        """Return the expression's value at `values` (one an index)."""
        return self.constant + float(sum(c * values[i] for i, c in self.terms.items()))


@dataclass(frozen=True)
class Requirement:
    """What a row asks, in the user's words, and how it may be eased.

    `key`: path in the problem file, shared by all rows of one limit; one shortfall eases them all. `relax`: by how much
    one unit of it eases a row; `scale`: what one unit of it is in
    `unit`. `cure`: what to do about it. `step`: the stated step of "one more" (None: not asked).
    `weight`: how late a shortfall of it is to be chosen among several.
    """

    key: str
    limit: str
    unit: str
    cure: str
    relax: float = 1.0
    scale: float = 1.0
    step: float | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Row:
    """One recorded row: terms, sense and right-hand side (the left side's constant is moved there)."""

    name: str
    label: tuple[Hashable, ...]
    terms: Mapping[int, float]
    sense: str
    right: float
    requirement: Requirement | None


@dataclass(frozen=True)
class Arrays:
    """A programme as arrays: minimise cost·v + offset, row_lower <= A v <= row_upper; A by rows (starts, index, value)."""

    cost: NDArray[np.float64]
    offset: float
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    integer: NDArray[np.bool_]
    row_lower: NDArray[np.float64]
    row_upper: NDArray[np.float64]
    starts: NDArray[np.int32]
    index: NDArray[np.int32]
    value: NDArray[np.float64]


class Programme:
    """Variables and rows, in the order in which they came.

    Raises
    ------
    SolverError
        On NaN or infinite coefficients, empty ranges, names of other signs, and duplicate labels.
    """

    def __init__(self) -> None:
        self._labels = Labels()
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.integer: list[bool] = []
        self.rows = Rows()
        self._index: dict[Label, int] = {}
        self._row_labels: set[Label] = set()

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def names(self) -> Sequence[str]:
        """Names of all variables: family and number."""
        return [f"{self._labels.family(number)}.{number}" for number in range(len(self._labels))]

    @property
    def labels(self) -> Sequence[Label]:
        """Labels of all variables: family, and what the variable is in the problem's own terms."""
        return [self._labels.at(number) for number in range(len(self._labels))]

    def of_family(self, family: str) -> list[int]:
        """Return the indices of all variables of a family that were recorded one by one."""
        return [n for n, item in enumerate(self._labels.items) if not isinstance(item, Block) and item[0] == family]

    def variable(
        self, family: str, *label: Hashable, upper: float = inf, lower: float = 0.0, integer: bool = False
    ) -> int:
        """Record a variable and return its index."""
        full = (family, *label)
        _check_name(family, full)
        if full in self._index:
            raise SolverError(f"variable {full} is stated twice")
        if not (lower <= upper and isfinite(lower)):
            raise SolverError(f"variable {full}: bounds {lower} .. {upper}")
        self._index[full] = len(self)
        self._labels.items.append(full)
        self.lower.append(float(lower))
        self.upper.append(float(upper))
        self.integer.append(integer)
        return len(self) - 1

    def variables(
        self, family: str, *prefix: Hashable, count: int, label: Callable[[int], Label],
        upper: float = inf, integer: bool = False,
    ) -> int:  # fmt: skip
        """Record `count` variables from 0 to `upper` and return the index of the first; `label` names one by its place."""
        full = (family, *prefix)
        _check_name(family, full)
        if full in self._index:
            raise SolverError(f"variables {full} are stated twice")
        first = self._index[full] = len(self)
        self._labels.items += [Block(full, first, label)] * count
        self.lower += [0.0] * count
        self.upper += [float(upper)] * count
        self.integer += [integer] * count
        return first

    def row(
        self,
        family: str,
        *label: Hashable,
        left: Linear,
        sense: str,
        right: float = 0.0,
        requirement: Requirement | None = None,
    ) -> None:
        """Record the row ``left (<= | = | >=) right``; terms of coefficient 0 are left out."""
        full = (family, *label)
        _check_name(family, full)
        if full in self._row_labels:
            raise SolverError(f"row {full} is stated twice")
        if sense not in SENSES:
            raise SolverError(f"row {full}: sense {sense!r}; allowed: {', '.join(SENSES)}")
        terms = {i: c for i, c in left.terms.items() if c != 0.0}
        if not all(map(isfinite, terms.values())):
            raise SolverError(f"{full}: a number of the programme is nan or infinite")
        self._row_labels.add(full)
        right = _finite(float(right) - left.constant, full)
        self.rows.items.append(Row(f"{family}.{len(self.rows)}", full, terms, sense, right, requirement))

    def block(
        self, family: str, *prefix: Hashable, starts: Integers, index: Integers, value: Floats,
        sense: str, right: Floats, label: Callable[[int], Label],
    ) -> None:  # fmt: skip
        """Record rows as arrays (terms of row n from starts[n] to starts[n + 1]); none stands for a limit of the user's."""
        full = (family, *prefix)
        _check_name(family, full)
        if full in self._row_labels:
            raise SolverError(f"rows {full} are stated twice")
        if not (np.isfinite(value).all() and np.isfinite(right).all()):
            raise SolverError(f"{full}: a number of the programme is nan or infinite")
        self._row_labels.add(full)
        kept = value != 0.0
        starts = np.concatenate([[0], np.cumsum(kept)])[starts].astype(np.int64)
        rows = RowBlock(full, len(self.rows), label, starts, index[kept], value[kept], sense, right)
        self.rows.items += [rows] * len(right)

    def arrays(self, objective: Linear) -> Arrays:
        """Return the programme with `objective` to minimise, as arrays."""
        terms = objective.terms
        places = np.fromiter(terms.keys(), dtype=np.int64, count=len(terms))
        cost = np.zeros(len(self))
        cost[places] = np.fromiter(terms.values(), dtype=np.float64, count=len(terms))
        if not np.isfinite(cost).all():
            _finite(float(cost[~np.isfinite(cost)][0]), ("objective",))
        lengths, index, value, right, senses = matrix(self.rows)
        return Arrays(
            cost=cost,
            offset=_finite(objective.constant, ("objective",)),
            lower=np.array(self.lower, dtype=np.float64),
            upper=np.array(self.upper, dtype=np.float64),
            integer=np.array(self.integer, dtype=np.bool_),
            row_lower=np.where(senses == "<=", -inf, right),
            row_upper=np.where(senses == ">=", inf, right),
            starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
            index=index.astype(np.int32),
            value=value,
        )

    def state(self, objective: Linear) -> pulp.LpProblem:
        """Return the programme stated in PuLP, with `objective` to minimise."""
        import pulp

        expression = getattr(pulp.LpAffineExpression, "from_list", pulp.LpAffineExpression)
        problem = pulp.LpProblem("tokenmill", pulp.LpMinimize)
        made = [
            problem.add_variable(name, low, None if up == inf else up, "Integer" if whole else "Continuous")
            for name, low, up, whole in zip(self.names, self.lower, self.upper, self.integer, strict=True)
        ]

        def terms(of: Mapping[int, float]) -> Any:
            return expression([(made[i], float(c)) for i, c in of.items()])

        for row in self.rows:
            left = terms(row.terms)
            compared = (
                left <= row.right
                if row.sense == "<="
                else left >= row.right
                if row.sense == ">="
                else left == row.right
            )
            problem += (compared, row.name)
        problem.setObjective(terms(objective.terms) + float(objective.constant))
        return problem


def total(parts: Iterable[Linear]) -> Linear:
    """Return the sum of expressions."""
    result = Linear()
    for part in parts:
        result.plus(part)
    return result


@cache
def _is_name(family: str) -> bool:
    return fullmatch(NAME, family) is not None


def _check_name(family: str, label: tuple[Hashable, ...]) -> None:
    if not _is_name(family):
        raise SolverError(f"{label}: a family's name has letters, digits, _ and . only")


def _finite(value: float, label: tuple[Hashable, ...]) -> float:
    result = float(value)
    if not isfinite(result):
        raise SolverError(f"{label}: a number of the programme is {result}")
    return result
