"""Reads request traces: Azure, Mooncake, BurstGPT, vLLM request logs and plain CSV, plain or gzip; and what they say in figures."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.errors import ImportFileError
from tokenmill.imports.files import check_file

LARGEST_FILE = 512 * 2**20  # bytes on disk; a million requests are some 50 MB
LARGEST_COUNT = 10**8  # tokens of one prompt or answer
MOONCAKE_BLOCK = 512  # tokens of a prefix block (Mooncake, FAST 2025)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival.

    `seconds`: from the first arrival; `input_tokens`, `output_tokens`: arrays of the same length. `blocks`: ids of the
    prefix blocks of all requests one after another, request i's from `block_starts[i]` to `block_starts[i + 1]`, each
    of `block_tokens` tokens; None where the trace has none. `measured`: what a log says of each request (``ttft``,
    ``tpot`` [s]). `left_out`: rows not taken, by reason.
    """

    name: str
    kind: str
    seconds: Array
    input_tokens: Array
    output_tokens: Array
    blocks: NDArray[np.int64] | None = None
    block_starts: NDArray[np.int64] | None = None
    block_tokens: int = MOONCAKE_BLOCK
    measured: Mapping[str, Array] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of requests."""
        return int(self.seconds.size)

    @property
    def rate(self) -> float:
        """Requests a second: gaps over the time between first and last arrival (0 for fewer than two moments)."""
        span = float(self.seconds[-1] - self.seconds[0])
        return (self.count - 1) / span if span > 0 else 0.0


MINUTE = 60.0
LEAST_MINUTES = 10
"""Whole minutes that a trace must hold to tell a busy one."""


@dataclass(frozen=True)
class LengthFacts:
    """Lengths [tokens]: mean, percentiles, and the lognormal that fits best (mean and deviation of the logarithms)."""

    mean: float
    p50: float
    p95: float
    p99: float
    log_mean: float
    log_deviation: float


@dataclass(frozen=True)
class TraceFacts:
    """What a trace says: rate [requests/s], variation of the gaps, lengths, share of prefix blocks seen before, tokens at the
    head of prompts that most requests share (None: no blocks);
    `surge`: share above its mean rate of the minute that 95% of the requests arrive before or in, minutes ordered by rate.
    """

    requests: int
    seconds: float
    requests_per_second: float
    arrival_cv: float
    input_tokens: LengthFacts
    output_tokens: LengthFacts
    prefix_hit: float | None
    shared_head: float | None
    surge: float
    left_out: Mapping[str, int]


def facts(trace: Trace) -> TraceFacts:
    """Return the figures of a trace; the fits are by maximum likelihood."""
    gaps = np.diff(trace.seconds)
    mean_gap = float(gaps.mean()) if gaps.size else 0.0
    return TraceFacts(
        requests=trace.count,
        seconds=float(trace.seconds[-1]),
        requests_per_second=trace.rate,
        arrival_cv=float(gaps.std() / mean_gap) if mean_gap > 0 else 0.0,
        input_tokens=_length_facts(trace.input_tokens),
        output_tokens=_length_facts(trace.output_tokens),
        prefix_hit=ideal_prefix_hit(trace),
        shared_head=shared_head(trace),
        surge=surge(trace),
        left_out=dict(trace.left_out),
    )


def _length_facts(lengths: Array) -> LengthFacts:
    logs = np.log(np.maximum(lengths, 1.0))
    p50, p95, p99 = (float(value) for value in np.percentile(lengths, (50, 95, 99)))
    return LengthFacts(float(lengths.mean()), p50, p95, p99, float(logs.mean()), float(logs.std()))


def ideal_prefix_hit(trace: Trace) -> float | None:
    """Return the share of prefix blocks that an earlier request had: what a cache without end would find."""
    if trace.blocks is None or not trace.blocks.size:
        return None
    return 1.0 - float(np.unique(trace.blocks).size) / float(trace.blocks.size)


def shared_head(trace: Trace) -> float | None:
    """Return the tokens at the head of prompts that more than half of the requests share: a system prompt, in whole blocks."""
    if trace.blocks is None or trace.block_starts is None or not trace.blocks.size:
        return None
    starts, ends, depth = trace.block_starts[:-1], trace.block_starts[1:], 0
    while True:
        reaching = starts + depth < ends
        starts, ends = starts[reaching], ends[reaching]
        ids, where, counts = np.unique(trace.blocks[starts + depth], return_inverse=True, return_counts=True)
        if not ids.size or counts.max() <= trace.count / 2:
            return float(depth * trace.block_tokens)
        following = where == counts.argmax()
        starts, ends, depth = starts[following], ends[following], depth + 1


def surge(trace: Trace) -> float:
    """Return by what share the busy minutes exceed the mean rate: 95% of the requests arrive in minutes no busier (0 for a short trace)."""
    minutes = int(trace.seconds[-1] // MINUTE)
    if minutes < LEAST_MINUTES:
        return 0.0
    counts = np.bincount((trace.seconds // MINUTE).astype(np.int64))[:minutes]
    ordered = np.sort(counts)
    busy = ordered[np.searchsorted(np.cumsum(ordered), 0.95 * ordered.sum())]
    return max(0.0, float(busy / counts.mean()) - 1)


def request_classes(trace: Trace, count: int = 4) -> list[dict[str, Any]]:
    """Return `count` buckets of about equal prompt length as the classes of a problem file (share and mean lengths, with p95)."""
    bounds = np.quantile(trace.input_tokens, np.linspace(0, 1, count + 1)[1:-1])
    bucket = np.searchsorted(np.unique(bounds), trace.input_tokens, side="left")
    classes = []
    for at in np.unique(bucket):
        chosen = bucket == at
        lengths = {
            name: _as_lengths(values[chosen])
            for name, values in (("input_tokens", trace.input_tokens), ("output_tokens", trace.output_tokens))
        }
        classes.append({"share": float(chosen.mean()), **lengths})
    return classes


def _as_lengths(values: Array) -> float | dict[str, float]:
    """Return a mean, with the 95th percentile where a lognormal can have both (up to a ratio of exp(1.645²/2) = 3.87)."""
    mean, p95 = float(values.mean()), float(np.percentile(values, 95))
    return {"mean": mean, "p95": min(p95, 3.86 * mean)} if p95 > mean * (1 + 1e-9) else mean


def read_trace(path: Path | str) -> Trace:
    """Read a trace; its kind is told by the columns, or the keys of its first record.

    Raises
    ------
    ImportFileError
        Where the file cannot be read, is of no known kind, holds no request, or a value is wrong (with line and column).
    """
    file = Path(path)
    try:
        check_file(file, LARGEST_FILE)
        opened = gzip.open if file.suffix == ".gz" else open
        with opened(file, "rt", encoding="utf-8-sig", newline="") as lines:
            return _read(file, lines)
    except (OSError, EOFError) as error:
        raise ImportFileError(f"{file}: cannot be read ({error})") from error
    except UnicodeDecodeError as error:
        raise ImportFileError(f"{file}: byte {error.start} is no UTF-8") from error


def _read(file: Path, lines: Any) -> Trace:
    names = file.name.removesuffix(".gz")
    records = _json_records(file, lines) if names.endswith((".jsonl", ".json")) else _csv_records(file, lines)
    first = next(records, None)
    if first is None:
        raise ImportFileError(f"{file}: found no request; allowed: one request a line")
    kind = next((kind for kind in KINDS if kind.matches(first[1])), None)
    if kind is None:
        known = "; ".join(f"{kind.name}: {', '.join(kind.columns)}" for kind in KINDS)
        raise ImportFileError(f"{file}: found columns {', '.join(map(str, first[1]))}; allowed: {known}")
    return _collect(file, kind, first, records)


def _csv_records(file: Path, lines: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(lines)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise ImportFileError(f"{file}: line {reader.line_num}: {error}") from error


def _json_records(file: Path, lines: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ImportFileError(f"{file}: line {number}: not JSON ({error})") from error
        if not isinstance(record, dict):
            raise ImportFileError(f"{file}: line {number}: found a {type(record).__name__}; allowed: one object")
        yield number, record


@dataclass(frozen=True)
class Kind:
    """A format: the columns that tell it (time, input, output), how a time is read [s], and what else a record holds."""

    name: str
    columns: tuple[str, str, str]
    time: Callable[[Any], float]
    more: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None

    def matches(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has the columns of this kind."""
        return all(column in record for column in self.columns)


