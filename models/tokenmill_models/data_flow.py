"""What operators make of a corpus: documents, bytes and tokens after each, work of cores, bytes through the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

from tokenmill_models import data_leaves as own
from tokenmill_models.data_leaves import Operator
from tokenmill_models.formula import Graph, Source, maximum, minimum

COPIES = Source(
    "each operator reads what the one before wrote and writes what it keeps",
    ("with streaming, operators that need no barrier neither write nor read a copy between them",),
)
BUCKETS = Source(
    "definition: documents·(b·r·hash bytes + b·bucket-entry bytes)",
    ("signatures and buckets are written once and read once where they are sorted on the store",),
)
ZERO = sp.Integer(0)


@dataclass(frozen=True)
class Flow:
    """A corpus on its way: documents and bytes before each operator (one more at the end), core-seconds of each, and totals.

    `read`, `written`: bytes through the store; `kept`: bytes that it must hold; `buckets`: of signatures and buckets.
    """

    documents: tuple[sp.Expr, ...]
    bytes: tuple[sp.Expr, ...]
    work: tuple[sp.Expr, ...]
    core_seconds: sp.Symbol
    read: sp.Symbol
    written: sp.Symbol
    kept: sp.Symbol
    buckets: sp.Symbol
    tokens: sp.Symbol


def define_flow(graph: Graph, operators: Sequence[Operator], in_memory: bool) -> Flow:
    """Define what `operators` make of the corpus; `in_memory`: duplicates are sorted in the nodes' memory, not on the store."""
    documents: list[sp.Expr] = [own.documents]
    held: list[sp.Expr] = [own.corpus]
    work: list[sp.Expr] = []
    buckets: list[sp.Expr] = []
    for operator in operators:
        work.append(_work(graph, operator, documents[-1], held[-1]))
        if operator.do == "deduplicate":
            buckets.append(_buckets(graph, operator, documents[-1]))
        documents.append(_documents(graph, operator, documents[-1]))
        held.append(_bytes(graph, operator, held[-1]))
    sorted_bytes = graph.let(
        "data_buckets", "B", "signatures and buckets of duplicates", sp.Add(*buckets), source=BUCKETS
    )
    spilled = ZERO if in_memory else sorted_bytes
    read, written = _through_store(operators, held)
    stays = [out for out in written if out != 0]
    largest = maximum(*stays) if len(stays) > 1 else stays[0] if stays else ZERO
    kept = own.corpus + spilled + own.copies * sp.Add(*stays) + (1 - own.copies) * 2 * largest
    tokens = graph.let("data_tokens", "1", "tokens that are left at the end", _tokens(operators, held))
    return Flow(
        tuple(documents), tuple(held), tuple(work),
        graph.let("data_core_seconds", "s", "work of all operators: core-seconds", sp.Add(*work)),
        graph.let("data_read", "B", "bytes read from the store", sp.Add(*read) + spilled, source=COPIES),
        graph.let("data_written", "B", "bytes written to the store", sp.Add(*written) + spilled, source=COPIES),
        graph.let("data_kept", "B", "bytes that the store holds: the corpus, copies, and what is sorted", kept, source=COPIES),
        sorted_bytes, tokens,
    )  # fmt: skip


def _work(graph: Graph, operator: Operator, documents: sp.Expr, held: sp.Expr) -> sp.Expr:
    """Define the core-seconds of one operator; a model's work is not of cores."""
    if operator.model or operator.do == "write":
        return ZERO
    kind = operator.method if operator.do == "deduplicate" else operator.do
    usual = documents / own.BY_DOCUMENT[kind] if kind in own.BY_DOCUMENT else held / own.BY_BYTE[kind]
    if kind == "minhash":
        usual *= _signature(operator) / own.RATED_HASHES
    rate = operator.member("core_rate", "B/s", "bytes a second of a core, measured by the user")
    measured = held / maximum(rate, own.SLOWEST)
    return graph.let(
        f"work_{operator.name}", "s", f"core-seconds of {operator.do}", sp.Piecewise((measured, rate > 0), (usual, True))
    )  # fmt: skip


