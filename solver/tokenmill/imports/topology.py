"""Reads and writes topologies: node-link JSON, GraphML, and the text of ``nvidia-smi topo -m``.

In a file, a node has an ``id`` and a ``kind`` (one of KINDS, or a name in ALIASES); an edge has ``source``, ``target``, ``bandwidth`` (B/s one direction, or
text with its unit) and, optionally, ``latency`` (s, or text) and ``kind`` (``scale-up``, ``host``, ``scale-out``, ``wan``). An
undirected graph has every edge both ways; parallel edges add up. Chips may have a ``coordinate`` (on a torus), switches
``reduces`` (they add up what passes). Chips are ranks in the order of the file.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.errors import ImportFileError, nearest
from tokenmill.imports.files import check_file
from tokenmill.imports.topology_smi import graph_from_smi
from tokenmill.topology import Machine, default_latency, machine_from
from tokenmill.units import QuantityError, parse_quantity

if TYPE_CHECKING:
    import networkx as nx

    Graph = nx.DiGraph[str]

KINDS = ("chip", "switch", "nic", "host", "leaf", "spine", "router", "storage", "site")
ALIASES = {
    "gpu": "chip",
    "tpu": "chip",
    "accelerator": "chip",
    "nvswitch": "switch",
    "cpu": "host",
    "node": "host",
    "store": "storage",
}
EDGE_KINDS = ("scale-up", "host", "scale-out", "wan")
LARGEST_FILE = 64 * 2**20  # bytes: some 100 000 nodes
MOST_TOLD = 20


def read_topology(path: str | Path, *, nvlink: float | None = None, pcie: float | None = None) -> Machine:
    """Return the machine of a topology file, its levels found from cuts of its graph.

    Parameters
    ----------
    nvlink, pcie : B/s one direction of one link, for ``nvidia-smi`` text, which prints no rates.

    Raises
    ------
    ImportFileError
        Naming every node and edge that cannot be used.
    """
    graph = read_graph(path, nvlink=nvlink, pcie=pcie)
    try:
        return machine_from(graph)
    except ValueError as error:
        raise ImportFileError(f"{path}: {error}") from None


def read_graph(path: str | Path, *, nvlink: float | None = None, pcie: float | None = None) -> Graph:
    """Return the checked digraph of a topology file (see `read_topology`)."""
    path = Path(path)
    try:
        check_file(path, LARGEST_FILE)
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ImportFileError(f"{path}: found no readable text ({error}); allowed: a topology file") from None
    if path.suffix.lower() in (".graphml", ".xml"):
        nodes, edges, directed, about = _graphml(path, text)
    elif text.lstrip().startswith("{"):
        nodes, edges, directed, about = _node_link(path, text)
    else:
        return graph_from_smi(text, nvlink=nvlink, pcie=pcie, place=str(path))
    return _checked(path, nodes, edges, directed=directed, about=about)


def write_topology(graph: Graph, path: str | Path) -> None:
    """Write a graph as node-link JSON that `read_graph` reads back as the same graph."""
    path = Path(path)
    nodes = [{"id": node, **graph.nodes[node]} for node in graph]
    edges = [{"source": a, "target": b, **graph.edges[a, b]} for a, b in graph.edges]
    document = {"directed": True, "multigraph": False, "graph": dict(graph.graph), "nodes": nodes, "edges": edges}
    aside = path.with_name(path.name + ".part")
    aside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    os.replace(aside, path)


Rows = list[dict[str, Any]]


def _node_link(path: Path, text: str) -> tuple[Rows, Rows, bool, Mapping[str, Any]]:
    """Return node rows, edge rows, whether directed, and graph attributes of node-link JSON (``edges`` or ``links``)."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ImportFileError(f"{path}: found no valid JSON ({error}); allowed: a node-link graph") from None
    nodes, edges = document.get("nodes"), document.get("edges", document.get("links"))
    for key, rows in (("nodes", nodes), ("edges", edges)):
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ImportFileError(f"{path}: {key}: found {type(rows).__name__}; allowed: a list of objects")
    about = document.get("graph", {})
    return nodes, edges, bool(document.get("directed", False)), about if isinstance(about, dict) else {}


def _graphml(path: Path, text: str) -> tuple[Rows, Rows, bool, Mapping[str, Any]]:
    """Return the same of GraphML; a ``coordinate`` is text there, as in ``0,1,2``."""
    import networkx as nx

    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ImportFileError(f"{path}: found a document type; allowed: GraphML without one")
    try:
        graph: nx.Graph[str] = nx.parse_graphml(text)
    except (nx.NetworkXError, SyntaxError, ValueError, KeyError) as error:
        raise ImportFileError(f"{path}: found no valid GraphML ({error}); allowed: one graph") from None
    nodes: Rows = [{**graph.nodes[node], "id": node} for node in graph]
    edges: Rows = [{**attributes, "source": a, "target": b} for a, b, attributes in graph.edges(data=True)]
    for row in nodes:
        if isinstance(row.get("coordinate"), str):
            row["coordinate"] = [int(x) if x.strip().isdecimal() else x for x in row["coordinate"].split(",")]
    return nodes, edges, graph.is_directed(), graph.graph


