"""The version that a file names takes the constants of the nearest fitted one."""

import pytest

from tokenmill.efficiency import engine_figure, engine_version


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [("vllm", "0.11.1", "vllm 0.11"), ("vllm", "v0.12", "vllm 0.11"), ("vllm", "0.24.0", "vllm"), ("vllm", "", "vllm"),
     ("vllm", "nightly", "vllm"), ("sglang", "0.5.9", "sglang"), ("unheard-of", "1.0", "unheard-of")],
)  # fmt: skip
def test_the_nearest_fitted_version_is_used(name, version, expected):
    assert engine_version(name, version) == expected


def test_a_version_inherits_what_it_does_not_state():
    assert engine_figure("vllm 0.11", "request") == engine_figure("vllm", "request")
    assert engine_figure("vllm 0.11", "sequence").value > engine_figure("vllm", "sequence").value
