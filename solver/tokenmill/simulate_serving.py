"""Serving pools as engines: mixed ones, or prefill and decode ones with the transfer of the KV cache between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import ceil, exp
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.errors import Mistake, ProblemError
from tokenmill.imports.traces import Trace
from tokenmill.simulate import Options, PoolUse, Served, workload_of
from tokenmill.simulate_clock import Router, run
from tokenmill.simulate_engine import HISTOGRAM, Engine, Limits, PrefixCache, Requests
from tokenmill.simulate_lockstep import Lockstep
from tokenmill.simulate_steps import StepTimes, plan_leaves

if TYPE_CHECKING:
    from tokenmill.plan import Plan, Pool

Array = NDArray[np.float64]
MOST_SLOTS = 4096


@dataclass(frozen=True)
class Standing:
    """A pool as it stands in the busiest slice: replicas, the share of the workload that it takes, its leaves and step times.

    `experts`: whether the model has routed experts, which the groups of a replica share.
    """

    pool: Pool
    replicas: int
    rate: float
    leaves: Mapping[str, float]
    times: StepTimes
    limits: Limits
    groups: int
    experts: bool = False


def replay(plan: Plan, name: str, trace: Trace, options: Options, base: Path | None) -> Served:
    """Replay a trace over the serving pools of a workload: mixed pools, or prefill pools and then decode pools.

    Its lengths are those of the text: where the plan's requests bring images, their tokens are added.
    """
    trace = _seen(plan, name, trace)
    standing = _standing(plan, name, trace, options, base)
    mixed = [item for item in standing if item.pool.role == "mixed"]
    prefill = [item for item in standing if item.pool.role == "prefill"]
    decode = [item for item in standing if item.pool.role == "decode"]
    if mixed and not prefill:
        return _batched(mixed, _requests(trace, mixed[0], options), options)
    if prefill and decode and not mixed:
        return _split(plan, name, prefill, decode, trace, options)
    found = ", ".join(sorted({item.pool.role for item in standing})) or "no pools"
    raise ProblemError(
        [Mistake(f"workloads.{name}.pools", found, "mixed pools alone, or prefill and decode pools, to be replayed")]
    )


def _seen(plan: Plan, name: str, trace: Trace) -> Trace:
    """Return a trace whose prompts hold the tokens of the images that the plan's requests bring, a mean number spread evenly."""
    encoding = [
        leaves for pool in plan.workloads[name].pools if "image_tokens" in (leaves := _leaves(plan, name, pool))
    ]
    if not encoding:
        return trace
    brought = np.diff(np.floor(np.arange(trace.count + 1) * encoding[0]["images_per_request"]))
    return replace(trace, input_tokens=trace.input_tokens + np.round(brought * encoding[0]["image_tokens"]))


def _leaves(plan: Plan, name: str, pool: Pool) -> dict[str, float]:
    prefix = f"{name}.{pool.name}" + (f".{next(iter(pool.by_class))}" if pool.by_class else "")
    found = plan_leaves(plan.trace, prefix)
    if "cached_tokens" in found:  # what the cache holds of a prompt, for whichever reason
        found["hit"] = max(found.get("hit", 0.0), found["cached_tokens"] / found["S_in"])
    return found


def _standing(plan: Plan, name: str, trace: Trace, options: Options, base: Path | None) -> list[Standing]:
    from tokenmill.imports.architecture import load_architecture
    from tokenmill_models.stage import stages

    told = workload_of(plan, name)
    architecture = load_architecture(str(told["model"]), base or Path())
    stage = stages()[plan.workloads[name].stage]
    asked = {**told.get("held", {}), **told["values"]}
    made = stage.staffed(architecture, {}, asked) if stage.staffed else stage.roles(architecture)
    roles = {role.name: role for role in made}
    experts = any(kind.mlp.expert for kind in architecture.layers)
    pools = plan.workloads[name].pools
    moment = _busiest(pools)
    longest = float((trace.input_tokens + trace.output_tokens).max())
    found = []
    for pool in pools:
        rows = [row for row in pool.schedule if (row.period, row.slice) == moment] or list(pool.schedule[:1])
        leaves = _leaves(plan, name, pool)
        computed = np.maximum(1.0, trace.input_tokens - np.floor(trace.input_tokens * leaves.get("hit", 0.0)))
        groups = int(leaves["p"] * leaves["d_a"])
        limits = _limits(pool, leaves, groups, _most_batch(told, options))
        times = StepTimes(
            roles[pool.role], leaves, counts=max(1, limits.slots), context=longest,
            budget=int(limits.tokens) if pool.role == "mixed" else 0,
            images=leaves.get("images_per_request", 0.0) / float(computed.mean()),
        )  # fmt: skip
        replicas = max(1, ceil(sum(row.replicas for row in rows) - 1e-9)) if rows else max(1, ceil(pool.replicas))
        found.append(Standing(pool, replicas, sum(row.rate for row in rows), leaves, times, limits, groups, experts))
    return found


