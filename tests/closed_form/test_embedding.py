"""Reading texts, by hand on an ideal device: passes, times of requests, memory; and a simulation of bulk service."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from sample_leaves import IDEAL, dense, leaf_values
from serving_samples import origins
from tokenmill_models.checks import dimension_failures, route_failures
from tokenmill_models.compile import compile_graph
from tokenmill_models.embedding import running_texts, serving_texts

H, HEADS, WIDTH, FFN, LAYERS, WORDS = 1024, 16, 64, 4096, 24, 30522
PLAIN = {origin.replace(".", "__"): value for origin, value in IDEAL.items() if "[" not in origin}
DECODER = dense(H, HEADS, HEADS, WIDTH, FFN, LAYERS, WORDS, gated=False)
ENCODER = replace(
    DECODER, head=None, max_positions=512,
    layers=tuple(replace(kind, mixer=replace(kind.mixer, bidirectional=True)) for kind in DECODER.layers),
)  # fmt: skip
GIVEN = {
    "input__texts_per_request": 1.0,
    "axis__batch": 40.0,
    "request__input_tokens": 200.0,
    "axis__replicas": 3.0,
    "input__texts": 1e6,
}
PRODUCTS = LAYERS * (4 * H * H + 2 * H * FFN)


def found(role, arch, **given):
    compiled = compile_graph(role.graph, list(role.graph.formulas))
    values = leaf_values(compiled.inputs, arch, origins(**PLAIN, **(GIVEN | given)))
    return {name: float(value) for name, value in compiled(values).items()}


def attended(keys):
    """Work of attention a token that sees `keys`: scores and mixing, a multiply and an add each."""
    return LAYERS * 2 * 2 * HEADS * WIDTH * keys


@pytest.mark.parametrize(("arch", "keys"), [(DECODER, 100.0), (ENCODER, 200.0)], ids=["decoder", "encoder"])
def test_work_of_a_pass_counts_products_and_attention_and_no_head(arch, keys):
    """A decoder's token sees half of its text, an encoder's all of it; 40 texts of 200 tokens."""
    one = found(serving_texts(arch), arch)
    assert one["pass_tokens"] == 8000
    assert one["flop_texts"] == pytest.approx(8000 * (2 * PRODUCTS + attended(keys)), rel=1e-9)
    counted = one["read_flop"] if arch is DECODER else one["model_flop_texts"]
    assert counted == pytest.approx(one["flop_texts"], rel=1e-9)


def test_lengths_that_vary_see_more_keys():
    """A token is met in proportion to the length of its text: E[S²]/E[S] = S(1+cv²)."""
    one = found(serving_texts(ENCODER), ENCODER, request__input_tokens__cv=0.5)
    assert one["text_keys"] == pytest.approx(200 * 1.25)


def test_weights_leave_the_head_out_and_a_decoder_caches_its_pass():
    """16 bits a parameter: layers with two norms of H, the embedding; norms outside count with it."""
    weights = 2 * (PRODUCTS + LAYERS * 2 * H + WORDS * H + H)
    for arch, cache in ((ENCODER, 0.0), (DECODER, 2048 * LAYERS * 2 * HEADS * WIDTH * 2)):
        one = found(serving_texts(arch), arch)
        assert one["memory_weights"] == pytest.approx(weights, rel=1e-6)
        assert one["texts_cached"] == pytest.approx(cache)


def test_a_busy_replica_keeps_its_batch():
    one = found(serving_texts(ENCODER), ENCODER)
    assert one["texts_rate"] == pytest.approx(40 / one["T_texts"])
    assert one["busy"] == 1


def test_a_lone_request_of_many_passages_takes_one_pass_of_its_own():
    """50 passages a query and half a passage read at a time: busy a hundredth of the time, so that nine in ten meet nobody."""
    one = found(serving_texts(ENCODER), ENCODER, input__texts_per_request=50.0, axis__batch=0.5)
    assert one["pass_tokens"] == 50 * 200
    assert one["busy"] == pytest.approx(0.01)
    assert one["rate"] == pytest.approx(0.01 / one["T_texts"])
    assert one["latency_mean"] == pytest.approx(one["T_texts"], rel=0.02)


def test_a_run_shares_its_texts_among_replicas():
    one = found(running_texts(ENCODER), ENCODER, input__input_tokens=200.0, input__input_tokens__cv=0.0)
    assert one["corpus_time"] == pytest.approx(1e6 / (3 * 40 / one["T_texts"]) + one["T_texts"])
    assert one["run_text_tokens"] == 200e6


def simulated(rate, fixed, each, requests, seed):
    """Bulk service replayed: passes of `fixed` + `each` x texts seconds take all that wait; return times of requests."""
    random, clock, arrivals = Random(seed), 0.0, []
    for _ in range(requests):
        clock += random.expovariate(rate)
        arrivals.append(clock)
    times, free, at = [], 0.0, 0
    while at < len(arrivals):
        start = max(free, arrivals[at])
        taken = sum(1 for a in arrivals[at : at + 2000] if a <= start)
        free = start + fixed + each * taken
        times += [free - a for a in arrivals[at : at + taken]]
        at += taken
    return np.array(times)


@pytest.mark.parametrize("batch", [4.0, 16.0, 64.0])
def test_times_agree_with_a_replay_of_bulk_service(batch):
    """Passes of compute-bound texts and 2 ms of launch: the replay draws Poisson arrivals at the rate that keeps the batch."""
    given = {"request__input_tokens": 200.0, "engine__step_graph": 2e-3}
    one, twice = (found(serving_texts(ENCODER), ENCODER, axis__batch=b, **given) for b in (batch, 2 * batch))
    each = (twice["T_texts"] - one["T_texts"]) / batch
    times = simulated(one["rate"], one["T_texts"] - batch * each, each, 20000, 7)
    assert one["latency_mean"] == pytest.approx(times.mean(), rel=0.05)
    assert one["latency_p50"] == pytest.approx(np.quantile(times, 0.50), rel=0.08)
    assert one["latency_p95"] == pytest.approx(np.quantile(times, 0.95), rel=0.08)
    assert one["latency_p99"] == pytest.approx(np.quantile(times, 0.99), rel=0.12)


@pytest.mark.parametrize("arch", [DECODER, ENCODER], ids=["decoder", "encoder"])
@pytest.mark.parametrize("role", [serving_texts, running_texts])
def test_every_definition_has_its_dimension_and_two_routes_agree(role, arch):
    graph = role(arch).graph
    _, leaves = graph.needs(list(graph.formulas))
    values = leaf_values(leaves, arch, origins(**GIVEN, input__input_tokens=200.0, input__input_tokens__cv=0.3))
    assert dimension_failures(graph, values) == []
    assert route_failures(graph, values) == []
