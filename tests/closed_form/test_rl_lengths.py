"""Slices of the lengths of answers against drawn lengths: the longest of many, and the time until all have ended."""

import heapq
from math import log, sqrt

import numpy as np
import pytest
import sympy as sp

from tokenmill_models.compile import compile_graph, constants
from tokenmill_models.formula import Graph
from tokenmill_models.rl_lengths import Lengths, define_slices, longest_of

MEAN, CV, CUT = 3000.0, 0.8, 1e9
DRAWS = 30


def sliced(count, cut=CUT, waited=1.0):
    """Tokens and share still written of every slice, and the longest answer, as numbers."""
    lengths = Lengths(sp.Float(MEAN), sp.Float(CV))
    graph = Graph()
    parts, longest = define_slices(graph, lengths, sp.Float(cut), sp.Float(count), sp.Float(waited))
    wanted = [longest, *(symbol for part in parts for symbol in (part.tokens, part.alive))]
    leaves = graph.needs(wanted)[1]
    found = compile_graph(graph, wanted)({s.name: constants([s])[s.name] for s in leaves})
    values = {symbol: float(found[symbol.name]) for symbol in wanted}
    return [(values[part.tokens], values[part.alive]) for part in parts], values[longest]


def drawn(count, cut=CUT, seed=0):
    """Lognormal lengths of the same mean and variation, cut."""
    sigma = sqrt(log(1 + CV**2))
    rng = np.random.default_rng(seed)
    return np.minimum(rng.lognormal(log(MEAN) - sigma**2 / 2, sigma, (DRAWS, count)), cut)


@pytest.mark.parametrize("count", [8, 64, 1024])
def test_the_longest_of_many(count):
    assert sliced(count)[1] == pytest.approx(np.median(drawn(count).max(axis=1)), rel=0.08)


@pytest.mark.parametrize(("count", "exact"), [(2, 0.5449), (1000, 3.198)])
def test_the_quantile_of_the_largest(count, exact):
    """Median of the largest of n: the normal quantile of 2^(-1/n), from tables (0.70711: 0.5450; 0.999307: 3.198)."""
    expr = longest_of(sp.Float(count))
    assert float(expr.subs({s: constants([s])[s.name] for s in expr.free_symbols})) == pytest.approx(exact, abs=2e-3)


@pytest.mark.parametrize("count", [512])
@pytest.mark.parametrize("cut", [CUT, 6000.0])
@pytest.mark.parametrize(
    "step", [lambda r: 0.008 + 0.00004 * r, lambda r: 0.004 + 0.02 * (1 - np.exp(-r / 20))], ids=["dense", "experts"]
)
def test_the_time_of_a_synchronous_step(count, cut, step):
    """Sum over token indices of the step time of the answers still being written, over drawn lengths: within a tenth."""
    summed = []
    for lengths in drawn(count, cut):
        ends = np.sort(lengths)
        spans = np.diff(np.concatenate([[0.0], ends]))
        summed.append(float((spans * step(np.arange(count, 0, -1))).sum()))
    parts, _ = sliced(count, cut)
    time = sum(tokens * step(max(1.0, count * alive)) for tokens, alive in parts)
    assert time == pytest.approx(np.mean(summed), rel=0.1)


def test_waves_of_answers_against_list_scheduling():
    """1024 answers in 256 places: full batches for what waits, then the last 256 to their end."""
    count, places = 1024, 256
    ends = []
    for lengths in drawn(count):
        free = [0.0] * places
        for length in lengths:
            heapq.heappush(free, heapq.heappop(free) + length)
        ends.append(max(free))
    parts, _ = sliced(count)
    steps = (count - places) * MEAN / places + sum(tokens for tokens, _ in parts)
    assert steps == pytest.approx(np.mean(ends), rel=0.15)


def test_waiting_for_most_of_the_answers_is_shorter():
    every, most = sliced(512)[1], sliced(512, waited=0.9)[1]
    assert most == pytest.approx(np.quantile(drawn(512), 0.9), rel=0.03)
    assert most < every
