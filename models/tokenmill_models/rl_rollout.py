"""The pools of reinforcement learning that write answers and score them: serving's passes without arrivals.

A synchronous step waits for its longest answer: the time is the sum over token indices of the step time of those still being written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import sympy as sp

from tokenmill_models import energy
from tokenmill_models import inference_leaves as leaf
from tokenmill_models import rl_leaves as own
from tokenmill_models.architecture import Architecture
from tokenmill_models.collectives import group_leaves, send
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.inference import GROUPS, Pass, decode_shape, prefill_shape, run_pass
from tokenmill_models.inference_memory import Memory, define_memory
from tokenmill_models.operations_parts import arch_leaf
from tokenmill_models.rl_lengths import define_slices
from tokenmill_models.roofline import M
from tokenmill_models.serving_axes import pool_axes
from tokenmill_models.serving_figures import alone, define_figures, define_shares, layout_rules
from tokenmill_models.speculation import CODES
from tokenmill_models.stage import Axis, Group, Role, Rule

DECAY = Source(
    "Zhong et al. 2025, StreamRL, arXiv:2504.15930, section 3: the skewed tail of answers leaves a synchronous step's devices idle",
    ("time = sum over token indices j of the step time of the answers longer than j",),
)
WAVES = Source("Graham 1969, list scheduling: a full batch until no answer waits, then the last ones to their end")
LEFT_OUT = {"speculative": "none"}
CHUNK = sp.Integer(8192)
"""Prompt tokens of a step of an engine that computes prompts alone."""
SYNC = group_leaves("sync")


@dataclass(frozen=True)
class Writing:
    """A replica that writes answers: sequences `running` at most, answers `mine` it writes, passes and memory."""

    running: sp.Symbol
    mine: sp.Symbol
    full: Pass
    memory: Memory


def sync_group(ranks: sp.Expr) -> Group:
    """Return the ranks of a pool with as many beside it: what the weights cross between two pools, or inside one."""
    return Group("sync", 2 * ranks, sp.Integer(1))


def sync_ports(graph: Graph, prefix: str, weights: sp.Expr, ranks: sp.Expr) -> dict[str, sp.Symbol]:
    """Define the time of all weights over one rank's wire, and of the part of one of `ranks` over its own [s]."""
    whole = send(graph, f"{prefix}_whole", SYNC, weights)
    part = send(graph, f"{prefix}_part", SYNC, weights / ranks)
    return {"whole": whole, "part": part}


@lru_cache(maxsize=16)
def rollout_role(arch: Architecture) -> Role:
    """Return the part that writes the answers of a step: replicas of one layout."""
    graph = Graph()
    writing = _writing(graph, arch)
    prompts = _prompts(graph, arch, writing.mine)
    through, latency = _times(graph, arch, writing, prompts)
    weights = arch_leaf("parameters.total") * leaf.bytes_weights
    ranks = graph.let("rl_pool_ranks", "1", "ranks of all replicas", leaf.ranks * own.replicas)
    ports = {
        "ranks": ranks,
        "through": through,
        "latency": latency,
        **sync_ports(graph, "rollout", weights, leaf.ranks),
        **idle_and_limit(graph, ranks),
    }
    written = own.ANSWER.mean * writing.mine
    mean = alone(writing.full)
    figures = define_figures(graph, mean, written / latency, writing.memory)
    figures.pop("power_idle")
    figures |= {
        "step_time": writing.full.time,
        "batch": writing.running,
        "generation_time": latency,
        "answers": writing.mine,
    }
    cached = graph.let(
        "rl_memory_cached",
        "B",
        "KV of the running sequences",
        writing.running * writing.memory.sequence / leaf.attention_dp,
    )
    rules = (
        *(rule for rule in layout_rules(arch) if rule.name != "chips"),
        held_chips(ranks),
        Rule("some", sp.Integer(1), writing.mine, "at_most", "every replica has an answer to write", cure="layout.replicas"),
        Rule("memory.kv", cached, writing.memory.room, "capacity", "a sequence fits beside the weights", "B", "layout.tp"),
    )  # fmt: skip
    role = Role(
        "rollout", "part", (*_axes(arch), own.CROWD, own.COUNT), graph, rules, (*GROUPS, sync_group(leaf.ranks * own.replicas)), ports, figures,
        define_shares(graph, mean), hardware="accelerator",
    )  # fmt: skip
    return substituted(
        role, own.SERVED | {symbol: sp.Float(value) for symbol, value in CODES[LEFT_OUT["speculative"]].items()}
    )


