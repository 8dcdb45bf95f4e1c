"""What bounds the operations of a pass is told by their compute and memory times, whatever a launch adds."""

import pytest

from sample_leaves import dense
from serving_samples import evaluate
from tokenmill_models.serving import roles

ARCH = dense(2048, 16, 4, 128, 8192, 24, 32000)
ROLES = {role.name: role for role in roles(ARCH)}


@pytest.mark.parametrize("launch", [0.0, 2e-6])
def test_long_prompts_are_bound_by_compute(launch):
    """At 4,000 tokens the products of a layer take 4,000 FLOP a byte of weights, far over the ridge of any chip."""
    found = evaluate(ROLES["prefill"], ARCH, chip__launch=launch, request__input_tokens=4000.0, axis__chunk=4000.0)
    layers = ARCH.matmul_parameters_active - 2048 * 32000  # the head sees one row
    products = 2 * 4000 * layers / 1e15
    assert found["compute_time_prompt"] > products
    assert found["compute_time_prompt"] > found["memory_time_prompt"]


@pytest.mark.parametrize("launch", [0.0, 2e-6])
def test_few_rows_are_bound_by_memory(launch):
    """At two rows a product does two FLOP for each byte of its weights."""
    found = evaluate(ROLES["decode"], ARCH, chip__launch=launch, axis__batch=2.0)
    assert found["compute_time_plain"] == 0
    assert found["memory_time_plain"] > 0
