"""A system and a network as small as the topology reads them, for its tests."""

from __future__ import annotations

from dataclasses import dataclass

GB = 1e9


@dataclass(frozen=True)
class Box:
    """A system as the catalogue describes one."""

    id: str = "box"
    chips: int = 8
    chips_per_node: int = 8
    scale_up_domain: int = 8
    topology: str = "switch"
    torus_dims: tuple[int, ...] = ()
    torus_cube: int | None = None
    link_bandwidth: float = 0.0
    scale_up: float = 0.0
    scale_out: float = 0.0
    scale_up_pair: float = 0.0
    host_link: float = 0.0
    in_switch_reduction: bool = False


@dataclass(frozen=True)
class Net:
    """A network as the catalogue describes one."""

    id: str = "net"
    kind: str = "fat-tree"
    bandwidth: float = 50 * GB
    leaf: int | None = None
    oversubscription: float = 1.0
    latency: float = 1e-6
    rails: int | None = None
