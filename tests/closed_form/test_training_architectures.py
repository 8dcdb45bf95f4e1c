"""Training counts every make of architecture as its own tensors do: parameters on the ranks, FLOPs of a step."""

import pytest

from tokenmill.imports.architecture import load_architecture
from tokenmill_models.architecture import causal_flops_per_token
from training_samples import definitions

NAMES = (
    "deepseek-v3.2", "deepseek-v4-flash", "gpt-oss-120b", "jamba-v0.1", "mamba-2.8b", "falcon-180b", "mimo-v2-flash",
    "llama-3-3-nemotron-super-49b-v1", "gemma-3n-e4b-it", "kimi-k3",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_parameters_and_flops_are_those_of_the_tensors(name: str) -> None:
    arch = load_architecture(name)
    found = definitions(arch, z=0)
    towers = sum(tower.parameters for tower in arch.towers)
    counted = found["elements_rank"] + found.get("expert_elements_rank", 0.0)
    assert counted == pytest.approx(arch.parameters.total - towers, rel=1e-12)
    # windows next to the sequence length differ by half a key (mean_causal)
    forward = 1024 * 4096 * causal_flops_per_token(arch, 4096)
    assert found["step_model_flops"] == pytest.approx(3 * forward, rel=1e-3)
