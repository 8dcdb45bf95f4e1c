"""Which function reads which ``model_type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tokenmill.imports.families import decoders, experts, latent
from tokenmill.imports.families.config import Config
from tokenmill.imports.families.parts import Text

FAMILIES: Mapping[str, Callable[[Config], Text]] = {
    **dict.fromkeys(("llama", "baichuan", "yi", "xverse", "exaone", "aquila", "orion", "helium"), decoders.llama),
    "smollm3": decoders.smollm3,
    **dict.fromkeys(("mistral", "ministral"), decoders.mistral),
    "qwen": decoders.qwen,
    "qwen2": decoders.qwen2,
    "mimo": decoders.mimo,
    "qwen3": decoders.qwen3,
    "phi3": decoders.phi3,
    "gemma": decoders.gemma,
    "gemma2": decoders.gemma2,
    "gemma3_text": decoders.gemma3,
    "olmo": decoders.olmo,
    **dict.fromkeys(("olmo2", "olmo3"), decoders.olmo2),
    "cohere": decoders.cohere,
    "cohere2": decoders.cohere2,
    "granite": decoders.granite,
    **dict.fromkeys(("glm", "glm4"), decoders.glm),
    "chatglm": decoders.chatglm,
    "internlm": decoders.internlm,
    "internlm2": decoders.internlm2,
    "internlm3": decoders.internlm3,
    "exaone4": decoders.exaone4,
    "seed_oss": decoders.seed_oss,
    "hunyuan_v1_dense": decoders.hunyuan_dense,
    "ernie4_5": decoders.ernie,
    "apertus": decoders.apertus,
    **dict.fromkeys(("nemotron-nas", "deci"), decoders.nemotron_nas),
    "mixtral": experts.mixtral,
    "qwen2_moe": experts.qwen2_moe,
    "qwen3_moe": experts.qwen3_moe,
    "olmoe": experts.olmoe,
    "phimoe": experts.phimoe,
    "gpt_oss": experts.gpt_oss,
    **dict.fromkeys(("glm4_moe", "dots1"), experts.glm4_moe),
    "minimax_m2": experts.minimax_m2,
    "dbrx": experts.dbrx,
    **dict.fromkeys(("grok-1", "grok"), experts.grok),
    **dict.fromkeys(("llama4_text",), experts.llama4),
    **dict.fromkeys(("granitemoe", "granitemoeshared"), experts.granite_moe),
    **dict.fromkeys(("hunyuan_v1_moe", "hunyuan"), experts.hunyuan_moe),
    "ernie4_5_moe": experts.ernie_moe,
    **dict.fromkeys(("bailing_moe", "bailing_moe_v2", "bailing_moe_2"), experts.bailing_moe),
    "arctic": experts.arctic,
    "aria_text": experts.aria,
    "step3_text": experts.step3,
    "deepseek": latent.deepseek_v1,
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite"), latent.deepseek
    ),
    "minicpm3": latent.minicpm3,
    **dict.fromkeys(("longcat_flash", "longcat"), latent.longcat),
    "deepseek_v4": latent.deepseek_v4,
    "mimo_v2_flash": latent.mimo_v2,
}

BY_CLASS: Mapping[str, str] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "GptOssForCausalLM": "gpt_oss",
    "LongcatFlashForCausalLM": "longcat_flash",
}

_ENCODER = "an encoder-decoder: cross-attention and a second stack are missing from the formulas"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("t5", "mt5", "umt5", "t5gemma", "bart", "mbart", "pegasus", "marian", "m2m_100", "whisper", "led", "longt5"),
        _ENCODER,
    ),
    **dict.fromkeys(
        ("bert", "roberta", "deberta", "deberta-v2", "electra", "modernbert", "distilbert", "xlm-roberta"),
        "an encoder without generation: there is no cache and no decode step to size",
    ),
}
