"""Rules of a training layout: what must pass, what must fail, and what would cure it."""

import pytest

from sample_leaves import arch_value, dense, expert
from tokenmill_models.architecture import Architecture
from tokenmill_models.compile import exact
from tokenmill_models.formula import Graph
from tokenmill_models.stage import Rule
from tokenmill_models.symbols import quantity
from tokenmill_models.training_exchange import places
from tokenmill_models.training_layout import AXES, axes_of, divisors, dualpipe_micro_batches, rules_of

DENSE = dense(4096, 32, 8, 128, 14336, 32, 128256)
MOE = expert(1024, 16, 4, 64, 512, 32, 4, 1024, 9, 1, 1000)
PLAIN = {
    "t": 1, "p": 1, "v": 1, "c": 1, "e": 1, "t_e": 1, "d": 1, "b": 1, "shard": 0, "q_i": 0, "q_z": 0, "q_d": 0, "s": 4096,
    "B_global": 64, "B_critical": 128, "held_chips": 1, "ranks_a_chip": 1,
}  # fmt: skip


def holds(rule: Rule, left: float, right: float) -> bool:
    if rule.kind == "divides":
        return right % left == 0
    return left == right if rule.kind == "equal" else left <= right


def broken(arch: Architecture, **layout: float) -> set[str]:
    """Keys that would cure the rules which a layout breaks."""
    graph = Graph()
    place = places(graph, any(kind.mlp.expert for kind in arch.layers))
    values = {**PLAIN, **layout}
    values["held_chips"] = layout.get("held_chips", values["t"] * values["p"] * values["c"] * values["d"])

    def side(expression: object) -> float:
        inlined = expression
        for _ in graph.formulas:
            inlined = inlined.xreplace({s: f.expr for s, f in graph.formulas.items()})  # type: ignore[attr-defined]
        known = {}
        for symbol in inlined.free_symbols:  # type: ignore[attr-defined]
            origin = quantity(symbol).origin or ""
            in_arch = origin.startswith("arch.")
            known[symbol] = arch_value(arch, origin.removeprefix("arch.")) if in_arch else values[symbol.name]
        return float(exact(inlined, known))

    rules = (*rules_of(arch, place), dualpipe_micro_batches())
    return {str(rule.cure) for rule in rules if not holds(rule, side(rule.left), side(rule.right))}


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"t": 8, "p": 4, "c": 2, "d": 16, "b": 2},
        {"t": 4, "p": 4, "v": 2, "q_i": 1, "d": 4},
        {"p": 17, "v": 2, "q_i": 1, "B_global": 34, "d": 2},  # 34 places: 32 layers, embedding and head
        {"p": 8, "q_d": 1, "d": 4},
        {"d": 64, "shard": 8},
    ],
)
def test_layouts_that_work(layout: dict[str, float]) -> None:
    assert broken(DENSE, **layout) == set()


@pytest.mark.parametrize(
    ("layout", "cure"),
    [
        ({"t": 3}, "layout.tp"),
        ({"t": 64}, "layout.tp"),  # more tensor ranks than the 32 heads
        ({"c": 3}, "layout.cp"),
        ({"p": 35}, "layout.virtual"),
        ({"p": 4, "v": 2}, "layout.schedule"),
        ({"p": 4, "q_i": 1}, "layout.virtual"),
        ({"v": 2, "q_i": 1}, "layout.pp"),
        ({"q_z": 1}, "layout.pp"),
        ({"p": 3, "q_d": 1, "B_global": 66}, "layout.pp"),
        ({"p": 8, "q_d": 1, "d": 8}, "layout.micro_batch"),  # 8 micro-batches for 8 ranks fed from both ends
        ({"d": 3}, "layout.micro_batch"),
        ({"d": 64, "b": 2}, "layout.micro_batch"),
        ({"p": 8, "v": 2, "q_i": 1, "d": 16}, "layout.micro_batch"),  # 4 micro-batches, not a multiple of 8
        ({"d": 16, "shard": 32}, "layout.shard"),
        ({"d": 8, "c": 4, "shard": 2}, "layout.shard"),
        ({"d": 2, "held_chips": 4}, "layout.chips"),
        ({"B_global": 256}, "global_batch"),
    ],
)
def test_layouts_that_cannot_work_name_what_would_cure_them(layout: dict[str, float], cure: str) -> None:
    assert cure in broken(DENSE, **layout)


@pytest.mark.parametrize(
    ("layout", "works"),
    [
        ({"e": 8, "d": 16}, True),
        ({"t": 4, "e": 8, "d": 4}, True),
        ({"t": 4, "t_e": 4, "e": 4, "d": 16}, True),
        ({"e": 3, "d": 3, "B_global": 66}, False),  # three does not divide 32 experts
        ({"e": 8, "d": 4}, False),  # eight expert ranks in four ranks
        ({"t": 2, "t_e": 4, "d": 8}, False),
    ],
)
def test_expert_degrees(layout: dict[str, float], works: bool) -> None:
    assert (broken(MOE, **layout) == set()) is works


def test_data_degrees_are_the_divisors_of_the_batch() -> None:
    assert divisors({"B_global": 24.0}) == [1, 2, 3, 4, 6, 8, 12, 24]


def test_expert_degrees_are_one_without_experts() -> None:
    free = {axis.name: axis.default for axis in axes_of(DENSE)}
    assert (free["ep"], free["expert_tp"]) == ((1,), (1,))
    assert [axis.name for axis in axes_of(MOE)] == [axis.name for axis in AXES]
    assert AXES[-1].name == "dp"
