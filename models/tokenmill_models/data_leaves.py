"""The leaves, keys and choices of data preparation: a corpus, the operators that it passes, cores and stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import sympy as sp

from tokenmill_models.batch_inference import ENGINE_AXES, ENGINE_INPUTS
from tokenmill_models.stage import Axis, Input
from tokenmill_models.symbols import constant, declare


def _input(name: str, symbol: str, dimension: str, doc: str, sign: str = "positive") -> sp.Symbol:
    return declare(symbol, dimension, doc, origin=f"input.{name}", sign=sign)


corpus = _input("input", "corpus_bytes", "B", "bytes of the corpus as it comes")
documents = _input("documents", "corpus_documents", "1", "documents of the corpus as it comes")
text_share = _input("text_share", "text_share", "1", "bytes of text that extraction leaves over bytes of its input")
bytes_per_token = _input("bytes_per_token", "bytes_of_token", "B", "bytes of text of a token")
token_bytes = _input("token_bytes", "stored_token", "B", "bytes of a token as it is stored")
wanted = _input("tokens", "tokens_wanted", "1", "tokens that must be left at the end")
streaming = _input("streaming", "streaming", "1", "1 where operators that need no barrier hand documents on without a copy", "nonnegative")  # fmt: skip
copies = _input("keep_copies", "keep_copies", "1", "1 where every intermediate copy stays until the end", "nonnegative")
object_bytes = _input("object_bytes", "object_bytes", "B", "bytes of an object of the store")
prefixes = _input("prefixes", "store_prefixes", "1", "prefixes that requests are spread over")
connections = _input("connections", "node_connections", "1", "connections to the store that a node keeps open")
use = _input("core_use", "core_use", "1", "share of the cores' time that the operators get")
mixture = _input("mixture_tokens", "mixture_asked", "1", "tokens of the mixture; 0: as many as are left", "nonnegative")
epochs_most = _input("max_epochs", "epochs_most", "1", "most times that a domain may be passed over")
startup = _input("startup", "startup_time", "s", "time in which pools are had and do no work: machines start, last documents trail", "nonnegative")  # fmt: skip
held = declare(
    "units_held", "1", "chips or units that the file holds for a pool; 0: chosen", origin="input.layout.chips"
)
deadline = declare("workload_deadline", "s", "latest end of the workload", origin="input.deadline", sign="positive")

pace = declare("pace", "s", "time in which every pool does its part", origin="axis.pace", sign="positive")
system_cores = declare("system_cores", "1", "cores of a server", origin="system.cores", sign="positive")
system_chips = declare("system_sockets", "1", "sockets of a server", origin="system.chips", sign="positive")
system_memory = declare("system_memory", "B", "memory of a system's host", origin="system.host_ram", sign="positive")
nic = declare("nic_rate", "B/s", "network rate of a chip of a system", origin="system.scale_out", sign="positive")
store_read = declare("store_read", "B/s", "bandwidth of one node from the store", origin="store.read", sign="positive")
store_write = declare("W_store", "B/s", "bandwidth of one node to the store", origin="store.write", sign="positive")
store_total = declare("W_store_total", "B/s", "bandwidth of the whole store", origin="store.total", sign="positive")
store_unit_rate = declare("store_unit_rate", "B/s", "bandwidth that a provisioned terabyte of the store brings", origin="store.unit_rate", sign="positive")  # fmt: skip
store_connection = declare("store_connection", "B/s", "bandwidth of one connection to the store", origin="store.connection_rate", sign="positive")  # fmt: skip
store_requests = declare("store_requests", "1/s", "reads a second that one prefix of the store answers", origin="store.requests", sign="positive")  # fmt: skip
request_price = declare("request_price", "USD", "price of a read request", origin="store.request_price")
write_request_price = declare(
    "write_request_price", "USD", "price of a write request", origin="store.write_request_price"
)

AN_HOUR = constant("an_hour", 3600.0, "s", "an hour")
HASH = constant("minhash_hash", 8.0, "B", "bytes of a hash of a signature")
ENTRY = constant(
    "minhash_entry", 16.0, "B", "bytes of an entry of a bucket: 8 of the band's key, 8 of the document's number"
)
DIGEST = constant(
    "digest_entry", 40.0, "B", "bytes of an entry of exact comparison: a SHA-256 digest and the document's number"
)
RATED_HASHES = constant("rated_hashes", 112.0, "1", "hashes of the signature that the catalogue's rate was taken with")

SLOWEST = constant("slowest_core", 1.0, "B/s", "a rate below that of any core: stands where none is given")

MODEL_OPERATORS = ("classify", "embed", "synthesise")
OPERATORS = ("extract", "language", "filter", "deduplicate", *MODEL_OPERATORS, "tokenise", "mix", "write")
BARRIERS = ("deduplicate", "mix", "write")
"""Operators that need all documents of the step before: a copy stands between."""


def _rate(id: str, symbol: str, dimension: str, doc: str) -> sp.Symbol:
    return declare(symbol, dimension, doc, origin=f"rate.{id}", sign="positive")


BY_DOCUMENT = {
    "extract": _rate("trafilatura-html-extraction", "rate_extract", "1/s", "pages a second from which a core extracts text"),
    "language": _rate("fasttext-supervised-classifier", "rate_classify", "1/s", "documents a second that a core classifies by a linear model"),
    "classify": _rate("fasttext-supervised-classifier", "rate_classify", "1/s", "documents a second that a core classifies by a linear model"),
}  # fmt: skip
BY_BYTE = {
    "filter": _rate("dolma-tagging", "rate_filter", "B/s", "bytes of text a second that a core passes through quality rules"),
    "minhash": _rate("minhash-dedup-core", "rate_minhash", "B/s", "bytes of text a second in which a core finds near duplicates by 112 hashes"),
    "exact": _rate("exact-dedup-core", "rate_exact", "B/s", "bytes of text a second that a core digests and compares"),
    "tokenise": _rate("hf-fast-bpe-tokenizer", "rate_tokenise", "B/s", "bytes of text a second that a core tokenises"),
    "mix": _rate("dolma-mixing", "rate_mix", "B/s", "bytes of text a second that a core mixes and shuffles"),
}  # fmt: skip


@dataclass(frozen=True)
class Operator:
    """One operator of the pipeline: its place in the list, what it does, how, and whether a model does it on accelerators."""

    at: int
    do: str
    method: str
    model: bool

    @property
    def name(self) -> str:
        """Name of its part and of its symbols."""
        return f"{self.do}_{self.at}"

    def member(self, member: str, dimension: str, doc: str) -> sp.Symbol:
        """Return the leaf of a key of its table."""
        sign = "nonnegative" if member in ("share", "core_rate") else "positive"
        title = f"{doc}, of operator {self.at + 1}"
        return declare(
            f"op{self.at}_{member}", dimension, title, origin=f"input.operators.{self.at}.{member}", sign=sign
        )

    @property
    def kept(self) -> sp.Symbol:
        """Share of documents that it keeps."""
        return KEPT[self.do]


KEPT = {do: _input(f"keep.{do}", f"kept_{do}", "1", f"share of documents that {do} keeps") for do in OPERATORS}
STANDARD = ("extract", "language", "filter", "deduplicate", "tokenise", "write")


def operators_of(values: Mapping[str, object]) -> tuple[Operator, ...]:
    """Return the operators of a workload; raises ValueError (key, found, allowed) where one that needs a model has none."""
    listed = values.get("operators")
    rows = listed if isinstance(listed, list | tuple) else DEFAULT
    found = tuple(
        Operator(at, str(row["do"]), str(row.get("method") or "minhash"), bool(row.get("model")) and row["do"] in MODEL_OPERATORS)
        for at, row in enumerate(rows)
    )  # fmt: skip
    for operator in found:
        if operator.do in ("embed", "synthesise") and not operator.model:
            raise ValueError(f"operators[{operator.at}].model", "nothing", f"a model: {operator.do} needs one")
    return found


HOUR, DAY, YEAR, STEP = 3600.0, 86400.0, 365 * 86400.0, 1.15


def _paces(known: Mapping[str, float]) -> tuple[float, ...]:
    """Times [s] from the deadline (or a year) down to an hour in whole seconds, each about 1.15 times the next."""
    found = [max(HOUR, known.get(deadline.name, YEAR) - known.get(startup.name, 0.0))]
    while found[-1] / STEP > HOUR:
        found.append(float(round(found[-1] / STEP)))
    return tuple(found)


PACE = Axis(
    "pace", "layout.pace_seconds", (HOUR, DAY, 30 * DAY), "seconds in which every pool does its part", pace, grid=_paces
)
FULL = {
    "batch": replace(ENGINE_AXES["batch"], values=(8, 32, 128, 512, 2048), grid=None),
    "chunk": replace(ENGINE_AXES["chunk"], values=(8192,)),
}
"""Choices of replicas that are always full: steps as large as they may be, and the batch near the most that fits."""
AXES = {**ENGINE_AXES, **FULL, "pace": PACE}

_MEMBERS = (
    Input("operators[].do", "choice", "what it does", among=OPERATORS, required=True),
    Input("operators[].method", "choice", "how duplicates are found: near ones by minhash, or exact ones", among=("minhash", "exact"), default="minhash"),
    Input("operators[].bands", "number", "bands of a signature", default=14.0, minimum=1),
    Input("operators[].rows", "number", "hashes of a band", default=8.0, minimum=1),
    Input("operators[].similarity", "number", "similarity from which documents count as duplicates", default=0.75, maximum=1.0),
    Input("operators[].model", "architecture", "the model that classifies, embeds or writes, on accelerators"),
    Input("operators[].share", "number", "share of the documents that the model reads", default=1.0, maximum=1.0),
    Input("operators[].prompt_tokens", "number", "tokens of a document that the model reads at most", default=512.0, minimum=1),
    Input("operators[].answer_tokens", "number", "tokens of an answer, where the model writes", default=500.0, minimum=1),
    Input("operators[].output_tokens", "number", "tokens that the model writes in all", default=1e9, minimum=1),
    Input("operators[].core_rate", "number", "bytes a second of a core, measured by the user; 0: the catalogue's rate", dimension="B/s", default=0.0),
)  # fmt: skip
DEFAULT = tuple(
    {item.name.partition("[].")[2]: item.default for item in _MEMBERS if item.default is not None} | {"do": do}
    for do in STANDARD
)
"""The pipeline of a workload that lists none."""

INPUTS = (
    Input("input", "number", "bytes of the corpus as it comes", corpus, "B", required=True),
    Input("documents", "number", "documents of the corpus as it comes", documents, required=True, minimum=1),
    Input("operators", "records", "what the corpus passes, in order", default=DEFAULT),
    *_MEMBERS,
    *(Input(f"keep.{do}", "number", f"share of documents that {do} keeps", symbol, default=1.0, maximum=1.0) for do, symbol in KEPT.items()),
    Input("text_share", "number", "bytes of text that extraction leaves over bytes of its input", text_share, default=0.2, maximum=1.0),
    Input("bytes_per_token", "number", "bytes of text of a token", bytes_per_token, "B", default=4.2),
    Input("token_bytes", "number", "bytes of a token as it is stored", token_bytes, "B", default=4.0),
    Input("startup", "number", "time in which pools are had and do no work: machines start, last documents trail", startup, "s", default=HOUR),
    Input("tokens", "number", "tokens that must be left at the end", wanted, minimum=1),
    Input("streaming", "flag", "operators that need no barrier hand documents on without a copy", streaming, default=False),
    Input("keep_copies", "flag", "every intermediate copy stays until the end", copies, default=True),
    Input("shuffle", "choice", "where duplicates are sorted: on the store, or in the memory of the nodes", among=("store", "memory"), default="store"),
    Input("object_bytes", "number", "bytes of an object of the store", object_bytes, "B", default=1e9),
    Input("prefixes", "number", "prefixes that requests are spread over", prefixes, default=16.0, minimum=1),
    Input("connections", "number", "connections to the store that a node keeps open", connections, default=128.0, minimum=1),
    Input("core_use", "number", "share of the cores' time that the operators get", use, default=0.9, maximum=1.0),
    Input("domains", "records", "domains that the mixture is made of"),
    Input("domains[].name", "name", "its name"),
    Input("domains[].share", "number", "share of the tokens that are left", required=True, maximum=1.0),
    Input("domains[].weight", "number", "share of the mixture", required=True, maximum=1.0),
    Input("mixture_tokens", "number", "tokens of the mixture; 0: as many as are left", mixture, default=0.0),
    Input("max_epochs", "number", "most times that a domain may be passed over", epochs_most),
    Input("interruptible", "flag", "whether work may be stopped and done again elsewhere: it may stand on spot systems", default=True),
    Input("layout.chips", "number", "chips or units of a pool; 0: chosen", held, default=0.0),
    *(item for item in ENGINE_INPUTS if item.name != "layout.chips"),
)  # fmt: skip
