"""Pages of commands, of the library's names, of constraint families, of the catalogue's tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import tokenmill
from tokenmill.docs.text import table
from tokenmill.milp import constraints
from tokenmill.plan_json import encode

MATH = re.compile(r"\.\. math::\s*(.+?)(?=\n\s*\n)", re.DOTALL)
KINDS = ("chips", "systems", "links", "networks", "prices")


def commands() -> str:
    """Return the page of all commands with their options."""
    import typer

    from tokenmill.cli import app

    parts = [
        "# Commands\n\nExit codes: 0 a plan in hand, 1 infeasible, 2 bad input, 3 stopped without a plan or unbounded, 4 a defect.\n"
    ]
    parts += list(_command(typer.main.get_command(app), "tokenmill"))
    return "\n".join(parts)


def _command(command: Any, name: str) -> Iterator[str]:
    for child in getattr(command, "commands", {}).values():
        path = f"{name} {child.name}"
        rows = [
            (
                f"`{'/'.join(p.opts)}`" if p.opts[0].startswith("-") else f"`{str(p.name).upper()}`",
                getattr(p, "help", "") or "",
            )
            for p in child.params
            if p.name != "help"
        ]
        yield f"## {path}\n\n{child.help or ''}\n\n{table(('option', 'meaning'), rows)}"
        yield from _command(child, path)


def library() -> str:
    """Return the page of the library's public names."""
    parts = ["# Library\n\n`import tokenmill as tm`; verbs are functions, nouns are frozen dataclasses.\n"]
    for name in tokenmill.__all__:
        value = getattr(tokenmill, name)
        shape = "" if inspect.isclass(value) else str(inspect.signature(value))
        parts.append(f"## {name}\n\n```python\n{name}{shape}\n```\n\n{inspect.getdoc(value) or ''}\n")
    return "\n".join(parts)


def families() -> Iterator[tuple[str, str]]:
    """Yield the name of every constraint family and its page."""
    for info in iter_modules(constraints.__path__):
        module = import_module(f"{constraints.__name__}.{info.name}")
        made = [
            member
            for _, member in inspect.getmembers(module, inspect.isfunction)
            if member.__module__ == module.__name__ and not member.__name__.startswith("_")
        ]
        parts = [f"# Constraints: {info.name}\n\n{inspect.getdoc(module) or ''}\n"]
        parts += [
            f"## {member.__name__}\n\n{_mathematics(inspect.getdoc(member) or '')}\n"
            for member in sorted(made, key=_line)
        ]
        yield info.name, "\n".join(parts)


def _line(member: Any) -> int:
    return int(member.__code__.co_firstlineno)


def _mathematics(doc: str) -> str:
    """Return a docstring with its ``.. math::`` parts as displayed LaTeX."""
    return MATH.sub(lambda found: f"$$\n{' '.join(found[1].split())}\n$$", doc + "\n\n").strip()


def tables() -> Iterator[tuple[str, str]]:
    """Yield the kind of every table of the catalogue and its page."""
    from tokenmill.catalog import catalog_table

    for kind in KINDS:
        rows = encode(catalog_table(kind))
        heads = list(dict.fromkeys(key for row in rows for key in row))
        body = table(heads, ([_short(row.get(head)) for head in heads] for row in rows))
        yield kind, f"# Catalogue: {kind}\n\n`tokenmill catalog show NAME` gives one entry with its sources.\n\n{body}"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)
