"""The one adapter to HiGHS: arrays in, an honest outcome out.

What PuLP's wrappers say at a limit differs between its versions, so status, bound, gap and duals are read from highspy
itself. Its first object of a process prints a banner on standard output (1.16.0), which would spoil JSON printed
there: the descriptor is turned away for that moment. Coefficients below 1e-9 would be dropped: scaling.py keeps them
away.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf, isfinite
from threading import Event, Lock, current_thread, main_thread
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.errors import SolverError
from tokenmill.interrupts import at_interrupt
from tokenmill.milp.progress import moment, watcher
from tokenmill.milp.rows import Arrays
from tokenmill.milp.scaling import Scaled, scale

SMALLEST, LARGEST = 1e-9, 1e15
_threads_of_process: list[int] = []
_stop, _in_hand = Event(), Event()
_turned_away = Lock()


@dataclass(frozen=True)
class Outcome:
    """How a solve ended: status, values (None: no plan), objective, proven bound and relative gap.

    `duals`, `reduced`: row duals and reduced costs of an LP.
    """

    status: str
    values: NDArray[np.float64] | None
    objective: float | None
    bound: float | None
    gap: float | None
    limit: str | None
    seconds: float
    duals: NDArray[np.float64] | None = None
    reduced: NDArray[np.float64] | None = None


def solve_arrays(
    arrays: Arrays,
    *,
    time_limit: float | None = None,
    gap: float = 0.0,
    threads: int = 1,
    start: NDArray[np.float64] | None = None,
    nodes: int | None = None,
) -> Outcome:
    """Minimise with HiGHS; `gap` relative, `time_limit` in s, `start` a first plan to improve on, `nodes` of a tree at most.

    Raises
    ------
    SolverError
        Where HiGHS refuses its input, or another number of threads was used before in this process.
    """
    began = perf_counter()
    if time_limit is not None and time_limit <= 0:
        return Outcome("unknown", None, None, None, None, "time", 0.0)
    if not _can_hold(arrays):
        return Outcome("infeasible", None, None, None, None, None, perf_counter() - began)
    kept, whole = np.flatnonzero((arrays.lower != 0.0) | (arrays.upper != 0.0)), arrays
    arrays = whole if len(kept) == len(whole.lower) else without_columns(whole, kept)
    scaled = scale(arrays)
    _refuse_extremes(scaled.arrays)
    solver = _instance(threads, time_limit, gap)
    if nodes is not None:
        _accept(solver, solver.setOptionValue("mip_max_nodes", nodes), f"option mip_max_nodes = {nodes}")
    _accept(solver, solver.passModel(_model(scaled.arrays)), "the programme")
    if start is not None:
        _give_start(solver, start[kept] / scaled.column)
    _tell(solver, scaled.objective)
    _run(solver, bool(scaled.arrays.integer.any()))
    outcome = replace(_read(solver, bool(arrays.integer.any()), gap), seconds=perf_counter() - began)
    return _unscaled(outcome, scaled, arrays, whole, kept)


def _run(solver: Any, whole: bool) -> None:
    """Solve; `whole`: a programme with integers, whose search Ctrl-C ends."""
    with _stoppable(solver, whole):
        _accept(solver, solver.run(), "the solve")
    if solver.getModelStatus() == _status().kUnboundedOrInfeasible:  # presolve cannot tell: ask without it
        _accept(solver, solver.setOptionValue("presolve", "off"), "presolve off")
        _accept(solver, solver.run(), "the solve")


def relax(
    arrays: Arrays, *, interior: bool, tolerance: float, threads: int = 1, time_limit: float | None = None
) -> Outcome:
    """Solve the LP of a programme that is scaled already, without presolve; by an interior point (no vertex), or simplex.

    `tolerance`: relative, of the interior point's optimum; its duals are to be read as prices, not as proof.
    """
    began = perf_counter()
    solver = _instance(threads, time_limit, 0.0)
    options: dict[str, Any] = {"presolve": "off"}
    if interior:
        options = {"solver": "ipm", "run_crossover": "off", "ipm_optimality_tolerance": tolerance, "presolve": "off"}
    for name, value in options.items():
        _accept(solver, solver.setOptionValue(name, value), f"option {name} = {value}")
    _accept(solver, solver.passModel(_model(replace(arrays, integer=np.zeros_like(arrays.integer)))), "the relaxation")
    _accept(solver, solver.run(), "the relaxation")
    solution, info = solver.getSolution(), solver.getInfo()
    if not (solution.value_valid and solution.dual_valid):
        return replace(_read(solver, False, 0.0), seconds=perf_counter() - began)
    return Outcome(
        "optimal" if solver.getModelStatus() == _status().kOptimal else "feasible",
        np.array(solution.col_value, dtype=np.float64), float(info.objective_function_value), None, None, None,
        perf_counter() - began, np.array(solution.row_dual, dtype=np.float64), np.array(solution.col_dual, dtype=np.float64),
    )  # fmt: skip


class Again:
    """The LP of a programme, solved again and again between other bounds of its columns: each from the vertex before."""

    def __init__(self, arrays: Arrays, *, threads: int = 1, time_limit: float | None = None) -> None:
        self.scaled = scale(replace(arrays, integer=np.zeros_like(arrays.integer)))
        self.solver = _instance(threads, time_limit, 0.0)
        _accept(self.solver, self.solver.passModel(_model(self.scaled.arrays)), "the relaxation")

    def between(self, lower: NDArray[np.float64], upper: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Return the optimum between bounds of columns, None where there is none."""
        column = self.scaled.column
        every = np.arange(len(column), dtype=np.int32)
        _accept(self.solver, self.solver.changeColsBounds(len(every), every, lower / column, upper / column), "bounds")
        _accept(self.solver, self.solver.run(), "the relaxation")
        if self.solver.getModelStatus() != _status().kOptimal:
            return None
        return np.clip(np.array(self.solver.getSolution().col_value) * column, lower, upper)


