"""Constants of runs of several pools: found again from runs made with them, on halves that do not know each other."""

import numpy as np
import pytest

from tokenmill import calibration_runs as fits
from tokenmill.calibration_runs import CONSTANTS, Observed, fit_runs, leaves_of
from tokenmill.efficiency import residuals
from tokenmill.validate_runs import Held

TRUE = {one.name: 1.5 * one.start if one.high > 1 else 0.5 * one.start for one in CONSTANTS}


class Symbol:
    """A stand-in for a symbol of a formula."""

    def __init__(self, name: str) -> None:
        self.name = name


def held(work: float, write: float, experts: float, sent: float, tensors: float, root: bool) -> Held:
    """A step is its writing, its training of experts and an overhead; a transfer its start, its bytes and its tensors."""

    def compiled(values):
        prefix = "engine_sync_root_" if root else "engine_sync_"
        step = values["engine_step_overhead"] + work + write / values["engine_write_share"]
        sync = values["engine_sync_start"] + sent / values[f"{prefix}share"] + tensors * values[f"{prefix}tensor"]
        return {"step": step + experts / values["engine_train_share_experts"], "sync": sync}

    wanted = {"step_time": Symbol("step"), "weight_sync_time": Symbol("sync")}
    return Held(compiled, wanted, dict.fromkeys(leaves_of(TRUE), 1.0), (), {})


def observed(seed: int, spoil: float = 1.0) -> Observed:
    draw = np.random.default_rng(seed)
    runs = [
        held(*(draw.uniform(0.0, 60.0, 3) * [1, 1, k % 2]), draw.uniform(0, 0.5), draw.uniform(0, 5e4), k % 4 < 2)
        for k in range(40)
    ]
    figures = tuple("step_time" if k % 8 < 4 else "weight_sync_time" for k in range(40))
    values = np.array([run.figures(leaves_of(TRUE))[name] for run, name in zip(runs, figures, strict=True)])
    even = np.arange(40) // 8 % 2 == 0
    return Observed(tuple(runs), figures, np.where(even, values, spoil * values), np.arange(40).astype(str), even)


def test_constants_are_found_again() -> None:
    found = fit_runs(observed(0), np.ones(40, bool))
    for name, value in TRUE.items():
        assert found[name] == pytest.approx(value, rel=0.15), name


def test_a_half_knows_nothing_of_the_other() -> None:
    plain, spoilt = observed(1), observed(1, spoil=3.0)
    assert fit_runs(plain, plain.even) == pytest.approx(fit_runs(spoilt, spoilt.even))


def test_runs_of_one_group_count_as_one() -> None:
    found = observed(2)
    alike = Observed(found.held, found.figures, found.values, np.array(["a"] * 30 + ["b"] * 10), found.even)
    weights = alike.weights(np.ones(40, bool))
    assert (weights[:30] ** 2).sum() == pytest.approx(1.0)
    assert (weights[30:] ** 2).sum() == pytest.approx(1.0)


def test_constants_reach_the_parts_of_a_run() -> None:
    part = Held(
        lambda values: {"port": 2 * values["engine_write_share"]},
        {"port": Symbol("port")},
        {"engine_write_share": 1.0},
        (),
        {},
    )
    whole = Held(
        lambda values: {"sum": 1 + values["of_part"]},
        {"step_time": Symbol("sum")},
        {},
        (("of_part", "rollout", "port"),),
        {"rollout": part},
    )
    assert whole.figures({})["step_time"] == 3.0
    assert whole.figures({"engine_write_share": 4.0})["step_time"] == 9.0


def test_the_shipped_halves_hold_every_constant_and_plans_their_residuals() -> None:
    for fold in ("even", "odd"):
        assert set(fits.fold_leaves(fold)) == set(leaves_of(TRUE))
    low, high = next(
        v
        for (_, figure, evidence, _), v in residuals().items()
        if figure == "step_time" and evidence == fits.RUN_OF_PARTS
    )
    assert low < 0 < high
