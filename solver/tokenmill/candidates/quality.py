"""The user's own table of what a format keeps of a model's quality, and the least that a workload asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tokenmill.candidates.columns import Dropped
from tokenmill.problem import Workload
from tokenmill_models.stage import Role

FORMATS = "precision."
RULE, CURE = "quality", "min_quality"


def kept(workload: Workload, role: Role, words: Mapping[str, Any]) -> float:
    """Return the quality that a choice of formats keeps: the least of theirs; one that the table does not name keeps all."""
    named = (words.get(axis.name) for axis in role.axes if axis.key.startswith(FORMATS))
    return min((workload.quality.get(str(word), 1.0) for word in named), default=1.0)


def enough(workload: Workload, role: Role, words: Mapping[str, Any]) -> bool:
    """Return whether a choice of formats keeps the quality that the workload asks for."""
    return kept(workload, role, words) >= workload.min_quality


def below(
    workload: Workload, roles: Iterable[Role], words: Mapping[tuple[str, str], list[dict[str, Any]]]
) -> Iterator[Dropped]:
    """Yield what the least quality removes: by role and system (`words`: by both names), how many choices of formats, and the nearest."""
    by_name = {role.name: role for role in roles}
    for (name, system), choices in words.items():
        role = by_name[name]
        missed = [one for one in choices if not enough(workload, role, one)]
        if missed:
            best = max(missed, key=lambda one: kept(workload, role, one))
            gap = workload.min_quality - kept(workload, role, best)
            nearest = {axis.key: best[axis.name] for axis in role.axes if axis.key.startswith(FORMATS)}
            yield Dropped(workload.name, name, system, RULE, "limit", len(missed), gap, "1", CURE, nearest)
