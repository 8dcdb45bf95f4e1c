"""The event engine against a plain step-by-step replay, and against queues whose mean wait is known exactly."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
import pytest

from tokenmill import data
from tokenmill.imports.traces import ideal_prefix_hit, read_trace
from tokenmill.simulate_clock import Router, run
from tokenmill.simulate_engine import Engine, Limits, PrefixCache, Requests


class Linear:
    """Step times that grow evenly: a floor, a term a sequence, a cached token, a prompt token, and a key it sees."""

    def __init__(self, floor=10.0, sequence=0.1, cached=1e-3, prompt=0.05, key=1e-5) -> None:
        self.floor, self.sequence, self.cached, self.prompt, self.key = floor, sequence, cached, prompt, key

    def plain(self, sequences, context) -> float:
        return self.floor + sequences * (self.sequence + self.cached * context)

    def full(self, sequences, context, prompt, keys) -> float:
        return self.plain(sequences, context) + prompt * (self.prompt + self.key * keys)


def replay_by_steps(times, limits, requests):
    """First and last token times, one step after another: the rules of the engine with nothing clever."""
    count = len(requests.arrival)
    first, last, made = [np.nan] * count, [np.nan] * count, [0] * count
    waiting, running = deque(), []  # running: [number, tokens cached, prompt tokens to reach, joined]
    now, at, preempted_total = 0.0, 0, 0
    while at < count or waiting or running:
        if not waiting and not running:
            now = max(now, requests.arrival[at])
        while at < count and requests.arrival[at] <= now:
            waiting.append(at)
            at += 1

        def held() -> float:
            return sum(entry[1] for entry in running) + limits.waste * len(running)

        def decoding() -> list:
            return [entry for entry in running if entry[3]]

        preempted = False
        while decoding() and limits.room - held() < len(decoding()):
            partial = [entry for entry in running if not entry[3]]
            victim = partial[-1] if partial else running[-1]
            if not partial and len(running) == 1:
                break
            running.remove(victim)
            if victim[3]:
                made[victim[0]] += victim[1] - victim[2] + 1
            waiting.appendleft(victim[0])
            preempted, preempted_total = True, preempted_total + 1
        members = decoding()
        mean = sum(entry[1] for entry in members) / len(members) if members else 0.0
        carried = keys = 0.0
        if not preempted:
            budget, free = limits.tokens - len(members), limits.room - held() - len(members)
            while budget >= 1:
                partial = next((entry for entry in running if not entry[3] and entry[1] < entry[2]), None)
                if partial is None:
                    if not waiting or len(running) >= limits.slots:
                        break
                    prompt = requests.prompt[waiting[0]] + made[waiting[0]]
                    found = min(requests.hit[waiting[0]], prompt - 1)
                    if free < found + min(budget, prompt - found) + limits.waste:
                        break
                    partial = [waiting.popleft(), found, prompt, False]
                    running.append(partial)
                    free -= found + limits.waste
                taken = int(min(budget, partial[2] - partial[1], free))
                if taken < 1:
                    break
                keys += taken * (partial[1] + taken / 2)
                carried, budget, free = carried + taken, budget - taken, free - taken
                partial[1] += taken
        if carried:
            now += times.full(len(members), mean, carried, keys / carried)
        else:
            now += times.plain(len(members), mean)
        for entry in members:
            entry[1] += 1
            if entry[1] - entry[2] >= requests.answer[entry[0]] - made[entry[0]] - 1:
                last[entry[0]] = now
                running.remove(entry)
        for entry in [e for e in running if not e[3] and e[1] == e[2]]:
            if not made[entry[0]]:
                first[entry[0]] = now
            entry[3] = True
            if requests.answer[entry[0]] - made[entry[0]] - 1 <= 0:
                last[entry[0]] = now
                running.remove(entry)
    return first, last, preempted_total


def drawn(seed: int, count: int, gap: float, longest: int) -> Requests:
    random = np.random.default_rng(seed)
    return Requests(
        np.cumsum(random.exponential(gap, count)).tolist(),
        random.integers(1, longest, count).tolist(),
        random.integers(1, longest // 2, count).tolist(),
        random.integers(0, 20, count).tolist(),
    )


@pytest.mark.parametrize(
    ("seed", "limits", "gap"),
    [
        (1, Limits(tokens=64, slots=8, room=1e9), 300.0),
        (2, Limits(tokens=256, slots=1000, room=1e9, waste=8.0), 100.0),
        (3, Limits(tokens=64, slots=1000, room=700, waste=4.0), 150.0),
        (4, Limits(tokens=128, slots=6, room=400), 120.0),
        (5, Limits(tokens=16, slots=12, room=2000, waste=1.5), 500.0),
    ],
)
def test_engine_matches_a_replay_step_by_step(seed, limits, gap):
    times, requests = Linear(), drawn(seed, 150, gap, 200)
    first, last, preempted = replay_by_steps(times, limits, requests)
    engine = Engine(times, limits, requests)
    run([engine], Router("least-loaded", [engine], [1.0]), requests)
    assert np.isfinite(requests.last).all()
    np.testing.assert_allclose(requests.first, first, rtol=1e-9)
    np.testing.assert_allclose(requests.last, last, rtol=1e-9)
    assert engine.tally.preemptions == preempted
    assert (preempted > 0) == (seed in (3, 4))


def test_one_prompt_a_step_waits_as_in_a_queue_with_constant_service():
    """Pollaczek and Khinchine: Poisson arrivals, one server, constant service s: mean wait rho s/(2(1-rho))."""
    times, count, rho = Linear(floor=0.0, sequence=0.0, cached=0.0, prompt=0.01, key=0.0), 60_000, 0.7
    random = np.random.default_rng(11)
    requests = Requests(
        np.cumsum(random.exponential(1.0 / rho, count)).tolist(), [100] * count, [1] * count, [0] * count
    )
    engine = Engine(times, Limits(tokens=100, slots=10, room=1e9), requests)
    run([engine], Router("least-loaded", [engine], [1.0]), requests)
    waits = np.array(requests.last) - np.array(requests.arrival) - 1.0
    assert waits.mean() == pytest.approx(rho / (2 * (1 - rho)), rel=0.06)


def test_one_slot_waits_as_a_queue_with_geometric_service():
    """Pollaczek and Khinchine: lambda E[S²]/(2(1-rho)), S = one prompt step and a geometric number of decode steps."""
    count, rho, stop = 60_000, 0.6, 0.1
    times = Linear(floor=1.0, sequence=0.0, cached=0.0, prompt=0.0, key=0.0)
    random = np.random.default_rng(12)
    answers = random.geometric(stop, count)
    arrivals = np.cumsum(random.exponential(1 / (rho * stop), count))
    requests = Requests(arrivals.tolist(), [1] * count, answers.tolist(), [0] * count)
    engine = Engine(times, Limits(tokens=10, slots=1, room=1e9), requests)
    run([engine], Router("least-loaded", [engine], [1.0]), requests)
    waits = np.array(requests.first) - arrivals - 1.0
    second = (2 - stop) / stop**2
    assert waits.mean() == pytest.approx(rho * stop * second / (2 * (1 - rho)), rel=0.08)


def test_gated_steps_have_the_mean_cycle_of_a_gated_queue():
    """With room for every prompt, a step is V + what arrived in the last one: E[C] = V/(1-rho), and the time to first token
    V + b + (1/2 + rho) E[C²]/E[C], with E[C²](1-rho²) = V² + (2 V rho + lambda E[b²]) E[C].
    """
    floor, work, rate, count = 1.0, 0.5, 1.2, 60_000
    times = Linear(floor=floor, sequence=0.0, cached=0.0, prompt=0.05, key=0.0)
    random = np.random.default_rng(13)
    arrivals = np.cumsum(random.exponential(1 / rate, count)) + 1.0
    requests = Requests(arrivals.tolist(), [10] * count, [1] * count, [0] * count)
    # a sequence without end in decode keeps the steps going
    requests.arrival.insert(0, 0.0)
    requests.prompt.insert(0, 1)
    requests.answer.insert(0, 10**6)
    requests.hit.insert(0, 0)
    requests = Requests(requests.arrival, requests.prompt, requests.answer, requests.hit)
    engine = Engine(times, Limits(tokens=1e6, slots=10**6, room=1e9), requests)
    run([engine], Router("least-loaded", [engine], [1.0]), requests)
    rho = rate * work
    cycle = floor / (1 - rho)
    second = (floor**2 + (2 * floor * rho + rate * work**2) * cycle) / (1 - rho**2)
    expected = floor + work + (0.5 + rho) * second / cycle
    assert (np.array(requests.last[1:]) - arrivals).mean() == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("router", ["least-loaded", "round-robin", "one-queue"])
def test_every_request_is_served_once_over_several_engines(router):
    requests = drawn(21, 400, 20.0, 100)
    shared = deque() if router == "one-queue" else None
    engines = [Engine(Linear(), Limits(64, 4, 600, 2.0), requests, shared) for _ in range(5)]
    run(engines, Router(router, engines, [1.0] * 5), requests)
    arrival, first, last = map(np.array, (requests.arrival, requests.first, requests.last))
    assert (first > arrival).all()
    assert (last >= first).all()
    assert sum(e.held() for e in engines) == 0
    assert all(e.tally.most_cached <= 600 and e.tally.most_running <= 4 for e in engines)


def test_one_queue_waits_least_and_round_robin_longest():
    """Bramson 2012 and textbooks: sharing servers beats splitting arrivals; joining the shortest lies between."""
    means = {}
    for router in ("one-queue", "least-loaded", "round-robin"):
        random = np.random.default_rng(3)
        count = 20_000
        answers = random.geometric(0.02, count)
        requests = Requests(
            np.cumsum(random.exponential(50 / (4 * 0.85), count)).tolist(), [1] * count, answers.tolist(), [0] * count
        )
        shared = deque() if router == "one-queue" else None
        times = Linear(floor=1.0, sequence=0.0, cached=0.0, prompt=0.0, key=0.0)
        engines = [Engine(times, Limits(10, 1, 1e9), requests, shared) for _ in range(4)]
        run(engines, Router(router, engines, [1.0] * 4), requests)
        means[router] = (np.array(requests.first) - np.array(requests.arrival)).mean()
    assert means["one-queue"] <= means["least-loaded"] * 1.02
    assert means["least-loaded"] < means["round-robin"]


def test_a_closed_loop_keeps_its_number_in_flight():
    count = 500
    requests = Requests([0.0] * count, [20] * count, [30] * count, [0] * count)
    engine = Engine(Linear(), Limits(64, 100, 1e9), requests)
    end = run([engine], Router("least-loaded", [engine], [1.0]), requests, concurrency=8)
    assert engine.tally.most_running == 8
    flight = (np.array(requests.last) - np.array(requests.arrival)).sum() / end
    assert flight == pytest.approx(8, rel=0.02)


@pytest.mark.parametrize("engines", [1, 4])
def test_cache_without_end_finds_every_block_seen_before(engines):
    trace = read_trace(data.path("measured") / "traces" / "mooncake-conversation.jsonl.gz")
    starts = trace.block_starts.tolist()
    blocks = [trace.blocks[a:b].tolist() for a, b in pairwise(starts)]
    count = trace.count
    prompts = trace.input_tokens.astype(int).tolist()
    requests = Requests(trace.seconds.tolist(), prompts, [2] * count, [0] * count, blocks=blocks)
    fast, cache = Linear(floor=1e-3, sequence=0, cached=0, prompt=1e-7, key=0), PrefixCache()
    pool = [Engine(fast, Limits(2**14, 10**6, 1e12), requests, None, cache) for _ in range(engines)]
    run(pool, Router("least-loaded", pool, [1.0] * engines), requests)
    found = sum(e.tally.hit_tokens for e in pool) / sum(e.tally.prompt_tokens for e in pool)
    # of blocks there, of tokens here: the last block of a prompt is partly filled
    assert found == pytest.approx(ideal_prefix_hit(trace), rel=0.03)


def test_cache_without_room_finds_nothing():
    requests = Requests([0.0, 1e6], [1024, 1024], [2, 2], [0, 0], blocks=[[1, 2], [1, 2]])
    engine = Engine(Linear(), Limits(4096, 10, 1030), requests)
    run([engine], Router("least-loaded", [engine], [1.0]), requests)
    assert engine.tally.hit_tokens == 1023  # the whole prompt but the token that must be computed
    small = Requests([0.0, 1.0, 1e6], [1024, 1024, 1024], [2, 2, 2], [0, 0, 0], blocks=[[1, 2], [3, 4], [1, 2]])
    engine = Engine(Linear(), Limits(4096, 10, 1030), small)
    run([engine], Router("least-loaded", [engine], [1.0]), small)
    assert engine.tally.hit_tokens == 0
