"""Waits against exact Erlang C, textbook limits and a simulation of the queue."""

import heapq
import math

import numpy as np
import pytest
import sympy as sp

from tokenmill_models.formula import Graph, library
from tokenmill_models.queueing import define_wait, erlang_c, quantile_expr, wait_expr, waiting_probability_expr


def test_erlang_c_of_known_cases():
    assert erlang_c(1, 0.7) == pytest.approx(0.7)  # M/M/1: the busy share
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)  # by hand: 2 servers, 1 erlang
    offered, servers = 8.0, 10  # the sum of the definition
    top = offered**servers / math.factorial(servers) * servers / (servers - offered)
    below = sum(offered**k / math.factorial(k) for k in range(servers))
    assert erlang_c(servers, offered) == pytest.approx(top / (below + top))


def test_erlang_c_refuses_overload():
    with pytest.raises(ValueError, match="below the 4 servers"):
        erlang_c(4, 4.0)


@pytest.mark.parametrize("servers", [1, 2, 4, 8, 32, 128, 512])
@pytest.mark.parametrize("rho", [0.7, 0.8, 0.9, 0.95, 0.99])
def test_closed_wait_is_near_exact_for_many_servers(servers, rho):
    """Sakasegawa's power against exact M/M/c: within 12%, or 2% of a service time where hardly anyone waits."""
    exact = erlang_c(servers, rho * servers) / (servers * (1 - rho))
    closed = float(wait_expr(sp.Float(rho), servers, 1, 1, 1))
    assert closed == pytest.approx(exact, rel=0.12, abs=0.02)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_one_server_is_exact(rho):
    assert float(wait_expr(sp.Float(rho), 1, 2.0, 1, 1)) == pytest.approx(2 * rho / (1 - rho))  # M/M/1
    assert float(wait_expr(sp.Float(rho), 1, 2.0, 1, 0)) == pytest.approx(rho / (1 - rho))  # M/D/1: half
    assert float(waiting_probability_expr(sp.Float(rho), 1)) == pytest.approx(rho)


def test_tail_of_one_server_is_exact():
    """M/M/1: P(W > x) = rho exp(-(1-rho) x), so the 95th percentile at rho 0.8 is ln(16)·5 service times."""
    wait, waits = 0.8 / 0.2, 0.8
    assert float(quantile_expr(sp.Float(wait), sp.Float(waits), sp.Rational(1, 20))) == pytest.approx(5 * math.log(16))
    assert float(quantile_expr(sp.Float(wait), sp.Float(0.04), sp.Rational(1, 20))) == 0


def test_separate_queues_wait_several_times_longer():
    """Four queues of one server against one queue of four at rho 0.8: exact Erlang C gives 5.4."""
    formula = library()["queue.router_factor"]
    by_name = {symbol.name: symbol for symbol in formula.expr.free_symbols}
    closed = float(formula.expr.subs({by_name["rho"]: 0.8, by_name["servers"]: 4}))
    exact = (0.8 / 0.2) / (erlang_c(4, 3.2) / (4 * 0.2))
    assert closed == pytest.approx(exact, rel=0.05)


def simulate(servers, rho, service_cv, arrivals=200_000, seed=7):
    """Waits of a first-come queue with Poisson arrivals and lognormal services of mean 1."""
    random = np.random.default_rng(seed)
    gaps = random.exponential(1 / (rho * servers), arrivals)
    sigma = math.sqrt(math.log(1 + service_cv**2))
    services = random.lognormal(-(sigma**2) / 2, sigma, arrivals)
    free = [0.0] * servers
    waits, now = np.empty(arrivals), 0.0
    for index in range(arrivals):
        now += gaps[index]
        start = max(now, free[0])
        heapq.heapreplace(free, start + services[index])
        waits[index] = start - now
    return waits[arrivals // 10 :]


@pytest.mark.parametrize(("servers", "rho", "service_cv"), [(1, 0.7, 1.0), (4, 0.8, 1.5), (16, 0.9, 0.7)])
def test_wait_against_simulation(servers, rho, service_cv):
    """Allen and Cunneen's factor is known to stay within some 20% for services of cv up to 1.5."""
    waits = simulate(servers, rho, service_cv)
    graph = Graph()
    found = define_wait(
        graph, "simulated", sp.Float(rho), sp.Integer(servers), sp.Integer(1), 1, sp.Float(service_cv**2)
    )
    values = {word: float(graph.inline(symbol)) for word, symbol in found.items()}
    assert values["mean"] == pytest.approx(waits.mean(), rel=0.2)
    assert values["p95"] == pytest.approx(np.quantile(waits, 0.95), rel=0.2)
