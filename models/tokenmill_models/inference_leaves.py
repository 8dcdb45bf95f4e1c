"""The leaves of inference: choices, request lengths, engine data, and the sizes that follow from them at once."""

from __future__ import annotations

from tokenmill_models.symbols import constant, declare

tp = declare("t", "1", "tensor parallel degree", origin="axis.tp", sign="positive")
pp = declare("p", "1", "pipeline parallel degree", origin="axis.pp", sign="positive")
ep = declare("e", "1", "expert parallel degree", origin="axis.ep", sign="positive")
attention_dp = declare(
    "d_a", "1", "groups of tensor ranks that each attend to their own sequences", origin="axis.attention_dp", sign="positive"
)  # fmt: skip
chunk = declare(
    "chunk", "1", "most tokens of a step: decode tokens and prompt tokens", origin="axis.chunk", sign="positive"
)
batch = declare("R", "1", "mean running sequences of a replica", origin="axis.batch", sign="positive")
utilisation = declare(
    "u_prefill", "1", "share of time a prefill replica works", origin="axis.utilisation", sign="positive"
)

bytes_weights = declare("b_w", "B", "bytes a weight", origin="precision.bytes[weights]", sign="positive")
bytes_experts = declare(
    "b_e", "B", "bytes a weight of the routed experts", origin="precision.bytes[experts]", sign="positive"
)
expert_tile = declare(
    "tile_e", "1", "inputs of an expert are padded to a multiple of it, outputs to one of its half",
    origin="precision.tile[experts]", sign="positive",
)  # fmt: skip
bytes_kv = declare("b_kv", "B", "bytes a cached element", origin="precision.bytes[kv]", sign="positive")
bytes_16 = constant(
    "b_16", 2.0, "B", "bytes of an element that stays in 16 bits: activations, norms, embeddings, states"
)
bytes_8 = constant("b_8", 1.0, "B", "bytes of an indexer's cached key: 8 bits")

input_tokens = declare("S_in", "1", "mean prompt tokens of a request", origin="request.input_tokens", sign="positive")
output_tokens = declare(
    "S_out", "1", "mean answer tokens of a request", origin="request.output_tokens", sign="positive"
)
input_cv = declare(
    "cv_in", "1", "variation of prompt tokens: standard deviation over mean", origin="request.input_tokens.cv"
)
output_cv = declare(
    "cv_out", "1", "variation of answer tokens: standard deviation over mean", origin="request.output_tokens.cv"
)
input_percentiles = {
    word: declare(
        f"S_in_{word}", "1", f"{word} of prompt tokens", origin=f"request.input_tokens.{word}", sign="positive"
    )
    for word in ("p50", "p95", "p99")
}
output_percentiles = {
    word: declare(
        f"S_out_{word}", "1", f"{word} of answer tokens", origin=f"request.output_tokens.{word}", sign="positive"
    )
    for word in ("p50", "p95", "p99")
}
request_share = declare("request_share", "1", "share of requests of a class", origin="request.share")
prefix_hit = declare(
    "hit", "1", "share of prompt tokens found in the prefix cache", origin="input.demand.prefix_cache_hit"
)
arrival_cv = declare(
    "cv_arrivals", "1", "variation of the gaps between arrivals; 1 is Poisson", origin="input.demand.arrivals.cv"
)
concurrency = declare(
    "concurrency", "1", "requests that closed-loop clients keep in flight on a replica; 0: open arrivals",
    origin="input.demand.arrivals.concurrency",
)  # fmt: skip
rounds = declare(
    "rounds", "1", "requests that a closed-loop client sends one after another, all clients starting at once",
    origin="input.demand.arrivals.rounds", sign="positive",
)  # fmt: skip
expert_load = declare(
    "expert_load", "1", "tokens of the fullest expert rank over the mean", origin="input.expert_load", sign="positive"
)
memory_fraction = declare(
    "u", "1", "share of a device's memory that the program takes", origin="assume.memory_fraction", sign="positive"
)
mfu_assumed = declare("mfu_assumed", "1", "model FLOPs utilisation laid down; 0: predicted", origin="assume.mfu")
mfu_peak = declare("F_mfu", "FLOP/s", "peak that MFU is counted against", origin="chip.peak[mfu_peak]", sign="positive")
held_chips = declare(
    "held_chips", "1", "chips that the file holds for a replica", origin="input.layout.chips", sign="positive"
)
context_limit = declare(
    "context_limit", "1", "longest sequence the engine must hold", origin="input.engine.context_limit", sign="positive"
)
held_kv = declare(
    "kv_memory", "B", "KV bytes a chip that the file holds; 0: what is left", origin="input.engine.kv_memory"
)
reserved_tokens = declare(
    "contiguous_tokens", "1", "tokens of cache that every sequence reserves from its start; 0: pages as it grows",
    origin="input.engine.reserved_tokens",
)  # fmt: skip
graph_launch = declare(
    "graph_launch", "1", "1 where steps are launched as a captured graph, 0 eager", origin="input.engine.graph"
)
two_batches = declare(
    "two_batches", "1", "1 where a pass goes in two halves, one computing while the other is exchanged between experts",
    origin="input.engine.two_batches",
)  # fmt: skip

