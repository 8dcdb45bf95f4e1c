"""Continuous batching, replayed: an engine that runs steps (see `simulate_clock` for what stands before it).

Between two events (an arrival, an end, a full cache) the number of sequences in decode stays the same and the time of a step grows
evenly with the context, so such a stretch of steps is one event whose end is known in closed form.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, inf, log, sqrt
from typing import Protocol

HISTOGRAM = 50.0  # bins of step times per factor e: each 2% wide


class Times(Protocol):
    """Times of steps [s]; see `simulate_steps.StepTimes`."""

    def plain(self, sequences: int, context: float) -> float:
        """Return the time of a step of decode tokens alone."""

    def full(self, sequences: int, context: float, prompt: float, keys: float) -> float:
        """Return the time of a step that carries prompt tokens as well."""


@dataclass(frozen=True)
class Limits:
    """What holds an engine: `tokens` of a step, `slots` (most sequences), `room` (KV tokens), `waste` (unused tokens a sequence,
    less those that it shares with others).

    `prefills`: whether it computes prompts; else they come computed.
    """

    tokens: float
    slots: int
    room: float
    waste: float = 0.0
    prefills: bool = True


@dataclass
class Requests:
    """The requests of a simulation, by number: arrival [s], prompt, answer, prompt tokens found in a cache; and what happened.

    `first`, `last`: times of the first and last token [s], nan until then; `made`: tokens written before a preemption. `blocks`: prefix blocks, of `block_tokens`.
    """

    arrival: list[float]
    prompt: list[int]
    answer: list[int]
    hit: list[int]
    first: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    blocks: Sequence[Sequence[int]] | None = None
    block_tokens: int = 512

    def __post_init__(self) -> None:
        nothing = [float("nan")] * len(self.arrival)
        self.first = self.first or list(nothing)
        self.last = self.last or list(nothing)
        self.made = self.made or [0] * len(self.arrival)


@dataclass
class Tally:
    """What engines counted. Sums over time [s] of queue, running, KV tokens and busy; `gaps`: tokens by bin of their step's time."""

    queue: float = 0.0
    running: float = 0.0
    cached: float = 0.0
    busy: float = 0.0
    most_waiting: int = 0
    most_running: int = 0
    most_cached: float = 0.0
    preemptions: int = 0
    recomputed: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    gaps: dict[int, float] = field(default_factory=dict)


class PrefixCache:
    """Prompt blocks that are still there, the newest last; groups of one replica that share its memory share it."""

    def __init__(self) -> None:
        self.blocks: OrderedDict[int, None] = OrderedDict()
        self.engines: list[Engine] = []

    def find(self, requests: Requests, number: int) -> int:
        """Return the prompt tokens whose blocks are cached; the request's become the newest, the oldest go where room is short."""
        wanted = requests.blocks[number] if requests.blocks is not None else ()
        found = 0
        for block in wanted:
            if block not in self.blocks:
                break
            found += 1
        for block in wanted:
            self.blocks[block] = None
            self.blocks.move_to_end(block)
        free = sum(engine.limits.room - engine.held() for engine in self.engines)
        while len(self.blocks) > max(0.0, free) / requests.block_tokens:
            self.blocks.popitem(last=False)
        return found * requests.block_tokens


