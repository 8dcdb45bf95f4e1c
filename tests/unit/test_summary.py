"""The ten lines at the head of a plan: what they say, and that each figure they name unfolds."""

import re
from dataclasses import replace

import pytest

from tokenmill.explain import explain
from tokenmill.fleet import with_margins
from tokenmill.milp.solution import InScenario
from tokenmill.plan import Alternative, Bound, Cost, NextUnit, Objective, Plan, Pool, RunRecord, WorkloadPlan
from tokenmill.plan_trace import answer_nodes
from tokenmill.problem import Problem, Workload
from tokenmill.report.html import page
from tokenmill.report.summary import MOST, summary
from tokenmill.report.text import render
from tokenmill.report.text_words import money

OBJECTIVE = Objective("cost", 100.0, "USD", 100.0, 0.0)
LIMIT = Bound("power at north", 0.0, NextUnit(10_200.0, 7.0, "W"), "hardware.site.north.power", "W")
OTHER = Alternative(108.0, 8.0, "without north: 3 node (buy)")


def plan(**more):
    binding, others = more.pop("binding", (LIMIT,)), more.pop("alternatives", (OTHER,))
    return Plan(
        "optimal", OBJECTIVE, Cost(100.0, by_kind={"rent": 100.0}, by_workload={"chat": 100.0}),
        workloads={"chat": WorkloadPlan("serving", pools=(Pool("mixed", "mixed", "node", "north", 8, 1, {"tp": 8}, {}, None, {}),))},
        binding=binding, alternatives=others, trace=answer_nodes(OBJECTIVE, binding, others), **more,
    )  # fmt: skip


def test_what_holds_it_back_and_what_is_next():
    lines = summary(plan())
    assert "binding: power at north: 10.2 kW more would save $7.00  [binding.hardware.site.north.power]" in lines
    assert "runner-up: without north: 3 node (buy): $8.00 more, $108.00 in all  [alternatives.1]" in lines


@pytest.mark.parametrize(
    ("gap", "first"), [(None, "by how much is unknown"), (0.96, "by up to 96% of this one"), (0.05, None)]
)
def test_a_plan_far_from_proof_says_first_that_the_search_was_cut_short(gap, first):
    cut = replace(plan(), status="feasible", run=RunRecord(limit="time"), objective=replace(OBJECTIVE, gap=gap))
    lines = summary(cut)
    assert len(lines) <= MOST
    assert lines[0].startswith("CUT SHORT by the time") == (first is not None)
    assert first is None or first in lines[0]
    assert ("gap unknown" in "\n".join(lines)) == (gap is None)
    assert "CUT SHORT" not in "\n".join(summary(plan()))
    assert "<h1>Plan</h1>" in page(cut)
    assert ("CUT SHORT" in page(cut)) == (first is not None)


def test_a_step_down_is_less():
    less = replace(LIMIT, limit="demand of chat", value_of_next=NextUnit(-5.0, 7.0, "units/s"))
    assert any("demand of chat: 5 a second less would save $7.00" in line for line in summary(plan(binding=(less,))))


def test_a_limit_whose_next_step_saves_nothing_holds_nothing_back():
    nothing = replace(LIMIT, limit="demand of chat", value_of_next=NextUnit(-0.1, 0.0, "units/s"))
    unknown = Bound("power at south", 0.0)
    for shown in (
        "\n".join(summary(plan(binding=(nothing,)))),
        render(plan(binding=(nothing,))),
        page(plan(binding=(nothing,))),
    ):
        assert "less would save" not in shown
        assert "What holds it back" not in shown
    both = render(plan(binding=(nothing, unknown, LIMIT)))
    assert "demand of chat" not in both
    assert both.index("10.2 kW more would save $7.00") < both.index("power at south")
    less = replace(LIMIT, value_of_next=NextUnit(-5.0, 7.0, "W"))
    assert "5.0 W less would save $7.00" in page(plan(binding=(less,)))