def _signature(operator: Operator) -> sp.Expr:
    bands = operator.member("bands", "1", "bands of a signature")
    return bands * operator.member("rows", "1", "hashes of a band")


def _buckets(graph: Graph, operator: Operator, documents: sp.Expr) -> sp.Symbol:
    """Define the bytes in which an operator compares documents."""
    bands = operator.member("bands", "1", "bands of a signature")
    one = _signature(operator) * own.HASH + bands * own.ENTRY if operator.method == "minhash" else own.DIGEST
    return graph.let(f"buckets_{operator.name}", "B", "signatures and buckets of one comparison", documents * one, source=BUCKETS)  # fmt: skip


def _documents(graph: Graph, operator: Operator, documents: sp.Expr) -> sp.Symbol:
    added = ZERO
    if operator.do == "synthesise":
        added = answers_of(operator, documents)
    return graph.let(
        f"documents_{operator.name}", "1", f"documents after {operator.do}", documents * operator.kept + added
    )


def _bytes(graph: Graph, operator: Operator, held: sp.Expr) -> sp.Symbol:
    out = held * operator.kept
    if operator.do == "extract":
        out *= own.text_share
    elif operator.do == "synthesise":
        out += operator.member("output_tokens", "1", "tokens that the model writes in all") * own.bytes_per_token
    elif operator.do == "tokenise":
        out *= own.token_bytes / own.bytes_per_token
    return graph.let(f"bytes_{operator.name}", "B", f"bytes after {operator.do}", out)


def answers_of(operator: Operator, documents: sp.Expr) -> sp.Expr:
    """Answers [1] of a model: what it writes in all over one answer, or one a document that it reads."""
    if operator.do == "synthesise":
        written = operator.member("output_tokens", "1", "tokens that the model writes in all")
        return written / operator.member("answer_tokens", "1", "tokens of an answer, where the model writes")
    return documents * operator.member("share", "1", "share of the documents that the model reads")


def _through_store(operators: Sequence[Operator], held: Sequence[sp.Expr]) -> tuple[list[sp.Expr], list[sp.Expr]]:
    """Return the bytes that each operator reads and writes; copies between operators that stream are none."""
    read: list[sp.Expr] = []
    written: list[sp.Expr] = []
    before: sp.Expr = sp.Integer(1)
    for at, operator in enumerate(operators):
        following = operators[at + 1].do if at + 1 < len(operators) else "end"
        barrier = operator.do in own.BARRIERS or following in (*own.BARRIERS, "end")
        copied: sp.Expr = sp.Integer(1) if barrier else 1 - own.streaming
        read.append(held[at] * before)
        written.append(held[at + 1] * copied)
        before = copied
    return read, written


def _tokens(operators: Sequence[Operator], held: Sequence[sp.Expr]) -> sp.Expr:
    """Tokens [1] at the end: stored tokens where the pipeline tokenises, else bytes of text over bytes a token."""
    tokenised = any(operator.do == "tokenise" for operator in operators)
    return held[-1] / (own.token_bytes if tokenised else own.bytes_per_token)


def found_pairs(graph: Graph, operator: Operator) -> sp.Symbol:
    """Define the share of pairs at the stated similarity that banding finds."""
    similarity = operator.member("similarity", "1", "similarity from which documents count as duplicates")
    bands, rows = (operator.member(name, "1", doc) for name, doc in (("bands", "bands of a signature"), ("rows", "hashes of a band")))  # fmt: skip
    return graph.let(
        f"found_{operator.name}", "1", "share of pairs at that similarity that meet in some bucket",
        1 - (1 - minimum(similarity, 1) ** rows) ** bands,
    )  # fmt: skip
