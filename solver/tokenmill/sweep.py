"""The same problem at several values of its keys, solved side by side in processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from multiprocessing import active_children, get_context
from os import cpu_count
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal
from typing import TYPE_CHECKING, Any

from tokenmill.errors import Mistake, ProblemError
from tokenmill.problem import HOUR, MARKETS, PriceOverride, Problem
from tokenmill.reading import load_problem
from tokenmill.units import QuantityError, parse_quantity

if TYPE_CHECKING:
    from tokenmill.plan import Plan

PRICE = "price."
MOST = 10_000
RANGE = re.compile(r"([^\d.+-]*)([+-]?[\d.]+(?:[eE][+-]?\d+)?)(.*)")


@dataclass(frozen=True)
class Point:
    """One problem of a sweep: the values laid over the file, by key, and its plan."""

    values: Mapping[str, str]
    plan: Plan


def sweep(
    source: str | Path | Mapping[str, Any],
    over: Mapping[str, Sequence[Any]],
    *,
    overrides: Iterable[tuple[str, Any]] = (),
    time_limit: float | None = None,
    processes: int | None = None,
    explained: bool = True,
) -> list[Point]:
    """Return the plan of a problem at every combination of values, in the order given.

    `over`: key (or ``price.SYSTEM.MARKET``, USD a chip-hour or to buy) to values; `overrides`: laid over the file
    first; `time_limit`: of each [s]; `processes`: the cores of the machine where absent; `explained`: each plan with what
    holds it back and the next best plans, which is most of the time of some.

    Raises
    ------
    ProblemError
        For keys or values that the file cannot take, found before anything is solved.
    """
    if not over or not all(over.values()):
        raise ProblemError([Mistake("--over", "no values", "key=a,b,c or key=from:to:step")])
    combinations = [dict(zip(over, values, strict=True)) for values in product(*over.values())]
    problems = [with_values(source, chosen, tuple(overrides)) for chosen in combinations]
    workers = min(len(problems), processes or cpu_count() or 1)
    size = -(-len(problems) // workers)
    parts = [problems[at : at + size] for at in range(0, len(problems), size)]
    if workers == 1:
        solved = [_solved(part, time_limit, explained) for part in parts]
    else:
        solved = _side_by_side(partial(_solved, time_limit=time_limit, explained=explained), parts, workers)
    plans = [plan for part in solved for plan in part]
    return [
        Point({key: str(value) for key, value in chosen.items()}, plan)
        for chosen, plan in zip(combinations, plans, strict=True)
    ]


def _side_by_side(
    work: Callable[[Sequence[Problem]], list[Plan]], parts: Sequence[Sequence[Problem]], workers: int
) -> list[list[Plan]]:
    """Return the work done on each part, in processes of their own; they end with whatever ends the wait for them (Ctrl-C)."""
    others = set(active_children())
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=signal, initargs=(SIGINT, SIG_IGN)) as pool:
        try:
            return list(pool.map(work, parts))
        except BaseException:
            for child in set(active_children()) - others:
                child.terminate()
            raise


def _solved(problems: Sequence[Problem], time_limit: float | None, explained: bool) -> list[Plan]:
    """Return the plans of problems; layouts that several of them choose from are searched once."""
    from tokenmill.api import solve_found
    from tokenmill.catalog import load_catalog
    from tokenmill.searches import Searches

    catalog, searches = load_catalog(), Searches()
    return [
        solve_found(problem, time_limit=time_limit, catalog=catalog, searches=searches, explained=explained)[0]
        for problem in problems
    ]


def with_values(
    source: str | Path | Mapping[str, Any], chosen: Mapping[str, Any], overrides: Sequence[tuple[str, Any]] = ()
) -> Problem:
    """Return the problem of a file with values laid over it."""
    plain = [(key, value) for key, value in chosen.items() if not key.startswith(PRICE)]
    problem = load_problem(source, [*overrides, *plain])
    for key, value in chosen.items():
        if key.startswith(PRICE):
            problem = with_price(problem, key, value)
    return problem


def with_price(problem: Problem, key: str, value: Any) -> Problem:
    """Return the problem with the price of ``price.SYSTEM.MARKET`` (USD a chip-hour, or to buy a system)."""
    system, _, market = key.removeprefix(PRICE).rpartition(".")
    if market not in MARKETS or not system:
        raise ProblemError([Mistake(key, repr(market), f"price.SYSTEM.MARKET, with a market of {', '.join(MARKETS)}")])
    amount = _dollars(key, value, market)
    own = PriceOverride(system, market)
    own = replace(own, purchase=amount) if market == "buy" else replace(own, per_chip_hour=amount)
    kept = tuple(p for p in problem.hardware.prices if (p.system, p.market) != (system, market))
    return replace(problem, hardware=replace(problem.hardware, prices=(*kept, own)))


def _dollars(key: str, value: Any, market: str) -> float:
    """Return USD to buy, or USD an hour; a bare number is already that."""
    try:
        amount = float(value)
    except ValueError:
        try:
            amount = (
                parse_quantity(str(value), "USD") if market == "buy" else parse_quantity(str(value), "USD/s") * HOUR
            )
        except QuantityError as error:
            raise ProblemError([Mistake(key, error.found, error.allowed)]) from error
    if not 0.0 <= amount < float("inf"):
        raise ProblemError([Mistake(key, repr(value), "a price of at least 0")])
    return amount


def values_of(text: str) -> tuple[str, list[str]]:
    """Return key and values of ``key=a,b,c`` or ``key=from:to:step`` (both ends with; units stand with each number).

    Raises
    ------
    ProblemError
        For other texts.
    """
    key, _, given = text.partition("=")
    parts = _split(given)
    bounds = given.split(":")
    if key.strip() and len(parts) == 1 and len(bounds) == 3:
        parts = _range(text, bounds)
    if not key.strip() or not given.strip() or not all(part.strip() for part in parts):
        raise ProblemError([Mistake("--over", repr(text), "key=a,b,c or key=from:to:step")])
    return key.strip(), [part.strip() for part in parts]


def _split(text: str) -> list[str]:
    """Return the parts between commas that stand outside brackets and quotes."""
    parts, depth, quoted = [""], 0, ""
    for letter in text:
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "\"'":
            quoted = letter
        depth += (letter in "[{") - (letter in "]}") if not quoted else 0
        if letter == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _range(text: str, bounds: Sequence[str]) -> list[str]:
    found = [RANGE.fullmatch(bound.strip().strip("\"'")) for bound in bounds]
    if not all(found):
        raise ProblemError([Mistake("--over", repr(text), "key=from:to:step with a number in each")])
    start, stop, step = (float(match[2]) for match in found if match)
    before, after = (found[0][1], found[0][3]) if found[0] else ("", "")
    count = (stop - start) / step if step else -1.0
    if not 0 <= count < MOST:
        raise ProblemError(
            [Mistake("--over", repr(text), f"a step that leads from the first to the last in under {MOST}")]
        )
    numbers = [start + n * step for n in range(int(count + 1e-9) + 1)]
    quote = '"' if before or after else ""
    return [f"{quote}{before}{number:.12g}{after}{quote}" for number in numbers]
