"""The roles of disaggregated serving: a prefill pool that computes prompts, a decode pool that writes answers.

The prefill pool emits the first token; the KV cache of the prompt then goes to the decode pool, which delays the second.
"""

from __future__ import annotations

import sympy as sp

from tokenmill_models import inference_leaves as leaf
from tokenmill_models.architecture import Architecture
from tokenmill_models.formula import Graph, Source, maximum, minimum
from tokenmill_models.inference import GROUPS, Pass, decode_shape, prefill_shape, run_pass
from tokenmill_models.inference_memory import Memory, define_memory, sequence_bytes
from tokenmill_models.queueing import ONE_PERCENTILE, define_wait
from tokenmill_models.serving_axes import pool_axes
from tokenmill_models.serving_bills import answers_alone, token_shares
from tokenmill_models.serving_figures import (
    SLO,
    alone,
    define_figures,
    define_shares,
    flat,
    layout_rules,
    limit_rules,
    memory_rules,
    pool_ports,
)
from tokenmill_models.serving_images import with_images
from tokenmill_models.serving_load import (
    Request,
    combine,
    computed_percentile,
    define_request,
    prefill_steps,
    slot_wait,
)
from tokenmill_models.serving_transfer import TRANSFER, hidden_rule, transfer_delay
from tokenmill_models.speculation import checked, draft_time, kept, with_draft
from tokenmill_models.stage import Role, Rule

DISTSERVE = Source(
    "Zhong et al. 2024, DistServe, arXiv:2401.09670, section 3: prefill as an M/G/1 queue, decode as a batch"
)


def decode_role(arch: Architecture) -> Role:
    """Return the decode role for one architecture."""
    graph = Graph()
    request = define_request(graph, leaf.batch)
    decoded = request.group_batch * checked(graph)
    shape = decode_shape(decoded, request.context, request.group_batch)
    drafting = draft_time(graph, request.group_batch, request.context)
    plain = with_draft(graph, run_pass(graph, "plain", arch, shape, decoded, leaf.two_batches), "plain", drafting)
    memory = define_memory(graph, arch, request.group_batch, request.context)
    step = graph.let("step_time", "s", "time of a step", plain.time)
    hold = graph.let("slot_time", "s", "time a request holds a slot", request.steps * step)
    waits = slot_wait(graph, request, memory, hold)
    sent = transfer_delay(graph, arch)
    tpot = {
        word: graph.let(
            f"tpot_{word}", "s", f"{word} time per output token",
            step / kept(graph) + (symbol + sent[word]) / request.answer, source=DISTSERVE,
            assumes=("the transfer of the KV cache and the wait for a slot are spread over the answer",),
        )
        for word, symbol in waits.items()
    }  # fmt: skip
    answer = {"mean": hold} | {
        word: maximum(0, leaf.output_percentiles[word] - 1) * step / kept(graph) for word in ONE_PERCENTILE
    }
    written = combine(graph, "written", "time from first to last token", [waits, sent, answer], sp.Integer(0))
    rate = graph.let(
        "rate", "1/s", "requests a second that a replica sustains",
        request.active_groups * request.group_batch / (request.steps * step),
    )  # fmt: skip
    mean = alone(plain)
    figures = define_figures(graph, mean, rate * leaf.output_tokens, memory)
    ports = pool_ports(graph, request, rate, figures)
    figures |= (
        {"step_time": step, "batch": leaf.batch, "kv_transfer": sent["mean"]}
        | flat("tpot", tpot)
        | flat("answer", written)
    )
    figures |= answers_alone(graph)
    longest = sequence_bytes(arch, leaf.context_limit, leaf.tp, leaf.pp)
    rules = (
        *layout_rules(arch), *memory_rules(graph, memory, leaf.batch, longest), *limit_rules("tpot", tpot),
        *_whole_rules(written),
    )  # fmt: skip
    return Role(
        "decode",
        "pool",
        pool_axes(arch, "speculative", "batch"),
        graph,
        rules,
        (*GROUPS, TRANSFER),
        ports,
        figures,
        define_shares(graph, mean),
    )


def _whole_rules(written: dict[str, sp.Symbol]) -> tuple[Rule, ...]:
    """Rules that the answer leaves room in the limit of a whole request for the first token, at its own limit where it has one."""
    rules = []
    for word, symbol in written.items():
        limit, first = SLO["e2e"][word], SLO["ttft"][word]
        doc = f"{word} of the answer within the limit of the whole request"
        rules.append(Rule(f"answer.{word}", symbol, limit, "limit", doc, "s", f"slo.e2e.{word}"))
        doc += ", less the limit of the first token"
        rules.append(Rule(f"e2e.{word}", symbol + first, limit, "limit", doc, "s", f"slo.e2e.{word}"))
    return tuple(rules)


