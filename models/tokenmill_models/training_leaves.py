"""The leaves of training: choices, inputs, recipe bytes, engine data, and the sizes that follow from them at once."""

from __future__ import annotations

from tokenmill_models.formula import maximum, minimum
from tokenmill_models.operations_parts import ONE, arch_leaf
from tokenmill_models.symbols import constant, declare

tp = declare("t", "1", "tensor parallel degree", origin="axis.tp", sign="positive")
pp = declare("p", "1", "pipeline parallel degree", origin="axis.pp", sign="positive")
virtual = declare("v", "1", "virtual stages a pipeline rank", origin="axis.virtual", sign="positive")
cp = declare("c", "1", "context parallel degree", origin="axis.cp", sign="positive")
ep = declare("e", "1", "expert parallel degree", origin="axis.ep", sign="positive")
expert_tp = declare("t_e", "1", "tensor parallel degree of routed experts", origin="axis.expert_tp", sign="positive")
dp = declare("d", "1", "data parallel degree", origin="axis.dp", sign="positive")
micro_batch = declare("b", "1", "sequences of a micro-batch", origin="axis.micro_batch", sign="positive")
zero = declare("z", "1", "ZeRO stage: 1 shards optimiser states, 2 gradients too, 3 parameters too", origin="axis.zero")
shard = declare("shard", "1", "ranks that share one copy of the sharded states; 0: all data ranks", origin="axis.shard")

recompute_selective = declare("r_s", "1", "1 where what is cheap is recomputed", origin="axis.recompute")
recompute_full = declare("r_f", "1", "1 where whole layers are recomputed", origin="axis.recompute")
sequence_parallel = declare("sp", "1", "1 with sequence parallelism", origin="axis.sequence_parallel")
interleaved = declare("q_i", "1", "1 for the interleaved schedule", origin="axis.schedule")
zero_bubble = declare("q_z", "1", "1 for the zero-bubble schedule", origin="axis.schedule")
dualpipe = declare("q_d", "1", "1 for the DualPipe schedule", origin="axis.schedule")
pipeline_outermost = declare("o_p", "1", "1 where pipeline ranks stand outside data ranks", origin="axis.order")
offload_optimizer = declare("o_o", "1", "1 where optimiser states live in host memory", origin="axis.offload")
offload_parameters = declare("o_w", "1", "1 where parameters live in host memory too", origin="axis.offload")
offload_activations = declare("o_a", "1", "1 where saved activations wait in host memory", origin="axis.offload")
bytes_optimizer = declare(
    "b_opt",
    "B",
    "optimiser bytes a parameter: 32-bit master copy and moments",
    origin="axis.optimizer",
    sign="positive",
)
muon = declare("k_m", "1", "1 where Muon orthogonalises the updates of matrices", origin="axis.optimizer")
checkpoint_async = declare(
    "k_a", "1", "1 where a checkpoint is written while training runs", origin="axis.checkpoint_mode"
)

bytes_weights = declare("b_w", "B", "bytes a weight", origin="precision.bytes[weights]", sign="positive")
bytes_gradients = declare(
    "b_g", "B", "bytes a gradient that is kept", origin="precision.bytes[gradients]", sign="positive"
)
bytes_communication = declare(
    "b_c", "B", "bytes a gradient that is exchanged, where fewer than kept", origin="precision.bytes[communication]",
    sign="positive",
)  # fmt: skip
bytes_activations = declare("b_a", "B", "bytes an activation", origin="precision.bytes[activations]", sign="positive")
bytes_compute = declare(
    "b_p", "B", "bytes of an operand of a product", origin="precision.bytes[compute]", sign="positive"
)
bytes_experts = declare(
    "b_e", "B", "bytes a weight of the routed experts", origin="precision.bytes[experts]", sign="positive"
)
BYTES_16 = constant(
    "b_16", 2.0, "B", "bytes of an element that stays in 16 bits: activations, norms, embeddings, states"
)
BYTES_MASK = constant("b_mask", 1.0, "B", "bytes of an element of a dropout mask")
BYTES_32 = constant("b_32", 4.0, "B", "bytes of an element kept in 32 bits")

tokens = declare("D", "1", "training tokens", origin="input.tokens", sign="positive")
sequence = declare("s", "1", "sequence length", origin="input.sequence_length", sign="positive")
global_batch = declare("B_global", "1", "sequences of a step", origin="input.global_batch", sign="positive")
critical_batch = declare(
    "B_critical", "1", "largest batch in sequences that still learns as well by the token", origin="input.critical_batch",
    sign="positive",
)  # fmt: skip
flash = declare("flash", "1", "1 with flash attention", origin="input.kernels.flash_attention")
dropout = declare("dropout", "1", "1 where dropout masks are kept", origin="input.kernels.dropout")
expert_load = declare(
    "expert_load", "1", "tokens of the fullest expert rank over the mean", origin="input.expert_load", sign="positive"
)
memory_fraction = declare(
    "u_train",
    "1",
    "share of a device's memory that training may take",
    origin="assume.memory_fraction",
    sign="positive",
)
mfu_assumed = declare("mfu_assumed", "1", "model FLOPs utilisation laid down; 0: predicted", origin="assume.mfu")
mfu_peak = declare("F_mfu", "FLOP/s", "peak that MFU is counted against", origin="chip.peak[mfu_peak]", sign="positive")
held_chips = declare(
    "held_chips", "1", "chips that the file holds for a replica", origin="input.layout.chips", sign="positive"
)
ranks_a_chip = declare("ranks_a_chip", "1", "devices of a chip", origin="chip.ranks", sign="positive")
host_sweep = declare(
    "W_host_sweep",
    "B/s",
    "memory traffic of the host's optimiser a device",
    origin="engine.host_sweep",
    sign="positive",
)
host_link = declare(
    "W_host", "B/s", "bandwidth from a device to host memory, one direction", origin="chip.host_link", sign="positive"
)

