"""Serving under load: latency, throughput and cost against batch, pools, transfers, speculation."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.closed import DEFINITION, form, given
from tokenmill_models.closed_serving import (
    B_w,
    E,
    K,
    N_a,
    R,
    S_in,
    S_out,
    W_act,
    W_reserve,
    acceptance,
    b_weight,
    context,
    draft_cost,
    kv_token,
    n,
    u,
)  # fmt: skip
from tokenmill_models.formula import maximum, minimum
from tokenmill_models.money import MILLION, rent_price
from tokenmill_models.roofline import FLOP_PER_MAC, F, M, W, eta_F, eta_W

POPE = "Pope et al. 2022, Efficiently Scaling Transformer Inference, arXiv:2211.05102, section 2"
SCALING = "Austin et al. 2025, How to Scale Your Model, chapter on inference"
DISTSERVE = "Zhong et al. 2024, DistServe, arXiv:2401.09670, section 4"
LITTLE = "Little 1961, A proof for the queuing formula L = lambda W, Operations Research 9(3)"
LEVIATHAN = (
    "Leviathan et al. 2022, Fast Inference from Transformers via Speculative Decoding, arXiv:2211.17192, section 3"
)
SARATHI = "Agrawal et al. 2024, Sarathi-Serve, arXiv:2403.02310, section 4"

step = given("step_time_given", "s", "time of a decode step", "T")
tpot_limit = given("tpot_limit", "s", "longest time per output token that is accepted")
ttft = given("ttft_given", "s", "time to first token")
rate = given("request_rate", "1/s", "requests a second", r"\lambda")
hit = given("hit_share", "1", "share of prompt tokens found in the cache", sign="nonnegative")
link = given("transfer_bandwidth", "B/s", "bandwidth of a replica towards the other pool, one direction")
layers = given("exchange_layers", "1", "layers", "L")
exchanges = given("exchanges_a_layer", "1", "exchanges of a layer")
alpha = given("link_latency", "s", "latency of a step or hop", r"\alpha", "nonnegative")
width = given("layer_width", "1", "inner width of a layer's two products", "f")
beta = given("link_bandwidth", "B/s", "bandwidth of a device into the ring or link, one direction", r"\beta")
element = given("element_width", "B", "bytes of an element", "b")
launch = given("step_overhead", "s", "launch and exchange time of a step that no batch changes", "T_0", "nonnegative")
chunk = given("chunk_tokens", "1", "prompt tokens computed together with a decode step")
peak_rate = given("peak_requests", "1/s", "most requests a second that a replica sustains")
demand = given("peak_demand", "1/s", "requests a second at the peak")
spare = given("spare_replicas", "1", "replicas held ready beyond the need", sign="nonnegative")
fullest = given("expert_ranks", "1", "ranks that the experts are spread over")

_kv = kv_token * context
_memory = n * W * eta_W
_compute = n * F * eta_F
_read = (B_w + R * _kv) / _memory
_products = FLOP_PER_MAC * N_a * R / _compute
_room = n * u * M - B_w - W_act - W_reserve

STEP_ROOFLINE = form(
    "serving.decode_step_roofline", "Time of a decode step: products on their roofline, cache by bandwidth",
    ("T_decode_roofline", "s"), maximum(B_w / _memory, _products) + R * _kv / _memory, SCALING,
    ("weights are read once for the batch while its products are computed: the larger counts",
     "the cache of each sequence is read for itself: always bound by memory"), ("exchange and launch are left out",),
)  # fmt: skip
THROUGHPUT = form(
    "serving.decode_throughput", "Output tokens a second of a replica bound by bandwidth", ("decode_throughput",
     "1/s"), R / _read, POPE, ("a step yields a token for each running sequence",
     "it takes the read of weights and cache"), ("exchange and launch are left out",),
)  # fmt: skip
THROUGHPUT_LIMIT = form(
    "serving.throughput_ceiling", "Output tokens a second that no batch exceeds", ("throughput_ceiling", "1/s"),
    minimum(_memory / _kv, _compute / (FLOP_PER_MAC * N_a)), POPE,
    ("in the limit of a large batch the read of weights is spread over all",
     "a token still reads its own cache and takes 2·N of work"), ("exchange and launch are left out",),
)  # fmt: skip
HALF_BATCH = form(
    "serving.half_throughput_batch", "Batch at which throughput is half of its ceiling by bandwidth", ("R_half", "1"),
    B_w / _kv, POPE, ("R/T = W/kv·R/(R + B/kv)", "it is half of W/kv where R = B/kv: cache reads equal weight reads"),
    ("decode is bound by bandwidth",),
)  # fmt: skip
BATCH_AT_TPOT = form(
    "serving.batch_at_tpot", "Largest batch that keeps the time per output token", ("R_tpot", "1"),
    ((tpot_limit - launch) * _memory - B_w) / _kv, POPE, ("T_0 + (B + R·kv)/(n·W) may not exceed the limit",
     "solve for R and round down"), ("decode is bound by bandwidth",), (tpot_limit > launch + B_w / _memory,),
    rounding="floor",
)  # fmt: skip
CONTEXT_LIMIT = form(
    "serving.largest_context", "Longest sequences at a batch whose KV cache fits", ("context_max", "1"),
    _room / (R * kv_token), "Kwon et al. 2023, PagedAttention, arXiv:2309.06180",
    ("memory left beside weights, activations and reserve", "over the cache of a token of each sequence"),
    ("all sequences are as long",), (_room > 0,), rounding="floor",
)  # fmt: skip
CACHE_TOKENS = form(
    "serving.cache_tokens", "Tokens that the KV cache of a replica holds", ("cache_tokens", "1"), _room / kv_token,
    "Kwon et al. 2023, PagedAttention, arXiv:2309.06180",
    ("memory left beside weights, activations and reserve, over the cache of a token",),
    ("the cache is cut evenly over all devices",), (_room > 0,), rounding="floor",
)  # fmt: skip
MEMORY = form(
    "serving.memory_needed", "Memory of weights and running sequences", ("serving_memory", "B"), B_w + R * _kv, POPE,
    ("weights once, a cache for each sequence",), ("activations are left out",),
)  # fmt: skip
MIN_DEVICES = form(
    "serving.min_devices", "Fewest devices that hold weights and a batch", ("serving_min_devices", "1"),
    (B_w + W_act + W_reserve + R * _kv) / (u * M), POPE, ("what must be held over what a device may take, rounded up",
     ), ("all is cut evenly over the devices",), rounding="ceil",
)  # fmt: skip
LATENCY_THROUGHPUT = form(
    "serving.tokens_per_second", "Output tokens a second and device of sequences at a time per token",
    ("tokens_per_device", "1/s"), R / (step * n), LITTLE, ("each running sequence yields a token a step",),
    ("the batch is always full",),
)  # fmt: skip
REQUEST_RATE = form(
    "serving.requests_per_device", "Requests a second and device of sequences at a time per token",
    ("requests_per_device", "1/s"), R / (step * S_out * n), LITTLE, ("a request stays for its answer's steps",
     "R = rate·S_out·T"), ("the batch is always full", "prompts take no time from decode"),
)  # fmt: skip
CONCURRENCY = form(
    "serving.concurrency", "Requests in flight at a rate", ("concurrency_form", "1"),
    rate * (ttft + (S_out - 1) * step), LITTLE,
    ("a request stays until its first token and a step for each further one", "rate times stay are in flight"),
    ("steady load",),
)  # fmt: skip
LATENCY = form(
    "serving.request_latency", "Time of a whole answer", ("request_latency", "s"), ttft + (S_out - 1) * step,
    DEFINITION, ("the first token, then a step a token",), ("steps are alike",),
)  # fmt: skip
COST_IDENTITY = form(
    "serving.cost_of_tpot", "Price of a million output tokens of sequences at a time per token", ("cost_of_tpot",
     "USD"), rent_price * n * step / R * MILLION, POPE, ("a step costs n·price·T", "it yields R tokens"),
    ("the batch is always full", "prompts cost nothing"),
)  # fmt: skip
COST_FLOOR = form(
    "serving.cost_floor", "Price of a million output tokens that no batch goes below", ("cost_floor", "USD"),
    rent_price * n * maximum(_kv / _memory, FLOP_PER_MAC * N_a / _compute) * MILLION, POPE,
    ("in the limit of a large batch the weights cost nothing", "a token's own cache read or its own products remain"),
    ("exchange and launch are left out",),
)  # fmt: skip
COST_AT_BATCH = form(
    "serving.cost_over_floor", "Price of a token at a batch over its floor by bandwidth", ("cost_over_floor", "1"),
    1 + B_w / (R * _kv), POPE, ("(B + R·kv)/R over kv",), ("decode is bound by bandwidth",),
)  # fmt: skip
PREFILL = form(
    "serving.prefill_time", "Time to compute a prompt, bound by compute", ("prefill_time", "s"),
    FLOP_PER_MAC * N_a * S_in * (1 - hit) / _compute, POPE, ("each prompt token takes 2·N",
     "what the prefix cache holds is not computed"), ("attention over keys is left out",
     "long enough to be bound by compute"), (hit < 1,),
)  # fmt: skip
KV_BANDWIDTH = form(
    "serving.kv_transfer_bandwidth", "Bandwidth that prompts' caches need between the pools",
    ("kv_transfer_bandwidth", "B/s"), rate * S_in * (1 - hit) * kv_token, DISTSERVE,
    ("every computed prompt token's cache crosses once",), ("cached prefixes stay where they are used",),
)  # fmt: skip
KV_DELAY = form(
    "serving.kv_transfer_time", "Time to hand a prompt's cache over", ("kv_transfer_time", "s"),
    S_in * kv_token / link, DISTSERVE, ("bytes of the prompt over the link",), ("no other traffic",
     "not overlapped layer by layer"),
)  # fmt: skip
SPLIT_PAYS = form(
    "serving.transfer_over_prefill", "Time to hand a cache over as a share of the time to compute it",
    ("transfer_over_prefill", "1"), kv_token / link * _compute / (FLOP_PER_MAC * N_a), DISTSERVE,
    ("the cache of a token takes kv/beta", "computing it takes 2·N/(n·F)",
     "below 1 a layer-wise transfer hides behind prefill"), ("attention over keys is left out",),
)  # fmt: skip
TENSOR_LIMIT = form(
    "serving.tensor_limit", "Widest cut of a layer in decode before exchange exceeds the read of weights",
    ("serving_tensor_limit", "1"), width * b_weight * beta / (element * R * W * eta_W), SCALING,
    ("reading two matrices of h by f takes 2·b_w·h·f/(t·W)",
     "gathering and scattering R hidden states move 2·b·R·h over beta", "set both equal and solve for t"),
    ("bound by bandwidth", "latency is left out"),
)  # fmt: skip
EXCHANGE_LATENCY = form(
    "serving.exchange_latency", "Latency of the exchanges of a step", ("exchange_latency", "s"),
    layers * exchanges * alpha, POPE, ("each exchange waits once",), ("bytes are too few to matter",),
)  # fmt: skip
TURNOVER = form(
    "serving.cache_turnover", "Cached tokens that finished requests free a step", ("cache_turnover", "1"),
    R * (S_in + S_out) / S_out, SCALING, ("a request ends after S_out steps: R/S_out end a step",
     "each frees its prompt and answer"), ("steady load",),
)  # fmt: skip
MIXED_PREFILL = form(
    "serving.prefill_tokens_a_step", "Prompt tokens that a steady step carries beside its decode tokens",
    ("prefill_a_step", "1"), R * S_in * (1 - hit) / S_out, SARATHI, ("R/S_out requests end a step and as many begin",
     "each brings its prompt"), ("steady load",), (hit <= 1,),
)  # fmt: skip
CHUNK_BUDGET = form(
    "serving.chunk_at_tpot", "Prompt tokens that a step has time for beside its decode", ("chunk_at_tpot", "1"),
    (tpot_limit - _read) * _compute / (FLOP_PER_MAC * N_a), SARATHI, ("a step may last as long as the limit",
     "what the read of weights and cache leaves is prompt work of 2·N a token"),
    ("no overlap of decode and prompt work",), (tpot_limit > _read,), rounding="floor",
)  # fmt: skip
CHUNK_COST = form(
    "serving.chunked_prefill_steps", "Steps that a prompt takes in chunks", ("prefill_steps", "1"),
    S_in * (1 - hit) / chunk, SARATHI, ("a chunk a step",), ("one prompt at a time",), rounding="ceil",
)  # fmt: skip
REPLICAS = form(
    "serving.replicas", "Replicas for a peak with spares", ("replicas_form", "1"), demand / peak_rate + spare,
    DEFINITION, ("peak demand over what a replica sustains, and the spares",), ("requests spread evenly",),
    rounding="ceil",
)  # fmt: skip
_decay = sp.log(1 / acceptance)
_u = _decay * (1 - draft_cost) / draft_cost
BEST_DRAFT = form(
    "serving.best_draft_length", "Best number of drafted tokens while decode is bound by memory", ("gamma_best", "1"),
    sp.log(1 + sp.sqrt(2 * _u) + 2 * _u / 3) / _decay - 1, LEVIATHAN,
    ("the gain (1 - a^(g+1))/((1 - a)·(g·c + 1)) is largest where w = 1 + u + ln w, w = (g + 1)·ln(1/a) + 1 + u and u = ln(1/a)·(1 - c)/c",
     "Chatzigeorgiou 2013 (IEEE Communications Letters 17(8)) bounds w from below by 1 + sqrt(2·u) + 2·u/3",
     "so g + 1 = ln(w)/ln(1/a)"), ("verifying takes as long as a step of one token",
     "the bound stands for w: a few percent short of the exact optimum"), (acceptance < 1, draft_cost < 1),
    sign="real",
)  # fmt: skip
FULLEST_EXPERT = form(
    "serving.experts_touched_rank", "Routed experts of a layer that a batch reads on each of several ranks",
    ("experts_touched_rank", "1"), E / fullest * (1 - (1 - K / E) ** R),
    "expected distinct experts among independent uniform draws", ("a token misses an expert with probability 1 - K/E",
     "R tokens all miss it with that to the R", "an equal part of the experts is on each rank"),
    ("uniform, independent routing",), (K < E, fullest <= E),
)  # fmt: skip
TOKENS_FOR_EXPERTS = form(
    "serving.batch_for_experts", "Batch at which a share of a layer's experts is read", ("batch_for_experts", "1"),
    sp.log(1 - given("touched_share", "1", "share of the experts that is read")) / sp.log(1 - K / E),
    "expected distinct experts among independent uniform draws", ("1 - (1 - K/E)^R is the share", "solve for R"),
    ("uniform, independent routing",), (K < E, given("touched_share", "1", "share of the experts that is read") < 1),
)  # fmt: skip
