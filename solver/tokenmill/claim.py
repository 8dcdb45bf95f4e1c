"""`claim`: an announcement held against the roofline of the hardware it names, with what it leaves unsaid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tokenmill.catalog import Catalog, load_catalog
from tokenmill.claim_facts import Bound, Facts
from tokenmill.claim_rules import RULES
from tokenmill.claim_words import read_claim, said
from tokenmill.errors import Mistake, ProblemError, nearest
from tokenmill_models.closed_claim import METRICS, metric_of

WORDS = {
    True: "within the bound of the stated hardware",
    False: "refused: it breaks the bound of the stated hardware",
    None: "cannot be held against a bound",
}


@dataclass(frozen=True)
class Verdict:
    """The answer to a claim.

    `within`: whether the bound leaves room for it (None: it cannot be held against one). `wall`: the resource that bounds it.
    `missing`: what must be said before it can be compared. `conditions`: under which it would hold. `maturity`: of the product, as
    claimed and as known. `answers`: the five questions to an announcement.
    """

    text: str
    stage: str
    metric: str
    value: Any
    unit: str
    baseline: str
    wall: str | None
    verdict: str
    within: bool | None
    bound: Bound | None
    conditions: tuple[str, ...]
    missing: tuple[str, ...]
    maturity: Mapping[str, str]
    source: str
    made_up: bool = False
    answers: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as JSON data."""
        return {"schema": 1, **asdict(self)}


def claim(source: str | Path | Mapping[str, Any], *, catalog: Catalog | None = None) -> Verdict:
    """Return what holds of a claim: a file with a ``[claim]`` table, or that table.

    Raises
    ------
    ProblemError
        Where the file cannot be read, keys are unknown or missing, or the metric is unknown.
    """
    table = dict(source) if isinstance(source, Mapping) else read_claim(Path(source))
    metric = metric_of(str(table["metric"]))
    if metric is None:
        known = [word for one in METRICS.values() for word in (one.name, *one.words)]
        raise ProblemError(
            [Mistake("claim.metric", repr(table["metric"]), ", ".join(known), nearest(str(table["metric"]), known))]
        )
    return _answer(Facts(table, metric, catalog or load_catalog()))


def _answer(facts: Facts) -> Verdict:
    judged = RULES[facts.metric.name](facts)
    missing = facts.missing()
    made_up = bool(facts.table.get("made_up", False))
    verdict = (judged.word or WORDS[judged.within]) + (
        f"; not comparable until it says {', '.join(m.partition(':')[0] for m in missing)}" if missing else ""
    )
    known = _maturity(facts)
    baseline = str(said(facts.table.get("baseline")) or "none stated")
    answers = {
        "which stage": facts.metric.stage,
        "which wall": judged.wall or "cannot be said",
        "which metric": f"{facts.metric.name.replace('_', ' ')} [{facts.metric.unit}], claimed {facts.table['value']}",
        "against what baseline": baseline,
        "is it shipping": known["known"],
    }
    return Verdict(
        str(facts.table["text"]), facts.metric.stage, facts.metric.name, facts.table["value"], facts.metric.unit, baseline,
        judged.wall, verdict, judged.within, judged.bound, judged.conditions, missing, known, str(facts.table["source"]), made_up,
        answers,
    )  # fmt: skip


def _maturity(facts: Facts) -> dict[str, str]:
    claimed = str(said(facts.table.get("maturity")) or "not stated")
    chip = facts.hardware.chip
    if chip is not None:
        note = f" ({chip.status}: {chip.notes})" if chip.status != "shipping" and chip.notes else ""
        return {"claimed": claimed, "known": f"{chip.name}: {chip.maturity}{note}"}
    return {"claimed": claimed, "known": facts.hardware.remark or "no product of the catalogue is named"}