step_seconds_graph = declare(
    "engine_step_graph", "s", "scheduling, sampling and launch of a step, graph launch", origin="engine.step_graph"
)
step_seconds_eager = declare(
    "engine_step_eager", "s", "scheduling, sampling and launch of a step, eager", origin="engine.step_eager"
)
request_seconds = declare(
    "engine_request",
    "s",
    "tokenising, queueing at the front end and delivery of the first token",
    origin="engine.request",
)
stream_steps = declare(
    "engine_stream",
    "1",
    "decode steps after which the first token is sent: output pipeline and streaming interval",
    origin="engine.stream",
)
sequence_seconds = declare(
    "engine_sequence",
    "s",
    "host time of a sequence a step that no device work hides: scheduling, sampling, detokenising",
    origin="engine.sequence",
)
kernel_share = declare(
    "engine_kernel_share",
    "1",
    "share of the fixed time of single kernels (start, serial part, conversions) that is left where an engine fuses and overlaps them",
    origin="engine.kernel_share",
)
expert_pace = declare(
    "engine_expert_pace",
    "1",
    "time of an engine's own kernels of experts over that of the measured ones",
    origin="engine.expert_pace",
    sign="positive",
)
layer_seconds_graph = declare(
    "engine_layer_graph", "s", "gaps between the kernels of a layer, graph launch", origin="engine.layer_graph"
)
layer_seconds_eager = declare(
    "engine_layer_eager", "s", "gaps between the kernels of a layer, eager", origin="engine.layer_eager"
)
host_pace = declare(
    "host_pace", "1", "time of one thread's work on the host over that on the host that engines were measured on",
    origin="system.host_pace", sign="positive",
)  # fmt: skip
reserve = declare(
    "engine_reserve",
    "B",
    "memory of a device inside the engine's fraction that is no tensor: context, communicators",
    origin="engine.reserve",
)
outside = declare(
    "engine_outside", "B", "memory of a device beyond the engine's fraction: captured graphs", origin="engine.outside"
)
block = declare("engine_block", "1", "tokens of a KV block", origin="engine.block", sign="positive")
logit_rows = declare(
    "engine_logit_rows", "1", "sequences whose logits the engine's profiling run holds", origin="engine.logit_rows"
)
logit_width = declare(
    "engine_logit_width",
    "B",
    "bytes that sampling holds a logit: values, sorted copies, indices, sums",
    origin="engine.logit_width",
)
ranks_a_chip = declare("ranks_a_chip", "1", "devices of a chip", origin="chip.ranks", sign="positive")

ranks = tp * pp * attention_dp
groups = pp * attention_dp
expert_tp = tp * attention_dp / ep
