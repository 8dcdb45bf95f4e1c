"""Parameter counts and cache sizes against published ones, to the element.

parameter_counts.csv: counts made by building each model without weights in its library (transformers 5.24.0) and summing
tensors; rows that are not checked come from memory and are no oracle. further_counts.json: shapes of families beyond those
files, with the parameter total that each model's public page shows. reported_kv_bytes.csv: cache memory over cache tokens, as
engines printed them.
"""

import csv
import json
from pathlib import Path

import pytest

from tokenmill.imports.architecture import load_architecture, read_architecture
from tokenmill_models.architecture import kv_bytes_per_token

HERE = Path(__file__).parent
PUBLISHED = list(csv.DictReader((HERE / "parameter_counts.csv").read_text(encoding="utf-8").splitlines()))
FURTHER = json.loads((HERE / "further_counts.json").read_text(encoding="utf-8"))
REPORTED = list(csv.DictReader((HERE / "reported_kv_bytes.csv").read_text(encoding="utf-8").splitlines()))
COLUMNS = ("total", "active", "embedding", "output_head", "experts", "towers")

# Counts that differ from the table, and why: (model, column) -> ours minus the table's.
EXCEPTIONS = {
    # the table's column holds the encoder alone, ours its projector too; the total is equal
    ("moonshotai/Kimi-K2.5", "towers"): 54_277_888,
}


@pytest.mark.parametrize("row", [row for row in PUBLISHED if row["checked"] == "yes"], ids=lambda row: row["model"])
def test_counts_equal_the_published_ones(row):
    counts = load_architecture(row["model"]).parameters
    found = {name: getattr(counts, name) for name in COLUMNS if row[name]}
    wanted = {name: int(row[name]) + EXCEPTIONS.get((row["model"], name), 0) for name in COLUMNS if row[name]}
    assert found == wanted


def test_the_table_holds_the_models_of_the_catalogue():
    names = {load_architecture(row["model"]).name for row in PUBLISHED}
    assert len(names) == len(PUBLISHED) == 93


@pytest.mark.parametrize("case", FURTHER, ids=lambda case: case["model"])
def test_totals_of_further_families(case):
    assert read_architecture(case["config"], case["model"]).parameters.total == case["total"]


@pytest.mark.parametrize("row", REPORTED, ids=lambda row: row["id"])
def test_cache_bytes_a_token_as_engines_print_them(row):
    arch = load_architecture(row["architecture"])
    found = kv_bytes_per_token(arch, 2.0, t=int(row["tensor_parallel"]))
    assert found == pytest.approx(float(row["bytes_per_token_per_gpu"]), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "total", "rel"),
    [
        # Llama 3 herd of models, arXiv:2407.21783, table 3: 405B; the weights hold 405.85e9
        ("llama-3.1-405b", 405.85e9, 1e-4),
        # DeepSeek-V3 report, arXiv:2412.19437, abstract: 671B
        ("deepseek-v3", 671e9, 1e-3),
        # Mixtral of experts, arXiv:2401.04088: 47B, 13B active
        ("mixtral-8x7b-v0.1", 47e9, 1e-2),
        # gpt-oss model card, table 1: 116.83B and 20.91B
        ("gpt-oss-120b", 116.83e9, 1e-4),
        ("gpt-oss-20b", 20.91e9, 1e-3),
    ],
)
def test_totals_that_reports_state(name, total, rel):
    assert load_architecture(name).parameters.total == pytest.approx(total, rel=rel)


@pytest.mark.parametrize(
    ("name", "active", "rel"),
    [
        ("deepseek-v3", 37e9, 2e-2),
        ("mixtral-8x7b-v0.1", 13e9, 2e-2),
        # gpt-oss model card, table 1: 5.13B and 3.61B active; it counts the head but no input embedding
        ("gpt-oss-120b", 5.13e9, 1e-3),
        ("gpt-oss-20b", 3.61e9, 1e-3),
    ],
)
def test_active_parameters_that_reports_state(name, active, rel):
    assert load_architecture(name).parameters.computed == pytest.approx(active, rel=rel)


def test_prediction_module_completes_the_published_checkpoint():
    # GLM-4.5 is published with 358,337,791,296 elements: one prediction layer, which repeats embedding and head
    config = {
        "model_type": "glm4_moe", "hidden_size": 5120, "intermediate_size": 12288, "num_hidden_layers": 92,
        "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151552,
        "moe_intermediate_size": 1536, "n_routed_experts": 160, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "first_k_dense_replace": 3, "use_qk_norm": True, "attention_bias": True, "num_nextn_predict_layers": 1,
    }  # fmt: skip
    arch = read_architecture(config)
    repeated = 2 * 151552 * 5120
    assert arch.parameters.total + sum(size for _, size in arch.mtp) + repeated == 358_337_791_296


def test_layers_that_share_keys_and_values():
    # Hunyuan-Large report, arXiv:2411.02265: 389B in all, 52B active; neighbouring layers share keys and values
    config = {
        "model_type": "hunyuan", "hidden_size": 6400, "intermediate_size": 18304, "num_hidden_layers": 64,
        "num_attention_heads": 80, "num_key_value_heads": 8, "vocab_size": 128512, "num_experts": 16, "moe_topk": 1,
        "num_shared_expert": 1, "use_cla": True, "cla_share_factor": 2, "use_qk_norm": True, "tie_word_embeddings": True,
    }  # fmt: skip
    arch = read_architecture(config)
    assert arch.parameters.total == pytest.approx(389e9, rel=2e-3)
    assert arch.parameters.active == pytest.approx(52e9, rel=2e-2)
    assert kv_bytes_per_token(arch) == 32 * 2 * 8 * 80 * 2
