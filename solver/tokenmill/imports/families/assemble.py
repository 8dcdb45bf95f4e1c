"""Choose the family by ``model_type`` and put the architecture together."""

from __future__ import annotations

import re

from tokenmill.errors import ImportFileError, nearest
from tokenmill.imports.families.config import Config
from tokenmill.imports.families.parts import Text, layer_kinds
from tokenmill.imports.families.precision import precisions
from tokenmill.imports.families.table import FAMILIES, REFUSED
from tokenmill.imports.families.towers import towers_of
from tokenmill.imports.families.wrappers import WRAPPERS, text_config
from tokenmill_models.architecture import Architecture

CLASS_ENDINGS = r"(ForCausalLM|LMHeadModel|ForConditionalGeneration|Model)$"


def named_by_class(c: Config) -> Config:
    """Return the configuration with its ``model_type``: by the class name where the field is absent."""
    if c.text("model_type"):
        return c
    plain = {re.sub(r"[-_]", "", name).lower(): name for name in (*REFUSED, *FAMILIES, *WRAPPERS)}
    stems = [re.sub(CLASS_ENDINGS, "", str(name)).lower() for name in c.items("architectures") or []]
    found = next((plain[stem] for stem in stems if stem in plain), None)
    if found is None:
        raise c.fail("model_type", "nothing", "the name of a known family")
    return Config({**c.fields, "model_type": found}, c.source, c.place)


def family_of(c: Config) -> str:
    """Return the ``model_type``.

    Raises
    ------
    ImportFileError
        Where it is unknown (with the nearest known one), or known and not covered (with what is missing).
    """
    name = c.text("model_type")
    if name in REFUSED:
        raise ImportFileError(f"{c.source}: {c.place}model_type: {name!r} is not covered: {REFUSED[name]}")
    if name not in FAMILIES:
        known = sorted({*FAMILIES, *WRAPPERS})
        near = nearest(name, known)
        hint = f" (nearest known: {near!r})" if near else ""
        raise c.fail("model_type", repr(name)[:80], f"one of the {len(known)} known families{hint}; none is guessed")
    return name


def _check_experts(c: Config, text: Text) -> None:
    for mlp in {block.mlp for block in text.blocks}:
        if mlp.active > mlp.experts:
            raise c.fail("experts of a token (num_experts_per_tok)", mlp.active, f"at most the {mlp.experts} experts")


def assemble(c: Config, name: str) -> Architecture:
    """Build the architecture that the configuration describes."""
    c = named_by_class(c)
    inner, wrapper = text_config(c)
    family = family_of(inner)
    text = FAMILIES[family](inner)
    _check_experts(inner, text)
    towers, notes = towers_of(c, wrapper, text.hidden)
    base, weights, experts = precisions(c)
    return Architecture(
        name=name,
        family=c.text("model_type") or family,
        hidden=text.hidden,
        vocabulary=text.vocabulary,
        layers=layer_kinds(text.blocks),
        embedding_parameters=text.embedding,
        head=text.head,
        tied=text.tied,
        other_parameters=text.other,
        lookup_parameters=text.lookup,
        repeated_parameters=text.repeated,
        mtp=text.mtp,
        towers=towers,
        max_positions=text.max_positions,
        base_precision=base,
        weights_precision=weights,
        experts_precision=experts if experts != weights else None,
        notes=text.notes + notes,
    )
