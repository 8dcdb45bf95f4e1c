"""Problem files of embedding, held to their answers in words by counts of their own."""

import pytest

import tokenmill as tm
from tokenmill import data
from tokenmill.imports.architecture import load_architecture
from tokenmill.templates import new

# bge-m3 and bge-large: 24 layers of four squares of 1024 and an MLP of twice 1024 x 4096
PRODUCTS = 24 * (4 * 1024**2 + 2 * 1024 * 4096)


def solved(name, *overrides):
    plan = tm.solve(tm.load_problem(data.path("problems") / f"{name}.toml", overrides))
    assert plan.status == "optimal", plan.infeasible
    assert plan.audit.passed
    return plan


def test_served_embeddings_keep_their_limit_and_carry_the_demand():
    plan = solved("embedding-served")
    pools = plan.workloads["search"].pools
    assert sum(pool.predicted["texts_per_second"] * pool.replicas for pool in pools) >= 6000 * (1 - 1e-6)
    assert all(pool.predicted["latency"]["p95"] <= 0.05 for pool in pools)
    assert plan.workloads["search"].totals["tokens_input"] == pytest.approx(6000 * 250 * 365 * 86400)
    assert all("kv_tokens" not in pool.predicted for pool in pools)


@pytest.mark.parametrize("stage", ["embedding", "embedding_batch"])
def test_the_sample_of_a_stage_that_reads_names_a_model_that_reads(stage):
    (workload,) = tm.load_problem(new(stage)).workloads
    assert load_architecture(workload.model).encoder


@pytest.mark.slow
def test_a_reranker_scores_fifty_passages_a_query():
    plan = solved(
        "embedding-served", ("workload.search.model", '"bge-reranker-v2-m3"'), ("workload.search.texts_per_request", "50"),
        ("workload.search.demand.requests_per_second", "40"),
    )  # fmt: skip
    pools = plan.workloads["search"].pools
    assert sum(pool.predicted["requests_per_second"] * pool.replicas for pool in pools) >= 40 * (1 - 1e-6)
    assert sum(pool.predicted["texts_per_second"] * pool.replicas for pool in pools) >= 2000 * (1 - 1e-6)
    assert all(pool.predicted["latency"]["p95"] <= 0.05 for pool in pools)


@pytest.mark.slow
def test_a_corpus_costs_what_its_products_take_at_some_half_of_the_peak():
    """2e9 texts of 250 tokens: 5e11 tokens of 0.3e9 multiplied elements; the work over time and chips is the share of the peak."""
    plan = solved("embedding-corpus")
    (pool,) = plan.workloads["corpus"].pools
    (run,) = plan.runs
    tokens = 2e9 * 250
    done = 2 * PRODUCTS * tokens / ((run.end - run.start) * run.chips)
    peak = tm.load_catalog().chip("l40s").peak["fp16"] if pool.system == "l40s-8" else 312e12
    assert 0.25 < done / peak < 0.75
    assert run.end - run.start <= 3 * 86400
    assert plan.workloads["corpus"].totals["tokens_input"] == pytest.approx(tokens)


@pytest.mark.slow
def test_a_decoder_without_its_head_embeds_as_well():
    plan = solved("embedding-served", ("workload.search.model", '"qwen3-0.6b"'))
    (pool, *_) = plan.workloads["search"].pools
    assert pool.predicted["memory"]["kv"] > 0  # a decoder caches the texts of a pass


@pytest.mark.slow
def test_texts_beyond_the_positions_of_a_model_are_refused_in_words():
    plan = tm.solve(tm.load_problem(
        data.path("problems") / "embedding-served.toml",
        [("workload.search.model", '"bge-large-en-v1.5"'), ("workload.search.demand.input_tokens", "2000")],
    ))  # fmt: skip
    assert plan.status == "infeasible"
    assert any("positions" in short.limit for short in plan.infeasible)
