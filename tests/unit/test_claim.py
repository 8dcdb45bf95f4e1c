"""Twelve announcements, each with the answer that hand calculation gives."""

from __future__ import annotations

import csv
import json

import pytest

from tokenmill import data
from tokenmill.claim import claim
from tokenmill.cli import main
from tokenmill.errors import ProblemError

FILES = sorted((data.path("problems") / "claims").glob("*.toml"))
FIVE = {"which stage", "which wall", "which metric", "against what baseline", "is it shipping"}


def answer(name):
    return claim(data.path("problems") / "claims" / f"{name}.toml")


def test_there_are_twelve_and_one_is_made_up():
    assert len(FILES) == 12
    assert [file.stem for file in FILES if claim(file).made_up] == ["one-card-70b"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_five_questions_are_answered_and_what_is_missing_is_named(file):
    found = claim(file)
    assert set(found.answers) == FIVE
    assert all(found.answers.values())
    assert found.source
    for key in found.missing:
        assert key.partition(":")[0] in (
            "hardware",
            "model",
            "precision",
            "batch",
            "context",
            "power",
            "peak",
            "baseline",
        )


def test_a_70b_model_in_16_bits_is_refused_on_one_card():
    found = answer("one-card-70b")
    assert found.within is False
    # 70.55 G parameters at 2 B, and 4096 tokens of 80 layers x 8 heads x 128 x 2 x 2 B
    assert found.bound.value == pytest.approx(70.553706496e9 * 2 + 4096 * 80 * 8 * 128 * 2 * 2, rel=1e-6)
    assert "2 or more" in found.conditions[0]


def test_half_a_million_tokens_a_second_break_the_bandwidth_of_eight_chips():
    found = answer("sohu-half-million")
    assert found.within is False
    assert found.wall == "memory_bandwidth"
    # no batch passes what the caches alone allow: 8 x 4.8 TB/s over 2048 tokens of 160 KiB (8-bit cache)
    assert found.bound.value < 8 * 4.8e12 / (2048 * 80 * 8 * 128 * 2)
    assert found.bound.value > 0.5 * 8 * 4.8e12 / (2048 * 80 * 8 * 128 * 2)
    assert any("prompt tokens" in condition for condition in found.conditions)
    assert found.maturity["known"].startswith("Etched Sohu: simulation")


def test_h200_over_h100_needs_the_larger_batch():
    found = answer("h200-twice")
    assert found.within is True
    assert found.bound.value == pytest.approx(4.8 / 3.35, rel=1e-3)
    assert set(found.missing) == {"batch", "context"}
    assert found.wall == "memory_capacity"


def test_a_gain_of_thirty_is_not_in_the_peaks():
    found = answer("gb200-thirty-times")
    assert found.within is None
    # dense NVFP4 of 10 PFLOP/s over FP8 of 1.979 PFLOP/s; 8 TB/s over 3.35 TB/s with half the bytes is less
    assert found.bound.value == pytest.approx(10e15 / 1.979e15, rel=0.01)


def test_the_price_holds_from_a_batch_that_is_not_said():
    found = answer("fifty-one-cents")
    assert found.within is True
    assert found.missing == ("batch",)
    least = int(found.conditions[0].split()[2].replace(",", ""))
    # 8 chips at the catalogue's price for the time of a step over R, with R just over and just under the least
    inputs = found.bound.inputs

    def price(batch):
        read = inputs["weights"] + batch * inputs["kv_token"] * inputs["context"]
        work = 2 * inputs["computed"] * batch
        step = max(read / (8 * inputs["bandwidth"]), work / (8 * inputs["peak"]))
        return 8 * inputs["price"] * step / batch * 1e6

    assert price(least) <= 0.51 * 1.01 + 1e-9 < price(least - 2) * 1.02
    assert price(1) > 10 * 0.51


def test_a_price_is_refused_only_below_the_cheapest_rent_on_offer():
    rows = (data.path("catalog") / "prices" / "rental.csv").read_text().splitlines()
    table = list(csv.DictReader(row for row in rows if not row.startswith("#")))
    rents = [
        float(row["usd_per_hour"]) / float(row["chips"])
        for row in table
        if row["chip"] == "h100-sxm" and row["market"] == "on-demand" and row["usd_per_hour"]
    ]
    assert answer("fifty-one-cents").bound.inputs["price"] == pytest.approx(min(rents) / 3600)
    assert min(rents) < 0.5 * max(rents)  # a median would refuse what can be had


def test_a_margin_is_checked_by_its_own_figures():
    found = answer("deepseek-margin")
    assert found.within is True
    assert found.bound.value == pytest.approx(562027 / 87072 - 1)


def test_speculation_names_the_acceptance_that_it_needs():
    found = answer("speculation-two-to-three")
    # Leviathan et al. 2022, theorem 3.8, with a draft of 1/70 of the cost: acceptance 0.55 and 0.71
    for condition, gain in zip(found.conditions, (2, 3), strict=False):
        acceptance, drafted = float(condition.split()[3]), int(condition.split(", ")[1].split()[0])
        reached = (1 - acceptance ** (drafted + 1)) / ((1 - acceptance) * (drafted / 70 + 1))
        assert reached == pytest.approx(gain, rel=0.03)


def test_fewer_bits_save_what_they_say_on_weights_alone():
    found = answer("fewer-bits")
    assert found.within is True
    assert "fp8 50%" in found.conditions[0]


def test_a_withdrawn_product_is_said_to_be():
    found = answer("rubin-cpx-peak")
    assert "withdrawn" in found.maturity["known"]
    assert found.within is None


def test_the_size_of_a_model_is_that_of_its_configuration():
    found = answer("kimi-k3-size")
    assert found.within is True
    assert "2.78 T parameters" in found.conditions[0]


def test_one_user_on_wafers_is_within_what_their_memory_gives():
    found = answer("wafer-405b")
    assert found.within is True
    assert found.bound.value > 969


def test_what_cannot_be_read_is_named(tmp_path, capsys):
    path = tmp_path / "claim.toml"
    path.write_text('[claim]\ntext = "a"\nmetric = "speed of light"\nvalue = 1\nsource = "b"\n')
    with pytest.raises(ProblemError, match=r"claim\.metric"):
        claim(path)
    path.write_text('[claim]\ntext = "a"\nmetirc = "fit"\nvalue = 1\n')
    with pytest.raises(ProblemError) as raised:
        claim(path)
    assert {m.key for m in raised.value.mistakes} == {"claim.metirc", "claim.metric", "claim.source"}
    assert main(["claim", str(tmp_path / "none.toml")]) == 2
    capsys.readouterr()


def test_the_command_prints_it(capsys):
    file = data.path("problems") / "claims" / "h200-twice.toml"
    assert main(["claim", str(file)]) == 0
    assert "what is missing?" in capsys.readouterr().out
    assert main(["claim", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["within"] is True
