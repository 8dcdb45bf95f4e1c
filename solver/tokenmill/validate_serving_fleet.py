"""Scores large expert-parallel deployments: tokens a second of pools whose layout was published, and the nodes of a whole day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import median
from typing import Any

from tokenmill.catalog import load_catalog
from tokenmill.validate import Evaluation, Outcome
from tokenmill.validate_cases import Case, Predictor
from tokenmill.validate_serving_rows import names, precision, read_rows, serving_case

DAY, HOUR = 86400.0, 3600.0
RATES = {"prompts": "rate", "answers": "tokens_per_second"}
"""Figure by what a pool does: requests a second of a pool of prompts, tokens a second of one of answers."""
METRICS = {"prompts": "prompt_rate", "answers": "answer_rate"}
NODES = "nodes"
BATCHES = tuple(float(k) for k in range(4, 257, 4))
"""Running sequences of a rank that are tried where the pace of an answer is stated, not the load."""


def evaluate(name: str) -> Evaluation:
    """Return the outcomes of measured/serving/deepseek_serving.csv: rates of pools a chip [1/s], nodes of the day."""
    rows = {entry["id"]: entry for entry in read_rows(name)}
    left = Counter(reason for reason in map(_unusable, rows.values()) if reason)
    outcomes = [_outcome(row, rows, predicted) for row, predicted in _predicted().items()]
    return Evaluation([*outcomes, _nodes(rows, outcomes)], len(rows), dict(left))


def _unusable(entry: Mapping[str, str]) -> str:
    if entry["id"] in {*names()["pools"], *names()["day"].values()}:
        return ""
    if not entry["unit"].startswith("tokens/s"):
        return "no rate of a pool: a price, a layout, a power, a ratio or a count"
    return str(names()["unscored"].get(entry["id"]) or "a rate whose layout, load or format is not stated")


@cache
def day() -> Mapping[str, float]:
    """Return the stated traffic of the day by name: tokens of prompts, of them cached, of answers, keys of a token, money."""
    rows = {entry["id"]: float(entry["value"]) for entry in read_rows("deepseek_serving")}
    return {name: rows[row] for name, row in names()["day"].items()}


def lengths_of_day() -> tuple[float, float]:
    """Return the mean prompt and answer [tokens]: their ratio is that of the day, and prompt + answer/2 are the keys of a token."""
    told = day()
    ratio = told["input"] / told["output"]
    answer = told["keys"] / (ratio + 0.5)
    return ratio * answer, answer


def _case(row: str) -> Case:
    pool = names()["pools"][row]
    entry = next(entry for entry in read_rows("deepseek_serving") if entry["id"] == row)
    ranks = int(pool["ranks"])
    prompt, answer = (float(pool["input"]), float(pool["output"])) if "input" in pool else lengths_of_day()
    hit = day()["cached"] / day()["input"] if pool.get("cached") else 0.0
    engine: dict[str, Any] = {
        "name": pool["engine"], "disaggregated": True, "attention_dp": ranks, "two_batches": pool["two_batches"],
    }  # fmt: skip
    workload: dict[str, Any] = {
        "demand": {"input_tokens": prompt, "output_tokens": answer, "prefix_cache_hit": hit},
        "engine": engine,
        "layout": {"tp": 1, "pp": 1, "ep": ranks},
        "precision": precision(pool["weights"]),
    }
    if pool["does"] == "prompts":
        engine["chunk"] = float(pool["chunk"])
    elif "batch" in pool:
        engine["batch"] = float(pool["batch"]) * ranks
    else:
        engine["batch"] = [k * ranks for k in BATCHES]
        workload["slo"] = {"tpot": {"mean": 2 / (day()["slow"] + day()["fast"])}}
    case = serving_case(
        entry, entry["hardware"], entry["model"], entry["deployment"], ranks, workload, does=pool["does"]
    )
    if isinstance(case, str):
        raise ValueError(f"measured/serving/names.toml, pools.{row}: {case}")
    return case


@cache
def _predicted() -> Mapping[str, float]:
    """Return the predicted tokens a second a chip of every pool, tokens of prompts with those found in the cache."""
    found: dict[str, float] = {}
    for does, figure in RATES.items():
        rows = [row for row, pool in names()["pools"].items() if pool["does"] == does]
        cases = [_case(row) for row in rows]
        predictor = Predictor(cases, (figure,), highest=True)
        for row, case, one in zip(rows, cases, predictor.predict(), strict=True):
            if one is None:
                raise ValueError(f"measured/serving/names.toml, pools.{row}: no layout keeps the rules")
            tokens = float(case.workload["demand"]["input_tokens"]) if does == "prompts" else 1.0
            found[row] = one.figures[figure] * tokens / float(names()["pools"][row]["ranks"])
    return found


def _outcome(row: str, rows: Mapping[str, Mapping[str, str]], predicted: float) -> Outcome:
    entry, does = rows[row], names()["pools"][row]["does"]
    chip = names()["accelerators"][entry["hardware"]]["chip"]
    others = [_measured(rows[other]) for other in _like(row, rows)]
    base = median(others) if others else None
    return Outcome(chip, METRICS[does], entry["deployment"], predicted, _measured(entry), base)


def _like(row: str, rows: Mapping[str, Mapping[str, str]]) -> Sequence[str]:
    """Return pools of other deployments that do the same: the baseline is the median of their rates."""
    pools = names()["pools"]
    return [
        other
        for other in pools
        if pools[other]["does"] == pools[row]["does"] and rows[other]["deployment"] != rows[row]["deployment"]
    ]


def _measured(entry: Mapping[str, str]) -> float:
    """Return tokens a second a chip."""
    chips = 8.0 if entry["unit"].endswith("/node") else 1.0
    return float(entry["value"]) / chips


def _nodes(rows: Mapping[str, Mapping[str, str]], outcomes: Sequence[Outcome]) -> Outcome:
    """Return the mean nodes of the day: its tokens over the rates of both pools; measured as its money over the price of a chip."""
    told, words = day(), names()["fleet"]
    entry = rows[names()["day"]["money"]]
    own = {o.metric: o for o in outcomes if o.group == entry["deployment"]}
    chip = names()["accelerators"][entry["hardware"]]["chip"]
    system = load_catalog().system(names()["accelerators"][entry["hardware"]]["system"])
    a_node = float(system.chips)
    asked = {METRICS["prompts"]: told["input"] / DAY, METRICS["answers"]: told["output"] / DAY}
    predicted = sum(rate / own[metric].predicted for metric, rate in asked.items()) / a_node
    base = sum(rate / (own[metric].baseline or own[metric].predicted) for metric, rate in asked.items()) / a_node
    measured = told["money"] / (DAY / HOUR * words["dollars_per_chip_hour"] * a_node)
    return Outcome(chip, NODES, entry["deployment"], predicted, measured, base)
