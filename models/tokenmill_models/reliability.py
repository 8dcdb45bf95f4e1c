"""Failures and checkpoints: time between failures, best interval, useful share of time."""

from __future__ import annotations

from typing import Any

import sympy as sp

from tokenmill_models.formula import DEFINITION, Formula, Source, maximum, register
from tokenmill_models.symbols import declare

YOUNG = Source("Young 1974, A first order approximation to the optimum checkpoint interval, CACM 17(9)")
DALY = Source("Daly 2006, A higher order estimate of the optimum checkpoint interval, FGCS 22(3), equations 20 and 37")


def expected_goodput(interval: Any, write: Any, restart: Any, mtbf: Any) -> sp.Expr:
    """Useful share of time with exponential failures: tau/(M·exp(R/M)·(exp((tau+delta)/M) - 1)); all arguments [s]."""
    return interval / (mtbf * sp.exp(restart / mtbf) * (sp.exp((interval + write) / mtbf) - 1))


def young(write: Any, mtbf: Any) -> sp.Expr:
    """Young's interval sqrt(2·delta·M) [s]."""
    return sp.sqrt(2 * write * mtbf)


def daly(write: Any, mtbf: Any) -> sp.Expr:
    """Daly's interval [s]: sqrt(2·delta·M)·(1 + sqrt(delta/2M)/3 + delta/18M) - delta, at most M where delta ≥ 2M."""
    small = write / (2 * mtbf)
    series = young(write, mtbf) * (1 + sp.sqrt(small) / 3 + small / 9) - write
    return sp.Piecewise((series, sp.Lt(write, 2 * mtbf)), (mtbf, True))


def spot_availability(preemption_rate: Any, systems: Any, restart: Any) -> Any:
    """Share of time that work on spot systems goes on: cycles of 1/(lambda·n) of work and R of restart [1/s, 1, s]."""
    return 1 / (1 + preemption_rate * systems * restart)


_delta = declare(
    "delta_write", "s", "time that a checkpoint stops the run", origin="input.checkpoint_write", sign="positive"
)
_mtbf = declare("MTBF", "s", "mean time between failures of the run", origin="input.mtbf", sign="positive")
_tau = declare("tau_given", "s", "useful time between checkpoints", origin="input.checkpoint.interval", sign="positive")
_restart = declare("R_restart", "s", "time from a failure to work again", origin="input.restart")
_n = declare("n_chips", "1", "chips of the run", origin="input.chips", sign="positive")
_rate = declare(
    "lambda_chip", "1/s", "failures of a chip", origin="chip.failure_rate", sign="positive", latex=r"\lambda"
)

MTBF = register(
    Formula(
        "reliability.mtbf",
        "Mean time between failures of a run on n chips",
        declare("mtbf_run", "s", "mean time between failures"),
        1 / (_n * _rate),
        assumes=("chips fail independently at a constant rate",),
        source=DEFINITION.by("n chips fail n times as often"),
    )
)
YOUNG_INTERVAL = register(
    Formula(
        "reliability.young_interval",
        "Checkpoint interval of least loss, first order",
        declare("tau_young", "s", "Young's checkpoint interval"),
        young(_delta, _mtbf),
        YOUNG.by("the loss delta/tau + tau/(2·M) is least where both terms are equal"),
        assumes=("writing takes far less than the time between failures",),
    )
)
DALY_INTERVAL = register(
    Formula(
        "reliability.daly_interval",
        "Checkpoint interval of least loss, higher order",
        declare("tau_daly", "s", "Daly's checkpoint interval"),
        daly(_delta, _mtbf),
        DALY.by(
            "the expected time with exponential failures is minimised over the interval",
            "its solution is expanded in sqrt(delta/(2·M))",
        ),
        assumes=("failures are exponential",),
    )
)
GOODPUT = register(
    Formula(
        "reliability.goodput",
        "Useful share of time with checkpoints that stop the run",
        declare("goodput_sync", "1", "useful share of time"),
        expected_goodput(_tau, _delta, _restart, _mtbf),
        DALY.by(
            "an interval with its write succeeds with probability exp(-(tau + delta)/M)",
            "the expected time until it does is M·exp(R/M)·(exp((tau + delta)/M) - 1)",
            "useful time over expected time",
        ),
        assumes=("failures are exponential and may strike a checkpoint or a restart",),
    )
)
GOODPUT_FIRST_ORDER = register(
    Formula(
        "reliability.goodput_first_order",
        "Useful share of time, first order",
        declare("goodput_first_order", "1", "useful share of time, first order"),
        1 - _delta / _tau - (_tau / 2 + _restart) / _mtbf,
        YOUNG.by("writing loses delta/tau", "a failure loses half an interval and a restart: (tau/2 + R)/M"),
        assumes=("interval, write and restart are far below the time between failures",),
    )
)
GOODPUT_ASYNC = register(
    Formula(
        "reliability.goodput_asynchronous",
        "Useful share of time with checkpoints written while the run goes on",
        declare("goodput_async", "1", "useful share of time"),
        expected_goodput(maximum(_tau, _delta), sp.Integer(0), _restart + _delta, _mtbf),
        DALY.by(
            "the write costs no time, so the expected time holds tau alone",
            "the write still in flight is lost with the work: it lengthens the restart",
        ),
        assumes=("work since the last written checkpoint is lost: half an interval and the write time",),
    )
)
SPOT = register(
    Formula(
        "reliability.spot",
        "Useful share of time of a replica or run on spot systems",
        declare("a_spot", "1", "share of time that work on spot systems goes on"),
        spot_availability(
            declare("lambda_spot", "1/s", "preemptions of a spot system", origin="input.preemptions"),
            declare("n_spot", "1", "spot systems that all must stand", origin="input.systems", sign="positive"),
            _restart,
        ),
        Source("renewal reward: Ross, Introduction to Probability Models, section 7.4").by(
            "n systems are preempted n times as often", "a cycle is up for 1/(n·lambda) and down for R"
        ),
        assumes=("preemptions come at random and no work is lost but the restart",),
    )
)
