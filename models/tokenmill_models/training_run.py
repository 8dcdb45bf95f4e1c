"""The run of a training stage: its role, its inputs, its checkpoints and its failures; pretraining, tuning and fine-tuning share it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy as sp

from tokenmill_models import training_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.energy import define_power
from tokenmill_models.formula import Graph, maximum
from tokenmill_models.operations_attention import peak_16bit
from tokenmill_models.operations_parts import ZERO, arch_leaf
from tokenmill_models.reliability import DALY, daly, expected_goodput
from tokenmill_models.roofline import F, M, W
from tokenmill_models.stage import Axis, Input, Role, Rule
from tokenmill_models.symbols import declare
from tokenmill_models.training import Passes, Step, define_step, rows_of_rank, stage_layers
from tokenmill_models.training_exchange import places
from tokenmill_models.training_layout import axes_of, dualpipe_micro_batches, rules_of
from tokenmill_models.training_memory import EVERYTHING, Memory, Recipe, define_memory, define_states, limit

interval_held = declare(
    "tau_held", "s", "checkpoint interval that the file holds; 0: chosen", origin="input.checkpoint.interval"
)
evaluate_every = declare("evaluate_every", "1", "steps between two evaluations; 0: none", origin="input.evaluate.every")
evaluate_tokens = declare("evaluate_tokens", "1", "tokens of one evaluation", origin="input.evaluate.tokens")
restart = declare("restart_time", "s", "time from a failure to work again", origin="input.restart")
store_node = declare("W_store", "B/s", "bandwidth of one node to the store", origin="store.write", sign="positive")
store_total = declare("W_store_total", "B/s", "bandwidth of the whole store", origin="store.total", sign="positive")
node_chips = declare("chips_per_node", "1", "chips of a node", origin="system.chips_per_node", sign="positive")
failure_rate = declare(
    "lambda_chip", "1/s", "failures of a chip", origin="chip.failure_rate", sign="positive", latex=r"\lambda"
)
stall = declare(
    "engine_checkpoint_stall",
    "s",
    "stop of the run for a checkpoint written in the background",
    origin="engine.checkpoint_stall",
)
trained = declare("trained_tokens", "1", "tokens that the run trains on")

RUN_INPUTS = (
    Input("critical_batch", "number", "largest batch, in sequences, that still learns as well by the token", leaf.critical_batch),
    Input("checkpoint.store", "name", "store of the catalogue that takes the checkpoints", default="parallel-fs", of="store"),
    Input("checkpoint.interval", "number", "useful time between checkpoints; 0: the best is chosen", interval_held, "s", 0.0),
    Input("restart", "number", "time from a failure to work again", restart, "s", 600.0),
    Input("evaluate.every", "number", "steps between two evaluations; 0: none", evaluate_every, default=0.0),
    Input("evaluate.tokens", "number", "tokens that one evaluation reads, forward alone", evaluate_tokens, default=0.0),
    Input("kernels.flash_attention", "flag", "attention without a score matrix in memory", leaf.flash, default=True),
    Input("kernels.dropout", "flag", "dropout masks are kept", leaf.dropout, default=False),
    Input("expert_load", "number", "tokens of the fullest expert rank over the mean", leaf.expert_load, default=1.0, minimum=1),
    Input("memory_fraction", "number", "share of a device's memory that training may take", leaf.memory_fraction, default=0.94,
          maximum=1.0),
    Input("mfu", "number", "model FLOPs utilisation laid down; 0: predicted", leaf.mfu_assumed, default=0.0, maximum=1.0),
    Input("mfu_peak", "name", "precision whose dense peak MFU is counted against", default="bf16", of="precision"),
    Input("engine.name", "name", "framework class whose overheads apply", default="generic"),
)  # fmt: skip


REMARKS = {
    "rebuilt_activations": "of products of gated activations do not fit beside the rest: the backward kernel of the gate writes "
    "them anew, whatever is held of layout.recompute",
}
"""What a plan says of a figure that is above zero."""


def define_run(
    graph: Graph, step: sp.Symbol, total_tokens: sp.Expr, saved: sp.Expr, passes: sp.Expr | None = None
) -> dict[str, sp.Symbol]:
    """Define steps, evaluations, checkpoints, goodput and wall time of a run over `total_tokens`, padding included, whose checkpoint
    takes `saved` bytes and whose step takes as long as `passes` forward passes (None: a run without evaluations); return them by figure name.
    """
    count = graph.let(
        "steps", "1", "steps of the run", total_tokens / (leaf.global_batch * leaf.sequence), rounding="ceil"
    )
    chips = leaf.ranks / leaf.ranks_a_chip
    mtbf = graph.let("run_mtbf", "s", "mean time between failures of the run", 1 / (failure_rate * chips))
    size = graph.let("checkpoint_bytes", "B", "trained weights and their optimiser states in a checkpoint", saved)
    nodes = sp.ceiling(chips / node_chips)
    write = graph.let("checkpoint_write", "s", "time to write a checkpoint",
                      maximum(size / (nodes * store_node), size / store_total))  # fmt: skip
    stop = graph.let("checkpoint_stop", "s", "time that a checkpoint stops the run",
                     write * (1 - leaf.checkpoint_async) + stall * leaf.checkpoint_async)  # fmt: skip
    best = maximum(daly(stop, mtbf), leaf.checkpoint_async * write)
    interval = graph.let("checkpoint_interval", "s", "useful time between checkpoints",
                         sp.Piecewise((interval_held, sp.Gt(interval_held, 0)), (best, True)), source=DALY)  # fmt: skip
    lost = restart + leaf.checkpoint_async * write
    goodput = graph.let("goodput", "1", "useful share of time", expected_goodput(interval, stop, lost, mtbf), source=DALY,
                        assumes=("failures are exponential; a checkpoint counts once it is written",))  # fmt: skip
    judged: sp.Expr = ZERO if passes is None else _define_evaluations(graph, count, step, passes)
    wall = graph.let("wall_time", "s", "length of the run with evaluations, failures and checkpoints",
                     (count * step + judged) / goodput)  # fmt: skip
    found = {} if passes is None else {"evaluation_time": judged}
    return {"steps": count, "mtbf": mtbf, "checkpoint_bytes": size, "checkpoint_write": write, "checkpoint_interval": interval,
            "goodput": goodput, "wall_time": wall, **found}  # fmt: skip


def _define_evaluations(graph: Graph, count: sp.Expr, step: sp.Expr, passes: sp.Expr) -> sp.Symbol:
    """Define the time of all evaluations of a run: forward passes at the speed of its steps."""
    often = sp.Piecewise((sp.floor(count / maximum(evaluate_every, 1)), sp.Gt(evaluate_every, 0)), (0, True))
    share = evaluate_tokens / (leaf.global_batch * leaf.sequence) / passes
    return graph.let("evaluation_time", "s", "time of all evaluations during the run, forward passes at the speed of its steps",
                     often * step * share)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """What a stage does beside its layout.

    `padded`: tokens that the run passes over; `useful`: those of them that it was given; `passes`, `recipe`: what runs and what is
    trained; `more`: further time of a micro-batch on a mean layer [s]; `saved`: bytes of a checkpoint (None: all the model's).
    """

    padded: sp.Expr
    useful: sp.Expr
    passes: Passes
    recipe: Recipe = EVERYTHING
    more: sp.Expr = ZERO
    saved: sp.Expr | None = None


def training_role(arch: Architecture, job: Callable[[Graph, sp.Expr], Job], axes: tuple[Axis, ...] = ()) -> Role:
    """Return the run of a training stage; `job` defines it on the graph, given the tokens of a micro-batch; `axes` are its own."""
    graph = Graph()
    moe = any(kind.mlp.expert for kind in arch.layers)
    place = places(graph, moe)
    m = graph.let("m", "1", "micro-batches of a step", leaf.micro_batches)
    inner, outer = stage_layers(graph)
    expert_shared = graph.let("expert_shared", "1", "ranks that share one copy of an expert's states",
                              place.block / (leaf.expert_tp * leaf.ep) * place.far)  # fmt: skip
    rows = rows_of_rank(graph)
    work = job(graph, rows)
    sharing = (inner, place.shared, expert_shared)
    states, stages, again = define_states(graph, arch, rows, m, inner, outer, *sharing[1:], work.recipe)
    memory = define_memory(graph, states, stages, again, *sharing, work.recipe)
    step = define_step(graph, arch, states, work.passes, work.recipe, work.more)
    whole = arch_leaf("parameters.total") * (leaf.bytes_weights + leaf.bytes_states)
    run = define_run(graph, step.time, work.padded, whole if work.saved is None else work.saved, work.passes.matmul)
    figures, ports = _figures(graph, step, memory, run, work)
    capacity = Rule("memory", memory.reserved, limit(), "capacity",
                    "states and activations fit what the framework may take of the fullest device", "B", "layout.chips")  # fmt: skip
    return Role(
        "train", "run", (*axes, *axes_of(arch)), graph, (*rules_of(arch, place), dualpipe_micro_batches(), capacity),
        place.groups, ports, figures, step.shares, prefer=(memory.total,), remarks=REMARKS,
    )  # fmt: skip


def _figures(
    graph: Graph, step: Step, memory: Memory, run: dict[str, sp.Symbol], job: Job
) -> tuple[dict[str, Any], dict[str, Any]]:
    ranks = graph.let("ranks", "1", "devices of the run", leaf.ranks)
    a_step = leaf.global_batch * leaf.sequence
    rate = graph.let("tokens_per_second", "1/s", "trained tokens a second while it runs, without padding",
                     a_step / step.time * job.useful / job.padded)  # fmt: skip
    chips = leaf.ranks / leaf.ranks_a_chip
    use = step.flops / (step.time * F)
    mbu = graph.let("mbu_train", "1", "memory traffic over time times bandwidth", step.bytes / (step.time * W))
    one, loaded, idle = define_power(graph, use, mbu, ranks, pipes=step.shares["compute"] / step.time)
    useful = graph.let("trained_tokens", "1", "tokens that the run trains on", job.useful)
    figures = {
        "step_time": step.time,
        "mfu": graph.let("mfu", "1", "counted work, causal, no recompute, over peak", step.model_flops / (step.time * leaf.mfu_peak * ranks)),
        "hfu": graph.let("hfu", "1", "executed work over 16-bit peak", step.flops / (step.time * peak_16bit)),
        "mbu": mbu,
        "tokens_per_second": rate,
        "tokens_per_second_per_chip": graph.let("tokens_per_second_per_chip", "1/s", "trained tokens a second a chip", rate / chips),
        "memory.weights": memory.weights,
        "memory.gradients": memory.gradients,
        "memory.optimizer": memory.optimizer,
        "memory.activations": memory.activations,
        "memory.reserve": memory.reserve,
        "memory.allocated": memory.allocated,
        "memory.reserved": memory.reserved,
        "memory.total": memory.total,
        "rebuilt_activations": memory.rebuilt,
        "memory.capacity": graph.let("memory_capacity", "B", "memory of a device", M),
        "power": loaded,
        "power_per_chip": graph.let("power_per_chip", "W", "mean draw of a chip", one * leaf.ranks_a_chip),
        "energy_per_token": graph.let("energy_per_token", "J", "energy of the devices a trained token", loaded * run["wall_time"] / useful),
        "flops": graph.let("run_flops", "FLOP", "counted work of the run", step.model_flops * run["steps"]),
        "micro_batches": step.micro_batches,
        **run,
    }  # fmt: skip
    ports = {"ranks": ranks, "duration": run["wall_time"], "power_idle": idle, "power_loaded": loaded}
    return figures, ports
