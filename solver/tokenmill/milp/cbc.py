"""The second solver, CBC through PuLP: the same programme, stated in PuLP, for cross-checks and for those who prefer it."""

from __future__ import annotations

import warnings
from time import perf_counter
from typing import Any

import numpy as np

from tokenmill.errors import SolverError
from tokenmill.milp.highs import Outcome
from tokenmill.milp.rows import Linear, Programme


def cbc() -> Any:
    """Return PuLP's CBC class that works here, or None: bundled in PuLP 3, an extra (``pulp[cbc]``) in PuLP 4."""
    import pulp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name in ("COIN_CMD", "PULP_CBC_CMD"):
            kind = getattr(pulp, name, None)
            if kind is not None and kind(msg=False).available():
                return kind
    return None


def solve_cbc(programme: Programme, objective: Linear, *, time_limit: float | None = None, gap: float = 0.0) -> Outcome:
    """Minimise with CBC. It proves no bound that PuLP hands back: status is optimal only without a limit.

    Raises
    ------
    SolverError
        Where CBC is not installed.
    """
    kind = cbc()
    if kind is None:
        raise SolverError("solver: found 'cbc', which is not installed; allowed: highs, or install the extra 'cbc'")
    began = perf_counter()
    problem = programme.state(objective)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        # with their own preprocessing and cuts, builds of CBC were seen to cut off optima that trying every plan confirms
        plain = ["preprocess off", "cuts off"]
        status = problem.solve(kind(msg=False, gapRel=gap, timeLimit=time_limit, options=plain))
    word = _word(status)
    seconds = perf_counter() - began
    if word != "optimal":
        return Outcome(word, None, None, None, None, None, seconds)
    by_name = {v.name: v.value() for v in problem.variables()}
    lower = programme.lower
    values = np.array(
        [low if (v := by_name.get(n)) is None else v for n, low in zip(programme.names, lower, strict=True)],
        dtype=np.float64,
    )
    cost = objective.value(values)
    if time_limit is not None and seconds >= time_limit:
        return Outcome("feasible", values, cost, None, None, "time", seconds)
    return Outcome("optimal", values, cost, cost - gap * abs(cost), gap, None, seconds)


def _word(status: Any) -> str:
    """Return our word for what PuLP reports: a number in 3, statistics with a named status in 4."""
    name = getattr(getattr(status, "status", None), "name", None)
    if name is None:
        return {1: "optimal", -1: "infeasible", -2: "unbounded", 0: "unknown"}.get(int(status), "error")
    if name in ("Optimal", "GapLimit"):  # stopped within the gap that was asked
        return "optimal"
    return name.lower() if name in ("Infeasible", "Unbounded") else "unknown"
