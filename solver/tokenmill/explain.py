"""`explain`: a figure of a plan unfolded to its formulas, with numbers plugged in, down to sources."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from tokenmill.errors import Mistake, ProblemError

if TYPE_CHECKING:
    from tokenmill.plan import Plan

STYLES = ("text", "markdown", "json")
UNLIMITED = 1e29  # a link or level that a layout does not use is given as one without limit
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class _Line:
    """One node or leaf as shown: depth, key or symbol, heading, and lines beneath."""

    depth: int
    head: str
    below: tuple[str, ...]


def explain(plan: Plan | Mapping[str, Any], figure: str, style: str = "text", depth: int | None = None) -> str:
    """Return a figure of a plan unfolded recursively to formulas, numbers, units, sources and evidence.

    `figure`: a key of the trace (``chat.decode.tpot.p95``, ``cost.total``), or the start of several. `style`: text,
    markdown or json. `depth`: how many levels to unfold; None for all.

    Raises
    ------
    ProblemError
        For a figure that the plan's trace does not hold (with the nearest names), or an unknown style.
    """
    if style not in STYLES:
        raise ProblemError([Mistake("--as", repr(style), ", ".join(STYLES), None)])
    trace = plan["trace"] if isinstance(plan, Mapping) else plan.trace
    keys = find(trace, figure)
    if style == "json":
        return json.dumps({"schema": 1, "figures": [unfold(trace, key, depth) for key in keys]}, ensure_ascii=False)
    lines: list[_Line] = []
    shown: set[str] = set()
    for key in keys:
        _collect(trace, key, 0, depth, shown, lines)
    return _as_text(lines) if style == "text" else _as_markdown(lines)


def find(trace: Mapping[str, Any], figure: str) -> list[str]:
    """Return the keys that a figure names: itself, or those that start with it and a dot.

    Raises
    ------
    ProblemError
        Where there is none, with the nearest names.
    """
    if figure in trace:
        return [figure]
    under = [key for key in trace if key.startswith(f"{figure}.") and "." not in key[len(figure) + 1 :]]
    if under:
        return under
    near = get_close_matches(figure, list(trace), n=3, cutoff=0.5)
    known = ", ".join(near) if near else ", ".join(list(trace)[:5]) or "none: the plan has no figures"
    raise ProblemError(
        [Mistake("figure", repr(figure), f"a figure of the plan, such as {known}", near[0] if near else None)]
    )


def unfold(trace: Mapping[str, Any], key: str, depth: int | None = None) -> dict[str, Any]:
    """Return a node with its inputs as nested nodes and leaves, `depth` levels deep."""
    node = trace[key]
    if depth == 0:
        return {"key": key, **node}
    deeper = None if depth is None else depth - 1
    inputs = [unfold(trace, item, deeper) if isinstance(item, str) else item for item in node["inputs"]]
    return {"key": key, **node, "inputs": inputs}


def value_text(value: float | None, unit: str) -> str:
    """Return a value [SI] with its unit as people read it."""
    if value is None:
        return "none"
    if abs(value) >= UNLIMITED:
        return "no limit"
    if unit in ("", "1"):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.6g}"
    from tokenmill.units import format_quantity

    return format_quantity(value, unit)


def plugged(trace: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    """Return the node's formula with the values of its inputs in place of their symbols."""
    items = [trace[item] if isinstance(item, str) else item for item in node["inputs"]]
    values = [value_text(item["value"], item["unit"]) for item in items]
    if node["formula"] == "sum":
        return " + ".join(values) or "0"
    if "*" in node["formula"] or "/" in node["formula"]:
        values = [f"({text})" if " " in text or "/" in text else text for text in values]
    by_symbol = {item["symbol"]: text for item, text in zip(items, values, strict=True)}
    return _WORD.sub(lambda match: by_symbol.get(match[0], match[0]), node["formula"])


def _collect(
    trace: Mapping[str, Any], key: str, level: int, depth: int | None, shown: set[str], lines: list[_Line]
) -> None:
    node = trace[key]
    name = key if level == 0 else node["symbol"]
    head = f"{name} = {value_text(node['value'], node['unit'])}"
    if key in shown:
        lines.append(_Line(level, f"{head}  (unfolded above)", ()))
        return
    shown.add(key)
    formula = "sum of" if node["formula"] == "sum" else node["formula"]
    below = [f"{node['symbol']} = {formula}", f"{' ' * len(node['symbol'])} = {plugged(trace, node)}"]
    source = "" if node["source"] in ("", "definition") else f"  [{node['source']}]"
    lines.append(_Line(level, f"{head}  {node['title']}{source}", tuple(below)))
    if depth is not None and level >= depth:
        return
    leaves = [item for item in node["inputs"] if not isinstance(item, str)]
    lines.extend(_Line(level + 1, _leaf_text(leaf), ()) for leaf in leaves)
    for item in node["inputs"]:
        if isinstance(item, str):
            _collect(trace, item, level + 1, depth, shown, lines)


def _leaf_text(leaf: Mapping[str, Any]) -> str:
    title = leaf.get("title", "")
    about = "; ".join(part for part in (leaf["origin"], leaf["source"], leaf["evidence"]) if part)
    words = "" if title in ("", leaf["symbol"]) else f"  {title}"
    return f"{leaf['symbol']} = {value_text(leaf['value'], leaf['unit'])}{words}" + (f"  [{about}]" if about else "")


def _as_text(lines: list[_Line]) -> str:
    shown = []
    for line in lines:
        indent = "  " * line.depth
        shown.append(f"{indent}{line.head}")
        shown.extend(f"{indent}    {text}" for text in line.below)
    return "\n".join(shown) + "\n"


def _as_markdown(lines: list[_Line]) -> str:
    shown = []
    for line in lines:
        indent = "  " * line.depth
        name, _, rest = line.head.partition(" = ")
        shown.append(f"{indent}- **{name}** = {rest}")
        shown.extend(f"{indent}  - `{text.strip()}`" for text in line.below)
    return "\n".join(shown) + "\n"
