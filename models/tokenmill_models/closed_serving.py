"""Serving in closed form: what bandwidth, capacity and speculation bound, for one kind of chip.

Sizes are of a whole replica of n chips whose memory is read in parallel; exchange between chips is left out.
"""

from __future__ import annotations

import sympy as sp

from tokenmill_models.formula import DEFINITION, Formula, Source, register
from tokenmill_models.money import MILLION, rent_price
from tokenmill_models.roofline import FLOP_PER_MAC, F, M, W, eta_F, eta_W
from tokenmill_models.symbols import constant, declare

DECODE = Source("Pope et al. 2022, Efficiently Scaling Transformer Inference, arXiv:2211.05102, section 2")
PAGED = Source("Kwon et al. 2023, PagedAttention, arXiv:2309.06180")
LEVIATHAN = Source(
    "Leviathan et al. 2022, Fast Inference from Transformers via Speculative Decoding, arXiv:2211.17192, theorem 3.8"
)


def _input(name: str, dimension: str, doc: str, latex: str | None = None, sign: str = "positive") -> sp.Symbol:
    return declare(name, dimension, doc, origin=f"input.{name}", latex=latex, sign=sign)


BITS_16 = constant("bits_16", 16.0, "1", "bits of an unquantised weight")
n = _input("replica_devices", "1", "devices of a replica", "n")
B_w = _input("weight_bytes", "B", "bytes of the weights read for a token", r"B_w")
b_weight = _input("weight_width", "B", "bytes a weight", "b_w")
N_a = _input("N_active", "1", "parameters active for a token", "N_a")
kv_token = _input("kv_token_bytes", "B", "KV bytes a token of a sequence", r"B_{kv}")
context = _input("context_tokens", "1", "tokens cached of a sequence", "s")
R = _input("batch_size", "1", "running sequences of a replica", "R")
R_small = _input("batch_small", "1", "running sequences of the smaller batch", "R_0")
u = _input("memory_share", "1", "share of memory that the engine takes", "u")
W_act = _input("activation_bytes", "B", "activation peak, all devices", sign="nonnegative")
W_reserve = _input("reserve_bytes", "B", "memory outside tensors, all devices", sign="nonnegative")
block = _input("block_tokens", "1", "tokens of a KV block")
reserved = _input("reserved_tokens", "1", "tokens that a contiguous cache reserves a sequence")
drafted = _input("drafted", "1", "tokens drafted a step", r"\gamma")
acceptance = _input("acceptance", "1", "probability that a drafted token is accepted", r"\alpha", "nonnegative")
draft_cost = _input(
    "draft_cost", "1", "time of a draft step over that of a step of the large model", "c", "nonnegative"
)
bits = _input("weight_bits", "1", "bits a weight with its scales")
W_other = _input("W_other", "B/s", "memory bandwidth of the device compared with")
M_other = _input("M_other", "B", "usable memory of the device compared with")
E = _input("experts", "1", "routed experts of a layer")
K = _input("experts_active", "1", "experts that serve a token")
N_shared = _input("N_outside_experts", "1", "parameters outside the routed experts", sign="nonnegative")
N_expert = _input("N_expert", "1", "parameters of one routed expert, over all layers")
S_in = _input("prompt_length", "1", "prompt tokens of a request")
S_out = _input("answer_length", "1", "answer tokens of a request")
prefill_rate = _input("prefill_rate", "1/s", "prompt tokens a second of a prefill replica")
decode_rate = _input("decode_rate", "1/s", "answer tokens a second of a decode replica")

_kv = kv_token * context
_step = (B_w + R * _kv) / (n * W * eta_W)


def _batch(memory: sp.Expr) -> sp.Expr:
    return (n * u * memory - B_w - W_act - W_reserve) / _kv


def _register(
    name: str, title: str, symbol: sp.Symbol, expr: sp.Expr, source: Source = DEFINITION, **about: object
) -> Formula:
    return register(Formula(f"serving.{name}", title, symbol, expr, source, **about))  # type: ignore[arg-type]


