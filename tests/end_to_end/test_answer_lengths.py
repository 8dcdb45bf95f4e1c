"""Answer lengths named by their task: the medians over the measured models, and what is refused."""

import csv
from statistics import median

import pytest

import tokenmill as tm
from tokenmill import data
from tokenmill.candidates.bind import length_part
from tokenmill.errors import ProblemError


def suite(**lengths):
    return tm.load_problem(
        {
            "hardware": {"systems": ["hgx-h100"]},
            "workload": [
                {
                    "name": "suite", "stage": "evaluation", "model": "llama-3.1-8b", "prompts": 198, "passes": 4,
                    "input_tokens": 300, "engine": {"chunk": 2048}, **lengths,
                }
            ],
        }
    )  # fmt: skip


def asked(**lengths):
    return suite(**lengths).workloads[0].values["output_tokens"]


def test_a_task_stands_for_its_measured_answers():
    with (data.path("measured") / "serving" / "output_lengths.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["task"] == "gpqa"]
    found = asked(output_tokens="gpqa")
    assert found.mean == median(float(row["mean_output_tokens"]) for row in rows)
    assert length_part(found, "p95") == pytest.approx(median(float(row["p95"]) for row in rows))
    # no sample of the fit, but of the same answers: half of them are shorter than this
    assert length_part(found, "p50") == pytest.approx(median(float(row["p50"]) for row in rows), rel=0.15)


def test_a_tail_longer_than_a_lognormal_s_is_cut_to_it():
    """Code infill: p95 of 994 over a mean of 250 is 3.98; no lognormal passes exp(1.645²/2) = 3.87."""
    found = asked(output_tokens="sourcegraph-fim")
    assert found.p95 == pytest.approx(3.868 * found.mean, rel=1e-3)


def test_reasoning_takes_the_longer_run():
    chat, hard = (tm.solve(suite(output_tokens=task)) for task in ("lm-arena-chat", "gpqa"))
    assert hard.cost.total > 5 * chat.cost.total


@pytest.mark.parametrize(
    ("lengths", "key"),
    [({"output_tokens": "gpaq"}, "output_tokens"), ({"input_tokens": "gpqa", "output_tokens": 9}, "input_tokens")],
)
def test_what_is_no_task_is_refused(lengths, key):
    with pytest.raises(ProblemError) as caught:
        suite(**lengths)
    (mistake,) = caught.value.mistakes
    assert mistake.key == f"workload.suite.{key}"
    assert (mistake.nearest == "gpqa") is (key == "output_tokens")
