"""The day of DeepSeek's own service: its mean lengths and nodes by hand, what is scored and what is left out."""

from __future__ import annotations

import pytest

from tokenmill.validate_serving_fleet import NODES, evaluate, lengths_of_day

FILE = "deepseek_serving"


def test_lengths_follow_from_the_traffic_of_the_day():
    """608e9 prompt and 168e9 answer tokens, 4989 keys a token: answer = 4989/(608/168 + 1/2)."""
    prompt, answer = lengths_of_day()
    assert answer == pytest.approx(4989 / (608 / 168 + 0.5))
    assert prompt / answer == pytest.approx(608 / 168)


def test_nodes_of_the_day_are_within_a_fifth():
    """The report: $87,072 a day at $2 an hour and chip, 8 chips a node: 226.75 nodes on average."""
    (nodes,) = [o for o in evaluate(FILE).outcomes if o.metric == NODES]
    assert nodes.measured == pytest.approx(226.75)
    assert nodes.predicted == pytest.approx(nodes.measured, rel=0.2)


def test_every_row_is_scored_read_or_left_out_for_a_reason():
    found = evaluate(FILE)
    pools = len(found.outcomes) - 1
    traffic = 7
    assert pools + traffic + sum(found.left_out.values()) == found.rows_in_file
    assert all(found.left_out)
