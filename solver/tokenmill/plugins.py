"""Formulas and stages of a user's own: modules named on the command line, and entry points of installed packages.

A module registers with `tokenmill_models.formula.register` and `tokenmill_models.stage.register_stage`. What it brings is
checked before use: every definition must scale by its dimension, and its two ways of evaluation must agree.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tokenmill.errors import Mistake, ProblemError

if TYPE_CHECKING:
    from tokenmill_models.formula import Graph

GROUP = "tokenmill.plugins"
TRIES = 20
ARCHITECTURE = "llama-3.1-8b"


def load(modules: Iterable[str] = ()) -> None:
    """Import the modules and the entry points of the group ``tokenmill.plugins``; check what they register.

    Raises
    ------
    ProblemError
        For a module that cannot be imported, and for every definition that fails a check.
    """
    wanted = [(f"--plugin {name}", name) for name in modules]
    wanted += [(f"entry point {point.name}", point.module) for point in entry_points(group=GROUP)]
    if not wanted:
        return
    formulas, stages = _registered()
    for place, name in wanted:
        _import(place, name)
    after_formulas, after_stages = _registered()
    place = ", ".join(label for label, _ in wanted)
    mistakes = [
        *_formula_mistakes(place, {k: v for k, v in after_formulas.items() if k not in formulas}),
        *_stage_mistakes(place, {k: v for k, v in after_stages.items() if k not in stages}),
    ]
    if mistakes:
        raise ProblemError(mistakes)


def _registered() -> tuple[dict[str, Any], dict[str, Any]]:
    from tokenmill_models import formula, stage

    return formula.library(), stage.registered()


def _import(place: str, module: str) -> None:
    sys.path.insert(0, str(Path.cwd()))
    try:
        import_module(module)
    except ImportError as error:
        raise ProblemError([Mistake(place, f"{module!r} ({error})", "a Python module that can be imported")]) from error
    except (ValueError, TypeError, KeyError) as error:
        raise ProblemError(
            [Mistake(place, f"{module!r}: {error}", "symbols, formulas and stages that can be registered")]
        ) from error
    finally:
        sys.path.pop(0)


def _formula_mistakes(place: str, formulas: Mapping[str, Any]) -> list[Mistake]:
    from tokenmill_models.formula import Graph

    found = []
    for name, formula in formulas.items():
        found += _mistakes(f"{place}: {name}", Graph({formula.symbol: formula}), formula.valid)
    return found


def _stage_mistakes(place: str, stages: Mapping[str, Any]) -> list[Mistake]:
    found = []
    for name, stage in stages.items():
        for role in _roles(stage):
            found += _mistakes(f"{place}: {name}.{role.name}", role.graph, ())
    return found


def _roles(stage: Any) -> tuple[Any, ...]:
    """Return the roles of a stage: of one that has no model, else of a model of the catalogue."""
    if not any(item.kind == "architecture" for item in stage.inputs):
        return tuple(stage.roles(None))
    from tokenmill.imports.architecture import load_architecture

    return tuple(stage.roles(load_architecture(ARCHITECTURE)))


def _mistakes(place: str, graph: Graph, valid: tuple[Any, ...]) -> list[Mistake]:
    """Return what is wrong with the definitions of a graph at random numbers of its leaves."""
    from tokenmill_models.checks import dimension_failures, route_failures

    try:
        values = _numbers(graph, valid)
        failures = dimension_failures(graph, values) + route_failures(graph, values)
    except KeyError as error:
        return [Mistake(place, f"the symbol {error}", "symbols that are declared, with a dimension")]
    except ArithmeticError as error:
        return [Mistake(place, str(error), "a definition that has a value for some positive numbers")]
    return [
        Mistake(
            place,
            f"{failure.symbol} = {failure.found:g} where {failure.expected:g} is due ({failure.check})",
            "a definition that scales by its dimension"
            if failure.check == "dimension"
            else "a definition whose exact and compiled values agree",
        )
        for failure in failures
    ]


def _numbers(graph: Graph, valid: tuple[Any, ...]) -> dict[str, float]:
    """Return numbers for the leaves under which the definitions hold and have a value.

    Raises
    ------
    ArithmeticError
        Where no try finds any.
    """
    from tokenmill_models.compile import constants, exact, walk

    _, leaves = graph.needs(list(graph.formulas))
    for seed in range(TRIES):
        draw = Random(seed)
        values = {leaf.name: 10 ** draw.uniform(-1, 3 if seed % 2 else 0) for leaf in leaves} | constants(leaves)
        try:
            if all(exact(relation, {s: values[s.name] for s in relation.free_symbols}) for relation in valid):
                walk(graph, list(graph.formulas), values)
                return values
        except (ZeroDivisionError, TypeError, ValueError, OverflowError):
            continue
    raise ArithmeticError(f"no value at any of {TRIES} random choices of its symbols")
