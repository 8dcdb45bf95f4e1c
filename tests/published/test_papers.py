"""Figures of papers that are formulas of stated sizes, each through the formula that `derive` prints.

Rows of measured/serving/papers.csv that are measurements, prices or recalled have the reason under `left_out`.
"""

import csv

import pytest

from tokenmill.data import path
from tokenmill.derive import derive

NO_FORMULA = ("measured", "a price, no formula", "recalled, not checked against its source")


def rows():
    with path("measured").joinpath("serving", "papers.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


ROWS = rows()
OPEN = [row for row in ROWS if row["formula"]]
CAPACITIES = [row for row in OPEN if row["metric"] == "KV cache capacity"]


def given(row):
    return {key: float(value) for key, _, value in (item.partition("=") for item in row["given"].split())}


def tolerance(row):
    """Capacities come from a profile in whole blocks of 16 tokens a stage; one figure is printed as 40 GB for 42.9."""
    return {"KV cache capacity": 2e-3, "KV cache size": 0.08}.get(row["metric"], 0.02)


@pytest.mark.parametrize("row", OPEN, ids=[row["id"] for row in OPEN])
def test_a_figure_of_a_paper_comes_out(row):
    value = derive(row["formula"]).given(given(row)).value / float(row["per"])
    assert value == pytest.approx(float(row["printed"]), rel=tolerance(row))


def test_one_row_tells_the_usable_memory_of_all_others():
    """The capacities name no share of memory: solved for from the smallest of three models, it is that of the others."""
    first, *others = sorted(CAPACITIES, key=lambda row: (row["model"], int(row["devices"])))
    solved = derive("serving.cache_tokens").solve_for("memory_share")
    known = {key: value for key, value in given(first).items() if key != "memory_share"}
    share = solved.given({**known, "cache_tokens": float(first["printed"])}).value
    assert len(others) >= 50
    for row in others:
        numbers = {**given(row), "memory_share": share}
        assert derive("serving.cache_tokens").given(numbers).value == pytest.approx(float(row["printed"]), rel=6e-3)


def test_every_row_comes_out_or_has_a_reason():
    assert len(ROWS) == 307
    assert all(row["formula"] or row["left_out"] for row in ROWS)
    formulas = [row for row in ROWS if row["left_out"] not in NO_FORMULA]
    computable = [row for row in formulas if "not stated" not in row["left_out"]]
    assert len(computable) >= 60
    assert len(OPEN) == len(computable)