def _busiest(pools: Sequence[Pool]) -> tuple[int, str] | None:
    rates: dict[tuple[int, str], float] = {}
    for pool in pools:
        for row in pool.schedule:
            rates[row.period, row.slice] = rates.get((row.period, row.slice), 0.0) + row.rate
    return max(rates, key=lambda moment: rates[moment]) if rates else None


def _most_batch(told: Mapping[str, Any], options: Options) -> float | None:
    """Return the most running sequences of a replica: asked for, or held in the problem file."""
    if options.slots is not None:
        return float(options.slots)
    held = told.get("held", {}).get("engine.batch")
    return float(max(held)) if held else None


def _limits(pool: Pool, leaves: Mapping[str, float], groups: int, most: float | None) -> Limits:
    """Return what holds one group: its share of the replica's KV room and slots.

    A prefix that sequences share is taken off the room once, and off each sequence: it counts as so much less of its waste.
    """
    prefills = pool.role == "mixed"
    tokens = leaves["chunk"] if prefills else float("inf")
    slots = ceil((most if most is not None else MOST_SLOTS) / groups)
    shared = leaves["kv_shared"] / leaves["kv_token"] if leaves.get("kv_shared") else 0.0
    room = (float(pool.predicted["kv_tokens"]) - leaves.get("prefix_count", 1.0) * shared * leaves["d_a"]) / groups
    slots = int(max(1, min(slots, tokens - 1, room / 2)))
    return Limits(tokens, slots, room, leaves.get("engine_block", 0.0) / 2 - shared, prefills)


def _requests(trace: Trace, first: Standing, options: Options) -> Requests:
    """Return the requests that the largest room can hold; others keep nan times."""
    hit = np.floor(trace.input_tokens * first.leaves.get("hit", 0.0)).astype(int)
    blocks = None
    if options.prefix:
        if trace.blocks is None or trace.block_starts is None:
            raise ProblemError([Mistake("prefix", f"{trace.name} without prefix blocks", "a trace with hash_ids")])
        starts = trace.block_starts
        blocks = [trace.blocks[a:b].tolist() for a, b in pairwise(starts.tolist())]
    return Requests(
        trace.seconds.tolist(), trace.input_tokens.astype(int).tolist(), trace.output_tokens.astype(int).tolist(),
        hit.tolist(), blocks=blocks, block_tokens=trace.block_tokens,
    )  # fmt: skip


def _fitting(requests: Requests, pools: Sequence[Standing]) -> NDArray[np.bool_]:
    """Return which requests every pool can hold."""
    room = min(item.limits.room - item.limits.waste for item in pools)
    return np.asarray(np.array(requests.prompt) + np.array(requests.answer) <= room)


