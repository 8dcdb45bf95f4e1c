"""The day of DeepSeek's own service: its mean lengths and nodes by hand, what is scored and what is left out."""

from __future__ import annotations

import pytest

from tokenmill import validate_serving_memory
from tokenmill.validate_devices import measured, predictions
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


@pytest.mark.slow
def test_what_fails_to_start_is_known_by_weights_cache_and_device():
    """405B: 487 GB of weights on 8 x 80 GB and a step of 131,072 tokens; DeepSeek-V2 before vLLM kept latents; a long context;
    gpt-oss-120b on one H100: its padded experts and the logits of 1024 sequences leave no room for 131,072 tokens."""
    found = validate_serving_memory.evaluate("reported_cases")
    tried = [o.fits for o in found.outcomes if o.fits is not None]
    failed = [predicted for measured, predicted in tried if not measured]
    worked = [predicted for measured, predicted in tried if measured]
    assert sum(not predicted for predicted in failed) >= 0.75 * len(failed)
    assert sum(worked) >= 0.9 * len(worked)


@pytest.mark.slow
def test_experts_of_a_file_keep_their_own_format():
    """gpt-oss-20b as llama.cpp's file: 19.1e9 expert weights at 4.25 bits and 1.80e9 at 8.5: 12.06 GB, 11.27 GiB as it prints."""
    rows = {row.case.row: (row, found) for row, found in zip(measured()[0], predictions(), strict=True)}
    row, found = rows["ed-1066"]
    assert row.case.workload["precision"] == {"weights": "q8_0"}
    assert found is not None
    assert found[0]["memory.weights"] / 2**30 == pytest.approx(11.27, rel=0.01)
