"""tokenmill: which hardware, how much of it, laid out how, for every stage in the life of an AI model.

The verbs of the library; each loads what it needs when it is first used:

load_problem, solve, check, derive, explain, sweep, pareto, front, compare, answers, explore, matrix, claim, simulate, calibrate, validate, load_plan,
load_catalog
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenmill.answers import answers
    from tokenmill.api import check, solve
    from tokenmill.calibration import calibrate
    from tokenmill.catalog import load_catalog
    from tokenmill.claim import claim
    from tokenmill.compare import compare
    from tokenmill.derive import derive
    from tokenmill.errors import ProblemError, TokenmillError
    from tokenmill.explain import explain
    from tokenmill.explore import explore
    from tokenmill.front import front
    from tokenmill.matrix import matrix
    from tokenmill.pareto import pareto
    from tokenmill.plan import Plan, load_plan
    from tokenmill.problem import Problem
    from tokenmill.reading import load_problem
    from tokenmill.simulate import simulate
    from tokenmill.sweep import sweep
    from tokenmill.validate import validate

_HOMES = {
    "Plan": "plan",
    "Problem": "problem",
    "ProblemError": "errors",
    "TokenmillError": "errors",
    "answers": "answers",
    "calibrate": "calibration",
    "check": "api",
    "claim": "claim",
    "compare": "compare",
    "derive": "derive",
    "explain": "explain",
    "explore": "explore",
    "front": "front",
    "load_catalog": "catalog",
    "load_plan": "plan",
    "load_problem": "reading",
    "matrix": "matrix",
    "pareto": "pareto",
    "simulate": "simulate",
    "solve": "api",
    "sweep": "sweep",
    "validate": "validate",
}

__all__ = [
    "Plan",
    "Problem",
    "ProblemError",
    "TokenmillError",
    "answers",
    "calibrate",
    "check",
    "claim",
    "compare",
    "derive",
    "explain",
    "explore",
    "front",
    "load_catalog",
    "load_plan",
    "load_problem",
    "matrix",
    "pareto",
    "simulate",
    "solve",
    "sweep",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use, so that importing the package costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tokenmill' has no attribute {name!r}")
    value = getattr(import_module(f"tokenmill.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """The package as a module on which a verb is not hidden by the submodule of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
