"""The leaves, keys and choices of reinforcement learning: what a step asks for, and how its pools work together."""

from __future__ import annotations

import sympy as sp

from tokenmill_models import inference_leaves as serve
from tokenmill_models import serving_inputs, training_run
from tokenmill_models import training_leaves as train
from tokenmill_models.rl_lengths import Lengths
from tokenmill_models.serving_axes import AXES as SERVING_AXES
from tokenmill_models.stage import Axis, Input
from tokenmill_models.symbols import declare
from tokenmill_models.training_layout import AXES as TRAINING_AXES


def _number(name: str, key: str, doc: str, dimension: str = "1", sign: str = "positive") -> sp.Symbol:
    return declare(name, dimension, doc, origin=f"input.{key}", sign=sign)


steps = _number("rl_steps", "steps", "steps of the run")
prompts = _number("rl_prompts", "prompts_per_step", "prompts of a step")
samples = _number("rl_samples", "samples_per_prompt", "answers to each prompt")
updates = _number("rl_updates", "updates_per_step", "updates of the policy from the answers of a step")
limit = _number("rl_limit", "output_limit", "tokens at which an answer is cut; 0: none", sign="nonnegative")
waited = _number(
    "rl_waited", "early_stop", "share of the answers that a step waits for; more are started, so that enough end"
)
partial = _number(
    "rl_partial", "partial_rollouts", "1 where an answer that is not ready goes on in the next step", sign="nonnegative"
)
shared_prompts = _number("rl_shared", "prefix_reuse", "1 where answers to a prompt share its cache", sign="nonnegative")
staleness = _number("rl_staleness", "staleness", "steps that answers may be older than the policy they train")
reference = _number(
    "rl_reference", "reference_model", "1 where a frozen reference reads every answer", sign="nonnegative"
)
recomputed = _number(
    "rl_old", "old_log_probs", "1 where the trainer reads every answer before its update", sign="nonnegative"
)
core_seconds = _number(
    "rl_core_seconds", "environment.core_seconds", "core-seconds that checking an answer takes", "s", "nonnegative"
)
sockets = declare("rl_sockets", "1", "sockets of servers that check answers", origin="axis.sockets", sign="positive")
system_number = declare("system_number", "1", "number that tells systems apart", origin="system.number")
system_cores = declare("system_cores", "1", "cores of a server", origin="system.cores", sign="positive")
system_sockets = declare("system_sockets", "1", "sockets of a server", origin="system.chips", sign="positive")
latency = _number(
    "rl_latency",
    "environment.latency",
    "time from an answer to its reward, without waiting for a core",
    "s",
    "nonnegative",
)
changed = _number("rl_changed", "weight_sync.changed", "share of the weights that a delta holds")
rewarded = "reward_model"

critic = declare(
    "rl_critic", "1", "1 where a critic as large as the policy is trained beside it", origin="axis.algorithm"
)
asynchronous = declare(
    "rl_asynchronous", "1", "1 where answers are written while the policy is trained", origin="axis.mode"
)
colocated = declare("rl_colocated", "1", "1 where the pools take turns on the same devices", origin="axis.colocated")
sharded = declare(
    "rl_sharded", "1", "1 where every trainer rank sends its part of the weights", origin="axis.weight_sync"
)
delta = declare("rl_delta", "1", "1 where only what changed of the weights is sent", origin="axis.weight_sync")
replicas = declare("rl_replicas", "1", "replicas that write answers", origin="axis.replicas", sign="positive")


def _engine(name: str, dimension: str, doc: str) -> sp.Symbol:
    return declare(f"engine_{name}", dimension, doc, origin=f"engine.{name}")


sync_start = _engine("sync_start", "s", "time to stop the rollouts and start sending weights")
sync_share = _engine("sync_share", "1", "share of a rank's wire that sending weights in buckets reaches")
sync_tensor = _engine("sync_tensor", "s", "time of every tensor of weights sent in buckets")
root_share = _engine("sync_root_share", "1", "share of a rank's wire that sending tensor by tensor reaches")
root_tensor = _engine("sync_root_tensor", "s", "time of every tensor of weights sent one by one")
write_share = _engine(
    "write_share", "1", "speed of writing answers inside a step of learning over that of serving alone"
)
train_share = _engine(
    "train_share_experts",
    "1",
    "speed of training a mixture of experts inside a step of learning over that of pretraining",
)
step_overhead = _engine("step_overhead", "s", "time of a step outside its pools: data, advantages, records")

PROMPT = Lengths(
    _number("rl_prompt", "input_tokens", "mean tokens of a prompt"),
    _number("rl_prompt_cv", "input_tokens.cv", "variation of the tokens of a prompt", sign="nonnegative"),
)
ANSWER = Lengths(
    _number("rl_answer", "output_tokens", "mean tokens of an answer"),
    _number("rl_answer_cv", "output_tokens.cv", "variation of the tokens of an answer", sign="nonnegative"),
)

answers = prompts * samples
"""Answers of a step [1]."""
length = PROMPT.mean + ANSWER.mean
"""Mean tokens of a prompt with its answer [1]."""
keys = (length + (PROMPT.variance + ANSWER.variance) / length) / 2
"""Mean keys before a token, over all tokens of all answers with their prompts: E[L²]/(2E[L]) [1]."""

REPLICAS = tuple(sorted({2**k for k in range(9)} | {3 * 2**k for k in range(8)}))


def _code(word: str, *symbols: sp.Symbol, on: tuple[sp.Symbol, ...] = ()) -> dict[sp.Symbol, float]:
    return {symbol: float(symbol in on) for symbol in symbols}