def _unscaled(outcome: Outcome, scaled: Scaled, arrays: Arrays, whole: Arrays, kept: NDArray[np.int64]) -> Outcome:
    """Return an outcome of the scaled programme in the units of the whole one, with its own objective, bound and gap."""
    if outcome.values is None:
        return replace(outcome, bound=None if outcome.bound is None else outcome.bound / scaled.objective)
    values = np.clip(outcome.values * scaled.column, arrays.lower, arrays.upper)
    objective = float(arrays.cost @ values) + arrays.offset
    bound = None if outcome.bound is None else min(outcome.bound / scaled.objective, objective)
    proven = None if bound is None else (objective - bound) / max(abs(objective), 1e-12) if objective != bound else 0.0
    reduced = None if outcome.reduced is None else outcome.reduced / scaled.column / scaled.objective
    return replace(
        outcome,
        values=_spread(values, kept, whole),
        objective=objective,
        bound=bound,
        gap=proven,
        duals=None if outcome.duals is None else outcome.duals * scaled.row / scaled.objective,
        reduced=None if reduced is None else _spread(reduced, kept, whole),
    )


def _spread(values: NDArray[np.float64], kept: NDArray[np.int64], whole: Arrays) -> NDArray[np.float64]:
    """Return values of kept columns among zeros for the others."""
    result = np.zeros(len(whole.lower))
    result[kept] = values
    return result


def _can_hold(arrays: Arrays) -> bool:
    """Tell whether every column has a value between its bounds."""
    return bool(np.all(arrays.lower <= arrays.upper))


def without_columns(arrays: Arrays, kept: NDArray[np.int64]) -> Arrays:
    """Return the programme without columns that can only be zero; rows stay as they are."""
    place = np.full(len(arrays.lower), -1, dtype=np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    index = place[arrays.index]
    stays = index >= 0
    return replace(
        arrays,
        cost=arrays.cost[kept],
        lower=arrays.lower[kept],
        upper=arrays.upper[kept],
        integer=arrays.integer[kept],
        starts=np.concatenate([[0], np.cumsum(stays)])[arrays.starts].astype(np.int32),
        index=index[stays],
        value=arrays.value[stays],
    )


def fixed(arrays: Arrays, values: NDArray[np.float64]) -> Arrays:
    """Return the LP that is left when the integers are held at `values`, rounded."""
    whole = np.round(values)
    return replace(
        arrays,
        lower=np.where(arrays.integer, whole, arrays.lower),
        upper=np.where(arrays.integer, whole, arrays.upper),
        integer=np.zeros_like(arrays.integer),
    )


def threads_in_use() -> int:
    """Return the number of threads that this process has fixed, or 1."""
    return _threads_of_process[0] if _threads_of_process else 1


def _instance(threads: int, time_limit: float | None, gap: float) -> Any:
    if _threads_of_process and _threads_of_process[0] != threads:
        raise SolverError(
            f"threads: found {threads}; HiGHS keeps the first value of a process, here {_threads_of_process[0]}"
        )
    with _quiet_output():
        import highspy

        solver = highspy.Highs()
    if not _threads_of_process:
        _threads_of_process.append(threads)
    options = {
        "output_flag": False, "threads": threads, "random_seed": 0, "mip_rel_gap": gap, "mip_abs_gap": 0.0,
        "mip_feasibility_tolerance": 1e-9, "primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9,
        "small_matrix_value": SMALLEST,
    }  # fmt: skip
    if time_limit is not None:
        options["time_limit"] = float(time_limit)
    for name, value in options.items():
        _accept(solver, solver.setOptionValue(name, value), f"option {name} = {value}")
    return solver


def _status() -> Any:
    import highspy

    return highspy.HighsModelStatus


def _model(arrays: Arrays) -> Any:
    import highspy

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(arrays.lower), len(arrays.row_lower)
    model.col_cost_, model.offset_ = arrays.cost, arrays.offset
    model.col_lower_, model.col_upper_ = arrays.lower, arrays.upper
    model.row_lower_, model.row_upper_ = arrays.row_lower, arrays.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = arrays.starts, arrays.index, arrays.value
    if arrays.integer.any():
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[int(whole)] for whole in arrays.integer]
    return model


