"""The version that a file names takes the constants of the nearest fitted one."""

from math import exp

import pytest

from tokenmill.efficiency import engine_figure, engine_gain, engine_version, released_figure
from tokenmill.engine_days import months, release_pace


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [("vllm", "0.11.1", "vllm 0.11"), ("vllm", "v0.12", "vllm 0.11"), ("vllm", "0.24.0", "vllm"), ("vllm", "", "vllm"),
     ("vllm", "nightly", "vllm"), ("vllm", "2025-11-02", "vllm"), ("trtllm", "2025-10", "trtllm"), ("sglang", "0.5.9", "sglang"), ("unheard-of", "1.0", "unheard-of")],
)  # fmt: skip
def test_the_nearest_fitted_version_is_used(name, version, expected):
    assert engine_version(name, version) == expected


def test_a_version_inherits_what_it_does_not_state():
    assert engine_figure("vllm 0.11", "request") == engine_figure("vllm", "request")
    assert engine_figure("vllm 0.11", "sequence").value > engine_figure("vllm", "sequence").value


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2026-03-01", 0.0),
        ("nightly-dev-20260402-d7256eb6", 1 + 1 / 30.4),
        ("2026-02", -1 + 14 / 30.4),  # the middle of a month
        ("2025-11-02", -4 + 1 / 30.4),
        ("2024-01-01", -5.0),  # before what was measured: as its first day
        ("2027-06-01", 2.0),
        ("0.11.2", 0.0),
        ("v0.5.9", 0.0),
        ("1.0.0rc3", 0.0),
        ("", 0.0),
    ],
)
def test_the_day_of_a_build_is_read_from_its_version(version, expected):
    assert months(version) == pytest.approx(expected)


def test_a_gain_is_a_share_every_month():
    assert release_pace("2026-02-01", 0.1) == pytest.approx(exp(0.1))
    assert release_pace("2026-02-01", 0.0) == 1.0


def test_kernels_of_experts_alone_gain_from_build_to_build():
    old, new = (released_figure("sglang", "expert_pace", day).value for day in ("2025-11-01", "2026-04-01"))
    assert old / new == pytest.approx(exp(5 * engine_gain("expert_pace")))
    assert old > new
    assert released_figure("sglang", "expert_pace", "") == engine_figure("sglang", "expert_pace")
    assert released_figure("sglang", "step_graph", "2025-11-01") == engine_figure("sglang", "step_graph")
