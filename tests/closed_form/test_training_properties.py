"""What must hold of every layout: no faster than the roofline, no cheaper than free, whole shares."""

from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sample_leaves import IDEAL, dense, expert
from training_samples import definitions, figures

LLAMA = dense(4096, 32, 8, 128, 14336, 32, 128256)
MOE = expert(1024, 16, 4, 64, 512, 32, 4, 1024, 9, 1, 1000)
POWERS = st.sampled_from([1, 2, 4, 8])
FLAG = st.sampled_from([0.0, 1.0])
LAYOUT = st.fixed_dictionaries(
    {"t": POWERS, "p": POWERS, "c": st.sampled_from([1, 2, 4]), "d": POWERS, "b": st.sampled_from([1, 2, 4]),
     "z": st.sampled_from([0, 1, 2, 3]), "r_f": FLAG, "sp": FLAG}
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(LAYOUT, st.sampled_from([LLAMA, MOE]))
def test_figures_are_finite_and_shares_are_whole(layout: dict[str, float], arch: object) -> None:
    found = figures(arch, **layout)  # type: ignore[arg-type]
    assert all(isfinite(value) and value >= 0 for value in found.values())
    assert sum(v for k, v in found.items() if k.startswith("share.")) == pytest.approx(found["step_time"])
    parts = sum(found[f"memory.{part}"] for part in ("weights", "gradients", "optimizer", "activations"))
    assert found["memory.allocated"] == pytest.approx(parts)
    assert found["memory.allocated"] + found["memory.reserve"] == pytest.approx(found["memory.total"])


@settings(max_examples=40, deadline=None)
@given(LAYOUT)
def test_no_layout_beats_the_roofline(layout: dict[str, float]) -> None:
    ideal = {
        **IDEAL,
        "chip.train_product_share": 1.0,
        "chip.train_attention_share": 1.0,
        "engine.vector_share": 1.0,
    }
    found = figures(LLAMA, ideal, **layout)
    assert found["mfu"] <= 1 + 1e-9
    assert found["hfu"] >= found["mfu"] * (1 - 1e-9)


@settings(max_examples=40, deadline=None)
@given(LAYOUT)
def test_sharding_more_never_takes_more_memory_for_states(layout: dict[str, float]) -> None:
    less, more = (figures(LLAMA, **{**layout, "z": zero}) for zero in (min(layout["z"], 2), min(layout["z"], 2) + 1))
    for part in ("weights", "gradients", "optimizer"):
        assert more[f"memory.{part}"] <= less[f"memory.{part}"] * (1 + 1e-12)


@settings(max_examples=30, deadline=None)
@given(LAYOUT, st.sampled_from(["chip.bandwidth", "chip.peak[compute]", "engine.overlap_data", "store.write"]))
def test_a_better_machine_is_never_slower(layout: dict[str, float], what: str) -> None:
    plain = {"chip.bandwidth": 3e12, "chip.peak[compute]": 1e15, "engine.overlap_data": 0.5, "store.write": 5e9}
    base = figures(LLAMA, {what: plain[what]}, **layout)
    better = figures(LLAMA, {what: plain[what] * 1.5}, **layout)
    assert better["wall_time"] <= base["wall_time"] * (1 + 1e-12)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]))
def test_experts_live_on_more_ranks_and_exchange_for_it(e: int, d: int) -> None:
    alone, spread = (definitions(MOE, e=degree, d=max(d, degree)) for degree in (1, e))
    assert spread["expert_elements_rank"] == pytest.approx(alone["expert_elements_rank"] / e)
    assert (spread["expert_exchange_train_1"] > 0) is (e > 1)