def test_of_more_than_two_workloads_all_limits_stand_in_one_line():
    def served(ttft):
        (pool,) = plan().workloads["chat"].pools
        return WorkloadPlan("serving", pools=(replace(pool, predicted={"ttft": {"p95": ttft}}),))

    made = {"a": served(0.5), "b": served(0.75), "c": WorkloadPlan("training", pools=plan().workloads["chat"].pools, totals={"wall_time": 7200.0})}  # fmt: skip
    asked = {"workloads": [{"name": name, "values": {"slo.ttft": {"p95": 2.0}}} for name in "ab"]}
    lines = summary(replace(plan(), workloads=made, problem=asked))
    assert "a: TTFT p95 500 ms of 2 s; b: TTFT p95 750 ms of 2 s; c: wall time 2 h" in lines
    assert sum("TTFT" in line for line in lines) == 1
    two = summary(replace(plan(), workloads={name: made[name] for name in "ab"}, problem=asked))
    assert sum("TTFT" in line for line in two) == 2


def test_an_objective_over_scenarios_says_so_and_unfolds():
    """Hand calculation: 0.75 x $80 + 0.25 x $160 = $100; the plan that is shown costs what it costs in one of them."""
    parts = (InScenario("usual", 0.75, 80.0), InScenario("late", 0.25, 160.0))
    made = replace(plan(), trace=answer_nodes(OBJECTIVE, (), (), parts), cost=Cost(80.0, by_kind={"rent": 80.0}))
    assert "cost: $100.00 over the scenarios usual, late  [objective]" in summary(made)
    assert any(line.startswith("cost $80.00 in the scenario usual") for line in summary(made))
    assert "$60.00 + $40.00" in explain(made, "objective")
    assert "0.25*$160.00" in explain(made, "objective.late")


def test_a_plan_that_is_no_worse_is_just_as_good():
    same = replace(OTHER, objective=100.0, difference=0.0)
    assert any("just as good, $100.00 in all" in line for line in summary(plan(alternatives=(same,))))


def test_a_gap_within_the_tolerance_of_the_solver_is_none():
    for gap, word in ((1e-16, "gap 0%. Proven: nothing better"), (1e-6, "Proven to within")):
        assert word in summary(replace(plan(), objective=replace(OBJECTIVE, gap=gap)))[1]


def test_never_more_than_ten_lines():
    assert len(summary(plan(alternatives=(OTHER,) * 20))) == MOST == 10


def test_figures_of_the_answer_unfold():
    made = plan()
    for line in summary(made):
        for key in re.findall(r"\[((?:objective|binding|alternatives)[^\]]*)\]", line):
            explain(made, key)
    assert "eased = $93.00" in explain(made, "binding.hardware.site.north.power")


def test_a_cost_by_the_run_unfolds_too():
    by_run = Objective("cost_per_run", 50.0, "USD/run", 50.0, 0.0)
    made = replace(plan(), objective=by_run, trace=answer_nodes(by_run, (LIMIT,), (OTHER,)))
    assert "$50.00" in explain(made, "objective")
    assert "best + difference" in explain(made, "alternatives.1")


def test_a_margin_is_revenue_less_cost():
    """Hand calculation: 1e6 prompt tokens at $10 and 2e6 answer tokens at $30 a million bring $70; they cost $100."""
    asked = Problem(
        (Workload("chat", "toy", values={"demand.list_price.input": 10e-6, "demand.list_price.output": 30e-6}),)
    )
    sold = {"chat": WorkloadPlan("serving", totals={"tokens_output": 2e6, "tokens_all": 3e6})}
    made = with_margins(asked, replace(plan(), workloads=sold))
    assert made.workloads["chat"].totals["margin"] == pytest.approx(-30.0)
    assert "chat: revenue $70.00, margin -$30.00  [chat.revenue, chat.margin]" in summary(made)
    assert "$70.00 - $100.00" in explain(made, "chat.margin")


def test_cached_prompts_bring_their_own_price_or_that_of_any_prompt():
    """Hand calculation: of 1e6 prompt tokens 4e5 are cached. At $10, $1 and $30 a million: 6 + 0.4 + 60; without the second price 10 + 60."""
    sold = {"chat": WorkloadPlan("serving", totals={"tokens_output": 2e6, "tokens_input": 1e6, "tokens_cached": 4e5})}
    prices = {"demand.list_price.input": 10e-6, "demand.list_price.output": 30e-6}
    for more, revenue in (({"demand.list_price.cached": 1e-6}, 66.4), ({}, 70.0)):
        asked = Problem((Workload("chat", "toy", values=prices | more),))
        made = with_margins(asked, replace(plan(), workloads=sold))
        assert made.workloads["chat"].totals["revenue"] == pytest.approx(revenue)


def test_a_loss_is_written_with_its_sign_first():
    assert money(-2_198_760.0) == "-$2,198,760"
    assert money(-0.05) == "-$0.05"
