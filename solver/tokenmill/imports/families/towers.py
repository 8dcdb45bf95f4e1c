"""Configurations that wrap a language model: where its fields lie, and the encoders beside it."""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.imports.families.config import Config
from tokenmill_models.architecture import Tower


@dataclass(frozen=True)
class Composed:
    """The language model's part of a configuration, and what is to be said about the rest."""

    text: Config
    wrapper: str
    notes: tuple[str, ...] = ()


def text_config(c: Config) -> Composed:
    """Return the language model's configuration."""
    return Composed(c, "")


def towers_of(c: Config, composed: Composed) -> tuple[Tower, ...]:
    """Return the encoders."""
    return ()
