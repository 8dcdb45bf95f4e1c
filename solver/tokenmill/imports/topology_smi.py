"""Reads the matrix that ``nvidia-smi topo -m`` prints: who reaches whom over NVLink, a PCIe switch, a host, or both sockets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tokenmill.errors import ImportFileError
from tokenmill.topology import default_latency, default_rate

if TYPE_CHECKING:
    import networkx as nx

    Graph = nx.DiGraph[str]

PATHS = (("PIX", "PXB"), ("PHB", "NODE"), ("SYS",))
"""Words of the matrix by what joins the two: a PCIe switch, a host bridge of one socket, the sockets' own link."""

MOST_LINKS = 18
"""NVLinks of one chip up to NVLink 5: more of them over all peers means that a switch is between."""

Matrix = dict[tuple[str, str], str]


def graph_from_smi(
    text: str, *, nvlink: float | None = None, pcie: float | None = None, place: str = "topo -m"
) -> Graph:
    """Return the digraph of a printed matrix.

    Parameters
    ----------
    nvlink, pcie : B/s one direction of one NVLink, and of the link of a card or PCIe switch (the text has no rates).
    place : how the text is called in errors.

    Raises
    ------
    ImportFileError
        Naming the row and the word that cannot be read.
    """
    import networkx as nx

    names, matrix = _matrix(text, place)
    graph: Graph = nx.DiGraph()
    for name in names:
        graph.add_node(name, kind="chip" if name.startswith("GPU") else "nic")
    graph.graph["chips"] = sum(name.startswith("GPU") for name in names)
    _add_nvlinks(graph, names, matrix, default_rate("nvlink") if nvlink is None else nvlink)
    _add_pcie(graph, names, matrix, default_rate("pcie") if pcie is None else pcie)
    return graph


def _matrix(text: str, place: str) -> tuple[list[str], Matrix]:
    """Return the names of GPUs and NICs, and the word for each pair."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in text.splitlines()]
    names: list[str] = next((_devices(words) for words in lines if words and re.fullmatch(r"GPU\d+", words[0])), [])
    if not names:
        raise ImportFileError(
            f"{place}: found no line of GPU names; allowed: JSON, GraphML, or the text of nvidia-smi topo -m"
        )
    allowed = {word for group in PATHS for word in group} | {"X"}
    rows = [words for words in lines if words and words[0] in names and not (len(words) > 1 and words[1] in names)]
    matrix: Matrix = {}
    for row, *words in rows:
        if len(words) < len(names):
            raise ImportFileError(
                f"{place}: row {row}: found {len(words)} words; allowed: one for each of {', '.join(names)}"
            )
        for column, word in zip(names, words, strict=False):
            if word not in allowed and not re.fullmatch(r"NV\d+", word):
                raise ImportFileError(
                    f"{place}: row {row}, column {column}: found {word!r}; allowed: {', '.join(sorted(allowed))}, NV<n>"
                )
            matrix[row, column] = word
    missing = [name for name in names if (name, names[0]) not in matrix]
    if missing:
        raise ImportFileError(f"{place}: found no row {missing[0]}; allowed: one for each of {', '.join(names)}")
    return names, matrix


def _devices(words: list[str]) -> list[str]:
    """Return the device columns at the start of the heading."""
    names = []
    for word in words:
        if not re.fullmatch(r"GPU\d+|NIC\d+|mlx\w+", word):
            break
        names.append(word)
    return names


def _add_nvlinks(graph: Graph, names: list[str], matrix: Matrix, rate: float) -> None:
    """Add NVLinks: wires between chips, or a switch where a chip would need more links than it has."""
    for chip in names:
        links = {peer: int(matrix[chip, peer][2:]) for peer in names if matrix[chip, peer].startswith("NV")}
        switched = sum(links.values()) > MOST_LINKS
        if switched and "nvswitch" not in graph:
            graph.add_node("nvswitch", kind="switch")
        if switched:
            _both(graph, chip, "nvswitch", max(links.values()) * rate, default_latency("switch") / 2, "scale-up")
        else:
            for peer, count in links.items():
                _both(graph, chip, peer, count * rate, default_latency("mesh"), "scale-up")


def _add_pcie(graph: Graph, names: list[str], matrix: Matrix, rate: float) -> None:
    """Add the tree of PCIe switches, sockets and the link between sockets, each uplink at the rate of one card."""
    import networkx as nx

    half = default_latency("host") / 2
    joined = nx.utils.UnionFind(names)
    tops: dict[str, str] = {name: name for name in names}
    for tier, words in enumerate(PATHS):
        for (a, b), word in matrix.items():
            if word in words:
                joined.union(a, b)
        for number, part in enumerate(sorted(sorted(part) for part in joined.to_sets())):
            below = sorted({tops[name] for name in part})
            if len(below) > 1:
                bridge = f"{('pcie', 'socket', 'host')[tier]}{number}"
                graph.add_node(bridge, kind="host")
                for top in below:
                    _both(graph, top, bridge, rate, half, "host")
                tops |= dict.fromkeys(part, bridge)


def _both(graph: Graph, a: str, b: str, bandwidth: float, latency: float, kind: str) -> None:
    """Add a link in both directions."""
    for ends in ((a, b), (b, a)):
        graph.add_edge(*ends, bandwidth=bandwidth, latency=latency, kind=kind)
