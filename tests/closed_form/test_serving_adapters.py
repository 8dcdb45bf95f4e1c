"""Low-rank adapters on a serving pool: elements, memory and time by hand."""

import pytest

from sample_leaves import IDEAL, dense
from serving_samples import evaluate, serving_values
from tokenmill.imports.architecture import load_architecture
from tokenmill_models.checks import dimension_failures, route_failures
from tokenmill_models.serving import STAGE

SMALL = dense(2048, 16, 4, 128, 8192, 24, 32000)
PLAIN = {origin.replace(".", "__"): value for origin, value in IDEAL.items() if "[" not in origin}
# rank times inputs and outputs: q, k, v, o, then gate, up, down
ELEMENTS = 16 * 24 * ((2048 + 2048) * 2 + (2048 + 512) * 2 + (2048 + 8192) * 3)


def staffed(arch, count):
    return {role.name: role for role in STAGE.staffed(arch, {}, {"adapters.count": count})}


HOLDS, BARE = staffed(SMALL, 40.0), staffed(SMALL, 0.0)


def found(roles=HOLDS, name="decode", count=40.0, **given):
    values = {"input__adapters__count": count, "input__adapters__rank": 16.0} if roles is HOLDS else {}
    return evaluate(roles[name], SMALL, **values, **PLAIN, **given)


@pytest.mark.parametrize(("model", "elements"), [("llama-3.1-8b", 41_943_040), ("llama-3.1-70b", 207_093_760)])
def test_an_adapter_has_the_parameters_that_training_tools_print_at_rank_16(model, elements):
    """What training with rank 16 on all linear products reports as trainable for these two models."""
    arch = load_architecture(model)
    (role,) = [role for role in STAGE.staffed(arch, {}, {"adapters.count": 1.0}) if role.name == "decode"]
    values = {"input__adapters__count": 1.0, "input__adapters__rank": 16.0, "axis__tp": 8.0}
    assert evaluate(role, arch, **values)["adapter_elements"] == elements


def test_memory_holds_every_adapter_in_16_bits():
    assert found()["memory_weights"] - found(BARE)["memory_weights"] == 40 * ELEMENTS * 2
    four = (
        found(axis__tp=2.0, axis__pp=2.0)["memory_weights"] - found(BARE, axis__tp=2.0, axis__pp=2.0)["memory_weights"]
    )
    assert four == 40 * ELEMENTS * 2 / 4
    assert found()["kv_tokens"] < found(BARE)["kv_tokens"]


def test_a_step_reads_the_distinct_adapters_of_its_sequences():
    """16 sequences that choose evenly among 40 meet 40·(1 - (39/40)^16) of them; the device reads 3e12 B/s at its share."""
    one = found()
    distinct = 40 * (1 - (39 / 40) ** 16)
    assert one["adapters_plain"] == pytest.approx(distinct)
    assert one["adapters_time_plain"] == pytest.approx(distinct * ELEMENTS * 2 / 3e12)
    assert one["step_time"] - found(BARE)["step_time"] == pytest.approx(one["adapters_time_plain"])


def test_one_adapter_for_all_is_read_once_and_every_product_has_two_more_kernels():
    one = found(count=1.0)
    assert one["adapters_plain"] == 1
    started = evaluate(HOLDS["decode"], SMALL, input__adapters__count=1.0, input__adapters__rank=16.0,
                       **{**PLAIN, "chip__launch": 2e-6})  # fmt: skip
    assert started["adapters_time_plain"] - one["adapters_time_plain"] == pytest.approx(24 * 7 * 2 * 2e-6)


def test_prompts_compute_their_adapter():
    one = found(name="prefill")
    assert one["adapters_time_prompt"] == pytest.approx(2 * 1000 * ELEMENTS / 0.7e15)
    assert one["prompt_time"] - found(BARE, "prefill")["prompt_time"] == pytest.approx(one["adapters_time_prompt"])


@pytest.mark.parametrize("name", ["mixed", "prefill", "decode"])
def test_every_definition_has_its_dimension_and_two_routes_agree(name):
    role = HOLDS[name]
    values = serving_values(role, SMALL, input__adapters__count=40.0, input__adapters__rank=16.0)
    assert dimension_failures(role.graph, values) == []
    assert route_failures(role.graph, values) == []
