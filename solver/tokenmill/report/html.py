"""A plan as one HTML page that needs nothing else: what the terminal prints, schedules, and every figure unfolded by links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from tokenmill.explain import plugged, value_text
from tokenmill.plan import Plan, Pool
from tokenmill.report.html_parts import colour, document, table
from tokenmill.report.summary import heading, holding, saving_text, title, worse_text
from tokenmill.report.text import evidence_counts, purchase_rows
from tokenmill.report.text_pools import delivers, layout_text
from tokenmill.report.text_words import money, percent, quantity

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1b1f24 }
h2 { margin-top: 2rem; border-bottom: 1px solid #d0d7de } table { border-collapse: collapse; margin: .5rem 0 }
td, th { padding: .15rem .7rem .15rem 0; text-align: left; vertical-align: top } th { color: #57606a; font-weight: 600 }
.bar { display: flex; height: 1.1rem; border-radius: 3px; overflow: hidden; margin: .2rem 0 }
.bar span { overflow: hidden; white-space: nowrap; font-size: .75rem; color: #fff; padding-left: .25rem }
code { font-size: .85em; background: #f3f4f6; padding: 0 .2rem } .dull { color: #57606a } :target { background: #fff3bf }
"""
NOT_PARTS = ("total", "capacity", "allocated", "reserved", "usable")
"""Sums and limits among the figures of memory."""


def page(plan: Plan) -> str:
    """Return a plan as a self-contained HTML page (no script, no network)."""
    name = title(plan)
    parts = [
        f"<h1>{escape(name)}</h1>",
        *(f"<p>{escape(line)}</p>" for line in heading(plan) if line != name),
        *_infeasible(plan),
        *_money(plan),
        *(part for workload, work in plan.workloads.items() for part in _workload(plan, workload, work)),
        *_limits(plan),
        *_trust(plan),
        *_figures(plan),
    ]
    return document(name, STYLE, parts)


def _bar(parts: Mapping[str, float], whole: float, words: Mapping[str, str]) -> str:
    """Return parts of a whole as one bar; `words` stand in it and beside it on pointing."""
    spans = [
        f'<span style="width:{100 * value / whole:.3f}%;background:{colour(at)}" '
        f'title="{escape(words[name])}">{escape(name)}</span>'
        for at, (name, value) in enumerate(parts.items())
        if whole > 0 and value > 0.002 * whole
    ]
    return f'<div class="bar">{"".join(spans)}</div>'


def _infeasible(plan: Plan) -> Iterator[str]:
    if plan.infeasible:
        rows = [
            (escape(s.key), escape(s.limit), quantity(s.shortfall, s.unit), escape(s.cure or ""))
            for s in plan.infeasible
        ]
        yield "<h2>What is in the way</h2>" + table(("line of the file", "limit", "missed by", "cure"), rows)


def _money(plan: Plan) -> Iterator[str]:
    if plan.cost.total is None:
        return
    names, rows = purchase_rows(plan)
    if rows:
        yield "<h2>What to get</h2>" + table(names, [[escape(cell) for cell in row] for row in rows])
    yield f"<h2>Cost {_link(plan, 'cost.total', money(plan.cost.total))}</h2>"
    kinds = {name: value for name, value in plan.cost.by_kind.items() if value}
    for parts in (kinds, plan.cost.by_workload):
        yield _bar(parts, sum(parts.values()), {name: f"{name} {money(value)}" for name, value in parts.items()})
    rates = [(escape(name), _link(plan, f"cost.per.{name}", money(value))) for name, value in plan.cost.per.items()]
    if rates:
        yield table(("per", "cost"), rates)


def _workload(plan: Plan, name: str, work: Any) -> Iterator[str]:
    yield f'<h2>{escape(name)} <span class="dull">({escape(work.stage)})</span></h2>'
    if work.bottleneck:
        second = f", then {work.bottleneck.second.replace('_', ' ')}" if work.bottleneck.second else ""
        yield f"<p>Time goes to {work.bottleneck.resource.replace('_', ' ')} ({percent(work.bottleneck.share)}){second}.</p>"
    asked = {item["name"]: item for item in plan.problem.get("workloads", ())}.get(name, {})
    for pool in work.pools:
        yield f"<h3>{escape(pool.name)}: {pool.replicas:g} x {escape(pool.system)}, {pool.chips:g} chips</h3>"
        yield f"<p>{escape(layout_text(pool))}</p>"
        yield "".join(f"<p>{escape(line)}</p>" for line in delivers(pool, asked))
        yield from _pool_bars(pool)
        yield _predictions(plan, name, pool)
        yield from _schedule(pool)


