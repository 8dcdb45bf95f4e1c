"""Training by hand: time, money, compute-optimal sizes, saved activations, and the limits of each parallelism."""

from __future__ import annotations

import sympy as sp

from tokenmill_models import training_leaves as leaf
from tokenmill_models.closed import form, given
from tokenmill_models.closed_network import SCALING, axes, beta, element
from tokenmill_models.money import rent_price
from tokenmill_models.roofline import FLOP_PER_MAC, F, M
from tokenmill_models.training_forms import N, hidden, m, mfu

KAPLAN = "Kaplan et al. 2020, Scaling Laws for Neural Language Models, arXiv:2001.08361, section 2.1"
CHINCHILLA = "Hoffmann et al. 2022, Training Compute-Optimal Large Language Models, arXiv:2203.15556, section 3.3"
RECOMPUTE = "Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost, arXiv:1604.06174"
MCCANDLISH = "McCandlish et al. 2018, An Empirical Model of Large-Batch Training, arXiv:1812.06162, section 2.3"
ZERO = "Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054, section 7"
MEGATRON = "Narayanan et al. 2021, Efficient Large-Scale Language Model Training, arXiv:2104.04473, section 2.2"

chips = given("train_chips", "1", "chips that train", "n")
again = given(
    "forward_again", "1", "forward passes repeated in the backward pass: 1 with full recomputation", sign="nonnegative"
)
keys = given("keys_seen", "1", "keys that a query sees", r"\bar{s}")
heads_width = given("heads_width", "1", "heads times head size", r"a d_h")
layers = given("saved_layers", "1", "layers whose activations are saved", "L")
nodes = given("saved_nodes", "1", "saved tensors of a layer in units of hidden states")
held_tokens = given("saved_tokens", "1", "tokens whose activations are held at once")
achieved = given("achieved_rate", "FLOP/s", "work a second that a chip achieves")
work = given("C_train", "FLOP", "training work", "C")
exponent_n = given("exponent_parameters", "1", "exponent of parameters in the loss", r"\alpha")
exponent_d = given("exponent_data", "1", "exponent of tokens in the loss", r"\beta")
factor_n = given("factor_parameters", "1", "factor of parameters in the loss", "A")
factor_d = given("factor_data", "1", "factor of tokens in the loss", "B")
floor_loss = given("loss_floor", "1", "loss that no model and no data reduce", "E", "nonnegative")
batch_tokens = given("batch_tokens", "1", "tokens of a step")
noise = given("noise_scale", "1", "gradient noise scale: tokens at which time and data are in balance", r"B_{noise}")
least_steps = given("least_steps", "1", "steps with a batch without limit", r"S_{min}")
batch_steps = given("batch_sequences", "1", "sequences of a step")
width = given("layer_width", "1", "inner width of a layer's two products", "f")
tensor_axes = given("tensor_axes", "1", "axes of the torus that the tensor ranks use")
goodput = given("goodput_given", "1", "useful share of time")
bubble = given("bubble_most", "1", "largest idle time over working time that is accepted")
state_bytes = given("state_bytes", "B", "bytes of weights, gradients and optimiser a parameter")

_work = 3 * FLOP_PER_MAC * N * leaf.tokens
_width = exponent_n * factor_n / (exponent_d * factor_d)
_six = 3 * FLOP_PER_MAC

