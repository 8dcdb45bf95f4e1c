"""Reading configurations: names, refusals that say what is wrong, precisions, nested files."""

import json

import pytest

from tokenmill.errors import CatalogError, ImportFileError
from tokenmill.imports.architecture import (
    architecture_names,
    architecture_report,
    load_architecture,
    read_architecture,
    short_name,
)

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("meta-llama/Meta-Llama-3.1-70B", "llama-3.1-70b"),
        ("meta-llama__Llama-2-70b-hf", "llama-2-70b"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder-480b-a35b"),
        ("mistralai/Ministral-8B-Instruct-2410", "ministral-8b"),
        ("allenai/OLMoE-1B-7B-0924", "olmoe-1b-7b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
    ],
)
def test_short_names(full, short):
    assert short_name(full) == short


def test_every_name_of_the_catalogue_loads_under_name_and_alias():
    names = architecture_names()
    assert len(names) == 97
    for name in names:
        arch = load_architecture(name)
        assert load_architecture(arch.aliases[0]) == arch
        assert arch.source
        assert arch.name == name


def test_unknown_name_gives_the_nearest():
    with pytest.raises(CatalogError, match=r"llama-3\.1-7b.*nearest: llama-3\.1-70b"):
        load_architecture("llama-3.1-7b")


def test_path_relative_to_a_folder(tmp_path):
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert load_architecture("my/config.json", tmp_path).hidden == 64
    assert load_architecture("my", tmp_path).hidden == 64


@pytest.mark.parametrize("family", ["mistery", "llama5", "quantum_net"])
def test_unknown_family_is_refused_by_name(family):
    with pytest.raises(ImportFileError, match=rf"model_type: found '{family}'.*none is guessed"):
        read_architecture({**LLAMA, "model_type": family})


@pytest.mark.parametrize(
    ("family", "reason"), [("t5", "encoder-decoder"), ("deberta", "differs from BERT"), ("zamba", "layers share")]
)
def test_family_not_covered_says_what_is_missing(family, reason):
    with pytest.raises(ImportFileError, match=reason):
        read_architecture({**LLAMA, "model_type": family})


def test_missing_model_type_falls_back_on_the_class():
    fields = {name: value for name, value in LLAMA.items() if name != "model_type"}
    assert read_architecture({**fields, "architectures": ["LlamaForCausalLM"]}).family == "llama"
    with pytest.raises(ImportFileError, match="model_type: found nothing"):
        read_architecture(fields)


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [
        ("hidden_size", None, "hidden_size"),
        ("hidden_size", -64, "hidden_size: found -64"),
        ("hidden_size", "64", "hidden_size: found '64'"),
        ("hidden_size", True, "hidden_size: found True"),
        ("num_hidden_layers", 10**8, "num_hidden_layers"),
        ("num_key_value_heads", 3, "num_key_value_heads: found 3; allowed: a divisor of the 4"),
        ("num_attention_heads", 5, "num_attention_heads: found 5; allowed: a divisor of the hidden size 64"),
        ("attention_bias", "yes", "attention_bias: found 'yes'; allowed: true or false"),
    ],
)
def test_impossible_fields_are_named(field, value, match):
    with pytest.raises(ImportFileError, match=match):
        read_architecture({**LLAMA, field: value})


@pytest.mark.parametrize("text", ["{", "[]", "not json", '"x"', "\x00"])
def test_broken_files_are_refused(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ImportFileError, match=r"config\.json"):
        read_architecture(path)
    with pytest.raises(ImportFileError, match="cannot be read"):
        read_architecture(tmp_path / "absent.json")


def test_layer_list_that_is_too_short_is_refused():
    fields = {**LLAMA, "model_type": "gemma2", "layer_types": ["sliding_attention"], "sliding_window": 16}
    with pytest.raises(ImportFileError, match="layer_types: found 1 items"):
        read_architecture(fields)


PRECISIONS = [
    (None, ("bf16", None)),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8-block", None)),
    ({"quant_method": "fp8"}, ("fp8", None)),
    ({"quant_method": "fbgemm_fp8"}, ("fp8-row", None)),
    ({"quant_method": "gptq", "bits": 4}, ("int4", None)),
    ({"quant_method": "gptq", "bits": 8}, ("int8", None)),
    ({"quant_method": "awq", "bits": 4}, ("int4", None)),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, ("int4", None)),
    ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, ("bf16", "mxfp4")),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ("nvfp4", None)),
    (
        {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
         "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}}},
        ("nvfp4", None),
    ),
    (
        {"quant_method": "compressed-tensors",
         "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}},
        ("fp8-row", None),
    ),
    (
        {"quant_method": "compressed-tensors", "ignore": ["re:.*self_attn.*"],
         "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}},
        ("bf16", "int4"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("quantisation", "wanted"), PRECISIONS)
def test_published_precision(quantisation, wanted):
    arch = read_architecture({**LLAMA, "torch_dtype": "bfloat16", "quantization_config": quantisation})
    assert (arch.weights_precision, arch.experts_precision) == wanted


def test_unknown_quantisation_is_refused():
    with pytest.raises(ImportFileError, match=r"quantization_config\.quant_method: found 'magic'"):
        read_architecture({**LLAMA, "quantization_config": {"quant_method": "magic"}})
    with pytest.raises(ImportFileError, match="bits: found 3"):
        read_architecture({**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 3}})


def test_published_precision_in_the_catalogue():
    found = {
        name: load_architecture(name) for name in ("deepseek-v3", "gpt-oss-120b", "kimi-k2.5", "deepseek-v4-flash")
    }
    pairs = {name: (arch.weights_precision, arch.experts_precision) for name, arch in found.items()}
    assert pairs == {
        "deepseek-v3": ("fp8-block", None),
        "gpt-oss-120b": ("bf16", "mxfp4"),
        "kimi-k2.5": ("bf16", "int4"),
        "deepseek-v4-flash": ("fp8-block", "mxfp4"),
    }


def test_encoder_that_cannot_be_counted_is_said():
    text = {**LLAMA, "model_type": "cohere2"}
    fields = {"model_type": "cohere2_vision", "text_config": text, "vision_config": {"depth": 2}}
    arch = read_architecture(fields)
    assert arch.towers == ()
    assert any("vision encoder not counted" in note for note in arch.notes)


def test_report_has_the_keys_of_the_contract():
    report = architecture_report(load_architecture("mixtral-8x7b-v0.1"))
    assert {"parameters", "weight_bytes", "kv_bytes_per_token"} <= set(report)
    assert {"total", "active", "embedding", "output_head", "experts"} <= set(report["parameters"])
    assert report["weight_bytes"] == 2 * 46_702_792_704
    assert report["kv_bytes_per_token"] == 2 * 32 * 8 * 128 * 2
    json.dumps(report)


def test_report_of_windows():
    report = architecture_report(load_architecture("gemma-2-27b"))
    assert report["kv_bytes_per_token"] == 2 * 46 * 16 * 128 * 2
    assert report["kv_bytes_per_token_past_windows"] == report["kv_bytes_per_token"] / 2
