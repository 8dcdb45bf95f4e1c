"""What no serving of a model on some hardware exceeds, and which metrics announcements state: what `claim` holds them against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sympy as sp

from tokenmill_models.closed import form, given
from tokenmill_models.closed_serving import R, W_other, context, kv_token, n
from tokenmill_models.formula import Formula, maximum
from tokenmill_models.money import MILLION, rent_price
from tokenmill_models.roofline import FLOP_PER_MAC, F, M, W

WILLIAMS = "Williams et al. 2009, Roofline, CACM 52(4)"
N_multiplied = given("claim_computed", "1", "parameters that a token is multiplied with", "N_a")
B_all = given("claim_weights", "B", "bytes of all weights", "B")
B_routed = given("claim_routed_weights", "B", "bytes of routed experts among them", "B_e", "nonnegative")
active = given("claim_active_share", "1", "share of the routed experts that a token uses", r"\kappa")
F_other = given("F_other", "FLOP/s", "peak of the device compared with")
bytes_ratio = given("claim_bytes_ratio", "1", "bytes a weight of the device compared with, over those of this one")

_touched = B_all - B_routed * (1 - active) ** R
_memory = (_touched + R * kv_token * context) / (n * W)
_compute = FLOP_PER_MAC * N_multiplied * R / (n * F)

STEP = form(
    "claim.step_bound", "Least time of a decode step", ("claim_step", "s"), maximum(_memory, _compute), WILLIAMS,
    ("a step reads the weights that its tokens touch and every cache once, at full bandwidth",
     "it multiplies each token with every active parameter at peak", "neither can be undercut, so the larger is a bound"),
    ("routing is uniform", "exchange, launch and sampling cost nothing", "one token a sequence a step"),
)  # fmt: skip
THROUGHPUT = form(
    "claim.throughput_bound", "Most output tokens a second at a batch", ("claim_throughput", "1/s"),
    R / maximum(_memory, _compute), WILLIAMS, ("a step yields a token a sequence", "it takes its least time at least"),
    ("no speculation: one token a sequence a step",),
)  # fmt: skip
USER_RATE = form(
    "claim.user_rate_bound", "Most output tokens a second of one user at a batch", ("claim_user_rate", "1/s"),
    1 / maximum(_memory, _compute), WILLIAMS, ("a user gets a token a step", "a step takes its least time at least"),
    ("no speculation: one token a sequence a step",),
)  # fmt: skip
PRICE = form(
    "claim.price_bound", "Least price of a million output tokens at a batch", ("claim_price", "USD"),
    rent_price * n * maximum(_memory, _compute) / R * MILLION, WILLIAMS,
    ("all devices are paid for the least time of a step", "it yields a token a sequence"),
    ("prompts cost nothing", "the batch is always full"),
)  # fmt: skip
ROOM = form(
    "claim.memory_needed", "Memory that weights and running sequences take", ("claim_memory", "B"),
    B_all + R * kv_token * context, "definition", ("every weight is stored, whatever a token uses", "and every cache"),
    ("no activations, no reserve",),
)  # fmt: skip
PEAK_GAIN = form(
    "claim.peak_gain", "Most that one device gains over another at an equal batch", ("claim_gain", "1"),
    maximum(W / W_other * bytes_ratio, F / F_other), WILLIAMS,
    ("at an equal batch a step of either is bound by bytes over bandwidth, or by work over peak",
     "so the ratio of the two steps lies between the ratio of bandwidths, times that of bytes, and that of peaks"),
    ("both reach the same share of their peaks", "exchange and launch are left out"),
)  # fmt: skip
CAPACITY = M
"""Memory of a device, which bounds the batch."""


@dataclass(frozen=True)
class Metric:
    """A metric of announcements: its name and other words for it, the stage it is of, unit of its value, and what it is held against.

    `bound`: the formula that no hardware passes; `most`: the claim may not lie above it (else not below); `needed`: keys of a
    claim without which it cannot be compared.
    """

    name: str
    words: tuple[str, ...]
    stage: str
    unit: str
    bound: Formula | None
    most: bool
    needed: tuple[str, ...]


COMPARED = ("hardware", "model", "precision", "batch", "context")
METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("tokens_per_second", ("tokens/s", "tokens a second", "tokens per second", "throughput (tokens/s)"), "serving", "1/s",
               THROUGHPUT, True, (*COMPARED, "power")),
        Metric("user_rate", ("tokens/s per user", "tokens a second a user", "interactivity"), "serving", "1/s", USER_RATE, True,
               (*COMPARED, "power")),
        Metric("throughput_ratio", ("throughput", "throughput per gpu", "throughput per chip", "speed-up", "speedup"), "serving", "1",
               PEAK_GAIN, True, (*COMPARED, "baseline", "power")),
        Metric("price", ("usd per million tokens", "cost per million tokens", "$ per million tokens"), "serving", "USD", PRICE, False,
               COMPARED),
        Metric("peak", ("flop/s", "flops", "peak"), "any", "FLOP/s", None, True, ("hardware", "precision")),
        Metric("capacity", ("capacity", "parameters"), "serving", "1", ROOM, True, ("model", "precision", "context", "hardware")),
        Metric("fit", ("fit", "fits"), "serving", "1", ROOM, True, ("hardware", "model", "precision", "context")),
        Metric("latency_ratio", ("latency",), "serving", "1", None, True, ("hardware", "model", "precision", "batch", "baseline")),
        Metric("bytes_saved", ("bytes", "memory traffic"), "serving", "1", None, True, ("model", "precision", "batch", "context")),
        Metric("margin", ("margin", "profit"), "serving", "1", None, True, (*COMPARED, "revenue", "cost")),
        Metric("compute_ratio", ("compute",), "serving", "1", None, True, (*COMPARED, "baseline")),
    )
}  # fmt: skip
"""Metrics by name."""


def metric_of(word: str) -> Metric | None:
    """Return the metric that a word of an announcement names, None for an unknown one."""
    plain = " ".join(word.lower().replace("_", " ").split())
    for metric in METRICS.values():
        if plain == metric.name.replace("_", " ") or plain in metric.words:
            return metric
    return None


def symbols() -> dict[str, sp.Symbol]:
    """Return the symbols that a claim's numbers go into, by plain name."""
    return {
        "batch": R, "context": context, "chips": n, "kv_token": kv_token, "computed": N_multiplied, "weights": B_all,
        "routed": B_routed, "active": active, "peak": F, "bandwidth": W, "price": rent_price, "other_peak": F_other,
        "other_bandwidth": W_other, "bytes_ratio": bytes_ratio,
    }  # fmt: skip