def idle_and_limit(graph: Graph, ranks: sp.Expr) -> dict[str, sp.Symbol]:
    """Define the draw of a pool at rest and at the limit of its devices, so that rows differ by size and time alone [W]."""
    return {
        "system": graph.let("rl_stands_on", "1", "number that tells systems apart", own.system_number),
        "power_idle": graph.let("rl_pool_idle", "W", "draw of the pool at rest", energy.idle * ranks),
        "power_loaded": graph.let("rl_pool_limit", "W", "power limit of the pool", energy.tdp * ranks),
    }


def held_chips(ranks: sp.Expr) -> Rule:
    """Return the rule that a pool has the chips that its own table holds."""
    return Rule(
        "pool_chips",
        leaf.held_chips * leaf.ranks_a_chip,
        ranks,
        "equal",
        "chips held are those of the pool",
        cure="layout.chips",
    )


def substituted(role: Role, stands: Mapping[sp.Symbol, sp.Expr]) -> Role:
    """Return a role with leaves replaced by what stands for them."""
    formulas = {s: replace(f, expr=f.expr.xreplace(stands), valid=()) for s, f in role.graph.formulas.items()}
    rules = tuple(
        replace(rule, left=rule.left.xreplace(stands), right=rule.right.xreplace(stands)) for rule in role.rules
    )
    groups = tuple(
        replace(group, size=group.size.xreplace(stands), stride=group.stride.xreplace(stands)) for group in role.groups
    )
    return replace(role, graph=Graph(formulas), rules=rules, groups=groups)


def _axes(arch: Architecture) -> tuple[Axis, ...]:
    return pool_axes(arch)


def _writing(graph: Graph, arch: Architecture) -> Writing:
    """Define how many sequences run at once, and the pass of a full batch at the mean context."""
    context = graph.let(
        "context", "1", "mean tokens cached of a running sequence",
        own.PROMPT.mean + own.ANSWER.mean * (1 + own.ANSWER.cv**2) / 2,
    )  # fmt: skip
    memory = define_memory(graph, arch, CHUNK, context)
    mine = graph.let(
        "rl_answers_replica", "1", "answers that a replica starts in a step", own.answers / own.waited / own.replicas
    )
    running = graph.let(
        "rl_running", "1", "sequences that a replica runs: its answers, as far as memory and the engine go",
        maximum(1, minimum(mine, leaf.batch, memory.max_batch)),
    )  # fmt: skip
    full = _pass(graph, "full", arch, running, context)
    return Writing(running, mine, full, memory)


def _pass(graph: Graph, label: str, arch: Architecture, running: sp.Expr, context: sp.Expr) -> Pass:
    inside = graph.let(f"group_{label}", "1", f"sequences of a group in {label}", maximum(1, running / leaf.groups))
    return run_pass(graph, label, arch, decode_shape(inside, context), inside)


def _prompts(graph: Graph, arch: Architecture, mine: sp.Expr) -> sp.Symbol:
    """Define the time in which a replica computes its prompts: each once, where answers share its cache."""
    tokens = own.PROMPT.mean * mine / (1 + own.shared_prompts * (own.samples - 1))
    step = graph.let("rl_prompt_step", "1", "prompt tokens of a step", minimum(CHUNK, maximum(1, tokens)))
    prompts = maximum(1, step / own.PROMPT.mean)
    one = run_pass(graph, "prompts", arch, prefill_shape(step, prompts, own.PROMPT.mean / 2), prompts)
    return graph.let(
        "rl_prompt_time", "s", "time of a replica for the prompts of a step", one.time * tokens / step / leaf.groups
    )


