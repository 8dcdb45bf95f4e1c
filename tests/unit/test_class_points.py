"""Figures of a request class are shown at a point that the class may run at."""

from __future__ import annotations

from dataclasses import replace

from cross_check.toys import pool_column
from tokenmill.api import class_points
from tokenmill.candidates.columns import OperatingPoint
from tokenmill.milp.solution import Running

POINTS = tuple(
    OperatingPoint({"batch": b}, rate, 1.0) for b, rate in ((64, (2.0, 1.0)), (384, (8.0, 0.0)))
)  # the second class misses a limit at 384
COLUMN = replace(pool_column(), points=POINTS)


def row(**rates):
    return Running(
        COLUMN.key,
        "here",
        1,
        "all",
        1,
        {(int(n[1]), int(n[3])): rate for n, rate in rates.items()},
        1.0,
        1.0,
        "own",
        False,
    )


def test_a_class_absent_from_the_busiest_row_keeps_its_own_point():
    busiest, other = row(c0p1=8.0), row(c0p1=4.0, c1p0=0.1)
    assert class_points(COLUMN, [other, busiest], 2) == {0: {"batch": 384}, 1: {"batch": 64}}


def test_a_class_that_is_not_carried_is_shown_within_its_limits():
    assert class_points(COLUMN, [row(c0p1=8.0)], 2) == {0: {"batch": 384}, 1: {"batch": 64}}


def test_the_busiest_row_says_where_a_class_runs():
    assert class_points(COLUMN, [row(c0p1=8.0), row(c0p0=2.0)], 2)[0] == {"batch": 64}