def _checked(path: Path, nodes: Rows, edges: Rows, *, directed: bool, about: Mapping[str, Any]) -> Graph:
    """Return the digraph of rows, or raise with every mistake."""
    import networkx as nx

    mistakes: list[str] = []
    graph: Graph = nx.DiGraph()
    for number, row in enumerate(nodes):
        _add_node(graph, number, row, mistakes)
    for number, row in enumerate(edges):
        _add_edge(graph, number, row, mistakes, both_ways=not directed)
    chips = sum(graph.nodes[node]["kind"] == "chip" for node in graph)
    wanted = about.get("chips", chips)
    if chips and (not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= chips):
        mistakes.append(f"graph.chips: found {wanted!r}; allowed: 1 to {chips}, the chips of the graph")
    if mistakes:
        more = [f"and {len(mistakes) - MOST_TOLD} more"] if len(mistakes) > MOST_TOLD else []
        raise ImportFileError("\n".join(f"{path}: {mistake}" for mistake in mistakes[:MOST_TOLD] + more))
    graph.graph["chips"] = wanted
    return graph


def _add_node(graph: Graph, number: int, row: Mapping[str, Any], mistakes: list[str]) -> None:
    """Add a node, or say what is wrong with it."""
    name = row.get("id")
    where = f"nodes[{number}]" if name is None else f"node {name!r}"
    if not isinstance(name, str | int) or isinstance(name, bool):
        mistakes.append(f"{where}: found id {name!r}; allowed: a name or number")
        return
    if str(name) in graph:
        mistakes.append(f"{where}: found a second time; allowed: once")
    said = str(row.get("kind", row.get("type", ""))).lower()
    kind = ALIASES.get(said, said)
    if kind not in KINDS:
        hint = nearest(kind, KINDS)
        mistakes.append(
            f"{where}: found kind {said!r}; allowed: {', '.join(KINDS)}"
            + (f" (did you mean {hint!r}?)" if hint else "")
        )
        kind = "switch"
    kept: dict[str, Any] = {"kind": kind}
    place = row.get("coordinate")
    if place is not None:
        if not isinstance(place, list) or not all(isinstance(x, int) and 0 <= x < 2**31 for x in place):
            mistakes.append(f"{where}: found coordinate {place!r}; allowed: a list of counts from 0")
        kept["coordinate"] = place
    if row.get("reduces"):
        kept["reduces"] = True
    graph.add_node(str(name), **kept)


def _add_edge(graph: Graph, number: int, row: Mapping[str, Any], mistakes: list[str], *, both_ways: bool) -> None:
    """Add an edge, in both directions if asked, or say what is wrong with it."""
    a, b = str(row.get("source")), str(row.get("target"))
    where = f"edges[{number}] {a} -> {b}"
    unknown = [end for end in (a, b) if end not in graph]
    if unknown or a == b:
        mistakes.append(
            f"{where}: found {f'no node {unknown[0]!r}' if unknown else 'a loop'}; allowed: two nodes of the graph"
        )
        return
    kind = row.get("kind", _edge_kind({graph.nodes[a]["kind"], graph.nodes[b]["kind"]}))
    if kind not in EDGE_KINDS:
        mistakes.append(f"{where}: found kind {kind!r}; allowed: {', '.join(EDGE_KINDS)}")
        return
    bandwidth = _figure(where, "bandwidth", row.get("bandwidth"), "B/s", mistakes)
    latency = _default_latency(graph, a, b, kind)
    if row.get("latency") is not None:
        latency = _figure(where, "latency", row["latency"], "s", mistakes, zero=True)
    for ends in ((a, b), (b, a)) if both_ways else ((a, b),):
        sofar = graph.edges[ends]["bandwidth"] if graph.has_edge(*ends) else 0.0
        graph.add_edge(*ends, bandwidth=sofar + bandwidth, latency=latency, kind=kind)


def _figure(where: str, key: str, given: Any, dimension: str, mistakes: list[str], *, zero: bool = False) -> float:
    """Return an SI figure given as a number or as text with its unit, or say what is wrong with it."""
    example = (
        "a positive number (B/s) or text as '400 Gbit/s'" if dimension == "B/s" else "a number (s) or text as '2 us'"
    )
    value = math.nan
    if isinstance(given, str):
        try:
            value = parse_quantity(given, dimension)
        except QuantityError as error:
            mistakes.append(f"{where}: {key}: {error}")
            return 1.0
    elif isinstance(given, int | float) and not isinstance(given, bool):
        value = float(given)
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        mistakes.append(f"{where}: {key}: found {given!r}; allowed: {example}")
        return 1.0
    return value


def _edge_kind(ends: Iterable[str]) -> str:
    """Return the kind of a link from what it joins."""
    kinds = set(ends)
    if "site" in kinds:
        return "wan"
    if kinds & {"nic", "leaf", "spine"}:
        return "scale-out"
    return "host" if kinds & {"host", "storage"} else "scale-up"


def _default_latency(graph: Graph, a: str, b: str, kind: str) -> float:
    """Return s of a link whose file gives none: chip to chip a whole step of its kind, else half (up and down make one)."""
    direct = graph.nodes[a]["kind"] == graph.nodes[b]["kind"] == "chip"
    step = default_latency({"scale-up": "mesh" if direct else "switch", "scale-out": "fabric"}.get(kind, kind))
    return step if direct else step / 2
