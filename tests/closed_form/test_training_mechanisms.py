"""Mechanisms of a training step against hand counts: what waits, what is hidden, what passes through memory."""

import random

import pytest

from sample_leaves import dense, expert
from training_samples import definitions

GPT = dense(4096, 32, 32, 128, 16384, 32, 51200, gated=False)
MOE = expert(1024, 16, 4, 64, 512, 64, 8, 1024, 9, 0, 1000)
OLD = {"input.kernels.flash_attention": 0, "input.kernels.dropout": 1}
DOMAIN = 450e9
NETWORK = 50e9
SHARE, FABRIC = 0.75, 0.8  # of the wire inside a domain and between them, in these samples


@pytest.mark.parametrize(("sp", "left"), [(0.0, 2.0), (1.0, 3.0)])
def test_weight_gradients_hide_the_exchange_of_input_gradients(sp: float, left: float) -> None:
    """Of four all-reduces a layer two are of input gradients; with sequence parallelism their scatter alone is hidden."""
    whole, shown = (definitions(GPT, {"engine.overlap_tensor": h}, t=8, sp=sp)["tensor_train_0"] for h in (0.0, 1.0))
    assert shown == pytest.approx(whole * left / 4, rel=1e-9)


def test_gradients_added_by_a_kernel_of_its_own_are_read_twice_and_written() -> None:
    """A 16-bit gradient read, a 32-bit one read and written: 10 bytes a parameter and micro-batch; fused or sharded: none."""
    origins = {"engine.accumulates": 1.0}
    found = definitions(GPT, origins, z=1)
    sweep = 10 * found["elements_rank"] / (found["R_train_0_vector"] ** -1 * found["moved_train_0_vector"])
    assert found["accumulation_time"] == pytest.approx(sweep, rel=1e-9)
    assert definitions(GPT, origins, z=2, d=8)["accumulation_time"] == 0
    assert definitions(GPT, z=1)["accumulation_time"] == 0


def test_a_stage_hands_over_parts_that_are_gathered_inside() -> None:
    """Eight tensor ranks of one domain send an eighth each over the network and gather in the domain: less than the whole."""
    volume = 4096 * 4096 * 2
    part = volume / 8 / (NETWORK * FABRIC)
    gathered = 7 / 8 * volume / (DOMAIN * SHARE)
    whole = volume / (NETWORK * FABRIC)
    shared, plain = (definitions(GPT, t=8, p=2, sp=sp)["stage_exchange"] / 2 for sp in (1.0, 0.0))
    assert shared == pytest.approx(part + 8e-6, rel=1e-9)
    assert plain == pytest.approx(
        part + 8e-6 + gathered + 7 * 3e-6, rel=1e-9
    )  # a hop, and seven steps of the ring inside
    assert plain < whole


def test_launches_show_where_kernels_are_short() -> None:
    def wait(launch: float) -> tuple[float, float]:
        found = definitions(GPT, {"engine.layer_train": launch})
        return found["launch_train_0"], found["work_train_0_step"]

    none, busy = wait(0.0)
    assert none == pytest.approx(0.0, abs=1e-12)
    long, _ = wait(100 * busy / 3)  # three passes: a hundred times as long as the kernels run
    assert long + busy == pytest.approx(100 * busy, rel=1e-6)
    equal, _ = wait(busy / 3)
    assert equal + busy == pytest.approx(2**0.25 * busy, rel=1e-6)


def test_scores_pass_through_memory_without_flash_attention() -> None:
    """32 heads of 4096 x 4096 16-bit scores: the softmax reads and writes them, dropout once more; products run the whole square."""
    found, plain = definitions(GPT, OLD), definitions(GPT, {**OLD, "input.kernels.dropout": 0})
    scores = 32 * 4096 * 4096 * 2
    assert found["moved_train_0_attention_softmax"] == pytest.approx(4 * scores)
    assert plain["moved_train_0_attention_softmax"] == pytest.approx(2 * scores)
    assert found["flop_train_0_attention_scores"] == pytest.approx(2 * 4096 * 4096 * 4096)
    assert found["flop_train_0_attention"] == 0
    flash = definitions(GPT)
    assert flash["scores_train_0"] == flash["softmax_train_0"] == 0
    assert flash["flop_train_0_attention"] == pytest.approx(2 * 2 * 4096 * 4096 * 4096 / 2)  # causal: half the square


@pytest.mark.parametrize("domains", [2, 4, 8])
def test_a_token_goes_once_to_each_node_of_its_experts(domains: int) -> None:
    """Eight experts drawn evenly over nodes of eight ranks: bytes over the network against draws."""
    e = 8 * domains
    found = definitions(MOE, e=e, d=e)
    draw = random.Random(1)
    nodes = [len({draw.randrange(domains) for _ in range(8)}) for _ in range(20000)]
    copies = sum(nodes) / len(nodes) * (domains - 1) / domains  # those that are not the token's own
    wire = 4096 * copies * 1024 * 2 / (NETWORK * FABRIC)
    inside = 4096 * 8 * 1024 * 2 * 7 / e / (DOMAIN * SHARE)
    assert found["wire_dispatch_train_0"] == pytest.approx(max(wire, inside), rel=0.02)


def test_speed_of_attention_of_a_framework() -> None:
    plain, slow = (definitions(GPT, {"engine.attention_speed": h})["work_train_0_step"] for h in (1.0, 0.5))
    core = definitions(GPT)["core_train_0"] / 0.6 * 3.5
    assert slow - plain == pytest.approx(core, rel=1e-9)
