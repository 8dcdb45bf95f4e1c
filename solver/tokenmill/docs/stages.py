"""One page a stage: keys of the file, choices, and for each role its rules, definitions and sources."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from tokenmill import data
from tokenmill.docs.text import equation, plain, table
from tokenmill.imports.architecture import load_architecture
from tokenmill_models import printing
from tokenmill_models.stage import Role, StageModel, stages
from tokenmill_models.symbols import quantity

SHOWN = "llama-3.1-8b"
"""Model for which the definitions of a role are written out: dense, grouped queries, nothing that others lack."""


def pages() -> Iterator[tuple[str, str]]:
    """Yield path and text of the page of every stage, and of their index."""
    known = stages()
    for stage in known.values():
        yield f"stages/{stage.name}.md", _page(stage)
    rows = [(f"[{stage.name}]({stage.name}.md)", stage.doc) for stage in known.values()]
    yield "stages/index.md", f"# Stages\n\n{table(('stage', 'what it is'), rows)}"


def _page(stage: StageModel) -> str:
    keys = [
        (f"`{item.name}`", item.kind, item.dimension or "1", "required" if item.required else item.default, item.doc)
        for item in stage.inputs
    ]
    axes = [(f"`{axis.key}`", ", ".join(map(str, axis.values)) or "computed", axis.doc) for axis in stage.axes]
    parts = [
        f"# {stage.name}\n\n{stage.doc}\n\n`tokenmill new {stage.name}` prints a file with all its keys.\n",
        "## Keys\n\n" + table(("key", "kind", "unit", "default", "meaning"), keys),
    ]
    if axes:
        parts.append("## Choices\n\nLeft out, they are searched.\n\n" + table(("key", "values", "meaning"), axes))
    errors = _errors(stage.name)
    if errors:
        parts.append(
            "## How close to reality\n\nLogarithm of measured over predicted on groups that no fit saw, the middle 80%.\n\n"
            + table(("figure", "evidence", "low", "high", "rows"), errors)
        )
    roles = _roles(stage)
    parts += [_role(part) for role in roles for part in (role, *role.parts.values())]
    return "\n".join(parts)


def _roles(stage: StageModel) -> tuple[Role, ...]:
    """Return the roles of a stage for the model shown; those that depend on further inputs, at their defaults."""
    wants = any(item.kind == "architecture" and item.name == "model" for item in stage.inputs)
    model = load_architecture(SHOWN) if wants else None
    return stage.roles(model)


def _errors(stage: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for file in sorted((data.path("catalog") / "efficiency").glob("residuals*.csv")):
        with file.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                if row["stage"] == stage and not row.get("fold"):
                    found.append((row["figure"], row["evidence"], row["low"], row["high"], row["rows"]))
    return found


def _role(role: Role) -> str:
    outputs = [*role.ports.values(), *role.figures.values(), *role.shares.values()]
    order, _ = role.graph.needs(outputs)
    rules = [
        (
            rule.doc,
            f"`{printing.text(rule.left)}` {rule.kind.replace('_', ' ')} `{printing.text(rule.right)}`",
            rule.cure or "",
        )
        for rule in role.rules
    ]
    names: dict[Any, list[str]] = {}
    for name, symbol in role.figures.items():
        names.setdefault(symbol, []).append(f"`{name}`")
    parts = [f"## Role {role.name} ({role.kind})\n"]
    if rules:
        parts.append("### Rules\n\n" + table(("rule", "in symbols", "what may give way"), rules))
    parts.append("### Definitions\n")
    for symbol in order:
        formula, about = role.graph.formulas[symbol], quantity(symbol)
        figure = f" Figure {', '.join(names[symbol])} of the plan." if symbol in names else ""
        source = "" if formula.source.text == "definition" else f" Source: {formula.source.text}."
        assumed = f" Assuming {'; '.join(formula.assumes)}." if formula.assumes else ""
        parts.append(
            f"**`{symbol.name}`** [{about.dimension}]: {plain(formula.title)}.{figure}{plain(source)}{plain(assumed)}\n"
        )
        parts.append(equation(symbol, formula.rounded))
    return "\n".join(parts)
