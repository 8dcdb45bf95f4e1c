"""`report`, `export` and `explore` on plans that were solved."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from sample_problems import TRAIN
from tokenmill.api import solve
from tokenmill.cli import main
from tokenmill.explore import explore
from tokenmill.export import export, kinds
from tokenmill.plan import write_json
from tokenmill.reading import load_problem

CHAT = """
title = "Chat <b>"
objective = { minimise = "cost" }
[hardware]
systems = ["hgx-h100"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2.00/h"
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-70b"
[workload.precision]
weights = "fp8"
[workload.demand]
requests_per_second = 5
input_tokens = 1000
output_tokens = 200
[workload.engine]
disaggregated = false
chunk = 2048
context_limit = 4096
[workload.layout]
tp = 4
pp = 1
"""


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    for name, text in (("chat", CHAT), ("train", TRAIN)):
        (folder / f"{name}.toml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def plans(problems):
    found = {name: solve(load_problem(problems / f"{name}.toml")) for name in ("chat", "train")}
    for name, plan in found.items():
        write_json(plan, problems / f"{name}.json")
    return found


class Page(HTMLParser):
    """Collects identities, links and open tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.open: list[str] = []
        self.foreign: list[str] = []

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        if "id" in named:
            self.ids.add(named["id"])
        if tag == "a":
            self.links.append(named["href"])
        if tag in ("script", "link", "img", "iframe"):
            self.foreign.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["chat", "train"])
def test_page_holds_every_figure_and_every_link_leads_to_one(problems, plans, name, capsys):
    target = problems / f"{name}.html"
    assert main(["report", str(problems / f"{name}.json"), "-o", str(target)]) == 0
    capsys.readouterr()
    text = target.read_text()
    page = Page()
    page.feed(text)
    assert not page.open
    assert not page.foreign
    assert {unquote(name) for name in page.ids} == set(plans[name].trace)
    assert page.links
    assert {link.removeprefix("#") for link in page.links} <= page.ids
    assert "Chat <b>" not in text


def test_solve_writes_the_page_too(problems, capsys):
    target = problems / "again.html"
    assert main(["solve", str(problems / "chat.toml"), "--report", str(target)]) == 0
    capsys.readouterr()
    assert "Chat &lt;b&gt;" in target.read_text()


def test_launch_commands_say_the_layout_of_the_plan(plans):
    vllm = export(plans["chat"], "vllm")
    assert "vllm serve meta-llama/Meta-Llama-3.1-70B" in vllm
    for flag in (
        "--tensor-parallel-size 4",
        "--quantization fp8",
        "--max-num-batched-tokens 2048",
        "--max-model-len 4096",
    ):
        assert flag in vllm
    assert "--pipeline-parallel-size" not in vllm
    megatron = export(plans["train"], "megatron")
    for flag in (
        "--tensor-model-parallel-size 2",
        "--pipeline-model-parallel-size 2",
        "--micro-batch-size 1",
        "--global-batch-size 512",
        "--seq-length 8192",
        "--use-distributed-optimizer",
        "--bf16",
    ):
        assert flag in megatron


def test_split_pools_hand_their_cache_over_and_stand_behind_a_router(problems):
    split = {"workload.chat.engine.disaggregated": "true", "workload.chat.demand.requests_per_second": "40"}
    plan = solve(load_problem(problems / "chat.toml", overrides=list(split.items())))
    assert {pool.role for pool in plan.workloads["chat"].pools} == {"prefill", "decode"}
    vllm, sglang = (export(plan, kind) for kind in ("vllm", "sglang"))
    for role, kv in (("PREFILL", "kv_producer"), ("DECODE", "kv_consumer")):
        assert vllm.count(f'"kv_role": "{kv}"') == sum(
            pool.role == role.lower() for pool in plan.workloads["chat"].pools
        )
        assert f"--{role.lower()} ${role}:" in vllm
        assert f"--disaggregation-mode {role.lower()}" in sglang
        assert f"--{role.lower()} http://${role}:" in sglang
    assert "--pd-disaggregation" in sglang
    for text in (vllm, sglang, export(plan, "trtllm")):  # two replicas on a host do not meet at one port
        for start in (8100, 8200):
            assert f"--port $(({start} + REPLICA))" in text
    assert "--disaggregation-bootstrap-port $((8998 + REPLICA))" in sglang
    assert vllm.count("VLLM_NIXL_SIDE_CHANNEL_PORT=") == len(plan.workloads["chat"].pools)
    for text in (vllm, sglang):  # what is no remark is a command that a shell can read
        for command in "\n".join(line for line in text.splitlines() if not line.startswith("#")).split("\n\n"):
            assert shlex.split(command.replace("\\\n", " "))


def with_values(plan, layout, settings, **values):
    """The chat plan as it would be with a layout, settings and inputs of its own."""
    work = plan.workloads["chat"]
    (pool,) = work.pools
    pool = replace(pool, layout={**pool.layout, **layout}, settings={**pool.settings, **settings})
    if "chip_share" in layout:
        pool = replace(pool, chips=layout["chip_share"] * pool.replicas)
    (asked,) = plan.problem["workloads"]
    asked = {**asked, "values": {**asked["values"], **values}}
    work = replace(work, pools=(pool,))
    return replace(plan, workloads={"chat": work}, problem={**plan.problem, "workloads": [asked]})


