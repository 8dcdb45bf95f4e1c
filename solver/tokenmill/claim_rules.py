"""One rule a metric: whether a claim keeps the bound of its hardware, which wall that is, and under what conditions it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokenmill.claim_facts import NO_PEAK, Bound, Facts, evaluated
from tokenmill.claim_words import numbers, numbers_of_sizes, said
from tokenmill.units import parse_quantity
from tokenmill_models.architecture import kv_bytes_per_token

ROUNDED = 0.01
"""Share by which a claim may pass a bound: announcements round."""
CONTEXTS = (0.0, 1024.0, 8192.0, 32768.0, 131072.0)
"""Tokens of context that are tried where a claim says none; 0 leaves the cache out."""
MOST_SEQUENCES = 65536.0
HOUR = 3600.0
ALMOST_ALL = 0.999
"""Acceptance of drafted tokens that bounds what speculation can give."""


@dataclass(frozen=True)
class Judged:
    """What a metric's rule found: whether the claim keeps the bound, the bound, the wall, conditions; `word`: in place of WORDS."""

    within: bool | None
    bound: Bound | None = None
    wall: str | None = None
    conditions: tuple[str, ...] = ()
    word: str = ""


def _rate(facts: Facts) -> Judged:
    """Hold a rate (or a price) against the roofline at its batch and context, or at the best that memory holds."""
    formula, most = facts.metric.bound, facts.metric.most
    if facts.model is None or facts.hardware.chip is None or formula is None:
        return Judged(None)
    price = _rent(facts)
    extra = {} if price is None else {"price": price}

    def at(batch: float, context: float) -> Bound:
        assert formula is not None
        return evaluated(formula, facts.leaves(batch, context) | extra)

    def holds(bound: Bound) -> bool:
        return facts.value <= bound.value * (1 + ROUNDED) if most else facts.value >= bound.value * (1 - ROUNDED)

    contexts = CONTEXTS if facts.context is None else (facts.context,)
    per_user = facts.metric.name == "user_rate"
    best = {c: facts.batch or (1.0 if per_user else _largest(facts, c)) for c in contexts}
    bounds = {c: at(best[c], c) for c in contexts}
    kept = [c for c in contexts if holds(bounds[c])]
    shown = bounds[kept[-1] if kept else contexts[0]]
    conditions = []
    if facts.context is None and len(kept) < len(contexts):
        conditions.append(f"a context of at most some {kept[-1]:g} tokens" if kept else "not even without any context")
    if facts.batch is None and kept and not per_user:
        least = _least_batch(lambda r: holds(at(r, kept[0])), best[kept[0]])
        conditions.append(
            f"at least {least:,.0f} sequences at once with {kept[0]:g} tokens of context each; memory holds {best[kept[0]]:,.0f}"
        )
    if facts.batch is not None and kept and not per_user:
        alone = at(1.0, contexts[0])
        conditions.append(
            f"only at a batch of about {facts.batch:g}: with one sequence the bound is {alone.value:.4g} {alone.unit}"
        )
    takes = [] if kept else _what_it_takes(facts, shown)
    word = (
        "refused as a rate of output tokens: it breaks the bound; see what would have to be counted"
        if len(takes) > 1
        else ""
    )
    return Judged(bool(kept), shown, _wall(shown.inputs), (*conditions, *takes), word)


def _what_it_takes(facts: Facts, bound: Bound) -> list[str]:
    """Return what a claimed rate of tokens would ask of compute, and what would have to be counted."""
    if facts.metric.name != "tokens_per_second" or facts.model is None:
        return []
    work = 2 * facts.model.parameters.computed * facts.value
    said_lengths = numbers(said(facts.table.get("context")))
    found = [
        f"the multiplications alone would take {work / 1e15:.3g} PFLOP/s, {work / facts.chips / 1e15:.3g} a device"
    ]
    if len(said_lengths) > 1 and said_lengths[1]:
        both = bound.value * (said_lengths[0] + said_lengths[1]) / said_lengths[1]
        verb = "would" if both >= facts.value else "would still not"
        found.append(
            f"counting prompt tokens too, as {said_lengths[0]:g}/{said_lengths[1]:g} suggests, the bound of {both:,.0f} {verb} reach it"
        )
    return found


def _rent(facts: Facts) -> float | None:
    """Return the rent of a device [USD/s]: as the claim states it, else the least that the catalogue knows on demand: a bound."""
    stated = said(facts.table.get("price"))
    if stated is not None:
        return parse_quantity(str(stated), "USD/s")
    chip = facts.hardware.chip
    rows = [] if chip is None or chip.missing else facts.catalog.prices_of(chip.id, "on-demand")
    known = [row.per_chip_hour for row in rows if row.per_chip_hour is not None and row.evidence != "guess"]
    return min(known) / HOUR if known else None


