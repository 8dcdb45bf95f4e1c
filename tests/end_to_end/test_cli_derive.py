"""`derive` on the command line: every option once, its answers by hand, and mistakes in words."""

import json

import pytest

from tokenmill.cli import main

LAYERS = ["--given", "weight_bytes=80 GB", "kv_token_bytes=1e6", "context_tokens=1000", "replica_devices=8"]


def printed(capsys, *words):
    assert main(["derive", *words]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_a_limit_with_numbers(capsys):
    out = printed(
        capsys, "serving.decode_throughput", "--limit", "batch_size=inf", *LAYERS, "W=1e12", "eta_W=1", "--json"
    )
    assert json.loads(out)["value"] == pytest.approx(8000)  # 8 TB/s over a cache of 1 GB


def test_a_series_a_derivative_and_an_elasticity(capsys):
    assert "run_time_given**3/6" in printed(capsys, "reliability.survival", "--series", "run_time_given")
    assert "1/W" in printed(capsys, "roofline.ridge", "--derivative", "F")
    assert "= -1" in printed(capsys, "roofline.ridge", "--elasticity", "W")


def test_two_formulas_made_one_and_solved(capsys):
    # 6·N·D of work at an achieved rate: the peak cancels
    words = [
        "training.run_time",
        "--eliminate",
        "mfu_given",
        "--with",
        "training.flops_utilisation",
        "--for",
        "train_chips",
    ]
    out = json.loads(printed(capsys, *words, "--json"))
    assert {item["symbol"] for item in out["symbols"]} == {
        "D",
        "N_train",
        "achieved_rate",
        "flop_per_mac",
        "run_time_form",
        "train_chips",
    }


def test_the_example_of_a_chip_a_model_and_a_batch(capsys):
    words = [
        "--given",
        "chip=h100-sxm",
        "model=llama-3.1-70b",
        "batch=64",
        "context_tokens=4096",
        "replica_devices=8",
        "eta_W=1",
    ]
    out = json.loads(printed(capsys, "serving.decode_step", *words, "--json"))
    # 70.55e9 parameters of 2 bytes and 64 caches of 4096 tokens of 320 KiB, over 8 times 3.35 TB/s
    assert out["value"] == pytest.approx((70553706496 * 2 + 64 * 4096 * 327680) / (8 * 3.35e12), rel=1e-6)


def test_a_plot_in_text_and_as_numbers(capsys):
    out = printed(capsys, "roofline.ridge", "--given", "W=1e12", "--plot", "F=1e12:1e15")
    assert out.startswith("ridge against F")
    assert out.count("*") == 61
    data = json.loads(printed(capsys, "roofline.ridge", "--plot", "F=1e12:2e12", "W=1e12:2e12", "--json"))["plot"]
    assert [axis["symbol"] for axis in data["against"]] == ["F", "W"]
    assert data["values"][0][0] == pytest.approx(1.0)


def test_a_plot_as_a_picture(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "ridge.png"
    printed(capsys, "roofline.ridge", "--given", "W=1e12", "--plot", "F=1e12:1e15", "--plot-to", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_broken_assumption_is_said(capsys):
    out = printed(capsys, "queue.wait_one_server", "--given", "rho=1.5", "service=1", "arrival_cv2=1", "service_cv2=1")
    assert "not valid here: rho < 1 does not hold" in out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--limit", "F"], "--limit"),
        (["--eliminate", "F"], "--with"),
        (["--plot", "F=1:2"], "no number for W"),
        (["--elasticity", "Q"], "--elasticity"),
        (["--given", "chip=h100-sx"], "h100-sxm"),
    ],
)
def test_mistakes_are_answered_in_words(capsys, words, named):
    assert main(["derive", "roofline.ridge", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert named in captured.err
    assert "Traceback" not in captured.err
