"""The pool of reinforcement learning that trains the policy on the answers of a step."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import sympy as sp

from tokenmill_models import rl_leaves as own
from tokenmill_models import training_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.collectives import group_leaves, send
from tokenmill_models.formula import Graph, Source, maximum
from tokenmill_models.operations_parts import ONE, arch_leaf
from tokenmill_models.rl_lengths import longest_of
from tokenmill_models.rl_rollout import held_chips, idle_and_limit, substituted, sync_group, sync_ports
from tokenmill_models.stage import Axis, Group, Role, Rule
from tokenmill_models.training import Passes, define_step, full_passes, rows_of_rank, stage_layers
from tokenmill_models.training_exchange import places
from tokenmill_models.training_layout import axes_of, divisors, dualpipe_micro_batches, rules_of
from tokenmill_models.training_memory import Recipe, define_memory, define_states, limit
from tokenmill_models.training_run import Job, _figures, define_run

GRPO = Source(
    "Shao et al. 2024, DeepSeekMath, arXiv:2402.03300, section 4: policy, old policy and reference read every answer"
)
PPO = Source(
    "Schulman et al. 2017, arXiv:1707.06347; Ouyang et al. 2022, arXiv:2203.02155: a critic as large as the policy learns beside it"
)
RESHARD = group_leaves("reshard")
BATCH = own.answers / own.updates
FREE = {
    # the free grid of the trainer: what decides its time and its size
    "virtual": (1,),
    "schedule": ("1f1b",),
    "zero": (1, 3),
    "pp": (1, 2, 4, 8),
    "cp": (1, 2, 4, 8),
    "recompute": ("selective", "full"),
}


def passes() -> Passes:
    """Return the passes over an answer: the update's, those of old policy and reference, and a critic's reading and update."""
    one = full_passes()
    beside = own.recomputed + own.reference + own.critic
    twice = 1 + own.critic
    return Passes(
        one.matmul * twice + beside, one.attention * twice + beside, one.vector * twice + beside, one.counted * twice + beside,
        own.keys, beside + 3 * own.critic, twice,
    )  # fmt: skip


def _degrees(known: object) -> list[float]:
    """Data-parallel degrees of the free grid: divisors of the answers of an update."""
    leaves: dict[str, float] = dict(known)  # type: ignore[call-overload]
    batch = leaves[own.prompts.name] * leaves[own.samples.name] / leaves[own.updates.name]
    return divisors({leaf.global_batch.name: batch})


def _axes(arch: Architecture) -> tuple[Axis, ...]:
    made = [own.ALGORITHM]
    for axis in axes_of(arch):
        if axis.name == "dp":
            axis = replace(axis, grid=_degrees)
        elif axis.name in ("cp", "micro_batch"):
            axis = replace(axis, grid=None)
        made.append(replace(axis, default=FREE[axis.name]) if axis.name in FREE else axis)
    return tuple(made)


@lru_cache(maxsize=16)
def trainer_role(arch: Architecture) -> Role:
    """Return the part that trains: one copy of the policy over all its ranks, its updates of a step one after another."""
    graph = Graph()
    place = places(graph, any(kind.mlp.expert for kind in arch.layers))
    m = graph.let("m", "1", "micro-batches of a step", leaf.micro_batches)
    inner, outer = stage_layers(graph)
    expert_shared = graph.let("expert_shared", "1", "ranks that share one copy of an expert's states",
                              place.block / (leaf.expert_tp * leaf.ep) * place.far)  # fmt: skip
    rows = rows_of_rank(graph)
    # without a limit the longest answer is as long as the rollouts expect it
    free = own.ANSWER.quantile(longest_of(own.answers))
    longest = own.PROMPT.mean + sp.Piecewise((own.limit, own.limit > 0), (free, True))
    widest = graph.let(
        "rows_widest", "1", "tokens of the micro-batch that holds the longest answer", maximum(rows, longest / leaf.cp)
    )
    recipe = Recipe(full=1 + own.critic, frozen_copies=own.reference + own.critic)
    sharing = (inner, place.shared, expert_shared)
    states, stages, again = define_states(graph, arch, widest, m, inner, outer, *sharing[1:], recipe)
    memory = define_memory(graph, states, stages, again, *sharing, recipe)
    step = define_step(graph, arch, states, passes(), recipe)
    total = own.answers * own.steps * own.length
    run = define_run(
        graph,
        step.time,
        total,
        arch_leaf("parameters.total") * (leaf.bytes_weights + leaf.bytes_optimizer) * (1 + own.critic),
    )
    figures, ports = _figures(graph, step, memory, run, Job(total, total, passes(), recipe))
    del run["wall_time"], figures["wall_time"], figures["energy_per_token"]
    time = graph.let(
        "training_time",
        "s",
        "time of a step's updates, with old policy, reference and critic",
        own.updates * step.time,
        source=GRPO,
    )
    states_bytes = memory.weights + memory.gradients + memory.optimizer
    near = send(graph, "reshard", RESHARD, arch_leaf("parameters.total") * leaf.bytes_weights / leaf.ranks)
    ports = {
        "ranks": ports["ranks"],
        "time": time,
        "work": graph.let(
            "training_work", "FLOP", "counted work of a step's updates and readings", own.updates * step.model_flops
        ),
        "turn": graph.let(
            "training_turn",
            "s",
            "the same, with the way of a rank's states to host memory and back and of its weights to other ranks",
            time + 2 * states_bytes / leaf.host_link + near / own.sync_share,
        ),
        "slowdown": graph.let(
            "slowdown", "1", "wall time over useful time, with failures and checkpoints", 1 / run["goodput"]
        ),
        **sync_ports(graph, "trainer", arch_leaf("parameters.total") * leaf.bytes_weights, ports["ranks"]),
        **idle_and_limit(graph, ports["ranks"]),
    }
    figures |= {"training_time": time}
    capacity = Rule("memory", memory.reserved, limit(), "capacity",
                    "states and activations fit what the framework may take of the fullest device", "B", "trainer.tp")  # fmt: skip
    kept = [
        rule for rule in rules_of(arch, place) if rule.name not in ("context_sequence", "held_chips", "critical_batch")
    ]
    role = Role(
        "trainer", "part", _axes(arch), graph, (*kept, dualpipe_micro_batches(), held_chips(ports["ranks"]), capacity),
        (*place.groups, sync_group(leaf.ranks), Group("reshard", leaf.ranks, ONE)), ports, figures, step.shares, prefer=(memory.total,),
        hardware="accelerator",
    )  # fmt: skip
    return substituted(role, {leaf.sequence: own.length, leaf.global_batch: BATCH})
