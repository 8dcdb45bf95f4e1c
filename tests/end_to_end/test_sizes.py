"""Numbers of chips that waste some: GPT-3 of 175B on A100, where 5 128 = 8 x 641 divides nothing and 4 096 does."""

import itertools
import json
from functools import cache

import pytest

from tokenmill.cli import main
from tokenmill.errors import ProblemError
from tokenmill.reading import load_problem
from tokenmill.sizes import MOST, Cliff, Size, cliffs, good_sizes, size_at

CONFIG = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 12288, "n_layer": 96, "n_head": 96,
    "n_positions": 2048, "n_ctx": 2048, "vocab_size": 51200, "activation_function": "gelu_new",
}  # fmt: skip
TEXT = """
objective = { minimise = "time", workload = "pretrain" }
[hardware]
systems = ["hgx-a100-80gb"]
markets = ["on-demand"]
[[workload]]
name = "pretrain"
stage = "pretraining"
model = "gpt175.json"
tokens = 300e9
sequence_length = 2048
global_batch = 1536
optimizer = "adam"
[workload.precision]
compute = ["bf16"]
[workload.layout]
tp = 8
pp = [4, 8, 16]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sizes")
    (folder / "gpt175.json").write_text(json.dumps(CONFIG))
    (folder / "problem.toml").write_text(TEXT)
    return folder / "problem.toml"


@cache
def good(path):
    return good_sizes(load_problem(path))


def test_every_good_size_is_quicker_than_all_smaller_ones(file):
    found = good(file)
    assert len(found) >= 4
    for one, other in itertools.pairwise(found):
        assert one.chips < other.chips
        assert one.duration > other.duration
    some = found[len(found) // 2]
    assert size_at(load_problem(file), some.chips).duration == pytest.approx(some.duration)


def test_a_size_that_divides_nothing_stands_between_good_ones(file):
    (found,) = cliffs(load_problem(file), [5128])
    assert found.bad
    assert found.at.duration is None  # 641 ranks of data or of the pipeline split neither 1 536 sequences nor 96 layers
    numbers = [size.chips for size in good(file)]
    assert found.below.chips == max(n for n in numbers if n < 5128)
    assert found.above is None or found.above.chips == min(n for n in numbers if n > 5128)
    assert "5128 chips: no layout; good sizes beside it: " in found.text


def test_more_chips_that_are_no_quicker_are_said_to_be():
    slow = Cliff(Size(10, 200.0 * 86400), Size(8, 150.0 * 86400), Size(16, 90.0 * 86400))
    assert slow.bad
    assert slow.text == "10 chips: 200 days: fewer chips are as quick; good sizes beside it: 8 (150 days), 16 (90 days)"
    assert not Cliff(Size(10, 120.0 * 86400), Size(8, 150.0 * 86400), None).bad


def test_the_command_and_what_it_refuses(file, capsys):
    assert main(["sizes", str(file), "--at", "5128", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [size["chips"] for size in shown["good"]] == [size.chips for size in good(file)]
    assert shown["at"][0]["bad"] is True
    assert main(["sizes", str(file), "--at", "many"]) == 2
    with pytest.raises(ProblemError, match="at most"):
        cliffs(load_problem(file), list(range(1, MOST + 2)))
    with pytest.raises(ProblemError, match="pretrain"):
        good_sizes(load_problem(file), "chat")
