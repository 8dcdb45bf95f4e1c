"""Checkpoints and failures against simulation and against the optimum found by search."""

import random

import numpy as np
import pytest

from sample_leaves import dense
from tokenmill_models.compile import exact
from tokenmill_models.reliability import DALY_INTERVAL, GOODPUT, YOUNG_INTERVAL, daly, expected_goodput
from training_samples import figures

LLAMA = dense(4096, 32, 8, 128, 14336, 32, 128256)


def goodput(tau: float, write: float, restart: float, mtbf: float) -> float:
    return float(exact(expected_goodput(tau, write, restart, mtbf), {}))


def simulated(tau: float, write: float, restart: float, mtbf: float, segments: int, seed: int) -> float:
    """Work in segments of tau and a write; a failure at any time loses the segment, a restart may fail as well."""
    draw = random.Random(seed)
    clock, failure = 0.0, draw.expovariate(1 / mtbf)
    for _ in range(segments):
        need = tau + write
        while failure < clock + need:
            clock = failure
            failure = clock + draw.expovariate(1 / mtbf)
            need = restart + tau + write
        clock += need
    return segments * tau / clock


@pytest.mark.parametrize(
    ("tau", "write", "restart"), [(3000.0, 900.0, 600.0), (1000.0, 50.0, 300.0), (8000.0, 100.0, 0.0)]
)
def test_goodput_is_that_of_the_simulated_run(tau: float, write: float, restart: float) -> None:
    found = simulated(tau, write, restart, 11160.0, 40_000, seed=1)
    assert goodput(tau, write, restart, 11160.0) == pytest.approx(found, rel=0.01)


@pytest.mark.parametrize("write", [5.0, 100.0, 900.0, 3000.0])
def test_daly_interval_is_close_to_the_best(write: float) -> None:
    grid = np.geomspace(50, 50_000, 2000)
    best = max(goodput(float(tau), write, 600.0, 11160.0) for tau in grid[::10])
    chosen = float(exact(daly(write, 11160.0), {}))
    assert goodput(chosen, write, 600.0, 11160.0) >= best * 0.998


def test_young_is_the_limit_of_daly() -> None:
    delta, mtbf = sorted(YOUNG_INTERVAL.expr.free_symbols, key=str)[::-1]
    assert {delta.name, mtbf.name} == {"delta_write", "MTBF"}
    for formula in (YOUNG_INTERVAL, DALY_INTERVAL):
        assert float(exact(formula.expr, {delta: 1e-3, mtbf: 1e6})) == pytest.approx((2e3) ** 0.5, rel=1e-4)
    assert GOODPUT.symbol.name == "goodput_sync"


def test_the_run_writes_its_states_to_the_store() -> None:
    found = figures(LLAMA, d=64)
    # 14 B a parameter (weights, master copy, moments), 8 nodes of 5e9 B/s
    assert found["checkpoint_bytes"] == pytest.approx(14 * LLAMA.parameters.total)
    assert found["checkpoint_write"] == pytest.approx(found["checkpoint_bytes"] / 40e9)
    assert found["steps"] == np.ceil(1e12 / (1024 * 4096))
    assert found["wall_time"] == pytest.approx(found["steps"] * found["step_time"] / found["goodput"])


def test_writing_in_the_background_loses_less() -> None:
    origins = {"chip.failure_rate": 1e-6, "store.write": 1e9}
    sync, background = (figures(LLAMA, origins, d=64, k_a=flag) for flag in (0.0, 1.0))
    assert background["goodput"] > sync["goodput"]
    assert background["checkpoint_interval"] >= background["checkpoint_write"]


def test_a_held_interval_is_kept() -> None:
    assert figures(LLAMA, {"input.checkpoint.interval": 1234.0}, d=8)["checkpoint_interval"] == 1234
