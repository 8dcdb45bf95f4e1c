"""Servers, waits and tails at a load."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.closed import form, given
from tokenmill_models.queueing import _S as service  # noqa: N811
from tokenmill_models.queueing import _c as servers
from tokenmill_models.queueing import _ca2 as arrival_cv2
from tokenmill_models.queueing import _cs2 as service_cv2
from tokenmill_models.queueing import _rho as rho

LITTLE = "Little 1961, A proof for the queuing formula L = lambda W, Operations Research 9(3)"
SAKASEGAWA = "Sakasegawa 1977, An approximation formula, Ann. Inst. Statist. Math. 29"
HALFIN = (
    "Halfin and Whitt 1981, Heavy-traffic limits for queues with many exponential servers, Operations Research 29(3)"
)
KINGMAN = "Kingman 1961, The single server queue in heavy traffic"

arrivals = given("arrival_rate", "1/s", "arrivals a second", r"\lambda")
waited = given("waiting_probability", "1", "share of arrivals that wait", "P")
mean = given("mean_wait", "s", "mean wait")
exceed = given("exceed", "1", "share of arrivals that may wait longer")
quality = given("staffing_quality", "1", "servers above the load in square roots of the load")
wait_limit = given("wait_limit", "s", "longest mean wait that is accepted")

BUSY = form(
    "queue.utilisation", "Share of the servers that is busy", ("utilisation_form", "1"), arrivals * service / servers,
    LITTLE, ("work that arrives a second over servers",), ("no arrival is turned away",),
)  # fmt: skip
WAITING = form(
    "queue.waiting_probability", "Share of arrivals that wait for one of c servers", ("waiting_share", "1"),
    rho ** (sp.sqrt(2 * (servers + 1)) - 1), SAKASEGAWA, ("the closed power of rho stands for Erlang C",
     "exact for one server and Poisson arrivals"), ("one queue",), (rho < 1,),
)  # fmt: skip
TAIL = form(
    "queue.wait_percentile", "Wait that a share of the arrivals exceeds", ("wait_percentile", "s"),
    mean / waited * sp.log(waited / exceed),
    "exponential tail of M/M/c: Kleinrock 1975, Queueing Systems 1, section 3.5", ("P(W > x) = P·exp(-x·P/E[W])",
     "set it to the share and solve for x"), ("an exponential tail with the right mean",), (waited > exceed,),
)  # fmt: skip
STAFFING = form(
    "queue.servers", "Servers for a load and a quality of service", ("servers_needed", "1"),
    arrivals * service + quality * sp.sqrt(arrivals * service), HALFIN,
    ("a Poisson load of a servers varies by sqrt(a)", "keep beta standard deviations above it"), ("many servers",
     "Poisson arrivals"), rounding="ceil",
)  # fmt: skip
UTILISATION_LIMIT = form(
    "queue.utilisation_at_wait", "Busy share of a server at which the mean wait reaches a limit", ("rho_at_wait",
     "1"), wait_limit / (wait_limit + service * (arrival_cv2 + service_cv2) / 2), KINGMAN,
    ("W = rho/(1 - rho)·S·(Ca² + Cs²)/2", "solve for rho"), ("one server",),
)  # fmt: skip
RESPONSE = form(
    "queue.response", "Mean time in the system of one server", ("queue_response", "s"),
    service * (1 + rho / (1 - rho) * (arrival_cv2 + service_cv2) / 2), KINGMAN, ("wait and service add up",),
    ("exact for Poisson arrivals (Ca² = 1)",), (rho < 1,),
)  # fmt: skip
IN_SYSTEM = form(
    "queue.in_system", "Mean number of arrivals that wait or are served", ("in_system", "1"),
    arrivals * (mean + service), LITTLE, ("rate times time in the system",), ("steady load",),
)  # fmt: skip
