"""The closed forms agree with the matrix-by-matrix count at random shapes; counts obey what must hold for any shape."""

import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.imports.architecture import read_architecture
from tokenmill_models import architecture_forms as forms
from tokenmill_models.architecture import causal_flops_per_token, kv_bytes_per_token, mean_causal_keys
from tokenmill_models.roofline import FLOP_PER_MAC

shapes = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 130),
        "kv": st.integers(1, 16),
        "group": st.integers(1, 16),
        "size": st.sampled_from([16, 64, 96, 128, 256]),
        "hidden": st.integers(16, 20_000),
        "width": st.integers(1, 60_000),
        "vocabulary": st.integers(1, 300_000),
        "tied": st.booleans(),
    }
)


def build(shape):
    return read_architecture(
        {
            "model_type": "llama",
            "hidden_size": shape["hidden"],
            "intermediate_size": shape["width"],
            "num_hidden_layers": shape["layers"],
            "num_attention_heads": shape["kv"] * shape["group"],
            "num_key_value_heads": shape["kv"],
            "head_dim": shape["size"],
            "vocab_size": shape["vocabulary"],
            "tie_word_embeddings": shape["tied"],
        }
    )


def value(expr, shape, **more):
    heads = shape["kv"] * shape["group"]
    numbers = {
        forms.L: shape["layers"], forms.h: shape["hidden"], forms.f: shape["width"], forms.V: shape["vocabulary"],
        forms.a: heads, forms.k: shape["kv"], forms.d_h: shape["size"], forms.untied: int(not shape["tied"]),
        FLOP_PER_MAC: 2, **{getattr(forms, name): number for name, number in more.items()},
    }  # fmt: skip
    found = expr.subs(numbers)
    assert isinstance(found, sp.Number)
    return found


@given(shapes)
@settings(max_examples=40, deadline=None)
def test_parameters(shape):
    arch = build(shape)
    assert value(forms.PARAMETERS.expr, shape) == arch.parameters.total
    assert value(forms.MATRIX_ELEMENTS.expr, shape) == arch.matmul_parameters_active


@given(shapes, st.integers(1, 100_000))
@settings(max_examples=40, deadline=None)
def test_flops(shape, sequence):
    found = value(forms.FORWARD_FLOPS.expr, shape, s=sequence)
    assert abs(float(found) / causal_flops_per_token(build(shape), sequence) - 1) < 1e-12
    assert value(forms.TRAINING_FLOPS.expr, shape, s=sequence) == 3 * found


@given(shapes, st.integers(1, 64))
@settings(max_examples=40, deadline=None)
def test_cache(shape, ranks):
    arch = build(shape)
    assert float(value(forms.KV_BYTES.expr, shape, b_kv=2)) == kv_bytes_per_token(arch, 2.0)
    on_rank = value(forms.KV_BYTES_PER_RANK.expr, shape, b_kv=2, n_tensor=ranks)
    assert abs(float(on_rank) / kv_bytes_per_token(arch, 2.0, t=ranks) - 1) < 1e-12


@given(st.integers(1, 10_000), st.integers(1, 10_000))
@settings(max_examples=60, deadline=None)
def test_window(window, more):
    sequence = window + more - 1
    found = float(forms.MEAN_KEYS_WINDOW.expr.subs({forms.w: window, forms.s: sequence}))
    assert abs(found / mean_causal_keys(sequence, window) - 1) < 1e-12
    total = window * (window + 1) // 2 + (sequence - window) * window
    assert abs(found * sequence / total - 1) < 1e-12


moes = st.tuples(st.integers(1, 64), st.integers(1, 64), st.integers(0, 3))


@given(shapes, moes)
@settings(max_examples=30, deadline=None)
def test_active_never_exceeds_total_and_equals_it_when_all_experts_fire(shape, moe):
    more, active, shared = moe
    experts = more + active - 1
    fields = {
        "model_type": "deepseek", "hidden_size": shape["hidden"], "intermediate_size": shape["width"],
        "moe_intermediate_size": 7, "num_hidden_layers": shape["layers"], "num_attention_heads": shape["kv"],
        "head_dim": shape["size"], "vocab_size": shape["vocabulary"], "n_routed_experts": experts,
        "num_experts_per_tok": active, "n_shared_experts": shared, "first_k_dense_replace": 1,
    }  # fmt: skip
    arch = read_architecture(fields)
    counts = arch.parameters
    idle = (shape["layers"] - 1) * (experts - active) * 3 * 7 * shape["hidden"]
    assert counts.total - counts.active == idle
    assert sum(kind.count for kind in arch.layers) == shape["layers"]
