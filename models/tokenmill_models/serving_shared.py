"""A replica on a share of one chip: several models resident side by side, each with its part of the memory and of the time.

Replicas of different workloads then stand on one chip where their parts sum to no more than it; the programme packs them.
"""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.batch_inference import rewritten
from tokenmill_models.energy import base_weight, tdp
from tokenmill_models.formula import Graph, Source, minimum
from tokenmill_models.inference import RESOURCES
from tokenmill_models.roofline import M
from tokenmill_models.stage import Axis, Role, Rule
from tokenmill_models.symbols import declare

SHARED = Source(
    "generalised processor sharing (Parekh and Gallager 1993, IEEE/ACM Trans. Networking 1): a server shared by weights gives each at least its part",
    (
        "while the others work, what takes T alone takes T over the share of the time; while they rest it is faster",
        "each process holds its own weights, cache and reserve within its part of the memory",
        "in its turns a process makes the chip draw what it would alone: what being at work draws counts by the share, too,",
        "and the limit of the board holds in its turns as in those of the others",
    ),
)
KEY = "layout.chip_share"
share = declare("chip_share", "1", "share of a chip that a replica has: of its memory and of its time", origin="axis.chip_share", sign="positive")  # fmt: skip
AXIS = Axis(
    "chip_share", KEY, (1.0, 0.5, 0.25, 0.125), "share of a chip that a replica has, others standing beside it: 1, a half, a quarter, ...",
    share, default=(1.0,), maximum=1.0,
)  # fmt: skip


def asked(held: object) -> bool:
    """Tell whether a file's held values let a replica stand on less than a chip."""
    return isinstance(held, tuple | list) and any(isinstance(one, int | float) and one != 1 for one in held)


def with_share(role: Role) -> Role:
    """Return a role whose replicas may take a share of one chip; a whole chip changes nothing."""
    role = rewritten(role, {M: M * share, base_weight: base_weight * share})
    graph = Graph(dict(role.graph.formulas))
    slowed = _slowed({symbol.name for symbol in graph.formulas})
    for symbol, formula in list(graph.formulas.items()):
        if symbol.name in slowed:
            graph.formulas[symbol] = replace(formula, expr=formula.expr / share, source=SHARED)
        elif symbol.name in ("ranks", "replica_chips"):
            graph.formulas[symbol] = replace(formula, expr=formula.expr * share)
    idle, loaded = role.ports["power_idle"], role.ports["power_loaded"]
    power = {
        "power_idle": graph.let("power_idle_shared", "W", "draw of a replica's part of its chips at rest", share * idle),
        "power_loaded": graph.let(
            "power_shared", "W", "draw of a replica, its part of the idle draw counted",
            minimum(loaded - (1 - share) * idle, share * tdp * leaf.ranks),
        ),
    }  # fmt: skip
    figures = {**role.figures, "power": power["power_loaded"], **_power_figures(graph, power["power_loaded"])}
    halved = 2 ** sp.floor(sp.log(1 / share) / sp.log(2) + sp.Rational(1, 1000))
    rules = (
        *role.rules,
        Rule("share", share * halved, sp.Integer(1), "equal", "a chip is shared by halves: 1, 0.5, 0.25, ...", cure=KEY),
        Rule("share_alone", leaf.ranks * sp.ceiling(1 - share), leaf.ranks_a_chip, "at_most", "what shares a chip is on no other", cure=KEY),
    )  # fmt: skip
    return replace(
        role, graph=graph, rules=rules, axes=(AXIS, *role.axes), ports={**role.ports, **power}, figures=figures
    )


def _power_figures(graph: Graph, power: sp.Symbol) -> dict[str, sp.Symbol]:
    """Define what a replica's own draw [W] makes a chip and a token."""
    named = {symbol.name: symbol for symbol in graph.formulas}
    return {
        "power_per_chip": graph.let("power_per_chip_shared", "W", "mean draw of a chip that such replicas fill", power / named["replica_chips"]),
        "energy_per_token": graph.let("energy_per_token_shared", "J", "energy of a replica's part of its chips a token", power / named["tokens_per_second"]),
    }  # fmt: skip


def _slowed(names: set[str]) -> set[str]:
    """Return the names of what takes longer beside others: passes by resource, drafts, images."""
    passes = {name[2:] for name in names if name.startswith("T_") and f"launch_time_{name[2:]}" in names}
    return {f"{resource}_time_{label}" for label in passes for resource in RESOURCES} | {"draft_time", "T_image"}
