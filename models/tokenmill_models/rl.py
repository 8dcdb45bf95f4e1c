"""Reinforcement learning (GRPO, PPO, verifiable rewards): answers are written, scored and trained on, by pools side by side or in turn."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import sympy as sp

from tokenmill_models import inference_leaves as serve
from tokenmill_models import rl_leaves as own
from tokenmill_models.architecture import Architecture
from tokenmill_models.formula import Graph, Source, maximum
from tokenmill_models.operations_parts import arch_leaf
from tokenmill_models.rl_rollout import environment_role, reward_role, rollout_role
from tokenmill_models.rl_trainer import trainer_role
from tokenmill_models.roofline import FLOP_PER_MAC
from tokenmill_models.stage import Role, Rule, StageModel, register_stage
from tokenmill_models.symbols import declare

STALE = Source(
    "Fu et al. 2025, AReaL, arXiv:2505.24298, section 4: answers up to k versions old keep all pools at work",
    (
        "k batches are in flight: the tail of one hides behind the next, so a pool is busy for its work or 1/k of a batch's time",
        "a batch passes all pools within k + 1 steps",
    ),
)
LOOP = Source(
    "measured/training/rl_posttraining.csv: steps of frameworks of reinforcement learning against serving and pretraining alone",
    (
        "batches change from step to step, engines wake and sleep, and mixtures of experts are trained on short packed batches",
    ),
)
WORK = Source("Kaplan et al. 2020, arXiv:2001.08361, section 2.1: 2 FLOP a parameter and token forward, 4 backward")
SYNC = Source(
    "measured/training/rl_posttraining.csv: seconds that new weights take to the rollouts",
    ("time = start + bytes over a share of the wire + a time for every tensor",),
)


written = declare("rl_written", "1", "answer tokens of the run")


def _ports(part: str, *ports: tuple[str, str]) -> dict[str, sp.Symbol]:
    return {
        port: declare(f"{part}_{port}", dimension, f"{port} of the part {part}", origin=f"part.{part}.{port}")
        for port, dimension in (("ranks", "1"), ("power_idle", "W"), ("power_loaded", "W"), ("system", "1"), *ports)
    }


TRAINER = _ports(
    "trainer", ("time", "s"), ("turn", "s"), ("work", "FLOP"), ("slowdown", "1"), ("whole", "s"), ("part", "s")
)
ROLLOUT = _ports("rollout", ("through", "s"), ("latency", "s"), ("whole", "s"), ("part", "s"))
REWARD = _ports("reward", ("time", "s"))
CHECK = _ports("environment", ("time", "s"))


def tensors(arch: Architecture) -> sp.Expr:
    """Tensors of weights [1] that are sent: matrices of every layer, each expert's own."""
    terms = []
    for i, kind in enumerate(arch.layers):
        many = sp.Integer(len(kind.mixer.matrices) + len(kind.mlp.matrices))
        if kind.mlp.expert:
            many += arch_leaf(f"layers.{i}.mlp.experts") * len(kind.mlp.expert)
        terms.append(arch_leaf(f"layers.{i}.count") * many)
    return sp.Add(*terms)


def _weight_sync(graph: Graph, arch: Architecture) -> sp.Symbol:
    """Define the time until the rollouts have new weights: over the slower of the two cuts."""
    count = graph.let("sync_tensors", "1", "tensors of weights that are sent", tensors(arch))
    far = 1 - own.colocated
    apart = far * maximum(TRAINER["part"], ROLLOUT["part"]) / own.sync_share * (1 - own.delta * (1 - own.changed))
    single = maximum(TRAINER["whole"], ROLLOUT["whole"]) / own.root_share
    return graph.let(
        "weight_sync_time", "s", "time until the rollouts have the new weights",
        own.sync_start + own.sharded * (apart + count * own.sync_tensor) + (1 - own.sharded) * (single + count * own.root_tensor),
        source=SYNC,
    )  # fmt: skip


def _step(graph: Graph, arch: Architecture, scored: bool, checked: bool) -> dict[str, sp.Symbol]:
    """Define the time of a step and its parts [s]: one after another, or all at once with answers a few versions old.

    Cores check answers while others are still written: a synchronous step waits for what they take beyond that, and for the last one.
    """
    nothing = 0 * own.latency
    reward = graph.let(
        "scoring_time", "s", "time in which a model scores the answers of a step", REWARD["time"] if scored else nothing
    )
    work = CHECK["time"] if checked else nothing
    check = graph.let("checking_time", "s", "time from the last answer to its reward",
                      own.latency + maximum(0, work - ROLLOUT["latency"] / own.write_share))  # fmt: skip
    sync = _weight_sync(graph, arch)
    park = graph.let("parking_time", "s", "time to move the trainer's states out of the way of the rollouts and back",
                     own.colocated * (TRAINER["turn"] - TRAINER["time"]))  # fmt: skip
    routed = any(kind.mlp.expert for kind in arch.layers)
    write = graph.let(
        "generation_time",
        "s",
        "time in which the answers of a step are written",
        ROLLOUT["latency"] / own.write_share,
        source=LOOP,
    )
    train = graph.let("training_time_run", "s", "time in which a step's updates are computed",
                      TRAINER["time"] / (own.train_share if routed else 1), source=LOOP)  # fmt: skip
    waited = write + check + reward
    after = train + own.step_overhead
    serial = waited + after + park
    k = own.staleness
    beside = maximum(ROLLOUT["through"] / own.write_share, waited / k, after, reward, work, (waited + after) / (k + 1))
    step = graph.let(
        "step_time", "s", "time of a step", own.asynchronous * beside + (1 - own.asynchronous) * serial + sync, source=STALE,
    )  # fmt: skip
    share = graph.let(
        "generation_share",
        "1",
        "share of the chip time of a step that goes to writing answers",
        _share(step, write, train),
    )
    return {"step_time": step, "generation_time": write, "training_time": train, "scoring_time": reward, "checking_time": check,
            "weight_sync_time": sync, "parking_time": park, "generation_share": share}  # fmt: skip


