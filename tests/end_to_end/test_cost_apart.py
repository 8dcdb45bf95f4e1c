"""Cost of prompt, cached and answer tokens apart: sums to the whole, and follows the time that each takes."""

import pytest

import tokenmill as tm
from tokenmill import data


def chat(prompt, answer, **engine):
    return tm.solve(
        tm.load_problem(
            {
                "objective": {"minimise": "cost_per_token", "workload": "chat", "count": "output"},
                "hardware": {"systems": ["hgx-h100"]},
                "workload": [
                    {
                        "name": "chat", "stage": "serving", "model": "llama-3.1-8b",
                        "demand": {"requests_per_second": 40, "input_tokens": prompt, "output_tokens": answer},
                        "engine": {"disaggregated": False, "chunk": 2048, **engine},
                    }
                ],
            }
        )
    )  # fmt: skip


def parts(plan):
    totals = plan.workloads["chat"].totals
    return totals, totals["cost_apart"]


@pytest.mark.parametrize("split", [False, True])
def test_both_kinds_and_every_request_add_up_to_the_cost(split):
    plan = chat(2000, 200, disaggregated=split)
    totals, apart = parts(plan)
    both = sum(apart[f"million_{kind}"] * totals[f"tokens_{kind}"] / 1e6 for kind in ("input", "output"))
    assert both == pytest.approx(plan.cost.by_workload["chat"])
    assert apart["request"] * totals["units"] == pytest.approx(plan.cost.by_workload["chat"])


def test_split_pools_pay_for_one_kind_each():
    """All chips are of one system, so each kind's part of the money is its pools' part of the chips."""
    plan = chat(4000, 100, disaggregated=True)
    totals, apart = parts(plan)
    pools = plan.workloads["chat"].pools
    prompts = sum(pool.chips for pool in pools if pool.role == "prefill") / sum(pool.chips for pool in pools)
    paid = apart["million_input"] * totals["tokens_input"] / 1e6 / plan.cost.by_workload["chat"]
    assert paid == pytest.approx(prompts)


def test_one_pool_pays_by_the_time_that_prompts_add_to_its_steps():
    plan = chat(2000, 200)
    totals, apart = parts(plan)
    (pool,) = plan.workloads["chat"].pools
    plain = plan.trace["chat.mixed.T_plain"]["value"]
    paid = apart["million_output"] * totals["tokens_output"] / 1e6 / plan.cost.by_workload["chat"]
    assert paid == pytest.approx(plain / pool.predicted["step_time"], rel=1e-6)
    assert apart["million_output"] > 3 * apart["million_input"]  # a token at a time against thousands at once


def test_every_part_is_explained():
    plan = chat(500, 500)
    node = plan.trace["chat.cost_apart.million_output"]
    assert node["value"] == pytest.approx(sum(leaf["value"] for leaf in node["inputs"]))


def test_three_bills_of_tokens_add_up_and_a_margin_follows_from_three_prices():
    """20 000 tokens a prompt at a hit of 0.9: 18 000 cached, 2 000 computed, 300 answered; all bills sum to the money paid."""
    plan = tm.solve(tm.load_problem(data.path("problems") / "cached-prompts.toml"))
    totals = plan.workloads["code"].totals
    apart, cost = totals["cost_apart"], plan.cost.by_workload["code"]
    requests = 200 * 365 * 86400
    counts = {"input": 2000, "cached": 18000, "output": 300}
    bills = {kind: apart[f"million_{kind}"] / 1e6 * count * requests for kind, count in counts.items()}
    assert sum(bills.values()) == pytest.approx(cost)
    assert 0 < apart["million_cached"] < apart["million_input"] / 10 < apart["million_output"] / 100
    prices = {"input": 0.10, "cached": 0.02, "output": 2.50}
    revenue = sum(prices[kind] / 1e6 * count * requests for kind, count in counts.items())
    assert totals["revenue"] == pytest.approx(revenue)
    assert totals["margin"] == pytest.approx(revenue - cost)
    assert plan.trace["code.revenue"]["formula"].count("*") == 3


@pytest.mark.slow
def test_without_the_cache_all_prompt_tokens_are_computed():
    file = data.path("problems") / "cached-prompts.toml"
    bare = tm.solve(tm.load_problem(file, [("workload.code.demand.prefix_cache_hit", "0.0")]))
    found = tm.solve(tm.load_problem(file))
    assert "million_cached" not in bare.workloads["code"].totals["cost_apart"]
    assert bare.cost.total > 2 * found.cost.total
