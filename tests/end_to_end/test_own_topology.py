"""A topology of the user's own bounds what can stand on it."""

from tokenmill import api
from tokenmill.catalog import load_catalog
from tokenmill.imports.topology import write_topology
from tokenmill.reading import load_problem
from tokenmill.topology import graph_of

FILE = """
objective = {{ minimise = "time" }}
[hardware]
systems = ["hgx-h100"]
topology = "net.json"
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2/h"
[[workload]]
name = "train"
stage = "pretraining"
model = "llama-3.2-1b"
tokens = 1e10
sequence_length = 2048
global_batch = 512
[workload.layout]
chips = {chips}
"""


def test_a_layout_larger_than_the_topology_is_refused_by_name(tmp_path):
    write_topology(graph_of(load_catalog().system("hgx-h100"), None, 16), tmp_path / "net.json")
    (tmp_path / "fits.toml").write_text(FILE.format(chips=16))
    (tmp_path / "over.toml").write_text(FILE.format(chips=64))
    assert api.solve(load_problem(tmp_path / "fits.toml")).status == "optimal"
    plan = api.solve(load_problem(tmp_path / "over.toml"))
    assert plan.status == "infeasible"
    assert any("machine" in short.limit and "topology" in short.key for short in plan.infeasible)
