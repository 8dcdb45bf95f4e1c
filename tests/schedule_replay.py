"""1F1B replayed event by event: the oracle for pipeline formulas."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Replay:
    """Length of a step, and the most micro-batches that each rank held at once."""

    time: float
    in_flight: list[int]


def order(rank: int, ranks: int, m: int) -> list[tuple[str, int]]:
    """The order of work of one rank: warm-up forwards, then one forward one backward, then the rest."""
    warm = min(m, ranks - rank - 1)
    work = [("F", i) for i in range(warm)]
    for i in range(warm, m):
        work += [("F", i), ("B", i - warm)]
    return work + [("B", i) for i in range(m - warm, m)]


def replay(ranks: int, m: int, forward: list[float], backward: list[float]) -> Replay:
    """Replay m micro-batches over ranks whose passes take `forward` and `backward` (any unit of time)."""
    queues = [order(rank, ranks, m) for rank in range(ranks)]
    done: dict[tuple[str, int, int], float] = {}
    clock, held, most = [0.0] * ranks, [0] * ranks, [0] * ranks
    while any(queues):
        moved = False
        for rank, queue in enumerate(queues):
            if not queue:
                continue
            kind, i = queue[0]
            before = ("F", rank - 1, i) if kind == "F" else ("B", rank + 1, i)
            lone = rank == 0 if kind == "F" else rank == ranks - 1
            if not lone and before not in done:
                continue
            start = max(clock[rank], 0.0 if lone else done[before])
            clock[rank] = start + (forward if kind == "F" else backward)[rank]
            done[(kind, rank, i)] = clock[rank]
            held[rank] += 1 if kind == "F" else -1
            most[rank] = max(most[rank], held[rank])
            queue.pop(0)
            moved = True
        if not moved:
            raise RuntimeError("the schedule waits for itself")
    return Replay(max(clock), most)