ALGORITHM = Axis(
    "algorithm", "algorithm", ("grpo", "ppo", "rlvr"), "grpo and rlvr compare answers to one prompt; ppo trains a critic beside the policy",
    codes={"grpo": {critic: 0.0}, "ppo": {critic: 1.0}, "rlvr": {critic: 0.0}}, default=("grpo",),
)  # fmt: skip
MODE = Axis(
    "mode", "mode", ("synchronous", "asynchronous"), "whether answers are written while the policy is trained",
    codes={"synchronous": {asynchronous: 0.0}, "asynchronous": {asynchronous: 1.0}}, default=("synchronous",),
)  # fmt: skip
COLOCATED = Axis(
    "colocated", "colocated", (True, False), "whether trainer and rollouts take turns on the same devices, or have their own",
    codes={True: {colocated: 1.0}, False: {colocated: 0.0}},  # type: ignore[dict-item]
)  # fmt: skip
WEIGHT_SYNC = Axis(
    "weight_sync", "weight_sync.method", ("sharded", "broadcast", "delta"),
    "how new weights reach the rollouts: each trainer rank sends its part in large buckets, one rank sends all tensor by tensor, "
    "or each sends the part that changed",
    codes={word: _code(word, sharded, delta, on=on) for word, on in (("sharded", (sharded,)), ("broadcast", ()), ("delta", (sharded, delta)))},
    default=("sharded",),
)  # fmt: skip
RUN_AXES = (MODE, COLOCATED, WEIGHT_SYNC)
COUNT = Axis("replicas", "layout.replicas", REPLICAS, "replicas that write answers", replicas)
CROWD = Axis(
    "batch", "engine.batch", (64, 256, 1024), "most running sequences of a replica", serve.batch, default=(256,)
)
SOCKETS = Axis(
    "sockets", "environment.sockets", tuple(4**k for k in range(6)), "sockets of servers that check answers", sockets
)
TABLES = ("trainer", "rollout", "reward")
"""Pools that may have a table of choices of their own in the file."""
_SERVED = {axis.key: axis for axis in SERVING_AXES.values() if not axis.key.startswith("engine.")}
AXES = tuple(
    {
        **{axis.key: axis for axis in TRAINING_AXES},
        **_SERVED,
        **{axis.key: axis for axis in (SERVING_AXES["attention_dp"], CROWD, COUNT, SOCKETS, ALGORITHM, *RUN_AXES)},
    }.values()
)

FLAGS = (
    Input("reference_model", "flag", "a frozen copy of the model reads every answer too", reference, default=True),
    Input("old_log_probs", "flag", "the trainer reads every answer before it updates the policy; false: the rollouts' own values are taken",
          recomputed, default=True),
    Input("partial_rollouts", "flag", "an answer that is not ready goes on in the next step: none is waited for", partial, default=False),
    Input("prefix_reuse", "flag", "answers to a prompt share its cache", shared_prompts, default=True),
)  # fmt: skip
_BOTH = ("expert_load", "mfu", "mfu_peak", "engine.name")
_TRAINED = tuple(item for item in training_run.RUN_INPUTS if item.name not in (*_BOTH, "memory_fraction"))
_WRITTEN = tuple(
    item
    for item in serving_inputs.INPUTS
    if item.name in _BOTH
    or item.name in ("engine.version", "engine.graph", "engine.kv_memory", "engine.reserved_tokens")
)
INPUTS = (
    Input("model", "architecture", "the model that learns", required=True),
    Input("steps", "number", "steps of the run", steps, required=True, minimum=1),
    Input("prompts_per_step", "number", "prompts of a step", prompts, required=True, minimum=1),
    Input("samples_per_prompt", "number", "answers to each prompt", samples, default=16.0, minimum=1),
    Input("updates_per_step", "number", "updates of the policy from the answers of a step", updates, default=1.0, minimum=1),
    Input("input_tokens", "lengths", "tokens of a prompt: a number, or {mean, p95}", PROMPT.mean, parts={"cv": PROMPT.cv},
          required=True, minimum=1),
    Input("output_tokens", "lengths", "tokens of an answer: a number, or {mean, p95}", ANSWER.mean, parts={"cv": ANSWER.cv},
          required=True, minimum=1),
    Input("output_limit", "number", "tokens at which an answer is cut; 0: none", limit, default=0.0),
    Input("early_stop", "number", "share of the answers that a step waits for; more are started, so that enough end", waited, default=1.0,
          minimum=0.5, maximum=1.0),
    Input("staleness", "number", "asynchronous: steps that answers may be older than the policy they train", staleness, default=1.0, minimum=1),
    Input("environment.core_seconds", "number", "core-seconds that checking an answer takes", core_seconds, "s", 0.0),
    Input("environment.system", "system", "servers whose cores check answers", default=("cpu-epyc-9654",)),
    Input("environment.latency", "number", "time from an answer to its reward, without waiting for a core", latency, "s", 0.0),
    Input("weight_sync.changed", "number", "share of the weights that a delta holds", changed, default=0.3, maximum=1.0),
    Input("memory_fraction", "number", "share of a device's memory that each pool may take in its turn", train.memory_fraction, default=0.9,
          maximum=1.0),
    *FLAGS,
    Input(rewarded, "architecture", "a model that reads every answer and scores it; none: answers are checked otherwise"),
    *_TRAINED,
    *_WRITTEN,
)  # fmt: skip

SERVED: dict[sp.Symbol, sp.Expr] = {serve.memory_fraction: train.memory_fraction}
"""What stands for leaves of serving in the pool that writes answers."""
