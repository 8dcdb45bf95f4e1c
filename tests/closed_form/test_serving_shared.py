"""A replica on a share of one chip: its part of the memory, its part of the time, its part of the draw at rest."""

import pytest

from sample_leaves import dense
from serving_samples import ENGINE, evaluate, serving_values
from tokenmill_models.checks import dimension_failures, route_failures
from tokenmill_models.serving import STAGE

SMALL = dense(2048, 16, 4, 128, 8192, 24, 32000)
HOST = {name.replace(".", "__"): value for name, value in ENGINE.items()}


def staffed(held):
    return {role.name: role for role in STAGE.staffed(SMALL, {}, held)}


SHARING, WHOLE = staffed({"layout.chip_share": (1.0, 0.5)}), staffed({"layout.chip_share": (1.0,)})


def found(name, share=None, **given):
    if share is None:
        return evaluate(WHOLE[name], SMALL, **HOST, **given)
    return evaluate(SHARING[name], SMALL, axis__chip_share=share, **HOST, **given)


@pytest.mark.parametrize("name", ["mixed", "prefill", "decode"])
def test_a_whole_chip_is_what_it_was(name):
    shared, plain, compared = found(name, 1.0), found(name), 0
    for table in ("figures", "ports"):
        ours, theirs = getattr(SHARING[name], table), getattr(WHOLE[name], table)
        assert ours.keys() == theirs.keys()
        for key, symbol in theirs.items():
            if symbol.name in plain:  # the rest are leaves, which both read
                assert shared[ours[key].name] == pytest.approx(plain[symbol.name], rel=1e-12), key
                compared += 1
    assert compared > 25


def test_half_of_the_time_takes_twice_as_long():
    half, plain = found("decode", 0.5), found("decode")
    assert half["step_time"] == pytest.approx(2 * plain["step_time"])
    assert half["rate"] == pytest.approx(plain["rate"] / 2)
    assert half["ranks"] == 0.5
    assert half["tokens_per_second_per_chip"] == pytest.approx(plain["tokens_per_second_per_chip"])
    assert found("prefill", 0.25)["prompt_time"] == pytest.approx(4 * found("prefill")["prompt_time"])


def test_half_of_the_memory_holds_the_same_weights():
    """80 GB at 0.9: 36 GB for the half, less weights, activations and reserve; two such replicas hold less cache than one chip."""
    half, plain = found("decode", 0.5), found("decode")
    taken = plain["memory_weights"] + plain["memory_activations"] + plain["memory_reserve"]
    assert half["kv_room"] == pytest.approx(0.9 * 40e9 - taken)
    assert 2 * half["kv_room"] == pytest.approx(plain["kv_room"] - taken)


def test_parts_of_a_chip_draw_its_rest_once():
    """Idle 100 W of 700 W: four quarters at rest draw what the chip does, and at work, each a quarter of the time, what one replica
    draws that has the chip all the time.
    """
    for pipes in (0.0, 0.3):
        quarter, plain = found("decode", 0.25, chip__power_pipes=pipes), found("decode", chip__power_pipes=pipes)
        assert 4 * quarter["power_idle_shared"] == pytest.approx(100.0)
        assert 4 * quarter["power_shared"] == pytest.approx(plain[WHOLE["decode"].figures["power"].name])
        assert quarter["power_per_chip_shared"] == pytest.approx(4 * quarter["power_shared"])


def test_parts_of_a_chip_together_keep_the_limit_of_its_board():
    """Work that would draw more than the limit of 700 W is held to it: to 350 W in half of the time."""
    hungry = {"chip__power_base": 0.9, "chip__power_memory": 0.9}
    assert found("decode", **hungry)[WHOLE["decode"].figures["power"].name] == pytest.approx(700.0)
    assert found("decode", 0.5, **hungry)["power_shared"] == pytest.approx(350.0)


@pytest.mark.parametrize("name", ["mixed", "prefill", "decode"])
def test_every_definition_has_its_dimension_and_two_routes_agree(name):
    values = serving_values(SHARING[name], SMALL, axis__chip_share=0.5)
    assert dimension_failures(SHARING[name].graph, values) == []
    assert route_failures(SHARING[name].graph, values) == []