def _pool_bars(pool: Pool) -> Iterator[str]:
    shares = {k: v for k, v in pool.predicted.get("time_shares", {}).items() if v}
    if shares:
        yield "<p>Time of a step</p>" + _bar(
            shares, sum(shares.values()), {k: f"{k} {percent(v)}" for k, v in shares.items()}
        )
    memory = pool.predicted.get("memory", {})
    parts = {k: v for k, v in memory.items() if v and k not in NOT_PARTS}
    if parts:
        whole = memory.get("capacity") or sum(parts.values())
        yield "<p>Memory of the fullest chip</p>" + _bar(
            parts, whole, {k: f"{k} {quantity(v, 'B')}" for k, v in parts.items()}
        )


def _predictions(plan: Plan, workload: str, pool: Pool) -> str:
    rows = []
    for name, value in _flat(pool.predicted):
        key = f"{workload}.{pool.name}.{name}"
        if name.startswith("time_shares") or key not in plan.trace:
            continue
        low_high = _at(pool.intervals, name)
        interval = "" if not low_high else " to ".join(value_text(end, plan.trace[key]["unit"]) for end in low_high)
        evidence = str(_at(pool.evidence, name) or "")
        rows.append((escape(name), _link(plan, key, value_text(value, plan.trace[key]["unit"])), interval, evidence))
    return table(("figure", "value", "80% interval", "evidence"), rows)


def _flat(table: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{start}{name}.")
        else:
            yield f"{start}{name}", value


def _at(table: Any, path: str) -> Any:
    for word in path.split("."):
        table = table.get(word) if isinstance(table, Mapping) else None
    return table


def _schedule(pool: Pool) -> Iterator[str]:
    if len(pool.schedule) > 1:
        rows = [
            (
                f"{s.period}",
                escape(s.slice),
                f"{s.replicas:g}",
                f"{s.rate:.4g}/s",
                percent(s.utilisation),
                quantity(s.power, "W"),
            )
            for s in pool.schedule
        ]
        yield table(("period", "slice", "replicas", "rate", "used", "power"), rows)


def _limits(plan: Plan) -> Iterator[str]:
    if found := holding(plan):
        yield "<h2>What holds it back</h2><ul>"
        for bound in found:
            worth = bound.value_of_next
            more = "" if isinstance(worth, str) else f": {saving_text(plan, worth)}"
            yield f"<li>{escape(bound.limit + more)}</li>"
        yield "</ul>"
    if plan.alternatives:
        items = [f"<li>{escape(o.what_changes)}: {worse_text(plan, o)}</li>" for o in plan.alternatives]
        yield "<h2>Other plans</h2><ul>" + "".join(items) + "</ul>"


def _trust(plan: Plan) -> Iterator[str]:
    counts = ", ".join(f"{word} {count}" for word, count in evidence_counts(plan).items())
    audit = {True: "passed", False: "FAILED", None: "not run"}[plan.audit.passed]
    sources = sorted({item.price_source for item in plan.purchases if item.price_source})
    lines = [f"predictions rest on: {counts}" if counts else "", f"re-check without the solver: {audit}"]
    lines += [f"price: {source}" for source in sources] + list(plan.notes)
    yield "<h2>How far to trust it</h2><ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines if line) + "</ul>"


def _figures(plan: Plan) -> Iterator[str]:
    """Yield every figure of the trace once, its inputs as links."""
    if not plan.trace:
        return
    yield "<h2>Every figure</h2>"
    for key, node in plan.trace.items():
        value = value_text(node["value"], node["unit"])
        source = (
            "" if node["source"] in ("", "definition") else f' <span class="dull">[{escape(node["source"])}]</span>'
        )
        formula = "sum of" if node["formula"] == "sum" else node["formula"]
        inputs = "".join(f"<li>{_input(plan, item)}</li>" for item in node["inputs"])
        yield (
            f'<details id="{_anchor(key)}"><summary><b>{escape(key)}</b> = {escape(value)} '
            f'<span class="dull">{escape(node["title"])}</span></summary>'
            f"<p><code>{escape(node['symbol'])} = {escape(formula)}</code>{source}<br>"
            f"<code>{escape(plugged(plan.trace, node))}</code></p><ul>{inputs}</ul></details>"
        )


def _input(plan: Plan, item: Any) -> str:
    if isinstance(item, str):
        node = plan.trace[item]
        return f"{escape(node['symbol'])} = {_link(plan, item, value_text(node['value'], node['unit']))} {escape(node['title'])}"
    about = "; ".join(part for part in (item["origin"], item["source"], item["evidence"]) if part)
    return (
        f"{escape(item['symbol'])} = {escape(value_text(item['value'], item['unit']))} {escape(item.get('title', ''))} "
        f'<span class="dull">[{escape(about)}]</span>'
    )


def _anchor(key: str) -> str:
    return quote(key, safe="._-")


def _link(plan: Plan, key: str, text: str) -> str:
    return f'<a href="#{_anchor(key)}">{escape(text)}</a>' if key in plan.trace else escape(text)
