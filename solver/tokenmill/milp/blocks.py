"""Many variables or rows at once, as arrays: what a programme of a large fleet is stated from."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenmill.milp.rows import Row

Label = tuple[Hashable, ...]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Block:
    """Variables `start` on, or rows; `label` makes the label of one from its place in the block."""

    prefix: Label
    start: int
    label: Callable[[int], Label]

    def label_of(self, number: int) -> Label:
        """Return the whole label of a variable or row by its number in the programme."""
        return (*self.prefix, *self.label(number - self.start))


@dataclass(frozen=True)
class RowBlock(Block):
    """Rows of one sense without a requirement: terms of row n are those from starts[n] to starts[n + 1]."""

    starts: Integers
    index: Integers
    value: Floats
    sense: str
    right: Floats

    def row(self, number: int) -> Row:
        """Return one row by its number in the programme."""
        from tokenmill.milp.rows import Row

        n = number - self.start
        part = slice(int(self.starts[n]), int(self.starts[n + 1]))
        terms = dict(zip(self.index[part].tolist(), self.value[part].tolist(), strict=True))
        label = self.label_of(number)
        return Row(f"{self.prefix[0]}.{number}", label, terms, self.sense, float(self.right[n]), None)


@dataclass
class Labels:
    """Labels of variables, in order; those of blocks are made when asked for."""

    items: list[Label | Block] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.items)

    def at(self, number: int) -> Label:
        """Return the label of a variable."""
        item = self.items[number]
        return item.label_of(number) if isinstance(item, Block) else item

    def family(self, number: int) -> str:
        """Return the family of a variable."""
        item = self.items[number]
        return str(item.prefix[0] if isinstance(item, Block) else item[0])


@dataclass
class Rows:
    """Rows, in order; those of blocks are made when asked for."""

    items: list[Row | RowBlock] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Row:
        item = self.items[number]
        return item.row(number) if isinstance(item, RowBlock) else item

    def __setitem__(self, number: int, row: Row) -> None:
        if isinstance(self.items[number], RowBlock):
            raise TypeError("a row of a block stays as it was stated")
        self.items[number] = row

    def __iter__(self) -> Iterator[Row]:
        return (self[number] for number in range(len(self.items)))

    def required(self) -> Iterator[tuple[int, Row]]:
        """Return number and row of all that stand for a limit of the user's (rows of blocks stand for none)."""
        for number, item in enumerate(self.items):
            if not isinstance(item, RowBlock) and item.requirement is not None:
                yield number, item

    def parts(self) -> Iterator[list[Row] | RowBlock]:
        """Return the rows in order: lists of single ones, and whole blocks."""
        singles: list[Row] = []
        number = 0
        while number < len(self.items):
            item = self.items[number]
            if not isinstance(item, RowBlock):
                singles.append(item)
                number += 1
                continue
            if singles:
                yield singles
                singles = []
            yield item
            number += len(item.right)
        if singles:
            yield singles


def matrix(rows: Rows) -> tuple[Integers, Integers, Floats, Floats, NDArray[np.str_]]:
    """Return lengths of rows, indices, coefficients, right-hand sides and senses of all rows, in order."""
    lengths: list[Integers] = []
    index: list[Integers] = []
    value: list[Floats] = []
    right: list[Floats] = []
    senses: list[NDArray[np.str_]] = []
    for part in rows.parts():
        if isinstance(part, RowBlock):
            lengths.append(np.diff(part.starts))
            index.append(part.index)
            value.append(part.value)
            right.append(part.right)
            senses.append(np.full(len(part.right), part.sense, dtype="U2"))
            continue
        lengths.append(np.array([len(row.terms) for row in part], dtype=np.int64))
        index.append(np.array([i for row in part for i in row.terms], dtype=np.int64))
        value.append(np.array([c for row in part for c in row.terms.values()], dtype=np.float64))
        right.append(np.array([row.right for row in part], dtype=np.float64))
        senses.append(np.array([row.sense for row in part], dtype="U2"))
    if not lengths:
        none = np.zeros(0)
        return none.astype(np.int64), none.astype(np.int64), none, none, none.astype("U2")
    return (
        np.concatenate(lengths), np.concatenate(index), np.concatenate(value), np.concatenate(right),
        np.concatenate(senses),
    )  # fmt: skip
