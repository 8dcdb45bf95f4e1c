"""Kinds of serving that no plan takes into account are refused in words."""

import pytest

import tokenmill as tm
from tokenmill.errors import ProblemError


def refused(**given):
    with pytest.raises(ProblemError) as caught:
        tm.load_problem(
            {
                "hardware": {"systems": ["hgx-h100"]},
                "workload": [
                    {
                        "name": "chat", "stage": "serving", "model": "llama-3.1-8b",
                        "demand": {"requests_per_second": 1, "input_tokens": 500, "output_tokens": 100}, **given,
                    }
                ],
            }
        )  # fmt: skip
    (mistake,) = caught.value.mistakes
    return mistake


def test_a_deadline_of_demand_that_stands_is_refused_and_says_what_ends():
    mistake = refused(deadline=86400.0)
    assert mistake.key == "workload.chat.deadline"
    assert "evaluation" in mistake.allowed
    assert "serving" not in mistake.allowed


def test_several_models_on_one_pool_are_refused():
    assert "one model" in refused(model=["llama-3.1-8b", "llama-3.1-70b"]).allowed


def test_a_model_that_only_reads_is_refused_where_tokens_are_written():
    mistake = refused(model="bge-m3")
    assert mistake.key == "workload.chat.model"
    assert "embedding" in mistake.allowed
