"""How an answer was made: the one part of a plan that differs from run to run."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from tokenmill.milp.solution import Termination
from tokenmill.plan import RunRecord
from tokenmill.problem import Problem

PACKAGES = ("tokenmill", "numpy", "sympy", "networkx", "pulp", "highspy")


def record(problem: Problem, ended: Termination, seconds: float | None) -> RunRecord:
    """Return seconds (of the whole solve; absent: of the programme), the limit that stopped it, host, versions, seed."""
    taken = ended.seconds if seconds is None else seconds
    return RunRecord(taken, ended.limit, platform.node(), versions(), problem.seed)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide an answer."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
