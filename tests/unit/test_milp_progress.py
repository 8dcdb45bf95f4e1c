"""Whoever watches a solve hears of bound, best plan and gap in the objective's own unit."""

import numpy as np
import pytest

from tokenmill.milp.highs import solve_arrays
from tokenmill.milp.progress import Progress, moment, watched, watcher
from tokenmill.milp.rows import Arrays


def knapsacks(n=40, rows=12, seed=3):
    """Return a multi-row covering programme that takes a search."""
    draw = np.random.default_rng(seed)
    cost, dense = draw.uniform(1e6, 2e6, n), draw.uniform(1, 30, (rows, n)).round()
    return Arrays(
        cost=cost, lower=np.zeros(n), upper=np.full(n, 3.0), integer=np.ones(n, bool), starts=np.arange(rows + 1) * n,
        index=np.tile(np.arange(n), rows), value=dense.ravel(), row_lower=np.full(rows, 177.0), row_upper=np.full(rows, np.inf),
        offset=0.0,
    )  # fmt: skip


def test_moments_bracket_the_answer_and_the_gap_closes():
    heard: list[Progress] = []
    with watched(heard.append):
        outcome = solve_arrays(knapsacks(), gap=0.0)
    assert watcher() is None
    told = [m for m in heard if m.bound is not None and m.incumbent is not None]
    assert told
    for m in told:
        assert m.bound <= outcome.objective * (1 + 1e-9)
        assert m.incumbent >= outcome.objective * (1 - 1e-9)
    assert told[-1].gap <= told[0].gap


def test_nobody_hears_outside_the_block():
    heard: list[Progress] = []
    with watched(heard.append):
        pass
    solve_arrays(knapsacks(n=10, rows=3))
    assert not heard


def test_what_is_not_known_is_not_said():
    assert moment(3.0, -1e30, float("inf"), 2.0).text() == "3 s: no plan yet"
    assert moment(3.0, 10.0, 11.0, 2.0).text() == "3 s: best 5.5, bound 5, gap 9.09%"
    assert moment(0.0, 10.0, 11.0, 2.0).gap == pytest.approx(1 / 11)
