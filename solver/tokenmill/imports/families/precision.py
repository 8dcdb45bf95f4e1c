"""In what precision a checkpoint is published, from the quantisation its configuration states."""

from __future__ import annotations

from tokenmill.imports.families.config import Config

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16", "float": "fp32"}
INTEGERS = {4: "int4", 8: "int8"}


def base_precision(c: Config) -> str:
    """Return the precision of what is not quantised (bf16 where the file says nothing)."""
    text = c.sub("text_config")
    found = c.get("torch_dtype", "dtype") or (text.get("torch_dtype", "dtype") if text else None)
    if found is None or found == "auto":
        return "bf16"
    name = str(found).removeprefix("torch.")
    if name not in DTYPES:
        if name.startswith("float8"):
            return "bf16"
        raise c.fail("torch_dtype", name[:40], ", ".join(DTYPES))
    return DTYPES[name]


def _integer(q: Config, bits: int) -> str:
    if bits not in INTEGERS:
        raise q.fail("bits", bits, "4 or 8")
    return INTEGERS[bits]


def _compressed_tensors(q: Config) -> str:
    groups = q.sub("config_groups")
    first = groups.sub(next(iter(groups.fields), "")) if groups else None
    weights = first.sub("weights") if first else None
    form = (first.text("format") if first else "") or q.text("format")
    for prefix in ("nvfp4", "mxfp4", "mxfp8"):
        if form.startswith(prefix):
            return prefix
    if weights is None:
        raise q.fail("config_groups", "no weights", "a group with its weights described")
    bits, strategy = weights.count("num_bits"), weights.text("strategy", "tensor")
    if weights.text("type", "int") == "int":
        return _integer(weights, bits)
    if bits == 8:
        return {"block": "fp8-block", "channel": "fp8-row", "token": "fp8-row"}.get(strategy, "fp8")
    if bits == 4:
        return "nvfp4" if weights.get("group_size") == 16 else "mxfp4"
    raise weights.fail("num_bits", bits, "4 or 8")


def _modelopt(q: Config) -> str:
    name = str(q.get("quant_algo") or "").upper()
    known = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_AWQ": "int4", "W4A8_AWQ": "int4", "W8A8_SQ_PER_CHANNEL": "int8"}
    known |= {"MXFP8": "mxfp8", "FP8_PB_WO": "fp8-block", "FP8_BLOCK_SCALES": "fp8-block"}
    if name not in known:
        raise q.fail("quant_algo", repr(name), ", ".join(known))
    return known[name]


def _bitsandbytes(q: Config) -> str:
    return "int4" if q.flag("load_in_4bit", "_load_in_4bit", default=False) else "int8"


def quantised_precision(q: Config) -> str:
    """Return the precision of the quantised matrices.

    Raises
    ------
    ImportFileError
        Where the method is not known.
    """
    method = q.text("quant_method").lower().replace("_", "-")
    if method in ("fp8", "fine-grained-fp8"):
        return "fp8-block" if q.get("weight_block_size") else "fp8"
    if method in ("fbgemm-fp8", "ptpc-fp8"):
        return "fp8-row"
    if method in ("gptq", "awq", "auto-round", "gptqmodel", "autoround", "intel/auto-round"):
        return _integer(q, q.count("bits", "w_bit", default=4))
    if method in ("mxfp4", "mxfp8", "nvfp4"):
        return method
    if method == "bitsandbytes":
        return _bitsandbytes(q)
    if method in ("compressed-tensors", "sparseml"):
        return _compressed_tensors(q)
    if method.startswith("modelopt"):
        return _modelopt(q)
    known = "fp8, fbgemm_fp8, gptq, awq, auto-round, mxfp4, mxfp8, nvfp4, bitsandbytes, compressed-tensors, modelopt"
    raise q.fail("quant_method", repr(method), known)


def precisions(c: Config) -> tuple[str, str, str | None]:
    """Return (base, matrices of the layers, routed experts where they differ)."""
    base = base_precision(c)
    text = c.sub("text_config")
    quantised = c.sub("quantization_config") or (text.sub("quantization_config") if text else None)
    named = str(c.get("expert_dtype") or (text.get("expert_dtype") if text else None) or "")
    experts = {"fp4": "mxfp4", "mxfp4": "mxfp4", "nvfp4": "nvfp4", "fp8": "fp8-block"}.get(named)
    if quantised is None:
        return base, base, experts
    precision = quantised_precision(quantised)
    left = [
        str(name)
        for key in ("ignore", "modules_to_not_convert", "exclude_modules")
        for name in quantised.items(key) or ()
    ]
    if any("self_attn" in name and "*" in name for name in left):
        return base, base, precision
    return base, precision, experts
