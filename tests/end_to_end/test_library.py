"""The library as the README shows it."""

import pytest

import tokenmill as tm


def test_a_time_limit_may_carry_its_unit():
    problem = tm.load_problem(
        {
            "hardware": {
                "systems": ["hgx-h100"],
                "price": [{"system": "hgx-h100", "market": "on-demand", "per_chip_hour": "$2/h"}],
            },
            "workload": [
                {
                    "name": "chat",
                    "stage": "serving",
                    "model": "llama-3.1-8b",
                    "demand": {"requests_per_second": 2, "input_tokens": 500, "output_tokens": 100},
                }
            ],
        }
    )
    plan = tm.solve(problem, time_limit="60 s")
    assert plan.termination.reason == "optimal"
    assert "USD" in plan.explain("cost.total") or "$" in plan.explain("cost.total")
    assert {pool.system for pool in plan.workloads["chat"].pools} == {"hgx-h100"}
    with pytest.raises(tm.ProblemError, match="time_limit"):
        tm.solve(problem, time_limit="60 GB")
