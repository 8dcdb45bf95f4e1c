"""Parts of a decoder: parameters, FLOPs, cache and the lengths at which attention outweighs the rest."""

from __future__ import annotations

from tokenmill_models.architecture_forms import L, V, a, b_kv, d_h, f, h, k, s, untied
from tokenmill_models.closed import DEFINITION, form, given
from tokenmill_models.roofline import FLOP_PER_MAC

NARAYANAN = "Narayanan et al. 2021, arXiv:2104.04473, appendix (FLOPs of a transformer layer)"
MLA = "DeepSeek-AI 2024, DeepSeek-V2, arXiv:2405.04434, section 2.1"

matrices = given("mlp_matrices", "1", "matrices of an MLP: 3 with a gate, 2 without", "g")
latent = given("latent_width", "1", "width of the latent that is cached", "d_c")
rope = given("rope_width", "1", "width of the rotated key that all heads share", "d_r", "nonnegative")
index = given("index_width", "1", "width of a cached indexer key", sign="nonnegative")
windowed = given("windowed_layers", "1", "layers that attend through a window", sign="nonnegative")
window = given("window_keys", "1", "keys that a windowed layer keeps")
experts = given("experts", "1", "routed experts of a layer")
active = given("experts_active", "1", "experts that serve a token")
expert_width = given("expert_width", "1", "width of a routed expert", "f_e")

_attention = 2 * h * d_h * (a + k)

ATTENTION_PARAMETERS = form(
    "architecture.attention_parameters", "Parameters of the attention of all layers", ("attention_parameters", "1"),
    L * _attention, DEFINITION, ("queries and output: h by a·d_h each", "keys and values: h by k·d_h each"),
    ("no biases",),
)  # fmt: skip
MLP_PARAMETERS = form(
    "architecture.mlp_parameters", "Parameters of the MLPs of all layers", ("mlp_parameters", "1"),
    L * matrices * h * f, DEFINITION, ("each matrix has h by f elements",), ("no biases", "one width in all layers"),
)  # fmt: skip
ATTENTION_SHARE = form(
    "architecture.attention_share", "Share of attention in the parameters of a layer", ("attention_share", "1"),
    _attention / (_attention + matrices * h * f), DEFINITION, ("attention has 2·h·d_h·(a + k), the MLP g·h·f",),
    ("norms are left out",),
)  # fmt: skip
EMBEDDING_SHARE = form(
    "architecture.embedding_share", "Share of embedding and head in a model's parameters", ("embedding_share", "1"),
    V * h * (1 + untied) / (L * (_attention + matrices * h * f) + V * h * (1 + untied)), DEFINITION,
    ("an embedding has V by h elements, and so has a head of its own",), ("norms are left out",),
)  # fmt: skip
EXPERT_PARAMETERS = form(
    "architecture.expert_parameters", "Parameters of the routed experts of all layers", ("expert_parameters", "1"),
    L * experts * matrices * h * expert_width,
    "Shazeer et al. 2017, Outrageously Large Neural Networks, arXiv:1701.06538", ("every expert is an MLP of its own",
     ), ("all layers have experts", "no biases"),
)  # fmt: skip
SPARSITY = form(
    "architecture.expert_saving", "Work of a mixture's MLPs over that of a dense MLP of all its parameters",
    ("expert_saving", "1"), active / experts,
    "Shazeer et al. 2017, Outrageously Large Neural Networks, arXiv:1701.06538",
    ("K of E experts are computed for a token",), ("equal experts", "the router is small"), (active <= experts,),
)  # fmt: skip
PARITY = form(
    "architecture.score_parity_length",
    "Length at which scores and weighted values cost as much as the projections of attention", ("score_parity", "1"),
    h * (a + k) / a, NARAYANAN, ("projections take 2·2·h·d_h·(a + k) a token",
     "scores and values take 2·2·a·d_h·T over T keys", "set both equal and solve for T"),
    ("every query sees T keys; causal training sees half: double it",),
)  # fmt: skip
DOMINANCE = form(
    "architecture.attention_parity_length",
    "Length at which scores and weighted values cost as much as all matrices of a layer", ("attention_parity", "1"),
    (_attention + matrices * h * f) / (2 * a * d_h), NARAYANAN, ("matrices take 2·(2·h·d_h·(a + k) + g·h·f) a token",
     "scores and values take 2·2·a·d_h·T over T keys", "set both equal and solve for T"),
    ("every query sees T keys; causal training sees half: double it",),
)  # fmt: skip
ATTENTION_FLOPS = form(
    "architecture.attention_flops", "Work of scores and weighted values for a token over its keys",
    ("attention_flops_token", "FLOP"), 2 * FLOP_PER_MAC * L * a * d_h * s, NARAYANAN,
    ("a head multiplies a query with s keys and weighs s values, d_h multiply-adds each",), ("s keys are seen",),
)  # fmt: skip
CACHE_PROJECTION = form(
    "architecture.kv_projection_flops", "Work of projecting keys and values for a token", ("kv_projection_flops",
     "FLOP"), 2 * FLOP_PER_MAC * L * h * k * d_h, NARAYANAN, ("two matrices of h by k·d_h a layer",), ("no latent",
     ),
)  # fmt: skip
SEQUENCE_CACHE = form(
    "architecture.kv_bytes_per_sequence", "KV-cache bytes of a sequence", ("kv_bytes_sequence", "B"),
    2 * L * k * d_h * b_kv * s, "Shazeer 2019, arXiv:1911.02150 and Ainslie et al. 2023, arXiv:2305.13245",
    ("a token caches a key and a value of k·d_h in every layer", "s tokens are cached"), ("no window",
     "no sharing between layers"),
)  # fmt: skip
LATENT_CACHE = form(
    "architecture.kv_bytes_latent", "KV-cache bytes of a sequence with latent attention", ("kv_bytes_latent", "B"),
    L * (latent + rope + index) * b_kv * s, MLA, ("keys and values are computed from one latent of d_c",
     "one rotated key of d_r serves all heads", "a sparse indexer caches a key of its own"),
    ("one precision for all that is cached",),
)  # fmt: skip
WINDOW_CACHE = form(
    "architecture.kv_bytes_windowed", "KV-cache bytes of a sequence where some layers keep a window",
    ("kv_bytes_windowed", "B"), 2 * k * d_h * b_kv * ((L - windowed) * s + windowed * window),
    "Beltagy et al. 2020, Longformer, arXiv:2004.05150", ("full layers keep all s tokens",
     "windowed layers keep the last w"), ("the window is full",), (window <= s, windowed <= L),
)  # fmt: skip
CACHE_CUT = form(
    "architecture.grouping_cut", "Cut of the KV cache by grouped queries", ("grouping_cut", "1"), 1 - k / a,
    "Ainslie et al. 2023, GQA, arXiv:2305.13245", ("the cache is proportional to key/value heads",
     "multi-head attention has as many as query heads"), ("the head size stays",), (k <= a,),
)  # fmt: skip