def test_an_engine_on_a_part_of_a_chip_takes_that_part_of_its_memory(plans):
    """Two engines that each took nine tenths of a card would not start: on a quarter each has 0.9 / 4."""
    plan = with_values(plans["chat"], {"chip_share": 0.25, "tp": 1}, {})
    vllm, sglang, trtllm = (export(plan, kind) for kind in ("vllm", "sglang", "trtllm"))
    assert "--gpu-memory-utilization 0.225" in vllm
    assert "--mem-fraction-static 0.225" in sglang
    assert "--kv_cache_free_gpu_memory_fraction 0.225" in trtllm
    for text in (vllm, sglang, trtllm):
        assert "# Has 0.25 of a chip" in text
        assert "size 0" not in text
    assert "of a chip" not in export(plans["chat"], "vllm")


DRAFTED = {"engine.speculative.draft": "a draft", "engine.speculative.gamma": 4.0}


def test_what_the_plan_rests_on_is_asked_of_the_engine(plans):
    """Drafted tokens, adapters, eager steps and held cache each decide times or memory: a command without them runs another plan."""
    held = {"adapters.count": 12.0, "adapters.rank": 32.0, "engine.graph": False, "engine.kv_memory": 4080218931.0}
    plan = with_values(plans["chat"], {}, {"speculative": "draft"}, **DRAFTED, **held)
    vllm, sglang, trtllm = (export(plan, kind) for kind in ("vllm", "sglang", "trtllm"))
    (command,) = (part for part in vllm.split("\n\n") if "vllm serve" in part)
    words = shlex.split("\n".join(line for line in command.splitlines() if line[:1] != "#").replace("\\\n", " "))
    config = json.loads(words[words.index("--speculative-config") + 1])
    assert config == {"model": "a draft", "num_speculative_tokens": 4}
    for flag in ("--max-loras 12 --max-lora-rank 32", "--enforce-eager", "--kv-cache-memory-bytes 4080218931"):
        assert flag in vllm
    for flag in ("--max-loras-per-batch 12", "--disable-cuda-graph", "--speculative-draft-model-path 'a draft'"):
        assert flag in sglang
    for remark in ("# Tokens are drafted (4 a step, by 'a draft')", "# 12 adapters of rank 32", "cuda_graph_config"):
        assert remark in trtllm


def test_weights_of_int8_are_asked_for(plans):
    work = plans["chat"].workloads["chat"]
    (pool,) = work.pools
    pool = replace(pool, precision={**pool.precision, "weights": "int8"})
    plan = replace(plans["chat"], workloads={"chat": replace(work, pools=(pool,))})
    assert "--quantization compressed-tensors" in export(plan, "vllm")
    assert "--quantization w8a8_int8" in export(plan, "sglang")


def test_drafts_that_were_not_chosen_are_not_asked_for(plans):
    plan = with_values(plans["chat"], {}, {"speculative": "none"}, **DRAFTED)
    for kind in ("vllm", "sglang", "trtllm", "llama-cpp"):
        assert export(plan, kind) == export(plans["chat"], kind)


def test_mixed_pools_need_no_router(plans):
    for kind in ("vllm", "sglang"):
        text = export(plans["chat"], kind)
        assert "disagg" not in text
        assert "kv_role" not in text


def test_every_kind_runs_one_of_the_plans_or_says_which_pools_it_could(plans, problems, capsys):
    for kind in kinds():
        codes = [main(["export", str(problems / f"{name}.json"), "--to", kind]) for name in plans]
        said = capsys.readouterr()
        assert set(codes) <= {0, 2}
        assert 0 in codes
        assert ("pools of" in said.err) == (2 in codes)
    assert main(["export", str(problems / "chat.json"), "--to", "vlm"]) == 2
    assert "vllm" in capsys.readouterr().err


def test_a_candidate_costs_its_chips_for_as_long_as_it_works(problems, plans):
    for row in explore(load_problem(problems / "chat.toml")):
        assert row.chip_hour == pytest.approx(2.0)
        assert row.cost == pytest.approx(2.0 * row.chips / (3600 * row.rate))
    (run,) = explore(load_problem(problems / "train.toml"))
    wall = plans["train"].workloads["train"].totals["wall_time"]
    assert run.duration == pytest.approx(wall)
    assert run.cost == pytest.approx(plans["train"].cost.total)


def test_explore_prints_a_table_a_page_and_json(problems, capsys):
    target = problems / "candidates.html"
    assert main(["explore", str(problems / "chat.toml"), "-o", str(target)]) == 0
    assert "the cheapest first" in capsys.readouterr().out
    page = Page()
    page.feed(target.read_text())
    assert not page.open
    assert main(["explore", str(problems / "chat.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["candidates"][0]["system"] == "hgx-h100"
