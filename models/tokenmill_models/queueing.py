"""Waiting for a server: closed expressions that hold in a graph, and exact Erlang C beside them.

`servers` c are the places that serve at once (slots of a replica, or 1 for a prefill engine), `rho` the share of them
that is busy, `service` the mean service time [s], `arrival_cv2` and `service_cv2` squared coefficients of variation [1].
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from tokenmill_models.formula import Formula, Graph, Source, minimum, register
from tokenmill_models.symbols import constant, declare

SAKASEGAWA = Source(
    "Sakasegawa 1977, An approximation formula L_q = alpha rho^beta/(1-rho), Ann. Inst. Statist. Math. 29, with the "
    "variability factor of Allen and Cunneen (Allen 1990, Probability, Statistics and Queueing Theory, section 5.3)"
)
POLLACZEK = Source(
    "Pollaczek and Khinchine's mean wait with Kingman's arrival factor: Kingman 1961, The single server queue in heavy traffic"
)
TAIL = Source(
    "exponential tail with the right probability of waiting and mean: P(W > x) = P exp(-x P/E[W]); exact for M/M/c",
    ("E[W] is P/(c mu - lambda) times the variability factor, so P/E[W] is the rate of the tail",),
)

# A queue has no mean wait at rho = 1. Beyond this share the wait is that of this share: large, finite, and outside any limit.
RHO_STATED = sp.Rational(999, 1000)
ONE_PERCENTILE = {"p50": sp.Rational(1, 2), "p95": sp.Rational(1, 20), "p99": sp.Rational(1, 100)}
PERCENTILES = ("mean", *ONE_PERCENTILE)
NORMAL = {
    "p50": sp.Integer(0),
    "p95": constant("z_p95", 1.6448536269514722, "1", "standard normal quantile of 0.95"),
    "p99": constant("z_p99", 2.3263478740408408, "1", "standard normal quantile of 0.99"),
}

_rho = declare("rho", "1", "share of the servers that is busy", origin="input.utilisation", latex=r"\rho")
_c = declare("servers", "1", "servers of a queue", origin="input.servers", sign="positive")
_S = declare("service", "s", "mean service time", origin="input.service_time")
_ca2 = declare("arrival_cv2", "1", "squared variation of the gaps between arrivals", origin="input.arrival_cv2")
_cs2 = declare("service_cv2", "1", "squared variation of the service times", origin="input.service_cv2")


def wait_expr(rho: Any, servers: Any, service: Any, arrival_cv2: Any, service_cv2: Any) -> sp.Expr:
    """Mean wait [s] of G/G/c: rho^(sqrt(2(c+1))-1)/(c(1-rho)) · service · (Ca²+Cs²)/2 (Sakasegawa; exact for M/M/1, M/G/1)."""
    busy = minimum(rho, RHO_STATED)
    power = sp.sqrt(2 * (servers + 1)) - 1
    return busy**power / (servers * (1 - busy)) * service * (arrival_cv2 + service_cv2) / 2


def waiting_probability_expr(rho: Any, servers: Any) -> sp.Expr:
    """Probability that an arrival waits [1]: rho^(sqrt(2(c+1))-1), the same closed form; exact for M/M/1."""
    return minimum(rho, RHO_STATED) ** (sp.sqrt(2 * (servers + 1)) - 1)


def quantile_expr(wait: Any, probability: Any, exceed: Any) -> sp.Expr:
    """Wait [s] exceeded with probability `exceed`: E[W]/P · ln(P/exceed), zero where fewer wait than that."""
    return sp.Piecewise((wait / probability * sp.log(probability / exceed), probability > exceed), (0, True))


def define_wait(
    graph: Graph, label: str, rho: Any, servers: Any, service: Any, ca2: Any, cs2: Any
) -> dict[str, sp.Symbol]:
    """Define mean and percentiles [s] of a queue's wait; return {mean, p50, p95, p99: symbol ``W_<label>_<word>``}."""
    busy = graph.let(f"rho_{label}", "1", f"busy share: {label}", rho)
    waits = graph.let(
        f"P_{label}", "1", f"share that waits: {label}", waiting_probability_expr(busy, servers), source=SAKASEGAWA
    )
    mean = graph.let(
        f"W_{label}_mean", "s", f"mean wait: {label}", wait_expr(busy, servers, service, ca2, cs2),
        source=SAKASEGAWA, assumes=("arrivals and services are independent", "one queue a replica, first come first served"),
    )  # fmt: skip
    found = {"mean": mean}
    for word, exceed in ONE_PERCENTILE.items():
        # A share of waiting of zero (no load) leaves no tail: the tiny floor keeps 0/0 out of the unused branch.
        safe = sp.Max(waits, sp.Rational(1, 10**12), evaluate=False)
        found[word] = graph.let(
            f"W_{label}_{word}", "s", f"{word} wait: {label}", quantile_expr(mean, safe, exceed), source=TAIL
        )
    return found


WAIT = register(
    Formula(
        "queue.wait",
        "Mean wait for one of c servers",
        declare("queue_wait", "s", "mean wait of a queue"),
        _rho ** (sp.sqrt(2 * (_c + 1)) - 1) / (_c * (1 - _rho)) * _S * (_ca2 + _cs2) / 2,
        SAKASEGAWA.by(
            "Erlang C is close to rho^(sqrt(2(c+1))-1)",
            "M/M/c waits that over c·(1 - rho) service times",
            "variability scales it by (Ca² + Cs²)/2",
        ),
        assumes=("one queue in front of all servers", "the closed power of rho stands for Erlang C"),
        valid=(sp.Lt(_rho, 1),),
    )
)
WAIT_ONE_SERVER = register(
    Formula(
        "queue.wait_one_server",
        "Mean wait for a single server",
        declare("queue_wait_one", "s", "mean wait of a single-server queue"),
        _rho / (1 - _rho) * _S * (_ca2 + _cs2) / 2,
        POLLACZEK.by(
            "Pollaczek and Khinchine: rho/(1 - rho)·S·(1 + Cs²)/2 for Poisson arrivals",
            "Kingman puts the variability of arrivals in place of 1",
        ),
        assumes=("exact for Poisson arrivals (Ca² = 1)",),
        valid=(sp.Lt(_rho, 1),),
    )
)
ROUTER = register(
    Formula(
        "queue.router_factor",
        "How much longer requests wait in c separate queues than in one shared queue",
        declare("router_factor", "1", "wait of round robin over wait of one queue"),
        _c / _rho ** (sp.sqrt(2 * (_c + 1)) - 2),
        SAKASEGAWA.by(
            "each of c queues waits as one server at the same busy share",
            "divide by the wait of one queue before c servers",
        ),
        assumes=("Poisson arrivals stay Poisson when they are dealt at random",),
        valid=(sp.Lt(_rho, 1), sp.Gt(_rho, 0)),
    )
)


def erlang_c(servers: int, offered: float) -> float:
    """Exact probability of waiting in M/M/c with `offered` = lambda/mu erlang [1], by the stable Erlang B recursion.

    Raises
    ------
    ValueError
        Where the load is not below the number of servers.
    """
    if not 0 <= offered < servers:
        raise ValueError(f"offered load {offered} must be at least 0 and below the {servers} servers")
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    rho = offered / servers
    return blocked / (1 - rho * (1 - blocked))
