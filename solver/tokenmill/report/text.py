"""A plan as people read it in a terminal: what to get, what it costs, what it delivers, how far to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO

from rich.console import Console

from tokenmill.plan import NextUnit, Plan
from tokenmill.report.summary import heading, holding, saving_text, summary, worse_text
from tokenmill.report.text_pools import SITE, print_runs, print_workload
from tokenmill.report.text_words import money, print_table, quantity, say

WIDTH = 110
MOST_LINES = 6
PER = {
    "token": "per million tokens",
    "million_input": "per million input tokens",
    "million_output": "per million output tokens",
}
"""Words of what the cost is divided by; of anything else, "per" and its name."""
BOUGHT = ("system", "market", "site", "when", "count>", "chips>", "unit price>", "cost>", "power>")


def print_plan(plan: Plan, file: TextIO | None = None, bought: bool = True) -> None:
    """Print a plan on a stream (stdout), summary first; `bought`: with what to get and what it costs."""
    console = Console(file=file, width=None if file is None else WIDTH, highlight=False)
    for line in summary(plan) if bought else heading(plan):
        say(console, line, 0)
    if plan.status == "infeasible":
        _infeasible(console, plan)
    if plan.objective.value is not None:
        if bought:
            _purchases(console, plan)
            _cost(console, plan)
        asked = {item["name"]: item for item in plan.problem.get("workloads", ())}
        for name, workload in plan.workloads.items():
            print_workload(console, name, workload, asked.get(name, {}))
        print_runs(console, plan)
        _binding(console, plan)
        _alternatives(console, plan)
    _trust(console, plan)


def render(plan: Plan) -> str:
    """Return what `print_plan` prints, without colours."""
    from io import StringIO

    stream = StringIO()
    print_plan(plan, stream)
    return stream.getvalue()


def _purchases(console: Console, plan: Plan) -> None:
    _, rows = purchase_rows(plan)
    if rows:
        one_period = plan.problem.get("horizon", {}).get("periods") == 1
        print_table(console, "What to get", BOUGHT, rows, {**SITE, "when": "1"} if one_period else SITE)


def purchase_rows(plan: Plan) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the names of columns and the rows of what to get."""
    rows: list[tuple[str, ...]] = []
    for item in plan.purchases:
        when = f"{item.period}" if item.period == item.until else f"{item.period}-{item.until}"
        by_chip = item.count < 1 and item.chips > 0
        price = money(item.unit_price * item.count / item.chips if by_chip else item.unit_price)
        unit = price + ("" if item.market == "buy" else "/chip-h" if by_chip else "/h")
        rows.append(
            (
                item.system,
                item.market,
                item.site,
                f"{when} {item.slice or ''}".strip(),
                "by chip" if by_chip else f"{item.count:g}",
                f"{item.chips:g}",
                unit,
                money(item.cost),
                quantity(item.power, "W"),
            )
        )
    return [name.removesuffix(">") for name in BOUGHT], rows


def _cost(console: Console, plan: Plan) -> None:
    cost = plan.cost
    if cost.total is None:
        return
    parts = [f"{kind} {money(value)}" for kind, value in cost.by_kind.items() if value]
    duration = plan.problem.get("horizon", {}).get("duration")
    over = "" if duration is None else f" of {quantity(duration, 's')}"
    say(console, f"Cost {money(cost.total)} over the horizon{over}" + (f": {', '.join(parts)}." if parts else "."), 0)
    if len(cost.by_workload) > 1:
        say(console, "by workload: " + ", ".join(f"{name} {money(v)}" for name, v in cost.by_workload.items()))
    shares = dict(cost.per)
    if "million_output" in shares and "million_input" in shares:
        shares.pop("token", None)
    per = [
        f"{money(value * 1e6 if name == 'token' else value)} {PER.get(name, f'per {name}')}"
        for name, value in shares.items()
        if not (name == "million_output" and value == 1e6 * shares.get("token", 0.0))
    ]
    if per:
        say(console, "that is " + ", or ".join(per))
    if cost.idle:
        say(console, f"of which {money(cost.idle)} pays for hardware that stands idle")


def _binding(console: Console, plan: Plan) -> None:
    found = holding(plan)
    if not found:
        return
    console.print("\nWhat holds it back")
    for bound in found[:MOST_LINES]:
        line = bound.limit
        if isinstance(bound.value_of_next, NextUnit):
            line += f": {saving_text(plan, bound.value_of_next)}"
        say(console, line)
    _more(console, len(found) - MOST_LINES, "limits")


def _more(console: Console, count: int, what: str) -> None:
    if count > 0:
        console.print(f"  and {count} more {what}; the JSON holds all")


def _alternatives(console: Console, plan: Plan) -> None:
    if plan.alternatives:
        console.print("\nOther plans")
    for other in plan.alternatives:
        say(console, f"{other.what_changes}: {worse_text(plan, other)}")


def _infeasible(console: Console, plan: Plan) -> None:
    # what would do alone, then memory, time and money before rules of shape, which only say what layouts there are
    ordered = sorted(plan.infeasible, key=lambda short: (short.alone_would_do is not True, short.unit in ("", "1")))
    for short in ordered[:MOST_LINES]:
        amount = "" if short.shortfall is None else f" by {quantity(short.shortfall, short.unit)}"
        alone = {True: " Easing it alone would do.", False: " Easing it alone would not do.", None: ""}[
            short.alone_would_do
        ]
        say(console, f"{short.limit} ({short.key}) is missed{amount}.{alone}", shortened=True)
        if short.cure:
            say(console, short.cure, 4, shortened=True)
    _more(console, len(ordered) - MOST_LINES, "requirements")


def _trust(console: Console, plan: Plan) -> None:
    lines = []
    counts = evidence_counts(plan)
    if counts:
        lines.append("predictions rest on: " + ", ".join(f"{word} {count}" for word, count in counts.items()))
    guesses = sorted({leaf["title"].partition(",")[0] for leaf in leaves(plan) if leaf["evidence"] == "guess"})
    if guesses:
        more = f" and {len(guesses) - 4} more" if len(guesses) > 4 else ""
        lines.append(f"guessed: {'; '.join(guesses[:4])}{more}")
    sources = sorted({item.price_source for item in plan.purchases if item.price_source})
    lines += [f"price: {source}" for source in sources]
    if plan.audit.passed is not None:
        verdict = "passed" if plan.audit.passed else "FAILED"
        lines.append(
            f"re-check without the solver: {verdict}, largest residual {plan.audit.largest_residual or 0.0:.1e}"
        )
    if lines:
        console.print("\nHow far to trust it")
    if plan.notes:
        lines += plan.notes[:MOST_LINES]
    for line in lines:
        say(console, line, shortened=True)
    _more(console, len(plan.notes) - MOST_LINES, "notes")


def leaves(plan: Plan) -> list[Mapping[str, Any]]:
    """Return the leaves of the plan's trace, once each."""
    found = {}
    for node in plan.trace.values():
        for item in node["inputs"]:
            if not isinstance(item, str):
                found[item["symbol"], item["value"], item["origin"]] = item
    return list(found.values())


def evidence_counts(plan: Plan) -> dict[str, int]:
    """Return how many of the values that predictions rest on are measured, calibrated, datasheet, claim or guess."""
    words = ("measured", "calibrated", "datasheet", "claim", "guess")
    found = [leaf["evidence"] for leaf in leaves(plan)]
    return {word: found.count(word) for word in words if word in found}
