from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from samples_plan import sample_plan
from tokenmill.cli import main
from tokenmill.milp.solution import Purchase
from tokenmill.report.text import print_plan, render
from tokenmill.report.text_pools import layout_text
from tokenmill.report.text_rows import fitting
from tokenmill.report.text_words import LONGEST, per_second, print_table, say


@pytest.fixture(scope="module")
def plan():
    return sample_plan()


def test_a_terminal_gets_lines_no_wider_than_itself_and_a_pipe_whole_ones():
    text = "memory of a chip 44.6 GB of 48.3 GB: weights 16.1 GB, activations 1.05 GB, kv 26.1 GB"
    wide, narrow = StringIO(), StringIO()
    say(Console(file=wide), text)
    say(Console(file=narrow, force_terminal=True, width=40, no_color=True), text)
    assert wide.getvalue() == f"  {text}\n"
    lines = narrow.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(line.strip() for line in lines) == text


def test_lists_without_end_are_left_to_the_json():
    stream = StringIO()
    say(Console(file=stream), "no price of " + ", ".join(f"system-{n}" for n in range(200)), shortened=True)
    assert len(stream.getvalue()) < LONGEST + 40
    assert "the JSON holds all" in stream.getvalue()


@pytest.mark.parametrize(("rate", "text"), [(110_300.4, "110,300/s"), (12_000.0, "12,000/s"), (59.573, "59.57/s")])
def test_rates_are_written_without_powers_of_ten(rate, text):
    assert per_second(rate) == text


def test_a_column_is_left_out_only_where_it_says_the_same_dull_thing_all_through():
    stream = StringIO()
    console = Console(file=stream, width=80)
    print_table(
        console,
        "T",
        ("site", "when", "count>"),
        [("site", "1", "1"), ("site", "2", "1")],
        {"site": "site", "when": "1"},
    )
    assert [line.split() for line in stream.getvalue().splitlines()[2:]] == [["when", "count"], ["1", "1"], ["2", "1"]]


def test_what_is_trained_and_which_format_is_where_stand_in_the_layout(plan):
    (pool,) = plan.workloads["chat"].pools
    formats = {"compute": "bf16", "weights": "bf16", "gradients": "fp32"}
    trained = replace(pool, settings={"method": "lora"}, layout={"dp": 8, "tp": 1}, precision=formats)
    assert layout_text(trained) == "lora, dp 8, bf16, gradients fp32"


def test_what_was_asked_stands_beside_what_is_predicted(plan):
    (pool,) = plan.workloads["chat"].pools
    workload = replace(plan.workloads["chat"], pools=(replace(pool, predicted={"ttft": {"mean": 0.2, "p95": 0.5}}),))
    asked = {"workloads": [{"name": "chat", "values": {"slo.ttft": {"p95": 2.0}}}]}
    text = render(replace(plan, workloads={"chat": workload}, problem=asked))
    assert "TTFT mean 200 ms, p95 500 ms (asked: at most 2 s)" in text


def test_less_than_a_system_is_priced_by_the_chip(plan):
    # 2 of 8 chips at $16 an hour a system: $2 a chip-hour
    part = Purchase("node-8", "site", "on-demand", 1, 1, None, 0.25, 2, 16.0, 96.0, 300.0, "provider, 2026-01")
    text = render(replace(plan, purchases=(part,)))
    assert "$2.00/chip-h" in text
    assert "by chip" in text


def test_what_it_costs_says_over_how_long(plan):
    assert "over the horizon of 2 days" in render(plan)
    stream = StringIO()
    print_plan(plan, stream, bought=False)
    assert "What to get" not in stream.getvalue()
    assert "$1,536" not in stream.getvalue()


def test_fits_answers_in_its_first_line(tmp_path, monkeypatch, capsys):
    # 16 GB of weights: into 24 GB; 810 GB into no node of such
    monkeypatch.chdir(tmp_path)
    assert main(["fits", "llama-3.1-8b", "rtx-4090"]) == 0
    assert capsys.readouterr().out.startswith("llama-3.1-8b fits on rtx-4090: the least is one chip of ")
    assert main(["fits", "llama-3.1-405b", "rtx-4090"]) == 1
    assert capsys.readouterr().out.startswith("llama-3.1-405b does not fit on rtx-4090.")


@pytest.mark.parametrize(("room", "columns"), [(80, 3), (34, 3), (33, 2), (5, 1)])
def test_columns_that_do_not_fit_a_terminal_are_left_out(room, columns):
    # 10 + 2 + 10 + 2 + 10 = 34
    assert fitting([10, 10, 10], room) == columns