TIME = form(
    "training.run_time", "Time of a training run", ("run_time_form", "s"), _work / (chips * F * mfu), KAPLAN,
    ("the work is 6·N·D", "chips reach a share of their peak"), ("no lost time: divide by the goodput",),
)  # fmt: skip
COST = form(
    "training.cost", "Price of a training run on rented chips", ("training_cost", "USD"),
    _work / (F * mfu) * rent_price / goodput, KAPLAN, ("chip time is 6·N·D over peak and MFU",
     "lost time is paid too", "the number of chips cancels"), ("one price for all hours",), (goodput <= 1,),
)  # fmt: skip
CHIPS_FOR_TIME = form(
    "training.chips_for_deadline", "Chips that finish a run by a deadline", ("chips_for_deadline", "1"),
    _work / (F * mfu * goodput * given("deadline_time", "s", "time until the run must be done")), KAPLAN,
    ("work over what a chip does until then", "round up"), ("MFU does not fall with more chips",), (goodput <= 1,),
    rounding="ceil",
)  # fmt: skip
EXECUTED = form(
    "training.executed_flops", "Work of training with attention and recomputation", ("executed_flops", "FLOP"),
    FLOP_PER_MAC * (3 + again) * leaf.tokens * (N + 2 * layers * heads_width * keys), RECOMPUTE,
    ("a forward pass costs 2 a parameter and 4·a·d_h a layer and key", "the backward pass costs two of them",
     "what is recomputed costs once more"), ("N counts the matrices a token is multiplied with",),
)  # fmt: skip
ATTENTION_SHARE = form(
    "training.attention_share", "Share of attention over keys in the work of training", ("attention_work_share", "1"),
    2 * layers * heads_width * keys / (N + 2 * layers * heads_width * keys), KAPLAN,
    ("a token takes 2·N in matrices and 4·L·a·d_h·s over its keys, forward", "the backward pass doubles both"),
    ("full recomputation or none",),
)  # fmt: skip
HARDWARE_USE = form(
    "training.flops_utilisation", "Share of peak that an achieved rate is", ("flops_utilisation", "1"), achieved / F,
    "Chowdhery et al. 2022, PaLM, arXiv:2204.02311, section 4.1 and appendix B",
    ("counted work a second over peak is MFU", "executed work a second over peak is HFU"),
    ("dense peak at the precision of the products",),
)  # fmt: skip
SAVED = form(
    "training.saved_activations", "Bytes of activations saved for the backward pass", ("saved_activations", "B"),
    held_tokens * layers * nodes * hidden * element, RECOMPUTE, ("a hidden state has h elements a token",
     "count what a layer saves in hidden states: 1 with full recomputation, about 20 with none"),
    ("attention scores are not saved",),
)  # fmt: skip
SQRT_CHECKPOINTS = form(
    "training.sqrt_checkpoints", "Checkpoints among layers of equal size that need the least memory",
    ("sqrt_checkpoints", "1"), sp.sqrt(layers * nodes), RECOMPUTE,
    ("k checkpoints of one hidden state are kept, and L/k layers of g hidden states are recomputed at once",
     "minimise k + g·L/k over k"), ("one forward pass more",),
)  # fmt: skip
OPTIMAL_PARAMETERS = form(
    "training.compute_optimal_parameters", "Parameters of least loss for a training work", ("N_optimal", "1"),
    _width ** (1 / (exponent_n + exponent_d)) * (work / _six) ** (exponent_d / (exponent_n + exponent_d)), CHINCHILLA,
    ("the loss is E + A/N^alpha + B/D^beta", "the work is 6·N·D: put D = C/(6·N) in",
     "the derivative by N vanishes where alpha·A/N^alpha = beta·B/D^beta"), ("the fitted form holds at this size",
     "tokens are not repeated"),
)  # fmt: skip
OPTIMAL_TOKENS = form(
    "training.compute_optimal_tokens", "Tokens of least loss for a training work", ("D_optimal", "1"),
    (1 / _width) ** (1 / (exponent_n + exponent_d)) * (work / _six) ** (exponent_n / (exponent_n + exponent_d)),
    CHINCHILLA, ("as for parameters, solved for D", "their product is C/6"), ("the fitted form holds at this size",
     "tokens are not repeated"),
)  # fmt: skip
LOSS = form(
    "training.loss", "Loss of a model of N parameters after D tokens", ("loss_fitted", "1"),
    floor_loss + factor_n / N**exponent_n + factor_d / leaf.tokens**exponent_d, CHINCHILLA,
    ("a finite model adds A/N^alpha", "finite data adds B/D^beta", "no model reaches below E"), ("one epoch",
     "the constants are those of one data set and recipe"),
)  # fmt: skip
OVERTRAINED = form(
    "training.tokens_for_loss", "Tokens after which a model of N parameters reaches a loss", ("D_for_loss", "1"),
    (factor_d / (given("loss_wanted", "1", "loss to reach") - floor_loss - factor_n / N**exponent_n)) ** (1 / exponent_d),
    CHINCHILLA, ("subtract floor and model term from the wanted loss", "what is left is B/D^beta: solve for D",
     "a small model served much repays the extra tokens"), ("one epoch",
     "the constants are those of one data set and recipe"),
    (given("loss_wanted", "1", "loss to reach") > floor_loss + factor_n / N**exponent_n, ),
)  # fmt: skip
STEPS_AT_BATCH = form(
    "training.steps_at_batch", "Steps to a loss at a batch", ("steps_at_batch", "1"),
    least_steps * (1 + noise / batch_tokens), MCCANDLISH, ("(S/S_min - 1)·(D/D_min - 1) = 1 with D = B·S",
     "the noise scale is D_min/S_min", "solve for S"), ("one noise scale over the run",),
)  # fmt: skip
WASTE_AT_BATCH = form(
    "training.data_at_batch", "Tokens that a batch takes over the least", ("data_at_batch", "1"),
    1 + batch_tokens / noise, MCCANDLISH, ("the same trade-off solved for D/D_min",
     "at the noise scale time and data are both twice the least"), ("one noise scale over the run",),
)  # fmt: skip
TOKENS_A_CHIP = form(
    "training.tokens_per_chip", "Tokens of a step that each chip works on", ("tokens_per_chip", "1"),
    batch_tokens / chips, MEGATRON, ("the batch is spread evenly",),
    ("every chip takes part in every token's layer or holds its own tokens",),
)  # fmt: skip
FSDP_LIMIT = form(
    "training.sharded_data_limit", "Fewest tokens a chip at which gathering sharded weights hides behind compute",
    ("sharded_data_limit", "1"), element * F / (FLOP_PER_MAC * axes * beta), SCALING,
    ("a layer's matrices of P elements take 2·P·B/(n·F) on B/n tokens", "gathering them moves b·P over axes·beta",
     "set both equal and solve for B/n"), ("gathers overlap with compute", "many ranks"),
)  # fmt: skip
MIXED_LIMIT = form(
    "training.mixed_limit", "Fewest tokens a chip with sharded data and tensor ranks at their best split",
    ("mixed_limit", "1"), 4 * (element * F / (FLOP_PER_MAC * beta)) ** 2 / (axes * tensor_axes * width), SCALING,
    ("n = x·y: weights of f by h over y ranks are gathered, activations of B/x tokens are exchanged",
     "their sum is least where both take equal time", "twice that time equals the compute time at this B/n"),
    ("the two exchanges do not overlap with one another", "many ranks"),
)  # fmt: skip
MIXED_SPLIT = form(
    "training.mixed_split", "Best number of sharded-data ranks beside tensor ranks", ("mixed_split", "1"),
    sp.sqrt(batch_tokens / width * axes / tensor_axes * chips), SCALING,
    ("gathered weights take a time that grows with x/n, exchanged activations one that falls with 1/x",
     "their sum is least where both are equal: x² = B/f·M_x/M_y·n"),
    ("the two exchanges do not overlap with one another",),
)  # fmt: skip
DATA_LIMIT = form(
    "training.data_parallel_limit",
    "Most data-parallel ranks before the exchange of gradients exceeds the backward pass", ("data_parallel_limit",
     "1"), 2 * FLOP_PER_MAC * batch_tokens * beta / (2 * element * F), ZERO,
    ("the backward pass of P parameters on B/d tokens takes 4·P·B/(d·F)",
     "a ring all-reduce of their gradients moves 2·b·P over beta", "set both equal and solve for d"),
    ("the exchange overlaps with the backward pass", "many ranks"),
)  # fmt: skip
BATCH_RANKS = form(
    "training.ranks_of_batch", "Most data-parallel ranks that a batch has sequences for", ("ranks_of_batch", "1"),
    batch_steps / leaf.micro_batch, MEGATRON, ("every rank needs a micro-batch",), ("sequences are not cut",),
    rounding="floor",
)  # fmt: skip
MICRO_BATCHES_FOR_BUBBLE = form(
    "training.micro_batches_for_bubble", "Micro-batches that keep a pipeline's idle time below a share",
    ("micro_batches_for_bubble", "1"), (leaf.pp - 1) / (leaf.virtual * bubble), MEGATRON,
    ("the bubble is (p - 1)/(v·m)", "solve for m and round up"), ("equal stages",), rounding="ceil",
)  # fmt: skip
PIPELINE_SHARE = form(
    "training.pipeline_efficiency", "Working share of a pipeline's time", ("pipeline_efficiency", "1"),
    m / (m + (leaf.pp - 1) / leaf.virtual), MEGATRON, ("m micro-batches of work and (p - 1)/v of waiting",),
    ("equal stages",),
)  # fmt: skip
LARGEST_TRAINED = form(
    "training.largest_model", "Most parameters whose states fit on a number of chips", ("largest_trained", "1"),
    chips * M * leaf.memory_fraction / state_bytes, ZERO,
    ("states of 16 bytes a parameter in mixed precision with Adam are cut over all chips",),
    ("activations are small",), rounding="floor",
)  # fmt: skip
RESCALED = form(
    "training.rescaled_time", "Time of a run on another number of chips", ("rescaled_time", "s"),
    given("time_given", "s", "time of the run on so many chips") * given("chips_given", "1", "chips of that run") / chips,
    KAPLAN, ("chip time stays: chips times time",), ("MFU does not change with the chips",),
)  # fmt: skip