overlap_tensor = declare(
    "h_t", "1", "share of the tensor exchange of input gradients that products of weight gradients hide",
    origin="engine.overlap_tensor",
)  # fmt: skip
accumulates = declare(
    "h_g", "1", "1 where a kernel of its own adds gradients to those kept, 0 where the product that computes them does",
    origin="engine.accumulates",
)  # fmt: skip
overlap_expert = declare("h_e", "1", "share of expert exchange hidden by compute", origin="engine.overlap_expert")
units_left = declare(
    "h_u", "1", "share of compute units that the exchange hidden by DualPipe leaves", origin="engine.units_left",
    sign="positive",
)  # fmt: skip
overlap_context = declare(
    "h_c", "1", "share of attention time that hides the key/value ring", origin="engine.overlap_context"
)
overlap_pipeline = declare("h_p", "1", "share of stage hand-over hidden by compute", origin="engine.overlap_pipeline")
overlap_data = declare(
    "h_d", "1", "share of compute time that hides data-parallel exchange", origin="engine.overlap_data"
)
hidden_data = declare(
    "h_x", "1", "most of the data-parallel exchange that compute can hide", origin="engine.hidden_data", sign="positive"
)
overlap_offload = declare(
    "h_o", "1", "share of compute time that hides traffic to the host", origin="engine.overlap_offload"
)
product_share = declare(
    "g_m", "1", "speed of products in training over that of single forward kernels", origin="chip.train_product_share",
    sign="positive",
)  # fmt: skip
convert_share = declare(
    "g_c", "1", "speed of converting the inputs of products in training over one sweep of memory",
    origin="chip.train_convert_share", sign="positive",
)  # fmt: skip
attention_share = declare(
    "g_a", "1", "speed of attention in training over that of single forward kernels", origin="chip.train_attention_share",
    sign="positive",
)  # fmt: skip
attention_speed = declare(
    "h_a", "1", "speed of a framework's attention over that of the kernels of its day", origin="engine.attention_speed",
    sign="positive",
)  # fmt: skip
stops_early = declare(
    "h_r", "1", "1 where recomputing a layer ends before its last product, whose output nothing backward reads",
    origin="engine.stops_early",
)  # fmt: skip
sort_share = declare(
    "g_s", "1", "speed of bringing tokens to their experts and back in a framework over one fused sweep", origin="engine.sort_share",
    sign="positive",
)  # fmt: skip
expert_speed = declare(
    "h_k", "1", "speed of grouped products of experts in training over that of single products of their sides",
    origin="engine.expert_speed", sign="positive",
)  # fmt: skip
product_speed = declare(
    "h_m", "1", "speed of products on the machines of a framework's measurements over that of most", origin="engine.product_speed",
    sign="positive",
)  # fmt: skip
vector_share = declare(
    "g_v", "1", "speed of norms, activations and residuals in a framework over one fused sweep", origin="engine.vector_share",
    sign="positive",
)  # fmt: skip
layer_seconds = declare(
    "engine_layer_train", "s", "time to launch the kernels of a layer, one pass", origin="engine.layer_train"
)
reserve = declare(
    "engine_reserve_train",
    "B",
    "memory of a device outside tensors: context, communicators",
    origin="engine.reserve_train",
)
fragmentation = declare(
    "engine_fragmentation", "1", "memory that the framework holds over its peak of tensors, as a share of them",
    origin="engine.fragmentation",
)  # fmt: skip
bucket = declare("engine_bucket", "B", "buffers of gradient and parameter exchange", origin="engine.bucket")
saved_share = declare(
    "engine_saved_share", "1", "activations that a framework keeps over those counted tensor by tensor", origin="engine.saved_share",
    sign="positive",
)  # fmt: skip
loss_bytes = declare(
    "engine_loss_bytes", "B", "bytes that the loss holds a logit: the logit, its gradient, copies of both", origin="engine.loss_bytes"
)  # fmt: skip
score_copies = declare(
    "engine_score_copies", "1", "copies that attention without flash holds of its scores", origin="engine.score_copies", sign="positive"
)  # fmt: skip
step_bytes = declare(
    "engine_step_bytes", "B", "bytes a parameter that the optimiser's step holds beside its states, when activations are gone",
    origin="engine.step_bytes",
)  # fmt: skip
low_gradients = declare(
    "engine_low_gradients", "1", "1 where gradients in the format of the weights stay beside wider ones that sum them",
    origin="engine.low_gradients",
)  # fmt: skip
kept_inputs = declare(
    "engine_kept_inputs", "1", "copies in 16 bits that a product of 4-bit weights keeps of its input", origin="engine.kept_inputs"
)  # fmt: skip

layers = arch_leaf("layer_count")
ranks = tp * pp * cp * dp
micro_batches = global_batch / (micro_batch * dp)

zero1 = minimum(zero, 1)
zero2 = minimum(zero, 2) - zero1
zero3 = minimum(zero, 3) - minimum(zero, 2)
vector_split = ONE + sequence_parallel * (tp - 1)

# what the optimiser keeps a parameter: weights of 32 bits are their own master copy
bytes_states = bytes_optimizer - 2 * maximum(bytes_weights - BYTES_16, 0)

# the residual stream, queries, keys and values stay in 16 bits at least; what a product reads is kept as it reads it
bytes_residual = maximum(bytes_activations, BYTES_16)
bytes_operand = minimum(bytes_activations, bytes_compute)
