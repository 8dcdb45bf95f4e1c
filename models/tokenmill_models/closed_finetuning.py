"""Fine-tuning and preference tuning by hand: adapters, memory, work."""

from __future__ import annotations

from tokenmill_models import training_leaves as leaf
from tokenmill_models.closed import form, given
from tokenmill_models.roofline import FLOP_PER_MAC, M
from tokenmill_models.symbols import constant

LORA = "Hu et al. 2021, LoRA, arXiv:2106.09685, section 4"
QLORA = "Dettmers et al. 2023, QLoRA, arXiv:2305.14314, section 3"
DPO = "Rafailov et al. 2023, Direct Preference Optimization, arXiv:2305.18290, section 4"

BYTES_16 = constant(
    "b_16", 2.0, "B", "bytes of an element that stays in 16 bits: activations, norms, embeddings, states"
)
base = given("base_parameters", "1", "parameters of the base model", "N")
outside = given(
    "unquantised_parameters", "1", "parameters that stay in 16 bits: embeddings, head, norms", sign="nonnegative"
)
base_width = given("base_width", "B", "bytes a base weight, with its scales")
rank = given("adapter_rank", "1", "rank of the adapters", "r")
inputs = given("matrix_inputs", "1", "inputs of an adapted matrix")
outputs = given("matrix_outputs", "1", "outputs of an adapted matrix")
matrices = given("adapted_matrices", "1", "adapted matrices of the whole model")
adapters = given("adapter_parameters", "1", "parameters of the adapters", "N_r")
state = given("adapter_state_bytes", "B", "bytes of weight, gradient and optimiser an adapter parameter")
again = given(
    "forward_again", "1", "forward passes repeated in the backward pass: 1 with full recomputation", sign="nonnegative"
)
other = given("tuning_other_bytes", "B", "activations, buffers and reserve", sign="nonnegative")
state_bytes = given("state_bytes", "B", "bytes of weights, gradients and optimiser a parameter")
copies = given("reference_copies", "1", "frozen models held beside the policy: 1 for a reference", sign="nonnegative")
frozen_width = given("frozen_width", "B", "bytes a weight of a frozen model")

ADAPTERS = form(
    "finetuning.adapter_parameters", "Parameters of low-rank adapters", ("adapter_parameters_form", "1"),
    matrices * rank * (inputs + outputs), LORA, ("a matrix of d_in by d_out gets factors of d_in by r and r by d_out",
     ), ("all adapted matrices have one shape; add the shapes up otherwise",),
)  # fmt: skip
ADAPTER_SHARE = form(
    "finetuning.adapter_share", "Parameters of an adapter over those of its matrix", ("adapter_share", "1"),
    rank * (inputs + outputs) / (inputs * outputs), LORA, ("r·(d_in + d_out) over d_in·d_out",), ("no biases",),
    (rank * (inputs + outputs) < inputs * outputs,),
)  # fmt: skip
FULL_MEMORY = form(
    "finetuning.full_memory", "Memory of full fine-tuning", ("full_memory", "B"), base * state_bytes + other,
    "Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054, section 3.1",
    ("16-bit weights and gradients take 4 bytes, 32-bit master copy and two moments 12",), ("one copy of all states",),
)  # fmt: skip
LORA_MEMORY = form(
    "finetuning.lora_memory", "Memory of tuning adapters on a frozen base", ("lora_memory", "B"),
    base * base_width + adapters * state + other, LORA, ("the base has weights alone",
     "adapters have weights, gradients and optimiser states"), ("the base is not sharded",),
)  # fmt: skip
QLORA_MEMORY = form(
    "finetuning.qlora_memory", "Memory of tuning adapters on a quantised base", ("qlora_memory", "B"),
    (base - outside) * base_width + outside * BYTES_16 + adapters * state + other, QLORA,
    ("matrices of the layers are quantised", "embeddings, head and norms stay in 16 bits",
     "adapters have weights, gradients and optimiser states"), ("the base is not sharded",), (base >= outside,),
)  # fmt: skip
QLORA_LARGEST = form(
    "finetuning.largest_base", "Largest base whose frozen weights and adapters fit a device", ("largest_base", "1"),
    (M - other - adapters * state) / base_width, LORA,
    ("what adapters and activations leave, over the bytes of a base weight",), ("one width for all base weights",),
    (other + adapters * state < M,), rounding="floor",
)  # fmt: skip
LORA_WORK = form(
    "finetuning.lora_flops", "Work of tuning adapters on tokens", ("lora_flops", "FLOP"),
    FLOP_PER_MAC * leaf.tokens * ((2 + again) * base + (3 + again) * adapters), LORA,
    ("forward and the gradient of the inputs pass the base: 4·N", "the gradient of the base's weights is skipped",
     "adapters take 6 a parameter", "what is recomputed costs 2 more"), ("attention over keys is left out",),
)  # fmt: skip
LORA_SAVING = form(
    "finetuning.lora_work_share", "Work of tuning adapters over that of full fine-tuning", ("lora_work_share", "1"),
    ((2 + again) * base + (3 + again) * adapters) / ((3 + again) * base), LORA,
    ("4·N + 6·N_r over 6·N without recomputation",), ("attention over keys is left out",),
)  # fmt: skip
PREFERENCE_MEMORY = form(
    "finetuning.preference_memory", "Memory of preference tuning with frozen models beside the policy",
    ("preference_memory", "B"), base * state_bytes + copies * base * frozen_width + other, DPO,
    ("the policy has all states", "a reference has weights alone"), ("the reference is as large as the policy",
     "its answers are not computed beforehand"),
)  # fmt: skip
PREFERENCE_WORK = form(
    "finetuning.preference_flops", "Work of preference tuning on pairs of answers", ("preference_flops", "FLOP"),
    2 * FLOP_PER_MAC * base * given("pair_tokens", "1",
     "tokens of a prompt with one answer") * given("preference_pairs", "1",
     "pairs of answers") * (3 + again + copies), DPO,
    ("the policy takes forward and backward on both answers: 6 a parameter and token", "each frozen model takes 2"),
    ("attention over keys is left out",),
)  # fmt: skip
