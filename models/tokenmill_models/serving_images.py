"""Images in the prompts of requests: the work of the encoder beside the language model, and the tokens that they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.inference import Pass
from tokenmill_models.operations_attention import peak_16bit
from tokenmill_models.operations_parts import arch_leaf
from tokenmill_models.roofline import FLOP_PER_MAC, W, eta_F, eta_W
from tokenmill_models.serving_load import Request
from tokenmill_models.stage import Input
from tokenmill_models.symbols import declare

ENCODER = Source(
    "Dosovitskiy et al. 2021, An Image is Worth 16x16 Words, arXiv:2010.11929: a transformer over patches",
    (
        "every patch is multiplied with every matrix, and attends to all patches of its image or tile",
        "the tokens of an image are its patches, merged",
    ),
)
IMAGES, TOKENS = "demand.images_per_request", "demand.image_tokens"
images = declare("images_per_request", "1", "images in the prompt of a mean request", origin=f"input.{IMAGES}")
given_tokens = declare(
    "image_tokens_given", "1", "prompt tokens that an image becomes, as the file says; 0: as the model says", origin=f"input.{TOKENS}",
)  # fmt: skip
INPUTS = (
    Input(IMAGES, "number", "images in a mean request, beside its prompt tokens", images, default=0.0),
    Input(TOKENS, "number", "prompt tokens that an image becomes; 0: what the model's configuration says", given_tokens, default=0.0),
)  # fmt: skip


def asked(arch: Architecture, values: Mapping[str, Any]) -> bool:
    """Return whether the requests of a workload bring images.

    Raises
    ------
    ValueError
        (key, found, allowed) where the model has no counted encoder, or nothing says how many tokens an image becomes.
    """
    count = float(values.get(IMAGES) or 0.0)
    if not count:
        return False
    encoders = [tower for tower in arch.towers if tower.merge is not None]
    if not encoders:
        found = f"{count:g} for {arch.name}, whose configuration has no image encoder that is counted"
        raise ValueError(IMAGES, found, "0, or a model that turns images into prompt tokens")
    if not values.get(TOKENS) and _stated(arch) is None:
        raise ValueError(
            TOKENS, "nothing", f"prompt tokens that an image becomes: {arch.name} takes images of any size"
        )
    return True


def _stated(arch: Architecture) -> int | None:
    """Return the place of the encoder that states how many tokens an image becomes."""
    return next((i for i, tower in enumerate(arch.towers) if tower.tokens is not None), None)


def _tokens(arch: Architecture) -> sp.Expr:
    at = _stated(arch)
    if at is None:
        return given_tokens
    return sp.Piecewise((given_tokens, given_tokens > 0), (arch_leaf(f"towers.{at}.tokens"), True))


def with_images(graph: Graph, arch: Architecture, one: Pass, label: str, carried: sp.Expr, request: Request) -> Pass:
    """Return a pass that also encodes the images of the `carried` prompt tokens, on the first stage: the others wait."""
    work, moved, time = _encoder(graph, arch)
    count = graph.let(f"images_{label}", "1", f"images of {label}", images * carried / request.computed)
    return replace(
        one,
        time=graph.let(f"T_seen_{label}", "s", f"time of {label} with its images", one.time + leaf.pp * count * time),
        flops=graph.let(f"flop_seen_{label}", "FLOP", f"work a rank executes in {label} with its images", one.flops + count * work / leaf.tp),
        model_flops=graph.let(f"model_flop_seen_{label}", "FLOP", f"counted work of {label} with its images", one.model_flops + count * work / leaf.tp),
        bytes=graph.let(f"moved_seen_{label}", "B", f"memory traffic of {label} with its images", one.bytes + count * moved / leaf.tp),
        shares={**one.shares, "compute": graph.let(
            f"compute_seen_{label}", "s", f"time of {label} by compute with its images", one.shares["compute"] + leaf.pp * count * time)},
        pipes=graph.let(f"pipes_seen_{label}", "s", f"time of {label} in which matrix units are fed, with its images", one.pipes + leaf.pp * count * time),
    )  # fmt: skip


def _encoder(graph: Graph, arch: Architecture) -> tuple[sp.Symbol, sp.Symbol, sp.Symbol]:
    """Define the work [FLOP], weights read [B] and time [s] of one image in the encoder."""
    tokens = graph.let("image_tokens", "1", "prompt tokens that an image becomes", _tokens(arch))
    terms, read = [], []
    for i, tower in enumerate(arch.towers):
        if tower.merge is None:
            continue
        at = f"towers.{i}"
        patches = tokens * arch_leaf(f"{at}.merge")
        matrices = arch_leaf(f"{at}.matmul_parameters")
        terms.append(FLOP_PER_MAC * patches * matrices)
        read.append(matrices * leaf.bytes_16)
        if tower.attention:
            seen = patches if tower.span is None else minimum(patches, arch_leaf(f"{at}.span"))
            terms.append(2 * FLOP_PER_MAC * patches * seen * arch_leaf(f"{at}.attention"))
    work = graph.let("flop_image", "FLOP", "work of encoding one image", sp.Add(*terms), source=ENCODER)
    moved = graph.let("moved_image", "B", "weights read to encode one image", sp.Add(*read))
    time = graph.let(
        "T_image", "s", "time to encode one image",
        maximum(work / (peak_16bit * eta_F), moved / (W * eta_W)) / leaf.tp, source=ENCODER,
        assumes=("the encoder works in 16 bits, cut over the tensor ranks, an image at a time",),
    )  # fmt: skip
    return work, moved, time


def longer_prompts(arch: Architecture) -> dict[sp.Symbol, sp.Expr]:
    """Return what stands for the lengths of prompts where they hold the tokens of their images beside those of the file."""
    added = images * _tokens(arch)
    stands: dict[sp.Symbol, sp.Expr] = {leaf.input_tokens: leaf.input_tokens + added}
    stands |= {symbol: symbol + added for symbol in leaf.input_percentiles.values()}
    return stands | {leaf.input_cv: leaf.input_cv * leaf.input_tokens / (leaf.input_tokens + added)}
