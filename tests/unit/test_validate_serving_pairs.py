"""Ranking of curves of chips and layouts at one pace of their users, by hand."""

from __future__ import annotations

import pytest

from tokenmill.validate import Evaluation, Outcome, score
from tokenmill.validate_cases import Case
from tokenmill.validate_serving_pairs import Loaded, compared, front, loaded, rate
from tokenmill.validate_serving_rows import Row


def row(chip: str, concurrency: float, tpot: float, ttft: float, tp: int = 2, version: str = "1") -> Row:
    workload = {
        "demand": {
            "input_tokens": {"mean": 900.0},
            "output_tokens": {"mean": 101.0},
            "arrivals": {"concurrency": concurrency},
        },
        "layout": {"tp": tp, "pp": 1},
        "engine": {"attention_dp": 1, "version": version},
    }
    return Row(Case("x", chip, f"m/{chip}", chip, "m", workload, "serving"), {"tpot": tpot, "ttft": ttft})


def test_a_point_follows_littles_law() -> None:
    # 8 in flight of 101 tokens each take 1 s + 100 x 0.02 s = 3 s; two chips: 8 x 101 / 3 / 2
    one = loaded(row("a", 8, 0.02, 1.0), {"tpot.mean": 0.04, "ttft.mean": 1.0})
    assert one.measured == pytest.approx((50.0, 8 * 101 / 3 / 2))
    assert one.predicted == pytest.approx((25.0, 8 * 101 / 5 / 2))


def test_a_front_leaves_out_what_another_point_beats_in_both() -> None:
    assert front([(10, 100), (20, 80), (15, 70), (40, 10)]) == [(10, 100), (20, 80), (40, 10)]


@pytest.mark.parametrize(
    ("pace", "expected"),
    [
        (5, 100),  # slower than asked is always had
        (10, 100),
        (20, 50),  # between (10, 100) and (40, 25): as 1000 / pace
        (40, 25),
        (80, 12.5),  # on by the same power
    ],
)
def test_rate_at_a_pace_is_interpolated_by_powers(pace: float, expected: float) -> None:
    assert rate([(10, 100), (40, 25)], pace) == pytest.approx(expected)


def test_one_point_says_nothing_of_a_faster_pace() -> None:
    assert rate([(10, 100)], 11) == 0.0


@pytest.mark.parametrize(("faster", "right"), [("a", 1.0), ("b", 0.0)])
def test_chips_are_ranked_right_or_wrong(faster: str, right: float) -> None:
    # measured: a is twice as fast as b at every load
    rows = []
    for chip, tpot in (("a", 0.01), ("b", 0.02)):
        for load in (1, 2, 4):
            slow = 1.0 if chip == faster else 2.0
            figures = {"tpot.mean": 0.01 * slow * load, "ttft.mean": 0.1}
            rows.append(loaded(row(chip, load, tpot * load, 0.1), figures))
    chips, layouts, _ = compared(rows)
    assert chips.metric == "chips, one pace"
    assert chips.count > 0
    assert chips.right == right
    assert (layouts.count, layouts.right) == (0, None)


def test_layouts_of_two_builds_are_compared_but_not_as_those_of_one() -> None:
    def curve(tp: int, version: str) -> list[Loaded]:
        return [
            loaded(row("a", n, 0.01 * tp * n, 0.1, tp, version), {"tpot.mean": 0.01 * n * tp, "ttft.mean": 0.1})
            for n in (1, 2, 4)
        ]

    two, one = compared([*curve(2, "1"), *curve(4, "2")]), compared([*curve(2, "1"), *curve(4, "1")])
    assert [found.metric for found in two] == ["chips, one pace", "layouts, one pace", "layouts of a build, one pace"]
    assert two[1].count == one[1].count == one[2].count > 0
    assert (two[2].count, two[2].right) == (0, None)


def test_pairs_of_a_setting_count_where_they_part_by_a_tenth() -> None:
    def outcome(predicted: float, measured: float) -> Outcome:
        return Outcome("chip", "tpot", "g", predicted, measured, setting="s")

    # 1.00 and 1.05 do not part; both part from 2.0, of which one pair is named wrong (predicted 3.0 over 2.5)
    found = score(
        "f", "chip", "tpot", outcomes := [outcome(1, 1.0), outcome(3, 1.05), outcome(2.5, 2.0)], Evaluation(outcomes, 3)
    )
    assert found.pairs_right == 0.5