def _times(graph: Graph, arch: Architecture, writing: Writing, prompts: sp.Symbol) -> tuple[sp.Symbol, sp.Symbol]:
    """Define the time of a step's answers at a full batch throughout, and from the first token to the last of the longest [s]."""
    running, mine, full = writing.running, writing.mine, writing.full
    cut = sp.Piecewise((own.limit, own.limit > 0), (sp.Float(1e9), True))
    slices, _ = define_slices(graph, own.ANSWER, cut, own.answers / own.waited, own.waited)
    drained = []
    for k, part in enumerate(slices):
        alive = graph.let(
            f"alive_{k}",
            "1",
            f"answers of a replica still being written in slice {k}",
            maximum(1, running * part.alive),
        )
        one = _pass(graph, f"slice{k}", arch, alive, own.PROMPT.mean + part.middle)
        drained.append(part.tokens * one.time)
    waves = maximum(0, mine - running) * own.ANSWER.mean / running * full.time
    through = graph.let("rl_through_full", "s", "time of a step's answers where the batch is always full",
                        prompts + mine * own.ANSWER.mean / running * full.time, source=WAVES)  # fmt: skip
    waited = graph.let("rl_answer_time", "s", "time from the first token of a step's answers to the last of the longest",
                       prompts + waves + sp.Add(*drained), source=DECAY)  # fmt: skip
    latency = graph.let("rl_step_latency", "s", "time that a synchronous step waits for its answers",
                        own.partial * minimum(through, waited) + (1 - own.partial) * waited, source=DECAY)  # fmt: skip
    return graph.let("rl_through", "s", "time of a step's answers at a full batch, at most that with its tail",
                     minimum(through, latency)), latency  # fmt: skip


@lru_cache(maxsize=16)
def reward_role(arch: Architecture) -> Role:
    """Return the part that reads every answer with its prompt and scores it."""
    graph = Graph()
    context = own.length
    memory = define_memory(graph, arch, CHUNK, context)
    step = graph.let("rl_read_step", "1", "tokens that a step reads", CHUNK)
    read = run_pass(
        graph, "read", arch, prefill_shape(step, maximum(1, step / own.length), own.keys), maximum(1, step / own.length)
    )
    ranks = graph.let("rl_pool_ranks", "1", "ranks of all replicas", leaf.ranks * own.replicas)
    rate = leaf.groups * step / read.time * own.replicas
    time = graph.let("rl_reward_time", "s", "time to score the answers of a step", own.answers * own.length / rate)
    mean = alone(read)
    figures = define_figures(graph, mean, rate / own.replicas, memory)
    figures.pop("power_idle")
    figures |= {"step_time": read.time, "scoring_time": time}
    taken = graph.let(
        "memory_taken", "B", "weights and activations", memory.weights + memory.activations + memory.reserve
    )
    rules = (
        *(rule for rule in layout_rules(arch) if rule.name != "chips"),
        held_chips(ranks),
        Rule("memory", taken, leaf.memory_fraction * M, "capacity", "weights and activations fit", "B", "layout.tp"),
    )  # fmt: skip
    count = replace(own.COUNT, values=(1, 2, 4, 8, 16, 32, 64))
    ports = {"ranks": ranks, "time": time, **idle_and_limit(graph, ranks)}
    role = Role(
        "reward",
        "part",
        (*_axes(arch), count),
        graph,
        rules,
        GROUPS,
        ports,
        figures,
        define_shares(graph, mean),
        model=own.rewarded,
        hardware="accelerator",
    )
    return substituted(
        role, own.SERVED | {symbol: sp.Float(value) for symbol, value in CODES[LEFT_OUT["speculative"]].items()}
    )


@lru_cache(maxsize=1)
def environment_role() -> Role:
    """Return the part that checks answers on the cores of servers: sandboxes, verifiers, tests."""
    graph = Graph()
    each = graph.let("rl_cores_socket", "1", "cores of a socket", own.system_cores / own.system_sockets)
    time = graph.let(
        "rl_checking_work", "s", "time in which all cores check the answers of a step",
        own.answers / own.waited * own.core_seconds / (own.sockets * each),
    )  # fmt: skip
    ranks = graph.let("rl_pool_ranks", "1", "sockets that check answers", own.sockets)
    ports = {"ranks": ranks, "time": time, **idle_and_limit(graph, ranks)}
    figures = {
        "checking_time": time,
        "cores": graph.let("rl_cores", "1", "cores that check answers", own.sockets * each),
    }
    shares = {"cores": graph.let("rl_share_cores", "s", "time of the cores", time)}
    return Role(
        "environment", "part", (own.SOCKETS,), graph, (held_chips(ranks),), (), ports, figures, shares,
        hardware="processor", system="environment.system",
    )  # fmt: skip
