"""Images in prompts: the encoder's work by hand, the tokens that they become, and what is refused."""

from dataclasses import replace

import pytest

import tokenmill as tm
from sample_leaves import IDEAL, dense
from serving_samples import evaluate, serving_values
from tokenmill.errors import ProblemError
from tokenmill_models.architecture import Tower
from tokenmill_models.checks import dimension_failures, route_failures
from tokenmill_models.serving import STAGE

TEXT = dense(2048, 16, 4, 128, 8192, 24, 32000)
# 4096 patches become 256 tokens; 10 layers 1000 wide, 12 h² elements each; tiles of 1024 patches
SIGHT = Tower("vision", 125_000_000, 120_000_000, tokens=256, merge=16, attention=10_000, span=1024)
SEES = replace(TEXT, towers=(SIGHT,))
WORK = 4096 * 2 * 120e6 + 2 * 2 * 4096 * 1024 * 10_000  # FLOP of an image
PLAIN = {origin.replace(".", "__"): value for origin, value in IDEAL.items() if "[" not in origin}


def staffed(arch, **values):
    given = {f"demand.{name}": value for name, value in values.items()}
    return {role.name: role for role in STAGE.staffed(arch, {}, given)}


SEEING = staffed(SEES, images_per_request=2.0)
TWO = {"input__demand__images_per_request": 2.0, "input__demand__image_tokens": 0.0}


def test_encoding_takes_its_work_at_the_16_bit_peak():
    found = evaluate(SEEING["prefill"], SEES, **TWO, **PLAIN)
    assert found["flop_image"] == pytest.approx(WORK)
    assert found["T_image"] == pytest.approx(WORK / (1e15 * 0.7))
    assert evaluate(SEEING["prefill"], SEES, **TWO, **PLAIN, axis__tp=4.0)["T_image"] == pytest.approx(
        WORK / 4 / 0.7e15
    )


def test_a_prompt_takes_its_images_and_their_tokens_longer():
    """Two images of 256 tokens beside 1000 of text: a text of 1512 tokens, and two encodings."""
    seen = evaluate(SEEING["prefill"], SEES, **TWO)
    text = evaluate(staffed(TEXT)["prefill"], TEXT, request__input_tokens=1512.0)
    assert seen["prompt_computed"] == 1512
    assert seen["prompt_time"] == pytest.approx(text["prompt_time"] + 2 * seen["T_image"])
    assert seen["kv_request"] == text["kv_request"]
    assert seen["ttft_p95"] > text["ttft_p95"]


def test_images_of_chunks_add_up_to_those_of_the_prompt():
    seen = evaluate(SEEING["prefill"], SEES, **TWO, axis__chunk=256.0)
    assert seen["images_prompt"] * 1512 / 256 == pytest.approx(2)


def test_cache_holds_the_tokens_of_images():
    found = evaluate(SEEING["mixed"], SEES, **TWO)
    assert found["context"] == 1000 + 512 + 201 / 2
    text = evaluate(staffed(TEXT)["mixed"], TEXT)
    assert found["full_share"] * found["prefill_carried"] > text["full_share"] * text["prefill_carried"]


def test_no_images_cost_nothing():
    none = {**TWO, "input__demand__images_per_request": 0.0}
    for name in ("mixed", "prefill"):
        seen, text = evaluate(SEEING[name], SEES, **none), evaluate(staffed(TEXT)[name], TEXT)
        assert seen["ttft_p95"] == pytest.approx(text["ttft_p95"])


@pytest.mark.parametrize("name", ["mixed", "prefill", "decode"])
def test_every_definition_has_its_dimension_and_two_routes_agree(name):
    values = serving_values(SEEING[name], SEES, **TWO)
    assert dimension_failures(SEEING[name].graph, values) == []
    assert route_failures(SEEING[name].graph, values) == []


def test_encoder_on_the_first_of_two_stages_holds_up_both():
    one = evaluate(SEEING["prefill"], SEES, **TWO, axis__pp=2.0)
    bare = evaluate(SEEING["prefill"], SEES, **{**TWO, "input__demand__images_per_request": 1e-9}, axis__pp=2.0)
    assert one["T_seen_prompt"] - one["T_prompt"] == pytest.approx(2 * 2 * one["T_image"])
    assert bare["T_seen_prompt"] == pytest.approx(bare["T_prompt"])


@pytest.mark.parametrize(
    ("model", "key", "word"),
    [
        ("llama-3.1-8b", "images_per_request", "no image encoder"),
        ("qwen3-vl-4b", "image_tokens", "images of any size"),
    ],
)
def test_images_that_a_model_cannot_take_are_refused_in_words(model, key, word):
    given = {
        "objective": {"minimise": "cost"},
        "hardware": {"systems": ["hgx-h100"]},
        "workload": [{
            "name": "chat", "stage": "serving", "model": model,
            "demand": {"requests_per_second": 1, "input_tokens": 500, "output_tokens": 100, "images_per_request": 1},
        }],
    }  # fmt: skip
    with pytest.raises(ProblemError) as caught:
        tm.solve(tm.load_problem(given))
    (mistake,) = caught.value.mistakes
    assert mistake.key == f"workload.chat.demand.{key}"
    assert word in mistake.found + mistake.allowed


def test_counted_encoders_of_the_catalogue_state_their_patches():
    """Gemma 3: 896 pixels in patches of 14 are 4096, pooled to 256 tokens; 27 SigLIP layers 1152 wide."""
    from tokenmill.imports.architecture import load_architecture

    (sight,) = load_architecture("gemma-3-12b-it").towers
    assert (sight.merge, sight.tokens, sight.attention) == (16, 256, 27 * 1152)
