"""Topology files: what is read, what is written back, and how mistakes are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from tokenmill.errors import ImportFileError
from tokenmill.imports.topology import read_graph, read_topology, write_topology
from tokenmill.topology import machine_from

GB = 1e9
NVSWITCH_BOX = (
    """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m
"""
    + "".join(
        f"GPU{i}\t"
        + "\t".join(" X " if i == j else "NV18" for j in range(8))
        + f"\t{'PIX' if i == 0 else 'NODE' if i < 4 else 'SYS'}\t0-55\t0\n"
        for i in range(8)
    )
    + "NIC0\tPIX\tNODE\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\t X \n\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
)
FOUR_CARDS = """\
      GPU0 GPU1 GPU2 GPU3 CPU Affinity
GPU0   X   NV4  SYS  SYS  0-15
GPU1  NV4   X   SYS  SYS  0-15
GPU2  SYS  SYS   X   NV4  16-31
GPU3  SYS  SYS  NV4   X   16-31
"""


def node_link(nodes: list[dict[str, Any]], edges: list[dict[str, Any]], key: str = "edges", **more: Any) -> str:
    return json.dumps({"directed": False, "nodes": nodes, key: edges, **more})


def two_nodes(**changes: Any) -> str:
    """Two hosts of two GPUs on a switch, a NIC a GPU, one leaf."""
    nodes = [{"id": f"g{i}", "kind": "gpu"} for i in range(4)]
    nodes += [{"id": f"sw{i}", "kind": "switch"} for i in range(2)] + [{"id": f"n{i}", "kind": "nic"} for i in range(4)]
    nodes += [{"id": "leaf", "kind": "leaf"}]
    edges = [{"source": f"g{i}", "target": f"sw{i // 2}", "bandwidth": "450 GB/s", "latency": "1 us"} for i in range(4)]
    edges += [{"source": f"g{i}", "target": f"n{i}", "bandwidth": 50e9, "latency": 0} for i in range(4)]
    edges += [{"source": f"n{i}", "target": "leaf", "bandwidth": "400 Gbit/s", "latency": 2e-6} for i in range(4)]
    edges[-1] |= changes
    return node_link(nodes, edges)


def saved(tmp_path: Path, text: str, name: str = "t.json") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_node_link_json_gives_nested_domains(tmp_path: Path) -> None:
    machine = read_topology(saved(tmp_path, two_nodes()))
    assert machine.chips == 4
    assert [(level.size, level.bandwidth, level.kind) for level in machine.levels] == [
        (2, 450 * GB, "switch"),
        (4, 50 * GB, "fabric"),
    ]
    assert [level.latency for level in machine.levels] == pytest.approx([2e-6, 4e-6])


def test_slow_port_is_found_by_the_cut(tmp_path: Path) -> None:
    machine = read_topology(saved(tmp_path, two_nodes(bandwidth="100 Gbit/s")))
    # the host of the slow port sends 50 + 12.5 GB/s over two chips
    assert machine.levels[1].bandwidth == pytest.approx((50 + 12.5) / 2 * GB)


def test_parallel_edges_add_up(tmp_path: Path) -> None:
    nodes = [{"id": "a", "kind": "chip"}, {"id": "b", "kind": "chip"}]
    wire = {"source": "a", "target": "b", "bandwidth": "25 GB/s"}
    assert read_topology(saved(tmp_path, node_link(nodes, [wire] * 4, "links"))).levels[0].bandwidth == 100 * GB


def test_ring_with_coordinates_is_a_torus(tmp_path: Path) -> None:
    nodes = [{"id": i, "kind": "chip", "coordinate": [i]} for i in range(6)]
    edges = [{"source": i, "target": (i + 1) % 6, "bandwidth": 10e9} for i in range(6)]
    ring = read_topology(saved(tmp_path, node_link(nodes, edges))).levels[0]
    assert (ring.kind, ring.axes, ring.wrap, ring.bandwidth) == ("torus", (6,), (True,), 20e9)
    line = read_topology(saved(tmp_path, node_link(nodes, edges[:-1]))).levels[0]
    assert (line.kind, line.axes, line.wrap, line.bandwidth) == ("torus", (6,), (False,), 10e9)


def test_graphml_is_read_as_its_node_link_twin(tmp_path: Path) -> None:
    graph = read_graph(saved(tmp_path, two_nodes()))
    nx.write_graphml(graph, tmp_path / "t.graphml")
    assert read_topology(tmp_path / "t.graphml") == machine_from(graph)


def test_round_trip(tmp_path: Path) -> None:
    graph = read_graph(saved(tmp_path, two_nodes()))
    write_topology(graph, tmp_path / "again.json")
    again = read_graph(tmp_path / "again.json")
    assert dict(again.nodes(data=True)) == dict(graph.nodes(data=True))
    assert {(a, b): d for a, b, d in again.edges(data=True)} == {(a, b): d for a, b, d in graph.edges(data=True)}
    assert again.graph == graph.graph
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.json", "t.json"]


def test_more_tiers_than_levels_keep_the_slower(tmp_path: Path) -> None:
    """Sixteen chips joined by twos get 100, 90, 10 and 1 GB/s a chip: the two nearest become one, at the slower rate."""
    nodes = [{"id": f"c{i}", "kind": "chip"} for i in range(16)]
    edges, below = [], [f"c{i}" for i in range(16)]
    for tier, rate in enumerate((100, 90, 10, 1)):
        above = [f"t{tier}.{i}" for i in range(len(below) // 2)]
        nodes += [{"id": name, "kind": "switch"} for name in above]
        edges += [
            {"source": name, "target": above[i // 2], "bandwidth": rate * GB * 2**tier} for i, name in enumerate(below)
        ]
        below = above
    machine = read_topology(saved(tmp_path, node_link(nodes, edges)))
    assert [(level.size, level.bandwidth / GB) for level in machine.levels] == [(4, 90), (8, 10), (16, 1)]


def test_nvidia_smi_with_a_switch(tmp_path: Path) -> None:
    box = read_topology(saved(tmp_path, NVSWITCH_BOX, "topo.txt"))
    # 18 links of 25 GB/s are the 450 GB/s of an H100
    assert [(level.size, level.bandwidth, level.pair_bandwidth, level.kind) for level in box.levels] == [
        (8, 450e9, 450e9, "switch")
    ]
    assert read_topology(tmp_path / "topo.txt", nvlink=50e9).levels[0].bandwidth == 900e9


def test_nvidia_smi_with_bridged_pairs(tmp_path: Path) -> None:
    box = read_topology(saved(tmp_path, FOUR_CARDS, "topo.txt"), pcie=16e9)
    assert [(level.size, level.bandwidth, level.kind) for level in box.levels] == [
        (2, 100e9, "mesh"),
        (4, 16e9, "host"),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "no valid JSON"),
        ('{"nodes": 3, "edges": []}', "nodes: found int"),
        (node_link([{"id": "s", "kind": "switch"}], []), "no node of kind 'chip'"),
        (node_link([{"id": "a", "kind": "chp"}], []), "node 'a': found kind 'chp'"),
        (node_link([{"id": "a", "kind": "chip"}] * 2, []), "node 'a': found a second time"),
        (node_link([{"id": "a", "kind": "chip"}, {"id": "b", "kind": "chip"}], []), "2 parts that no link joins"),
        (two_nodes(target="nowhere"), "edges[11] n3 -> nowhere: found no node 'nowhere'"),
        (two_nodes(bandwidth="400 Gbit"), "edges[11] n3 -> leaf: bandwidth"),
        (two_nodes(bandwidth=-1), "bandwidth: found -1"),
        (two_nodes(bandwidth=None), "bandwidth: found None"),
        (two_nodes(latency=float("nan")), "latency: found nan"),
        (two_nodes(kind="string"), "found kind 'string'"),
        (node_link([{"id": "a", "kind": "chip", "coordinate": ["x"]}], []), "coordinate ['x']"),
        (node_link([{"id": "a", "kind": "chip"}], [], graph={"chips": 9}), "graph.chips: found 9"),
        ("hello", "no line of GPU names"),
        (FOUR_CARDS.replace("NV4  SYS", "NVX  SYS", 1), "row GPU0, column GPU1: found 'NVX'"),
        ("\n".join(FOUR_CARDS.splitlines()[:-1]), "found no row GPU3"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ImportFileError) as error:
        read_topology(saved(tmp_path, text))
    assert told in str(error.value)


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    text = node_link(
        [{"id": "a", "kind": "?"}, {"id": "b", "kind": "!"}], [{"source": "a", "target": "c", "bandwidth": 1}]
    )
    with pytest.raises(ImportFileError) as error:
        read_topology(saved(tmp_path, text))
    assert len(str(error.value).splitlines()) == 3


def test_one_way_links_are_refused(tmp_path: Path) -> None:
    nodes = [{"id": "a", "kind": "chip"}, {"id": "b", "kind": "chip"}]
    text = json.dumps({"directed": True, "nodes": nodes, "edges": [{"source": "a", "target": "b", "bandwidth": 1e9}]})
    with pytest.raises(ImportFileError, match="one way only"):
        read_topology(saved(tmp_path, text))


def test_missing_file_and_document_types_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match="no readable text"):
        read_topology(tmp_path / "nothing.json")
    with pytest.raises(ImportFileError, match="document type"):
        read_topology(saved(tmp_path, "<!DOCTYPE x><graphml/>", "t.graphml"))