def _give_start(solver: Any, values: NDArray[np.float64]) -> None:
    import highspy

    solution = highspy.HighsSolution()
    solution.col_value = [float(v) for v in values]
    solution.value_valid = True
    solver.setSolution(solution)


def _read(solver: Any, whole: bool, gap: float) -> Outcome:
    """Return status, values, bound and duals as HiGHS itself has them (in the scaled programme)."""
    import highspy

    status, info, names = solver.getModelStatus(), solver.getInfo(), _status()
    has_plan = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    limits = {
        names.kTimeLimit: "time", names.kIterationLimit: "iterations", names.kSolutionLimit: "solutions", names.kInterrupt: "interrupt"
    }  # fmt: skip
    if status == names.kInfeasible:
        return Outcome("infeasible", None, None, None, None, None, 0.0)
    if status in (names.kUnbounded, names.kUnboundedOrInfeasible):
        return Outcome("unbounded" if status == names.kUnbounded else "unknown", None, None, None, None, None, 0.0)
    if status not in limits and status not in (names.kOptimal, names.kModelEmpty):
        return Outcome("error", None, None, None, None, str(solver.modelStatusToString(status)), 0.0)
    bound = float(info.mip_dual_bound) if whole else float(info.objective_function_value)
    proven = bound if isfinite(bound) and (whole or status == names.kOptimal) else None
    if not has_plan and status != names.kModelEmpty:
        return Outcome("unknown", None, None, proven, None, limits.get(status), 0.0)
    _in_hand.set()
    solution = solver.getSolution()
    values = np.array(solution.col_value, dtype=np.float64)
    duals = None if whole or not solution.dual_valid else np.array(solution.row_dual, dtype=np.float64)
    reduced = None if duals is None else np.array(solution.col_dual, dtype=np.float64)
    within = status in (names.kOptimal, names.kModelEmpty) or (whole and float(info.mip_gap) <= gap < inf)
    return Outcome(
        "optimal" if within else "feasible", values, None, proven, None, limits.get(status), 0.0, duals, reduced
    )


def _accept(solver: Any, status: Any, what: str) -> None:
    import highspy

    if status == highspy.HighsStatus.kError:
        raise SolverError(f"HiGHS refused {what}")


def _refuse_extremes(arrays: Arrays) -> None:
    size = np.abs(arrays.value)
    if np.any(size < SMALLEST) or np.any(size > LARGEST):
        raise SolverError(
            f"coefficients from {size.min():.3g} to {size.max():.3g}: beyond what HiGHS keeps, {SMALLEST} to {LARGEST}"
        )


def _tell(solver: Any, objective: float) -> None:
    """Let whoever watches know how the search goes on."""
    if (told := watcher()) is not None:
        solver.cbMipInterrupt.subscribe(
            lambda event: told(
                moment(
                    event.data_out.running_time,
                    event.data_out.mip_dual_bound,
                    event.data_out.mip_primal_bound,
                    objective,
                )
            )
        )


def forget_stop() -> None:
    """Begin anew: a wish to stop was for what ran before."""
    _stop.clear()
    _in_hand.clear()


def stop_is_asked() -> bool:
    """Tell whether the user asked to stop (Ctrl-C) since the beginning: the best plan in hand is the answer."""
    return _stop.is_set()


@contextmanager
def kept_from_stops() -> Iterator[None]:
    """Let Ctrl-C that comes between the solver's answer and a plan made of it stop further searches, and lose nothing.

    Raises
    ------
    KeyboardInterrupt
        At Ctrl-C while there is no answer yet.
    """
    if current_thread() is not main_thread():
        yield
        return

    def asked(*_: Any) -> None:
        _stop.set()
        if not _in_hand.is_set():
            raise KeyboardInterrupt

    forget_stop()
    with at_interrupt(asked):
        yield


@contextmanager
def _stoppable(solver: Any, whole: bool) -> Iterator[None]:
    """Let Ctrl-C end a search with the plan in hand in place of an exception."""
    if not whole or current_thread() is not main_thread():
        yield
        return
    # the solver asks now and then; it is then that Python hears the signal
    solver.cbMipInterrupt.subscribe(lambda event: event.interrupt() if _stop.is_set() else None)
    with at_interrupt(lambda *_: _stop.set()):
        yield


@contextmanager
def _quiet_output() -> Iterator[None]:
    """Turn file descriptor 1 away while HiGHS prints its banner: one thread at a time, or the last would keep it turned away."""
    with _turned_away:
        yield from _turned()


def _turned() -> Iterator[None]:
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # no standard output is open: nothing to keep clean
        yield
        return
    away = os.open(os.devnull, os.O_WRONLY)
    os.dup2(away, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(away)