def _share(step: sp.Symbol, write: sp.Symbol, train: sp.Symbol) -> sp.Expr:
    """Chip time of writing over that of the step where devices take turns; over that of writing and training where they do not."""
    apart = ROLLOUT["ranks"] * write / (ROLLOUT["ranks"] * write + TRAINER["ranks"] * train)
    return own.colocated * write / step + (1 - own.colocated) * apart


@lru_cache(maxsize=16)
def rl_role(arch: Architecture, reward: Architecture | None = None, checked: bool = False) -> Role:
    """Return the run: a trainer, a pool that writes answers, one that scores them where a model does, cores where they are checked."""
    graph = Graph()
    found = _step(graph, arch, reward is not None, checked)
    beside = [ports for ports, there in ((REWARD, reward is not None), (CHECK, checked)) if there]
    more = {name: sp.Add(*(ports[name] for ports in beside)) for name in ("power_idle", "power_loaded")}
    ports = {
        "ranks": graph.let("run_ranks", "1", "accelerators of all pools, in ranks; those that take turns count once",
                           (1 - own.colocated) * TRAINER["ranks"] + ROLLOUT["ranks"] + (REWARD["ranks"] if reward is not None else 0)),
        "shared": graph.let("run_shared", "1", "1 where pools on one system take turns on its devices", own.colocated),
        "power_idle": graph.let("run_power_idle", "W", "draw at rest",
                                (1 - own.colocated) * TRAINER["power_idle"] + ROLLOUT["power_idle"] + more["power_idle"]),
        "power_loaded": graph.let("run_power_loaded", "W", "power limit",
                                  (1 - own.colocated) * TRAINER["power_loaded"] + ROLLOUT["power_loaded"] + more["power_loaded"]),
    }  # fmt: skip
    wall = graph.let(
        "wall_time",
        "s",
        "length of the run with failures and checkpoints",
        own.steps * found["step_time"] * TRAINER["slowdown"],
    )
    ports["duration"] = wall
    _counted(graph)
    rate = graph.let(
        "tokens_per_second",
        "1/s",
        "answer tokens a second that are trained on",
        own.answers * own.ANSWER.mean / found["step_time"],
    )
    work = graph.let(
        "rl_run_flops", "FLOP", "counted work of the run: of its trainer, and 2 a parameter and token written or read before; attention of writing apart",
        own.steps * (TRAINER["work"] + _written_work()), source=WORK,
    )  # fmt: skip
    figures = {**found, "wall_time": wall, "flops": work, "tokens_per_second": rate, "power": ports["power_loaded"]}
    shares = {
        "rollout": found["generation_time"],
        "trainer": found["training_time"],
        "reward": found["scoring_time"],
        "environment": found["checking_time"],
        "sync": found["weight_sync_time"],
        "offload": found["parking_time"],
    }
    parts = {"trainer": _counting(trainer_role(arch)), "rollout": _counting(rollout_role(arch))}
    if reward is not None:
        parts["reward"] = _counting(reward_role(reward))
    if checked:
        parts["environment"] = _counting(environment_role())
    return Role(
        "rl",
        "run",
        own.RUN_AXES,
        graph,
        _rules(ports["ranks"]),
        (),
        ports,
        figures,
        shares,
        parts=parts,
    )


def _written_work() -> sp.Expr:
    """Counted work of writing the answers of a step [FLOP]: a prompt is computed once, where its answers share it."""
    tokens = own.answers * own.ANSWER.mean + own.prompts * own.PROMPT.mean * (
        own.samples - own.shared_prompts * (own.samples - 1)
    )
    return FLOP_PER_MAC * arch_leaf("matmul_parameters_active") * tokens


def _counted(graph: Graph) -> None:
    graph.let("rl_written", "1", "answer tokens of the run", own.steps * own.answers * own.ANSWER.mean)


def _counting(part: Role) -> Role:
    _counted(part.graph)
    return part


def _rules(ranks: sp.Symbol) -> tuple[Rule, ...]:
    held = serve.held_chips * serve.ranks_a_chip
    turns = own.colocated
    return (
        Rule("chips", held, ranks, "equal", "chips held are those of the whole run", cure="layout.chips"),
        Rule("one_at_a_time", turns * own.asynchronous, sp.Integer(0), "at_most", "pools that take turns do not work at once", cure="colocated"),
        Rule("same_system", turns * TRAINER["system"], turns * ROLLOUT["system"], "equal", "pools that take turns stand on one system", cure="colocated"),
        Rule("same_ranks", turns * TRAINER["ranks"], turns * ROLLOUT["ranks"], "equal", "pools that take turns have the same devices", cure="colocated"),
    )  # fmt: skip


def _staffed(architecture: Any, models: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[Role, ...]:
    return (rl_role(architecture, models.get(own.rewarded), bool(values.get("environment.core_seconds"))),)


RL = register_stage(
    StageModel(
        name="rl",
        doc="Reinforcement learning of a model from answers that it writes itself: GRPO, PPO, verifiable rewards.",
        inputs=own.INPUTS,
        roles=lambda architecture: (rl_role(architecture),),
        staffed=_staffed,
        yields={"cost_per_token": {"output": written}},
        axes=own.AXES,
        parts=own.TABLES,
        hardware=("processor",),
    )
)
