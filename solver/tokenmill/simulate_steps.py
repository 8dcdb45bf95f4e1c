"""Step times of a pool: the plan's own formulas, laid out as a table once and interpolated for every step of a simulation.

The plan's trace holds the value of every leaf. What a simulated step sets itself (running sequences, their context, prompt
tokens in the step) is cut out of the role's graph and becomes an input.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.errors import Mistake, ProblemError
from tokenmill_models.compile import Compiled, compile_graph
from tokenmill_models.formula import Graph
from tokenmill_models.stage import Role

Array = NDArray[np.float64]

# definitions of the serving roles that a simulated step replaces: sequences of a group, mean context, prompt tokens of
# the step, keys that each of them sees, the prompt that they are a part of, and its images
CUT = ("group_batch", "context", "prefill_carried", "prompt_keys", "prompt_computed", "images_full", "images_prompt")
PLAIN, FULL, PROMPT = "T_plain", ("T_seen_full", "T_full"), ("T_seen_prompt", "T_prompt")
"""Times of a step of decode tokens, of one that carries prompts, of a prompt's pass: the first that the role has."""
# a step of prompt tokens alone: as good as no sequence in decode, and no division by zero
ALMOST_NONE = 1e-6


def plan_leaves(trace: Mapping[str, Mapping[str, Any]], prefix: str) -> dict[str, float]:
    """Return the value of every leaf and definition that the trace holds under ``prefix.``, by symbol name.

    Raises
    ------
    ProblemError
        Where the plan has none: it was written without its trace.
    """
    found: dict[str, float] = {}
    leaves: dict[str, float] = {}
    start = f"{prefix}."
    for key, node in trace.items():
        if key.startswith(start):
            found[str(node["symbol"])] = float(node["value"])
            leaves |= {
                str(leaf["symbol"]): float(leaf["value"]) for leaf in node["inputs"] if isinstance(leaf, Mapping)
            }
    found |= leaves  # a share of the time may bear the name of a leaf
    if not found:
        raise ProblemError([Mistake(f"trace.{prefix}", "nothing", "a plan with the trace of its figures")])
    return found