def prefill_role(arch: Architecture, images: bool = False) -> Role:
    """Return the prefill role for one architecture: each group computes one prompt after another, in passes of a chunk.

    `images`: whether prompts bring images to encode.
    """
    graph = Graph()
    request = define_request(graph, leaf.groups)
    carried = graph.let("prefill_carried", "1", "prompt tokens of a pass", minimum(leaf.chunk, request.computed))
    shape = prefill_shape(carried, sp.Integer(1), request.prompt_keys)
    one = run_pass(graph, "prompt", arch, shape, sp.Integer(1), leaf.two_batches)
    if images:
        one = with_images(graph, arch, one, "prompt", carried, request)
    memory = define_memory(graph, arch, leaf.chunk, leaf.input_tokens)
    # A pipeline takes the next prompt as soon as its first stage is free: places to serve are the attention groups.
    occupied = graph.let(
        "prompt_time",
        "s",
        "time a mean prompt is being computed",
        prefill_steps(request.computed, leaf.chunk) * one.time,
    )
    graph.let(
        "prompt_sent",
        "s",
        "time to first token of a mean prompt that waits for no other",
        occupied + leaf.request_seconds,
    )
    service = graph.let("prompt_service", "s", "time a mean prompt keeps a stage", occupied / leaf.pp, source=DISTSERVE)
    ttft = _prompt_times(graph, request, occupied, service)
    rate = graph.let(
        "rate", "1/s", "requests a second that a replica sustains at the share of time it works",
        leaf.utilisation * leaf.attention_dp / service, source=DISTSERVE,
    )  # fmt: skip
    return _assemble_prefill(graph, arch, request, one, occupied, memory, ttft, rate)


def _prompt_times(graph: Graph, request: Request, occupied: sp.Symbol, service: sp.Symbol) -> dict[str, sp.Symbol]:
    token_time = graph.let("prompt_token_time", "s", "time of a prompt token", occupied / request.computed)
    wait = define_wait(
        graph, "prompt", leaf.utilisation, leaf.attention_dp, service, leaf.arrival_cv**2, leaf.input_cv**2
    )
    own: dict[str, sp.Expr] = {"mean": occupied}
    for word in ONE_PERCENTILE:
        own[word] = graph.let(
            f"prompt_time_{word}", "s", f"time the {word} prompt is being computed", computed_percentile(word) * token_time,
            assumes=("time grows with the prompt as at its mean length",),
        )  # fmt: skip
    return combine(graph, "ttft", "time to first token", [dict(wait), own], leaf.request_seconds)


def _assemble_prefill(
    graph: Graph, arch: Architecture, request: Request, one: Pass, occupied: sp.Symbol, memory: Memory,
    ttft: dict[str, sp.Symbol], rate: sp.Symbol,
) -> Role:  # fmt: skip
    busy = leaf.utilisation
    # A pass carries its work through all stages; while it works, each stage has a pass of its own.
    mean = alone(one, busy)
    figures = define_figures(graph, mean, rate * leaf.input_tokens, memory, busy)
    kv = graph.let(
        "kv_request", "B", "KV bytes of a request's prompt, taken once from the ranks that share it",
        sequence_bytes(arch, leaf.input_tokens, sp.Integer(1), sp.Integer(1)),
    )  # fmt: skip
    ports = pool_ports(graph, request, rate, figures) | {"kv_request": kv}
    shares = define_shares(graph, mean)
    shares["wait"] = graph.let("share_wait", "s", "idle time a pass", one.time * (1 - busy) / busy)
    step = graph.let("step_time", "s", "time of a pass", one.time)
    figures |= {"step_time": step, "utilisation": busy} | flat("ttft", ttft)
    figures |= token_shares(graph, arch, request, one.time, "prompt", sp.Integer(1))
    figures["batch"] = graph.let("batch", "1", "prompts that a replica computes at once", leaf.groups)
    longest = sequence_bytes(arch, leaf.context_limit, leaf.tp, leaf.pp)
    rules = (
        *layout_rules(arch), *memory_rules(graph, memory, leaf.groups, longest), *limit_rules("ttft", ttft),
        hidden_rule(graph, arch, occupied),
    )  # fmt: skip
    axes = pool_axes(arch, "speculative", "chunk", "utilisation")
    return Role("prefill", "pool", axes, graph, rules, (*GROUPS, TRANSFER), ports, figures, shares)
