"""Encoders that read a whole text at once: BERT and RoBERTa, the shapes of most embedding models and rerankers."""

from __future__ import annotations

from dataclasses import replace

from tokenmill.imports.families.config import Config
from tokenmill.imports.families.parts import Block, Text, attention, dense, heads_of


def bert(c: Config) -> Text:
    """BERT (Devlin et al. 2019, arXiv:1810.04805): learned positions and segments, biases everywhere, a pooler, no head."""
    return _encoder(c, segments=2)


def roberta(c: Config) -> Text:
    """RoBERTa and XLM-R: BERT's layers with one segment."""
    return _encoder(c, segments=1)


def _encoder(c: Config, segments: int) -> Text:
    if c.flag("is_decoder", default=False):
        raise c.fail("is_decoder", "true", "false: such layers as decoders are not covered")
    kind = c.text("position_embedding_type", default="absolute")
    if kind != "absolute":
        raise c.fail("position_embedding_type", repr(kind), "'absolute'")
    s = heads_of(c)
    h, vocabulary, positions = s.hidden, c.count("vocab_size"), c.count("max_position_embeddings", default=512)
    mixer = replace(attention(s, qkv_bias=True, out_bias=True), bidirectional=True)
    block = Block(mixer, dense(h, c.count("intermediate_size", default=4 * h), gated=False, bias=True), 4 * h)
    pooler, norm = h * h + h, 2 * h
    return Text(
        hidden=h,
        vocabulary=vocabulary,
        blocks=[block] * c.layers,
        embedding=vocabulary * h,
        head=None,
        tied=False,
        other=pooler + norm,
        lookup=(positions + c.count("type_vocab_size", default=segments)) * h,
        max_positions=positions,
    )