class Engine:
    """One group of sequences of a replica. A segment is one step with prompt tokens, or a stretch of plain steps."""

    def __init__(
        self,
        times: Times,
        limits: Limits,
        requests: Requests,
        waiting: deque[int] | None = None,
        cache: PrefixCache | None = None,
    ) -> None:
        self.times, self.limits, self.requests = times, limits, requests
        self.waiting: deque[int] = deque() if waiting is None else waiting
        self.tally = Tally()
        self.decoding: dict[int, tuple[int, int]] = {}  # request: (steps done when it joined, tokens it had)
        self.ends: list[tuple[int, int, int]] = []  # (steps done at its last token, request, steps at joining)
        self.partial = -1
        self.partial_done = self.partial_all = 0
        self.completed: list[int] = []
        self.cache = cache or PrefixCache()
        self.cache.engines.append(self)
        self.steps = 0
        self.context = 0  # tokens of all sequences in decode
        self.load = 0  # requests that are here and have not ended
        self.until = inf
        self.started = 0.0
        self.plain = 0  # steps of the stretch; 0 in a step with prompts
        self.first_step = self.growth = 0.0
        self.counted_from = 0.0
        self.queued = 0  # requests that the segment left in the queue

    # -- what holds the engine -------------------------------------------------------------------------------------

    def running(self) -> int:
        """Requests that hold a slot."""
        return len(self.decoding) + len(self.completed) + (self.partial >= 0)

    def held(self) -> float:
        """KV tokens in use."""
        running = self.running()
        return self.context + self.partial_done + self.limits.waste * running

    def _preempt(self) -> bool:
        """Put the request admitted last back in front of the queue, its cache lost; return whether there was one."""
        if self.partial >= 0:
            number, self.partial = self.partial, -1
            self.tally.recomputed += self.partial_done
            self.partial_done = 0
        elif len(self.decoding) > 1:
            number, (joined, had) = self.decoding.popitem()
            grown = self.steps - joined
            self.context -= had + grown
            self.requests.made[number] += grown + 1
            self.tally.recomputed += had + grown
        else:
            return False
        self.waiting.appendleft(number)
        self.tally.preemptions += 1
        return True

    def _admit(self, budget: float, free: float) -> bool:
        """Take the next request from the queue as the partial one, where a slot and cache for its first tokens are free."""
        if not self.waiting or self.running() >= self.limits.slots:
            return False
        number = self.waiting[0]
        prompt = self.requests.prompt[number] + self.requests.made[number]
        found = (
            self.cache.find(self.requests, number) if self.requests.blocks is not None else self.requests.hit[number]
        )
        found = min(found, prompt - 1)
        if free < found + min(budget, prompt - found) + self.limits.waste:
            return False
        self.waiting.popleft()
        self.partial, self.partial_done, self.partial_all = number, found, prompt
        self.tally.prompt_tokens += prompt
        self.tally.hit_tokens += found
        return True

    # -- segments --------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Choose the next segment at a step boundary; `until` is its end, inf where there is nothing to do."""
        count, room = len(self.decoding), self.limits.room
        preempted = False
        while count and room - self.held() < count and self._preempt():
            preempted, count = True, len(self.decoding)
        self.started = now
        prompts = not preempted and (self.partial >= 0 or bool(self.waiting)) and self._begin_prompts(now, count)
        if not prompts:
            if count:
                self._begin_plain(now, count, 1 if preempted else None)
            else:
                self.until, self.plain = inf, 0
        self.queued = len(self.waiting)

    def _begin_prompts(self, now: float, count: int) -> bool:
        """Start a step that carries prompt tokens; return whether any could be carried."""
        budget = self.limits.tokens - count
        free = self.limits.room - self.held() - count
        mean = self.context / count if count else 0.0
        carried, keys = 0.0, 0.0
        while budget >= 1:
            if self.partial < 0:
                if not self._admit(budget, free):
                    break
                free -= self.partial_done + self.limits.waste
            if not self.limits.prefills:
                free -= self.partial_all - self.partial_done
                self._complete()
                continue
            taken = int(min(budget, self.partial_all - self.partial_done, free))
            if taken < 1:
                break
            keys += taken * (self.partial_done + taken / 2)
            carried += taken
            budget -= taken
            free -= taken
            self.partial_done += taken
            if self.partial_done < self.partial_all:
                break
            self._complete()
        if not self.limits.prefills:
            return self._join_computed(now)
        if not carried:
            return False
        self.until = now + self.times.full(count, mean, carried, keys / carried)
        self.plain = 0
        return True

    def _complete(self) -> None:
        self.completed.append(self.partial)
        self.context += self.partial_all  # held from now on; it joins the decode at the end of the step
        self.partial, self.partial_done = -1, 0

    def _join_computed(self, now: float) -> bool:
        """Let requests whose prompts were computed elsewhere join at once; the segment is then a plain one."""
        self._join(now)
        if self.decoding:
            self._begin_plain(now, len(self.decoding), None)
            return True
        return False

    def _begin_plain(self, now: float, count: int, most: int | None) -> None:
        while self.ends and self._stale(self.ends[0]):
            heappop(self.ends)
        steps = self.ends[0][0] - self.steps
        steps = max(1, min(steps, int((self.limits.room - self.held()) // count), most or steps))
        mean = self.context / count
        self.first_step = first = self.times.plain(count, mean)
        last = self.times.plain(count, mean + steps - 1) if steps > 1 else first
        self.growth = (last - first) / (steps - 1) if steps > 1 else 0.0
        self.plain = steps
        self.until = now + self._span(steps)

    def _span(self, steps: int) -> float:
        return steps * (self.first_step + self.growth * (steps - 1) / 2)

    def end_after(self, steps: int) -> float:
        """Return when so many steps of the segment end [s]; a step with prompts is one."""
        return self.started + self._span(steps) if self.plain else self.until

    def shorten(self, now: float) -> bool:
        """End a stretch of plain steps at the first boundary from `now` on; return whether it ends earlier."""
        if self.plain <= 1:
            return False
        gone = now - self.started
        half, whole = self.growth / 2, self.first_step - self.growth / 2
        if half > 0:
            steps = ceil((sqrt(whole * whole + 4 * half * gone) - whole) / (2 * half))
        else:
            steps = ceil(gone / self.first_step)
        steps = max(1, steps)
        if steps >= self.plain:
            return False
        self.plain = steps
        self.until = self.started + self._span(steps)
        return True

    def _stale(self, end: tuple[int, int, int]) -> bool:
        joined = self.decoding.get(end[1])
        return joined is None or joined[0] != end[2]

    def finish(self) -> int:
        """Apply the segment that ends now; return how many requests ended."""
        now, count = self.until, len(self.decoding)
        steps = self.plain or 1
        self._count(now, count, steps)
        self.steps += steps
        self.context += steps * count
        ended = 0
        while self.ends and self.ends[0][0] <= self.steps:
            end = heappop(self.ends)
            if self._stale(end):
                continue
            joined, had = self.decoding.pop(end[1])
            self.context -= had + self.steps - joined
            self.requests.last[end[1]] = now
            ended += 1
        ended += self._join(now)
        self.load -= ended
        return ended

    def _join(self, now: float) -> int:
        """Let the requests whose prompts are computed begin their answers; return how many had but one token to write."""
        ended = 0
        requests = self.requests
        for number in self.completed:
            made = requests.made[number]
            prompt = requests.prompt[number] + made
            if self.limits.prefills and not made:
                requests.first[number] = now
            rest = requests.answer[number] - made - 1
            if rest <= 0:
                requests.last[number] = now
                self.context -= prompt
                ended += 1
                continue
            self.decoding[number] = (self.steps, prompt)
            heappush(self.ends, (self.steps + rest, number, self.steps))
        self.completed.clear()
        return ended

    def _count(self, now: float, count: int, steps: int) -> None:
        tally, span = self.tally, now - self.started
        waiting, running = self.queued, self.running()
        cached = min(self.held() + steps * count / 2, self.limits.room)
        tally.most_waiting = max(tally.most_waiting, waiting)
        tally.most_running = max(tally.most_running, running)
        tally.most_cached = max(tally.most_cached, cached)
        if now < self.counted_from:
            return
        tally.busy += span
        tally.queue += waiting * span
        tally.running += running * span
        tally.cached += cached * span
        if count:
            bin = int(log(span / steps) * HISTOGRAM)
            tally.gaps[bin] = tally.gaps.get(bin, 0.0) + steps * count
