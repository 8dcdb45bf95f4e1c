"""Groups that share experts step together: the event engine against a plain replay, one joint step after another."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from tokenmill.simulate_clock import Router, run
from tokenmill.simulate_engine import Engine, Limits, Requests
from tokenmill.simulate_lockstep import Lockstep

FLOOR, SEQUENCE, CACHED, PROMPT = 10.0, 0.1, 1e-3, 0.05


class Linear:
    """Step times that grow evenly with sequences, cached tokens and prompt tokens."""

    def plain(self, sequences, context) -> float:
        return FLOOR + sequences * (SEQUENCE + CACHED * context)

    def full(self, sequences, context, prompt, keys) -> float:
        return self.plain(sequences, context) + prompt * PROMPT


def joint_steps(groups: int, tokens: int, arrival, prompt, answer):
    """First and last token times where request i goes to group i modulo `groups` and every step lasts as its longest member."""
    first, last = np.full(len(arrival), np.nan), np.full(len(arrival), np.nan)
    waiting = [deque() for _ in range(groups)]
    decoding: list[dict[int, list[int]]] = [{} for _ in range(groups)]  # request: cached, left to write
    part: list[list[int] | None] = [None] * groups  # request, prompt tokens computed
    now, at = 0.0, 0
    while at < len(arrival) or any(waiting) or any(decoding) or any(part):
        if not any(waiting) and not any(decoding) and not any(part):
            now = max(now, arrival[at])
        while at < len(arrival) and arrival[at] <= now:
            waiting[at % groups].append(at)
            at += 1
        times, ready = [], []
        for g in range(groups):
            here = decoding[g]
            budget, carried = tokens - len(here), 0
            while budget and (part[g] or waiting[g]):
                one = part[g] = part[g] or [waiting[g].popleft(), 0]
                taken = min(budget, prompt[one[0]] - one[1])
                one[1] += taken
                budget, carried = budget - taken, carried + taken
                if one[1] == prompt[one[0]]:
                    ready.append((g, one[0]))
                    part[g] = None
            if here or carried:
                cached = sum(entry[0] for entry in here.values())
                times.append(FLOOR + SEQUENCE * len(here) + CACHED * cached + PROMPT * carried)
        now += max(times)
        for here in decoding:
            for number, entry in list(here.items()):
                entry[0], entry[1] = entry[0] + 1, entry[1] - 1
                if not entry[1]:
                    last[number] = now
                    del here[number]
        for g, number in ready:
            first[number] = now
            decoding[g][number] = [prompt[number], answer[number] - 1]
    return first, last


@pytest.mark.parametrize(
    ("seed", "groups", "tokens", "gap"), [(1, 2, 64, 300.0), (2, 4, 128, 100.0), (3, 3, 48, 2000.0)]
)
def test_joint_steps_match_a_plain_replay(seed, groups, tokens, gap):
    random = np.random.default_rng(seed)
    count = 150
    arrival = np.cumsum(random.exponential(gap, count)).tolist()
    prompt, answer = random.integers(1, 200, count).tolist(), random.integers(2, 100, count).tolist()
    first, last = joint_steps(groups, tokens, arrival, prompt, answer)
    requests = Requests(list(arrival), prompt, answer, [0] * count)
    engines = [Engine(Linear(), Limits(tokens, 10**6, 1e12), requests) for _ in range(groups)]
    run(engines, Router("round-robin", engines, [1.0] * groups), requests, teams=[Lockstep(engines)])
    # within a stretch the member that is slowest over the whole sets the pace: another may be slower for some of its steps
    np.testing.assert_allclose(requests.first, first, rtol=1e-5)
    np.testing.assert_allclose(requests.last, last, rtol=1e-5)


def test_a_prompt_of_one_group_delays_the_answer_of_the_other():
    """By hand: ten steps of one sequence with no prompt beside; the other group's prompt of 40 tokens stretches the second."""
    requests = Requests([0.0, 10.5], [10, 40], [11, 2], [0, 0])
    engines = [Engine(Linear(), Limits(64, 8, 1e9), requests) for _ in range(2)]
    run(engines, Router("round-robin", engines, [1.0] * 2), requests, teams=[Lockstep(engines)])
    begun = FLOOR + 10 * PROMPT  # 10.5: its first token; the other arrives at this very moment
    joint = FLOOR + 40 * PROMPT  # longer than a step of one decode token
    alone = [FLOOR + SEQUENCE + CACHED * (10 + k) for k in range(1, 10)]
    beside = FLOOR + SEQUENCE + CACHED * 40  # the other's one decode step, longer than the second of `alone`
    assert requests.first == pytest.approx([begun, begun + joint])
    assert requests.last[0] == pytest.approx(begun + joint + beside + sum(alone[1:]))
