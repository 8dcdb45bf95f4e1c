"""Checkpoints, spares and long runs."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.closed import form, given
from tokenmill_models.reliability import YOUNG as YOUNG_SOURCE
from tokenmill_models.reliability import _delta, _mtbf, _n, _rate, _restart

YOUNG = YOUNG_SOURCE.text
BARLOW = "Barlow and Proschan 1975, Statistical Theory of Reliability, chapter 2"

state = given("saved_state_bytes", "B", "bytes of a checkpoint")
store = given("store_bandwidth", "B/s", "bandwidth into the store, all writers together")
run = given("run_time_given", "s", "useful time that a run needs")
repair = given("repair_time", "s", "time until a failed chip serves again")
deviations = given("deviations", "1", "standard deviations of the interval: 1.96 for 95%", "z")

WRITE = form(
    "reliability.checkpoint_write", "Time to write a checkpoint", ("checkpoint_write_form", "s"), state / store,
    YOUNG, ("bytes over bandwidth",), ("all writers share the store",),
)  # fmt: skip
LOSS = form(
    "reliability.least_loss", "Share of time lost at the best checkpoint interval, first order", ("least_loss", "1"),
    sp.sqrt(2 * _delta / _mtbf) + _restart / _mtbf, YOUNG, ("writing loses delta/tau, rework tau/(2·M)",
     "at tau = sqrt(2·delta·M) both are equal", "restarts lose R/M more"),
    ("writing takes far less than the time between failures",), (_delta < _mtbf,),
)  # fmt: skip
FAILURES = form(
    "reliability.failures", "Failures to expect in a run", ("failures_expected", "1"), run * _n * _rate, BARLOW,
    ("chips fail at a constant rate",), ("independent failures",),
)  # fmt: skip
SURVIVAL = form(
    "reliability.survival", "Probability that a run sees no failure", ("survival", "1"), sp.exp(-run * _n * _rate),
    BARLOW, ("the number of failures is Poisson",), ("independent failures",),
)  # fmt: skip
LARGEST = form(
    "reliability.largest_run", "Chips beyond which checkpoints and rework take a share of the time", ("largest_run",
     "1"), given("loss_accepted", "1", "share of time that may be lost") ** 2 / (2 * _delta * _rate), YOUNG,
    ("the least loss is sqrt(2·delta·n·lambda)", "solve for n"), ("restarts are left out",
     "writing takes far less than the time between failures"), rounding="floor",
)  # fmt: skip
SPARES = form(
    "reliability.spares", "Spare chips that cover those under repair", ("spares_form", "1"),
    _n * _rate * repair + deviations * sp.sqrt(_n * _rate * repair), BARLOW,
    ("n·lambda·R are under repair on average, Poisson", "z standard deviations above the mean"),
    ("repairs do not wait for one another",), rounding="ceil",
)  # fmt: skip
AVAILABILITY = form(
    "reliability.availability", "Share of time that a replica of n chips stands", ("availability", "1"),
    1 / (1 + _n * _rate * repair), BARLOW, ("up for 1/(n·lambda), down for R", "share of a cycle"),
    ("one failure stops the replica", "no spares"),
)  # fmt: skip
