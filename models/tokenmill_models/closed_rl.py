"""Closed forms of reinforcement learning: the tail of a synchronous step, the split of chips, staleness, and sending weights."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.closed import form, given

time_one = given("step_time_one", "s", "decode step with one sequence", "T_1")
time_all = given("step_time_all", "s", "decode step with all sequences", "T_R")
sequences = given("rl_sequences", "1", "answers that a replica starts together, two or more", "R")
mean = given("answer_tokens_mean", "1", "mean tokens of an answer", r"\bar L")
longest = given("answer_most", "1", "tokens of the longest answer", r"L_{\max}")
write_work = given("write_chip_time", "s", "chip time of writing the answers of a step: chips times seconds", "w_g")
train_work = given("train_chip_time_step", "s", "chip time of training on the answers of a step", "w_t")
pool_chips = given("pools_chips", "1", "chips of both pools", "n")
latency = given("write_latency", "s", "time until the longest answer of a step ends", "T_g")
train_time = given("train_step", "s", "time in which a step is trained", "T_t")
through = given("write_through", "s", "time of a step's answers at a full batch throughout", r"\tau_g")
weight_bytes = given("weights_sent", "B", "bytes of the weights that are sent")
wire = given("sync_wire", "B/s", "bandwidth of a rank, one direction", r"\beta")
share = given("sync_reached", "1", "share of the wire that is reached", r"\eta")
senders = given("sync_senders", "1", "ranks that send at once", "n_s")
receivers = given("sync_receivers", "1", "ranks of a copy that receive at once", "n_r")
count = given("sync_tensors_given", "1", "tensors of weights")
each = given("sync_each", "s", "time of every tensor beside its bytes", "t_0")
idle = given("idle_left", "1", "share of time that a pool may wait")

slope = (time_all - time_one) / (sequences - 1)
TAIL = form(
    "rl.synchronous_time", "Time until the longest of answers that start together has ended", ("rl_synchronous_time", "s"),
    time_one * longest + slope * (sequences * mean - longest),
    "sum over token indices j of the step time of the answers longer than j",
    ("a step of r sequences takes T_1 + (r - 1)(T_R - T_1)/(R - 1)", "the sum over j of r_j is R times the mean, over L_max steps"),
    ("step times are linear in the sequences that run", "all answers start together"),
)  # fmt: skip
TAIL_FACTOR = form(
    "rl.tail_factor", "How much longer the longest answer makes a synchronous step than a batch that stays full", ("rl_tail_factor", "1"),
    (time_one * longest + slope * (sequences * mean - longest)) / (mean * time_all),
    "rl.synchronous_time over mean answers at a full batch",
    ("a full batch writes R answers in as many steps as a mean answer has tokens",),
    ("step times are linear in the sequences that run",),
)  # fmt: skip
SPLIT = form(
    "rl.write_share_of_chips", "Share of the chips that writes where both pools work all the time", ("rl_write_chips", "1"),
    write_work / (write_work + train_work),
    "equal times w_g/(x n) = w_t/((1 - x) n)",
    ("x (w_g + w_t) = w_g",),
    ("work is independent of how many chips share it", "answers may be a version old"),
)  # fmt: skip
SPLIT_TIME = form(
    "rl.balanced_step", "Least time of an asynchronous step on n chips", ("rl_balanced_step", "s"),
    (write_work + train_work) / pool_chips,
    "rl.write_share_of_chips in w_g/(x n)",
    ("at the balanced split no pool waits",),
    ("work is independent of how many chips share it", "weights are sent in no time"),
)  # fmt: skip
GAIN = form(
    "rl.asynchronous_gain", "Time of a synchronous step over that of an asynchronous one on the same two pools", ("rl_asynchronous_gain", "1"),
    (latency + train_time) / sp.Max(latency, train_time, evaluate=False),
    "one after another against both at once",
    ("synchronous: T_g + T_t", "asynchronous: the longer of the two; at most a factor of two"),
    ("weights are sent in no time", "answers are one version old"),
)  # fmt: skip
STALENESS = form(
    "rl.staleness_needed", "Versions that answers must lag so that no tail shows", ("rl_staleness_needed", "1"),
    latency / through,
    "k batches in flight: a pool is busy for tau_g or T_g/k a step",
    ("T_g/k = tau_g",),
    ("the batch is full whenever answers wait",),
    rounding="ceil",
)  # fmt: skip
SHARDED = form(
    "rl.weight_sync_sharded", "Time to send weights in large buckets from all trainer ranks to a copy", ("rl_sync_sharded", "s"),
    weight_bytes / (share * wire * sp.Min(senders, receivers, evaluate=False)),
    "the narrower of two cuts",
    ("senders pass n_s·beta, receivers n_r·beta", "copies pass buckets on in a chain: more of them take no longer"),
    ("buckets are many", "both pools hang on wires of one bandwidth"),
)  # fmt: skip
BROADCAST = form(
    "rl.weight_sync_broadcast", "Time to send weights tensor by tensor from one rank", ("rl_sync_broadcast", "s"),
    weight_bytes / (share * wire) + count * each,
    "one rank's wire, and a start for every tensor",
    ("bytes over the wire of the root", "a mixture of experts has as many tensors as experts"),
    ("a broadcast passes data on as it comes",),
)  # fmt: skip
EVEN = form(
    "rl.writing_share", "Share of a step that goes to writing where pools take turns", ("rl_writing_share", "1"),
    latency / (latency + train_time),
    "definition",
    ("T_g over the whole",),
    ("weights are sent and states moved in no time",),
)  # fmt: skip
