"""The cache of a prompt on its way from a prefill pool to a decode pool: it delays the second token."""

from __future__ import annotations

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.collectives import group_leaves, send
from tokenmill_models.formula import Graph, Source
from tokenmill_models.inference_memory import sequence_bytes
from tokenmill_models.operations_parts import arch_leaf
from tokenmill_models.queueing import ONE_PERCENTILE
from tokenmill_models.stage import Group, Input, Rule
from tokenmill_models.symbols import declare

SPLITWISE = Source(
    "Patel et al. 2024, Splitwise, arXiv:2311.18677, section 4.2: the cache goes at the end of the prompt, or layer by layer while it is computed",
    ("layer by layer, only the last layer's part is left when the prompt ends",),
)
by_layer = declare(
    "transfer_by_layer", "1", "1 where the cache is sent layer by layer while the prompt is computed, else 0",
    origin="input.engine.transfer_by_layer",
)  # fmt: skip
system_chips = declare("system_chips", "1", "chips of a system", origin="system.chips", sign="positive")

INPUTS = (
    Input("engine.transfer_by_layer", "flag", "split pools: whether the cache is sent layer by layer while the prompt is computed",
          by_layer, default=False),
)  # fmt: skip
_system_ranks = system_chips * leaf.ranks_a_chip
# The other pool stands on systems of its own: what joins the pools is the network between systems.
TRANSFER = Group("transfer", sp.Integer(2), sp.ceiling(leaf.ranks / _system_ranks) * _system_ranks)
LINKS = group_leaves(TRANSFER.name)


def whole_transfer(graph: Graph, arch: Architecture) -> sp.Symbol:
    """Define the time [s] that the cache of a mean prompt takes over the links of one replica's ranks, all of them at once."""
    share = graph.let(
        "kv_share", "B", "KV bytes of a prompt that go over the links of the fullest rank",
        sequence_bytes(arch, leaf.input_tokens, leaf.tp, leaf.pp),
    )  # fmt: skip
    return send(graph, "kv_transfer", LINKS, share)


def transfer_delay(graph: Graph, arch: Architecture) -> dict[str, sp.Expr]:
    """Define what the transfer adds between the first token and the second: mean and percentiles over prompts [s]."""
    delay = graph.let(
        "kv_delay", "s", "time that the cache of a mean prompt travels after its first token",
        whole_transfer(graph, arch) / (1 + by_layer * (arch_leaf("layer_count") - 1)), source=SPLITWISE,
        assumes=("the prefill pool's links are as fast as these", "one request at a time takes the links of a replica"),
    )  # fmt: skip
    found: dict[str, sp.Expr] = {"mean": delay}
    return found | {word: delay * leaf.input_percentiles[word] / leaf.input_tokens for word in ONE_PERCENTILE}


def hidden_rule(graph: Graph, arch: Architecture, occupied: sp.Symbol) -> Rule:
    """Return the rule that a cache sent layer by layer keeps pace with the computing of its prompt, `occupied` [s]."""
    return Rule(
        "transfer", by_layer * whole_transfer(graph, arch), occupied, "limit",
        "sent layer by layer, the cache keeps pace with its prompt", "s", "engine.transfer_by_layer",
    )  # fmt: skip