def _moment(text: Any) -> float:
    """Return seconds since 1970 of an ISO time; digits beyond microseconds are cut."""
    return datetime.fromisoformat(str(text)).timestamp()


def _milliseconds(value: Any) -> float:
    return float(value) / 1000.0


def _vllm(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return TTFT and TPOT [s] of a logged request; its queue stamp stands for the arrival on the engine's clock."""
    stamps = [record.get(name) for name in ("queued_ts", "first_token_ts", "last_token_ts")]
    if any(not isinstance(stamp, int | float) for stamp in stamps):
        return {}
    queued, first, last = (float(stamp) for stamp in stamps if stamp is not None)
    steps = float(record["output_toks"]) - 1
    return {"ttft": first - queued, "tpot": (last - first) / steps if steps > 0 else float("nan")}


KINDS = (
    Kind("Azure", ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _moment),
    Kind("Mooncake", ("timestamp", "input_length", "output_length"), _milliseconds),
    Kind("BurstGPT", ("Timestamp", "Request tokens", "Response tokens"), float),
    Kind("vLLM request log", ("arrival_time", "input_toks", "output_toks"), float, _vllm),
    Kind("plain", ("time", "input_tokens", "output_tokens"), float),
)


def _collect(
    file: Path, kind: Kind, first: tuple[int, Mapping[str, Any]], rest: Iterator[tuple[int, Mapping[str, Any]]]
) -> Trace:
    rows: list[tuple[float, float, float]] = []
    blocks: list[Sequence[int]] = []
    more: dict[str, list[float]] = {}
    left_out: dict[str, int] = {}
    with_blocks = "hash_ids" in first[1]
    at, record = first
    while True:
        row = tuple(_value(file, at, record, name, kind, index) for index, name in enumerate(kind.columns))
        if row[1] < 1 or row[2] < 1:
            reason = "no prompt" if row[1] < 1 else "no answer"
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            rows.append((row[0], row[1], row[2]))
            if with_blocks:
                blocks.append(_blocks(file, at, record))
            for name, value in (kind.more(record) if kind.more else {}).items():
                more.setdefault(name, []).append(value)
        following = next(rest, None)
        if following is None:
            break
        at, record = following
    if not rows:
        raise ImportFileError(f"{file}: found no request with a prompt and an answer; allowed: one at least")
    return _ordered(file.name, kind.name, rows, blocks if with_blocks else None, more, left_out)


def _value(file: Path, line: int, record: Mapping[str, Any], column: str, kind: Kind, index: int) -> float:
    given = record.get(column)
    allowed = "a time" if index == 0 else f"a count of tokens up to {LARGEST_COUNT}"
    try:
        if given is None or isinstance(given, bool):
            raise ValueError
        value = kind.time(given) if index == 0 else float(given)
        if not isfinite(value) or (index > 0 and not 0 <= value <= LARGEST_COUNT):
            raise ValueError
    except (ValueError, TypeError, OverflowError):
        found = "nothing" if given is None else repr(given)[:60]
        raise ImportFileError(f"{file}: line {line}, column {column}: found {found}; allowed: {allowed}") from None
    return value


def _blocks(file: Path, line: int, record: Mapping[str, Any]) -> Sequence[int]:
    ids = record.get("hash_ids")
    if not isinstance(ids, list) or any(not isinstance(i, int) or isinstance(i, bool) or abs(i) >= 2**63 for i in ids):
        raise ImportFileError(
            f"{file}: line {line}, column hash_ids: found {repr(ids)[:60]}; allowed: a list of whole numbers"
        )
    return ids


def _ordered(
    name: str,
    kind: str,
    rows: list[tuple[float, float, float]],
    blocks: list[Sequence[int]] | None,
    more: Mapping[str, list[float]],
    left_out: Mapping[str, int],
) -> Trace:
    table = np.array(rows, float)
    order = np.argsort(table[:, 0], kind="stable")
    table = table[order]
    flat = starts = None
    if blocks is not None:
        sizes = np.array([len(blocks[at]) for at in order], np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        flat = np.fromiter((i for at in order for i in blocks[at]), np.int64, int(sizes.sum()))
    return Trace(
        name=name,
        kind=kind,
        seconds=table[:, 0] - table[0, 0],
        input_tokens=table[:, 1],
        output_tokens=table[:, 2],
        blocks=flat,
        block_starts=starts,
        measured={key: np.array(values)[order] for key, values in more.items() if len(values) == len(rows)},
        left_out=dict(left_out),
    )
