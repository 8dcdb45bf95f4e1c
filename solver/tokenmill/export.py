"""A plan as what people run it with: launch commands of engines and frameworks, and its tables as CSV.

What a tool calls a choice is data (``exports/*.toml`` of the catalogue): a flag, the key of the pool it is read from, its words, the
keys of what else its text names, and `where` another key must hold a word. What no flag of a tool says is a remark above its command.
"""

from __future__ import annotations

import csv
import io
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tokenmill import data
from tokenmill.errors import Mistake, ProblemError, nearest
from tokenmill.imports.architecture import published_as
from tokenmill.plan import Plan, Pool
from tokenmill.plan_json import encode

TABLE = "csv"
JOINED = " \\\n  "
"""Between the words of a command, one a line."""


@cache
def _forms(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml"))}


def kinds() -> list[str]:
    """Return the names that `export` takes."""
    return [*_forms(data.path("catalog") / "exports"), TABLE]


def export(plan: Plan, kind: str) -> str:
    """Return a plan in a foreign form: ``csv`` (a row a figure), or launch commands of a tool (a line a pool, comments with ``#``).

    Raises
    ------
    ProblemError
        For an unknown kind, or a plan without a pool that the tool could run.
    """
    if kind not in kinds():
        raise ProblemError([Mistake("--to", repr(kind), ", ".join(kinds()), nearest(kind, kinds()))])
    if kind == TABLE:
        return _figures(plan)
    form = _forms(data.path("catalog") / "exports")[kind]
    lines = [f"# {form['title']}. {form['note']}", f"# {form['source']}"]
    asked = {item["name"]: item for item in plan.problem.get("workloads", ())}
    pools = [(name, pool) for name, work in plan.workloads.items() for pool in work.pools if pool.role in form["roles"]]
    if not pools:
        roles = sorted({pool.role for work in plan.workloads.values() for pool in work.pools}) or ["none"]
        allowed = f"a plan with pools of {', '.join(form['roles'])}"
        raise ProblemError([Mistake("--to", f"{kind} for pools of {', '.join(roles)}", allowed)])
    for name, pool in pools:
        lines += [
            "",
            f"# {name}, {pool.name}: {pool.replicas:g} of these on {pool.system}, {pool.chips:g} chips in all",
        ]
        values = _values(pool, asked.get(name, {}))
        lines += [f"# {text}" for text in _said(form.get("remark", ()), values)]
        lines.append(JOINED.join([_start(form, asked.get(name, {})), *_said(form["flag"], values)]))
    for name in dict.fromkeys(name for name, _ in pools):
        lines += _router(form, [pool for owner, pool in pools if owner == name], asked.get(name, {}))
    return "\n".join(lines) + "\n"


def _router(form: Mapping[str, Any], pools: Sequence[Pool], asked: Mapping[str, Any]) -> Iterator[str]:
    """Yield what stands before the pools of a workload that hand requests on, where it has one of each kind: note and command."""
    router = form.get("router")
    if router is None or not set(router["each"]) <= {pool.role for pool in pools}:
        return
    yield from ("", f"# {router['note']}", f"# {router['source']}")
    servers = [
        f"{router['each'][pool.role].format(host='$' + pool.name.upper().replace('-', '_'))}"
        for pool in pools
        if pool.role in router["each"]
    ]
    yield JOINED.join([router["start"].format(**_model(asked)), *servers])


def _model(asked: Mapping[str, Any]) -> dict[str, str]:
    """Return the model's name, and that of the repository it is published in, as far as the catalogue knows it."""
    name = str(asked.get("model") or "MODEL")
    return {"model": shlex.quote(name), "repository": shlex.quote(published_as(name) or name)}


def _start(form: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    start = f"{form['start']} {form['model']}".strip()
    return start.format(**_model(asked), nodes="$NODES", per_node="$CHIPS_A_NODE")


def _values(pool: Pool, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what flags read: tables of the pool, inputs of the workload, and what follows from both.

    `ranks`: of a pipeline stage; `memory_fraction`: the engine's share of a whole device's memory, of which a shared chip has a part.
    """
    given = asked.get("values", {})
    chips = pool.chips / max(pool.replicas, 1)
    fraction, share = given.get("memory_fraction"), float(pool.layout.get("chip_share") or 1.0)
    return {
        "role": pool.role,
        "layout": pool.layout,
        "precision": pool.precision,
        "settings": pool.settings,
        "predicted": encode(pool.predicted),
        "input": given,
        "ranks": max(1, int(chips / max(int(pool.layout.get("pp") or 1), 1))),
        "memory_fraction": None if fraction is None else fraction * share,
    }


def _said(flags: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of each flag or remark whose key has a value that it speaks of; what is no word of a tool is quoted."""
    for flag in flags:
        found, where = _value(flag["key"], values), flag.get("where")
        if where is not None and _value(where["key"], values) != where["word"]:
            continue
        if found is None or found in flag.get("unless", ()):
            continue
        words, word = flag.get("words"), _word(found)
        if words is not None and word not in words:
            continue
        also = {name: _word(_value(key, values)) for name, key in flag.get("also", {}).items()}
        plain = str(flag.get("value", "{value}")).format(value=word, **also)
        yield str(flag["text"]).format(value=shlex.quote(plain) if words is None else words[word], **also)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:g}"
    return str(value)


def _value(key: str, values: Mapping[str, Any]) -> Any:
    """Return what stands behind a dotted key (table, then a name that may have dots of its own); None where nothing does."""
    table, _, name = key.partition(".")
    found = values[table]
    return found.get(name) if isinstance(found, Mapping) else found


def _figures(plan: Plan) -> str:
    """Return the plan's figures as CSV: key, value [SI], unit, title, formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["figure", "value", "unit", "title", "formula"])
    for key, node in plan.trace.items():
        writer.writerow([key, encode(node["value"]), node["unit"], node["title"], node["formula"]])
    return text.getvalue()
