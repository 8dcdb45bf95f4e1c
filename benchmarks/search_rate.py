"""How many training layouts a second the array search judges, every figure of those that pass, and how many rules cut."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tokenmill import api
from tokenmill.candidates.evaluate import Tally, blocks
from tokenmill.candidates.program import prepare
from tokenmill.candidates.search import WORKERS, Ask, settings_of
from tokenmill.catalog import load_catalog
from tokenmill.imports.architecture import load_architecture
from tokenmill.reading import load_problem
from tokenmill_models.stage import stages

FILE = """
[hardware]
systems = ["hgx-h100"]
[[workload]]
name = "train"
stage = "pretraining"
model = "{model}"
tokens = 3e11
sequence_length = 2048
global_batch = {batch}
[workload.layout]
zero = [0, 1, 2, 3]
shard = [0, 8, 16, 32]
micro_batch = [1, 2, 3, 4, 6, 8, 12, 16]
pp = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 64, 80]
"""


def search_rate(model: str = "llama-3.1-70b", batch: int = 1536) -> dict:
    """Return a row of the benchmark: layouts judged a second, with all figures of those that pass, on all cores."""
    problem = load_problem(_text(model, batch))
    data = api.catalog_for(problem, load_catalog())
    workload = problem.workloads[0]
    stage = stages()[workload.stage]
    ask = Ask(workload, stage, problem, data, load_architecture(model), (data.system("hgx-h100"),))
    (role,) = ask.roles.values()
    program = prepare(role)
    outputs = {**role.ports, **{f"figure.{n}": s for n, s in role.figures.items()}}
    outputs |= {f"share.{n}": s for n, s in role.shares.items()}
    settings = list(settings_of(ask, role, program, ask.systems[0]))

    needs = program.needs(outputs.values()).scalars

    def run(setting: tuple) -> Tally:
        context, grids = setting
        tally = Tally()
        leaves = {q.symbol.name: context.binder.leaf(q) for q in needs if not q.origin.startswith("axis.")}
        leaves |= context.leaves
        given = {name: leaf.value for name, leaf in leaves.items() if leaf.value is not None}
        absent = frozenset(set(leaves) - set(given))
        whole = replace(context.setting, scalars=given)
        for _ in blocks(program, grids, whole, outputs, absent, tally):
            pass
        return tally

    for setting in settings:
        run(setting)
    start = time.perf_counter()
    with ThreadPoolExecutor(WORKERS) as workers:
        tallies = list(workers.map(run, settings))
    seconds = time.perf_counter() - start
    evaluated = sum(tally.evaluated for tally in tallies)
    cut = sum(sum(tally.count.values()) for tally in tallies)
    peer = _numpy_rate()
    return {
        "name": f"layouts judged a second, {model}, {len(outputs)} figures of those that pass",
        "value": evaluated / seconds,
        "unit": "1/s",
        "size": f"{evaluated} judged, {cut} failed a rule, {(evaluated - cut) / seconds:.3g} passed a second",
        "peer": "one numpy multiply-add an element, one core",
        "peer_value": peer,
        "ratio": evaluated / seconds / peer,
    }


FREE = """
[objective]
minimise = "time"
[hardware]
systems = ["hgx-a100-80gb"]
[[hardware.price]]
system = "hgx-a100-80gb"
market = "on-demand"
per_chip_hour = "$2/h"
[[workload]]
name = "train"
stage = "pretraining"
model = "gpt3.json"
tokens = 3e11
sequence_length = 2048
global_batch = {batch}
[workload.layout]
chips = {chips}
zero = [0, 1, 2, 3]
order = ["tp-cp-ep-pp-dp", "tp-cp-ep-dp-pp"]
sequence_parallel = [true, false]
recompute = ["none", "selective", "full"]
schedule = ["1f1b", "interleaved", "zero-bubble"]
shard = [0, 8, 16, 32]
"""
GPT3 = {"model_type": "gpt2", "n_layer": 96, "n_embd": 12288, "n_head": 96, "n_inner": 49152, "vocab_size": 51200,
        "n_positions": 2048, "n_ctx": 2048}  # fmt: skip


def free_search(chips: int, batch: int = 1536) -> dict:
    """Return a row of the benchmark: seconds of a whole answer for GPT-3 175B on `chips` A100 with every degree and choice free."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "gpt3.json").write_text(json.dumps(GPT3), encoding="utf-8")
        path = Path(folder) / "free.toml"
        path.write_text(FREE.format(chips=chips, batch=batch), encoding="utf-8")
        problem = load_problem(path)
        start = time.perf_counter()
        plan = api.solve(problem)
        seconds = time.perf_counter() - start
    (pool,) = plan.to_dict()["workloads"]["train"]["pools"]
    peer = 1 / _numpy_rate() * 1e9
    found = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in pool["layout"].items())
    return {"name": f"free search, GPT-3 175B on {chips} A100", "value": seconds, "unit": "s", "size": found,
            "peer": "1e9 numpy multiply-adds, one core", "peer_value": peer, "ratio": seconds / peer}  # fmt: skip


def _text(model: str, batch: int) -> str:
    return FILE.format(model=model, batch=batch)


def _numpy_rate() -> float:
    x = np.ones(1 << 14)
    start = time.perf_counter()
    for _ in range(2000):
        x * 1.5 + x
    return 2000 * x.size / (time.perf_counter() - start)


if __name__ == "__main__":
    for row in (search_rate(), *(free_search(chips) for chips in (3072, 4096))):
        for key, value in row.items():
            print(f"{key}: {value}")
