"""Configurations that wrap a language model: which ``model_type`` they hold, and what their inner table leaves to the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenmill.imports.families.config import Config

# outer model_type -> the inner one where the file does not say
WRAPPERS: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "paligemma": "gemma",
    "qwen2_vl": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "llama4": "llama4_text",
    "mllama": "mllama_text_model",
    "kimi_k25": "kimi_k2",
    "kimi_k3": "kimi_linear",
    "mistral3": "mistral",
    "llava": "llama",
    "llava_next": "llama",
    "idefics3": "llama",
    "smolvlm": "llama",
    "phi3_v": "phi3",
    "internvl": "qwen2",
    "internvl_chat": "",
    "glm4v": "glm4v_text",
    "glm4v_moe": "glm4v_moe_text",
    "aria": "aria_text",
    "step3_vl": "step3_text",
    "voxtral": "llama",
    "kimi_vl": "deepseek_v3",
    "deepseek_vl_v2": "deepseek_v2",
    "cohere2_vision": "cohere2",
    "aya_vision": "cohere2",
}

# names the library gives the language model inside a wrapper
INNER: Mapping[str, str] = {
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "glm4v_text": "glm4",
    "glm4v_moe_text": "glm4_moe",
}

# what the library puts where an inner table is silent (defaults of the configuration classes)
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3_text": {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
    },
    "llama": {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
    "mistral": {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
}


def text_config(c: Config) -> tuple[Config, str]:
    """Return the language model's fields, and the outer ``model_type`` where there is one.

    A wrapper's own ``tie_word_embeddings`` and quantisation stand for the inner table where that is silent.
    """
    outer = c.text("model_type")
    if outer not in WRAPPERS:
        return c, ""
    inner = c.sub("text_config") or c.sub("llm_config") or c.sub("language_config")
    if inner is None:
        fields = {name: value for name, value in c.fields.items() if name != "model_type"}
        inner = Config(fields, c.source, c.place)
    kind = inner.text("model_type") or WRAPPERS[outer]
    kind = INNER.get(kind, kind)
    fields = {name: value for name, value in inner.fields.items() if value is not None}
    if c.get("tie_word_embeddings") is not None:
        fields.setdefault("tie_word_embeddings", c.get("tie_word_embeddings"))
    return Config({**DEFAULTS.get(kind, {}), **fields, "model_type": kind}, inner.source, inner.place), outer
