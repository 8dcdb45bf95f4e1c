"""The one door to the programme: every variable and row is recorded here, checked, and stated in PuLP.

A name is the family and a running number (``replicas.12``): letters, digits and dots only, so that every solver and
file format takes it; the label says what it is in the problem's own terms.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from re import fullmatch
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.errors import SolverError

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

    def plus(self, other: Linear, factor: float = 1.0) -> Linear:
        """Add `factor` times another expression; returns itself."""
        for index, coefficient in other.terms.items():
            self.add(index, factor * coefficient)
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
        self.names: list[str] = []
        self.labels: list[tuple[Hashable, ...]] = []
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.integer: list[bool] = []
        self.rows: list[Row] = []
        self._index: dict[tuple[Hashable, ...], int] = {}
        self._row_labels: set[tuple[Hashable, ...]] = set()

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
        self._index[full] = len(self.names)
        self.names.append(f"{family}.{len(self.names)}")
        self.labels.append(full)
        self.lower.append(float(lower))
        self.upper.append(float(upper))
        self.integer.append(integer)
        return len(self.names) - 1

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
        terms = {int(i): _finite(c, full) for i, c in left.terms.items() if c != 0.0}
        self._row_labels.add(full)
        right = _finite(float(right) - left.constant, full)
        self.rows.append(Row(f"{family}.{len(self.rows)}", full, terms, sense, right, requirement))

    def arrays(self, objective: Linear) -> Arrays:
        """Return the programme with `objective` to minimise, as arrays."""
        cost = np.zeros(len(self.names))
        for index, coefficient in objective.terms.items():
            cost[index] = _finite(coefficient, ("objective",))
        right = np.array([row.right for row in self.rows], dtype=np.float64)
        senses = np.array([row.sense for row in self.rows], dtype="U2")
        lengths = [len(row.terms) for row in self.rows]
        return Arrays(
            cost=cost,
            offset=_finite(objective.constant, ("objective",)),
            lower=np.array(self.lower, dtype=np.float64),
            upper=np.array(self.upper, dtype=np.float64),
            integer=np.array(self.integer, dtype=np.bool_),
            row_lower=np.where(senses == "<=", -inf, right),
            row_upper=np.where(senses == ">=", inf, right),
            starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
            index=np.array([i for row in self.rows for i in row.terms], dtype=np.int32),
            value=np.array([c for row in self.rows for c in row.terms.values()], dtype=np.float64),
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


def _check_name(family: str, label: tuple[Hashable, ...]) -> None:
    if fullmatch(NAME, family) is None:
        raise SolverError(f"{label}: a family's name has letters, digits, _ and . only")


def _finite(value: float, label: tuple[Hashable, ...]) -> float:
    result = float(value)
    if not isfinite(result):
        raise SolverError(f"{label}: a number of the programme is {result}")
    return result
