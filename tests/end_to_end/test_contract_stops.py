"""Ctrl-C, numbers beyond use, and formulas that cannot be turned round: an answer in words, soon, with its exit code."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import sys
import threading
import time

import pytest

from tokenmill import api
from tokenmill.cli import main
from tokenmill.cli_output import guarded
from tokenmill.derive import derive
from tokenmill.report import html
from tokenmill.sweep import _side_by_side

CHAT = """
[hardware]
systems = ["hgx-h100"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "{price}"
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
[workload.demand]
requests_per_second = 5
input_tokens = 1000
output_tokens = 200
"""


def test_ctrl_c_without_a_plan_is_exit_code_3(tmp_path, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "solve", interrupted)
    (tmp_path / "p.toml").write_text(CHAT.format(price="$2/h"))
    assert main(["solve", str(tmp_path / "p.toml")]) == 3
    assert "stopped before there was a plan" in capsys.readouterr().err


@pytest.mark.parametrize(("place", "code"), [("evaluate_solution", 0), ("_of_cases", 3)])
def test_ctrl_c_once_the_solver_has_answered_still_gives_the_plan(place, code, tmp_path, capsys, monkeypatch):
    """The answer is in hand when its plan is made of it; before the first programme nothing is."""
    whole = getattr(api, place)

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return whole(*arguments)

    monkeypatch.setattr(api, place, interrupted)
    (tmp_path / "p.toml").write_text(CHAT.format(price="$2/h"))
    before = signal.getsignal(signal.SIGINT)
    assert main(["solve", str(tmp_path / "p.toml")]) == code
    said = capsys.readouterr()
    assert ("status optimal" in said.out) == (code == 0)
    assert ("stopped before there was a plan" in said.err) == (code == 3)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_a_plan_is_written_leaves_it_whole(tmp_path, capsys, monkeypatch):
    """A plan in hand is exit code 0, also after Ctrl-C (contract), and no file of it is missing or cut."""
    whole = html.page

    def interrupted(plan):
        os.kill(os.getpid(), signal.SIGINT)
        return whole(plan)

    monkeypatch.setattr(html, "page", interrupted)
    (tmp_path / "p.toml").write_text(CHAT.format(price="$2/h"))
    before = signal.getsignal(signal.SIGINT)
    outputs = ["--json", str(tmp_path / "p.json"), "--report", str(tmp_path / "p.html")]
    assert main(["solve", str(tmp_path / "p.toml"), *outputs]) == 0
    assert json.loads((tmp_path / "p.json").read_text())["status"] == "optimal"
    assert (tmp_path / "p.html").read_text().rstrip().endswith("</html>")
    assert "status optimal" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_ctrl_c_ends_the_processes_of_a_sweep():
    """The wait for two sleepers of five minutes ends with them."""
    timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT))
    begun = time.perf_counter()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        _side_by_side(time.sleep, [300, 300], 2)
    assert time.perf_counter() - begun < 60
    assert not multiprocessing.active_children()


def test_a_reader_that_goes_away_is_no_infeasible_plan():
    """The printer of tables ends with code 1 on a closed pipe; 1 means infeasible here."""

    def closed():
        try:
            raise BrokenPipeError
        except BrokenPipeError:
            raise SystemExit(1)  # noqa: B904

    def ended():
        raise SystemExit(2)

    assert guarded(closed, []) == 0
    assert guarded(ended, []) == 2


def test_a_title_that_the_terminal_cannot_show_is_no_defect(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert guarded(lambda: print("caf\u00e9"), []) == 0
    assert written.getvalue() == b"caf?\n"


def test_a_price_beyond_use_is_a_mistake_of_the_file(tmp_path, capsys):
    (tmp_path / "p.toml").write_text(CHAT.format(price="$1e300/h"))
    assert main(["solve", str(tmp_path / "p.toml"), "--json", "-"]) == 2
    (mistake,) = json.loads(capsys.readouterr().out)["errors"]
    assert mistake["key"] == "hardware.price[0].per_chip_hour"


@pytest.mark.parametrize("name", ["serving.speculation_limit", "serving.speculative_gain"])
def test_a_symbol_in_an_exponent_and_beside_it_is_given_up_at_once(name):
    begun = time.perf_counter()
    solved = derive(name).solve_for("drafted")
    assert "no closed form" in solved.text()
    assert time.perf_counter() - begun < 10
