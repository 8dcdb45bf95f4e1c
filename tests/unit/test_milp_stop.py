"""Ctrl-C while the solver searches: the best plan in hand, with its gap."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

CODE = """
import os, signal, threading
import numpy as np
from tokenmill.milp.highs import solve_arrays, stop_is_asked
from tokenmill.milp.rows import Linear, Programme

# many knapsacks of market-split kind: plans are found at once, proofs are not
rng = np.random.default_rng(3)
programme = Programme()
items = [programme.variable("x", n, integer=True, upper=1.0) for n in range(60)]
off = []
for row in range(6):
    weights = rng.integers(1, 100, 60)
    over, under = (programme.variable(word, row) for word in ("over", "under"))
    off += [over, under]
    left = Linear({x: float(w) for x, w in zip(items, weights)}).add(over, -1.0).add(under, 1.0)
    programme.row("half", row, left=left, sense="=", right=float(weights.sum() // 2))
threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
outcome = solve_arrays(programme.arrays(Linear(dict.fromkeys(off, 1.0))), time_limit=60.0)
print(outcome.status, outcome.limit, outcome.values is not None, stop_is_asked(), outcome.seconds < 30)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_gives_the_plan_in_hand():
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(CODE)], capture_output=True, text=True, timeout=90)
    assert done.stdout.split() == ["feasible", "interrupt", "True", "True", "True"], done.stderr