def _batched(pools: Sequence[Standing], requests: Requests, options: Options) -> Served:
    """Replay requests over pools of continuous batching."""
    fits = _fitting(requests, pools)
    taken, index = _chosen(requests, fits)
    shared: deque[int] | None = deque() if options.router == "one-queue" else None
    engines: list[Engine] = []
    weights: list[float] = []
    spans: list[tuple[Standing, int, int]] = []
    for item in pools:
        count = item.replicas * item.groups
        spans.append((item, len(engines), len(engines) + count))
        # the stages of a pipeline hold the cache of its groups together
        stages = max(1, item.groups // int(item.leaves["d_a"]))
        caches = [PrefixCache() for _ in range(count // stages)]
        engines += [Engine(item.times, item.limits, taken, shared, caches[n // stages]) for n in range(count)]
        weights += [max(item.rate, 1e-12) / count] * count
    if taken.arrival and options.warm:
        begin = taken.arrival[min(int(options.warm * len(taken.arrival)), len(taken.arrival) - 1)]
        for engine in engines:
            engine.counted_from = begin
    teams = [team for item, a, b in spans for team in _teams(item, engines[a:b])]
    end = run(engines, Router(options.router, engines, weights), taken, options.concurrency, teams)
    start = max(engines[0].counted_from, taken.arrival[0] if taken.arrival else 0.0)
    extra = _ahead(pools[0])
    arrival, first, last = (np.full(fits.size, np.nan) for _ in range(3))
    arrival[:] = requests.arrival
    arrival[index], first[index], last[index] = taken.arrival, taken.first, taken.last
    gaps: dict[float, float] = {}
    for engine in engines:
        for bin, tokens in engine.tally.gaps.items():
            middle = exp((bin + (0.5 if bin >= 0 else -0.5)) / HISTOGRAM)
            gaps[middle] = gaps.get(middle, 0.0) + tokens
    return Served(
        arrival=arrival,
        first=_sent(first, last, requests, pools[0]) + extra,
        last=last + extra,
        gaps=gaps,
        pools={item.pool.name: _use(item, engines[a:b], max(end - start, 1e-12)) for item, a, b in spans},
    )


def _teams(item: Standing, engines: Sequence[Engine]) -> list[Lockstep]:
    """Return the engines of each replica whose attention groups share experts: those at the same stage step together."""
    if item.leaves["d_a"] <= 1 or not item.experts:
        return []
    stages = max(1, item.groups // int(item.leaves["d_a"]))
    starts = [first + stage for first in range(0, len(engines), item.groups) for stage in range(stages)]
    return [Lockstep(engines[at : at - at % item.groups + item.groups : stages]) for at in starts]


def _ahead(pool: Standing) -> float:
    """Return what a request takes outside the steps [s]: the front end, and reading back a cache that is kept elsewhere, in the mean."""
    return pool.leaves.get("engine_request", 0.0) + pool.leaves.get("reload_time", 0.0)


def _sent(first: Array, last: Array, requests: Requests, pool: Standing) -> Array:
    """Return when first tokens are sent [s]: some engines hold them for a number of decode steps."""
    steps = np.array(requests.answer) - 1
    late = np.minimum(pool.leaves.get("engine_stream", 0.0), steps)
    return np.asarray(first + np.where(steps > 0, late * (last - first) / np.maximum(steps, 1), 0.0))


def _chosen(requests: Requests, fits: NDArray[np.bool_]) -> tuple[Requests, NDArray[np.int64]]:
    index = np.flatnonzero(fits)
    places = index.tolist()

    def of(values: Sequence[Any]) -> list[Any]:
        return list(values) if index.size == fits.size else [values[at] for at in places]

    blocks = None if requests.blocks is None else of(requests.blocks)
    return Requests(
        of(requests.arrival), of(requests.prompt), of(requests.answer), of(requests.hit),
        first=of(requests.first), blocks=blocks, block_tokens=requests.block_tokens,
    ), index  # fmt: skip


def _use(item: Standing, engines: Sequence[Engine], seconds: float) -> PoolUse:
    tallies = [engine.tally for engine in engines]
    count = len(engines)
    room = item.limits.room
    prompts = sum(tally.prompt_tokens for tally in tallies)
    return PoolUse(
        replicas=item.replicas,
        engines=count,
        queue=sum(tally.queue for tally in tallies) / seconds,
        queue_most=max(tally.most_waiting for tally in tallies),
        running=sum(tally.running for tally in tallies) / seconds / item.replicas,
        running_most=max(tally.most_running for tally in tallies),
        kv=sum(tally.cached for tally in tallies) / seconds / (room * count),
        kv_most=max(tally.most_cached for tally in tallies) / room,
        busy=sum(tally.busy for tally in tallies) / seconds / count,
        preemptions=sum(tally.preemptions for tally in tallies),
        prefix_hit=sum(tally.hit_tokens for tally in tallies) / prompts if prompts and item.limits.prefills else 0.0,
    )


def _split(
    plan: Plan, name: str, prefill: Sequence[Standing], decode: Sequence[Standing], trace: Trace, options: Options
) -> Served:
    """Compute prompts one after another, first come first served; send their cache; then write answers in the decode pools."""
    if options.concurrency:
        raise ProblemError(
            [Mistake("concurrency", "split pools", "open arrivals: a closed loop is replayed on mixed pools")]
        )
    requests = _requests(trace, prefill[0], options)
    fits = _fitting(requests, decode)
    computed = np.maximum(1.0, trace.input_tokens - np.array(requests.hit))
    first, busy = _prefilled(prefill, trace, computed)
    transfer, note = _transfer(plan, name, prefill, trace)
    ready = first + transfer
    order = np.argsort(np.where(fits, ready, np.inf), kind="stable")[: int(fits.sum())]
    prompts = trace.input_tokens[order].astype(int).tolist()
    several = trace.output_tokens[order] > 1
    moved = Requests(
        ready[order].tolist(), prompts, trace.output_tokens[order].astype(int).tolist(), list(prompts),
    )  # fmt: skip
    served = _batched(decode, moved, options)
    extra = _ahead(prefill[0])
    firsts, lasts = np.full(fits.size, np.nan), np.full(fits.size, np.nan)
    firsts[order] = first[order] + extra
    lasts[order] = np.where(several, served.last - decode[0].leaves.get("engine_request", 0.0), first[order]) + extra
    return Served(trace.seconds, firsts, lasts, served.gaps, {**busy, **served.pools}, note)


def _prefilled(pools: Sequence[Standing], trace: Trace, computed: Array) -> tuple[Array, dict[str, PoolUse]]:
    """Return when the first token of each request is there [s], and what the prefill pools did."""
    keys = trace.input_tokens - computed / 2
    occupied, places = [], []
    for at, item in enumerate(pools):
        occupied.append(item.times.prompt(computed, keys, item.leaves["chunk"]).tolist())
        places += [(0.0, at, n) for n in range(item.replicas * int(item.leaves["d_a"]))]
    stages = [item.leaves["p"] for item in pools]
    heapify(places)
    first = np.empty(trace.count)
    worked, waited, counts = [0.0] * len(pools), [0.0] * len(pools), [0] * len(pools)
    for i, arrival in enumerate(trace.seconds.tolist()):
        free, at, n = heappop(places)
        start = max(arrival, free)
        taken = occupied[at][i]
        first[i] = start + taken
        heappush(places, (start + taken / stages[at], at, n))
        worked[at] += taken / stages[at]
        waited[at] += start - arrival
        counts[at] += 1
    seconds = max(float(first.max() - trace.seconds[0]), 1e-12)
    uses = {}
    for at, item in enumerate(pools):
        here = item.replicas * int(item.leaves["d_a"])
        uses[item.pool.name] = PoolUse(
            item.replicas, here, waited[at] / seconds, 0, worked[at] / seconds / item.replicas, 0, 0.0, 0.0,
            worked[at] / seconds / here, 0, 1.0 - float(computed.sum() / trace.input_tokens.sum()),
        )  # fmt: skip
    return first, uses


def _transfer(plan: Plan, name: str, prefill: Sequence[Standing], trace: Trace) -> tuple[Array, tuple[str, ...]]:
    """Return how long the cache of each prompt travels [s]: its bytes over a replica's share of the narrowest arc.

    Nothing overlaps with the prompt: an upper figure where an engine sends layer by layer.
    """
    leaves = prefill[0].leaves
    mean = leaves["S_in"] + leaves.get("images_per_request", 0.0) * leaves.get("image_tokens", 0.0)
    size = trace.input_tokens * leaves["kv_request"] / mean
    rooms = [
        arc.bytes_per_second / arc.share
        for flow in plan.flows
        if flow.workload == name and flow.kind == "kv"
        for arc in flow.arcs
        if arc.share > 0
    ]
    if not rooms:
        return np.zeros(trace.count), (
            "the plan names no link between the pools: the transfer of KV takes no time here",
        )
    return size / (min(rooms) / sum(item.replicas for item in prefill)), ()