STEP = _register(
    "decode_step", "Time of a decode step bound by bandwidth", declare("T_decode", "s", "time of a decode step"),
    _step, DECODE.by("weights are read once a step, the cache of each sequence for itself",
     "n devices read in parallel"), assumes=("memory traffic bounds the step", "exchange and launch are left out"),
)  # fmt: skip
INTENSITY = _register(
    "decode_intensity", "Work a byte read of a decode step: weights alone", declare("decode_intensity", "FLOP/B",
     "arithmetic intensity of decode"), FLOP_PER_MAC * R / b_weight,
    DECODE.by("each of R tokens does one multiply-add with a weight of b bytes"), assumes=("cache reads are left out",
     ),
)  # fmt: skip
RIDGE_SHARE = _register(
    "ridge_share", "Share of a device's ridge that decode reaches", declare("ridge_share", "1",
     "intensity of decode over the ridge"), FLOP_PER_MAC * R / b_weight * W / F,
    DECODE.by("intensity 2·R/b over F/W"), assumes=("cache reads are left out",),
)  # fmt: skip
COMPUTE_BOUND_BATCH = _register(
    "compute_bound_batch", "Batch above which decode is bound by compute, weights alone", declare("R_compute", "1",
     "batch at which the products of decode reach the ridge"), F * eta_F * b_weight / (FLOP_PER_MAC * W * eta_W),
    DECODE.by("R tokens take 2·R/F with a weight, its read b/W", "set both equal and solve for R"),
    assumes=("cache reads are left out",),
)  # fmt: skip
LARGEST_BATCH = _register(
    "largest_batch", "Largest number of running sequences whose KV cache fits", declare("R_max", "1",
     "largest batch"), _batch(M), PAGED.by("what weights, activations and reserve leave of n·u·M",
     "over the cache of a sequence, rounded down"), rounding="floor", assumes=("all sequences hold the mean context",
     ), valid=(sp.Gt(n * u * M, B_w + W_act + W_reserve),),
)  # fmt: skip
COST = _register(
    "cost_per_million", "Price of a million output tokens where bandwidth bounds decode",
    declare("decode_cost_per_million", "USD", "price of a million output tokens"),
    rent_price * n * _step / R * MILLION, DECODE.by("a step costs n chips for its time", "it yields R tokens"),
    assumes=("prompts cost nothing", "the batch is always full"),
)  # fmt: skip
SWING = _register(
    "price_swing", "Price of a token at a small batch over that at a large one", declare("price_swing", "1",
     "swing of the price of a token"), R / R_small * (B_w + R_small * _kv) / (B_w + R * _kv),
    DECODE.by("the price of a token is (B + R·kv)/R", "divide it at the two batches"),
    assumes=("decode is bound by bandwidth",),
)  # fmt: skip
BANDWIDTH_GAIN = _register(
    "bandwidth_gain", "Part of a faster device's gain that bandwidth gives: the same batch", declare("bandwidth_gain",
     "1", "throughput at equal batch"), W_other / W,
    DECODE.by("at an equal batch a step reads the same bytes, so times are as bandwidths"),
    assumes=("decode is bound by bandwidth",),
)  # fmt: skip
_new, _old = _batch(M_other), _batch(M)
CAPACITY_GAIN = _register(
    "capacity_gain", "Part of its gain that capacity gives: the larger batch that fits", declare("capacity_gain", "1",
     "throughput at the larger batch over that at the smaller"),
    _new / _old * (B_w + _old * _kv) / (B_w + _new * _kv), DECODE.by("throughput is R/(B + R·kv) at equal bandwidth",
     "put in the largest batches of both memories and divide"), assumes=("both run at the largest batch that fits",),
    valid=(sp.Gt(n * u * M, B_w + W_act + W_reserve),),
)  # fmt: skip
VERIFY_OVERHEAD = _register(
    "verify_overhead", "Extra time to verify drafted tokens, memory and compute summed", declare("verify_overhead",
     "1", "extra time over a step of one token"),
    (drafted - 1) * FLOP_PER_MAC * N_a / (n * F) / (_step.subs({R: 1, eta_W: 1}) + FLOP_PER_MAC * N_a / (n * F)),
    Source("roofline upper bound: memory time plus compute time; with the larger of the two it is 0 below the ridge").by("memory time is the same for any number of positions",
     "compute time grows by 2·N a position", "divide the growth by the time of one"), assumes=("one sequence",
     "`drafted` positions against one", "attention work is left out"),
)  # fmt: skip
TRAFFIC_CUT = _register(
    "traffic_cut", "Cut of weight traffic by fewer bits a weight", declare("traffic_cut", "1",
     "share of the traffic of 16-bit weights that is saved"), 1 - bits / BITS_16,
    source=DEFINITION.by("weights take b bits in place of 16"), assumes=("weights are all that is read",),
)  # fmt: skip
ACCEPTED = _register(
    "tokens_per_step", "Tokens that a step of speculative decoding yields", declare("tokens_per_step", "1",
     "expected tokens a step"), (1 - acceptance ** (drafted + 1)) / (1 - acceptance),
    LEVIATHAN.by("k drafted tokens in a row are accepted with a^k",
     "one token comes from the verifier: the sum of a^k for k = 0 .. g"), assumes=("acceptances are independent",),
    valid=(sp.Lt(acceptance, 1),),
)  # fmt: skip
SPECULATIVE_GAIN = _register(
    "speculative_gain", "Gain in latency by speculative decoding while decode is bound by memory",
    declare("speculative_gain", "1", "time a token without over with a draft model"),
    (1 - acceptance ** (drafted + 1)) / ((1 - acceptance) * (drafted * draft_cost + 1)),
    LEVIATHAN.by("a step of g drafted tokens yields (1 - a^(g+1))/(1 - a)", "it takes g·c + 1 plain steps"),
    assumes=("verifying takes as long as a step of one token", "acceptances are independent"),
    valid=(sp.Lt(acceptance, 1),),
)  # fmt: skip
_yield = (1 - acceptance ** (drafted + 1)) / (1 - acceptance)
SPECULATION_LIMIT = _register(
    "speculation_limit", "Batch above which speculation stops paying, weights alone", declare("R_speculation", "1",
     "batch at which speculation gains nothing"),
    (_yield - drafted * draft_cost) / (drafted + 1) * F * eta_F * b_weight / (FLOP_PER_MAC * W * eta_W),
    LEVIATHAN.by("at the batch R_c where plain decode meets compute, verifying g + 1 tokens takes g + 1 times as long",
     "in between T_verify/T = R·(g + 1)/R_c", "the gain is yield/(g·c + T_verify/T): set it to 1 and solve for R"),
    assumes=( "verifying is bound by compute there and the plain step by memory: T_verify/T = R (gamma + 1)/R_compute",
     "the draft keeps its share of the plain step's time",), valid=(sp.Lt(acceptance, 1),
     sp.Gt(_yield, drafted * draft_cost)),
)  # fmt: skip
PAGED_BATCH = _register(
    "paged_batch_gain", "Larger batch by paged KV over contiguous reservation", declare("paged_batch_gain", "1",
     "batch with pages over batch with reservation"), reserved / (context + block / 2),
    PAGED.by("reservation holds the longest sequence for each", "pages hold what is used and half a block more"),
    assumes=("half a block a sequence is unused",),
)  # fmt: skip
PAGED_GAIN = _register(
    "paged_throughput_gain", "Higher throughput by paged KV over contiguous reservation, decode bound by bandwidth",
    declare("paged_throughput_gain", "1", "throughput with pages over throughput with reservation"),
    reserved / (context + block / 2) * (B_w + R * _kv) / (B_w + R * reserved / (context + block / 2) * _kv),
    PAGED.by("throughput is R/(B + R·kv)", "put in the batch with pages and that with reservation"),
    assumes=("the batch fits with reservation", "weights and the cached tokens are read a step"),
)  # fmt: skip
STORED = _register(
    "moe_stored", "Parameters of a mixture of experts that must be stored: all", declare("moe_stored", "1",
     "parameters stored"), N_shared + E * N_expert,
    source=DEFINITION.by("all experts are stored, whichever a token uses"), assumes=("experts are alike",),
)  # fmt: skip
COMPUTED = _register(
    "moe_computed", "Parameters of a mixture of experts that a token is multiplied with", declare("moe_computed", "1",
     "parameters computed with"), N_shared + K * N_expert,
    source=DEFINITION.by("a token passes the parameters that all share and K experts"), assumes=("experts are alike",
     ),
)  # fmt: skip
TOUCHED = _register(
    "experts_touched", "Routed experts of a layer that a batch reads", declare("experts_touched", "1",
     "expected distinct experts"), E * (1 - (1 - K / E) ** R),
    Source("expected distinct experts among independent uniform draws").by("a token misses an expert with probability 1 - K/E",
     "R tokens all miss it with that to the R"), assumes=("uniform, independent routing",),
)  # fmt: skip
POOL_RATIO = _register(
    "pool_ratio", "Prefill replicas a decode replica that balance the two pools", declare("pool_ratio", "1",
     "prefill replicas over decode replicas"), S_in * decode_rate / (S_out * prefill_rate),
    Source("equal request rates of both pools: n_p mu_p / S_in = n_d mu_d / S_out").by("a prefill replica passes mu_p/S_in requests a second, a decode replica mu_d/S_out",
     "set n_p and n_d of them equal"), assumes=("no request is lost between the pools",),
)  # fmt: skip
