"""Blocks whose attention and MLP stand side by side: their outputs are summed before one all-reduce, not two."""

from dataclasses import replace

import pytest

from sample_leaves import IDEAL, dense, expert
from serving_samples import evaluate
from tokenmill.imports.architecture import load_architecture, read_architecture
from tokenmill_models.serving import STAGE

PLAIN = {origin.replace(".", "__"): value for origin, value in IDEAL.items() if "[" not in origin}
LAYERS = 24
STACKED = dense(2048, 16, 4, 128, 8192, LAYERS, 32000)
BESIDE = replace(STACKED, layers=tuple(replace(kind, parallel=True) for kind in STACKED.layers))


@pytest.mark.parametrize(
    "model", ["falcon-7b", "falcon-180b", "gpt-j-6b", "pythia-6.9b", "phi-2", "c4ai-command-r-v01"]
)
def test_published_blocks_that_stand_side_by_side(model):
    """PaLM's form, stated in each model's paper or card; one layer needs one all-reduce."""
    assert all(kind.tensor_reduces == 1 for kind in load_architecture(model).layers)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "bloom-7b1", "opt-6.7b", "gpt2", "mpt-7b", "aya-23-8b"])
def test_other_blocks_follow_one_another(model):
    wanted = 1 if model == "aya-23-8b" else 2  # aya 23 has the shape of Command R
    assert all(kind.tensor_reduces == wanted for kind in load_architecture(model).layers)


def test_flags_of_a_configuration_are_read():
    shape = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "vocab_size": 100,
    }
    for given, reduces in (
        ({"model_type": "gpt_neox", "use_parallel_residual": False}, 2),
        ({"model_type": "gpt_neox"}, 1),
        ({"model_type": "stablelm"}, 2),
        ({"model_type": "stablelm", "use_parallel_residual": True}, 1),
        ({"model_type": "falcon", "parallel_attn": False}, 2),
        ({"model_type": "falcon", "parallel_attn": False, "new_decoder_architecture": True}, 1),
    ):
        assert read_architecture(shape | given).layers[0].tensor_reduces == reduces, given


@pytest.mark.parametrize("name", ["prefill", "decode"])
def test_serving_saves_one_all_reduce_a_layer(name):
    found = []
    for arch in (STACKED, BESIDE):
        (role,) = [role for role in STAGE.roles(arch) if role.name == name]
        found.append(evaluate(role, arch, axis__tp=4.0, **PLAIN))
    label = "prompt" if name == "prefill" else "plain"
    one = found[0][f"tensor_{label}"] / (2 * LAYERS)
    assert one > 0
    assert found[1][f"tensor_{label}"] == pytest.approx(LAYERS * one)
    assert found[0][f"T_{label}"] - found[1][f"T_{label}"] == pytest.approx(LAYERS * one)


def test_training_saves_half_of_the_tensor_exchange():
    from tokenmill_models.formula import Graph
    from tokenmill_models.operations import layer
    from tokenmill_models.operations_parts import ONE, Shape
    from tokenmill_models.training_exchange import layer_exchange

    found = []
    for arch in (STACKED, BESIDE):
        graph = Graph()
        (kind,) = arch.layers
        work = layer(graph, "x", kind, "layers.0", Shape(*[ONE] * 7))
        exchange = layer_exchange(graph, "x", kind, "layers.0", ONE, work)
        found.append(graph.formulas[exchange.tensor].expr)
    assert (found[0] - 2 * found[1]).expand() == 0


def test_routed_experts_keep_their_own_exchange():
    routed = expert(2048, 16, 4, 128, 1024, 8, 2, 0, 4, 0, 32000)
    assert routed.layers[0].tensor_reduces == 1
