"""Published figures of data preparation and of agents, each with a case that turns the answer round.

dl: The AI Lifecycle on Hardware (2026). ag: From Training to Inference: A Beginner's Map (2026). Rates of cores against the measured
rows of measured/training/data_stage.csv.
"""

import csv
from math import isinf

import pytest

import tokenmill_models.closed_agents  # noqa: F401
from tokenmill import api, data
from tokenmill.catalog import load_catalog
from tokenmill.reading import load_problem
from tokenmill_models.compile import constants, exact
from tokenmill_models.formula import library

CRAWL = """
[hardware]
systems = ["hgx-h100", "cpu-epyc-9654", "object-store"]
[[workload]]
name = "corpus"
stage = "data"
input = "1 PB"
documents = 100e9
deadline = "60 days"
operators = [ {{ do = "extract" }}, {{ do = "filter" }}, {{ do = "deduplicate" }}, {model} {{ do = "tokenise" }}, {{ do = "write" }} ]
keep = {{ filter = 0.35, deduplicate = 0.45 }}
"""


def crawl(model=""):
    return api.solve(load_problem(CRAWL.format(model=model))).workloads["corpus"]


def test_dl_01_the_bottleneck_is_cores_or_storage_and_no_accelerator_appears():
    found = crawl()
    assert found.bottleneck.resource in ("cpu", "storage_throughput")
    assert {pool.role for pool in found.pools} == {"cpu", "storage"}


def test_dl_01_turned_round_accelerators_appear_where_a_model_reads_or_writes():
    for do, model in (("classify", "qwen3-0.6b"), ("embed", "qwen3-0.6b"), ("synthesise", "qwen3-8b")):
        found = crawl(f'{{ do = "{do}", model = "{model}", output_tokens = 10e9 }},')
        assert {pool.role for pool in found.pools} == {"cpu", "storage", do}
        assert found.bottleneck.resource in ("cpu", "storage_throughput")
    # writing ten thousand billion tokens by a model of 32B is no longer a matter of cores
    found = crawl('{ do = "synthesise", model = "qwen3-32b", output_tokens = 10e12 },')
    assert found.bottleneck.resource == "compute"


def success_cost(share):
    formula = library()["agents.cost_per_success"]
    symbols = formula.expr.free_symbols
    known = {**constants(symbols), "attempt_cost": 10.0, "success_share": share}
    return float(exact(formula.rounded, {symbol: known[symbol.name] for symbol in symbols}))


def test_ag_01_a_success_costs_without_bound_as_its_share_goes_to_nothing():
    """Ten dollars an attempt of forty steps: c/q."""
    assert [success_cost(share) for share in (1.0, 0.1, 1e-3, 1e-6)] == pytest.approx([10.0, 100.0, 1e4, 1e7])
    q = next(
        symbol for symbol in library()["agents.cost_per_success"].expr.free_symbols if symbol.name == "success_share"
    )
    assert isinf(
        library()["agents.cost_per_success"]
        .expr.subs("attempt_cost", 10)
        .limit(q, 0, "+")
        .subs(dict.fromkeys(library()["agents.cost_per_success"].expr.free_symbols - {q}, 10))
    )


AGENTS = """
objective = { minimise = "cost", workload = "coder" }
[hardware]
systems = ["hgx-h100"]
[[workload]]
name = "coder"
stage = "agents"
model = "qwen3-8b"
tasks_per_second = 0.5
calls = 40
success = SHARE
max_attempts = 1
[workload.layout]
tp = 1
pp = 1
"""


def agents(share, batch=""):
    file = AGENTS.replace("SHARE", str(share)) + (
        f"[workload.engine]\nbatch = {batch}\nchunk = 2048\n" if batch else ""
    )
    return api.solve(load_problem(file))


def test_ag_01_in_a_plan_grows_as_one_over_the_share_and_has_no_price_at_none():
    half, tenth, never = agents(0.5), agents(0.1), agents(0.0)
    assert tenth.cost.per["task"] == pytest.approx(5 * half.cost.per["task"])
    assert never.cost.total == pytest.approx(half.cost.total)
    assert "task" not in never.cost.per


def test_ag_02_first_token_and_token_rate_are_figures_of_their_own_that_order_plans_apart():
    """A small batch is the quicker to answer, a large one the faster in all: two plans that the two figures order differently."""
    small, large = (
        next(p for p in agents(1.0, batch).workloads["coder"].pools if p.role == "mixed").predicted for batch in (2, 32)
    )
    assert small["ttft"]["p95"] < large["ttft"]["p95"]
    assert small["tokens_per_second"] < large["tokens_per_second"]


def measured(stage):
    file = data.path("measured") / "training" / "data_stage.csv"
    with file.open(encoding="utf-8") as lines:
        return [row for row in csv.DictReader(lines) if row["stage"] == stage]


def test_rates_of_cores_lie_within_measured_rows():
    cpus = load_catalog().cpus
    tag = [
        2 * 1e12 / (float(r["cpu_core_hours_per_tb"]) * 3600) for r in measured("filter") if r["group"] == "dolma-tag"
    ]
    mix = [
        2 * 1e12 / (float(r["cpu_core_hours_per_tb"]) * 3600) for r in measured("filter") if r["group"] == "dolma-mix"
    ]
    assert min(tag) <= cpus["dolma-tagging"].figure.value <= max(tag)  # two vCPU a core
    assert min(mix) <= cpus["dolma-mixing"].figure.value <= max(mix)
    # the tokeniser of the catalogue is slower than any measured on one thread with a warm cache: a floor
    threads = [
        float(r["throughput_mib_per_s_per_thread"]) * 2**20
        for r in measured("tokenise")
        if r["throughput_mib_per_s_per_thread"]
    ]
    assert cpus["hf-fast-bpe-tokenizer"].figure.value < min(threads)
    # near duplicates: the rate lies between the tool of 2023 and the claim for a cluster
    (old,) = (r for r in measured("dedup") if r["group"] == "curator-old" and r["cpu_core_hours"])
    slow = float(old["input_tokens_b"]) * 1e9 * 4.2 / (float(old["cpu_core_hours"]) * 3600)
    assert slow < cpus["minhash-dedup-core"].figure.value
