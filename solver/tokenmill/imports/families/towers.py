"""Encoders beside a language model (vision), counted from their own part of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokenmill.imports.families.config import Config
from tokenmill_models.architecture import Tower


@dataclass(frozen=True)
class Vit:
    """A vision transformer: sizes, and which of its matrices carry biases."""

    hidden: int
    width: int
    layers: int
    patch: int  # elements of one patch
    gated: bool = False
    attention_bias: bool = True
    mlp_bias: bool = True
    layer_norm: bool = True  # norms with a bias

    @property
    def norm(self) -> int:
        """Parameters of one norm."""
        return self.hidden * (2 if self.layer_norm else 1)

    @property
    def matrices(self) -> int:
        """Elements every patch is multiplied with."""
        h = self.hidden
        return self.layers * (4 * h * h + (3 if self.gated else 2) * h * self.width) + self.patch * h

    @property
    def parameters(self) -> int:
        """Parameters of the layers and of the patch embedding, without positions and outer norms."""
        h = self.hidden
        biases = 4 * h * self.attention_bias + ((2 if self.gated else 1) * self.width + h) * self.mlp_bias
        return self.matrices + self.layers * (biases + 2 * self.norm)

    def tower(
        self, parameters: int, merge: int, tokens: int | None = None, whole: int | None = None, span: int | None = None
    ) -> Tower:
        """Return the encoder with its projector; `whole`: layers that attend to all patches (all of them unless given)."""
        attention = self.hidden * (self.layers if whole is None else whole)
        return Tower("vision", parameters, self.matrices, tokens, merge, attention, span)


def _linear(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + (outputs if bias else 0)


def _merger(inner: int, merged: int, out: int, norm: int) -> int:
    """Projector that merges patches: a norm and two linear maps."""
    return norm + _linear(merged, merged) + _linear(merged, out)


def _qwen2_vl(v: Config, text_hidden: int) -> list[Tower]:
    h, merge = v.count("embed_dim"), v.count("spatial_merge_size", default=2)
    patch = v.count("in_channels", "in_chans", default=3) * v.count("temporal_patch_size", default=2)
    patch *= v.count("patch_size", "spatial_patch_size", default=14) ** 2
    vit = Vit(h, int(v.number("mlp_ratio", 4) * h), v.count("depth"), patch)
    project = _merger(h, h * merge**2, v.count("hidden_size", default=text_hidden), 2 * h)
    return [vit.tower(vit.parameters + project, merge**2)]


def _qwen25_vl(v: Config, text_hidden: int) -> list[Tower]:
    h, merge = v.count("hidden_size"), v.count("spatial_merge_size", default=2)
    patch = 3 * v.count("temporal_patch_size", default=2) * v.count("patch_size", "spatial_patch_size", default=14) ** 2
    vit = Vit(h, v.count("intermediate_size"), v.count("depth"), patch, gated=True, layer_norm=False)
    project = _merger(h, h * merge**2, v.count("out_hidden_size", default=text_hidden), h)
    # the other layers attend within windows of few patches
    whole = len(v.numbers("fullatt_block_indexes") or [7, 15, 23, 31])
    return [vit.tower(vit.parameters + project, merge**2, whole=whole)]


def _qwen3_vl(v: Config, text_hidden: int) -> list[Tower]:
    h, merge = v.count("hidden_size"), v.count("spatial_merge_size", default=2)
    patch = v.count("in_channels", default=3) * v.count("temporal_patch_size", default=2)
    patch *= v.count("patch_size", default=16) ** 2
    vit = Vit(h, v.count("intermediate_size"), v.count("depth"), patch)
    out, merged = v.count("out_hidden_size", default=text_hidden), h * merge**2
    project = _merger(h, merged, out, 2 * h)
    # features of some inner layers have projectors of their own, their norm after the merge
    project += len(v.numbers("deepstack_visual_indexes") or []) * _merger(h, merged, out, 2 * merged)
    positions = v.count("num_position_embeddings", default=2304) * h
    return [vit.tower(vit.parameters + h + positions + project, merge**2)]


def _siglip(v: Config) -> tuple[Vit, int]:
    """Return a SigLIP encoder and the parameters of all of it without the pooling head."""
    h, size, side = (
        v.count("hidden_size", default=768),
        v.count("patch_size", default=16),
        v.count("image_size", default=224),
    )
    vit = Vit(
        h,
        v.count("intermediate_size", default=3072),
        v.count("num_hidden_layers", default=12),
        v.count("num_channels", default=3) * size**2,
    )
    return vit, vit.parameters + h + (side // size) ** 2 * h + 2 * h


def _patches(v: Config, side: int, size: int) -> int:
    """Return the patches of an image or tile of full size; `side` and `size` of a patch [pixels] where the file has none."""
    return (_side(v, "image_size", side) // _side(v, "patch_size", size)) ** 2


def _gemma3(v: Config, text_hidden: int) -> list[Tower]:
    vit, parameters = _siglip(v)
    patches, tokens = _patches(v, 224, 16), 256
    return [vit.tower(parameters + vit.hidden * text_hidden + vit.hidden, patches // tokens, tokens)]


def _paligemma(v: Config, text_hidden: int) -> list[Tower]:
    vit, parameters = _siglip(v)
    return [vit.tower(parameters + _linear(vit.hidden, text_hidden), 1, tokens=_patches(v, 224, 16))]


def _gemma4(v: Config, text_hidden: int) -> list[Tower]:
    h, size = v.count("hidden_size"), v.count("head_dim", default=72)
    if v.count("num_key_value_heads", default=v.count("num_attention_heads")) != v.count("num_attention_heads"):
        raise v.fail("num_key_value_heads", v.count("num_key_value_heads"), "as many as attention heads")
    patch = 3 * v.count("patch_size", default=16) ** 2
    vit = Vit(
        h,
        v.count("intermediate_size"),
        v.count("num_hidden_layers"),
        patch,
        gated=True,
        attention_bias=v.flag("attention_bias", default=False),
        mlp_bias=False,
        layer_norm=False,
    )
    # two more norms a layer, norms over q and k heads, a position table for each axis
    extra = vit.layers * (2 * h + 2 * size) + 2 * v.count("position_embedding_size", default=10240) * h
    return [vit.tower(vit.parameters + extra + h * text_hidden, v.count("pooling_kernel_size", default=3) ** 2)]


def _moonvit(v: Config, text_hidden: int) -> list[Tower]:
    h = v.count("vt_hidden_size", "hidden_size")
    bias = v.flag("linear_bias", default=True)
    rms = v.text("norm_type") == "rmsnorm"
    width = v.count("vt_intermediate_size", "intermediate_size")
    patch = 3 * v.count("patch_size", default=14) ** 2
    wide = v.count("qkv_hidden_size", default=h)
    vit = Vit(
        h,
        width,
        v.count("vt_num_hidden_layers", "num_hidden_layers"),
        patch,
        attention_bias=v.flag("attn_bias", default=True),
        mlp_bias=bias,
        layer_norm=not rms,
    )
    wider = vit.layers * 4 * h * (wide - h)
    positions = v.count("init_pos_emb_height", default=64) * v.count("init_pos_emb_width", default=64) * h
    patch_bias = h if v.flag("patch_embed_proj_bias", default=True) else 0
    merged = h * 4
    project = _merger(h, merged, v.count("text_hidden_size", default=text_hidden), vit.norm)
    return [
        Tower(
            "vision",
            vit.parameters + wider + positions + patch_bias + vit.norm,
            vit.matrices + wider,
            merge=4,
            attention=wide * vit.layers,
        ),
        Tower("projector", project, project, merge=1),
    ]


def _clip(v: Config) -> tuple[Vit, int]:
    h, size, side = (
        v.count("hidden_size", default=1024),
        v.count("patch_size", default=14),
        v.count("image_size", default=336),
    )
    vit = Vit(h, v.count("intermediate_size", default=4096), v.count("num_hidden_layers", default=24), 3 * size**2)
    return vit, vit.parameters + h + ((side // size) ** 2 + 1) * h + 4 * h


def _llava(v: Config, text_hidden: int) -> list[Tower]:
    kind = v.text("model_type", "clip_vision_model")
    span = None if kind == "pixtral" else _patches(v, 336, 14)
    if kind == "pixtral":
        vit, parameters = _pixtral(v)
    elif kind == "siglip_vision_model":
        vit, parameters = _siglip(v)
    else:
        vit, parameters = _clip(v)
    project = _linear(vit.hidden, text_hidden) + _linear(text_hidden, text_hidden)
    return [vit.tower(parameters + project, 1, span=span)]


def _pixtral(v: Config) -> tuple[Vit, int]:
    vit = Vit(
        v.count("hidden_size", default=1024),
        v.count("intermediate_size", default=4096),
        v.count("num_hidden_layers", default=24),
        3 * v.count("patch_size", default=16) ** 2,
        gated=True,
        attention_bias=False,
        mlp_bias=False,
        layer_norm=False,
    )
    return vit, vit.parameters + vit.hidden


def _mistral3(v: Config, text_hidden: int) -> list[Tower]:
    vit, parameters = _pixtral(v)
    h, merge = vit.hidden, v.count("spatial_merge_size", default=2)
    project = h + _linear(h * merge**2, h, False) + _linear(h, text_hidden, False) + text_hidden**2
    return [vit.tower(parameters + project, merge**2)]


def _idefics3(v: Config, text_hidden: int) -> list[Tower]:
    vit, parameters = _siglip(v)
    scale = v.count("scale_factor", default=2)
    return [vit.tower(parameters + vit.hidden * scale**2 * text_hidden, scale**2, span=_patches(v, 224, 16))]


def _llama4(v: Config, text_hidden: int) -> list[Tower]:
    # what is absent is the encoder that both published models share
    h, size = v.count("hidden_size", default=1408), v.count("patch_size", default=14)
    width = v.count("intermediate_size", default=5632)
    vit = Vit(h, width, v.count("num_hidden_layers", default=34), 3 * size**2)
    side = v.count("image_size", default=336) // size
    middle, out = v.count("projector_input_dim", default=4096), v.count("projector_output_dim", default=4096)
    adapter = width * middle + middle * out
    project = v.count("vision_output_dim", default=out) * text_hidden
    outer = h + (side**2 + 1) * h + 4 * h
    return [vit.tower(vit.parameters + outer + adapter + project, 4, span=side**2)]


def _mllama(v: Config, text_hidden: int) -> list[Tower]:
    h, size, tiles = (
        v.count("hidden_size", default=1280),
        v.count("patch_size", default=14),
        v.count("max_num_tiles", default=4),
    )
    width, patches = v.count("intermediate_size", default=5120), (v.count("image_size", default=448) // size) ** 2 + 1
    ratios = len(v.items("supported_aspect_ratios") or [[1, 1]] * 8) + 1
    local = Vit(h, width, v.count("num_hidden_layers", default=32), 3 * size**2, attention_bias=False)
    top = v.count("num_global_layers", default=8)
    whole = Vit(h, width, top, 0, attention_bias=False)
    positions = 1 + patches * h + ratios * tiles * patches * h + 2 * (ratios * tiles * h + 1)
    project = _linear(v.count("vision_output_dim", default=7680), text_hidden)
    parameters = local.parameters + whole.parameters + 2 * top + h + positions + 4 * h + project
    return [Tower("vision", parameters, local.matrices + whole.matrices)]


def _side(v: Config, name: str, default: int) -> int:
    """Return the side of an image or patch, which some files give as [height, width]."""
    value = v.get(name)
    if isinstance(value, list) and value:
        return Config({name: value[0]}, v.source, v.place).count(name)
    return v.count(name, default=default)


def _internvl(v: Config, text_hidden: int) -> list[Tower]:
    h, size, side = v.count("hidden_size"), _side(v, "patch_size", 14), _side(v, "image_size", 448)
    rms = v.text("norm_type", "layer_norm") == "rms_norm"
    vit = Vit(
        h,
        v.count("intermediate_size"),
        v.count("num_hidden_layers"),
        3 * size**2,
        attention_bias=v.flag("qkv_bias", "attention_bias", default=True),
        layer_norm=not rms,
    )
    # q, k, v may go without a bias where the output has one; each layer scales its two parts, and may norm q and k
    own = vit.layers * (2 * h + (0 if vit.attention_bias else h))
    own += vit.layers * 2 * h if v.flag("qk_normalization", "use_qk_norm", default=False) else 0
    positions = ((side // size) ** 2 + 1) * h
    merged = 4 * h
    project = 2 * merged + _linear(merged, text_hidden) + _linear(text_hidden, text_hidden)
    return [vit.tower(vit.parameters + h + own + h + positions + project, 4, span=(side // size) ** 2)]


def _glm4v(v: Config, text_hidden: int) -> list[Tower]:
    h, merge = v.count("hidden_size"), v.count("spatial_merge_size", default=2)
    size, out = v.count("patch_size", default=14), v.count("out_hidden_size", default=text_hidden)
    patch = v.count("in_channels", default=3) * v.count("temporal_patch_size", default=2) * size**2
    bias = v.flag("attention_bias", default=False)
    # the layers' MLP is as wide as the output; the stated intermediate size is the merger's
    vit = Vit(h, out, v.count("depth"), patch, gated=True, attention_bias=bias, mlp_bias=False, layer_norm=False)
    outer = h + (v.count("image_size", default=336) // size) ** 2 * h + 2 * h
    merger = _linear(h * merge**2, out) + out**2 + 2 * out + 3 * out * v.count("intermediate_size")
    return [vit.tower(vit.parameters + outer + merger, merge**2)]


def _phi3_v(v: Config, text_hidden: int) -> list[Tower]:
    # CLIP ViT-L/14 at 336 pixels: the file names it without its sizes
    vit, parameters = _clip(Config({}, v.source, v.place))
    merged = 4 * vit.hidden
    project = _linear(merged, text_hidden) + _linear(text_hidden, text_hidden) + 2 * merged
    return [vit.tower(parameters + project, 4, span=(336 // 14) ** 2)]


COUNTED: Mapping[str, Callable[[Config, int], list[Tower]]] = {
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen25_vl,
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), _qwen3_vl),
    "gemma3": _gemma3,
    "paligemma": _paligemma,
    "gemma4": _gemma4,
    **dict.fromkeys(("kimi_k25", "kimi_k3", "kimi_vl"), _moonvit),
    **dict.fromkeys(("llava",), _llava),
    "mistral3": _mistral3,
    **dict.fromkeys(("idefics3", "smolvlm"), _idefics3),
    "llama4": _llama4,
    "mllama": _mllama,
    **dict.fromkeys(("internvl", "internvl_chat"), _internvl),
    "phi3_v": _phi3_v,
    **dict.fromkeys(("glm4v", "glm4v_moe"), _glm4v),
}


def towers_of(c: Config, wrapper: str, text_hidden: int) -> tuple[tuple[Tower, ...], tuple[str, ...]]:
    """Return the encoders of a wrapping configuration, and a note on each that its configuration does not let us count."""
    if not wrapper:
        return (), ()
    notes = [
        f"{name.removesuffix('_config')} encoder not counted: its shape is not covered"
        for name in ("audio_config", "speech_config")
        if c.get(name)
    ]
    vision = c.sub("vision_config") or c.sub("img_processor")
    if vision is None and wrapper == "llama4":
        vision = Config({}, c.source, "vision_config.")
        notes.append("vision encoder: the one both published Llama 4 models share, as the file has no vision_config")
    if vision is None:
        notes.append("vision encoder not counted: the file has no vision_config")
        return (), tuple(notes)
    if wrapper not in COUNTED:
        notes.append("vision encoder not counted: its shape is not covered")
        return (), tuple(notes)
    # the merge and scale of some projectors stand in the outer table
    outer = {name: c.get(name) for name in ("spatial_merge_size", "scale_factor") if c.get(name) is not None}
    merged = Config({**outer, **vision.fields}, vision.source, vision.place)
    return tuple(COUNTED[wrapper](merged, text_hidden)), tuple(notes)
