"""The user's own table of quality guards which formats may be chosen."""

import pytest

import tokenmill as tm
from tokenmill.errors import ProblemError


def problem(weights=("int4", "fp8", "bf16"), **given):
    return tm.load_problem(
        {
            "objective": {"minimise": "cost_per_token", "workload": "chat", "count": "output"},
            "hardware": {"systems": ["hgx-h100"]},
            "workload": [
                {
                    "name": "chat", "stage": "serving", "model": "llama-3.1-8b",
                    "demand": {"requests_per_second": 20, "input_tokens": 1000, "output_tokens": 200},
                    "engine": {"disaggregated": False, "chunk": 2048},
                    "precision": {"weights": list(weights), "compute": "bf16"},
                    "quality": {"int4": 0.96, "fp8": 0.995},
                    **given,
                }
            ],
        }
    )  # fmt: skip


def formats(**given):
    return {pool.precision["weights"] for pool in tm.solve(problem(**given)).workloads["chat"].pools}


@pytest.mark.parametrize(
    ("least", "allowed"),
    [(0.0, {"int4", "fp8", "bf16"}), (0.96, {"int4", "fp8", "bf16"}), (0.99, {"fp8", "bf16"}), (0.999, {"bf16"})],
)
def test_formats_below_the_least_quality_are_not_chosen(least, allowed):
    assert formats(min_quality=least) <= allowed


def test_every_format_that_a_pool_uses_counts():
    """The cache in fp8 keeps 0.995: where 0.999 is asked, neither it nor fp8 weights may be chosen."""
    plan = tm.solve(problem(min_quality=0.999, precision={"weights": ["fp8", "bf16"], "kv": ["fp8", "bf16"]}))
    assert {(p.precision["weights"], p.precision["kv"]) for p in plan.workloads["chat"].pools} == {("bf16", "bf16")}


def test_a_held_format_below_the_least_quality_is_infeasible_by_so_much():
    plan = tm.solve(problem(weights=("int4",), min_quality=0.99))
    assert plan.status == "infeasible"
    (reason,) = plan.infeasible
    assert reason.key == "workload.chat.min_quality"
    assert reason.shortfall == pytest.approx(0.03)
    assert "int4" in reason.limit


def test_a_table_of_no_formats_is_refused():
    with pytest.raises(ProblemError) as caught:
        problem(quality={"int5": 0.9, "fp8": 1.2})
    assert {mistake.key for mistake in caught.value.mistakes} == {
        "workload.chat.quality.int5",
        "workload.chat.quality.fp8",
    }
