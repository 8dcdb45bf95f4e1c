"""Reads a problem: a file, a text or tables in Python to a checked Problem in SI, with every mistake at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from math import isinf
from pathlib import Path
from typing import Any

from tokenmill.catalog import Catalog, load_catalog
from tokenmill.devices import at_home
from tokenmill.errors import Mistake, ProblemError
from tokenmill.problem import Problem
from tokenmill.reading_checks import check_problem
from tokenmill.reading_files import SUFFIXES, apply_overrides, read_file, read_text
from tokenmill.reading_names import Names
from tokenmill.reading_tables import read_fields
from tokenmill.reading_values import Reading
from tokenmill.reading_workload import workloads
from tokenmill_models.stage import StageModel, stages


def load_problem(
    source: str | Path | Mapping[str, Any],
    overrides: Iterable[tuple[str, Any]] = (),
    *,
    catalog: Catalog | None = None,
    known: Mapping[str, StageModel] | None = None,
) -> Problem:
    """Read a problem from a path, a text (TOML, JSON, YAML) or tables; in tables bare numbers are SI.

    `overrides`: (path, value) pairs laid over it, tables by name, a text value being a TOML literal; `catalog`: the
    shipped one where absent; `known`: the stages, the registered ones where absent.

    Raises
    ------
    ProblemError
        Every mistake, each with its key path, what was found and what is allowed.
    """
    raw, base = _raw(source)
    si = isinstance(source, Mapping)
    return read_problem(apply_overrides(raw, overrides), base, si=si, catalog=catalog, known=known)


def _raw(source: str | Path | Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
    if isinstance(source, Mapping):
        return dict(source), Path()
    text = str(source)
    if isinstance(source, Path) or ("\n" not in text and (text.endswith(SUFFIXES) or not set(text) & set("={:"))):
        path = Path(source)
        return read_file(path), path.resolve().parent
    return read_text(text), Path()


def read_problem(
    raw: Mapping[str, Any],
    base: Path,
    *,
    si: bool = False,
    catalog: Catalog | None = None,
    known: Mapping[str, StageModel] | None = None,
) -> Problem:
    """Return the problem of plain tables; `base`: the folder that paths are relative to."""
    catalog = catalog or load_catalog()
    known = stages() if known is None else known
    state = Reading(Names(raw, catalog, base), base, si)
    state.nested["workloads"] = lambda item, key, path, state: workloads(item, path, state, known)
    found = read_fields(raw, Problem, "", state)
    problem = Problem(**{"workloads": (), **found}, base=base)
    problem = check_problem(problem, state, known)
    if state.mistakes:
        raise ProblemError(state.mistakes)
    return replace(at_home(problem, known, state.defaulted), defaulted=tuple(sorted(state.defaulted)))


def unsupported(problem: Problem) -> list[Mistake]:
    """Return what the problem asks that no plan can take into account: it is refused, never left out in silence."""
    if problem.risk.cvar_weight > 0.0 and not problem.scenarios:
        return [
            Mistake(
                "risk.cvar_weight", f"{problem.risk.cvar_weight:g} without scenarios", "[[scenario]] tables to weigh"
            )
        ]
    return []


def resolved(problem: Problem) -> dict[str, Any]:
    """Return the whole problem with its defaults as plain JSON tables in SI; unlimited is null."""
    return {item.name: _plain(getattr(problem, item.name)) for item in fields(problem) if item.name != "base"}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(label): _plain(item) for label, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and isinf(value) else value
