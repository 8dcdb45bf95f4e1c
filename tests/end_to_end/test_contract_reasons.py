"""What an infeasible answer names: the reason nearest to the mark, never a bare lack of layouts."""

from __future__ import annotations

import json

import pytest

from tokenmill.cli import main

SERVE = """
objective = {{ minimise = "cost" }}
[hardware]
systems = ["{system}"]
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
[workload.demand]
requests_per_second = 5
input_tokens = 1000
output_tokens = 200
[workload.engine]
disaggregated = false
{rest}
"""
TRAIN = """
[hardware]
systems = ["hgx-h100"]
[[workload]]
name = "pre"
stage = "pretraining"
model = "llama-3.1-8b"
tokens = 1e11
sequence_length = 8192
global_batch = 512
[workload.layout]
tp = 2
pp = 2
dp = 7
"""


@pytest.fixture
def solved(tmp_path, capsys):
    def run(text):
        (tmp_path / "p.toml").write_text(text)
        code = main(["solve", str(tmp_path / "p.toml"), "--json", "-"])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_a_format_that_no_chip_computes_is_the_reason_given(solved):
    text = SERVE.format(system="hgx-a100-80gb", rest='[workload.precision]\ncompute = "fp8"\nweights = "fp8"')
    code, plan = solved(text)
    assert code == 1
    (missing,) = plan["infeasible"]
    assert missing["key"] == "workload.chat"
    assert "hgx-a100-80gb" in missing["limit"]
    assert "fp8" in missing["limit"]


def test_the_only_system_without_a_price_is_named_by_its_key(solved):
    code, plan = solved(SERVE.format(system="gb200-nvl72", rest=""))
    assert code == 1
    assert [item["key"] for item in plan["infeasible"]] == ["hardware.systems.gb200-nvl72"]
    assert "price" in plan["infeasible"][0]["cure"]


def test_a_latency_that_nothing_reaches_comes_before_layouts_that_fell_on_the_way(solved):
    code, plan = solved(SERVE.format(system="hgx-h100", rest='[workload.slo]\nttft = { p95 = "1 ms" }'))
    assert code == 1
    assert plan["infeasible"][0]["key"] == "workload.chat.slo.ttft.p95"
    assert plan["infeasible"][0]["unit"] == "s"


def test_a_batch_that_the_ranks_do_not_divide_comes_first(solved):
    code, plan = solved(TRAIN)  # 512 sequences over 7 data ranks
    assert code == 1
    assert plan["infeasible"][0]["key"] == "workload.pre.layout.micro_batch"


def test_a_chip_without_bf16_multiplies_published_weights_in_fp16(solved):
    own = """["my-card"]
[[hardware.chip]]
name = "my-card"
memory = "48 GB"
bandwidth = "768 GB/s"
fp16 = "155 TFLOP/s"
power = "300 W"
like = "rtx-4090"
[[hardware.price]]
system = "my-card"
market = "on-demand"
per_chip_hour = "$0.5/h"
"""
    code, plan = solved(SERVE.format(system="x", rest="").replace('["x"]', own))
    assert code == 0
    assert {pool["precision"]["compute"] for pool in plan["workloads"]["chat"]["pools"]} == {"fp16"}
