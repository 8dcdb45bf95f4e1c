"""A network changes the answer of a training problem in the direction that it must."""

from dataclasses import replace

import pytest

from tokenmill import api
from tokenmill.candidates import search as searching
from tokenmill.reading import load_problem

FILE = """
objective = {{ minimise = "time" }}
[hardware]
systems = ["{system}"]
{hardware}
[[hardware.price]]
system = "{system}"
market = "on-demand"
per_chip_hour = "$2/h"
[[workload]]
name = "train"
stage = "pretraining"
model = "llama-3.1-8b"
tokens = 1e11
sequence_length = 4096
global_batch = 512
[workload.layout]
chips = {chips}
tp = {tp}
pp = 1
cp = 1
micro_batch = 1
zero = 1
recompute = "selective"
"""


def duration(**words):
    words = {"system": "hgx-h100", "hardware": "", "chips": 256, "tp": 8} | words
    plan = api.solve(load_problem(FILE.format(**words)))
    assert plan.status == "optimal"
    return plan.workloads["train"].totals["wall_time"]


def test_an_oversubscribed_tree_takes_longer():
    full = duration(hardware='fabric = "rail-400g"')
    third = duration(hardware='fabric = "fat-tree-3to1"')
    assert third > full * 1.001


def test_a_slower_fabric_takes_longer():
    assert duration(hardware='fabric = "rail-200g"') > duration(hardware='fabric = "rail-400g"') * 1.001


@pytest.mark.parametrize(
    ("system", "change"),
    [
        ("tpu-v5p-pod", lambda machine: machine.without_wrap(0).without_wrap(1).without_wrap(2)),
        ("hgx-h100", lambda machine: machine.shared(2.0)),
    ],
    ids=["a torus loses its rings", "two jobs share the NICs"],
)
def test_a_machine_with_less_takes_longer(monkeypatch, system, change):
    words = {"system": system, "chips": 64, "tp": 4}
    before = duration(**words)
    whole = searching.machine_of

    def lesser(*arguments):
        return change(whole(*arguments))

    monkeypatch.setattr(searching, "machine_of", lesser)
    assert duration(**words) > before * 1.0001


def test_a_cut_scale_up_link_takes_longer(monkeypatch):
    whole = searching.machine_of
    before = duration()

    def slower(*arguments):
        machine = whole(*arguments)
        first = replace(machine.levels[0], bandwidth=machine.levels[0].bandwidth / 4)
        return replace(machine, levels=(first, *machine.levels[1:]))

    monkeypatch.setattr(searching, "machine_of", slower)
    assert duration() > before * 1.001
