"""Shipped problem files of very large machines, mixtures of experts and SRAM; each answer held to a reason of its own."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tokenmill import api
from tokenmill.imports.architecture import load_architecture
from tokenmill.plan import Plan
from tokenmill.reading import load_problem

PROBLEMS = Path(__file__).parents[2] / "problems"
DAY, HOUR, GB = 86400.0, 3600.0, 1e9


@cache
def solved(name: str, *overrides: tuple[str, str]) -> Plan:
    return api.solve(load_problem(PROBLEMS / f"{name}.toml", overrides=list(overrides)))


def pool(plan: Plan, workload: str, role: str) -> Any:
    return next(found for found in plan.workloads[workload].pools if found.role == role)


# Llama 3.1 405B: The Llama 3 Herd of Models, arXiv:2407.21783, table 4 (MFU by layout), section 3.3.4 (failures)


def test_the_published_layout_of_405b_fits_at_its_published_mfu():
    plan = solved("pretrain-405b-published")
    run = pool(plan, "pretrain", "train")
    assert run.predicted["mfu"] == pytest.approx(0.41, rel=0.10)
    memory = run.predicted["memory"]
    assert (
        0.8 * memory["capacity"] < memory["total"] < memory["capacity"]
    )  # they kept every activation, so little was left
    assert run.predicted["mtbf"] == pytest.approx(54 * DAY / 419, rel=0.05)
    assert 0.88 < run.predicted["goodput"] < 0.97  # "higher than 90%" was published


def test_half_the_machine_at_its_published_mfu():
    """8 192 chips, 64 data ranks: 0.43 was published; a longer pipeline fill per step and a smaller exchange."""
    half = solved(
        "pretrain-405b-published", ("workload.pretrain.layout.chips", "8192"), ("workload.pretrain.layout.dp", "64")
    )
    run = pool(half, "pretrain", "train")
    assert run.predicted["mfu"] == pytest.approx(0.43, rel=0.10)
    assert run.predicted["mfu"] > pool(solved("pretrain-405b-published"), "pretrain", "train").predicted["mfu"]


def test_a_free_layout_of_405b_is_no_slower_than_the_published_one():
    held, free = (pool(solved(f"pretrain-405b-{word}"), "pretrain", "train") for word in ("published", "free"))
    assert free.predicted["step_time"] <= held.predicted["step_time"]
    assert free.layout["tp"] <= 8  # inside the node
    degrees = free.layout
    assert degrees["tp"] * degrees["pp"] * degrees["cp"] * degrees["dp"] == 16384


# DeepSeek-V3: technical report, arXiv:2412.19437, section 1 (hours and dollars), section 3 (layout)


def test_deepseek_v3_fits_and_takes_its_published_hours():
    plan = solved("pretrain-deepseek-v3")
    run = pool(plan, "pretrain", "train")
    hours = run.chips * plan.workloads["pretrain"].totals["wall_time"] / HOUR
    assert hours == pytest.approx(2.664e6, rel=0.2)
    assert plan.cost.total == pytest.approx(2 * hours, rel=1e-6)
    assert run.predicted["memory"]["total"] < run.predicted["memory"]["capacity"]


def test_states_of_experts_are_divided_once():
    """The optimiser keeps 8 bytes a parameter: experts over p x all ranks of a stage, the rest over p x 128 ranks too."""
    run = pool(solved("pretrain-deepseek-v3"), "pretrain", "train")
    arch = load_architecture("deepseek-v3")
    (moe,) = (kind for kind in arch.layers if kind.mlp.expert)
    layers = 4  # ceil(61 / 16) on an inner rank
    experts = moe.expert_parameters * layers
    others = (moe.parameters - moe.expert_parameters) * layers
    ends = max(arch.parameters.embedding, arch.parameters.output_head)
    least = 8 * (experts + others) / 128
    assert least <= run.predicted["memory"]["optimizer"] <= least + 8 * (ends + 3 * arch.layers[0].parameters) / 128
    # and weights: two copies by DualPipe, experts over 64 ranks in 16 bits
    weights = 2 * 2 * (experts / 64 + others)
    assert run.predicted["memory"]["weights"] == pytest.approx(weights, rel=0.15)


def test_deepseek_v3_is_served_with_experts_over_several_nodes():
    plan = solved("serve-deepseek-v3")
    decode = pool(plan, "chat", "decode")
    assert decode.layout["ep"] > 8
    flows = [flow for flow in plan.flows if flow.kind == "kv"]
    bytes_a_token = 61 * 576 * 2
    travelling = 200 * 4000 * bytes_a_token  # a cached prefix travels too
    assert sum(arc.bytes_per_second for flow in flows for arc in flow.arcs[:1]) <= travelling * 1.01
    assert all(arc.share < 0.2 for flow in flows for arc in flow.arcs)
    for found in plan.workloads["chat"].pools:
        words = found.predicted
        assert words["tpot"]["p95"] <= 0.06 if found.role == "decode" else words["ttft"]["p95"] <= 5


def test_a_million_tokens_take_what_must_be_stored():
    """16 of 896 experts are computed, all are stored; only latent layers keep a cache that grows with context."""
    arch = load_architecture("kimi-k3")
    assert arch.parameters.total == pytest.approx(2.8e12, rel=0.03)
    (experts,) = {(kind.mlp.experts, kind.mlp.active) for kind in arch.layers if kind.mlp.expert}
    assert experts == (896, 16)
    latent = sum(kind.count for kind in arch.layers if kind.mixer.kind == "mla")
    cache = 2**20 * latent * 576 * 2
    assert 25 * GB < cache < 32 * GB
    plan = solved("serve-million-tokens")
    for mixed in plan.workloads["reader"].pools:
        memory, chips = mixed.predicted["memory"], mixed.chips / mixed.replicas
        experts_bytes = arch.parameters.experts * 4.25 / 8  # four bits and a scale of eight for 32
        assert memory["weights"] * chips > experts_bytes
        assert mixed.predicted["kv_tokens"] >= 2**20
        assert memory["kv"] * chips * 1.1 >= mixed.predicted["kv_tokens"] * latent * 576 * 2


def test_only_sram_answers_at_a_third_of_a_millisecond():
    plan = solved("serve-gpu-prefill-sram-decode")
    decode, prefill = pool(plan, "chat", "decode"), pool(plan, "chat", "prefill")
    assert decode.system == "cs-3"
    assert prefill.system in ("hgx-h200", "trn3-ultraserver-gen2")
    weights = 2 * (load_architecture("llama-3.1-70b").parameters.total)
    assert decode.chips >= weights / (44 * GB)
    bound = weights / 4 / 21e15  # four stages in a row read a quarter each, twenty petabytes a second
    assert decode.predicted["tpot"]["p95"] > bound
    without = solved("serve-gpu-prefill-sram-decode", ("hardware.systems", '["hgx-h200", "trn3-ultraserver-gen2"]'))
    assert without.status == "infeasible"
    assert any("tpot" in reason.limit for reason in without.infeasible)


def test_h200_gains_more_by_capacity_than_by_bandwidth_on_one_chip():
    chip = "assume.chip.h100-sxm"
    plain = solved("h100-against-h200")
    gain = {
        name: plain.objective.value / solved("h100-against-h200", (chip, given)).objective.value
        for name, given in {
            "bandwidth": '{ bandwidth = "4.8 TB/s" }',
            "capacity": '{ memory = "141 GB" }',
            "both": '{ bandwidth = "4.8 TB/s", memory = "141 GB" }',
        }.items()
    }
    assert 1 < gain["bandwidth"] < 4.8 / 3.35
    assert gain["capacity"] > gain["bandwidth"]
    assert gain["both"] <= gain["bandwidth"] * gain["capacity"] * 1.001
    assert gain["capacity"] < gain["both"] <= 1.9  # advertised for Llama 2 70B
    room = pool(plain, "chat", "mixed").predicted["kv_tokens"]
    more = pool(solved("h100-against-h200", (chip, '{ memory = "141 GB" }')), "chat", "mixed").predicted["kv_tokens"]
    a_token = 2 * 80 * 8 * 128  # fp8
    assert (more - room) * a_token == pytest.approx(0.9 * (141 - 85.5) * GB, rel=0.05)
