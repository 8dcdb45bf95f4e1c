"""What can go wrong, and how it is said.

TokenmillError
├── ProblemError      mistakes in a problem file: all of them, each with its key path
├── CatalogError      mistakes in catalogue data, or a name it does not hold
├── ImportFileError   a foreign file that cannot be read
├── AuditError        a plan that fails its own re-check: a defect, never a result
└── SolverError       the optimiser refused its input or failed
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


class TokenmillError(Exception):
    """Base of every error that tokenmill raises on purpose."""


@dataclass(frozen=True)
class Mistake:
    """One mistake in a user's file: where it is, what was found, what is allowed, the nearest known name."""

    key: str
    found: str
    allowed: str
    nearest: str | None = None

    def __str__(self) -> str:
        hint = f" (did you mean {self.nearest!r}?)" if self.nearest else ""
        return f"{self.key}: found {self.found}; allowed: {self.allowed}{hint}"


class ProblemError(TokenmillError):
    """All mistakes of one problem file."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


class CatalogError(TokenmillError):
    """A mistake in catalogue data, or a name that the catalogue does not hold."""


class ImportFileError(TokenmillError):
    """A foreign file (configuration, prices, topology, trace) that cannot be read."""


class AuditError(TokenmillError):
    """A plan that does not pass its independent re-check."""


class SolverError(TokenmillError):
    """The optimiser refused its input or failed."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest in spelling to `name`, whatever its case, or None where none is close."""
    lower = {each.lower(): each for each in known}
    matches = get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
    return lower[matches[0]] if matches else None