def _largest(facts: Facts, context: float) -> float:
    """Return the most sequences whose caches fit beside the weights (MOST_SEQUENCES without context)."""
    named = facts.leaves(1.0, context)
    room = facts.chips * facts.hardware.chip.capacity - named["weights"] if facts.hardware.chip else 0.0
    if room <= 0:
        return 1.0
    return MOST_SEQUENCES if not context else max(1.0, min(MOST_SEQUENCES, room // (named["kv_token"] * context)))


def _least_batch(holds: Callable[[float], bool], most: float) -> float:
    low, high = 0.0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _wall(named: Mapping[str, float]) -> str:
    """Return which side of the roofline a step lies on."""
    touched = named["weights"] - named["routed"] * (1 - named["active"]) ** named["batch"]
    memory = (touched + named["batch"] * named["kv_token"] * named["context"]) / named["bandwidth"]
    compute = 2 * named["computed"] * named["batch"] / named["peak"] if "peak" in named else 0.0
    return "memory_bandwidth" if memory >= compute else "compute"


def _ratio(facts: Facts) -> Judged:
    """Hold a gain over other hardware against peaks at an equal batch, and against the batches that memory holds."""
    new, old = facts.hardware.chip, facts.baseline.chip
    if new is None or old is None or facts.metric.bound is None:
        return Judged(None)
    bits = [facts.catalog.precisions[name].bits for name in facts.formats] or [16.0]
    named = {
        "bandwidth": new.bandwidth, "other_bandwidth": old.bandwidth, "bytes_ratio": bits[-1] / bits[0],
        "peak": facts.peak or NO_PEAK, "other_peak": facts.peak_on(facts.baseline, 1) or NO_PEAK,
    }  # fmt: skip
    equal = evaluated(facts.metric.bound, named)
    if facts.value <= equal.value * (1 + ROUNDED):
        return Judged(True, equal, _gain_wall(named), ())
    if facts.model is None:
        return Judged(
            None, equal, "memory_capacity",
            (f"at an equal batch the peaks give at most {equal.value:.3g}",
             f"for the rest the baseline would have to run a batch {facts.value / equal.value:.2g} times smaller at the same time a token: "
             "a limit of latency that it barely meets, or memory that holds few sequences"),
            "more than the peaks give at an equal batch; no bound without batch and model",
        )  # fmt: skip
    found = [(c, _capacity_gain(facts, c)) for c in CONTEXTS[1:] if facts.context is None or c == facts.context]
    found = found or [(facts.context or 1024.0, _capacity_gain(facts, facts.context or 1024.0))]
    kept = [(c, g) for c, g in found if g is not None and equal.value * g >= facts.value * (1 - ROUNDED)]
    conditions = [
        f"at an equal batch the peaks give at most {equal.value:.3g}",
        *(
            f"with {c:g} tokens of context the larger batch that fits gives up to {equal.value * g:.3g} in all"
            for c, g in found
            if g
        ),
    ]
    return Judged(bool(kept), equal, "memory_capacity", tuple(conditions))


def _gain_wall(named: Mapping[str, float]) -> str:
    memory = named["bandwidth"] / named["other_bandwidth"] * named["bytes_ratio"]
    return "memory_bandwidth" if memory >= named["peak"] / named["other_peak"] else "compute"


def _capacity_gain(facts: Facts, context: float) -> float | None:
    """Return the gain by the larger batch that fits on as many devices, at equal bandwidth; None where the baseline holds none."""
    named = facts.leaves(1.0, context)
    new, old = facts.hardware.chip, facts.baseline.chip
    cache = named["kv_token"] * context
    batches = [(facts.chips * chip.capacity - named["weights"]) // cache for chip in (new, old) if chip is not None]
    if min(batches) < 1:
        return None
    gains = [batch / (named["weights"] + batch * cache) for batch in batches]
    return float(gains[0] / gains[1])


def _fit(facts: Facts) -> Judged:
    """Hold what must be stored against memory."""
    if facts.model is None or facts.metric.bound is None:
        return Judged(None)
    stated = facts.model.parameters.total
    same = abs(facts.value / stated - 1) <= 0.05 if facts.values else True
    context, batch = facts.context or 0.0, facts.batch or 1.0
    if facts.hardware.chip is None:
        bits = facts.catalog.precisions[facts.formats[0]].bits if facts.formats else 16.0
        cache = kv_bytes_per_token(facts.model, 2.0, context or None) * context
        text = (
            f"its configuration counts {stated / 1e12:.4g} T parameters: {facts.weights / 1e12:.3g} TB in {bits:g} bits"
        )
        more = f"one sequence of {context:g} tokens adds {cache / 1e9:.3g} GB of cache" if context else ""
        return Judged(
            same if facts.metric.name == "capacity" else None,
            None,
            "memory_capacity",
            tuple(t for t in (text, more) if t),
        )
    needed = evaluated(facts.metric.bound, facts.leaves(batch, context))
    room = facts.chips * facts.hardware.chip.capacity
    least = -(-needed.value // facts.hardware.chip.capacity)
    text = f"{needed.value / 1e9:.4g} GB are needed and {facts.chips:g} devices have {room / 1e9:.4g} GB: {least:g} or more would hold them"
    return Judged(needed.value <= room and same, needed, "memory_capacity", (text,))


def _peak(facts: Facts) -> Judged:
    """Hold a rate of arithmetic against the dense peak of the catalogue."""
    if facts.peak is None:
        return Judged(
            None, None, "compute", ("whether it counts zeros (sparsity) must be said: the dense rate would be half",)
        )
    bound = Bound("chip.peak", "dense peak of the catalogue", facts.peak, "FLOP/s", {}, "")
    conditions = (
        () if facts.value <= facts.peak * (1 + ROUNDED) else ("counted with structured sparsity: twice the dense rate",)
    )
    return Judged(facts.value <= 2 * facts.peak * (1 + ROUNDED), bound, "compute", conditions)


def _latency(facts: Facts) -> Judged:
    """Say what acceptance a gain by speculative decoding asks for, with the sizes that the claim names."""
    from tokenmill.derive import derive

    sizes = [one for one in numbers_of_sizes(str(facts.table.get("model") or "")) if one > 0]
    if len(sizes) < 2:
        return Judged(None)
    cost = min(sizes) / max(sizes)
    gain = derive("serving.speculative_gain")

    def best(acceptance: float) -> tuple[float, int]:
        tried = (
            (gain.given({"acceptance": acceptance, "drafted": g, "draft_cost": cost}).value or 0.0, g)
            for g in range(1, 17)
        )
        return max(tried)

    conditions = []
    for wanted in sorted(set(facts.values)):
        low, high = 0.0, ALMOST_ALL
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if best(middle)[0] >= wanted else (middle, high)
        conditions.append(
            f"{wanted:g} times needs {high:.2f} of drafted tokens accepted, {best(high)[1]} drafted a step"
        )
    conditions.append(
        "the batch is small: beyond the ridge of the chip verification costs compute and nothing is gained"
    )
    most = best(ALMOST_ALL)
    named = {"acceptance": ALMOST_ALL, "drafted": float(most[1]), "draft_cost": cost}
    shown = gain.given(named)
    bound = Bound(shown.formula.name, shown.formula.title, most[0], "1", named, shown.text())
    return Judged(max(facts.values) <= most[0], bound, "memory_bandwidth", tuple(conditions))


def _bytes(facts: Facts) -> Judged:
    """Hold a cut of memory traffic against the bits of the formats."""
    if not facts.formats:
        return Judged(None)
    bits = [facts.catalog.precisions[name].bits for name in facts.formats]
    cuts = sorted(1 - one / 16 for one in bits)
    names = ", ".join(f"{name} {100 * (1 - b / 16):.3g}%" for name, b in zip(facts.formats, bits, strict=True))
    conditions = (
        f"of the traffic of weights alone: {names}",
        "at small batch and short context, where weights are what is read; caches keep their own format",
    )
    bound = Bound(
        "serving.traffic_cut", "cut of weight traffic by fewer bits a weight", cuts[-1], "1", {"bits": min(bits)}, ""
    )
    return Judged(max(facts.values) <= cuts[-1] * (1 + 0.05), bound, "memory_bandwidth", conditions)


def _margin(facts: Facts) -> Judged:
    """Check a margin against the revenue and cost that the claim gives."""
    revenue, cost = (next(iter(numbers(facts.table.get(key))), None) for key in ("revenue", "cost"))
    if revenue is None or not cost:
        return Judged(None, None, "cost")
    bound = Bound(
        "money.margin_on_cost", "profit over cost", revenue / cost - 1, "1", {"revenue": revenue, "cost": cost}, ""
    )
    return Judged(
        facts.value <= bound.value * (1 + ROUNDED), bound, "cost",
        ("every token is paid at the list price: what is free, cached or off-peak earns less",),
    )  # fmt: skip


def _none(facts: Facts) -> Judged:
    return Judged(
        None,
        None,
        None,
        ("a product of two factors, neither measured: more tokens an answer, and more of them a second",),
    )


RULES: Mapping[str, Callable[[Facts], Judged]] = {
    "tokens_per_second": _rate, "user_rate": _rate, "price": _rate, "throughput_ratio": _ratio, "peak": _peak, "capacity": _fit,
    "fit": _fit, "latency_ratio": _latency, "bytes_saved": _bytes, "margin": _margin, "compute_ratio": _none,
}  # fmt: skip
"""Rule by metric."""