class StepTimes:
    """Times [s] of a group's steps: `plain(D, C)` of D sequences with C tokens cached, `full(D, C, P, K)` with P prompt tokens
    that see K keys on average as well.

    `counts`: most sequences of a step; `context`: longest sequence; `budget`: most tokens of a step (0: no prompts); `images`:
    images that come with a prompt token to compute.
    """

    def __init__(
        self, role: Role, leaves: Mapping[str, float], *, counts: int, context: float, budget: int = 0,
        images: float = 0.0,
    ) -> None:  # fmt: skip
        self.leaves = dict(leaves)
        self.graph = Graph({s: f for s, f in role.graph.formulas.items() if s.name not in CUT})
        self.symbols = {symbol.name: symbol for symbol in self.graph.formulas}
        self.functions: dict[str, Compiled] = {}
        self.images = images
        self.full_name, self.prompt_name = (self._first(names) for names in (FULL, PROMPT))
        self.counts = _counts(counts)
        self.contexts = _geometric(64.0, max(context, 128.0), 2.0)
        self.prompts = _geometric(1.0, float(max(budget, 2)), 2**0.5)
        self.keys = _geometric(64.0, max(context, 128.0), 2.0)
        self.plain_table = self._plain_table() if PLAIN in self.symbols else np.zeros((0, 0))
        self.full_table = self._full_table() if self.full_name in self.symbols and budget else np.zeros((0, 0, 0, 0))
        # scanning a list is quicker than scanning an array
        self.context_grid, self.prompt_grid, self.key_grid = (
            grid.tolist() for grid in (self.contexts, self.prompts, self.keys)
        )
        self.plain_rows: dict[int, list[float]] = {}
        self.full_rows: dict[int, list[list[list[float]]]] = {}

    def _first(self, names: Sequence[str]) -> str:
        return next((name for name in names if name in self.symbols), names[-1])

    def exact(self, name: str, **inputs: Any) -> Any:
        """Return a definition evaluated by its formula; `inputs`: what CUT names, arrays that broadcast."""
        function = self.functions.get(name)
        if function is None:
            function = self.functions[name] = compile_graph(self.graph, [self.symbols[name]])
        missing = [s.name for s in function.inputs if s.name not in self.leaves and s.name not in inputs]
        if missing:
            raise ProblemError([Mistake(name, f"no value of {missing[0]}", "a plan written by this version")])
        with np.errstate(all="ignore"):
            return next(iter(function({**self.leaves, **inputs}).values()))

    def _plain_table(self) -> Array:
        shape = (self.counts.size, self.contexts.size)
        found = self.exact(PLAIN, group_batch=self.counts[:, None], context=self.contexts[None, :])
        return np.ascontiguousarray(np.broadcast_to(found, shape))

    def _full_table(self) -> Array:
        counts = np.maximum(self.counts, ALMOST_NONE)[:, None, None, None]
        prompts = self.prompts[None, None, :, None]
        found = self.exact(
            self.full_name, group_batch=counts, context=self.contexts[None, :, None, None], prefill_carried=prompts,
            prompt_keys=self.keys[None, None, None, :], prompt_computed=prompts, images_full=self.images * prompts,
        )  # fmt: skip
        shape = (self.counts.size, self.contexts.size, self.prompts.size, self.keys.size)
        return np.ascontiguousarray(np.broadcast_to(found, shape))

    def plain(self, sequences: int, context: float) -> float:
        """Return the time of a step of decode tokens alone [s]."""
        row = self.plain_rows.get(sequences)
        if row is None:
            row = self.plain_rows[sequences] = _between(self.counts, self.plain_table, sequences).tolist()
        at, share = _place(self.context_grid, context)
        low = row[at]
        return low + share * (row[at + 1] - low)

    def full(self, sequences: int, context: float, prompt: float, keys: float) -> float:
        """Return the time of a step that also carries `prompt` prompt tokens, each seeing `keys` keys on average [s]."""
        row = self.full_rows.get(sequences)
        if row is None:
            row = self.full_rows[sequences] = _between(self.counts, self.full_table, sequences).tolist()
        c, cs = _place(self.context_grid, context)
        p, ps = _place(self.prompt_grid, prompt)
        k, ks = _place(self.key_grid, keys)
        sides = []
        for table in (row[c], row[c + 1]):
            low, high = table[p], table[p + 1]
            a = low[k] + ks * (low[k + 1] - low[k])
            b = high[k] + ks * (high[k + 1] - high[k])
            sides.append(a + ps * (b - a))
        return sides[0] + cs * (sides[1] - sides[0])

    def prompt(self, computed: Array, keys: Array, chunk: float) -> Array:
        """Return the time that prompts of `computed` tokens keep a prefill group: passes of a chunk [s]."""
        carried = np.minimum(computed, chunk)
        given = {"prefill_carried": carried, "prompt_keys": keys, "prompt_computed": computed}
        once = np.asarray(self.exact(self.prompt_name, **given, images_prompt=self.images * carried))
        return np.asarray(np.broadcast_to(once, computed.shape) * np.maximum(1.0, computed / chunk))


def _counts(most: int) -> Array:
    """Return 0, every count up to 16, then steps of about 12% up to `most`."""
    grid = [0.0, *map(float, range(1, min(most, 16) + 1))]
    while grid[-1] < most:
        grid.append(min(float(most), float(np.ceil(grid[-1] * 1.12))))
    return np.array(grid)


def _geometric(low: float, high: float, factor: float) -> Array:
    steps = int(np.ceil(np.log(high / low) / np.log(factor)))
    return np.asarray(low * (high / low) ** (np.arange(steps + 1) / max(steps, 1)))


def _place(grid: Sequence[float], value: float) -> tuple[int, float]:
    """Return the cell of a grid that holds a value and how far into it; outside, the end cell is extended."""
    at = min(max(bisect_right(grid, value) - 1, 0), len(grid) - 2)
    return at, (value - grid[at]) / (grid[at + 1] - grid[at])


def _between(grid: Array, table: Array, value: float) -> Array:
    """Return the table interpolated along its first axis."""
    at, share = _place(grid.tolist(), value)
    return np.asarray(table[at] + share * (table[at + 1] - table[at]))
