"""Closed forms of data preparation: near-duplicates by MinHash and bands, mixing, and what holds a pipeline back."""

from __future__ import annotations

from typing import Any

import sympy as sp

from tokenmill_models.formula import Formula, Source, register
from tokenmill_models.symbols import constant, declare, uncapitalised

BANDS = Source(
    "Leskovec, Rajaraman and Ullman, Mining of Massive Datasets (3rd ed.), section 3.4: banding of MinHash signatures (Broder 1997)",
    (
        "one hash of two documents agrees with probability J, their Jaccard similarity",
        "all r rows of a band agree with J^r, a band differs with 1 - J^r, all b bands differ with (1 - J^r)^b",
    ),
)
REPEATS = Source(
    "Muennighoff et al. 2023, Scaling Data-Constrained Language Models, arXiv:2305.16264, equation 5",
    ("each repetition is worth a fixed share less than the one before: a decaying exponential, fitted at R* = 15.39",),
)
SIGNATURE = Source(
    "definition: size of signatures and buckets",
    ("a document has b·r hashes", "and one entry in each of its b bands' buckets"),
)
BINOMIAL = Source(
    "Broder 1997, On the resemblance and containment of documents",
    ("each of k hashes agrees with probability J", "the share that agrees has variance J(1 - J)/k"),
)
MIXTURE = Source(
    "definition", ("the mixture takes weight·mixture tokens of a domain", "over the tokens that are there")
)
BALANCE = Source(
    "steady state of a pipeline: the slower of two resources sets its rate",
    ("cores take work/cores, the store takes bytes/bandwidth; they are equal where neither waits",),
)


def _given(name: str, dimension: str, doc: str, latex: str | None = None) -> sp.Symbol:
    return declare(name, dimension, doc, origin=f"input.{name}", latex=latex, sign="positive")


J = _given("similarity", "1", "Jaccard similarity of two documents", "J")
bands = _given("bands", "1", "bands of a signature", "b")
rows = _given("band_rows", "1", "hashes of a band", "r")
found_share = _given("found_share", "1", "share of pairs of that similarity that are found")
hashes = _given("hashes", "1", "hashes of a signature", "k")
documents = _given("documents", "1", "documents", "N_{doc}")
hash_bytes = _given("hash_bytes", "B", "bytes of a hash")
entry_bytes = _given("bucket_entry_bytes", "B", "bytes of an entry of a bucket: band key and document number")
unique = _given("unique_tokens", "1", "tokens of the corpus", "U")
repeats = _given("repeats", "1", "times that the corpus is read again after the first epoch", "R")
weight = _given("mixture_weight", "1", "share of the mixture that a domain takes")
mixture = _given("mixture_tokens", "1", "tokens of the mixture")
domain = _given("domain_tokens", "1", "tokens of a domain that are there")
work = _given("core_work", "s", "work of a pipeline: core-seconds")
moved = _given("store_bytes", "B", "bytes that a pipeline reads and writes")
bandwidth = _given("pipeline_bandwidth", "B/s", "bandwidth of the store")
cores = _given("cores", "1", "cores at work")
request_rate = _given("store_request_rate", "1/s", "requests a second that the store answers")
DECAY = constant(
    "repeat_decay", 15.39, "1", "repetitions after which a corpus has given 1 - 1/e of what repeating can give"
)


def _form(name: str, title: str, dimension: str, expr: sp.Expr, source: Source, **about: Any) -> Formula:
    symbol = declare(name.replace("data.", "data_"), dimension, uncapitalised(title))
    return register(Formula(name, title, symbol, expr, source, **about))


_one = 1 - (1 - J**rows) ** bands
INDEPENDENT = ("hashes are independent",)
LSH_FOUND = _form("data.lsh_found", "Probability that two documents meet in some bucket", "1", _one, BANDS,
                  assumes=INDEPENDENT, valid=(sp.Le(J, 1),))  # fmt: skip
LSH_THRESHOLD = _form("data.lsh_threshold", "Similarity at which the curve of found pairs rises", "1", (1 / bands) ** (1 / rows), BANDS,
                      assumes=("the place of the step: about 1 - 1/e of the pairs there are found",))  # fmt: skip
LSH_BANDS = _form("data.lsh_bands", "Bands that find a share of the pairs of a similarity", "1",
                  sp.log(1 - found_share) / sp.log(1 - J**rows), BANDS, rounding="ceil", assumes=INDEPENDENT,
                  valid=(sp.Lt(J, 1), sp.Lt(found_share, 1)))  # fmt: skip
LSH_HASHES = _form("data.lsh_hashes", "Hashes that put the threshold at a similarity with so many rows a band", "1",
                   rows * J ** (-rows), BANDS, assumes=("more rows are a sharper step, at more hashes",), valid=(sp.Lt(J, 1),))  # fmt: skip
LSH_SLOPE = _form("data.lsh_slope", "How steeply the share of found pairs rises with their similarity", "1",
                  sp.diff(_one, J), BANDS, assumes=INDEPENDENT, valid=(sp.Lt(J, 1),))  # fmt: skip
MINHASH_ERROR = _form("data.minhash_error", "Standard error of a similarity estimated from a signature", "1",
                      sp.sqrt(J * (1 - J) / hashes), BINOMIAL,
                      assumes=INDEPENDENT, valid=(sp.Le(J, 1),))  # fmt: skip
LSH_MEMORY = _form("data.lsh_memory", "Memory of signatures and buckets", "B",
                   documents * (bands * rows * hash_bytes + bands * entry_bytes), SIGNATURE,
    assumes=("signatures and buckets are held at once",))  # fmt: skip
EPOCHS = _form(
    "data.epochs",
    "Times that a mixture passes over a domain",
    "1",
    weight * mixture / domain,
    MIXTURE,
    assumes=("the mixture draws from a domain by its weight",),
)
REPEAT_VALUE = _form("data.repeat_value", "Tokens of fresh data that a repeated corpus is worth", "1",
                     unique * (1 + DECAY * (1 - sp.exp(-repeats / DECAY))), REPEATS,
                     assumes=("compute is spent as that much fresh data would ask",))  # fmt: skip
BALANCED_CORES = _form("data.balanced_cores", "Cores beyond which the store is the limit and more cores change nothing", "1",
                       work * bandwidth / moved, BALANCE,
    assumes=("cores and store work at once",))  # fmt: skip
BALANCED_BANDWIDTH = _form("data.balanced_bandwidth", "Bandwidth of the store beyond which the cores are the limit", "B/s",
                           moved * cores / work, BALANCE,
    assumes=("cores and store work at once",))  # fmt: skip
OBJECT_SIZE = _form("data.object_size", "Size of an object below which requests, not bandwidth, hold a store back", "B",
                    bandwidth / request_rate, BALANCE,
    assumes=("requests and bytes are limited apart",))  # fmt: skip
